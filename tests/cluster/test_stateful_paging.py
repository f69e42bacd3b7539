"""A page of a large partition goes on where replicas have left their files, whichever node the client asks and at whatever level."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql

ROWS, PAGE = 1_000, 100


@pytest.fixture(scope="module")
def session(cluster):
    driver = cluster.driver(only=1)
    session = driver.connect()
    name = cql.unique("ks")
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.set_keyspace(name)
    session.execute("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))")
    inserts = "".join(f"INSERT INTO t (k, c, v) VALUES (1, {c}, {c}); " for c in range(ROWS))
    session.execute(SimpleStatement(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH", consistency_level=ConsistencyLevel.ALL))
    for node in cluster:
        node.nodetool("flush", name)
    yield session
    driver.shutdown()


def resumed(cluster):
    metrics = [node.metrics() for node in cluster]
    return sum(value for of in metrics for series, value in of.items() if series.startswith("ceto_pages_resumed_total"))


@pytest.mark.parametrize("level", [ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.ALL])
@pytest.mark.parametrize("order", ["ASC", "DESC"])
def test_pages_at_each_level_go_on(cluster, session, level, order):
    before = resumed(cluster)
    query = SimpleStatement(f"SELECT c, v FROM t WHERE k = 1 ORDER BY c {order}", consistency_level=level, fetch_size=PAGE)
    rows = [(row.c, row.v) for row in session.execute(query)]
    assert rows == sorted(((c, c) for c in range(ROWS)), reverse=order == "DESC")
    assert resumed(cluster) - before >= ROWS // PAGE - 2


def test_a_filter_that_leaves_out_most_rows_goes_on_too(cluster, session):
    before = resumed(cluster)
    query = "SELECT c FROM t WHERE k = 1 AND v >= 900 ALLOW FILTERING"
    rows = session.execute(SimpleStatement(query, consistency_level=ConsistencyLevel.QUORUM, fetch_size=PAGE // 10))
    assert [row.c for row in rows] == list(range(900, ROWS))
    assert resumed(cluster) > before
