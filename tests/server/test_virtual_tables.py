"""Virtual tables about the node and its cluster, with the columns of ScyllaDB and Cassandra."""

import socket
from datetime import datetime, timedelta, timezone

import pytest

from harness import cql
from harness.cluster import eventually

INVALID = 0x2200


@pytest.fixture
def session(new_node, connect):
    node = new_node().start()
    session = connect(node)
    session.node = node
    return session


def rows(session, statement, parameters=None):
    return [row._asdict() for row in session.execute(statement, parameters)]


def test_a_node_tells_the_port_at_which_other_nodes_reach_it(session):
    (local,) = rows(session, "SELECT listen_address, listen_port, broadcast_port FROM system.local")
    assert local["listen_port"] == local["broadcast_port"]
    with socket.create_connection((local["listen_address"], local["listen_port"]), timeout=cql.REQUEST_SECONDS):
        pass


def test_a_node_tells_its_versions_and_servers(session):
    (versions,) = rows(session, "SELECT * FROM system.versions")
    local = session.execute("SELECT release_version, cql_version, rpc_port FROM system.local").one()
    assert versions["key"] == "local" and versions["version"]
    assert versions["compatible_version"] == local.release_version
    (server,) = rows(session, "SELECT * FROM system.protocol_servers")
    assert (server["name"], server["protocol"], server["is_running"]) == ("native", "cql", True)
    assert server["protocol_version"] == local.cql_version
    assert f"127.0.0.1:{local.rpc_port}" in server["listen_addresses"]


def test_runtime_info_is_grouped(session):
    info = {(row["group"], row["item"]): row["value"] for row in rows(session, "SELECT * FROM system.runtime_info")}
    assert int(info["memtable", "memory_total_bytes"]) <= int(info["memtable", "memory_max_bytes"])
    assert int(info["generic", "uptime_ms"]) > 0
    assert info["native_transport", "active"] == "true"
    one = rows(session, "SELECT value FROM system.runtime_info WHERE group = 'memory' AND item = 'total_bytes'")
    assert one == [{"value": info["memory", "total_bytes"]}]


def test_snapshots_are_listed(session):
    session.execute("CREATE TABLE s (k int PRIMARY KEY)")
    session.execute("INSERT INTO s (k) VALUES (1)")
    session.node.nodetool("snapshot", "-t", "first", session.keyspace)
    of_table = "WHERE keyspace_name = %s AND table_name = 's'"
    (row,) = rows(session, f"SELECT * FROM system.snapshots {of_table}", (session.keyspace,))
    # The table still has the data files: what the snapshot has of its own are the manifest and the schema.
    assert row["snapshot_name"] == "first" and 0 < row["live"] < row["total"]
    (view,) = rows(session, "SELECT * FROM system_views.snapshots WHERE name = 'first' AND keyspace_name = %s", (session.keyspace,))
    assert view["table_name"] == "s" and view["size_on_disk"] == row["total"] and view["expires_at"] is None
    made = view["created_at"].replace(tzinfo=timezone.utc)
    assert abs(datetime.now(timezone.utc) - made) < timedelta(minutes=10)
    (size,) = rows(session, f"SELECT mebibytes FROM system_views.max_sstable_size {of_table}", (session.keyspace,))
    assert size["mebibytes"] == 1


def test_the_ring_is_whole(session):
    ring = rows(session, "SELECT * FROM system.token_ring WHERE keyspace_name = 'system_distributed'")
    assert ring and {row["endpoint"] for row in ring} == {"127.0.0.1"}
    starts, ends = ({row[name] for row in ring} for name in ("start_token", "end_token"))
    least, most = str(-(2**63)), str(2**63 - 1)
    assert starts - {least} == ends - {most, least}


def test_tablets_are_counted_and_sized(session):
    session.execute("CREATE TABLE s (k int PRIMARY KEY)")
    session.execute("INSERT INTO s (k) VALUES (1)")
    session.node.nodetool("flush", session.keyspace)
    (load,) = rows(session, "SELECT * FROM system.load_per_node")
    host = session.execute("SELECT host_id FROM system.local").one().host_id
    assert load["node"] == host and load["tablets_allocated"] > 0
    assert load["tablets_allocated_per_shard"] == load["tablets_allocated"] / session.node.smp
    table = session.execute(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = 's'", (session.keyspace,)
    ).one().id
    sizes = rows(session, "SELECT * FROM system.tablet_sizes WHERE table_id = %s", (table,))
    tablets = rows(session, "SELECT last_token FROM system.tablets WHERE table_id = %s", (table,))
    assert [row["last_token"] for row in sizes] == [row["last_token"] for row in tablets]
    assert all(set(row["replicas"]) == {host} and not row["missing_replicas"] for row in sizes)
    assert sum(row["replicas"][host] for row in sizes) > 0


def test_the_metadata_group_has_one_voter(session):
    (member,) = rows(session, "SELECT * FROM system.raft_state")
    host = session.execute("SELECT host_id FROM system.local").one().host_id
    assert (member["disposition"], member["server_id"], member["can_vote"]) == ("CURRENT", host, True)


