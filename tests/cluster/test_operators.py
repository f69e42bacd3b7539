"""What operators see and do: nodetool, the REST API and the metrics of three nodes."""

import json
import time

import pytest
from cassandra import ConsistencyLevel

from harness import cql
from harness.cluster import eventually
from harness.node import Node, NodeFailed, free_ports
from harness.routing import at_once

NODES = (1, 2, 3)
ADDRESSES = [f"127.0.0.{number}" for number in NODES]
# What a command of `nodetool` may take on a machine with nothing else to do; tests print what it took.
QUICK_SECONDS = 0.05
# The machine of a test has other things to do.
TOLERATED_SECONDS = 2.0


@pytest.fixture(scope="module")
def keyspace(cluster):
    name = cql.unique("operated")
    driver = cluster.driver()
    session = driver.connect()
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
    insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
    select = session.prepare(f"SELECT v FROM {name}.t WHERE k = ?")
    for k in range(200):
        session.execute(insert, (k, "x" * 100))
    for k in range(200):
        session.execute(select, (k,))
    yield name
    driver.shutdown()


def test_status_has_a_line_for_each_member(cluster, keyspace):
    said = cluster.node(1).nodetool("status", keyspace)
    assert said.startswith("Datacenter: datacenter1\n=======================\n"), said
    for address in ADDRESSES:
        line = next(line for line in said.splitlines() if f" {address} " in line)
        assert line.startswith("UN ") and "100.0%" in line, f"three copies on three nodes: {said}"


def test_the_load_of_every_member_that_answers_is_told(cluster, keyspace):
    for node in cluster:
        node.nodetool("flush", keyspace)
    loads = {entry["key"]: entry["value"] for entry in cluster.node(1).api("/storage_service/load_map")[1]}
    assert sorted(loads) == ADDRESSES and all(bytes_ > 0 for bytes_ in loads.values()), loads
    for number, address in zip(NODES, ADDRESSES, strict=True):
        assert cluster.node(number).api("/storage_service/load")[1] == loads[address]
    for said in (cluster.node(2).nodetool("status"), cluster.node(2).nodetool("ring")):
        assert "?" not in "".join(line for line in said.splitlines() if "KiB" not in line and "127" in line), said
        assert said.count(" KiB") >= 3, said


