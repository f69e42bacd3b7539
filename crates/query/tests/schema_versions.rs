//! Versions and changes of a schema.

use std::collections::BTreeMap;

use cql_compiler::{CompileError, DdlContext, compile_ddl};
use ddl::{ChangeKind, Outcome, SchemaChange, schema_version};
use schema::{Schema, TableId};
use system_tables::Builder;
use uuid::Uuid;

fn system_schema() -> Schema {
    let mut schema = Builder::new().build().with_system_keyspaces(&Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    });
    schema.version = schema_version(&schema);
    schema
}

fn try_run(schema: &Schema, text: &str, new_id: u128) -> Result<Outcome, CompileError> {
    let statement = cql::parse(text).expect("the test's statements are CQL").statement;
    let ctx = DdlContext {
        keyspace: Some("ks"),
        now_us: 1,
    };
    let definition = compile_ddl(schema, &statement, &ctx)?;
    let ctx = ddl::Context {
        new_id: Uuid::from_u128(new_id),
        nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
        has_functions: true,
        racks: &BTreeMap::new(),
        lists_racks: false,
    };
    let outcome = ddl::apply(schema, &definition.expect("it asks for something"), &ctx)?;
    Ok(outcome.expect("it changes something"))
}

fn run(schema: &Schema, text: &str) -> Outcome {
    try_run(schema, text, 1).expect(text)
}

#[test]
fn the_version_follows_the_content_and_nothing_else() {
    let empty = system_schema();
    let keyspace = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}";
    let one = run(&empty, keyspace).schema;
    let two = run(&one, "CREATE TABLE t (k int PRIMARY KEY, v int)").schema;
    let other = run(&one, "CREATE TABLE t (k int PRIMARY KEY, v bigint)").schema;
    let versions = [empty.version, one.version, two.version, other.version];
    for (i, v) in versions.iter().enumerate() {
        assert!(
            !versions[..i].contains(v),
            "schemas that differ have versions that differ: {versions:?}"
        );
        assert_eq!(v.get_version_num(), 3, "a version is a name-based UUID");
    }
    let back = run(&two, "DROP TABLE t").schema;
    assert_eq!(
        back.version, one.version,
        "a schema that is as it was has the version that it had"
    );
    assert_eq!(
        run(&back, "DROP KEYSPACE ks").schema.version,
        empty.version,
        "and so down to the empty one"
    );
}

#[test]
fn changes_and_dropped_tables_are_told() {
    let schema = run(
        &system_schema(),
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
    )
    .schema;
    let created = run(&schema, "CREATE TABLE t (k int PRIMARY KEY, v int)");
    let change = |change| SchemaChange::Table {
        change,
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
    };
    assert_eq!(created.changes, [change(ChangeKind::Created)]);
    assert_eq!(
        run(&created.schema, "ALTER TABLE t ADD w int").changes,
        [change(ChangeKind::Updated)]
    );
    let dropped = run(&created.schema, "DROP TABLE t");
    assert_eq!(
        (dropped.changes, dropped.dropped_tables),
        (vec![change(ChangeKind::Dropped)], vec![TableId(Uuid::from_u128(1))])
    );
    let gone = run(&created.schema, "DROP KEYSPACE ks");
    let change = SchemaChange::Keyspace {
        change: ChangeKind::Dropped,
        keyspace: "ks".to_owned(),
    };
    assert_eq!(
        (gone.changes, gone.dropped_tables),
        (vec![change], vec![TableId(Uuid::from_u128(1))])
    );
}

#[test]
fn of_a_dropped_keyspace_clients_are_told_table_by_table() {
    let mut schema = system_schema();
    for statement in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
        "CREATE TYPE u (a int)",
        "CREATE TABLE t (k int PRIMARY KEY, v frozen<u>)",
    ] {
        schema = run(&schema, statement).schema;
    }
    let gone = run(&schema, "DROP KEYSPACE ks").schema;
    let told = ddl::schema_difference(&schema, &gone).changes;
    let (change, keyspace) = (ChangeKind::Dropped, "ks".to_owned());
    let (table, name) = ("t".to_owned(), "u".to_owned());
    assert_eq!(
        told,
        [
            SchemaChange::Table {
                change,
                keyspace: keyspace.clone(),
                table
            },
            SchemaChange::Type {
                change,
                keyspace: keyspace.clone(),
                name
            },
            SchemaChange::Keyspace { change, keyspace },
        ]
    );
}

#[test]
fn a_dropped_column_leaves_its_number_to_nobody() {
    let mut schema = run(
        &system_schema(),
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
    )
    .schema;
    for statement in [
        "CREATE TABLE t (k int PRIMARY KEY, a int, b int)",
        "ALTER TABLE t DROP b",
        "ALTER TABLE t ADD c text",
        "ALTER TABLE t ADD b int",
    ] {
        schema = run(&schema, statement).schema;
    }
    let table = schema.table("ks", "t").expect("it was just made");
    let ids: Vec<(&str, u16)> = table.regulars().map(|c| (c.name.as_str(), c.id.0)).collect();
    assert_eq!(ids, [("a", 0), ("b", 3), ("c", 2)], "number 1 is that of the dropped b");
}

#[test]
fn a_table_runs_out_of_column_numbers_with_an_error() {
    let mut schema = run(
        &system_schema(),
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
    )
    .schema;
    let columns: Vec<String> = (0..2038).map(|i| format!("c{i} int")).collect();
    schema = run(
        &schema,
        &format!("CREATE TABLE t (k int PRIMARY KEY, {})", columns.join(", ")),
    )
    .schema;
    schema = run(&schema, "ALTER TABLE t ADD last int").schema;
    assert!(refused(&schema, "ALTER TABLE t ADD more int").contains("can have no more"));
    schema = run(&schema, "ALTER TABLE t DROP last").schema;
    let refused = refused(&schema, "ALTER TABLE t ADD more int");
    assert!(refused.contains("2040 columns, dropped ones included"), "{refused}");
}

/// Why a statement is refused.
fn refused(schema: &Schema, text: &str) -> String {
    try_run(schema, text, 2).expect_err(text).message()
}

#[test]
fn a_table_of_too_many_columns_is_refused_whatever_its_key_is() {
    let schema = run(
        &system_schema(),
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy'}",
    )
    .schema;
    let names: Vec<String> = (0..70_000).map(|i| format!("c{i}")).collect();
    let declared: Vec<String> = names.iter().map(|n| format!("{n} int")).collect();
    let text = format!(
        "CREATE TABLE t ({}, PRIMARY KEY ({}))",
        declared.join(", "),
        names.join(", ")
    );
    let refused = refused(&schema, &text);
    assert_eq!(refused, "A table has at most 2040 columns (got 70000)");
}
