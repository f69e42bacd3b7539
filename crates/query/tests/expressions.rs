//! Terms and selections give what Apache Cassandra gives: same bytes, names, types and errors.
//!
//! The files under `expressions/` hold what Cassandra 5.0.8 answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql::ast::{InsertValues, Select, Statement, Term};
use query::selection::compile_selection;
use query::{BindContext, Evaluated, Markers, QueryError, Receiver, Row, compile_term_of_table};
use schema::{Column, ColumnId, ColumnKind, Keyspace, Schema, Table, TableId, TableOptions};
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
        "SELECT (i*2)+1 FROM ks.a WHERE k = 1",
        "a tree does not say which parentheses were written",
    ),
    (
        "SELECT -(-(i)) FROM ks.a WHERE k = 1",
        "a tree does not say which parentheses were written",
    ),
    (
        "SELECT round(de), log(de), log10(de), exp(de) FROM ks.a WHERE k = 1",
        "logarithms and powers of decimals have the digits of a double",
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
    ("i = count(1)", "another of two faults is told"),
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
    let column = |name: &str, cql_type: CqlType| Column {
        name: name.to_owned(),
        cql_type,
        kind: if name == "k" {
            ColumnKind::PartitionKey
        } else {
            ColumnKind::Regular
        },
        position: 0,
        descending: false,
        id: ColumnId(0),
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
        let position = world
            .table
            .columns
            .iter()
            .position(|c| c.name == name)
            .expect("the column was made above");
        let bytes = world
            .term(name, &parse_term(literal))
            .expect("the row's literals are valid");
        first.set(position, &bytes.expect("the row has no nulls"));
        first.set_times(position, 1_000, 0);
    }
    let mut second = Row::new(&world.table);
    for (name, value) in [("k", 2_i32), ("i", 10)] {
        let position = world
            .table
            .columns
            .iter()
            .position(|c| c.name == name)
            .expect("the column was made above");
        second.set(position, &value.to_be_bytes());
        second.set_times(position, 1_000, 0);
    }
    world.rows.insert(1, first);
    world.rows.insert(2, second);
    world
}

const NOW: BindContext<'static> = BindContext {
    values: &[],
    now_us: 1_600_000_000_000_000,
    random: 7,
};

impl World {
    fn term(&self, column: &str, term: &Term) -> Result<Option<Vec<u8>>, QueryError> {
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
    fn select(&self, select: &Select, key: Option<i32>) -> Result<Vec<String>, QueryError> {
        let selection = compile_selection(select, &self.table, &mut Markers::new(0), &self.schema)?;
        let rows: Vec<&Row> = match key {
            Some(key) => self.rows.get(&key).into_iter().collect(),
            None => self.rows.values().collect(),
        };
        let mut cells = vec![Vec::new(); selection.columns.len()];
        let mut take = |out: &[u8]| {
            let mut values = types::TupleIter::new(out);
            for column in &mut cells {
                let value = values
                    .next()
                    .expect("there is a cell for each column")
                    .expect("cells are whole");
                column.push(value.map_or("null".to_owned(), |bytes| CqlType::Blob.format(bytes)));
            }
            assert!(values.next().is_none(), "more cells than columns");
        };
        if selection.is_aggregate() {
            let mut group = selection.new_group();
            for row in rows {
                selection.accumulate(&mut group, row, &NOW)?;
            }
            let mut out = Vec::new();
            selection.write_group(group, &NOW, &mut out)?;
            take(&out);
        } else {
            for row in rows {
                let mut out = Vec::new();
                selection.write_row(row, &NOW, &mut out)?;
                take(&out);
            }
        }
        let describe = |(column, cells): (&query::ResultColumn, Vec<String>)| {
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

/// A type as the protocol tells it: without what is frozen.
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

/// Cases of a file: the first line of each block, and the indented ones under it.
fn cases(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines(text) {
        match line.strip_prefix("  ") {
            Some(answer) => found
                .last_mut()
                .expect("an answer follows its case")
                .1
                .push(answer.trim_end()),
            None => found.push((line, Vec::new())),
        }
    }
    found
}

fn check(cases: &[(&str, Vec<&str>)], answer: impl Fn(&str) -> Result<Vec<String>, String>) {
    let mut differences = Vec::new();
    for (case, expected) in cases {
        let given = match answer(case) {
            Ok(lines) => lines,
            Err(message) => vec![format!("! {message}")],
        };
        let is_same = given.len() == expected.len() && given.iter().zip(expected).all(|(g, e)| same_line(g, e));
        let is_known = DIFFERENCES.iter().any(|(known, _)| known == case);
        if is_same == is_known {
            differences.push(format!(
                "{case}\n  expected {}\n     given {}",
                expected.join("\n           "),
                given.join("\n           ")
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        cases.len(),
        differences.join("\n")
    );
}

/// Lists of signatures have no order of their own in Cassandra.
fn same_line(given: &str, expected: &str) -> bool {
    // Cassandra remembers a function of any type under the name by which it was called first.
    let (given, expected) = (
        &given.replace("tojson", "to_json"),
        &expected.replace("tojson", "to_json"),
    );
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
    check(&cases(include_str!("expressions/terms.txt")), |case| {
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

#[test]
fn selections_give_what_cassandra_gives() {
    let world = world();
    check(&cases(include_str!("expressions/selections.txt")), |case| {
        let (text, key) = match case.split_once(" WHERE k = ") {
            Some((text, key)) => (text, Some(key.parse().expect("the key is a number"))),
            None => (case, None),
        };
        let parsed = cql::parse(text).map_err(|error| error.to_string())?;
        let Statement::Select(select) = &parsed.statement else {
            panic!("not a SELECT: {text}")
        };
        world.select(select, key).map_err(|error| error.message())
    });
}
