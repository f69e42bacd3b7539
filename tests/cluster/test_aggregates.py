"""Aggregates over a table of three nodes are computed where the rows are: what travels between the nodes is not the rows."""

import random
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql

ROWS = 3000
TEXT_BYTES = 400
FIGURES = "count(*), count(i), min(i), max(i), sum(i), avg(i), min(d), max(d), sum(d), sum(v), avg(v), min(s), max(s)"


@pytest.fixture(scope="module")
def session(cluster):
    driver = cluster.driver()
    yield driver.connect()
    driver.shutdown()


def fill(session, factor):
    keyspace = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
    )
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, i int, d decimal, v varint, s text)")
    insert = session.prepare(f"INSERT INTO {keyspace}.t (k, i, d, v, s) VALUES (?, ?, ?, ?, ?)")
    insert.consistency_level = ConsistencyLevel.ALL
    dice = random.Random(1)
    rows = []
    for k in range(ROWS):
        # The sum of ints wraps around; some values are null.
        i = None if k % 7 == 0 else dice.randrange(2**30, 2**31)
        d = Decimal(dice.randrange(-(10**9), 10**9)).scaleb(-dice.randrange(5))
        rows.append((k, i, d, dice.randrange(-(2**90), 2**90), str(k) + "x" * TEXT_BYTES))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda row: session.execute(insert, row), rows))
    return keyspace, rows


@pytest.fixture(scope="module", params=[1, 3])
def table(request, session):
    return fill(session, request.param)


def wrapped(n):
    return (n + 2**31) % 2**32 - 2**31


def expected(rows):
    ints = [i for _, i, _, _, _ in rows if i is not None]
    decimals = [d for _, _, d, _, _ in rows]
    varints = [v for _, _, _, v, _ in rows]
    texts = [s for *_, s in rows]
    whole = abs(sum(varints)) // len(rows) * (1 if sum(varints) >= 0 else -1)
    return (
        len(rows), len(ints), min(ints), max(ints), wrapped(sum(ints)), sum(ints) // len(ints),
        min(decimals), max(decimals), sum(decimals), sum(varints), whole, min(texts), max(texts),
    )  # fmt: skip


def sent_bytes(cluster):
    nodes = [node.metrics() for node in cluster]
    return sum(value for node in nodes for name, value in node.items() if "ceto_rpc_sent_bytes_total" in name)


@pytest.mark.parametrize("level", ["ONE", "QUORUM", "ALL"])
def test_figures_are_those_of_the_rows_and_the_rows_do_not_travel(cluster, session, table, level):
    keyspace, rows = table
    level = ConsistencyLevel.name_to_value[level]
    whole = SimpleStatement(f"SELECT {FIGURES} FROM {keyspace}.t", consistency_level=level)
    few = [row for row in rows if row[0] % 10 == 3]
    names = ", ".join(str(row[0]) for row in few[:50])
    before = sent_bytes(cluster)
    [found] = cql.rows(session, whole)
    assert found == expected(rows)
    half = f"SELECT count(*) FROM {keyspace}.t WHERE token(k)"
    halves = [SimpleStatement(f"{half} {part}", consistency_level=level) for part in ("< -77", ">= -77")]
    assert sum(cql.rows(session, part)[0][0] for part in halves) == ROWS
    assert sent_bytes(cluster) - before < ROWS * TEXT_BYTES / 4, "rows travelled between the nodes"
    some = SimpleStatement(f"SELECT {FIGURES} FROM {keyspace}.t WHERE k IN ({names})", consistency_level=level)
    assert cql.rows(session, some) == [expected(few[:50])]


def test_prepared_values_filters_and_pages_are_as_without_other_nodes(session, table):
    keyspace, rows = table
    statement = session.prepare(f"SELECT count(*), max(k) FROM {keyspace}.t WHERE i > ? AND k > ? ALLOW FILTERING")
    statement.fetch_size = 1
    for bound, key in [(2**30, -1), (3 * 2**29, 1000), (2**31 - 1, 0)]:
        keys = [k for k, i, *_ in rows if i is not None and i > bound and k > key]
        result = session.execute(statement, (bound, key))
        assert list(map(tuple, result)) == [(len(keys), max(keys, default=None))]
        assert not result.has_more_pages
    assert cql.rows(session, f"SELECT count(*) AS n FROM {keyspace}.t LIMIT 1") == [(ROWS,)]


