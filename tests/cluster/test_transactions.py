"""Conditional statements through every node of a cluster are decided in one order."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql

NODES = (1, 2, 3)
ROUNDS = 10


@pytest.fixture
def keyspace(sessions):
    name = cql.unique("ks")
    session = sessions[1]
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    return name


def serial(session, keyspace, level=ConsistencyLevel.SERIAL):
    statement = SimpleStatement(f"SELECT v FROM {keyspace}.t WHERE k = 1", consistency_level=level)
    return cql.rows(session, statement)


def increment(session, keyspace):
    """Read and compare and set, until it is applied."""
    [(seen,)] = serial(session, keyspace)
    while True:
        result = session.execute(f"UPDATE {keyspace}.t SET v = {seen + 1} WHERE k = 1 IF v = {seen}")
        if result.was_applied:
            return
        seen = result.one().v


def test_only_one_of_three_nodes_inserts_a_row_that_did_not_exist(sessions, keyspace):
    insert = f"INSERT INTO {keyspace}.t (k, v) VALUES (1, %s) IF NOT EXISTS"
    with ThreadPoolExecutor(len(NODES)) as pool:
        applied = list(pool.map(lambda n: sessions[n].execute(insert, (n,)).was_applied, NODES))
    assert applied.count(True) == 1
    winner = NODES[applied.index(True)]
    for number in NODES:
        assert serial(sessions[number], keyspace) == [(winner,)]


def test_no_increment_is_lost_or_counts_twice_when_all_nodes_increment_one_row(sessions, keyspace):
    sessions[1].execute(f"INSERT INTO {keyspace}.t (k, v) VALUES (1, 0) IF NOT EXISTS")

    def client(number):
        for _ in range(ROUNDS):
            increment(sessions[number], keyspace)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(client, NODES * 2))
    for number in NODES:
        assert serial(sessions[number], keyspace) == [(6 * ROUNDS,)]
        assert serial(sessions[number], keyspace, ConsistencyLevel.LOCAL_SERIAL) == [(6 * ROUNDS,)]