@pytest.mark.parametrize(
    "command, expected",
    [
        (("ring",), "Datacenter: datacenter1"),
        (("describering", "{ks}"), "TokenRange(start_token:"),
        (("gossipinfo",), "/127.0.0.3"),
        (("info",), "Native Transport active: true"),
        (("describecluster",), "Schema versions:"),
        (("netstats",), "Mode: NORMAL"),
        (("tablestats", "{ks}"), "Table: t"),
        (("tablestats", "{ks}.t"), "Total number of tables: 1"),
        (("proxyhistograms",), "proxy histograms"),
        (("version",), "ReleaseVersion: 4.1"),
        (("getcompactionthroughput",), "MB/s"),
        (("getstreamthroughput",), "unlimited"),
        (("listsnapshots",), "Snapshot Details"),
        (("help",), "describering"),
        (("tablehistograms", "{ks}", "t"), "{ks}/t histograms"),
        (("getendpoints", "{ks}", "t", "1"), "127.0.0.3"),
        (("compactionstats",), "pending tasks"),
        (("tpstats",), "CompactionExecutor"),
        (("clientstats",), "Total connected clients"),
        (("getseeds",), "127.0.0.1"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_nodetool_commands_answer_quickly(cluster, keyspace, command, expected):
    begin = time.monotonic()
    said = cluster.node(2).nodetool(*(word.format(ks=keyspace) for word in command))
    took = time.monotonic() - begin
    print(f"nodetool {' '.join(command)}: {took * 1000:.0f} ms of {QUICK_SECONDS * 1000:.0f}")
    assert expected.format(ks=keyspace) in said, said
    assert took < TOLERATED_SECONDS, f"nodetool {command[0]} took {took:.1f} s"


def test_all_nodes_have_one_schema_version(cluster, keyspace):
    said = cluster.node(3).nodetool("describecluster")
    versions = [line for line in said.splitlines() if "[127" in line]
    assert len(versions) == 1 and all(address in versions[0] for address in ADDRESSES), said


def test_the_api_tells_who_has_which_tokens(cluster, keyspace):
    node = cluster.node(1)
    status, ring = node.api(f"/storage_service/describe_ring/{keyspace}")
    assert status == 200
    starts = {int(described["start_token"]) for described in ring}
    ends = {int(described["end_token"]) for described in ring}
    assert len(starts) == len(ring) and starts - ends <= {-(2**63)}, "a range begins where none ends"
    for described in ring:
        assert sorted(described["endpoints"]) == ADDRESSES, described
        assert {detail["datacenter"] for detail in described["endpoint_details"]} == {"datacenter1"}
    status, replicas = node.api(f"/storage_service/natural_endpoints/{keyspace}?token=42&cf=t")
    assert (status, sorted(replicas)) == (200, ADDRESSES)


def test_the_status_says_which_copies_there_is_no_node_for(cluster):
    node = cluster.node(3)
    names = {True: cql.unique("ks"), False: cql.unique("ks")}
    with cluster.driver() as driver:
        session = driver.connect()
        for has_tablets, name in names.items():
            session.execute(
                f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 5}}"
                f" AND tablets = {{'enabled': {str(has_tablets).lower()}}}"
            )
            session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY)")
        why = "datacenter datacenter1 has 3 nodes that may hold copies, and the replication factor is 5."

        def lines(name):
            return [line for line in node.nodetool("status").splitlines() if name in line]

        for name in names.values():
            eventually(f"the status tells of {name}", lambda name=name: lines(name))
            (line,) = lines(name)
            assert line.startswith("Note: ") and line.endswith(why), line
            session.execute(f"ALTER KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}")
            eventually(f"the status has nothing to tell of {name}", lambda name=name: not lines(name))
            session.execute(f"DROP KEYSPACE {name}")


def test_ranges_of_tables_with_tablets_are_those_of_a_table(cluster):
    node, name = cluster.node(2), cql.unique("ks")
    with cluster.driver() as driver:
        session = driver.connect()
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}"
        )
        session.execute(f"CREATE TABLE {name}.few (k int PRIMARY KEY) WITH tablets = {{'min_tablet_count': 4}}")
        session.execute(f"CREATE TABLE {name}.many (k int PRIMARY KEY) WITH tablets = {{'min_tablet_count': 16}}")
        try:
            with pytest.raises(NodeFailed, match="name a table of it"):
                node.nodetool("describering", name)
            for table, tablets in (("few", 4), ("many", 16)):
                rows = cql.rows(session, "SELECT keyspace_name, table_name FROM system.tablets")
                assert rows.count((name, table)) == tablets
                assert node.nodetool("describering", name, table).count("TokenRange(") == tablets
                shown = node.nodetool("ring", name, table)
                assert len([line for line in shown.splitlines() if line.startswith("127.")]) == tablets, shown
                shown = node.nodetool("status", name, table)
                assert sum(float(part[:-1]) for part in shown.split() if part.endswith("%")) == pytest.approx(100, abs=1)
            shown = node.nodetool("status", name)
            assert sum(float(part[:-1]) for part in shown.split() if part.endswith("%")) == pytest.approx(100, abs=1)
        finally:
            session.execute(f"DROP KEYSPACE {name}")


@pytest.mark.parametrize(
    "path, expected",
    [
        ("/storage_service/cluster_name", "Test Cluster"),
        ("/storage_service/operation_mode", "NORMAL"),
        ("/gossiper/endpoint/live", ADDRESSES),
        ("/gossiper/endpoint/down", []),
        ("/failure_detector/count/endpoint/up", 3),
        ("/failure_detector/count/endpoint/down", 0),
        ("/failure_detector/simple_states", [{"key": address, "value": "UP"} for address in ADDRESSES]),
        ("/task_manager/list_modules", ["compaction", "flush", "node_ops", "quarantine", "repair", "snapshot", "streaming", "tablets", "truncation"]),
    ],
)
def test_the_api_answers_as_tools_expect(cluster, path, expected):
    status, found = cluster.node(1).api(path)
    found = sorted(found, key=json.dumps) if isinstance(found, list) else found
    assert (status, found) == (200, expected)


