"""The limit of a partition holds for the cluster, whichever nodes coordinate, and stops nobody when the node that counts dies."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import cql

NODES = (1, 2, 3)
LIMIT = 50
ATTEMPTS = 400


@pytest.fixture
def limited(sessions):
    name = cql.unique("ks")
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}"
    limits = f"{{'max_reads_per_second': {LIMIT}, 'max_writes_per_second': {LIMIT}}}"
    sessions[1].execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
    sessions[1].execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int) WITH per_partition_rate_limit = {limits}")
    return f"{name}.t"


def taken_by(session, statement, values):
    taken = 0
    for _ in range(ATTEMPTS):
        try:
            session.execute(statement, values)
            taken += 1
        except Exception as failure:  # noqa: BLE001: the driver has a class for each code
            code, words = cql.error_of(failure)
            assert code == cql.CONFIG and "Nothing was done" in words, failure
    return taken


@pytest.mark.parametrize("statement", ["INSERT INTO {} (k, v) VALUES (?, 1)", "SELECT v FROM {} WHERE k = ?"], ids=["writes", "reads"])
def test_three_coordinators_share_one_limit(sessions, limited, statement):
    prepared = {number: sessions[number].prepare(statement.format(limited)) for number in NODES}
    for key in range(3):
        began = time.monotonic()
        with ThreadPoolExecutor(len(NODES)) as pool:
            taken = sum(pool.map(lambda number, key=key: taken_by(sessions[number], prepared[number], (key,)), NODES))
        most = LIMIT * (1 + time.monotonic() - began)
        assert LIMIT <= taken <= most, f"key {key}: {taken} of {len(NODES) * ATTEMPTS} were taken"


def test_a_dead_node_stops_no_partition(cluster, sessions, limited):
    insert = sessions[1].prepare(f"INSERT INTO {limited} (k, v) VALUES (?, 1)")
    cluster.kill(3)
    try:
        # Keys of which the dead node counted are among them.
        for key in range(100, 130):
            sessions[1].execute(insert, (key,))
    finally:
        cluster.start(3)
        cluster.sees_itself_whole()
