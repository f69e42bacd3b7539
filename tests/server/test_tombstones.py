"""Deletions and expiry: which write wins, for each kind of tombstone, in any order of arrival.

Each case writes with explicit timestamps, so its outcome is defined, and applies its statements forwards and backwards:
the order in which writes arrive must not matter.
"""

import itertools

import pytest

from harness import cql

INSERT = "INSERT INTO {t} (p, c, d, v, m) VALUES (1, %d, %d, '%s', {'a': 1, 'b': 2}) USING TIMESTAMP %d"
ROWS = [INSERT % (c, d, f"{c}{d}", 100) for c in range(3) for d in range(2)]
STATIC = ["UPDATE {t} USING TIMESTAMP 100 SET s = 'static' WHERE p = 1"]

# each: statements, then (c, d, v) of the rows that are left
CASES = {
    "nothing": ([], ["00", "01", "10", "11", "20", "21"]),
    "a row": (["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c = 1 AND d = 0"], ["00", "01", "11", "20", "21"]),
    "a row, at the same time": (
        ["DELETE FROM {t} USING TIMESTAMP 100 WHERE p = 1 AND c = 1 AND d = 0"],
        ["00", "01", "11", "20", "21"],
    ),
    "a row, earlier": (
        ["DELETE FROM {t} USING TIMESTAMP 99 WHERE p = 1 AND c = 1 AND d = 0"],
        ["00", "01", "10", "11", "20", "21"],
    ),
    "a prefix": (["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c = 1"], ["00", "01", "20", "21"]),
    "a range": (
        ["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c > 0 AND c <= 2"],
        ["00", "01"],
    ),
    "a range of the last column": (
        ["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c = 2 AND d >= 1"],
        ["00", "01", "10", "11", "20"],
    ),
    "a range by tuples": (
        ["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND (c, d) >= (0, 1) AND (c, d) < (2, 0)"],
        ["00", "20", "21"],
    ),
    "overlapping ranges of different times": (
        [
            "DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c < 2",
            "DELETE FROM {t} USING TIMESTAMP 250 WHERE p = 1 AND c > 0",
            INSERT % (0, 5, "after the first", 200),
            INSERT % (1, 5, "before the second", 200),
            INSERT % (2, 5, "after both", 300),
        ],
        ["after the first", "after both"],
    ),
    "an empty range": (
        ["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c > 1 AND c < 1"],
        ["00", "01", "10", "11", "20", "21"],
    ),
    "the partition": (["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1"], []),
    "the partition, with a later row": (
        ["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1", INSERT % (1, 1, "later", 151)],
        ["later"],
    ),
    "a row within a range, both deleted": (
        [
            "DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c >= 1",
            "DELETE FROM {t} USING TIMESTAMP 250 WHERE p = 1 AND c = 2 AND d = 0",
            INSERT % (2, 0, "between", 200),
            INSERT % (2, 1, "after", 200),
        ],
        ["00", "01", "after"],
    ),
    "several rows": (
        ["DELETE FROM {t} USING TIMESTAMP 150 WHERE p = 1 AND c IN (0, 2) AND d = 1"],
        ["00", "10", "11", "20"],
    ),
}


def keys(session, table):
    return [v for (v,) in cql.rows(session, f"SELECT v FROM {table} WHERE p = 1 AND c >= 0")]


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
@pytest.mark.parametrize("what", CASES)
def test_deleting(session, table, what, backwards):
    name = table("p int, c int, d int, s text static, v text, m map<text, int>, PRIMARY KEY (p, c, d)")
    deletes, left = CASES[what]
    statements = STATIC + ROWS + deletes
    for statement in reversed(statements) if backwards else statements:
        session.execute(statement.replace("{t}", name))
    assert keys(session, name) == left
    static = cql.rows(session, f"SELECT DISTINCT p, s FROM {name}")
    if what.startswith("the partition"):
        assert static == ([(1, None)] if left else [])
    else:
        assert static == [(1, "static")]
    reverse = cql.rows(session, f"SELECT v FROM {name} WHERE p = 1 ORDER BY c DESC, d DESC")
    assert [v for (v,) in reverse if v] == left[::-1]


