//! Scripts of statements and what they answer.
//!
//! Each file of `tests/ddl` is a suite of `testkit`: statements and their answers. All but `own.txt` and
//! `own_indexes.txt` were recorded from a running Apache Cassandra (`indexes.txt` 5.0.8, the others 4.1.7), so a
//! difference is a difference from it. `begin anew` is an empty schema.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use cql::ast::{Selection, Selector, Statement};
use cql_compiler::describe::{self, DescribeContext, DescribedNode};
use cql_compiler::{DdlContext, compile_ddl};
use ddl::schema_version;
use query::{QueryError, ResultColumn};
use schema::{
    Column, ColumnId, Index, IndexId, Schema, Table, describe_index, describe_keyspace, describe_table, describe_type,
};
use system_tables::{Builder, NamedRow, Registry, rows_of};
use types::CqlType;
use uuid::Uuid;

struct Session {
    schema: Schema,
    keyspace: Option<String>,
    system_tables: Registry,
    node: DescribedNode,
    statements: u32,
}

fn error(e: &QueryError) -> String {
    match e {
        QueryError::Syntax(m) => format!("Syntax: {m}"),
        QueryError::Invalid(m) => format!("Invalid: {m}"),
        QueryError::Config(m) => format!("Config: {m}"),
        QueryError::Unauthorized(m) => format!("Unauthorized: {m}"),
        QueryError::AlreadyExists { keyspace, table } if table.is_empty() => format!("AlreadyExists: {keyspace}"),
        QueryError::AlreadyExists { keyspace, table } => format!("AlreadyExists: {keyspace}.{table}"),
        other => format!("{other:?}"),
    }
}

impl Session {
    fn new() -> Self {
        let system_tables = Builder::new().build();
        let empty = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        let mut schema = system_tables.with_system_keyspaces(&empty);
        schema.version = schema_version(&schema);
        let node = DescribedNode {
            cluster_name: "ceto".to_owned(),
            partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
            endpoint: SocketAddr::from(([127, 0, 0, 1], 7000)),
            tokens: vec!["5".to_owned(), "-7".to_owned()],
        };
        Self {
            schema,
            keyspace: None,
            system_tables,
            node,
            statements: 0,
        }
    }

    /// The answer to a statement, in lines.
    fn run(&mut self, text: &str) -> String {
        self.statements += 1;
        let statement = match cql::parse(text) {
            Ok(parsed) => parsed.statement,
            Err(e) => return format!("Syntax: {e}\n"),
        };
        match self.execute(&statement) {
            Ok(answer) => answer,
            Err(e) => format!("{}\n", error(&e)),
        }
    }

    /// The rows of a virtual table, by key.
    fn read(&self, table: &Table) -> Vec<NamedRow> {
        let table = self.system_tables.virtual_table(table.id);
        let source = &table.expect("scripts read virtual tables").source;
        let mut rows = rows_of(&**source, &Arc::new(self.schema.clone()));
        rows.sort_by(|a, b| a[0].cmp(&b[0]));
        rows
    }

    fn execute(&mut self, statement: &Statement) -> Result<String, QueryError> {
        match statement {
            Statement::Describe(d) => {
                let ctx = DescribeContext {
                    keyspace: self.keyspace.as_deref(),
                    node: &self.node,
                };
                let (columns, rows) = describe::describe(&self.schema, d, &ctx)?;
                Ok(rows
                    .iter()
                    .fold(String::new(), |out, row| out + &print_row(&columns, row)))
            }
            Statement::Use(u) => {
                self.keyspace = Some(u.keyspace.clone());
                Ok("ok\n".to_owned())
            }
            Statement::Select(s) if system_table(s).is_some() => {
                let (keyspace, name) = system_table(s).expect("it was just found");
                let table = self
                    .schema
                    .table(keyspace, name)
                    .expect("scripts name system tables that are");
                let all = s.selection == Selection::All;
                let selected = |name: &str| all || selects(&s.selection, name);
                let user = |row: &String| s.relations.is_empty() || row.starts_with("keyspace_name: 'ddk'");
                let rows = self.read(table);
                let lines = rows.iter().map(|r| print_named(r, &selected)).filter(user);
                Ok(lines.collect())
            }
            other => {
                let ctx = DdlContext {
                    keyspace: self.keyspace.as_deref(),
                    now_us: i64::from(self.statements),
                };
                let Some(definition) = compile_ddl(&self.schema, other, &ctx)? else {
                    return Ok("ok\n".to_owned());
                };
                let ctx = ddl::Context {
                    new_id: Uuid::from_u128(u128::from(self.statements)),
                    nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
                    has_functions: true,
                    racks: &BTreeMap::new(),
                    lists_racks: false,
                };
                let Some(outcome) = ddl::apply(&self.schema, &definition, &ctx)? else {
                    return Ok("ok\n".to_owned());
                };
                assert_ne!(
                    outcome.schema.version, self.schema.version,
                    "a changed schema has another version"
                );
                assert!(!outcome.changes.is_empty(), "clients are told of every change");
                self.schema = outcome.schema;
                Ok(outcome
                    .warnings
                    .iter()
                    .fold("ok\n".to_owned(), |out, w| out + "warning: " + w + "\n"))
            }
        }
    }
}

fn selects(selection: &Selection, name: &str) -> bool {
    let Selection::Selectors(selectors) = selection else {
        return true;
    };
    selectors
        .iter()
        .any(|s| s.selector == Selector::Column(name.to_owned()))
}