def test_the_api_refuses_what_it_does_not_know(cluster, keyspace):
    node = cluster.node(1)
    assert node.api("/nowhere") == (404, {"message": "Not found", "code": 404})
    assert node.api("/storage_service/keyspaces", "POST")[0] == 405
    status, said = node.api("/storage_service/keyspace_flush/nothing", "POST")
    assert (status, said["message"]) == (400, "Can't find a keyspace nothing")
    status, said = node.api("/storage_service/snapshots?tag=../x", "POST")
    assert status == 400 and "parameter tag" in said["message"], said
    with pytest.raises(NodeFailed, match="Can't find a table u"):
        node.nodetool("flush", keyspace, "u")


def test_a_member_that_ends_is_down_for_the_others(cluster):
    cluster.stop(3)
    try:
        deadline = time.monotonic() + 60
        while "127.0.0.3" not in cluster.node(1).api("/gossiper/endpoint/down")[1]:
            assert time.monotonic() < deadline, "a node that ended is still taken to be alive"
        said = cluster.node(1).nodetool("status")
        line = next(line for line in said.splitlines() if " 127.0.0.3 " in line)
        assert line.split()[:3] == ["DN", "127.0.0.3", "?"], said
    finally:
        cluster.start(3)
    while len(cluster.node(1).api("/gossiper/endpoint/live")[1]) < 3:
        assert time.monotonic() < deadline + 60, "a node that came back is still taken to be down"


def test_flush_and_compact_of_one_table(cluster, keyspace):
    node = cluster.node(1)

    def sstables():
        return node.api(f"/column_family/metrics/live_ss_table_count/{keyspace}:t")[1]

    node.nodetool("flush", keyspace, "t")
    assert sstables() >= 1, "nothing was written"
    assert node.api(f"/column_family/metrics/memtable_columns_count/{keyspace}:t")[1] == 0
    node.nodetool("compact", keyspace)
    assert sstables() == node.smp, "a shard has more than one sstable after a major compaction"
    assert node.api(f"/column_family/metrics/estimated_row_count/{keyspace}:t")[1] >= 200


def test_a_snapshot_outlives_a_compaction_until_it_is_cleared(cluster, keyspace):
    node = cluster.node(2)
    node.nodetool("snapshot", "-t", "before", keyspace)
    directory = next(node.workdir.glob(f"data/{keyspace}/t-*/snapshots/before"))
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["files"] and all((directory / name).exists() for name in manifest["files"]), manifest
    assert f"CREATE TABLE {keyspace}.t" in (directory / "schema.cql").read_text()
    records = (directory / "schema.records").read_bytes()
    assert records.startswith(b"CETOOBJ1") and keyspace.encode() in records, "the snapshot has no records of its schema"
    with pytest.raises(NodeFailed, match="already exists"):
        node.nodetool("snapshot", "-t", "before", keyspace)
    cluster.driver().connect().execute(f"INSERT INTO {keyspace}.t (k, v) VALUES (-1, 'later')")
    node.nodetool("flush", keyspace)
    node.nodetool("compact", keyspace)
    assert all((directory / name).exists() for name in manifest["files"]), "the compaction took a snapshot's files"
    listed = node.nodetool("listsnapshots")
    assert "before" in listed and keyspace in listed, listed
    assert node.api("/storage_service/snapshots/size/true")[1] > 0, "the old sstables are the snapshot's alone now"
    with pytest.raises(NodeFailed, match="--all"):
        node.nodetool("clearsnapshot")
    node.nodetool("clearsnapshot", "-t", "before")
    assert not directory.exists() and "no snapshots" in node.nodetool("listsnapshots")


def counted(cluster, part):
    return sum(value for node in cluster for name, value in node.metrics().items() if part in name)


