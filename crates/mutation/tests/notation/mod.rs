//! Rows, partitions and mutations as text, for the suites of `mutation` and of the crates above it.
//!
//! ```text
//! row        facts with `; ` between them, or `nothing`
//!   insert @10                         the row marker, at write timestamp 10
//!   a = 5 @10 ttl 60 until 700         a cell that expires; VALUE is a literal of the column's type
//!   m[1] = 'x' @10                     an element of a map; `s[1] @10` of a set; `l[3] = 7 @10` of a list,
//!                                      whose element 3 is the third that was ever appended;
//!                                      `n[4] = 7 @10` of a counter
//!   delete a @10 at 600                a tombstone of the cell or the collection, deleted in second 600
//!   delete m[1] @10 at 600             a tombstone of the element
//!   delete row @10 at 600              the row tombstone
//!   dropped a = 5 @10                  of a column that was dropped
//! partition  lines
//!   delete partition @10 at 600
//!   static: FACTS
//!   row 1, 'x': FACTS
//!   delete before (1) .. after (2) @10 at 600
//!   up to before (3)                   the stretch ends here
//! bound      before (1, 'x'), after (1), bottom, top
//! ```
//! [`lengthen`] makes a long text of `'x' * 100`; [`shorten`] writes it as `'x…100'`.
#![allow(dead_code, reason = "each test binary uses its own part")]

use mutation::row::{RowBuilder, RowView, Shared};
use mutation::{
    Bound, BoundKind, Cell, Column, Liveness, Mutation, MutationBuilder, MutationItem, PartitionBlock, RangeTombstone,
    Tombstone,
};
use schema::{CellLayout, ColumnKind, Table, TableId, TableOptions, components, push_component, push_null};
use types::token::token_of;
use types::{CqlType, LiteralKind};
use uuid::Uuid;

/// `k int` and further columns, a line each: `name type`, then `key`, `key desc` or `static` if it is one. Column ids
/// are given in the order of the names, statics first.
pub fn table(lines: &str) -> Table {
    let mut columns = vec![schema::Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
    let mut position = 0;
    for line in lines.lines() {
        let (name, rest) = line.split_once(' ').expect("a column has a name and a type");
        let (text, kind, descending) = if let Some(text) = rest.strip_suffix(" key") {
            (text, ColumnKind::Clustering, false)
        } else if let Some(text) = rest.strip_suffix(" key desc") {
            (text, ColumnKind::Clustering, true)
        } else if let Some(text) = rest.strip_suffix(" static") {
            (text, ColumnKind::Static, false)
        } else {
            (rest, ColumnKind::Regular, false)
        };
        let cql_type = CqlType::parse_native(text).unwrap_or_else(|e| panic!("{line}: {e:?}"));
        let mut column = schema::Column::new(name, cql_type, kind);
        if kind == ColumnKind::Clustering {
            (column.position, column.descending) = (position, descending);
            position += 1;
        }
        columns.push(column);
    }
    let id = TableId(Uuid::from_u128(7));
    Table::new("sea", "t", id, columns, TableOptions::default())
}

/// The serialised value of a literal.
pub fn literal(cql_type: &CqlType, text: &str) -> Vec<u8> {
    if text == "empty" {
        return Vec::new();
    }
    let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let kind = match text {
        _ if quoted.is_some() => LiteralKind::String,
        _ if text.starts_with("0x") => LiteralKind::Hex,
        "true" | "false" => LiteralKind::Boolean,
        _ if text.contains('.') => LiteralKind::Float,
        _ => LiteralKind::Integer,
    };
    cql_type
        .parse_literal(kind, quoted.unwrap_or(text))
        .unwrap_or_else(|e| panic!("{text} as {cql_type}: {}", e.message_for("a column")))
}

fn value_text(cql_type: &CqlType, value: &[u8]) -> String {
    if value.is_empty() && *cql_type != CqlType::Text {
        return "empty".to_owned();
    }
    cql_type.format(value)
}

/// Types of an element's path and value.
fn element_types(cql_type: &CqlType) -> (CqlType, CqlType) {
    match cql_type {
        CqlType::Map(key, value) => ((**key).clone(), (**value).clone()),
        CqlType::Set(element) => ((**element).clone(), CqlType::Blob),
        CqlType::List(element) => (CqlType::TimeUuid, (**element).clone()),
        CqlType::Counter => (CqlType::Blob, CqlType::BigInt),
        other => panic!("{other} has no elements"),
    }
}

/// The path that `text` names: a number is the time of a list's element or a counter's source.
fn path(column: &CqlType, text: &str) -> Vec<u8> {
    match column {
        CqlType::List(_) => {
            let ticks: i64 = text.parse().expect("the number of an element");
            types::timeuuid::from_parts(ticks, 0, [0; 6]).as_bytes().to_vec()
        }
        CqlType::Counter => text
            .parse::<u128>()
            .expect("the number of a source")
            .to_be_bytes()
            .to_vec(),
        other => literal(&element_types(other).0, text),
    }
}

fn path_text(column: &CqlType, path: &[u8]) -> String {
    match column {
        CqlType::List(_) => {
            let ticks = |n: i64| types::timeuuid::from_parts(n, 0, [0; 6]);
            let found = (0..1_000).find(|n| ticks(*n).as_bytes() == path);
            found.expect("an element of these tests").to_string()
        }
        CqlType::Counter => u128::from_be_bytes(path.try_into().expect("a source")).to_string(),
        other => value_text(&element_types(other).0, path),
    }
}

/// When something was written, deleted and expires.
struct Times {
    timestamp: i64,
    ttl: u32,
    /// Expiry, or the second of a deletion.
    second: u32,
}

/// Splits `X @10 ttl 60 until 700` or `X @10 at 600` into X and its times.
fn times(fact: &str) -> (&str, Times) {
    let (what, rest) = fact
        .rsplit_once('@')
        .unwrap_or_else(|| panic!("no @timestamp in: {fact}"));
    let words: Vec<&str> = rest.split_whitespace().collect();
    let second = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("seconds in: {fact}"));
    let timestamp = words[0].parse().unwrap_or_else(|_| panic!("a timestamp in: {fact}"));
    let (ttl, second) = match words[1..] {
        [] => (0, 0),
        ["at", at] => (0, second(at)),
        ["ttl", ttl, "until", until] => (second(ttl), second(until)),
        _ => panic!("what is: {fact}"),
    };
    (what.trim(), Times { timestamp, ttl, second })
}

