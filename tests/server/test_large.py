"""Many rows in a partition, many partitions, many columns, many elements: still the same answers."""

import pytest
from cassandra import ReadFailure
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement

from harness import cql

ROWS = 20_000
PARTITIONS = 20_000
COLUMNS = 400
ELEMENTS = 3_000


def write(session, statement, arguments):
    execute_concurrent_with_args(session, session.prepare(statement), arguments, concurrency=128)


@pytest.fixture(scope="module")
def large_partition(session):
    name = cql.unique("large")
    session.execute(f"CREATE TABLE {name} (p int, c int, v text, s text static, PRIMARY KEY (p, c))")
    write(session, f"INSERT INTO {name} (p, c, v) VALUES (1, ?, ?)", [(c * 2, f"value {c}") for c in range(ROWS)])
    session.execute(f"UPDATE {name} SET s = 'static' WHERE p = 1")
    yield name
    session.execute(f"DROP TABLE {name}")


def test_a_large_partition_is_read_forwards_and_backwards(session, large_partition):
    everything = [(c * 2, f"value {c}") for c in range(ROWS)]
    select = f"SELECT c, v FROM {large_partition} WHERE p = 1"
    assert cql.rows(session, SimpleStatement(select, fetch_size=1000)) == everything
    assert cql.rows(session, SimpleStatement(select + " ORDER BY c DESC", fetch_size=999)) == everything[::-1]


@pytest.mark.parametrize(
    "low, high", [(0, 10), (19_990, 20_010), (2 * ROWS - 10, 2 * ROWS), (101, 101), (-5, 1), (7, 2001)]
)
def test_slices_of_a_large_partition(session, large_partition, low, high):
    expected = [(c,) for c in range(0, 2 * ROWS, 2) if low <= c <= high]
    where = f"p = 1 AND c >= {low} AND c <= {high}"
    assert cql.rows(session, f"SELECT c FROM {large_partition} WHERE {where}") == expected
    reverse = f"SELECT c, s FROM {large_partition} WHERE {where} ORDER BY c DESC LIMIT 3"
    assert cql.rows(session, reverse) == [(c, "static") for (c,) in expected[::-1][:3]]


def test_single_rows_of_a_large_partition(session, large_partition):
    select = session.prepare(f"SELECT v FROM {large_partition} WHERE p = 1 AND c = ?")
    for c in range(0, ROWS, 501):
        assert cql.rows(session, select, (2 * c,)) == [(f"value {c}",)]
        assert cql.rows(session, select, (2 * c + 1,)) == []
    several = [2 * c for c in range(0, ROWS, 1999)]
    found = cql.rows(session, f"SELECT c FROM {large_partition} WHERE p = 1 AND c IN ({', '.join(map(str, several))})")
    assert found == [(c,) for c in several]


def test_a_range_deletion_in_a_large_partition(session, table):
    name = table("p int, c int, PRIMARY KEY (p, c)")
    write(session, f"INSERT INTO {name} (p, c) VALUES (1, ?)", [(c,) for c in range(5000)])
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c >= 100 AND c < 4900")
    assert cql.rows(session, f"SELECT c FROM {name} WHERE p = 1") == [(c,) for c in range(5000) if c < 100 or c >= 4900]
    session.execute(f"INSERT INTO {name} (p, c) VALUES (1, 2500)")
    assert cql.rows(session, f"SELECT c FROM {name} WHERE p = 1 AND c > 99 AND c < 4901") == [(2500,), (4900,)]


