"""A repair reads what was written since the last one, and marks it on all replicas. Cassandra's tools read the marks, and its nodes the files."""

import re
import shutil
import time

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cassandra, cql
from harness.cluster import eventually
from harness.node import NodeFailed
from harness.repairs import files, marks, repaired

ROWS = 200


@pytest.fixture(scope="module")
def cluster(forgetful_cluster):
    return forgetful_cluster


def make(session, tablets="true", options=""):
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
        f" AND tablets = {{'enabled': {tablets}}}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int){options}")
    return name


def insert(session, keyspace, keys, level=ConsistencyLevel.ALL):
    for k in keys:
        session.execute(SimpleStatement(f"INSERT INTO {keyspace}.t (k, v) VALUES ({k}, {k})", consistency_level=level))


def read(cluster, number, name):
    """What the node counts of a metric on all its shards."""
    return sum(value for key, value in cluster.node(number).metrics().items() if key.startswith(f"ceto_{name}"))


def test_a_repair_reads_what_was_written_since_the_last_one(cluster, session):
    keyspace = make(session)
    insert(session, keyspace, range(ROWS))
    first = repaired(cluster, 1, keyspace)
    assert (first["rows"], first["differing"], first["skipped"]) == (ROWS, 0, 0)
    found = marks(cluster, keyspace)
    assert found and all(mark > 0 for mark in found), found

    before = [read(cluster, number, "repair_read_bytes_total") for number in (1, 2, 3)]
    second = repaired(cluster, 2, keyspace)
    assert (second["rows"], second["differing"]) == (0, 0) and second["skipped"] > 0
    assert [read(cluster, number, "repair_read_bytes_total") for number in (1, 2, 3)] == before, "somebody has read marked sstables"

    insert(session, keyspace, range(ROWS, ROWS + 10))
    third = repaired(cluster, 3, keyspace)
    assert (third["rows"], third["differing"]) == (10, 0)

    for words in (["-full"], ["--incremental-mode", "disabled"]):
        every = repaired(cluster, 1, *words, keyspace)
        assert (every["rows"], every["differing"], every["skipped"]) == (ROWS + 10, 0, 0), words
    assert repaired(cluster, 1, "--incremental-mode=incremental", keyspace)["rows"] == 0
    cluster.node(2).nodetool("cluster", "repair", "--incremental-mode", "full", keyspace)


def test_what_a_replica_missed_is_found_among_what_is_not_marked(cluster, session):
    keyspace = make(session)
    insert(session, keyspace, range(ROWS))
    repaired(cluster, 1, keyspace)
    third = cluster.node(3)
    third.kill9()
    eventually("the others miss it", lambda: f"DN  {third.host}" in cluster.node(1).nodetool("status"))
    insert(session, keyspace, range(ROWS, ROWS + 20), ConsistencyLevel.QUORUM)
    third.start()
    cluster.sees_itself_whole()
    cluster.known_to_clients()
    once = repaired(cluster, 3, keyspace)
    assert once["differing"] == 20 and once["skipped"] > 0
    with cluster.driver(only=3, consistency="ONE") as driver:
        assert len(cql.rows(driver.connect(), f"SELECT k FROM {keyspace}.t")) == ROWS + 20
    assert repaired(cluster, 2, keyspace)["differing"] == 0
    last = repaired(cluster, 1, keyspace)
    assert (last["rows"], last["differing"]) == (0, 0)


def test_modes_that_cannot_be_are_refused(cluster, session):
    ring, tablets = make(session, "false"), make(session)
    insert(session, ring, range(10))
    status, said = cluster.node(1).api(f"/ceto/repair?kn={ring}&incremental_mode=incremental", method="POST")
    assert status >= 400 and "token ring" in str(said), said
    assert repaired(cluster, 1, "-full", ring)["rows"] == 10
    assert all(mark == 0 for mark in marks(cluster, ring))
    status, said = cluster.node(1).api(f"/ceto/repair?kn={tablets}&incremental_mode=some", method="POST")
    assert status == 400 and "incremental_mode" in str(said), said


