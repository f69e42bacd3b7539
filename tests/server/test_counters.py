"""Counters add up, whatever way the additions come. What they may not be, and what SELECT makes of them: differential/counters.cql."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, SimpleStatement

from harness import cql


@pytest.fixture
def counters(table):
    return table("k int, c int, n counter, m counter, s counter static, PRIMARY KEY (k, c)")


def test_additions_add_up(session, counters):
    for number in (1, 5, -3, 1 << 40):
        session.execute(f"UPDATE {counters} SET n = n + {number} WHERE k = 1 AND c = 1")
    session.execute(f"UPDATE {counters} SET n = n - 4, m = m + 2, s += 7 WHERE k = 1 AND c = 1")
    session.execute(f"UPDATE {counters} SET m -= 1 WHERE k = 1 AND c IN (1, 2)")
    session.execute(f"UPDATE {counters} SET s = s - 2 WHERE k = 1")
    assert cql.rows(session, f"SELECT c, n, m, s FROM {counters} WHERE k = 1") == [
        (1, (1 << 40) - 1, 1, 5),
        (2, None, -1, 5),
    ]
    assert cql.rows(session, f"SELECT SUM(n), MAX(m), COUNT(*) FROM {counters}") == [((1 << 40) - 1, 1, 2)]


def test_additions_of_many_clients_at_once_are_all_there(session, counters):
    add = session.prepare(f"UPDATE {counters} SET n = n + ? WHERE k = ? AND c = 0")
    futures = [session.execute_async(add, (1 + i % 3, i % 5)) for i in range(1500)]
    for future in futures:
        future.result()
    assert sorted(cql.rows(session, f"SELECT k, n FROM {counters}")) == [(k, 600) for k in range(5)]


def test_a_counter_counts_beyond_its_range_as_its_type_does(session, counters):
    top = (1 << 63) - 1
    session.execute(f"UPDATE {counters} SET n = n + {top} WHERE k = 1 AND c = 1")
    session.execute(f"UPDATE {counters} SET n = n + 2 WHERE k = 1 AND c = 1")
    assert cql.rows(session, f"SELECT n FROM {counters}") == [(-top,)]
    lowest = SimpleStatement(f"UPDATE {counters} SET n = n - {-top - 1} WHERE k = 1 AND c = 1")
    cql.refused(session, lowest, cql.INVALID, "overflows supported counter precision")


@pytest.mark.ceto_only("in Cassandra a deleted counter stays null until its grace period ends, or counts on from what its cache remembers")
def test_a_deleted_counter_counts_from_zero(session, counters):
    session.execute(f"UPDATE {counters} SET n = n + 5, m = m + 1 WHERE k = 1 AND c = 1")
    session.execute(f"DELETE n FROM {counters} WHERE k = 1 AND c = 1")
    assert cql.rows(session, f"SELECT n, m FROM {counters}") == [(None, 1)]
    session.execute(f"UPDATE {counters} SET n = n + 2 WHERE k = 1 AND c = 1")
    assert cql.rows(session, f"SELECT n, m FROM {counters}") == [(2, 1)]
    session.execute(f"DELETE FROM {counters} WHERE k = 1")
    assert cql.rows(session, f"SELECT n, m FROM {counters}") == []
    session.execute(f"UPDATE {counters} SET m = m + 3 WHERE k = 1 AND c = 1")
    assert cql.rows(session, f"SELECT n, m FROM {counters}") == [(None, 3)]


def test_counter_batches(session, counters):
    session.execute(
        f"BEGIN COUNTER BATCH UPDATE {counters} SET n = n + 1 WHERE k = 1 AND c = 1;"
        f" UPDATE {counters} SET n = n + 2 WHERE k = 1 AND c = 1; UPDATE {counters} SET s = s + 1 WHERE k = 2; APPLY BATCH"
    )
    add = session.prepare(f"UPDATE {counters} SET n = n + ? WHERE k = ? AND c = 1")
    batch = BatchStatement(batch_type=BatchType.COUNTER)
    for k in range(10):
        batch.add(add, (k, k))
    session.execute(batch)
    unlogged = BatchStatement(batch_type=BatchType.UNLOGGED)
    unlogged.add(add, (100, 0))
    session.execute(unlogged)
    found = cql.rows(session, f"SELECT k, c, n FROM {counters} WHERE c = 1 ALLOW FILTERING")
    assert sorted(found) == [(0, 1, 100), (1, 1, 4)] + [(k, 1, k) for k in range(2, 10)]


def test_counters_in_files_are_the_same(session, counters, server):
    if server.node is None:
        pytest.skip("a server that somebody else started")
    for number in (3, 4):
        session.execute(f"UPDATE {counters} SET n = n + {number}, s = s + 1 WHERE k = 1 AND c = 1")
        server.node.nodetool("flush")
    session.execute(f"UPDATE {counters} SET n = n + 5 WHERE k = 1 AND c = 1")
    session.execute(f"UPDATE {counters} SET m = m + 5 WHERE k = 1 AND c = 2")
    session.execute(f"DELETE m FROM {counters} WHERE k = 1 AND c = 2")
    session.execute(f"UPDATE {counters} SET m = m + 1 WHERE k = 1 AND c = 2")
    expected = [(1, 12, None, 2), (2, None, 1, 2)]
    assert cql.rows(session, f"SELECT c, n, m, s FROM {counters} WHERE k = 1") == expected
    for step in ("flush", "compact"):
        server.node.nodetool(step)
        assert cql.rows(session, f"SELECT c, n, m, s FROM {counters} WHERE k = 1") == expected, step


def test_bound_numbers(session, counters):
    add = session.prepare(f"UPDATE {counters} SET n = n + ?, n = n - ?, m += ? WHERE k = ? AND c IN ?")
    assert [marker.type.typename for marker in add.column_metadata[:3]] == ["counter"] * 3
    session.execute(add, (10, 3, 1, 1, [1, 2]))
    session.execute(add, (10, UNSET_VALUE, -1, 1, [1]))
    session.execute(add, (UNSET_VALUE, UNSET_VALUE, 5, 1, [1, 3]))
    session.execute(add, (UNSET_VALUE, UNSET_VALUE, UNSET_VALUE, 1, [4]))
    assert cql.rows(session, f"SELECT c, n, m FROM {counters}") == [(1, 17, 5), (2, 7, 1), (3, None, 5)]
    cql.refused(session, add.bind((1, -(1 << 63), 1, 1, [1])), cql.INVALID, "overflows supported counter precision")
    read = session.prepare(f"SELECT n, m, sum(n) FROM {counters} WHERE k = ? AND n > ? ALLOW FILTERING")
    assert cql.rows(session, read, (1, 7)) == [(17, 5, 17)]


def test_null_adds_nothing_and_says_so(session, counters):
    for sign in "+-":
        add = session.prepare(f"UPDATE {counters} SET n = n {sign} ? WHERE k = 1 AND c = 1")
        cql.refused(session, add.bind((None,)), cql.INVALID, "Invalid null value for counter increment")
    assert cql.rows(session, f"SELECT * FROM {counters}") == []


def test_an_addition_needs_a_replica(session, counters):
    statement = SimpleStatement(
        f"UPDATE {counters} SET n = n + 1 WHERE k = 1 AND c = 1", consistency_level=ConsistencyLevel.ANY
    )
    cql.refused(session, statement, cql.INVALID, "ANY")
    assert cql.rows(session, f"SELECT * FROM {counters}") == []


def test_a_counter_read_by_its_whole_key(session, counters, server):
    """The short way through the engine, from memory and from a file."""
    read = session.prepare(f"SELECT m, c, n, k FROM {counters} WHERE k = ? AND c = ?")
    session.execute(f"UPDATE {counters} SET n = n + 5 WHERE k = 1 AND c = 1")
    session.execute(f"UPDATE {counters} SET s = s + 5 WHERE k = 1")
    if server.node is not None:
        server.node.nodetool("flush")
    session.execute(f"UPDATE {counters} SET n = n - 2, m = m + 1 WHERE k = 1 AND c = 1")
    session.execute(f"UPDATE {counters} SET m = m + 1 WHERE k = 1 AND c = 2")
    assert cql.rows(session, read, (1, 1)) == [(1, 1, 3, 1)]
    assert cql.rows(session, read, (1, 2)) == [(1, 2, None, 1)]
    assert cql.rows(session, read, (1, 3)) == []
    session.execute(f"DELETE m FROM {counters} WHERE k = 1 AND c = 2")
    assert cql.rows(session, read, (1, 2)) == []
