"""What a SELECT finds: keys, slices, IN, tuples, token(), order, limits, filters, static columns, projections."""

import pytest
from cassandra.query import SimpleStatement

from harness import cql


@pytest.fixture(scope="module")
def events(session):
    """Partitions (a, b) with rows ordered by c descending, then d ascending; v = 100 a + 10 c + d."""
    name = cql.unique("events")
    session.execute(
        f"CREATE TABLE {name} (a int, b text, c int, d int, s text static, v int, PRIMARY KEY ((a, b), c, d))"
        " WITH CLUSTERING ORDER BY (c DESC, d ASC)"
    )
    insert = session.prepare(f"INSERT INTO {name} (a, b, c, d, v) VALUES (?, ?, ?, ?, ?)")
    for a in range(3):
        for c in range(4):
            for d in range(3):
                session.execute(insert, (a, "x", c, d, 100 * a + 10 * c + d))
        session.execute(f"UPDATE {name} SET s = 'static {a}' WHERE a = {a} AND b = 'x'")
    session.execute(f"INSERT INTO {name} (a, b, s) VALUES (9, 'only static', 'alone')")
    yield name
    session.execute(f"DROP TABLE {name}")


ONE = "a = 1 AND b = 'x'"

# each: what follows SELECT v FROM events, and the values of v in their order
ANSWERS = [
    (f"WHERE {ONE}", [130, 131, 132, 120, 121, 122, 110, 111, 112, 100, 101, 102]),
    (f"WHERE {ONE} ORDER BY c ASC", [102, 101, 100, 112, 111, 110, 122, 121, 120, 132, 131, 130]),
    (f"WHERE {ONE} ORDER BY c ASC, d DESC", [102, 101, 100, 112, 111, 110, 122, 121, 120, 132, 131, 130]),
    (f"WHERE {ONE} ORDER BY c DESC LIMIT 2", [130, 131]),
    (f"WHERE {ONE} AND c = 2", [120, 121, 122]),
    (f"WHERE {ONE} AND c = 2 AND d = 1", [121]),
    (f"WHERE {ONE} AND c = 7", []),
    (f"WHERE {ONE} AND c > 1", [130, 131, 132, 120, 121, 122]),
    (f"WHERE {ONE} AND c >= 1 AND c < 3", [120, 121, 122, 110, 111, 112]),
    (f"WHERE {ONE} AND c > 1 AND c < 2", []),
    (f"WHERE {ONE} AND c <= 0", [100, 101, 102]),
    (f"WHERE {ONE} AND c = 1 AND d >= 1", [111, 112]),
    (f"WHERE {ONE} AND c = 1 AND d < 2 ORDER BY c ASC", [111, 110]),
    (f"WHERE {ONE} AND c IN (0, 3, 7)", [130, 131, 132, 100, 101, 102]),
    (f"WHERE {ONE} AND c IN (0, 3) AND d = 2", [132, 102]),
    (f"WHERE {ONE} AND c IN (3, 0, 3) AND d IN (2, 0)", [130, 132, 100, 102]),
    (f"WHERE {ONE} AND c IN ()", []),
    (f"WHERE {ONE} AND (c, d) = (2, 1)", [121]),
    (f"WHERE {ONE} AND (c, d) IN ((2, 1), (0, 0), (5, 5))", [121, 100]),
    (f"WHERE {ONE} AND (c, d) > (2, 1)", [130, 131, 132, 122]),
    (f"WHERE {ONE} AND (c, d) >= (2, 1) AND (c) < (3)", [121, 122]),
    (f"WHERE {ONE} AND (c, d) <= (1, 0)", [110, 100, 101, 102]),
    (f"WHERE {ONE} AND (c) >= (3)", [130, 131, 132]),
    ("WHERE a IN (0, 2) AND b = 'x' AND c = 3 AND d = 0", [30, 230]),
    ("WHERE a IN (0, 2, 7) AND b IN ('x', 'y') AND c = 3 LIMIT 4", [30, 31, 32, 230]),
    (f"WHERE {ONE} LIMIT 5", [130, 131, 132, 120, 121]),
    (f"WHERE {ONE} PER PARTITION LIMIT 2", [130, 131]),
    (f"WHERE {ONE} PER PARTITION LIMIT 5 LIMIT 3", [130, 131, 132]),
    (f"WHERE {ONE} AND v = 121 ALLOW FILTERING", [121]),
    (f"WHERE {ONE} AND v > 119 AND v < 131 ALLOW FILTERING", [130, 120, 121, 122]),
    (f"WHERE {ONE} AND v IN (112, 130) ALLOW FILTERING", [130, 112]),
    (f"WHERE {ONE} AND d = 1 ALLOW FILTERING", [131, 121, 111, 101]),
    (f"WHERE {ONE} AND d = 1 LIMIT 2 ALLOW FILTERING", [131, 121]),
    (f"WHERE {ONE} AND s = 'static 1' AND c = 0 ALLOW FILTERING", [100, 101, 102]),
    (f"WHERE {ONE} AND s = 'another' ALLOW FILTERING", []),
    ("WHERE a = 2 AND c = 1 AND d = 1 ALLOW FILTERING", [211]),
    ("WHERE a = 9 AND b = 'only static'", [None]),
    ("WHERE a = 9 AND b = 'only static' AND c = 1", []),
    ("WHERE a = 8 AND b = 'x'", []),
]