# ./dev test installs them first, so only a run of pytest alone can miss them.
@pytest.mark.skipif(cassandra.jars() is None, reason="Cassandra's jars are not there: ./dev setup")
def test_cassandra_reads_the_marks_and_takes_the_files(cluster, session, tmp_path):
    keyspace = make(session)
    insert(session, keyspace, range(ROWS))
    begin_ms = int(time.time() * 1000)
    repaired(cluster, 1, keyspace)
    end_ms = int(time.time() * 1000)
    insert(session, keyspace, range(ROWS, ROWS + 10))
    for node in cluster:
        node.nodetool("flush", keyspace)
    with cassandra.Offline() as tools:
        told, keys = [], set()
        # The tables of one node, which has everything.
        of_one = files([cluster.node(2)], keyspace)
        for file in of_one:
            [line] = [line for line in tools.metadata(file).splitlines() if line.startswith("Repaired at")]
            told.append(int(re.search(r"-?\d+", line)[0]))
            keys |= {int(partition["partition"]["key"][0]) for partition in tools.dump(file)}
    marked = [mark for mark in told if mark != 0]
    assert sorted(told) == sorted(marks([cluster.node(2)], keyspace))
    assert marked and all(begin_ms <= mark <= end_ms for mark in marked), (begin_ms, marked, end_ms)
    assert 0 in told, "what was written after the repair is not marked"
    assert keys == set(range(ROWS + 10))

    copies = tmp_path / "files"
    copies.mkdir()
    for file in of_one:
        for part in file.parent.glob(file.name.removesuffix("Data.db") + "*"):
            shutil.copy(part, copies / part.name)
    # It verifies each file from its begin to its end before it takes it, and keeps the marks.
    with cassandra.Cassandra() as node, cql.cluster(node.server) as driver:
        other = driver.connect()
        other.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        other.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int)")
        node.nodetool("import", "--extended-verify", "--keep-repaired", keyspace, "t", str(copies))
        assert sorted(cql.rows(other, f"SELECT k, v FROM {keyspace}.t")) == [(k, k) for k in range(ROWS + 10)]
        taken = list((node.directory / "data" / keyspace).glob("t-*/*-Data.db"))
        with cassandra.Offline() as tools:
            shown = "".join(tools.metadata(file) for file in taken)
        assert all(f"Repaired at: {mark}" in shown for mark in marked), shown