fn tombstone(times: &Times) -> Tombstone {
    Tombstone {
        timestamp: times.timestamp,
        deletion_time: times.second,
    }
}

/// The id and type of the column of that name, or of `dropped NAME`.
fn column<'t>(table: &'t Table, name: &str) -> (usize, &'t CqlType) {
    let living = table.column(name).map(|c| (c.id, &c.cql_type));
    let dropped = name.strip_prefix("dropped ").and_then(|name| {
        let dropped = table.dropped.iter().find(|c| c.name == name);
        dropped.map(|c| (c.id, &c.cql_type))
    });
    let (id, cql_type) = living
        .or(dropped)
        .unwrap_or_else(|| panic!("the table has no column {name}"));
    (usize::from(id.0), cql_type)
}

/// A cell as it is owned while a row is read.
struct OwnedCell {
    times: Times,
    dead: bool,
    value: Vec<u8>,
}

impl OwnedCell {
    fn borrow(&self) -> Cell<'_> {
        Cell {
            timestamp: self.times.timestamp,
            ttl: self.times.ttl,
            deletion_time: self.times.second,
            dead: self.dead,
            value: &self.value,
        }
    }
}

/// What a row says of one column.
#[derive(Default)]
struct Written {
    simple: Option<OwnedCell>,
    tombstone: Option<Tombstone>,
    elements: Vec<(Vec<u8>, OwnedCell)>,
}

/// The facts of a row.
struct Facts {
    marker: Option<Liveness>,
    deletion: Tombstone,
    columns: std::collections::BTreeMap<usize, Written>,
    shared: Shared,
}