@pytest.mark.parametrize("prepared", [False, True], ids=["simple", "prepared"])
@pytest.mark.parametrize("where, expected", ANSWERS, ids=[where for where, _ in ANSWERS])
def test_select_finds(session, events, where, expected, prepared):
    statement = f"SELECT v FROM {events} {where}"
    if prepared:
        statement = session.prepare(statement)
    assert [v for (v,) in cql.rows(session, statement)] == expected


def test_a_scan_goes_around_the_ring_once(session, events):
    scanned = cql.rows(session, f"SELECT token(a, b), a, v FROM {events}")
    assert len(scanned) == 3 * 12 + 1
    tokens = [token for token, _, _ in scanned]
    assert tokens == sorted(tokens), "partitions come in the order of their tokens"
    limited = cql.rows(session, f"SELECT token(a, b), a, v FROM {events} PER PARTITION LIMIT 2")
    assert limited == [row for n, row in enumerate(scanned) if tokens[:n].count(row[0]) < 2]


def test_token_ranges_split_a_table(session, events):
    everything = cql.rows(session, f"SELECT token(a, b), v FROM {events}")
    (middle, _) = everything[len(everything) // 2]
    low = cql.rows(session, f"SELECT token(a, b), v FROM {events} WHERE token(a, b) <= {middle}")
    high = cql.rows(session, f"SELECT token(a, b), v FROM {events} WHERE token(a, b) > {middle}")
    assert low + high == everything
    assert low and high
    exact = session.prepare(f"SELECT token(a, b), v FROM {events} WHERE token(a, b) = token(?, ?)")
    assert cql.rows(session, exact, (1, "x")) == [row for row in everything if 100 <= (row[1] or 0) < 200]
    assert cql.rows(session, f"SELECT v FROM {events} WHERE token(a, b) > {2**63 - 1}") == []
    span = f"token(a, b) >= {-(2**63)} AND token(a, b) <= {2**63 - 1}"
    assert cql.rows(session, f"SELECT token(a, b), v FROM {events} WHERE {span}") == everything


def test_token_is_the_murmur3_of_the_key(session, table):
    # Reference values: tokens are part of the on-disk and wire contract with drivers.
    from cassandra.metadata import Murmur3Token

    name = table("k blob PRIMARY KEY")
    keys = [b"", b"\0", b"a", b"0123456789abcde", b"0123456789abcdef", b"\xff" * 17, bytes(range(256))]
    keys = [key for key in keys if key]
    for key in keys:
        session.execute(f"INSERT INTO {name} (k) VALUES (%s)", (key,))
    found = dict(cql.rows(session, f"SELECT k, token(k) FROM {name}"))
    assert found == {key: Murmur3Token.hash_fn(key) for key in keys}


def test_distinct_lists_partitions(session, events):
    keys = cql.rows(session, f"SELECT DISTINCT a, b FROM {events}")
    assert sorted(keys) == [(0, "x"), (1, "x"), (2, "x"), (9, "only static")]
    with_static = cql.rows(session, f"SELECT DISTINCT a, b, s FROM {events}")
    assert sorted(with_static) == [
        (0, "x", "static 0"),
        (1, "x", "static 1"),
        (2, "x", "static 2"),
        (9, "only static", "alone"),
    ]
    assert cql.rows(session, f"SELECT DISTINCT a, b FROM {events} LIMIT 2") == keys[:2]


def test_count(session, events):
    def count(where=""):
        ((n,),) = cql.rows(session, f"SELECT COUNT(*) FROM {events} {where}")
        return n

    assert count() == 37
    assert count(f"WHERE {ONE}") == 12
    assert count(f"WHERE {ONE} AND c > 1") == 6
    assert count("WHERE a = 8 AND b = 'x'") == 0
    assert count("WHERE v = 121 ALLOW FILTERING") == 1
    assert count("LIMIT 5") == 37, "a limit counts groups, and there is one"
    assert session.execute(f"SELECT COUNT(*) FROM {events}").column_names == ["count"]
    assert session.execute(f"SELECT COUNT(1) AS n FROM {events}").one().n == 37


def test_projection_and_aliases(session, events):
    answer = session.execute(f'SELECT v AS value, d, d AS again, "b" FROM {events} WHERE {ONE} LIMIT 1')
    assert answer.column_names == ["value", "d", "again", "b"]
    assert tuple(answer.one()) == (130, 0, 0, "x")
    star = session.execute(f"SELECT * FROM {events} WHERE {ONE} LIMIT 1")
    assert star.column_names == ["a", "b", "c", "d", "s", "v"], "keys, then static columns, then the others by name"
    assert tuple(star.one()) == (1, "x", 3, 0, "static 1", 130)


def test_writetime_and_ttl(session, table):
    name = table("k int PRIMARY KEY, v int, w int")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 2) USING TIMESTAMP 1234")
    session.execute(f"UPDATE {name} USING TTL 5000 SET w = 3 WHERE k = 1")
    ((written, ttl_v, ttl_w),) = cql.rows(session, f"SELECT WRITETIME(v), TTL(v), TTL(w) FROM {name}")
    assert (written, ttl_v) == (1234, None)
    assert 4900 < ttl_w <= 5000


