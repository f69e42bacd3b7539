"""What operators look up, switch and have counted: nodetool, the paths behind it, and the tables of what a node measures."""

import threading
import time

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import NoHostAvailable

from harness import cql
from harness.node import Node, NodeFailed

pytestmark = pytest.mark.ceto_only("the commands are ceto's, and so are the figures")


def api(node, path, method="GET"):
    status, answer = node.api(path, method)
    assert status == 200, (path, status, answer)
    return answer


@pytest.fixture
def loaded(node, session):
    """A table of two sstables with 400 partitions, a tombstone in each tenth, in a keyspace of its own."""
    keyspace = cql.unique("measured")
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.execute(f"CREATE TABLE {keyspace}.t (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = session.prepare(f"INSERT INTO {keyspace}.t (k, c, v) VALUES (?, ?, ?)")
    delete = session.prepare(f"DELETE FROM {keyspace}.t WHERE k = ? AND c = 0")
    for part in range(2):
        for k in range(part * 200, part * 200 + 200):
            for c in range(3):
                session.execute(insert, (k, c, "x" * 100))
            if k % 10 == 0:
                session.execute(delete, (k,))
        node.nodetool("flush", keyspace)
    yield keyspace
    session.execute(f"DROP KEYSPACE {keyspace}")


def figures(node, keyspace):
    said = node.nodetool("tablestats", f"{keyspace}.t")
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}


def test_the_index_lists_the_paths_and_what_it_lists_is_there(node):
    index = api(node, "/")
    listed = {(route["method"], route["path"]) for route in index}
    assert len(listed) == len(index) > 100, "a path is listed twice"
    assert all(route["about"] and all(p["about"] for p in route["parameters"]) for route in index), index
    for method, path in sorted(listed):
        if method != "GET" or "{" in path or path == "/hinted_handoff/sync_point":
            continue
        status, answer = node.api(path)
        assert status != 404 and status != 405, (path, answer)
    for route in index:
        # A handler that reads a parameter which its route does not name ends a node of a build with debug assertions.
        if route["method"] == "GET" and "{" not in route["path"]:
            for parameter in route["parameters"]:
                node.api(f"{route['path']}?{parameter['name']}=system")
    status, answer = node.api("/storage_service/load?kn=x")
    assert (status, answer["message"]) == (400, "unknown parameter 'kn': this path takes none")


def test_tablestats_tells_sizes_latencies_and_tombstones(node, session, loaded):
    for k in range(0, 400, 10):
        assert len(list(session.execute(f"SELECT c FROM {loaded}.t WHERE k = {k}"))) == 2
    said = figures(node, loaded)
    assert int(said["SSTable count"]) >= 2 and int(said["Space used (live)"]) > 0, said
    assert 300 <= int(said["Number of partitions (estimate)"]) <= 500, said
    smallest, largest = (int(said[f"Compacted partition {which} bytes"]) for which in ("minimum", "maximum"))
    assert 100 < smallest <= int(said["Compacted partition mean bytes"]) <= largest < 2000, said
    assert 0 < float(said["SSTable Compression Ratio"]) < 1, said
    assert int(said["Bloom filter space used"]) > 0, said
    assert int(said["Coordinator read count"]) >= 40 and said["Coordinator read latency"].endswith(" ms"), said
    assert int(said["Coordinator write count"]) > 0 and float(said["Coordinator write latency"].split()[0]) >= 0, said
    assert int(said["Maximum tombstones per read"]) == 1 and float(said["Average rows per read"]) > 0, said
    histograms = node.nodetool("tablehistograms", loaded, "t").splitlines()
    assert histograms[0] == f"{loaded}/t histograms" and "Partition Size" in histograms[1], histograms
    largest_row = next(line.split() for line in histograms if line.startswith("Max"))
    assert int(largest_row[4]) == largest and float(largest_row[1]) >= 1, histograms
    assert node.nodetool("cfhistograms", f"{loaded}.t").startswith(f"{loaded}/t histograms")
    with pytest.raises(NodeFailed, match="Unknown keyspace or table"):
        node.nodetool("tablehistograms", loaded, "u")


def test_where_a_partition_is(node, session, loaded):
    assert node.nodetool("getendpoints", loaded, "t", "5") == f"{node.host}\n"
    files = node.nodetool("getsstables", loaded, "t", "5").splitlines()
    assert len(files) == 1 and files[0].endswith("-Data.db") and loaded in files[0], files
    assert node.nodetool("getsstables", loaded, "t", "5000") == ""
    with pytest.raises(NodeFailed, match="expected a value of column k, which is int"):
        node.nodetool("getsstables", loaded, "t", "five")
    session.execute(f"CREATE TABLE {loaded}.two (a text, b int, v int, PRIMARY KEY ((a, b)))")
    assert node.nodetool("getendpoints", loaded, "two", "x y:7") == f"{node.host}\n"
    with pytest.raises(NodeFailed, match="expected 2 values"):
        node.nodetool("getendpoints", loaded, "two", "x")