/// Reads the facts. The row shares the times of its first fact that is no deletion, as that of one statement does.
fn read_facts(table: &Table, facts: &str) -> Facts {
    let mut marker = None;
    let mut deletion = Tombstone::NONE;
    let mut columns: std::collections::BTreeMap<usize, Written> = std::collections::BTreeMap::new();
    let mut shared: Option<Shared> = None;
    let facts = facts
        .split("; ")
        .map(str::trim)
        .filter(|fact| *fact != "nothing" && !fact.is_empty());
    for fact in facts {
        let (what, times) = times(fact);
        let deleted = what.strip_prefix("delete ");
        if deleted.is_none() && shared.is_none() {
            shared = Some(Shared {
                timestamp: times.timestamp,
                ttl: times.ttl,
                expiry: times.second,
            });
        }
        if what == "insert" {
            marker = Some(Liveness {
                timestamp: times.timestamp,
                ttl: times.ttl,
                expiry: times.second,
            });
            continue;
        }
        if deleted == Some("row") {
            deletion = tombstone(&times);
            continue;
        }
        let (target, value) = match deleted {
            Some(target) => (target, None),
            None => what
                .split_once(" = ")
                .map_or((what, None), |(target, value)| (target, Some(value))),
        };
        let (name, element) = match target.split_once('[') {
            Some((name, element)) => (name, Some(element.strip_suffix(']').expect("a closing bracket"))),
            None => (target, None),
        };
        let (id, cql_type) = column(table, name);
        let written = columns.entry(id).or_default();
        let is_complex = table.layout.cell(id) == CellLayout::Complex;
        let dead = deleted.is_some();
        match element {
            Some(text) => {
                let value = value.map_or_else(Vec::new, |v| literal(&element_types(cql_type).1, v));
                let cell = OwnedCell { times, dead, value };
                written.elements.push((path(cql_type, text), cell));
            }
            None if dead && is_complex => written.tombstone = Some(tombstone(&times)),
            None => {
                let value = value.map_or_else(Vec::new, |v| literal(cql_type, v));
                written.simple = Some(OwnedCell { times, dead, value });
            }
        }
    }
    let shared = shared.unwrap_or(Shared {
        timestamp: deletion.timestamp.max(0),
        ttl: 0,
        expiry: 0,
    });
    Facts {
        marker,
        deletion,
        columns,
        shared,
    }
}

/// Packs the facts.
pub fn row(table: &Table, facts: &str) -> Vec<u8> {
    let Facts {
        marker,
        deletion,
        mut columns,
        shared,
    } = read_facts(table, facts);
    let is_shared = |cell: &OwnedCell, id: usize| {
        let times = &cell.times;
        !cell.dead
            && (times.timestamp, times.ttl, times.second) == (shared.timestamp, shared.ttl, shared.expiry)
            && !(cell.value.is_empty() && matches!(table.layout.cell(id), CellLayout::Fixed(_)))
    };
    let mixed = columns
        .iter()
        .any(|(id, written)| written.simple.as_ref().is_some_and(|cell| !is_shared(cell, *id)));
    let count = columns.keys().last().map_or(0, |id| id + 1);
    let mut out = Vec::new();
    let mut builder = RowBuilder::begin(&mut out, &table.layout, shared, marker, deletion, mixed, count);
    for (id, written) in &mut columns {
        let layout = &table.layout;
        written
            .elements
            .sort_by(|(a, _), (b, _)| layout.compare_paths(*id, a, b));
        match &written.simple {
            Some(cell) => builder.cell(*id, &cell.borrow()),
            None => {
                let elements = written.elements.iter().map(|(path, cell)| (&path[..], cell.borrow()));
                builder.complex(*id, written.tombstone.unwrap_or(Tombstone::NONE), elements);
            }
        }
    }
    RowView::validate(&out, &table.layout).expect("what was packed is well formed");
    out
}

fn lifetime(timestamp: i64, ttl: u32, expiry: u32) -> String {
    if ttl == 0 {
        format!("@{timestamp}")
    } else {
        format!("@{timestamp} ttl {ttl} until {expiry}")
    }
}

fn deletion_text(what: &str, t: Tombstone) -> String {
    format!("delete {what} @{} at {}", t.timestamp, t.deletion_time)
}

fn cell_fact(target: &str, cql_type: &CqlType, cell: &Cell<'_>, has_value: bool) -> String {
    if cell.dead {
        return format!("delete {target} @{} at {}", cell.timestamp, cell.deletion_time);
    }
    let times = lifetime(cell.timestamp, cell.ttl, cell.deletion_time);
    if has_value {
        format!("{target} = {} {times}", value_text(cql_type, cell.value))
    } else {
        format!("{target} {times}")
    }
}

/// The name and type of a column, dropped ones included.
fn named(table: &Table, id: usize) -> (String, CqlType) {
    let living = table
        .statics()
        .chain(table.regulars())
        .find(|c| usize::from(c.id.0) == id);
    let living = living.map(|c| (c.name.clone(), c.cql_type.clone()));
    let dropped = || table.dropped.iter().find(|c| usize::from(c.id.0) == id);
    living
        .or_else(|| dropped().map(|c| (format!("dropped {}", c.name), c.cql_type.clone())))
        .expect("the table has or had the column")
}

