"""Counters on three nodes are exact: additions through any node, nodes that die under them, and nodes that come back."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, Unavailable, WriteFailure, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from harness import cql

NODES = (1, 2, 3)
KEYS = 4


@pytest.fixture(params=[1, 3], ids=["one copy", "three copies"])
def counters(sessions, request):
    name = cql.unique("ks")
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {request.param}}}"
    sessions[1].execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
    sessions[1].execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, n counter)")
    return f"{name}.t", request.param


def values(session, table, level):
    return dict(cql.rows(session, SimpleStatement(f"SELECT k, n FROM {table}", consistency_level=level)))


def test_additions_through_all_nodes_at_once_add_up(sessions, counters):
    table, _ = counters

    def add(number):
        prepared = sessions[number].prepare(f"UPDATE {table} SET n = n + ? WHERE k = ?")
        prepared.consistency_level = ConsistencyLevel.QUORUM
        for i in range(100):
            sessions[number].execute(prepared, (number, i % KEYS))

    with ThreadPoolExecutor(len(NODES)) as pool:
        list(pool.map(add, NODES))
    for session in sessions.values():
        assert values(session, table, ConsistencyLevel.ALL) == {k: 25 * sum(NODES) for k in range(KEYS)}


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_no_addition_is_lost_or_counted_twice_when_a_node_dies(cluster, sessions, end):
    session = sessions[1]
    name = cql.unique("ks")
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, n counter)")
    table = f"{name}.t"
    unknown, done = [0] * KEYS, [0] * KEYS

    def add(number, count):
        prepared = sessions[number].prepare(f"UPDATE {table} SET n = n + 1 WHERE k = ?")
        prepared.consistency_level = ConsistencyLevel.QUORUM
        for i in range(count):
            try:
                sessions[number].execute(prepared, (i % KEYS,))
                done[i % KEYS] += 1
            except (WriteTimeout, WriteFailure, OperationTimedOut, NoHostAvailable):
                unknown[i % KEYS] += 1
            except Unavailable:
                pass

    add(3, 40)
    with ThreadPoolExecutor(2) as pool:
        adding = [pool.submit(add, number, 200) for number in (1, 2)]
        getattr(cluster, end)(3)
        for one in adding:
            one.result()
    cluster.start(3)
    cluster.sees_itself_whole()
    add(1, 40)
    prepared = sessions[1].prepare(f"SELECT k, n FROM {table}")
    prepared.consistency_level = ConsistencyLevel.ALL
    found = dict(cql.rows(sessions[1], prepared))
    for k in range(KEYS):
        assert done[k] <= found[k] <= done[k] + unknown[k], f"{done[k]} were acknowledged, {unknown[k]} may be there too"
    assert sum(done) > 300, "the cluster goes on without one node"