# Two writes of one cell at the same time: the winner is decided by the values alone.
TIES = {
    "the greater value": ("INSERT INTO {t} (k, v) VALUES (1, 'a')", "INSERT INTO {t} (k, v) VALUES (1, 'b')", "b"),
    "by unsigned bytes": ("INSERT INTO {t} (k, v) VALUES (1, 'z')", "INSERT INTO {t} (k, v) VALUES (1, 'ä')", "ä"),
    "the longer of two equal beginnings": (
        "INSERT INTO {t} (k, v) VALUES (1, 'a')",
        "INSERT INTO {t} (k, v) VALUES (1, 'aa')",
        "aa",
    ),
    "a deletion": ("INSERT INTO {t} (k, v) VALUES (1, 'a')", "DELETE v FROM {t} USING TIMESTAMP 10 WHERE k = 1", None),
    "the cell that expires": (
        "INSERT INTO {t} (k, v) VALUES (1, 'b')",
        "INSERT INTO {t} (k, v) VALUES (1, 'a') USING TTL 5000",
        "a",
    ),
}


@pytest.mark.parametrize("what", TIES)
def test_writes_of_the_same_time(session, table, what):
    first, second, winner = TIES[what]
    for order in itertools.permutations((first, second)):
        name = table("k int PRIMARY KEY, v text")
        session.execute(f"INSERT INTO {name} (k) VALUES (1) USING TIMESTAMP 10")
        for statement in order:
            statement = statement.replace("{t}", name)
            if "TIMESTAMP" not in statement:
                statement += " AND TIMESTAMP 10" if "USING" in statement else " USING TIMESTAMP 10"
            session.execute(statement)
        assert cql.rows(session, f"SELECT v FROM {name} WHERE k = 1") == [(winner,)]


def test_a_value_may_be_deleted_before_it_is_written(session, table):
    name = table("k int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (k) VALUES (1)")
    session.execute(f"DELETE v FROM {name} USING TIMESTAMP 500 WHERE k = 1")
    session.execute(f"UPDATE {name} USING TIMESTAMP 400 SET v = 1 WHERE k = 1")
    assert cql.rows(session, f"SELECT v FROM {name}") == [(None,)]
    session.execute(f"UPDATE {name} USING TIMESTAMP 501 SET v = 2 WHERE k = 1")
    assert cql.rows(session, f"SELECT v FROM {name}") == [(2,)]


def test_a_collection_tombstone_leaves_later_elements(session, table):
    name = table("k int PRIMARY KEY, m map<text, int>, s set<int>")
    for statement in (
        "UPDATE {t} USING TIMESTAMP 100 SET m = m + {'old': 1}, s = s + {1} WHERE k = 1",
        "DELETE m, s FROM {t} USING TIMESTAMP 150 WHERE k = 1",
        "UPDATE {t} USING TIMESTAMP 140 SET m = m + {'between': 2}, s = s + {2} WHERE k = 1",
        "UPDATE {t} USING TIMESTAMP 160 SET m = m + {'new': 3}, s = s + {3} WHERE k = 1",
    ):
        session.execute(statement.replace("{t}", name))
    ((m, s),) = cql.rows(session, f"SELECT m, s FROM {name}")
    assert (dict(m), list(s)) == ({"new": 3}, [3])


def test_a_ttl_ends_values_and_rows(session, table):
    name = table("k int PRIMARY KEY, v int, w int")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1) USING TTL 1")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (2, 2)")
    session.execute(f"UPDATE {name} USING TTL 1 SET w = 2 WHERE k = 2")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (3, 3) USING TTL 5000")
    wait_until(lambda: sorted(cql.rows(session, f"SELECT k, v, w FROM {name}")) == [(2, 2, None), (3, 3, None)])


