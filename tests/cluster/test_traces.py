"""A trace names the replicas that a coordinator asked, and what became of each."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql
from harness.cluster import address, eventually

NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def keyspace(cluster):
    name = cql.unique("ks")
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    return name


def said(session, text, level):
    trace = session.execute(SimpleStatement(text, consistency_level=level), trace=True).get_query_trace(max_wait_sec=5)
    return [event.description for event in trace.events]


def test_a_write_and_a_read_name_their_replicas(sessions, keyspace):
    for number in NODES:
        written = said(sessions[number], f"INSERT INTO {keyspace}.t (k, v) VALUES (1, 1)", ConsistencyLevel.ALL)
        for other in NODES:
            assert any(line.startswith(f"Sending the write to {address(other)} ") for line in written), written
            assert any(line.startswith(f"{address(other)} ") and line.endswith("has the write") for line in written), written
        read = said(sessions[number], f"SELECT v FROM {keyspace}.t WHERE k = 1", ConsistencyLevel.ALL)
        for other in NODES:
            assert any(line.startswith(f"Asking {address(other)} ") for line in read), read
            assert any(line.startswith(f"Answer of {address(other)} ") for line in read), read


def test_a_replica_that_is_down_is_named_with_its_hint(cluster, sessions, keyspace):
    cluster.kill(3)
    insert = f"INSERT INTO {keyspace}.t (k, v) VALUES (2, 2)"
    down = f"{address(3)} "

    def told():
        return [line for line in said(sessions[1], insert, ConsistencyLevel.QUORUM) if line.startswith(down) and "hint" in line]

    eventually("the trace says that node 3 is down", told)
    cluster.start(3)
    cluster.known_to_clients()
