//! Terms and selections give what Apache Cassandra gives: same bytes, names, types and errors.
//!
//! The suites under `expressions/` hold what Cassandra 5.0.8 answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::ast::{Insert, InsertValues, Predicate, Select, Statement, Term};
use cql_compiler::{CompileError, Markers, Receiver, compile_in, compile_selection, compile_term_of_table};
use plan::{BindContext, Bound, BoundValues, Evaluated, ResultColumn, Row, ValueRows};
use proptest::prelude::*;
use schema::{Column, ColumnKind, Keyspace, Schema, Table, TableId, TableOptions};
use testkit::{Suite, path};
use types::{CqlType, UdtType};
use uuid::Uuid;

/// Answers that differ on purpose, each with its reason.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "SELECT writetime(l), ttl(l), maxwritetime(l), writetime(ad), maxwritetime(fl), writetime(fl), writetime(ad.num) \
         FROM ks.a WHERE k = 1",
        "the times of a multi-cell column's elements are not kept in a row",
    ),
    (
        "SELECT writetime(tp), ttl(s), ttl(m['a']), writetime(m['a']) FROM ks.a",
        "the times of a multi-cell column's elements are not kept in a row",
    ),
    (
        "SELECT todate(ts), toTimestamp(tu), tounixtimestamp(ts), to_date(ts), to_timestamp(da), to_unix_timestamp(da), \
         dateOf(tu), unixTimestampOf(tu) FROM ks.a WHERE k = 1",
        "dateOf is kept: applications of ScyllaDB and of Cassandra 4 call it",
    ),
    (
        "SELECT [i], {i}, (i), [] FROM ks.a WHERE k = 1",
        "parentheses around a column are only that",
    ),
    (
        "SELECT (i) FROM ks.a WHERE k = 1",
        "parentheses around a column are only that",
    ),
    (
        "SELECT min(ts), max(da), min(tm), max(tu), min(ip), max(bl), min(bo), max(f), min(d), max(de), min(v), max(si) \
         FROM ks.a",
        "Cassandra tells the greatest timeuuid as a custom type, which is a fault",
    ),
    (
        "SELECT (list<text>)['a', t], (set<text>){t, 'a'}, (map<text, int>){t: i, 'z': 5}, (tuple<int, text>)(i, t) \
         FROM ks.a WHERE k = 1",
        "a map literal whose first key is a column has columns as keys only",
    ),
    (
        "SELECT cast((double)1e300 as int), cast((double)-1e300 as bigint), cast((float)3.9 as int), cast((double)-3.9 as \
         varint), cast((double)1e20 as text), cast((double)0.0001 as text), cast((float)123456789 as text), \
         cast((double)100 as text), cast((decimal)1e10 as text), cast((decimal)0.0000001 as text), cast((decimal)123.4500 \
         as text) FROM ks.a WHERE k = 1",
        "a float has the fewest digits that read back the same; older Java writes some with one more",
    ),
    (
        "SELECT 1, 'a', 1.5, true, 0xcafe, 123e4567-e89b-12d3-a456-426614174000 FROM ks.a WHERE k = 1",
        "a literal has a type by default",
    ),
    (
        "SELECT [i, k], {i, k}, {'a':i}, {i:t}, (i, t) FROM ks.a WHERE k = 1",
        "a literal has a type by default, so another of two faults is told",
    ),
    ("SELECT [1,2] FROM ks.a", "a literal has a type by default"),
    ("SELECT [i, 1], (i, 1) FROM ks.a", "a literal has a type by default"),
    ("SELECT -5 FROM ks.a WHERE k = 1", "a literal has a type by default"),
    (
        "SELECT cast(300 as tinyint) FROM ks.a WHERE k = 1",
        "a literal has a type by default",
    ),
    ("i = count(1)", "another of two faults is told"),
    ("i = from_json('x')", "in the words of another parser of JSON"),
    ("de = from_json('1.50')", "a decimal keeps the zeros that are written"),
    ("a = 'é'", "without the name of a Java exception"),
];

fn user_type(name: &str) -> Option<Arc<UdtType>> {
    let fields = match name {
        "addr" => vec![("street".to_owned(), CqlType::Text), ("num".to_owned(), CqlType::Int)],
        "pt" => vec![("x".to_owned(), CqlType::Int), ("y".to_owned(), CqlType::Int)],
        _ => return None,
    };
    Some(Arc::new(UdtType {
        keyspace: "ks".to_owned(),
        name: name.to_owned(),
        fields,
    }))
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
}