def test_the_default_ttl_of_a_table(session, table):
    name = table("k int PRIMARY KEY, v int", " WITH default_time_to_live = 4000")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1)")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (2, 2) USING TTL 0")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (3, 3) USING TTL 100")
    ttls = dict(cql.rows(session, f"SELECT k, TTL(v) FROM {name}"))
    assert ttls[2] is None, "TTL 0 means no expiry"
    assert 3900 < ttls[1] <= 4000 and 50 < ttls[3] <= 100


def test_a_ttl_of_zero_overwrites_one_that_runs(session, table):
    name = table("k int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1) USING TTL 5000 AND TIMESTAMP 10")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1) USING TTL 0 AND TIMESTAMP 11")
    assert cql.rows(session, f"SELECT v, TTL(v) FROM {name}") == [(1, None)]


REFUSED = [
    (
        "INSERT INTO {t} (k, v) VALUES (1, 1) USING TTL -1",
        cql.INVALID,
        "A TTL must be greater or equal to 0, but was -1",
    ),
    (
        "INSERT INTO {t} (k, v) VALUES (1, 1) USING TTL 630720001",
        cql.INVALID,
        "ttl is too large. requested (630720001) maximum (630720000)",
    ),
    ("INSERT INTO {t} (k, v) VALUES (1, 1) USING TTL 'x'", cql.SYNTAX, "x"),
    ("DELETE v FROM {t} USING TTL 5 WHERE k = 1", cql.SYNTAX, "TTL"),
    (
        "DELETE k FROM {t} WHERE k = 1",
        cql.INVALID,
        "Invalid identifier k for deletion (should not be a PRIMARY KEY part)",
    ),
    ("DELETE FROM {t}", cql.SYNTAX, "EOF"),
    ("DELETE FROM {t} WHERE v = 1", cql.INVALID, "Some partition key parts are missing: k"),
    ("UPDATE {t} SET k = 2 WHERE k = 1", cql.INVALID, "PRIMARY KEY part k found in SET part"),
    ("UPDATE {t} SET v = 2 WHERE v = 1", cql.INVALID, "Some partition key parts are missing: k"),
    ("UPDATE {t} SET v = 2 WHERE k > 1", cql.INVALID, "Only EQ and IN relation are supported on the partition key"),
    ("UPDATE {t} SET v = v + 1 WHERE k = 1", cql.INVALID, "Invalid operation (v = v + 1) for non counter column v"),
    ("UPDATE {t} SET v = 1, v = 2 WHERE k = 1", cql.SYNTAX, "Multiple incompatible setting of column v"),
    ("INSERT INTO {t} (v) VALUES (1)", cql.INVALID, "Some partition key parts are missing: k"),
    ("INSERT INTO {t} (k, v) VALUES (1)", cql.INVALID, "Unmatched column names/values"),
    ("INSERT INTO {t} (k, k) VALUES (1, 1)", cql.INVALID, "The column names contains duplicates"),
    ("INSERT INTO {t} (k, nothing) VALUES (1, 1)", cql.INVALID, "Undefined column name nothing"),
    ("INSERT INTO {t} (k, v) VALUES (null, 1)", cql.INVALID, "Invalid null value"),
]


@pytest.mark.parametrize("statement, code, words", REFUSED, ids=[s for s, _, _ in REFUSED])
def test_a_wrong_write_is_refused(session, table, statement, code, words):
    name = table("k int PRIMARY KEY, v int")
    cql.refused(session, statement.format(t=name), code, words)
    assert cql.rows(session, f"SELECT * FROM {name}") == []


def wait_until(holds, queries_at_most=20_000):
    """Ask again until it holds. Each question is a request, which takes its time, so nothing sleeps here."""
    for _ in range(queries_at_most):
        if holds():
            return
    raise AssertionError("it still does not hold")