def test_many_partitions(session, table):
    name = table("k int PRIMARY KEY, v int")
    write(session, f"INSERT INTO {name} (k, v) VALUES (?, ?)", [(k, -k) for k in range(PARTITIONS)])
    found = cql.rows(session, SimpleStatement(f"SELECT k, v, token(k) FROM {name}", fetch_size=777))
    assert sorted((k, v) for k, v, _ in found) == [(k, -k) for k in range(PARTITIONS)]
    tokens = [token for _, _, token in found]
    assert tokens == sorted(tokens), "partitions come in the order of their tokens, over all shards"
    parts = 16
    bounds = [-(2**63) + (2**64 // parts) * n for n in range(parts)] + [2**63 - 1]
    split = [
        cql.rows(session, f"SELECT k FROM {name} WHERE token(k) > {low} AND token(k) <= {high}")
        for low, high in zip(bounds, bounds[1:], strict=False)
    ]
    assert [k for part in split for k in part] == [(k,) for k, _, _ in found], "the ranges of tokens split it"


def test_many_columns(session, table):
    names = [f"c{n}" for n in range(COLUMNS)]
    name = table(f"k int PRIMARY KEY, {', '.join(f'{n} int' for n in names)}")
    insert = session.prepare(f"INSERT INTO {name} (k, {', '.join(names)}) VALUES (?, {', '.join('?' * COLUMNS)})")
    session.execute(insert, (1, *range(COLUMNS)))
    session.execute(f"UPDATE {name} SET c{COLUMNS - 1} = -1, c0 = null WHERE k = 1")
    session.execute(f"INSERT INTO {name} (k, c7) VALUES (2, 7)")
    found = {row.k: row._asdict() for row in session.execute(f"SELECT * FROM {name}")}
    expected = {n: value for value, n in enumerate(names)} | {"k": 1, "c0": None, f"c{COLUMNS - 1}": -1}
    assert found[1] == expected
    assert found[2] == {n: None for n in names} | {"k": 2, "c7": 7}


def test_large_collections(session, table):
    name = table("k int PRIMARY KEY, m map<int, text>, s set<text>, l list<int>")
    write(session, f"UPDATE {name} SET m[?] = ? WHERE k = 1", [(n, f"value {n}") for n in range(ELEMENTS)])
    write(session, f"UPDATE {name} SET s = s + ? WHERE k = 1", [({f"{n:05d}"},) for n in range(ELEMENTS)])
    session.execute(session.prepare(f"UPDATE {name} SET l = ? WHERE k = 1"), (list(range(ELEMENTS)),))
    session.execute(f"DELETE m[5] FROM {name} WHERE k = 1")
    session.execute(f"UPDATE {name} SET l[{ELEMENTS - 1}] = -1, m[6] = 'other' WHERE k = 1")
    ((m, s, l),) = cql.rows(session, f"SELECT m, s, l FROM {name}")
    assert dict(m) == {n: f"value {n}" for n in range(ELEMENTS) if n != 5} | {6: "other"}
    assert list(s) == [f"{n:05d}" for n in range(ELEMENTS)]
    assert l == [*range(ELEMENTS - 1), -1]


def test_a_request_of_many_megabytes(session, table):
    name = table("k int, c int, v blob, PRIMARY KEY (k, c)")
    insert = session.prepare(f"INSERT INTO {name} (k, c, v) VALUES (1, ?, ?)")
    for c in range(8):
        session.execute(insert, (c, bytes([c]) * (4 << 20)))
    found = cql.rows(session, SimpleStatement(f"SELECT c, v FROM {name} WHERE k = 1", fetch_size=2))
    assert [(c, len(v), set(v)) for c, v in found] == [(c, 4 << 20, {c}) for c in range(8)]


def test_groups_that_take_more_memory_than_they_may_are_made_by_one_scan(session):
    name = cql.unique("wide")
    session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v text)")
    wide = "x" * 300_000
    write(session, f"INSERT INTO {name} (k, v) VALUES (?, ?)", [(k, wide) for k in range(300)])
    select = f"SELECT k, max(v) FROM {name} GROUP BY k"
    paged = list(session.execute(SimpleStatement(select, fetch_size=5000)))
    assert sorted(row.k for row in paged) == list(range(300)) and {row[1] for row in paged} == {wide}
    with pytest.raises(ReadFailure):
        session.execute(SimpleStatement(select, fetch_size=None))
    session.execute(f"DROP TABLE {name}")