@pytest.fixture(scope="module")
def readings(session):
    """Few partitions of many rows, with the rows of each."""
    keyspace = cql.unique("ks")
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 2}}")
    session.execute(f"CREATE TABLE {keyspace}.t (k int, at timestamp, d decimal, s text, PRIMARY KEY (k, at))")
    insert = session.prepare(f"INSERT INTO {keyspace}.t (k, at, d, s) VALUES (?, ?, ?, ?)")
    insert.consistency_level = ConsistencyLevel.ALL
    dice = random.Random(2)
    rows = [(k, minute * 60_000, Decimal(dice.randrange(10**6)).scaleb(-2), "x" * TEXT_BYTES) for k in range(30) for minute in range(100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda row: session.execute(insert, row), rows))
    return keyspace, rows


def parts_asked_for(cluster):
    nodes = [node.metrics() for node in cluster]
    return sum(value for node in nodes for name, value in node.items() if "aggregate_parts" in name)


@pytest.mark.parametrize("level", ["ONE", "ALL"])
def test_groups_are_made_where_the_rows_are(cluster, session, readings, level):
    keyspace, rows = readings
    level = ConsistencyLevel.name_to_value[level]
    text = f"SELECT k, count(*), min(d), max(d), sum(d), max(s) FROM {keyspace}.t GROUP BY k"
    before, parts = sent_bytes(cluster), parts_asked_for(cluster)
    found = cql.rows(session, SimpleStatement(text, consistency_level=level))
    assert sent_bytes(cluster) - before < len(rows) * TEXT_BYTES / 4, "rows travelled between the nodes"
    assert parts_asked_for(cluster) > parts, "one scan made all groups"
    of_key = {k: [d for key, _, d, _ in rows if key == k] for k in range(30)}
    expected = {k: (k, 100, min(ds), max(ds), sum(ds), "x" * TEXT_BYTES) for k, ds in of_key.items()}
    assert [row[0] for row in found] == [row.k for row in session.execute(f"SELECT DISTINCT k FROM {keyspace}.t")]
    assert {row[0]: tuple(row) for row in found} == expected


def test_pages_and_limits_of_groups_are_those_of_one_scan(session, readings):
    keyspace, rows = readings
    order = [row.k for row in session.execute(f"SELECT DISTINCT k FROM {keyspace}.t")]
    whole = [(k, minute * 60) for k in order for minute in range(100)]
    # Some pages end between two groups of a partition.
    for fetch_size in [100, 250, 777, 2999, 3000, 5000]:
        each = SimpleStatement(f"SELECT k, at, count(*) FROM {keyspace}.t GROUP BY k, at", fetch_size=fetch_size)
        assert [(row.k, row.at.timestamp()) for row in session.execute(each)] == whole, fetch_size
    for fetch_size in [1, 7, 29, 30, 31, 5000]:
        statement = SimpleStatement(f"SELECT k, count(*) FROM {keyspace}.t GROUP BY k", fetch_size=fetch_size)
        assert [tuple(row) for row in session.execute(statement)] == [(k, 100) for k in order], fetch_size
        limited = SimpleStatement(f"SELECT k, count(*) FROM {keyspace}.t GROUP BY k LIMIT 20", fetch_size=fetch_size)
        assert [row.k for row in session.execute(limited)] == order[:20], fetch_size


def test_groups_by_a_function_and_means_of_decimals(session, readings):
    keyspace, rows = readings
    hours = session.execute(f"SELECT k, floor(at, 1h) AS hour, count(*) AS n, avg(d) AS mean FROM {keyspace}.t GROUP BY k, floor(at, 1h)").all()
    assert [row.n for row in hours] == [60, 40] * 30
    for row in hours:
        first = int(row.hour.timestamp() * 1000)
        values = [d for k, at, d, _ in rows if k == row.k and first <= at < first + 3_600_000]
        assert abs(row.mean - sum(values) / len(values)) < Decimal("0.5"), "rounded at each row, as in Cassandra"
    sums = session.execute(f"SELECT k, floor(at, 1h) AS hour, sum(d) AS total FROM {keyspace}.t GROUP BY k, floor(at, 1h)").all()
    assert sum(row.total for row in sums) == sum(d for _, _, d, _ in rows)


def test_a_count_at_quorum_answers_while_a_replica_is_down(cluster, session):
    keyspace, rows = fill(session, 3)
    driver = cluster.driver(only=1)
    try:
        asking = driver.connect()
        statement = SimpleStatement(f"SELECT {FIGURES} FROM {keyspace}.t", consistency_level=ConsistencyLevel.QUORUM)
        cluster.kill(3)
        for _ in range(3):
            assert cql.rows(asking, statement) == [expected(rows)]
    finally:
        driver.shutdown()
        cluster.start(3)
