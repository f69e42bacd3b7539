//! The tables that drivers read, as they read them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use mutation::Mutation;
use query::ddl::{self, ChangeKind, DdlContext, DdlOutcome, SchemaChange, schema_version};
use query::system::{self, NodeInfo};
use schema::{Schema, TableId};
use uuid::Uuid;

fn system_schema() -> Schema {
    let keyspaces = system::keyspaces().into_iter().map(|k| (k.name.clone(), k.into()));
    let mut schema = Schema {
        version: Uuid::nil(),
        keyspaces: keyspaces.collect::<BTreeMap<_, _>>(),
    };
    schema.version = schema_version(&schema);
    schema
}

fn run(schema: &Schema, text: &str) -> DdlOutcome {
    let statement = cql::parse(text).expect("the test's statements are CQL").statement;
    let ctx = DdlContext {
        keyspace: Some("ks"),
        now_us: 1,
        new_id: Uuid::from_u128(1),
        nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
    };
    ddl::apply(schema, &statement, &ctx)
        .expect(text)
        .expect("it changes something")
}

/// The ids that Cassandra 4.1 gives the same tables.
#[test]
fn system_tables_have_the_ids_that_cassandra_gives_them() {
    let keyspaces = system::keyspaces();
    for (keyspace, table, id) in [
        ("system", "local", "7ad54392-bcdd-35a6-8417-4e047860b377"),
        ("system", "peers", "37f71aca-7dc2-383b-a706-72528af04d4f"),
        ("system", "IndexInfo", "9f5c6374-d485-3229-9a0a-5094af9ad1e3"),
        ("system_schema", "tables", "afddfb9d-bc1e-3068-8056-eed6c302ba09"),
        ("system_auth", "roles", "5bc52802-de25-35ed-aeab-188eecebb090"),
        ("system_traces", "events", "8826e8e9-e16a-3728-8753-3bc1fc713c25"),
    ] {
        let found = keyspaces
            .iter()
            .find(|k| k.name == keyspace)
            .and_then(|k| k.tables.get(table));
        let found = found.unwrap_or_else(|| panic!("there is no table {keyspace}.{table}"));
        assert_eq!(found.id.0.to_string(), id, "{keyspace}.{table}");
        assert_eq!(
            system::is_virtual(found.id),
            matches!(keyspace, "system" | "system_schema"),
            "{keyspace}.{table}"
        );
    }
    let foreign = TableId(Uuid::from_u128(0x5a1c_395e_b41f_31e5_9f22_ba0b_e048_3c18));
    assert!(
        !system::is_virtual(foreign),
        "an id that no system table has is not virtual"
    );
}

#[test]
fn every_virtual_table_can_be_read_and_stored_ones_are_left_to_the_storage() {
    let schema = system_schema();
    let node = NodeInfo::alone(Uuid::from_u128(7), IpAddr::V6(Ipv6Addr::LOCALHOST), 9042, 2);
    let mut read = 0;
    for table in schema.keyspaces.values().flat_map(|k| k.tables.values()) {
        let contents = system::contents(table, &schema, &node, None, 5);
        for bytes in &contents {
            let mutation = Mutation::new(bytes).expect("a packed mutation");
            mutation
                .validate(&table.layout)
                .unwrap_or_else(|e| panic!("{}.{}: {e}", table.keyspace, table.name));
        }
        assert!(
            contents.is_empty() || system::is_virtual(table.id),
            "{}.{}",
            table.keyspace,
            table.name
        );
        read += usize::from(!contents.is_empty());
    }
    assert_eq!(
        read, 8,
        "tables with content: local and cluster_status, three of system_schema, three of system_virtual_schema"
    );
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
    let columns: Vec<String> = (0..2039).map(|i| format!("c{i} int")).collect();
    schema = run(
        &schema,
        &format!("CREATE TABLE t (k int PRIMARY KEY, {})", columns.join(", ")),
    )
    .schema;
    schema = run(&schema, "ALTER TABLE t ADD last int").schema;
    schema = run(&schema, "ALTER TABLE t DROP last").schema;
    let refused = refused(&schema, "ALTER TABLE t ADD more int");
    assert!(refused.contains("2040 columns, dropped ones included"), "{refused}");
}

/// Why a statement is refused.
fn refused(schema: &Schema, text: &str) -> String {
    let statement = cql::parse(text).expect("CQL").statement;
    let ctx = DdlContext {
        keyspace: Some("ks"),
        now_us: 1,
        new_id: Uuid::from_u128(2),
        nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
    };
    ddl::apply(schema, &statement, &ctx).expect_err(text).message()
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