/// The facts of what a row says of one column.
pub fn column_facts(table: &Table, id: usize, column: Column<'_>) -> Vec<String> {
    let (name, cql_type) = named(table, id);
    match column {
        Column::Simple(cell) => vec![cell_fact(&name, &cql_type, &cell, true)],
        Column::Complex(complex) => {
            let mut facts = Vec::new();
            if !complex.tombstone.is_none() {
                facts.push(deletion_text(&name, complex.tombstone));
            }
            for (path, cell) in complex.elements() {
                facts.push(element_fact(&name, &cql_type, path, &cell));
            }
            facts
        }
    }
}

pub fn element_fact(name: &str, cql_type: &CqlType, path: &[u8], cell: &Cell<'_>) -> String {
    let target = format!("{name}[{}]", path_text(cql_type, path));
    let has_value = !matches!(cql_type, CqlType::Set(_));
    cell_fact(&target, &element_types(cql_type).1, cell, has_value)
}

/// A row as facts.
pub fn row_text(table: &Table, row: RowView<'_>) -> String {
    let mut facts = Vec::new();
    if !row.tombstone.is_none() {
        facts.push(deletion_text("row", row.tombstone));
    }
    if let Some(marker) = row.marker {
        facts.push(format!(
            "insert {}",
            lifetime(marker.timestamp, marker.ttl, marker.expiry)
        ));
    }
    for (id, column) in row.columns(&table.layout) {
        facts.extend(column_facts(table, id, column));
    }
    if facts.is_empty() {
        return "nothing".to_owned();
    }
    facts.join("; ")
}

/// A clustering key or prefix from `1, 'x'`; `nothing` is a component that is null.
pub fn prefix(table: &Table, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let values = text.split(',').map(str::trim).filter(|value| !value.is_empty());
    for (column, value) in table.clustering().zip(values) {
        match value {
            "nothing" => push_null(&mut out),
            value => push_component(&mut out, &literal(&column.cql_type, value)),
        }
    }
    out
}

pub fn prefix_text(table: &Table, prefix: &[u8]) -> String {
    let values = components(prefix).zip(table.clustering());
    let texts: Vec<String> = values
        .map(|(value, column)| value.map_or_else(|| "nothing".to_owned(), |value| value_text(&column.cql_type, value)))
        .collect();
    texts.join(", ")
}

pub fn bound(table: &Table, text: &str) -> Bound {
    let text = text.trim();
    let (kind, rest) = match text.split_once(' ') {
        _ if text == "bottom" => return Bound::bottom(),
        _ if text == "top" => return Bound::top(),
        Some(("before", rest)) => (BoundKind::Before, rest),
        Some(("after", rest)) => (BoundKind::After, rest),
        _ => panic!("not a bound: {text}"),
    };
    let values = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    Bound {
        prefix: prefix(table, values.expect("values in parentheses")).into(),
        kind,
    }
}

pub fn bound_text(table: &Table, bound: &Bound) -> String {
    let side = match bound.kind {
        BoundKind::Before if bound.prefix.is_empty() => return "bottom".to_owned(),
        BoundKind::After if bound.prefix.is_empty() => return "top".to_owned(),
        BoundKind::Before => "before",
        BoundKind::After => "after",
    };
    format!("{side} ({})", prefix_text(table, &bound.prefix))
}

/// A range tombstone from `before (1) .. after (2) @10 at 600`.
pub fn range(table: &Table, text: &str) -> RangeTombstone {
    let (bounds, times) = times(text);
    let (start, end) = bounds
        .split_once(" .. ")
        .unwrap_or_else(|| panic!("two bounds in: {text}"));
    RangeTombstone {
        start: bound(table, start),
        end: bound(table, end),
        tombstone: tombstone(&times),
    }
}

pub fn range_text(table: &Table, range: &RangeTombstone) -> String {
    let bounds = format!(
        "{} .. {}",
        bound_text(table, &range.start),
        bound_text(table, &range.end)
    );
    deletion_text(&bounds, range.tombstone)
}

/// One line of a partition.
pub enum Line {
    Partition(Tombstone),
    Static(Vec<u8>),
    Row(Vec<u8>, Vec<u8>),
    Range(RangeTombstone),
    UpTo(Bound),
}