def test_a_compaction_is_in_the_history_that_a_restart_keeps():
    with Node(smp=2) as node:
        with cql.cluster(node) as cluster:
            session = cluster.connect()
            session.execute(
                "CREATE KEYSPACE old WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            session.execute("CREATE TABLE old.t (k int PRIMARY KEY, v text)")
            for k in range(100):
                session.execute(f"INSERT INTO old.t (k, v) VALUES ({k}, '{'x' * 100}')")
                if k % 50 == 49:
                    node.nodetool("flush", "old")
            assert api(node, "/compaction_manager/compaction_history") == []
            node.nodetool("compact", "old")
            assert "pending tasks: 0" in node.nodetool("compactionstats")
            deadline = time.monotonic() + 60
            while not (before := cql.rows(session, "SELECT * FROM system.compaction_history")):
                assert time.monotonic() < deadline, "the compaction is not in its history"
            with pytest.raises(InvalidRequest, match="Modification is not supported"):
                session.execute("DELETE FROM system.compaction_history WHERE id = 50554d6e-29bb-11e5-b345-feff819cdc9f")
        node.stop()
        node.start()
        with cql.cluster(node) as cluster:
            session = cluster.connect()
            rows = cql.rows(session, "SELECT * FROM system.compaction_history")
            assert set(before) <= set(rows), "a restart forgets compactions"
            (ttl,) = session.execute("SELECT ttl(bytes_in) FROM system.compaction_history LIMIT 1").one()
            assert 600_000 < ttl <= 604_800
        said = node.nodetool("compactionhistory")
        assert "columnfamily_name" in said and " old " in said, said
        for past in api(node, "/compaction_manager/compaction_history"):
            assert (past["ks"], past["cf"]) == ("old", "t"), past
            # One file has its timestamps as distances from the first: those of two batches written far apart are longer.
            assert 0 < past["bytes_out"] < 2 * past["bytes_in"], past


def test_compactions_do_not_begin_by_themselves_when_an_operator_says_so(node, session, loaded):
    assert f"{loaded}.t  yes" in " ".join(node.nodetool("statusautocompaction", loaded, "t").split(" "))
    node.nodetool("disableautocompaction", loaded, "t")
    assert api(node, f"/column_family/autocompaction/{loaded}:t") is False
    insert = session.prepare(f"INSERT INTO {loaded}.t (k, c, v) VALUES (?, 0, 'y')")
    for _ in range(6):
        for k in range(20):
            session.execute(insert, (k,))
        node.nodetool("flush", loaded, "t")
    many = int(figures(node, loaded)["SSTable count"])
    assert many >= 8, "sstables were merged"
    node.nodetool("enableautocompaction", loaded)
    deadline = time.monotonic() + 60
    while int(figures(node, loaded)["SSTable count"]) >= many:
        assert time.monotonic() < deadline, "nothing is compacted again"
    with pytest.raises(NodeFailed, match="Can't find a table u"):
        node.nodetool("disableautocompaction", loaded, "u")


def test_toppartitions_counts_reads_and_writes_for_a_time(node, session, loaded):
    insert = session.prepare(f"INSERT INTO {loaded}.t (k, c, v) VALUES (?, ?, 'y')")
    select = session.prepare(f"SELECT v FROM {loaded}.t WHERE k = ? AND c = 1")
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            for k in (7, 7, 7, 8):
                session.execute(insert, (k, 1))
                session.execute(select, (k,))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        said = node.nodetool("toppartitions", loaded, "t", "1000", "-k", "2")
    finally:
        ended.set()
        asking.join()
    assert said.startswith("WRITES Sampler:\n  Cardinality: ~") and "READS Sampler:" in said, said
    for sampler in said.split("\n\n")[:2]:
        ranked = [line.split() for line in sampler.splitlines() if line.startswith("\t")][1:]
        assert [row[0] for row in ranked] == ["7", "8"], said
        assert int(ranked[0][1]) > int(ranked[1][1]) > 0 and ranked[0][2] == "0", said
    assert "Nothing recorded" in node.nodetool("toppartitions", loaded, "t", "10", "-a", "READS")
    with pytest.raises(NodeFailed, match="expected READS, WRITES or both"):
        node.nodetool("toppartitions", loaded, "t", "10", "-a", "CAS")
    with pytest.raises(NodeFailed, match="from 1 to"):
        node.nodetool("toppartitions", loaded, "t", "0")


def test_what_runs_and_who_is_connected(node, session):
    pools = node.nodetool("tpstats")
    for pool in ("CompactionExecutor", "MemtableFlushWriter", "Native-Transport-Requests"):
        assert pool in pools, pools
    said = node.nodetool("clientstats")
    assert "Total connected clients: " in said and "anonymous" in said, said
    protocol = session.cluster.protocol_version
    assert f"{protocol}/v{protocol} " in node.nodetool("clientstats", "--by-protocol")
    everybody = node.nodetool("clientstats", "--all")
    assert "Driver-Name" in everybody and "Python" in everybody, everybody
    assert "does not contain any" in node.nodetool("getseeds")
    assert node.nodetool("statusgossip") == "running\n"
    with pytest.raises(NodeFailed, match="failure detector"):
        node.nodetool("disablegossip")


def test_the_trace_probability_is_a_number_from_0_to_1(node):
    assert node.nodetool("gettraceprobability") == "Current trace probability: 0.0\n"
    node.nodetool("settraceprobability", "0.25")
    assert node.nodetool("gettraceprobability") == "Current trace probability: 0.25\n"
    for wrong in ("1.5", "-1", "NaN", "much"):
        with pytest.raises(NodeFailed, match="expected a number from 0 to 1"):
            node.nodetool("settraceprobability", wrong)
    node.nodetool("settraceprobability", "0")


def test_binary_is_switched_off_and_on():
    with Node(smp=2) as node:
        with cql.cluster(node) as cluster:
            assert cluster.connect().execute("SELECT key FROM system.local").one() == ("local",)
        assert node.nodetool("statusbinary") == "running\n"
        node.nodetool("disablebinary")
        assert node.nodetool("statusbinary") == "not running\n"
        assert "Native Transport active: false" in node.nodetool("info")
        with pytest.raises(NoHostAvailable), cql.cluster(node) as cluster:
            cluster.connect()
        node.nodetool("enablebinary")
        with cql.cluster(node) as cluster:
            assert cluster.connect().execute("SELECT key FROM system.local").one() == ("local",)


def test_a_snapshot_of_named_tables_leaves_out_what_is_in_memory_if_it_is_not_to_flush(node, session, loaded):
    session.execute(f"CREATE TABLE {loaded}.other (k int PRIMARY KEY)")
    session.execute(f"INSERT INTO {loaded}.other (k) VALUES (1)")
    said = node.nodetool("snapshot", "-t", "quick", "-kt", f"{loaded}.t,{loaded}.other", "-sf")
    assert "with snapshot name [quick] and options {skipFlush=true}" in said, said
    assert figures(node, loaded)["Memtable partition count"] == "0"

    def kept(tag):
        of_tag = [line.split() for line in node.nodetool("listsnapshots").splitlines() if line.startswith(f"{tag} ")]
        return sorted(words[2] for words in of_tag)

    assert kept("quick") == ["other", "t"]
    files = list(node.workdir.rglob("other-*/snapshots/quick/*-Data.db"))
    assert files == [], "the row was in memory alone"
    node.nodetool("snapshot", "-t", "whole", "-cf", "other", loaded)
    assert kept("whole") == ["other"] and len(list(node.workdir.rglob("other-*/snapshots/whole/*-Data.db"))) == 1
    for tag in ("quick", "whole"):
        node.nodetool("clearsnapshot", "-t", tag)


def test_sizes_are_printed_for_people_on_request(node, loaded):
    plain, readable = (node.nodetool("tablestats", *options, f"{loaded}.t") for options in ([], ["-H"]))
    assert "Space used (live): " in plain and "KiB" not in plain and "KiB" in readable, readable


def test_a_drained_node_stays_and_has_nothing_to_replay():
    with Node(smp=2) as node:
        with cql.cluster(node) as cluster:
            session = cluster.connect()
            session.execute("CREATE KEYSPACE d WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            session.execute("CREATE TABLE d.t (k int PRIMARY KEY)")
            session.execute("INSERT INTO d.t (k) VALUES (1)")
        node.nodetool("drain")
        assert api(node, "/storage_service/operation_mode") == "DRAINED"
        assert "Mode: DRAINED" in node.nodetool("netstats")
        assert node.nodetool("statusbinary") == "not running\n"
        assert figures_of(node, "d.t")["Memtable partition count"] == "0"
        node.nodetool("drain")
        with pytest.raises(NodeFailed, match="has drained"):
            node.nodetool("enablebinary")
        with pytest.raises(NoHostAvailable), cql.cluster(node) as cluster:
            cluster.connect()
        node.stop()
        node.start()
        assert not any("replayed" in line for line in node.lines[-40:]), "a drained node had something to replay"
        with cql.cluster(node) as cluster:
            assert cql.rows(cluster.connect(), "SELECT k FROM d.t") == [(1,)]


def figures_of(node, table):
    said = node.nodetool("tablestats", table)
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}


def test_size_estimates_cover_the_ring_with_the_partitions_that_are_there(session, loaded):
    where = f"keyspace_name = '{loaded}' AND table_name = 't'"
    rows = list(session.execute(f"SELECT * FROM system.size_estimates WHERE {where}"))
    ranges = sorted((int(row.range_start), int(row.range_end)) for row in rows)
    assert ranges[0][0] == -(2**63) and ranges[-1][1] >= 2**63 - 1, "a part of the ring is missing"
    assert all(a[1] == b[0] for a, b in zip(ranges, ranges[1:])), f"ranges overlap or leave gaps: {ranges}"
    count = sum(row.partitions_count for row in rows)
    assert 300 <= count <= 500, f"400 partitions, estimated as {count}"
    ring = f"{loaded}_ring"
    session.execute(
        f"CREATE KEYSPACE {ring} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}} AND tablets = {{'enabled': false}}"
    )
    session.execute(f"CREATE TABLE {ring}.t (k int PRIMARY KEY)")
    session.execute(f"INSERT INTO {ring}.t (k) VALUES (1)")
    counts = session.execute(f"SELECT partitions_count FROM system.size_estimates WHERE keyspace_name = '{ring}' AND table_name = 't'")
    assert sum(row.partitions_count for row in counts) == 1, "one partition in memory"
    session.execute(f"DROP KEYSPACE {ring}")
    assert all(100 < row.mean_partition_size < 2000 for row in rows if row.partitions_count), rows
    kinds = {row.range_type for row in session.execute(f"SELECT range_type FROM system.table_estimates WHERE {where}")}
    assert kinds == {"primary", "local_primary"}


def test_the_tables_of_what_a_node_measures_have_rows(node, session, loaded):
    for k in range(40):
        session.execute(f"SELECT v FROM {loaded}.t WHERE k = {k}")
    list(session.execute(f"SELECT v FROM {loaded}.t"))
    names = {row.name for row in session.execute("SELECT name FROM system_views.caches")}
    assert names == {"chunks", "rows"}
    for row in session.execute("SELECT * FROM system_views.caches"):
        assert row.capacity_bytes >= row.size_bytes >= 0, row
    pools = {row.name: row for row in session.execute("SELECT * FROM system_views.thread_pools")}
    assert pools["MemtableFlushWriter"].completed_tasks > 0 and pools["Native-Transport-Requests"].completed_tasks > 0
    where = f"keyspace_name = '{loaded}' AND table_name = 't'"
    for name in ("disk_usage", "max_partition_size"):
        assert session.execute(f"SELECT mebibytes FROM system_views.{name} WHERE {where}").one() == (1,), name
    [(span,)] = session.execute(f"SELECT max_sstable_duration FROM system_views.max_sstable_duration WHERE {where}")
    assert 0 < span < 3_600_000, "milliseconds between the first and the last write of one file"
    for name in ("read", "scan", "write"):
        row = session.execute(f"SELECT * FROM system_views.coordinator_{name}_latency WHERE {where}").one()
        assert row.count > 0 and row.max_ms >= row.p99th_ms >= row.p50th_ms >= 0, row
    row = session.execute(f"SELECT * FROM system_views.tombstones_per_read WHERE {where}").one()
    assert row.count >= 40 and row.max == 1, row
    row = session.execute(f"SELECT * FROM system_views.rows_per_read WHERE {where}").one()
    assert row.max == 3, row
    metrics = dict(session.execute("SELECT name, value FROM system_views.cql_metrics"))
    assert metrics["prepared_statements_executed"] > 0 and 0 < metrics["prepared_statements_ratio"] < 1, metrics


def test_the_log_is_a_table(session):
    """What the node logs of a change of the schema is the last that it logged."""
    names = [cql.unique("logged") for _ in range(3)]
    for name in names:
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        session.execute(f"DROP KEYSPACE {name}")
    rows = sorted(session.execute("SELECT timestamp, order_in_millisecond, level, logger, message FROM system_views.system_logs"))
    assert len({(at, order) for at, order, *_ in rows}) == len(rows), "no two messages have one key"
    told = [message.split(": ")[1] for _, _, level, logger, message in rows if logger == "cql_server::dispatch" and level == "INFO"]
    assert [line.split(" WITH")[0] for line in told[-6:]] == [f"{verb} KEYSPACE {name}" for name in names for verb in ("CREATE", "DROP")]


@pytest.mark.parametrize("table", ["system.top_partitions", "system.batches"])
def test_a_table_of_which_nobody_has_facts_does_not_exist(session, table):
    with pytest.raises(InvalidRequest, match="does not exist|unconfigured"):
        session.execute(f"SELECT * FROM {table}")