fn column_lines() -> Vec<[&'static str; 3]> {
    let split = |line: &'static str| {
        let mut parts = line.splitn(3, " | ");
        std::array::from_fn(|_| parts.next().expect("a column has a name, a type and a value"))
    };
    lines(include_str!("expressions/columns.txt")).map(split).collect()
}

struct World {
    schema: Schema,
    table: Arc<Table>,
    rows: BTreeMap<i32, Row>,
}

fn world() -> World {
    let read =
        |text: &str| CqlType::parse(text, &|_, name| user_type(name)).expect("the types of the table are well written");
    let column = |name: &str, cql_type: CqlType| match name {
        "k" => Column::new(name, cql_type, ColumnKind::PartitionKey),
        _ => Column::new(name, cql_type, ColumnKind::Regular),
    };
    let mut columns: Vec<_> = column_lines()
        .iter()
        .map(|[name, text, _]| column(name, read(text)))
        .collect();
    columns.push(column("ptc", read("pt")));
    let table = Arc::new(Table::new(
        "ks",
        "a",
        TableId(Uuid::nil()),
        columns,
        TableOptions::default(),
    ));
    let keyspace = Keyspace {
        name: "ks".to_owned(),
        replication: BTreeMap::new(),
        durable_writes: true,
        tablets: None,
        types: ["addr", "pt"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), user_type(name)?)))
            .collect(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: BTreeMap::from([("a".to_owned(), table.clone())]),
    };
    let schema = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::from([("ks".to_owned(), Arc::new(keyspace))]),
    };
    let mut world = World {
        schema,
        table,
        rows: BTreeMap::new(),
    };
    let mut first = Row::new(&world.table);
    for [name, _, literal] in column_lines() {
        let position = world.position(name);
        let bytes = world
            .term(name, &parse_term(literal))
            .expect("the row's literals are valid");
        first.set(position, &bytes.expect("the row has no nulls"));
        first.set_times(position, 1_000, 0);
    }
    let mut second = Row::new(&world.table);
    for (name, value) in [("k", 2_i32), ("i", 10)] {
        let position = world.position(name);
        second.set(position, &value.to_be_bytes());
        second.set_times(position, 1_000, 0);
    }
    world.rows.insert(1, first);
    world.rows.insert(2, second);
    world
}

const NOW: BindContext<'static> = BindContext {
    values: BoundValues::NONE,
    now_us: 1_600_000_000_000_000,
    now_in_seconds: None,
    random: 7,
};

impl World {
    fn position(&self, column: &str) -> usize {
        let position = self.table.columns.iter().position(|c| c.name == column);
        position.expect("the table has the column")
    }

    fn term(&self, column: &str, term: &Term) -> Result<Option<Vec<u8>>, CompileError> {
        let cql_type = self.table.column(column).expect("the column exists").cql_type.clone();
        let mut markers = Markers::new(0);
        let receiver = Receiver::new(column, cql_type);
        let operand = compile_term_of_table(term, &receiver, &mut markers, &self.schema, &self.table)?;
        Ok(match operand.eval(&NOW)? {
            Evaluated::Value(bytes) => Some(bytes.into_owned()),
            Evaluated::Null => None,
            Evaluated::Unset => panic!("no term of a text is unset"),
        })
    }

    /// The result as the file has it: a line for each column, or the error.
    fn select(&self, select: &Select, key: Option<i32>) -> Result<Vec<String>, CompileError> {
        let selection = compile_selection(select, &self.table, &mut Markers::new(0), &self.schema, "ks")?;
        let rows: Vec<&Row> = match key {
            Some(key) => self.rows.get(&key).into_iter().collect(),
            None => self.rows.values().collect(),
        };
        let mut cells = vec![Vec::new(); selection.columns.len()];
        let mut out = ValueRows::default();
        if selection.is_aggregate() {
            let mut group = selection.new_group();
            for row in rows {
                selection.accumulate(&mut group, row, &NOW)?;
            }
            selection.write_group(group, &NOW, &mut out)?;
        } else {
            for row in rows {
                selection.write_row(row, &NOW, &mut out)?;
            }
        }
        for row in out.rows {
            assert_eq!(row.len(), cells.len(), "a row has a value for each column");
            for (column, value) in cells.iter_mut().zip(row) {
                column.push(value.map_or("null".to_owned(), |bytes| CqlType::Blob.format(&bytes)));
            }
        }
        let describe = |(column, cells): (&ResultColumn, Vec<String>)| {
            format!(
                "{} | {} | {}",
                column.name,
                on_the_wire(&column.cql_type),
                cells.join(" ")
            )
            .trim_end()
            .to_owned()
        };
        Ok(selection.columns.iter().zip(cells).map(describe).collect())
    }
}