def test_the_topology_has_the_node_and_what_its_release_can_do(session):
    (member,) = rows(session, "SELECT * FROM system.topology")
    local = session.execute("SELECT * FROM system.local").one()
    assert (member["host_id"], member["datacenter"], member["rack"]) == (local.host_id, local.data_center, local.rack)
    assert (member["node_state"], member["shard_count"]) == ("normal", session.node.smp)
    assert set(member["tokens"]) == set(local.tokens)
    assert "per_partition_rate_limit" in member["supported_features"]

    def enabled():
        (member,) = rows(session, "SELECT enabled_features FROM system.topology")
        return member["enabled_features"] or []

    # A new cluster enables them when it has begun.
    eventually("all that the release can do is enabled", lambda: set(enabled()) == set(member["supported_features"]))


def test_tables_of_what_does_not_exist_yet_are_empty(session):
    answer = session.execute("SELECT * FROM system.built_views")
    assert list(answer) == [] and answer.column_names == ["keyspace_name", "view_name"]


def test_statements_on_virtual_tables_answer_as_in_cassandra(session):
    # All rows are computed anyway, so filters need no permission.
    assert rows(session, "SELECT name FROM system_views.settings WHERE value = '9042' AND name = 'smp'") == []
    assert rows(session, "SELECT name FROM system_views.caches WHERE size_bytes >= 0")
    assert rows(session, "SELECT table_name FROM system_views.disk_usage WHERE keyspace_name = 'system'")
    for statement, code, words in [
        ("SELECT host_id FROM system.local WHERE rack = 'rack1'", INVALID, "ALLOW FILTERING"),
        ("DELETE FROM system_views.settings WHERE name = 'x'", INVALID, "Modification is not supported by table system_views.settings"),
        ("INSERT INTO system.versions (key) VALUES ('x')", INVALID, "Modification is not supported by table system.versions"),
        ("INSERT INTO system.versions (key) VALUES ('x') IF NOT EXISTS", INVALID, "Conditional updates are not supported by virtual tables"),
        ("UPDATE system_views.settings USING TTL 5 SET value = '1' WHERE name = 'x'", INVALID, "Expiring columns are not supported by virtual tables"),
        ("TRUNCATE system_views.settings", INVALID, "Truncation is not supported by table system_views.settings"),
        ("DROP TABLE system_views.settings", 0x2100, "system_views keyspace is not user-modifiable"),
    ]:
        cql.refused(session, statement, code, words)


def test_members_repairs_and_streams_have_cassandra_s_columns(session):
    (member,) = rows(session, "SELECT * FROM system_views.gossip_info")
    local = session.execute("SELECT broadcast_address, data_center, rack, host_id FROM system.local").one()
    known = member["address"], member["dc"], member["rack"], member["host_id"], member["rpc_ready"]
    assert known == (local.broadcast_address, local.data_center, local.rack, str(local.host_id), "true")
    assert member["status"].startswith("NORMAL,") and len(member) == 66
    session.node.nodetool("repair", "ks")
    assert all(rows(session, f"SELECT * FROM system_views.repair_{table}") == [] for table in ("jobs", "participates", "validations"))
    for table in ("repairs", "repair_sessions"):
        for row in rows(session, f"SELECT * FROM system_views.{table}"):
            assert row["completed"] in (True, False) and row["state_init_timestamp"]
    assert rows(session, "SELECT * FROM system_views.streaming") == []
    assert rows(session, "SELECT * FROM system_views.system_properties") == []
    session.execute("CREATE TABLE ks.l (k int PRIMARY KEY)")
    latencies = rows(session, "SELECT * FROM system_views.local_read_latency WHERE keyspace_name = 'ks' AND table_name = 'l'")
    assert [row["count"] for row in latencies] in ([], [None]), "what a replica takes is not measured"
    assert rows(session, "SELECT * FROM system_schema.column_masks") == []


def test_the_schema_tells_what_scylladb_adds_to_it(session):
    replication = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    session.execute(f"CREATE KEYSPACE ringed WITH {replication} AND tablets = {{'enabled': false}}")
    session.execute(f"CREATE KEYSPACE many WITH {replication} AND tablets = {{'enabled': true, 'initial': 8}}")
    # Drivers of ScyllaDB take a keyspace for one with tablets by this column.
    told = {row["keyspace_name"]: row["initial_tablets"] for row in rows(session, "SELECT keyspace_name, initial_tablets FROM system_schema.scylla_keyspaces")}
    assert told == {"ks": 0, "many": 8}
    session.execute("CREATE TABLE many.plain (k int PRIMARY KEY)")
    session.execute(
        "CREATE TABLE many.t (k int PRIMARY KEY) WITH tablets = {'min_tablet_count': 4} AND paxos_grace_seconds = 20000 "
        "AND per_partition_rate_limit = {'max_writes_per_second': 7} AND large_data_guardrails_enabled = true"
    )
    plain, table = rows(session, "SELECT * FROM system_schema.scylla_tables WHERE keyspace_name = 'many'")
    assert {name: value for name, value in plain.items() if value is not None} == {"keyspace_name": "many", "table_name": "plain"}
    assert {name: value for name, value in table.items() if value is not None} == {
        "keyspace_name": "many",
        "table_name": "t",
        "tablets": {"min_tablet_count": "4"},
        "per_partition_rate_limit": {"max_writes_per_second": "7"},
        "paxos_grace_seconds": 20000,
        "large_data_guardrails_enabled": True,
    }
    assert rows(session, "SELECT * FROM system_schema.scylla_aggregates") == []
    (local,) = rows(session, "SELECT supported_features FROM system.local")
    assert {"TABLETS", "LWT_WITH_TABLETS", "TABLET_OPTIONS"} <= set(local["supported_features"].split(","))
    assert rows(session, "SELECT * FROM system_schema.computed_columns") == []
