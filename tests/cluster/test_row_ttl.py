"""Rows that expire by their TTL column on three nodes, while one is dead and when it is back."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql
from harness.cluster import eventually

ROWS = 60
PAST, FUTURE = 1_000_000_000, 4_000_000_000
DAY = 86_400


def look_every(cluster, number, seconds):
    """How often a node looks for expired rows, from now on."""
    cluster.set_option(number, "alternator_ttl_period_in_seconds", str(seconds))


def at(level, text):
    return SimpleStatement(text, consistency_level=level)


@pytest.mark.parametrize("tablets", ["true", "false"], ids=["tablets", "token ring"])
def test_rows_expire_without_a_node_and_prolonged_ones_stay_when_it_is_back(forgetful_cluster, tablets):
    cluster = forgetful_cluster
    keyspace = cql.unique("ks")
    for number in 1, 2, 3:
        look_every(cluster, number, DAY)
    with cluster.driver(only=2) as driver:
        session = driver.connect()
        session.execute(
            f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
            f" AND tablets = {{'enabled': {tablets}}}"
        )
        table = f"{keyspace}.t"
        session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v int, ends bigint TTL)")
        for k in range(ROWS):
            session.execute(at(ConsistencyLevel.ALL, f"INSERT INTO {table} (k, v, ends) VALUES ({k}, {k}, {PAST})"))
        cluster.kill(1)
        for k in range(0, ROWS, 2):
            session.execute(at(ConsistencyLevel.QUORUM, f"UPDATE {table} SET ends = {FUTURE} WHERE k = {k}"))
        prolonged = [(k, k) for k in range(0, ROWS, 2)]

        def rows(level):
            return sorted(tuple(row) for row in session.execute(at(level, f"SELECT k, v FROM {table}")))

        assert len(rows(ConsistencyLevel.QUORUM)) == ROWS, "nobody has looked yet"
        for number in 2, 3:
            look_every(cluster, number, 1)
        eventually("the others are gone", lambda: rows(ConsistencyLevel.QUORUM) == prolonged)
        cluster.start(1)
        cluster.sees_itself_whole()
        node = cluster.node(1)

        def passes():
            metrics = node.metrics()
            return [value for key, value in metrics.items() if key.startswith("ceto_expiration_scan_passes_total{")]

        eventually("it has looked for expired rows", lambda: min(passes()) >= 1)
        assert rows(ConsistencyLevel.ALL) == prolonged, "node 1 still has the former moments, and all rows"