fn print_row(columns: &[ResultColumn], row: &[Option<Vec<u8>>]) -> String {
    let value = |(c, v): (&ResultColumn, &Option<Vec<u8>>)| match v {
        Some(v) if c.cql_type == CqlType::Text => String::from_utf8_lossy(v).into_owned(),
        Some(v) => c.cql_type.format(v),
        None => "null".to_owned(),
    };
    assert_eq!(columns.len(), row.len(), "a row has a value for each column");
    columns.iter().zip(row).map(value).collect::<Vec<_>>().join(" | ") + "\n"
}

fn print_named(row: &NamedRow, selected: &dyn Fn(&str) -> bool) -> String {
    let parts: Vec<String> = row
        .iter()
        .filter(|(n, _)| selected(n))
        .map(|(n, v)| format!("{n}: {v}"))
        .collect();
    parts.join(", ") + "\n"
}

/// The keyspace and name of the system table that a SELECT reads, if it reads one.
fn system_table(select: &cql::ast::Select) -> Option<(&str, &str)> {
    let table = select.table.as_ref()?;
    let keyspace = table.keyspace.as_deref().filter(|keyspace| is_of_system(keyspace))?;
    Some((keyspace, &table.name))
}

fn is_of_system(keyspace: &str) -> bool {
    system_tables::kind(keyspace).is_some()
}

/// What DESCRIBE says of a schema makes an equal one.
fn check_round_trip(schema: &Schema) {
    let mut again = Session::new();
    for k in schema.keyspaces.values().filter(|k| !is_of_system(&k.name)) {
        let answer = again.run(&describe_keyspace(k));
        assert!(answer.starts_with("ok\n"), "{}\nanswers {answer}", describe_keyspace(k));
        for udt in k.types_in_order() {
            assert_eq!(again.run(&describe_type(udt)), "ok\n", "{}", describe_type(udt));
        }
        for t in k.tables.values() {
            for statement in describe_table(k, t, true).split_inclusive(";\n") {
                let answer = again.run(statement);
                let mut told = answer.lines();
                let is_taken = told.next() == Some("ok") && told.all(|line| line.starts_with("warning: "));
                assert!(is_taken, "{statement}\nanswers {answer}");
            }
            for index in &t.indexes {
                let (statement, answer) = (describe_index(t, index), again.run(&describe_index(t, index)));
                assert!(answer.starts_with("ok\n"), "{statement}\nanswers {answer}");
            }
            let copy = again.schema.table(&k.name, &t.name).expect("it was just made");
            // The numbers of indexes follow the order in which they were made.
            let unnumbered = |t: &Table| -> Vec<Index> {
                let indexes = t.indexes.iter().cloned();
                indexes
                    .map(|index| Index {
                        id: IndexId(0),
                        ..index
                    })
                    .collect()
            };
            assert_eq!(unnumbered(copy), unnumbered(t), "{}.{}", k.name, t.name);
            for internals in [false, true] {
                assert_eq!(
                    describe_table(k, copy, internals),
                    describe_table(k, t, internals),
                    "{}.{}",
                    k.name,
                    t.name
                );
            }
            assert_eq!(copy.options, t.options, "{}.{}", k.name, t.name);
            // Column ids follow the order of earlier ALTERs, which the text does not record.
            let without_ids = |t: &Table| -> Vec<Column> {
                t.columns
                    .iter()
                    .map(|c| Column {
                        id: ColumnId(0),
                        ..c.clone()
                    })
                    .collect()
            };
            assert_eq!(without_ids(copy), without_ids(t), "{}.{}", k.name, t.name);
            if usize::from(t.next_column_id) == t.statics().chain(t.regulars()).count() {
                let copy = Table {
                    indexes: t.indexes.clone(),
                    next_index_id: t.next_index_id,
                    ..Table::clone(copy)
                };
                assert_eq!(copy, **t, "{}.{} was never altered", k.name, t.name);
            }
        }
        let (copy, k) = (&again.schema.keyspaces[&k.name], k);
        assert_eq!(
            (&copy.replication, copy.durable_writes, &copy.tablets),
            (&k.replication, k.durable_writes, &k.tablets)
        );
    }
}

fn check(path: &str) {
    let mut session = Session::new();
    testkit::run(path, |case| match case.text.as_str() {
        "begin anew" => {
            check_round_trip(&session.schema);
            session = Session::new();
            String::new()
        }
        statement => session.run(statement),
    });
    check_round_trip(&session.schema);
}

macro_rules! scripts {
    ($($name:ident: $what:literal)*) => {
        $(#[test]
        #[doc = $what]
        fn $name() {
            check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ddl/", stringify!($name), ".txt"));
        })*
    };
}

scripts! {
    keyspaces: "Keyspaces are created, altered, dropped and refused as in Cassandra."
    tables: "Tables are created, dropped and refused as in Cassandra."
    options: "Table options are kept in the spelling of Cassandra."
    alter: "Tables are altered and refused to be as in Cassandra."
    readd: "Dropped columns come back only as a type that reads what they held."
    describe: "DESCRIBE prints what Cassandra prints."
    schema_rows: "Rows of system_schema are those of Cassandra."
    indexes: "Secondary indexes are created, shown, dropped and refused as in Cassandra."
    own_indexes: "Indexes of other kinds, and options that have no effect."
    own: "Where ceto differs from Cassandra it does so as intended."
}
