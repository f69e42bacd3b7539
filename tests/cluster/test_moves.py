"""Tablets move between the shards of a node while they are written and read."""

import threading

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.members import host_of

SHARDS = 2


# A move flushes and syncs: on a machine that does much else that may take longer than a request usually waits.
PATIENT = "write_request_timeout: 20s\nread_request_timeout: 20s\ncas_contention_timeout: 20s\n"


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    options = tmp_path_factory.mktemp("options") / "ceto.yaml"
    options.write_text(PATIENT)
    cluster = Cluster(3, smp=SHARDS, runtime=request.config.getoption("--runtime"), options=["--options-file", str(options)])
    try:
        cluster.form().known_to_clients()
        # Tablets stay where these tests put them.
        cluster.node(1).nodetool("tabletbalancing", "off")
        yield cluster
    finally:
        cluster.remove()


def keyspace(session, replicas):
    """A table of one tablet."""
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
        " AND tablets = {'initial': 1}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    return name


def places(session, name):
    """By node, the shard that has the tablet."""
    rows = cql.rows(session, "SELECT keyspace_name, replicas FROM system.tablets")
    [found] = [replicas for keyspace, replicas in rows if keyspace == name]
    return {str(host): shard for host, shard in found}


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_tablet_moves_to_another_shard_while_it_is_written_and_read(cluster, session, replicas):
    name = keyspace(session, replicas)
    number, host = next((n, host_of(node)) for n, node in enumerate(cluster, 1) if host_of(node) in places(session, name))
    node = cluster.node(number)
    done, failures, written = threading.Event(), [], []

    def write():
        with cluster.driver(only=number) as driver:
            there = driver.connect()
            insert = there.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
            insert.consistency_level = ConsistencyLevel.QUORUM
            select = there.prepare(f"SELECT v FROM {name}.t WHERE k = ?")
            select.consistency_level = ConsistencyLevel.QUORUM
            lwt = there.prepare(f"UPDATE {name}.t SET v = ? WHERE k = -1 IF v = ?")
            there.execute(f"INSERT INTO {name}.t (k, v) VALUES (-1, 0)")
            k = 0
            while not done.is_set():
                there.execute(insert, (k, k))
                if cql.rows(there, select, (k,)) != [(k,)]:
                    failures.append(f"{k} was written and is not there")
                if not there.execute(lwt, (k + 1, k)).was_applied:
                    failures.append(f"addition {k} was not applied")
                k += 1
            written.append(k)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(12):
            to = 1 - places(session, name)[host]
            node.nodetool("movetablet", name, "t", "0", str(to))
            assert places(session, name)[host] == to
    finally:
        done.set()
        writer.join()
    assert not failures and written[0] > 0, failures[:5]
    [(count,)] = cql.rows(session, f"SELECT COUNT(*) FROM {name}.t")
    assert count == written[0] + 1
    node.kill9()
    node.start()
    cluster.sees_itself_whole()
    with cluster.driver(only=number) as driver:
        scan = SimpleStatement(f"SELECT k FROM {name}.t", consistency_level=ConsistencyLevel.ONE)
        assert sorted(k for (k,) in cql.rows(driver.connect(), scan)) == list(range(-1, written[0]))


def test_a_move_that_cannot_be_is_refused_with_the_reason(cluster, session):
    name = keyspace(session, 3)
    node = cluster.node(1)
    host = host_of(node)
    shard = places(session, name)[host]
    where = f"/storage_service/tablets/move?ks={name}&table=t&token=0&src_host={host}&dst_host={host}"
    for rest, reason in [
        (f"&src_shard={shard}&dst_shard={shard}", "already"),
        (f"&src_shard={shard}&dst_shard=99", "there is no shard 99"),
        (f"&src_shard={1 - shard}&dst_shard={shard}", f"is on shard {shard}"),
        (f"&src_shard={shard}", "Missing mandatory parameter 'dst_shard'"),
    ]:
        status, answer = node.api(where + rest, method="POST")
        assert status >= 400 and reason in answer["message"], answer
    other = host_of(cluster.node(2))
    status, answer = node.api(where.replace(f"dst_host={host}", f"dst_host={other}") + f"&src_shard={shard}&dst_shard=0", method="POST")
    assert status >= 400 and "has a replica of tablet 0 already" in answer["message"]
    # Asked of another node, by its form.
    to = 1 - shard
    assert cluster.node(2).api(where + f"&src_shard={shard}&dst_shard={to}", method="POST")[0] == 200
    assert places(session, name)[host] == to
    listed = cluster.node(2).api("/task_manager/list_module_tasks/tablets")[1]
    assert [task["state"] for task in listed if task["keyspace"] == name] == ["done"]
