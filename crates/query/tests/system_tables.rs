//! The tables that drivers read, as they read them.

use query::system;
use schema::TableId;
use uuid::Uuid;

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
