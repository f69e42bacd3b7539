"""A row that grew far beyond a frame between nodes and a segment of the log is read, repaired and changed as any other."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.cluster import address, eventually

MIB = 1 << 20
CELLS = 40
AWAY = 3


@pytest.fixture(scope="module")
def cluster(request):
    cluster = Cluster(3, runtime=request.config.getoption("--runtime"), memory="1G")
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def value(n):
    return bytes([n]) * MIB


def test_a_row_of_forty_mib_is_read_everywhere_and_repaired(cluster):
    name = cql.unique("large")
    first = cluster.driver(only=1)
    session = first.connect()
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 2}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, m map<int, blob>, n int)")
    rows = range(3)
    insert = session.prepare(f"UPDATE {name}.t SET m[?] = ? WHERE k = ?")
    insert.consistency_level = ConsistencyLevel.ONE

    def write(cells):
        for n in cells:
            for k in rows:
                session.execute(insert, (n, value(n), k))

    write(range(CELLS // 2))
    # The other half one node misses, and there are no hints.
    for node in cluster:
        node.nodetool("disablehandoff")
    cluster.stop(AWAY)
    eventually("node 3 is down", lambda: address(AWAY) in cluster.node(1).api("/gossiper/endpoint/down")[1])
    write(range(CELLS // 2, CELLS))
    cluster.start(AWAY)
    cluster.sees_itself_whole()

    select = f"SELECT m FROM {name}.t WHERE k = %s"
    for number in (1, 2, 3):
        driver = cluster.driver(only=number)
        asked = driver.connect()
        for level in (ConsistencyLevel.ALL, ConsistencyLevel.ONE, ConsistencyLevel.SERIAL):
            for k in rows:
                m = asked.execute(SimpleStatement(select, consistency_level=level), (k,)).one().m
                assert {n: len(v) for n, v in m.items()} == dict.fromkeys(range(CELLS), MIB), (number, level, k)
                assert all(v == value(n) for n, v in m.items())
        driver.shutdown()
    for k in rows:
        update = SimpleStatement(f"UPDATE {name}.t SET n = 1 WHERE k = %s IF n = null")
        assert session.execute(update, (k,)).was_applied
    first.shutdown()
