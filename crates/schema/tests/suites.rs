//! Column ids, layouts, orders, keys and DDL text: the suites of `tests/suites`.
//!
//! A suite works on one table: `table` makes it, `add`, `drop` and `rename` change it as ALTER TABLE does, and the
//! other commands ask about it. Columns are lines of a name, a type and a role: `partition`, `key`, `key desc`,
//! `static`.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{
    CellLayout, ClusteringOrder, Column, ColumnKind, Keyspace, RateLimits, Schema, Table, TableId, TableOptions,
    components, describe_keyspace, describe_table, java_double, push_component, push_null, quote_identifier,
    split_component,
};
use testkit::{Case, path};
use types::{CqlType, LiteralKind};
use uuid::Uuid;

fn cql_type(text: &str) -> CqlType {
    CqlType::parse_native(text).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// The serialised value of a literal.
fn literal(cql_type: &CqlType, text: &str) -> Vec<u8> {
    let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let kind = match text {
        "empty" => return Vec::new(),
        _ if quoted.is_some() => LiteralKind::String,
        _ if text.starts_with("0x") => LiteralKind::Hex,
        "true" | "false" => LiteralKind::Boolean,
        _ if text.len() == 36 => LiteralKind::Uuid,
        _ if text.contains('.') || text == "NaN" => LiteralKind::Float,
        _ => LiteralKind::Integer,
    };
    cql_type
        .parse_literal(kind, quoted.unwrap_or(text))
        .unwrap_or_else(|e| panic!("{text} as {cql_type}: {}", e.message_for("a column")))
}

/// A table of these columns. Partition and clustering columns count their positions themselves.
fn table(name: &str, lines: &str) -> Table {
    let (mut partition, mut clustering) = (0u16, 0u16);
    let roles = [
        (" partition", ColumnKind::PartitionKey, false),
        (" key desc", ColumnKind::Clustering, true),
        (" key", ColumnKind::Clustering, false),
        (" static", ColumnKind::Static, false),
        ("", ColumnKind::Regular, false),
    ];
    let columns = lines.lines().map(|line| {
        let (name, rest) = line.split_once(": ").unwrap_or_else(|| panic!("NAME: TYPE in {line}"));
        let found = roles
            .iter()
            .find_map(|(end, kind, desc)| Some((rest.strip_suffix(end)?, *kind, *desc)));
        let (text, kind, descending) = found.expect("a regular column has no role");
        let mut column = Column::new(name, cql_type(text), kind);
        column.descending = descending;
        let position = match kind {
            ColumnKind::PartitionKey => &mut partition,
            ColumnKind::Clustering => &mut clustering,
            _ => return column,
        };
        column.position = *position;
        *position += 1;
        column
    });
    let (keyspace, name) = name.split_once('.').unwrap_or(("sea", name));
    let id = TableId(Uuid::from_u128(7));
    Table::new(keyspace, name, id, columns.collect(), TableOptions::default())
}

fn cell_text(layout: CellLayout) -> String {
    match layout {
        CellLayout::Fixed(n) => format!("{n} bytes"),
        CellLayout::Variable => "a length and bytes".to_owned(),
        CellLayout::Complex => "elements".to_owned(),
        CellLayout::Unknown => "unknown".to_owned(),
    }
}

/// All columns that the table has and had, and what packed rows need to know of them.
fn columns(table: &Table) -> String {
    let mut lines = Vec::new();
    for c in &table.columns {
        let is_key = matches!(c.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
        let what = match c.kind {
            ColumnKind::PartitionKey => format!("partition key {}", c.position),
            ColumnKind::Clustering if c.descending => format!("clustering key {} descending", c.position),
            ColumnKind::Clustering => format!("clustering key {}", c.position),
            ColumnKind::Static => "static".to_owned(),
            ColumnKind::Regular => "regular".to_owned(),
        };
        let cell = table.layout.cell(usize::from(c.id.0));
        let place = if is_key {
            String::new()
        } else {
            format!(", column {}: {}", c.id.0, cell_text(cell))
        };
        lines.push(format!("{} {}, {what}{place}", c.name, c.cql_type));
    }
    for c in &table.dropped {
        let id = usize::from(c.id.0);
        assert!(
            table.layout.is_dropped(id),
            "the layout knows that {} was dropped",
            c.name
        );
        lines.push(format!(
            "dropped {} {}, column {id}: {}",
            c.name,
            c.cql_type,
            cell_text(table.layout.cell(id))
        ));
    }
    let mut ids: Vec<u16> = table.statics().chain(table.regulars()).map(|c| c.id.0).collect();
    ids.extend(table.dropped.iter().map(|c| c.id.0));
    ids.sort_unstable();
    assert!(
        ids.windows(2).all(|pair| pair[0] != pair[1]),
        "a column id was given twice: {ids:?}"
    );
    assert!(
        ids.iter().all(|id| *id < table.next_column_id),
        "an id that was not given yet: {ids:?}"
    );
    lines.join("\n")
}

fn change(table: &mut Table, case: &Case) -> String {
    let words: Vec<&str> = case.arguments().split_whitespace().collect();
    match (case.command(), &words[..]) {
        ("add", [name, rest @ .., "static"]) => {
            table.add_column(name, cql_type(&rest.join(" ")), ColumnKind::Static);
        }
        ("add", [name, rest @ ..]) => table.add_column(name, cql_type(&rest.join(" ")), ColumnKind::Regular),
        ("drop", [name, "at", at]) => table.drop_column(name, at.parse().expect("microseconds")),
        ("rename", [from, "to", to]) => table.rename_column(from, to),
        _ => panic!("what is: {}", case.text),
    }
    columns(table)
}

/// How the cells of each type are stored.
fn layouts(case: &Case) -> String {
    let answer = |text: &str| {
        let mut table = table("t", "k: int partition");
        table.add_column("c", cql_type(text), ColumnKind::Regular);
        let complex = table.layout.has_complex();
        let cell = table.layout.cell(0);
        assert_eq!(complex, cell == CellLayout::Complex, "{text}");
        format!("{text}: {}", cell_text(cell))
    };
    case.input().lines().map(answer).collect::<Vec<_>>().join("\n")
}

/// Sorts lines by a comparison; equal ones share a line.
fn sorted(lines: Vec<(&str, Vec<u8>)>, compare: impl Fn(&[u8], &[u8]) -> std::cmp::Ordering) -> String {
    let mut lines = lines;
    for (_, a) in &lines {
        for (_, b) in &lines {
            assert_eq!(compare(a, b), compare(b, a).reverse(), "one order of two keys");
        }
    }
    lines.sort_by(|(_, a), (_, b)| compare(a, b));
    let mut out = String::new();
    for (i, (text, key)) in lines.iter().enumerate() {
        if i > 0 {
            out.push_str(if compare(&lines[i - 1].1, key).is_eq() {
                " = "
            } else {
                "\n"
            });
        }
        out.push_str(text);
    }
    out
}

fn clustering_key(table: &Table, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let values = text.split(", ").filter(|value| !value.is_empty());
    for (column, value) in table.clustering().zip(values) {
        match value {
            "nothing" => push_null(&mut out),
            value => push_component(&mut out, &literal(&column.cql_type, value)),
        }
    }
    out
}

/// The order of rows, which a table that is read again from its columns has too.
fn order(table: &Table, case: &Case) -> String {
    let keys = || {
        case.input()
            .lines()
            .map(|text| (text, clustering_key(table, text)))
            .collect::<Vec<_>>()
    };
    let answer = sorted(keys(), |a, b| table.clustering_order.compare(a, b));
    let types: Vec<_> = table.clustering().map(|c| (c.cql_type.clone(), c.descending)).collect();
    let again = ClusteringOrder::from_types(&types);
    assert_eq!(sorted(keys(), |a, b| again.compare(a, b)), answer);
    answer
}

/// The order of a collection's elements by their paths.
fn paths(case: &Case) -> String {
    let mut table = table("t", "k: int partition");
    let collection = cql_type(case.arguments());
    let path_type = match &collection {
        CqlType::Set(key) | CqlType::Map(key, _) => (**key).clone(),
        CqlType::List(_) => CqlType::TimeUuid,
        CqlType::Counter => CqlType::Blob,
        other => panic!("{other} has no paths"),
    };
    table.add_column("c", collection, ColumnKind::Regular);
    let lines = case.input().lines().map(|text| (text, literal(&path_type, text)));
    sorted(lines.collect(), |a, b| table.layout.compare_paths(0, a, b))
}

/// The serialised form of clustering keys and prefixes, which reads back as its components.
fn keys(table: &Table, case: &Case) -> String {
    let answer = |text: &str| {
        let key = clustering_key(table, text);
        let values: Vec<String> = components(&key)
            .zip(table.clustering())
            .map(|(value, column)| value.map_or_else(|| "nothing".to_owned(), |value| column.cql_type.format(value)))
            .collect();
        let length = key.len();
        format!("{length} bytes: {} = {}", testkit::hex(&key), values.join(", "))
    };
    case.input().lines().map(answer).collect::<Vec<_>>().join("\n")
}

/// The components of bytes that may be cut short.
fn split(case: &Case) -> String {
    let answer = |text: &str| {
        let bytes = testkit::from_hex(&text.replace(' ', ""));
        let parts: Vec<String> = components(&bytes)
            .map(|part| part.map_or_else(|| "[nothing]".to_owned(), |part| format!("[{}]", testkit::hex(part))))
            .collect();
        let mut rest = &bytes[..];
        while let Some((_, behind)) = split_component(rest) {
            rest = behind;
        }
        let left = if rest.is_empty() {
            String::new()
        } else {
            format!(" and {} left", testkit::hex(rest))
        };
        format!("{}{left}", parts.concat())
    };
    case.input().lines().map(answer).collect::<Vec<_>>().join("\n")
}

/// Sets options of the table: lines of a name and a value.
fn options(table: &mut Table, case: &Case) {
    let o = &mut table.options;
    for line in case.input().lines() {
        let (name, value) = line.split_once(": ").expect("NAME: VALUE");
        match name {
            "comment" => o.comment = value.to_owned(),
            "bloom_filter_fp_chance" => o.bloom_filter_fp_chance = value.parse().expect("a number"),
            "gc_grace_seconds" => o.gc_grace_seconds = value.parse().expect("seconds"),
            "extension" => {
                o.extensions.insert(value.to_owned(), "0x00".to_owned());
            }
            "reads" => o.rate_limits.reads = Some(value.parse().expect("a number")),
            "writes" => o.rate_limits.writes = Some(value.parse().expect("a number")),
            "nothing" => *o = TableOptions::default(),
            other => panic!("no option of these tests is called {other}"),
        }
    }
    assert_eq!(
        o.rate_limits.named().count() == 0,
        o.rate_limits == RateLimits::default()
    );
}

/// `NAME OPTION=VALUE …`; `tablets=` and `durable_writes=` are not of the replication.
fn keyspace(case: &Case) -> String {
    let mut words = case.arguments().split_whitespace();
    let mut keyspace = Keyspace {
        name: words.next().expect("a name").to_owned(),
        replication: BTreeMap::new(),
        durable_writes: true,
        tablets: None,
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: BTreeMap::new(),
    };
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        match name {
            "durable_writes" => keyspace.durable_writes = value == "true",
            "tablets" => keyspace.tablets = Some([("enabled".to_owned(), value.to_owned())].into()),
            _ => {
                keyspace.replication.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    describe_keyspace(&keyspace)
}

/// The keyspace of a table, without the table.
fn keyspace_of(table: &Table, is_on_ring: bool) -> Keyspace {
    Keyspace {
        name: table.keyspace.clone(),
        replication: BTreeMap::new(),
        durable_writes: true,
        tablets: is_on_ring.then(|| [("enabled".to_owned(), "false".to_owned())].into()),
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: BTreeMap::new(),
    }
}

/// What a schema with the table finds by name and by id.
fn find(table: &Table) -> String {
    let mut keyspace = keyspace_of(table, false);
    keyspace.tables.insert(table.name.clone(), Arc::new(table.clone()));
    let schema = Schema {
        version: Uuid::nil(),
        keyspaces: [(keyspace.name.clone(), Arc::new(keyspace))].into(),
    };
    let found = |found: Option<&Arc<Table>>| if found.is_some() { "found" } else { "not found" };
    [
        format!("by name: {}", found(schema.table(&table.keyspace, &table.name))),
        format!("by another name: {}", found(schema.table(&table.keyspace, "nothing"))),
        format!("in another keyspace: {}", found(schema.table("nowhere", &table.name))),
        format!("by id: {}", found(schema.table_by_id(table.id))),
        format!("by another id: {}", found(schema.table_by_id(TableId(Uuid::nil())))),
    ]
    .join("\n")
}

fn facts(table: &Table) -> String {
    let names =
        |columns: &mut dyn Iterator<Item = &Column>| columns.map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
    let told: Vec<&str> = table.last_dropped().map(|c| c.name.as_str()).collect();
    [
        format!("partition key: {}", names(&mut table.partition_key())),
        format!("clustering: {}", names(&mut table.clustering())),
        format!("static: {}", names(&mut table.statics())),
        format!("regular: {}", names(&mut table.regulars())),
        format!("last dropped: {}", told.join(", ")),
        format!("has statics: {}, counts: {}", table.has_statics(), table.is_counter()),
    ]
    .join("\n")
}

fn answer(of: &mut Table, case: &Case) -> String {
    match case.command() {
        "table" => {
            let name = if case.arguments().is_empty() {
                "t"
            } else {
                case.arguments()
            };
            *of = table(name, case.input());
            columns(of)
        }
        "add" | "drop" | "rename" => change(of, case),
        "layouts" => layouts(case),
        "order" => order(of, case),
        "paths" => paths(case),
        "keys" => keys(of, case),
        "split" => split(case),
        "options" => {
            options(of, case);
            String::new()
        }
        "describe" => describe_table(&keyspace_of(of, case.has("ring")), of, case.has("internals")),
        "keyspace" => keyspace(case),
        "find" => find(of),
        "facts" => facts(of),
        "doubles" => {
            let double = |text: &str| java_double(text.parse().expect("a number"));
            case.input().lines().map(double).collect::<Vec<_>>().join("\n")
        }
        "names" => case
            .input()
            .lines()
            .map(quote_identifier)
            .collect::<Vec<_>>()
            .join("\n"),
        other => panic!("line {}: no command is called {other}", case.line),
    }
}

fn check(path: &str) {
    let mut of = table("t", "k: int partition");
    testkit::run(path, |case| answer(&mut of, case));
}

#[test]
fn column_ids_are_never_given_again() {
    check(path!("tests/suites/columns.txt"));
}

#[test]
fn rows_and_elements_have_one_order() {
    check(path!("tests/suites/order.txt"));
}

#[test]
fn tables_and_keyspaces_as_text() {
    check(path!("tests/suites/text.txt"));
}