def test_static_columns_are_shared_by_a_partition(session, table):
    name = table("k int, c int, s text static, n int static, v int, PRIMARY KEY (k, c)")
    session.execute(f"INSERT INTO {name} (k, s) VALUES (1, 'first')")
    assert cql.rows(session, f"SELECT k, c, s, v FROM {name}") == [(1, None, "first", None)]
    session.execute(f"INSERT INTO {name} (k, c, v) VALUES (1, 10, 100)")
    session.execute(f"INSERT INTO {name} (k, c, s, v) VALUES (1, 20, 'second', 200)")
    assert cql.rows(session, f"SELECT c, s, v FROM {name}") == [(10, "second", 100), (20, "second", 200)]
    session.execute(f"UPDATE {name} SET n = 5 WHERE k = 1")
    session.execute(f"DELETE s FROM {name} WHERE k = 1")
    assert cql.rows(session, f"SELECT c, s, n FROM {name}") == [(10, None, 5), (20, None, 5)]
    session.execute(f"DELETE FROM {name} WHERE k = 1 AND c > 0")
    assert cql.rows(session, f"SELECT c, n FROM {name}") == [(None, 5)], "static columns outlive the rows"
    session.execute(f"DELETE FROM {name} WHERE k = 1")
    assert cql.rows(session, f"SELECT c, n FROM {name}") == []


def test_a_row_without_values_is_there_only_when_inserted(session, table):
    name = table("k int, c int, v int, PRIMARY KEY (k, c)")
    session.execute(f"INSERT INTO {name} (k, c) VALUES (1, 1)")
    session.execute(f"UPDATE {name} SET v = null WHERE k = 1 AND c = 2")
    assert cql.rows(session, f"SELECT * FROM {name}") == [(1, 1, None)]
    session.execute(f"UPDATE {name} SET v = 3 WHERE k = 1 AND c = 3")
    session.execute(f"DELETE v FROM {name} WHERE k = 1 AND c = 3")
    assert cql.rows(session, f"SELECT * FROM {name}") == [(1, 1, None)], "an updated row lives by its values"


def test_filtering_over_the_whole_table(session, table):
    name = table("k int PRIMARY KEY, v int, t text")
    for k in range(20):
        session.execute(f"INSERT INTO {name} (k, v, t) VALUES ({k}, {k % 5}, 'x{k % 2}')")

    def keys(where):
        return sorted(k for (k,) in cql.rows(session, f"SELECT k FROM {name} WHERE {where} ALLOW FILTERING"))

    assert keys("v = 3") == [3, 8, 13, 18]
    assert keys("v = 3 AND t = 'x0'") == [8, 18]
    assert keys("v >= 3 AND v < 4") == [3, 8, 13, 18]
    assert keys("k > 17") == [18, 19]
    assert keys("t = 'nothing'") == []