/// A type as it is in the protocol: without what is frozen.
fn on_the_wire(cql_type: &CqlType) -> String {
    let mut text = cql_type.to_string();
    while let Some(start) = text.find("frozen<") {
        let mut depth = 0;
        let end = text[start..].find(|c| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            c == '>' && depth == 0
        });
        let end = start + end.expect("brackets are paired");
        text = format!("{}{}{}", &text[..start], &text[start + 7..end], &text[end + 1..]);
    }
    text
}

fn parse_term(text: &str) -> Term {
    let parsed = cql::parse(&format!("INSERT INTO t (c) VALUES ({text})")).expect("the term is well written");
    match parsed.statement {
        Statement::Insert(insert) => match insert.values {
            InsertValues::Columns { mut values, .. } => values.pop().expect("there is one value"),
            InsertValues::Json { .. } => panic!("not a JSON insert"),
        },
        _ => panic!("not an INSERT"),
    }
}

/// Compares the answers to a suite with those of Cassandra, but for the known differences.
fn check(path: &str, answer: impl Fn(&str) -> Result<Vec<String>, String>) {
    testkit::run(path, |case| {
        let given = answer(&case.text).unwrap_or_else(|message| vec![format!("! {message}")]);
        let expected: Vec<&str> = case.expected.lines().collect();
        let is_same = given.len() == expected.len() && given.iter().zip(expected).all(|(g, e)| same_line(g, e));
        let difference = DIFFERENCES.iter().find(|(known, _)| *known == case.text);
        match difference {
            Some((_, reason)) if is_same => format!("there is no difference any more: {reason}"),
            None if !is_same => given.join("\n"),
            _ => case.expected.clone(),
        }
    });
}

/// Lists of signatures have no order of their own in Cassandra.
fn same_line(given: &str, expected: &str) -> bool {
    // Cassandra remembers a function of any type under the name by which it was called first.
    let (given, expected) = (
        &given.replace("tojson", "to_json"),
        &expected.replace("tojson", "to_json"),
    );
    // Some of its errors begin with the name of a Java exception.
    let expected = &expected.replace("org.apache.cassandra.serializers.MarshalException: ", "");
    let sorted = |line: &str| {
        let mut parts: Vec<String> = line
            .trim_end_matches(": use type casts to disambiguate")
            .split("system.")
            .map(|part| part.trim_end_matches([',', ' ', ')']).to_owned())
            .collect();
        parts[1..].sort();
        parts
    };
    given == expected || (expected.contains("signatures") && sorted(given) == sorted(expected))
}

#[test]
fn terms_are_stored_as_cassandra_stores_them() {
    let world = world();
    check(path!("tests/expressions/terms.txt"), |case| {
        let (column, term) = case.split_once(" = ").expect("a case is a column and a term");
        let value = world.term(column, &parse_term(term)).map_err(|error| error.message())?;
        // An empty multi-cell collection has no cells, and reads back as null.
        let is_empty = |bytes: &[u8]| {
            let cql_type = &world.table.column(column).expect("the column exists").cql_type;
            cql_type.is_multi_cell() && cql_type.is_collection() && bytes == [0; 4]
        };
        let is_empty = |bytes: &[u8]| is_empty(bytes) || (column == "ad" && bytes.iter().all(|&b| b == 0xff));
        let value = value.filter(|bytes| !is_empty(bytes));
        Ok(vec![
            value.map_or("null".to_owned(), |bytes| CqlType::Blob.format(&bytes)),
        ])
    });
}

fn select_of(world: &World, case: &str) -> Result<Vec<String>, String> {
    let (text, key) = match case.split_once(" WHERE k = ") {
        Some((text, key)) => (text, Some(key.parse().expect("the key is a number"))),
        None => (case, None),
    };
    let parsed = cql::parse(text).map_err(|error| error.to_string())?;
    let Statement::Select(select) = &parsed.statement else {
        panic!("not a SELECT: {text}")
    };
    world.select(select, key).map_err(|error| error.message())
}