def test_metrics_tell_what_was_asked(cluster, keyspace):
    parts = ("ceto_requests_total", 'kind="owner"', 'kind="elsewhere"', "ceto_request_latency_seconds_count")
    before = [counted(cluster, part) for part in parts]
    driver = cluster.driver()
    session = driver.connect()
    select = session.prepare(f"SELECT v FROM {keyspace}.t WHERE k = ?")
    for k in range(200):
        session.execute(select, (k,))
    driver.shutdown()
    requests, owned, elsewhere, timed = (counted(cluster, part) - b for part, b in zip(parts, before, strict=True))
    assert requests >= 200 and timed >= 200, f"{requests} requests and {timed} latencies were counted"
    assert owned > 0 and owned / (owned + elsewhere) >= 0.95, "of three copies on three nodes every node has one"


@pytest.mark.parametrize("copies", [1, 2])
def test_where_one_replica_is_enough_its_node_answers_in_one_call(cluster, copies):
    driver = cluster.driver()
    session = driver.connect()
    name = cql.unique("at_once")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"
        " AND tablets = {'enabled': false}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, 7)")
    insert.consistency_level = ConsistencyLevel.ALL
    select = session.prepare(f"SELECT v FROM {name}.t WHERE k = ?")

    def answered_at_once(statement):
        before = at_once(cluster)
        for k in range(300):
            session.execute(statement, (k,))
        return at_once(cluster) - before

    written = answered_at_once(insert)
    assert written >= 285 or copies > 1, f"{written} of 300 writes of an only copy were answered in one call"
    for level in (ConsistencyLevel.ONE, ConsistencyLevel.LOCAL_ONE):
        select.consistency_level = level
        read = answered_at_once(select)
        assert read >= 285, f"{read} of 300 reads at level {level} of {copies} copies on three nodes were answered in one call"
    driver.shutdown()


def test_metrics_are_bounded_and_tell_of_the_cluster(cluster):
    for node in cluster:
        found = node.metrics()
        assert found["ceto_members_live"] == 3
        assert found['ceto_dirty_bytes_max{shard="0"}'] > 0
        assert any(name.startswith("ceto_rpc_calls_total{") for name in found), "no link to another node is told"
        assert not any(name.startswith("ceto_table_") for name in found), "tables are told only when asked for"
        assert len(found) < 1000, f"{len(found)} lines of one shard and two peers"
    assert sum(node.metrics()["ceto_raft_is_leader"] for node in cluster) == 1


def test_the_compaction_limit_and_the_log_level_can_be_set(cluster):
    node = cluster.node(1)
    node.nodetool("setcompactionthroughput", "32")
    assert "32 MB/s" in node.nodetool("getcompactionthroughput")
    node.nodetool("setcompactionthroughput", "0")
    node.nodetool("setstreamthroughput", "-m", "32")
    assert "32 MiB/s" in node.nodetool("getstreamthroughput", "-m")
    node.nodetool("setstreamthroughput", "0")
    with pytest.raises(NodeFailed, match="expected megabytes"):
        node.nodetool("setcompactionthroughput", "much")
    assert node.api("/system/logger/root?level=debug", "POST")[0] == 200
    assert node.api("/system/logger/root")[1] == "debug"
    assert node.api("/system/logger/root?level=info", "POST")[0] == 200


def test_a_port_that_is_in_use_is_named(cluster):
    _, _, port = (cluster.node(1).workdir / "api").read_text().strip().rpartition(":")
    # With ports of its own it is started once; else others are tried.
    node = Node(options=["--api-port", port], ports=free_ports("127.0.0.1", 3))
    try:
        with pytest.raises(NodeFailed, match=f"cannot listen for the REST API on 127.0.0.1:{port}"):
            node.start()
    finally:
        node.remove()


def test_a_second_process_at_the_address_for_other_nodes_is_refused(cluster):
    """Both would listen there, and each would get a part of the connections of other nodes."""
    first = cluster.node(1)
    cql_port, aware_port = free_ports(first.host, 2)
    second = Node(host=first.host, ports=(cql_port, aware_port, first.storage_port))
    try:
        with pytest.raises(NodeFailed, match=f"cannot listen for other nodes on {first.host}:{first.storage_port}"):
            second.start()
    finally:
        second.remove()
