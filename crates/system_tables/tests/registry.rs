//! What a registry takes and returns.

use std::collections::BTreeMap;
use std::sync::Arc;

use schema::{Column, ColumnKind, Schema, Table, TableId, TableOptions};
use system_tables::{
    Builder, Definition, KeyspaceKind, Kind, NoRows, Opening, Options, Request, VirtualTable, kind, ready, rows_of,
    table_id,
};
use types::CqlType;
use uuid::Uuid;

const fn definition(keyspace: &'static str) -> Definition {
    Definition {
        keyspace,
        cql: "mine (k int PRIMARY KEY, v text)",
        options: Options::USUAL,
    }
}

static VIRTUAL: Definition = definition("system_views");
static LOCAL: Definition = definition("system");
static REPLICATED: Definition = definition("system_distributed");

struct Mine;

impl VirtualTable for Mine {
    fn definition(&self) -> &'static Definition {
        &VIRTUAL
    }

    fn open(&self, _: Request) -> Opening<'_> {
        ready(NoRows)
    }
}

fn empty() -> Schema {
    Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    }
}

fn user_table() -> Arc<Table> {
    let columns = vec![Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
    let id = TableId(Uuid::from_u128(1));
    Arc::new(Table::new("ks", "t", id, columns, TableOptions::default()))
}

/// The ids that Cassandra 4.1 gives the same tables.
#[test]
fn system_tables_have_the_ids_that_cassandra_gives_them() {
    for (keyspace, table, id) in [
        ("system", "local", "7ad54392-bcdd-35a6-8417-4e047860b377"),
        ("system", "peers", "37f71aca-7dc2-383b-a706-72528af04d4f"),
        ("system", "IndexInfo", "9f5c6374-d485-3229-9a0a-5094af9ad1e3"),
        ("system_schema", "tables", "afddfb9d-bc1e-3068-8056-eed6c302ba09"),
        ("system_auth", "roles", "5bc52802-de25-35ed-aeab-188eecebb090"),
        ("system_traces", "events", "8826e8e9-e16a-3728-8753-3bc1fc713c25"),
    ] {
        assert_eq!(table_id(keyspace, table).0.to_string(), id, "{keyspace}.{table}");
    }
}

#[test]
fn each_table_is_of_the_kind_that_it_was_registered_as() {
    let mut tables = Builder::new();
    tables.virtual_table(Arc::new(Mine));
    tables.local_table(&LOCAL);
    tables.replicated_table(&REPLICATED);
    let registry = tables.build();
    let schema = registry.with_system_keyspaces(&empty());
    for (keyspace, kind, kept) in [
        ("system_views", Kind::Virtual, 0),
        ("system", Kind::Local, 1),
        ("system_distributed", Kind::Replicated, 1),
    ] {
        let table = schema.table(keyspace, "mine").expect("it is in the schema");
        assert_eq!(table.id, table_id(keyspace, "mine"), "{keyspace}");
        assert_eq!(registry.kind(table.id), Some(kind), "{keyspace}");
        assert_eq!(registry.kept_tables(table).len(), kept, "{keyspace}");
        assert_eq!(
            registry.virtual_table(table.id).is_some(),
            kind == Kind::Virtual,
            "{keyspace}"
        );
    }
    let foreign = TableId(Uuid::from_u128(0x5a1c_395e_b41f_31e5_9f22_ba0b_e048_3c18));
    for id in [foreign, user_table().id] {
        assert_eq!(registry.kind(id), None, "a table that nobody registered");
        assert!(registry.virtual_table(id).is_none(), "a table that nobody computes");
    }
}

#[test]
fn a_user_s_table_is_kept_with_what_the_node_keeps_beside_it() {
    let mut tables = Builder::new();
    tables.local_beside_user_tables(|table| {
        let columns = vec![Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
        let name = format!("{}$beside", table.name);
        Arc::new(Table::new(
            &table.keyspace,
            &name,
            TableId(Uuid::from_u128(2)),
            columns,
            TableOptions::default(),
        ))
    });
    let registry = tables.build();
    let names = |table: &Arc<Table>| {
        registry
            .kept_tables(table)
            .iter()
            .map(|t| t.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&user_table()), ["t", "t$beside"]);
    let schema = registry.with_system_keyspaces(&empty());
    let roles = schema.table("system_auth", "roles").expect("a replicated table");
    assert_eq!(names(roles), ["roles"], "nothing is kept beside a system table");
}

#[test]
fn a_schema_from_elsewhere_gets_this_release_s_definitions_of_what_each_node_has_for_itself() {
    let registry = Builder::new().build();
    let mut old = registry.with_system_keyspaces(&empty());
    for (keyspace, table) in [("system_schema", "tables"), ("system_auth", "roles")] {
        let mut changed = (*old.keyspaces[keyspace]).clone();
        changed.tables.remove(table);
        old.keyspaces.insert(keyspace.to_owned(), Arc::new(changed));
    }
    let schema = registry.with_system_keyspaces(&old);
    assert!(
        schema.table("system_schema", "tables").is_some(),
        "the node computes this table"
    );
    assert!(
        schema.table("system_auth", "roles").is_none(),
        "replicated tables change with the metadata of the cluster, not with the release of a node"
    );
}

#[test]
fn a_table_is_registered_once_and_where_its_kind_may_be() {
    let refused = |register: fn(&mut Builder)| {
        std::panic::catch_unwind(|| {
            let mut tables = Builder::new();
            register(&mut tables);
        })
        .is_err()
    };
    assert!(refused(|tables| {
        tables.local_table(&LOCAL);
        tables.local_table(&LOCAL);
    }));
    assert!(refused(|tables| tables.local_table(&REPLICATED)));
    assert!(refused(|tables| tables.replicated_table(&LOCAL)));
    assert!(
        refused(|tables| tables.local_table(&definition("ks"))),
        "a user's keyspace"
    );
    assert!(!refused(|tables| tables.local_table(&LOCAL)));
}

#[test]
fn a_definition_is_a_table_or_a_bug() {
    let columns = |cql| {
        let definition = Definition {
            keyspace: "system",
            cql,
            options: Options::USUAL,
        };
        let table = std::panic::catch_unwind(|| definition.table()).ok()?;
        let columns = table.columns.iter();
        let told = columns.map(|c| format!("{} {} {:?} {}", c.name, c.cql_type, c.kind, c.position));
        Some(told.collect::<Vec<_>>().join(", "))
    };
    for (cql, expected) in [
        ("t (a int PRIMARY KEY)", Some("a int PartitionKey 0")),
        (
            "t (a int, b map<text, int>, PRIMARY KEY (a))",
            Some("a int PartitionKey 0, b map<text, int> Regular 0"),
        ),
        (
            "t (a int, b int, c int, d int, PRIMARY KEY ((a, b), c, d))",
            Some("a int PartitionKey 0, b int PartitionKey 1, c int Clustering 0, d int Clustering 1"),
        ),
        ("t", None),
        ("t (a int)", None),
        ("t (a number PRIMARY KEY)", None),
        ("t (a int, b int, PRIMARY KEY (b))", None),
        ("t (a int, b int, PRIMARY KEY (b, a))", None),
        ("t (a int, PRIMARY KEY (a, b))", None),
    ] {
        assert_eq!(columns(cql).as_deref(), expected, "{cql}");
    }
}

#[test]
fn keyspaces_say_who_may_change_them() {
    for (keyspace, expected) in [
        ("system", Some(KeyspaceKind::Local)),
        ("system_schema", Some(KeyspaceKind::Local)),
        ("system_views", Some(KeyspaceKind::Local)),
        ("system_virtual_schema", Some(KeyspaceKind::Local)),
        ("system_auth", Some(KeyspaceKind::Replicated)),
        ("system_traces", Some(KeyspaceKind::Replicated)),
        ("systems", None),
    ] {
        assert_eq!(kind(keyspace), expected, "{keyspace}");
    }
}

#[test]
fn every_virtual_table_can_be_read() {
    let registry = Builder::new().build();
    let schema = Arc::new(registry.with_system_keyspaces(&empty()));
    let with_rows = registry
        .virtual_tables()
        .filter(|table| !rows_of(&*table.source, &schema).is_empty());
    let mut names: Vec<_> = with_rows
        .map(|table| format!("{}.{}", table.table.keyspace, table.table.name))
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "system_schema.columns",
            "system_schema.keyspaces",
            "system_schema.scylla_tables",
            "system_schema.tables",
            "system_virtual_schema.columns",
            "system_virtual_schema.keyspaces",
            "system_virtual_schema.tables",
        ]
    );
}