#[test]
fn selections_give_what_cassandra_gives() {
    let world = world();
    check(path!("tests/expressions/selections.txt"), |case| {
        select_of(&world, case)
    });
}

/// What Cassandra 5.0 does not have: literals without a type hint, SELECT without FROM, functions of its release 6 and
/// of ScyllaDB.
#[test]
fn selections_of_our_own() {
    let world = world();
    testkit::run(path!("tests/expressions/own.txt"), |case| {
        let answer = select_of(&world, &case.text);
        answer.unwrap_or_else(|message| vec![format!("! {message}")]).join("\n")
    });
}

// --- Bound values ----------------------------------------------------------------------------------------------------

fn parse_with_markers(text: &str) -> (Term, usize) {
    let parsed = cql::parse(&format!("INSERT INTO t (c) VALUES ({text})")).expect("the term is well written");
    let count = parsed.bind_markers.len();
    match parsed.statement {
        Statement::Insert(Insert {
            values: InsertValues::Columns { mut values, .. },
            ..
        }) => (values.pop().expect("there is one value"), count),
        _ => panic!("not an INSERT of columns"),
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    testkit::from_hex(hex.strip_prefix("0x").expect("bytes begin with 0x"))
}

impl World {
    /// What a term with bound values is worth, as text: bytes in hex, `null`, `unset` or the error.
    fn bind(&self, column: &str, term: &str, values: &[Bound<'_>]) -> String {
        let (term, count) = parse_with_markers(term);
        let cql_type = self.table.column(column).expect("the column exists").cql_type.clone();
        let mut markers = Markers::new(count);
        let receiver = Receiver::new(column, cql_type);
        let ctx = BindContext {
            values: BoundValues::Lent(values),
            ..NOW
        };
        let evaluated = compile_term_of_table(&term, &receiver, &mut markers, &self.schema, &self.table)
            .and_then(|operand| Ok(format!("{}", Shown(&operand.eval(&ctx)?))));
        evaluated.unwrap_or_else(|error| format!("! {}", error.message()))
    }
}

struct Shown<'a>(&'a Evaluated<'a>);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Evaluated::Value(bytes) => f.write_str(&CqlType::Blob.format(bytes)),
            Evaluated::Null => f.write_str("null"),
            Evaluated::Unset => f.write_str("unset"),
        }
    }
}

#[test]
fn bound_bytes_are_checked_by_the_type_that_takes_them() {
    let world = world();
    testkit::run(path!("tests/expressions/bound.txt"), |case| {
        let (assignment, bound) = case.text.split_once('\n').expect("a case has an assignment and bytes");
        let (column, term) = assignment
            .split_once(" = ")
            .expect("an assignment is a column and a term");
        let bytes = bound.strip_prefix("0x").map(testkit::from_hex);
        let value = match (bound, &bytes) {
            ("null", _) => Bound::Null,
            ("unset", _) => Bound::Unset,
            (_, bytes) => Bound::Value(bytes.as_ref().expect("bytes in hexadecimal digits")),
        };
        world.bind(column, term, &[value]).to_string()
    });
    assert_eq!(world.bind("i", "?", &[]), "! Invalid amount of bind variables");
}