def test_tablets_are_repaired_by_request_on_any_node(cluster, session):
    keyspace = make(session)
    insert(session, keyspace, range(ROWS))
    third = cluster.node(3)
    ids = [cluster.node(number).api("/storage_service/hostid/local")[1] for number in (1, 2)]
    third.kill9()
    eventually("the others miss it", lambda: f"DN  {third.host}" in cluster.node(1).nodetool("status"))
    insert(session, keyspace, range(ROWS, ROWS + 20), ConsistencyLevel.QUORUM)
    where = f"/storage_service/tablets/repair?ks={keyspace}&table=t"
    # The replicas that are meant are up.
    said = cluster.node(1).nodetool("cluster", "repair", "--in-hosts", ",".join(ids), keyspace)
    assert said == "The replicas that were chosen are equal: 1 tables were repaired.\n"
    with pytest.raises(NodeFailed, match="is down"):
        cluster.node(1).nodetool("repair", "-local", "-full", keyspace)
    status, said = cluster.node(1).api(where, method="POST")
    assert status >= 400 and "is down" in str(said), said
    third.start()
    cluster.sees_itself_whole()
    cluster.known_to_clients()

    def seen_by_the_third():
        with cluster.driver(only=3, consistency="ONE") as driver:
            return len(cql.rows(driver.connect(), f"SELECT k FROM {keyspace}.t"))

    status, said = cluster.node(1).api(f"{where}&hosts_filter={ids[0]},{ids[1]}", method="POST")
    assert status == 200 and seen_by_the_third() == ROWS, said
    wrong = ("tokens=1,x", "hosts_filter=here", "dcs_filter=nowhere", "incremental_mode=some", "await_completion=7", "depth=2")
    for refused in wrong:
        status, said = cluster.node(2).api(f"{where}&{refused}", method="POST")
        assert status >= 400 and refused.partition("=")[0] in str(said), (refused, said)
    with cluster.driver(only=1, consistency="ONE") as driver:
        [token] = {row[0] for row in cql.rows(driver.connect(), f"SELECT token(k) FROM {keyspace}.t WHERE k = {ROWS}")}
    # One tablet, then all; each by another node.
    cluster.node(2).nodetool("cluster", "repair", "--incremental-mode=full", "--tablet-tokens", str(token), keyspace, "t")
    assert seen_by_the_third() > ROWS
    with pytest.raises(NodeFailed, match="needs the keyspace"):
        cluster.node(2).nodetool("cluster", "repair", "--tablet-tokens", str(token))
    status, said = cluster.node(3).api(f"{where}&tokens=all&await_completion=false", method="POST")
    assert status == 200, said
    [task] = said.values()
    assert list(said) == ["tablet_task_id"], said
    status, ended = cluster.node(3).api(f"/task_manager/wait_task/{task}")
    assert status == 200 and (ended["state"], ended["keyspace"], ended["table"]) == ("done", keyspace, "t"), ended
    assert seen_by_the_third() == ROWS + 20
    cluster.node(1).nodetool("cluster", "repair", "--in-dc", "datacenter1", keyspace)


TABLETS = 32


def test_an_abort_of_single_tablets_ends_their_repair_on_all_nodes(cluster, session):
    keyspace = make(session, options=f" WITH tablets = {{'min_tablet_count': {TABLETS}}}")
    insert(session, keyspace, range(ROWS))
    where = f"/storage_service/tablets/repair?ks={keyspace}&table=t&incremental_mode=disabled"

    def limit(bytes_per_second):
        for number in (1, 2, 3):
            status, said = cluster.node(number).api(
                f"/ceto/task_classes/repair?bytes_per_second={bytes_per_second}", method="POST"
            )
            assert status == 200, said

    def repaired_ranges():
        rows = session.execute("SELECT keyspace_name, range_end, incremental_mode FROM system.repair_history")
        of_table = [row for row in rows if row.keyspace_name == keyspace]
        assert {row.incremental_mode for row in of_table} <= {"disabled"}, of_table
        return len({row.range_end for row in of_table})

    def running():
        found = []
        for number in (1, 2, 3):
            where = f"/task_manager/list_module_tasks/repair?keyspace={keyspace}&internal=true"
            status, listed = cluster.node(number).api(where)
            assert status == 200, listed
            found += [task for task in listed if task["state"] in ("created", "running")]
        return found

    limit(1)
    try:
        status, said = cluster.node(2).api(f"{where}&await_completion=false", method="POST")
        assert status == 200, said
        task = said["tablet_task_id"]
        eventually("nodes repair", lambda: any(each["task_id"] != task for each in running()))
        cluster.node(2).nodetool("tasks", "abort", task)
        status, ended = cluster.node(2).api(f"/task_manager/wait_task/{task}?timeout=60")
        assert status == 200 and ended["state"] == "failed" and "aborted" in ended["error"], ended
    finally:
        limit(0)
    eventually("nodes end the ranges that they are at", lambda: running() == [])
    # A shard is at one range at a time.
    assert repaired_ranges() < TABLETS
    status, said = cluster.node(1).api(where, method="POST")
    assert status == 200, said
    eventually("all ranges are in the history", lambda: repaired_ranges() == TABLETS)
