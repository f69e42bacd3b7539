"""Functions and aggregates in a SELECT."""

import datetime
import uuid
from decimal import Decimal

import pytest

from harness import cql

TIME = uuid.UUID("d2177dd0-eaa2-11de-a572-001b779c76e3")  # 2009-12-17 00:26:29.805 UTC


@pytest.fixture(scope="module")
def numbers(session):
    """Three partitions of readings, some without a value."""
    name = cql.unique("numbers")
    session.execute(
        f"CREATE TABLE {name} (k int, c int, i int, b bigint, d double, n decimal, t text, at timestamp, u timeuuid,"
        " l list<int>, PRIMARY KEY (k, c))"
    )
    insert = session.prepare(
        f"INSERT INTO {name} (k, c, i, b, d, n, t, at, u, l) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    at = datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000)
    for k in range(3):
        for c in range(4):
            i = None if c == 3 else k * 10 + c
            session.execute(insert, (k, c, i, 2**40 + c, c / 2, Decimal(c) / 4, f"t{c}", at, TIME, [c]))
    yield name
    session.execute(f"DROP TABLE {name}")


# each: what is selected, of the rows of partition 1, and the answer
ANSWERS = [
    ("COUNT(*), COUNT(i), COUNT(1)", [(4, 3, 4)]),
    ("MIN(i), MAX(i), SUM(i), AVG(i)", [(10, 12, 33, 11)]),
    ("MIN(t), MAX(t)", [("t0", "t3")]),
    ("SUM(d), AVG(d)", [(3.0, 0.75)]),
    ("SUM(n), AVG(n), MAX(n)", [(Decimal("1.5"), Decimal("0.37"), Decimal("0.75"))]),
    ("SUM(b)", [(4 * 2**40 + 6,)]),
    ("COUNT(*) AS total", [(4,)]),
]


@pytest.mark.parametrize("selected, expected", ANSWERS, ids=[s for s, _ in ANSWERS])
def test_aggregates_of_a_partition(session, numbers, selected, expected):
    found = cql.rows(session, f"SELECT {selected} FROM {numbers} WHERE k = 1")
    assert [tuple(_number(v) for v in row) for row in found] == [tuple(_number(v) for v in row) for row in expected]


def _number(value):
    return float(value) if isinstance(value, Decimal) else value


def test_aggregates_of_nothing(session, numbers):
    answer = cql.rows(session, f"SELECT COUNT(*), COUNT(i), MIN(i), MAX(t), SUM(i), AVG(d) FROM {numbers} WHERE k = 77")
    assert answer == [(0, 0, None, None, 0, 0.0)]


def test_aggregates_over_pages(session, numbers):
    select = session.prepare(f"SELECT COUNT(*), SUM(i) FROM {numbers}")
    select.fetch_size = 2
    assert cql.rows(session, select) == [(12, 3 + 33 + 63)]


def test_group_by(session, numbers):
    grouped = cql.rows(session, f"SELECT k, COUNT(*), MAX(i) FROM {numbers} GROUP BY k")
    assert sorted(grouped) == [(0, 4, 2), (1, 4, 12), (2, 4, 22)]
    by_row = cql.rows(session, f"SELECT k, c, SUM(i) FROM {numbers} WHERE k = 1 GROUP BY k, c")
    assert by_row == [(1, 0, 10), (1, 1, 11), (1, 2, 12), (1, 3, 0)]
    cql.refused(
        session,
        f"SELECT k, COUNT(*) FROM {numbers} GROUP BY i",
        cql.INVALID,
        "Group by is currently only supported on the columns of the PRIMARY KEY",
    )


SCALARS = [
    ("CAST(i AS text)", "11"),
    ("CAST(i AS double)", 11.0),
    ("CAST(d AS int)", 0),
    ("CAST(at AS date)", "2024-02-29"),
    ("toDate(at)", "2024-02-29"),
    ("toUnixTimestamp(at)", 1709208000500),
    ("toTimestamp(u)", datetime.datetime(2009, 12, 17, 0, 26, 29, 805000)),
    ("toUnixTimestamp(u)", 1261009589805),
    ("intAsBlob(i)", b"\0\0\0\x0b"),
    ("textAsBlob(t)", b"t1"),
    ("blobAsInt(intAsBlob(i))", 11),
    ("i + 1", 12),
    ("i * 2 - c", 21),
    ("b / 2", (2**40 + 1) // 2),
    ("i % 4", 3),
    ("(int) 5", 5),
    ("TTL(i)", None),
]


@pytest.mark.parametrize("selected, expected", SCALARS, ids=[s for s, _ in SCALARS])
def test_scalar_functions(session, numbers, selected, expected):
    ((found,),) = cql.rows(session, f"SELECT {selected} FROM {numbers} WHERE k = 1 AND c = 1")
    assert (str(found) if isinstance(expected, str) else found) == expected


def test_functions_of_the_moment(session, numbers, table):
    name = table("k timeuuid PRIMARY KEY, u uuid, at timestamp, day date")
    before = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - datetime.timedelta(seconds=60)
    session.execute(f"INSERT INTO {name} (k, u, at, day) VALUES (now(), uuid(), toTimestamp(now()), toDate(now()))")
    ((k, u, at, day),) = cql.rows(session, f"SELECT k, u, at, day FROM {name}")
    assert k.version == 1 and u.version == 4
    assert before < at < before + datetime.timedelta(seconds=120)
    assert str(day) == f"{at:%Y-%m-%d}"


def test_bounds_of_time_uuids(session, table):
    name = table("k int, c timeuuid, PRIMARY KEY (k, c)")
    session.execute(f"INSERT INTO {name} (k, c) VALUES (1, {TIME})")
    inside = "c > maxTimeuuid('2009-12-17 00:26:28+0000') AND c < minTimeuuid('2009-12-17 00:26:30+0000')"
    assert cql.rows(session, f"SELECT c FROM {name} WHERE k = 1 AND {inside}") == [(TIME,)]
    assert cql.rows(session, f"SELECT c FROM {name} WHERE k = 1 AND c < minTimeuuid('2009-12-17 00:26:29+0000')") == []


def test_select_json(session, numbers):
    (one,) = cql.rows(session, f"SELECT JSON k, i, t, l, d, n FROM {numbers} WHERE k = 1 AND c = 1")
    assert one == ('{"k": 1, "i": 11, "t": "t1", "l": [1], "d": 0.5, "n": 0.25}',)


def test_token_and_writetime_of_selected_rows(session, numbers):
    ((token, written),) = cql.rows(session, f"SELECT token(k), WRITETIME(i) FROM {numbers} WHERE k = 1 AND c = 1")
    assert token == -4069959284402364209  # of the int 1
    assert written > 1_700_000_000_000_000


REFUSED = [
    ("SELECT SUM(t) FROM {t}", "Invalid call to function sum"),
    ("SELECT nothing(i) FROM {t}", "Unknown function 'nothing'"),
    ("SELECT intAsBlob(t) FROM {t}", "Type error"),
    ("SELECT intAsBlob(i, i) FROM {t}", "Invalid number of arguments"),
    ("SELECT WRITETIME(k) FROM {t}", "Cannot use selection function writetime on PRIMARY KEY part k"),
    ("SELECT TTL(c) FROM {t}", "Cannot use selection function ttl on PRIMARY KEY part c"),
    ("SELECT CAST(t AS int) FROM {t}", "Invalid call to function"),
    ("SELECT t + 1 FROM {t}", "the '+' operation is not supported between t and 1"),
    ("SELECT i FROM {t} WHERE COUNT(i) = 1", None),
]


@pytest.mark.parametrize("statement, words", REFUSED, ids=[s for s, _ in REFUSED])
def test_wrong_use_of_functions_is_refused(session, numbers, statement, words):
    code, message = cql.refusal(session, statement.format(t=numbers))
    assert code in (cql.INVALID, cql.SYNTAX)
    assert not words or words.lower() in message.lower(), message