/// The alternatives of `k IN text`, or the error; and what its markers are.
fn alternatives(world: &World, text: &str, values: &[Bound<'_>]) -> (String, String) {
    let parsed = cql::parse(&format!("SELECT * FROM a WHERE k IN {text}")).expect("the relation is well written");
    let Statement::Select(select) = parsed.statement else {
        panic!("not a SELECT")
    };
    let Predicate::In {
        values: alternatives, ..
    } = &select.relations[0].predicate
    else {
        panic!("not an IN")
    };
    let mut markers = Markers::new(parsed.bind_markers.len());
    let receiver = Receiver::new("k", CqlType::Int);
    let ctx = BindContext {
        values: BoundValues::Lent(values),
        ..NOW
    };
    let found = compile_in(alternatives, &receiver, &mut markers, &world.schema, "ks").and_then(|operand| {
        let values = operand.eval(&ctx)?;
        Ok(values
            .iter()
            .map(|value| CqlType::Int.format(value))
            .collect::<Vec<_>>()
            .join(" "))
    });
    (
        found.unwrap_or_else(|error| format!("! {}", error.message())),
        specs_of(markers),
    )
}

/// The names and types of markers.
fn specs_of(markers: Markers) -> String {
    let specs = markers.finish().expect("each marker has a meaning");
    let specs: Vec<_> = specs
        .iter()
        .map(|spec| format!("{} {}", spec.name, spec.cql_type))
        .collect();
    specs.join(", ")
}

#[test]
fn alternatives_of_in_are_never_null() {
    let world = world();
    let answer = |text: &str, values: &[Bound<'_>]| alternatives(&world, text, values);
    let list = bytes_of("0x0000000200000004000000070000000400000005");
    let with_null = bytes_of("0x000000020000000400000007ffffffff");
    let with_empty = bytes_of("0x00000002000000040000000700000000");
    let malformed = bytes_of("0x0000000100000002abcd");
    let of_list = "in(k) list<int>";
    let no_null = "! Invalid null value in condition for column k";
    let no_unset = "! Invalid unset value for column k";
    let table: [(&str, &[Bound<'_>], &str, &str); 12] = [
        ("(3, 1, 3)", &[], "3 1 3", ""),
        ("()", &[], "", ""),
        ("(1, null)", &[], no_null, ""),
        ("(1, ?)", &[Bound::Null], no_null, "k int"),
        ("(1, :x)", &[Bound::Unset], no_unset, "x int"),
        ("?", &[Bound::Value(&list)], "7 5", of_list),
        ("?", &[Bound::Value(&with_null)], no_null, of_list),
        (
            "?",
            &[Bound::Value(&malformed)],
            "! Expected 4 or 0 byte int (2)",
            of_list,
        ),
        ("?", &[Bound::Value(&with_empty)], no_null, of_list),
        (
            "?",
            &[Bound::Value(&[0, 0])],
            "! Not enough bytes to read a list",
            of_list,
        ),
        ("?", &[Bound::Null], "! Invalid null value for column k", of_list),
        (":ks", &[Bound::Unset], no_unset, "ks list<int>"),
    ];
    for (text, values, expected, specs) in table {
        assert_eq!(
            answer(text, values),
            (expected.to_owned(), specs.to_owned()),
            "k IN {text}"
        );
    }
}

#[test]
fn markers_are_named_after_what_they_stand_for() {
    let world = world();
    let table = [
        (
            "SELECT (int)?, m[?], s[?..?], intasblob(?), token(?), i + (int)? FROM a",
            "[selection] int, key(m) text, value(s) \
          int, value(s) int, [selection] int, [selection] int, [selection] int",
        ),
        (
            "SELECT sum((int)?), cast((double)? as ascii), (int):mine FROM a",
            "[selection] int, [selection] double, mine int",
        ),
    ];
    for (text, expected) in table {
        let parsed = cql::parse(text).expect("the statement is well written");
        let Statement::Select(select) = parsed.statement else {
            panic!("not a SELECT")
        };
        let mut markers = Markers::new(parsed.bind_markers.len());
        match compile_selection(&select, &world.table, &mut markers, &world.schema, "ks") {
            Ok(_) => {
                assert_eq!(specs_of(markers), expected, "{text}");
            }
            Err(error) => assert_eq!(format!("! {}", error.message()), expected, "{text}"),
        }
    }
    let of_terms = [
        ("l", "[?, ?]", "value(l) int, value(l) int"),
        ("m", "{?: ?}", "key(m) text, value(m) int"),
        ("fad", "{street: ?, num: ?}", "fad.street text, fad.num int"),
        ("tp", "(?, ?)", "tp[0] int, tp[1] text"),
        ("bl", "intasblob(?)", "arg0(system.intasblob) int"),
        ("b", "token(?)", "arg0(system.token) int"),
        ("i", "-?", "arg0(system._negate) int"),
        ("i", ":mine", "mine int"),
    ];
    for (column, text, expected) in of_terms {
        let (term, count) = parse_with_markers(text);
        let mut markers = Markers::new(count);
        let receiver = Receiver::new(column, world.table.column(column).expect("it exists").cql_type.clone());
        compile_term_of_table(&term, &receiver, &mut markers, &world.schema, &world.table).expect("it is valid");
        assert_eq!(specs_of(markers), expected, "{column} = {text}");
    }
    assert!(
        Markers::new(1).finish().is_err(),
        "a marker that nothing stands for is a fault"
    );
}

// --- Calls that give something else each time ------------------------------------------------------------------------

#[test]
fn each_call_of_now_and_uuid_gives_another() {
    let world = world();
    let mut seen = std::collections::HashSet::new();
    let mut markers = Markers::new(0);
    for (column, text, version) in [("tu", "now()", 1), ("u", "uuid()", 4), ("tu", "current_timeuuid()", 1)] {
        let receiver = Receiver::new(column, world.table.column(column).expect("it exists").cql_type.clone());
        let term = parse_term(text);
        let mut compile =
            || compile_term_of_table(&term, &receiver, &mut markers, &world.schema, &world.table).expect("it is valid");
        let operands = [compile(), compile()];
        for operand in operands.iter().chain(&operands) {
            let Ok(Evaluated::Value(bytes)) = operand.eval(&NOW) else {
                panic!("{text} has a value")
            };
            let uuid = Uuid::from_slice(&bytes).expect("a UUID has 16 bytes");
            assert_eq!(uuid.get_version_num(), version, "version of {text}");
            if version == 1 {
                assert_eq!(types::timeuuid::unix_millis(&uuid), 1_600_000_000_000, "time of {text}");
            }
            seen.insert(uuid);
        }
    }
    assert_eq!(seen.len(), 12, "each of 12 calls has a value of its own: {seen:?}");
}

#[test]
fn the_moment_is_that_of_the_execution() {
    let world = world();
    for (column, term, expected) in [
        ("ts", "current_timestamp()", "2020-09-13T12:26:40.000Z"),
        ("da", "currentDate()", "2020-09-13"),
        ("tm", "current_time()", "12:26:40.000000000"),
        ("ts", "currentTimestamp() - 2h", "2020-09-13T10:26:40.000Z"),
        ("da", "todate(now())", "2020-09-13"),
    ] {
        let cql_type = &world.table.column(column).expect("it exists").cql_type;
        let value = world
            .term(column, &parse_term(term))
            .expect("the term is valid")
            .expect("it has a value");
        assert_eq!(cql_type.format_unquoted(&value), expected, "{term}");
    }
}

// --- Hostile input ---------------------------------------------------------------------------------------------------

#[test]
fn deep_expressions_compile_at_once() {
    let world = world();
    for text in [
        vec!["1"; 40].join(" + "),
        format!("{}1{}", "-(".repeat(30), ")".repeat(30)),
        format!("{}0x00000001{}", "intasblob(blobasint(".repeat(12), "))".repeat(12)),
    ] {
        let (column, text) = if text.starts_with("int") {
            ("bl", text)
        } else {
            ("i", text)
        };
        assert!(world.term(column, &parse_term(&text)).is_ok(), "{text}");
    }
    let deep = format!("SELECT {}i{} FROM a", "abs(".repeat(40), ")".repeat(40));
    let Statement::Select(select) = cql::parse(&deep).expect("it is well written").statement else {
        panic!()
    };
    assert!(world.select(&select, Some(1)).is_ok(), "{deep}");
}

proptest! {
    #[test]
    fn no_bytes_that_are_bound_break_anything(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let world = world();
        for column in &world.table.columns {
            let ctx_values = [Bound::Value(&bytes)];
            let ctx = BindContext { values: BoundValues::Lent(&ctx_values), ..NOW };
            let (term, count) = parse_with_markers("?");
            let receiver = Receiver::new(column.name.clone(), column.cql_type.clone());
            let operand = compile_term_of_table(&term, &receiver, &mut Markers::new(count), &world.schema, &world.table)
                .expect("every column takes a marker");
            if let Ok(Evaluated::Value(value)) = operand.eval(&ctx) {
                prop_assert!(column.cql_type.validate(&value).is_ok(), "{} let through {value:?}", column.cql_type);
            }
            let _ = operand.eval_list(&column.name, &ctx);
        }
    }

    /// Rows come from disks and other nodes: whatever is in them, each selection gives a value or an error.
    #[test]
    fn no_bytes_in_a_row_break_a_selection(
        bytes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..24), 40),
    ) {
        let world = world();
        let mut row = Row::new(&world.table);
        for (position, value) in (0..world.table.columns.len()).zip(&bytes) {
            row.set(position, value);
        }
        let suite = Suite::parse(include_str!("expressions/selections.txt")).expect("a suite");
        for case in &suite.cases {
            let text = case.text.split(" WHERE ").next().unwrap_or(&case.text);
            let Ok(parsed) = cql::parse(text) else { continue };
            let Statement::Select(select) = &parsed.statement else { continue };
            let Ok(selection) = compile_selection(select, &world.table, &mut Markers::new(0), &world.schema, "ks") else {
                continue;
            };
            let _ = selection.write_row(&row, &NOW, &mut ValueRows::default());
        }
    }
}