pub fn line(table: &Table, text: &str) -> Line {
    if let Some(facts) = text.strip_prefix("static: ") {
        return Line::Static(row(table, facts));
    }
    if let Some(bound_text) = text.strip_prefix("up to ") {
        return Line::UpTo(bound(table, bound_text));
    }
    if text.starts_with("delete partition") {
        return Line::Partition(tombstone(&times(text).1));
    }
    if let Some(bounds) = text.strip_prefix("delete ") {
        return Line::Range(range(table, bounds));
    }
    let (key, facts) = text.split_once(':').unwrap_or_else(|| panic!("what is: {text}"));
    let key = key.strip_prefix("row").unwrap_or_else(|| panic!("what is: {text}"));
    Line::Row(prefix(table, key), row(table, facts.trim()))
}

/// A partition, or a stretch of one, whose rows are in order.
pub fn block(table: &Table, lines: &str) -> PartitionBlock {
    let key = 1i32.to_be_bytes();
    let mut block = PartitionBlock::new(token_of(&key), &key);
    for text in lines.lines() {
        match line(table, text) {
            Line::Partition(t) => block.tombstone = t,
            Line::Static(row) => block.set_static_row(&row),
            Line::Row(clustering, row) => block.push_row(&clustering, &row),
            Line::Range(range) => block.range_tombstones.push(range),
            Line::UpTo(bound) => block.covered = Some(bound),
        }
    }
    block
}

pub fn block_text(table: &Table, block: &PartitionBlock) -> String {
    let mut lines = Vec::new();
    if !block.tombstone.is_none() {
        lines.push(deletion_text("partition", block.tombstone));
    }
    if let Some(row) = block.static_row() {
        lines.push(format!("static: {}", row_text(table, row)));
    }
    lines.extend(block.range_tombstones.iter().map(|r| range_text(table, r)));
    for (clustering, row) in block.rows() {
        lines.push(row_line(table, clustering, row));
    }
    if let Some(bound) = &block.covered {
        lines.push(format!("up to {}", bound_text(table, bound)));
    }
    if lines.is_empty() {
        return "nothing".to_owned();
    }
    lines.join("\n")
}

fn row_line(table: &Table, clustering: &[u8], row: RowView<'_>) -> String {
    let key = prefix_text(table, clustering);
    let space = if key.is_empty() { "" } else { " " };
    format!("row{space}{key}: {}", row_text(table, row))
}

/// A mutation of partition `key` with these lines, in their order.
pub fn mutation(table: &Table, key: &[u8], lines: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, key);
    for text in lines.lines() {
        match line(table, text) {
            Line::Partition(t) => builder.partition_tombstone(t),
            Line::Static(row) => builder.static_row(|out| out.extend_from_slice(&row)),
            Line::Row(clustering, row) => builder.row(&clustering, |out| out.extend_from_slice(&row)),
            Line::Range(range) => builder.range_tombstone(&range),
            Line::UpTo(_) => panic!("a mutation does not end: {text}"),
        }
    }
    out
}

pub fn mutation_text(table: &Table, mutation: &Mutation<'_>) -> String {
    let lines: Vec<String> = mutation
        .items()
        .map(|item| match item {
            MutationItem::Partition(t) => deletion_text("partition", t),
            MutationItem::StaticRow(row) => {
                format!("static: {}", row_text(table, RowView::new(row).expect("a row")))
            }
            MutationItem::Row { clustering, row } => row_line(table, clustering, RowView::new(row).expect("a row")),
            MutationItem::Range(range) => range_text(table, &range),
        })
        .collect();
    lines.join("\n")
}

/// Replaces long values with their first letter and their length.
pub fn shorten(text: &str) -> String {
    let mut out = String::new();
    for (i, piece) in text.split('\'').enumerate() {
        let is_value = i % 2 == 1;
        if is_value && piece.len() > 8 {
            out.push_str(&format!("'{}…{}'", &piece[..1], piece.len()));
        } else if is_value {
            out.push_str(&format!("'{piece}'"));
        } else {
            out.push_str(piece);
        }
    }
    out
}

/// `'x' * 100` is a text of 100 times x.
pub fn lengthen(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("' * ") {
        let digits = after.chars().take_while(char::is_ascii_digit).count();
        let count: usize = after[..digits].parse().expect("how often");
        let start = before.rfind('\'').expect("a quote before");
        out.push_str(&before[..=start]);
        out.push_str(&before[start + 1..].repeat(count));
        out.push('\'');
        rest = &after[digits..];
    }
    out + rest
}
