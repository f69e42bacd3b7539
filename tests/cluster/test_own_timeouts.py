"""`USING TIMEOUT`: a statement ends when the time is over that it gives itself, whichever replicas are frozen, and not before the node's own time when it gives
itself more."""

import time

import pytest
from cassandra import ConsistencyLevel, Unavailable
from cassandra.query import BatchStatement, BatchType, SimpleStatement
from cassandra.util import Duration

from harness import cql
from harness.cluster import eventually

READ_TIMEOUT, WRITE_TIMEOUT, TRUNCATE_ERROR = 0x1200, 0x1100, 0x1003
SHORT = "200ms"
# Far below the shortest of the node's own timeouts, 2 s.
SHORT_SECONDS_MAX = 1.5


@pytest.fixture(scope="module")
def session(cluster):
    with cluster.driver(only=1) as driver:
        yield driver.connect()


@pytest.fixture(scope="module")
def tables(session):
    """A table of rows and one of counters on all three nodes."""
    name = cql.unique("ks")
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int, c int, v int, l list<int>, PRIMARY KEY (k, c))")
    session.execute(f"CREATE TABLE {name}.n (k int PRIMARY KEY, v counter)")
    for k in range(5):
        session.execute(f"INSERT INTO {name}.t (k, c, v, l) VALUES ({k}, 1, {k}, [1, 2])")
    return name


@pytest.fixture
def two_are_frozen(cluster, session, tables):
    # They may still count as down from the test before.
    everywhere = SimpleStatement(f"INSERT INTO {tables}.t (k, c) VALUES (9, 9)", consistency_level=ConsistencyLevel.ALL)
    eventually("all nodes are up", lambda: is_taken(session, everywhere))
    for number in (2, 3):
        cluster.pause(number)
    yield
    for number in (2, 3):
        cluster.node(number).resume()


def is_taken(session, statement):
    try:
        session.execute(statement)
    except Unavailable:
        return False
    return True


STATEMENTS = {
    "INSERT INTO {ks}.t (k, c, v) VALUES (1, 1, 1) USING TIMEOUT {t}": WRITE_TIMEOUT,
    "INSERT INTO {ks}.t (k, c, v) VALUES (1, 1, 1) USING TTL 100 AND TIMEOUT {t}": WRITE_TIMEOUT,
    "INSERT INTO {ks}.t (k, c, v) VALUES (1, 1, 1) IF NOT EXISTS USING TIMEOUT {t}": WRITE_TIMEOUT,
    "UPDATE {ks}.t USING TIMEOUT {t} SET v = 2 WHERE k = 1 AND c = 1": WRITE_TIMEOUT,
    "UPDATE {ks}.t USING TIMEOUT {t} SET l[0] = 2 WHERE k = 1 AND c = 1": READ_TIMEOUT,
    "UPDATE {ks}.t USING TIMEOUT {t} SET v = 2 WHERE k = 1 AND c = 1 IF v = 1": WRITE_TIMEOUT,
    "UPDATE {ks}.n USING TIMEOUT {t} SET v = v + 1 WHERE k = 1": WRITE_TIMEOUT,
    "DELETE FROM {ks}.t USING TIMEOUT {t} WHERE k = 1": WRITE_TIMEOUT,
    "BEGIN BATCH USING TIMEOUT {t} INSERT INTO {ks}.t (k, c, v) VALUES (1, 1, 1); DELETE FROM {ks}.t WHERE k = 2; APPLY BATCH": WRITE_TIMEOUT,
    "BEGIN BATCH INSERT INTO {ks}.t (k, c, v) VALUES (1, 1, 1) USING TIMEOUT {t}; DELETE FROM {ks}.t WHERE k = 2; APPLY BATCH": WRITE_TIMEOUT,
    "BEGIN UNLOGGED BATCH USING TIMEOUT {t} DELETE FROM {ks}.t WHERE k = 2; APPLY BATCH": WRITE_TIMEOUT,
    "SELECT v FROM {ks}.t WHERE k = 1 AND c = 1 USING TIMEOUT {t}": READ_TIMEOUT,
    "SELECT v FROM {ks}.t WHERE k = 1 USING TIMEOUT {t}": READ_TIMEOUT,
    "SELECT v FROM {ks}.t WHERE k IN (1, 2, 3) USING TIMEOUT {t}": READ_TIMEOUT,
    "SELECT v FROM {ks}.t USING TIMEOUT {t}": READ_TIMEOUT,
    "SELECT count(*) FROM {ks}.t USING TIMEOUT {t}": READ_TIMEOUT,
    "TRUNCATE {ks}.t USING TIMEOUT {t}": TRUNCATE_ERROR,
}


def refusal(session, statement):
    """Code and words of a refusal, and how long it took."""
    begun = time.monotonic()
    code, words = cql.refusal(session, statement)
    return code, words, time.monotonic() - begun


@pytest.mark.usefixtures("two_are_frozen")
@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_ends_with_its_own_time_when_replicas_are_frozen(session, tables, text):
    statement = SimpleStatement(text.format(ks=tables, t=SHORT), consistency_level=ConsistencyLevel.QUORUM)
    code, words, seconds = refusal(session, statement)
    assert code == STATEMENTS[text], words
    assert 0.2 <= seconds <= SHORT_SECONDS_MAX, f"{seconds:.1f} s: {words}"


@pytest.mark.usefixtures("two_are_frozen")
def test_a_marker_for_the_time_and_a_batch_of_prepared_statements(session, tables):
    time_of = Duration(0, 0, 200_000_000)
    insert = session.prepare(f"INSERT INTO {tables}.t (k, c, v) VALUES (?, 1, 1) USING TIMEOUT ?")
    insert.consistency_level = ConsistencyLevel.QUORUM
    batch = BatchStatement(BatchType.LOGGED, consistency_level=ConsistencyLevel.QUORUM)
    batch.add(insert, (1, Duration(0, 0, 3600 * 10**9)))
    batch.add(insert, (2, time_of))
    for statement in insert.bind((1, time_of)), batch:
        code, words, seconds = refusal(session, statement)
        assert code == WRITE_TIMEOUT, words
        assert seconds <= SHORT_SECONDS_MAX, f"{seconds:.1f} s: {words}"


@pytest.mark.usefixtures("two_are_frozen")
def test_a_statement_may_give_itself_more_time_than_the_node_does(session, tables):
    statement = SimpleStatement(
        f"UPDATE {tables}.t USING TIMEOUT 3s SET v = 2 WHERE k = 1 AND c = 1", consistency_level=ConsistencyLevel.QUORUM
    )
    code, words, seconds = refusal(session, statement)
    assert code == WRITE_TIMEOUT, words
    assert seconds >= 3, f"{seconds:.1f} s: {words}"


@pytest.mark.parametrize("timeout", ["0s", "1us", "-1s", "1d"])
@pytest.mark.parametrize("text", ["INSERT INTO {ks}.t (k, c) VALUES (1, 1) USING TIMEOUT {t}", "BEGIN BATCH USING TIMEOUT {t} DELETE FROM {ks}.t WHERE k = 2; APPLY BATCH", "TRUNCATE {ks}.t USING TIMEOUT {t}"])
def test_a_time_that_is_none_is_refused(session, tables, text, timeout):
    cql.refused(session, text.format(ks=tables, t=timeout), cql.INVALID, "USING TIMEOUT")