REFUSED = [
    ("SELECT v FROM {t} WHERE a = 1", "Cannot execute this query as it might involve data filtering"),
    (
        "SELECT v FROM {t} WHERE v = 1",
        "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING",
    ),
    (
        "SELECT v FROM {t} WHERE a = 1 AND b = 'x' AND d = 1",
        'PRIMARY KEY column "d" cannot be restricted as preceding column "c" is not restricted',
    ),
    (
        "SELECT v FROM {t} WHERE a = 1 AND b = 'x' AND c > 1 AND d = 1",
        'Clustering column "d" cannot be restricted (preceding column "c" is restricted by a non-EQ relation)',
    ),
    ("SELECT v FROM {t} WHERE a > 1 AND b = 'x'", "Cannot execute this query as it might involve data filtering"),
    (
        "SELECT v FROM {t} WHERE a = 1 AND b = 'x' ORDER BY d",
        "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY",
    ),
    ("SELECT v FROM {t} WHERE a = 1 AND b = 'x' ORDER BY c ASC, d ASC", "Unsupported order by relation"),
    (
        "SELECT v FROM {t} WHERE a = 1 AND b = 'x' ORDER BY v",
        "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got v",
    ),
    (
        "SELECT v FROM {t} ORDER BY c",
        "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
    ),
    (
        "SELECT v FROM {t} WHERE a = 1 AND b = 'x' AND a = 2",
        "a cannot be restricted by more than one relation if it includes an Equal",
    ),
    (
        "SELECT v FROM {t} WHERE a = 1 AND b = 'x' AND c > 1 AND c > 2",
        "More than one restriction was found for the start bound on c",
    ),
    ("SELECT v FROM {t} WHERE a = 1 AND b = 'x' LIMIT 0", "LIMIT must be strictly positive"),
    ("SELECT v FROM {t} WHERE a = 1 AND b = 'x' PER PARTITION LIMIT 0", "LIMIT must be strictly positive"),
    (
        "SELECT DISTINCT v FROM {t}",
        "SELECT DISTINCT queries must only request partition key columns and/or static columns (not v)",
    ),
    ("SELECT DISTINCT a FROM {t}", "SELECT DISTINCT queries must request all the partition key columns (missing b)"),
    (
        "SELECT v FROM {t} WHERE token(a) > 1",
        "The token() function must be applied to all partition key components or none of them",
    ),
    (
        "SELECT v FROM {t} WHERE token(b, a) > 1",
        "The token function arguments must be in the partition key order: a, b",
    ),
    ("SELECT v FROM {t} WHERE nothing = 1", "Undefined column name nothing"),
    ("SELECT nothing FROM {t}", "Undefined column name nothing"),
    ("SELECT v FROM {t} WHERE a = 'text' AND b = 'x'", 'Invalid STRING constant (text) for "a" of type int'),
    ("SELECT v FROM {t} WHERE a = null AND b = 'x'", "Invalid null value"),
    (
        "SELECT v FROM {t} WHERE a = 1 AND b = 'x' AND (d, c) > (1, 1)",
        "Clustering columns must appear in the PRIMARY KEY order in multi-column relations",
    ),
    ("SELECT v FROM {t} WHERE a = 1 AND b = 'x' AND (c, d) > (1)", "Expected 2 elements in value"),
    ("SELECT v FROM nothing", "table nothing does not exist"),
    ("SELECT v FROM nowhere.nothing", "keyspace nowhere does not exist"),
    ("SELECT nothing(v) FROM {t}", "Unknown function 'nothing'"),
    ("SELECT v FROM {t} WHERE a = 1 AND b = 'x' AND c = ?", "Invalid amount of bind variables"),
]


@pytest.mark.parametrize("statement, words", REFUSED, ids=[s for s, _ in REFUSED])
def test_a_wrong_select_is_refused(session, events, statement, words):
    cql.refused(session, statement.format(t=events), cql.INVALID, words)


def test_rows_are_grouped_by_the_hour(session, table):
    name = table("k int, at timestamp, v int, PRIMARY KEY (k, at)")
    for hour, minute in ((10, 1), (10, 59), (11, 0)):
        session.execute(f"INSERT INTO {name} (k, at, v) VALUES (1, '2020-02-03T{hour}:{minute:02}Z', {minute})")
    by_hour = f"SELECT floor(at, 1h) AS hour, count(*) AS rows, max(v) AS most FROM {name} WHERE k = 1 GROUP BY floor(at, 1h)"
    found = [(row.hour.hour, row.rows, row.most) for row in session.execute(by_hour)]
    assert found == [(10, 2, 59), (11, 1, 0)]
    grouped = SimpleStatement(f"SELECT k, at FROM {name} GROUP BY k, floor(at, 1h)", fetch_size=1)
    assert [row.at.minute for row in session.execute(grouped)] == [1, 0], "a page ends between groups"
    cql.refused(session, f"SELECT k FROM {name} GROUP BY k, floor(at, 1h), at", cql.INVALID, "last element")
    cql.refused(session, f"SELECT k FROM {name} GROUP BY k, mintimeuuid(at)", cql.INVALID, "monotonic")
