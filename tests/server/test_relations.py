"""Relations beyond those of Cassandra 5.0: BETWEEN, !=, NOT IN, NOT CONTAINS, LIKE and IS NOT NULL in WHERE, BETWEEN, NOT IN and LIKE in IF."""

import pytest
from cassandra import InvalidRequest

from harness import cql


@pytest.fixture
def name(session, table):
    name = table("k int, c int, t text, v int, m map<text, int>, l list<int>, s int static, PRIMARY KEY (k, c)")
    for values in [
        "(1, 1, 'abc', 1, {'a': 1, 'b': 2}, [1, 2])",
        "(1, 2, 'abd', 2, {'a': 2}, [2])",
        "(1, 3, 'xbc', NULL, NULL, NULL)",
        "(2, 1, NULL, 5, NULL, [7])",
    ]:
        session.execute(f"INSERT INTO {name} (k, c, t, v, m, l) VALUES {values}")
    session.execute(f"INSERT INTO {name} (k, s) VALUES (1, 7)")
    return name


FILTERS = [
    ("v != 1", [(1, 2), (2, 1)]),
    ("v NOT IN (1, 5)", [(1, 2)]),
    ("v NOT IN ()", [(1, 1), (1, 2), (2, 1)]),
    ("v BETWEEN 2 AND 5", [(1, 2), (2, 1)]),
    ("v BETWEEN 5 AND 2", []),
    ("k != 1", [(2, 1)]),
    ("k NOT IN (2, 3)", [(1, 1), (1, 2), (1, 3)]),
    ("k BETWEEN 2 AND 9", [(2, 1)]),
    ("k = 1 AND c != 1", [(1, 2), (1, 3)]),
    ("k = 1 AND c > 1 AND c NOT IN (3)", [(1, 2)]),
    ("t LIKE 'ab%'", [(1, 1), (1, 2)]),
    ("t LIKE '_bc'", [(1, 1), (1, 3)]),
    ("v IS NOT NULL", [(1, 1), (1, 2), (2, 1)]),
    ("l NOT CONTAINS 1", [(1, 2), (2, 1)]),
    ("l NOT CONTAINS 1 AND l NOT CONTAINS 7", [(1, 2)]),
    ("m NOT CONTAINS 1", [(1, 2)]),
    ("m NOT CONTAINS KEY 'b'", [(1, 2)]),
    ("m CONTAINS 2 AND m NOT CONTAINS 1", [(1, 2)]),
    ("s != 8", [(1, 1), (1, 2), (1, 3)]),
]


@pytest.mark.parametrize("where, expected", FILTERS)
def test_filters(session, name, where, expected):
    found = cql.rows(session, f"SELECT k, c FROM {name} WHERE {where} ALLOW FILTERING")
    assert sorted(tuple(row) for row in found) == expected
    count = cql.rows(session, f"SELECT count(*) FROM {name} WHERE {where} ALLOW FILTERING")
    assert [tuple(row) for row in count] == [(len(expected),)]


def test_between_bounds_the_key_without_filtering(session, name):
    def keys(where):
        return [tuple(row) for row in cql.rows(session, f"SELECT k, c FROM {name} WHERE {where}")]

    assert keys("k = 1 AND c BETWEEN 2 AND 3") == [(1, 2), (1, 3)]
    assert keys("k = 1 AND c BETWEEN 3 AND 2") == []
    assert keys("k = 1 AND (c) BETWEEN (1) AND (2)") == [(1, 1), (1, 2)]
    assert keys("token(k) BETWEEN token(2) AND token(2)") == [(2, 1)]
    select = session.prepare(f"SELECT c FROM {name} WHERE k = 1 AND c BETWEEN ? AND ?")
    assert [row.c for row in session.execute(select, (1, 2))] == [1, 2]
    session.execute(f"DELETE FROM {name} WHERE k = 1 AND c BETWEEN 1 AND 2")
    assert keys("k = 1") == [(1, 3)]


REFUSED = [
    ("SELECT k FROM {t} WHERE v != 1", "ALLOW FILTERING"),
    ("SELECT k FROM {t} WHERE k = 1 AND c NOT IN (1)", "ALLOW FILTERING"),
    ("SELECT k FROM {t} WHERE t LIKE 'a%'", "ALLOW FILTERING"),
    ("SELECT k FROM {t} WHERE v LIKE 'a%' ALLOW FILTERING", "LIKE is allowed only on text and ascii"),
    ("SELECT k FROM {t} WHERE v != null ALLOW FILTERING", "Unsupported null value for column v"),
    ("SELECT k FROM {t} WHERE m['a'] != 1 ALLOW FILTERING", 'Unsupported "!=" relation'),
    ("DELETE FROM {t} WHERE k != 1", "Unsupported relation"),
    ("UPDATE {t} SET v = 1 WHERE k = 1 AND c NOT IN (1)", "Unsupported relation"),
]


@pytest.mark.parametrize("statement, message", REFUSED)
def test_what_is_refused(session, name, statement, message):
    with pytest.raises(InvalidRequest, match=message):
        session.execute(statement.format(t=name))


CONDITIONS = [
    ("v NOT IN (2, 3)", True),
    ("v NOT IN (1)", False),
    ("v NOT IN (2, null)", True),
    ("t LIKE 'a%c'", True),
    ("t LIKE 'b%'", False),
    ("v BETWEEN 1 AND 2", True),
    ("v BETWEEN 2 AND 1", False),
    ("m['a'] NOT IN (1)", False),
    ("m['a'] BETWEEN 0 AND 1", True),
]


@pytest.mark.parametrize("condition, applies", CONDITIONS)
def test_conditions(session, name, condition, applies):
    result = session.execute(f"UPDATE {name} SET l = [9] WHERE k = 1 AND c = 1 IF {condition}").one()
    assert result[0] is applies
    changed = cql.rows(session, f"SELECT l FROM {name} WHERE k = 1 AND c = 1")
    assert ([tuple(row) for row in changed] == [([9],)]) is applies


def test_null_is_different_from_every_alternative_in_a_condition(session, name):
    update = f"UPDATE {name} SET l = [9] WHERE k = 1 AND c = 3 IF v"
    assert session.execute(f"{update} NOT IN (1, null)").one()[0] is False
    assert session.execute(f"{update} NOT IN (1)").one()[0] is True
