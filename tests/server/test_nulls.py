"""What a comparison with null means: a mistake, as in Cassandra, or neither true nor false, as in ScyllaDB and SQL."""

import pytest
from cassandra import InvalidRequest

RULES = ["error", "unknown"]


@pytest.fixture(params=RULES)
def rule(request):
    return request.param


@pytest.fixture
def session(rule, new_node, connect):
    session = connect(new_node(smp=2, options=["--comparisons-with-null", rule]).start())
    session.execute("CREATE TABLE t (p int, c int, v int, s text, l set<int>, m map<int, int>, PRIMARY KEY (p, c))")
    for c in range(4):
        value = "null" if c == 3 else str(c)
        session.execute(f"INSERT INTO t (p, c, v, s, l, m) VALUES (1, {c}, {value}, 'text {c}', {{{c}}}, {{{c}: {c}}})")
    return session


def rows(session, relations, values=()):
    found = session.execute(f"SELECT c FROM t WHERE {relations} ALLOW FILTERING", values)
    return [row.c for row in found]


@pytest.mark.parametrize(
    ("relations", "values", "found"),
    [
        ("p = %s", (None,), []),
        ("p = 1 AND c = %s", (None,), []),
        ("p = 1 AND c > %s", (None,), []),
        ("p = 1 AND c >= 0 AND c < null", (), []),
        ("p IN (1, null)", (), [0, 1, 2, 3]),
        ("p = 1 AND c IN (2, null, 0)", (), [0, 2]),
        ("v = null", (), []),
        ("v != null", (), []),
        ("v > null", (), []),
        ("v IN (1, null)", (), [1]),
        ("v NOT IN (1, null)", (), []),
        ("s LIKE null", (), []),
        ("l CONTAINS null", (), []),
        ("m CONTAINS KEY null", (), []),
        ("m[null] = 1", (), []),
        ("m[1] = null", (), []),
    ],
)
def test_in_where(session, rule, relations, values, found):
    if rule == "unknown":
        assert rows(session, relations, values) == found
        count = session.execute(f"SELECT count(*) FROM t WHERE {relations} ALLOW FILTERING", values)
        assert count.one().count == len(found), "an aggregate of no row has a row"
    else:
        with pytest.raises(InvalidRequest, match="null"):
            rows(session, relations, values)


def test_bound_to_a_prepared_statement(session, rule):
    point = session.prepare("SELECT v FROM t WHERE p = ? AND c = ?")
    some = session.prepare("SELECT c FROM t WHERE p = ? AND c IN ?")
    filtered = session.prepare("SELECT c FROM t WHERE v > ? ALLOW FILTERING")
    counted = session.prepare("SELECT count(*) FROM t WHERE v IN ? ALLOW FILTERING")
    assert session.execute(point, (1, 2)).one().v == 2
    for statement, values in [(point, (1, None)), (point, (None, 2)), (filtered, (None,)), (some, (1, None))]:
        if rule == "unknown":
            assert session.execute(statement, values).all() == []
        else:
            with pytest.raises(InvalidRequest, match="null"):
                session.execute(statement, values)
    assert [row.c for row in session.execute(filtered, (0,))] == [1, 2]
    assert session.execute(counted, ([1, 2],)).one().count == 2
    assert session.execute(point, (1, 2)).one().v == 2


@pytest.mark.parametrize("rule", ["unknown"], indirect=True)
def test_pages_of_a_read_whose_alternatives_have_a_null(session):
    statement = session.prepare("SELECT c FROM t WHERE p IN (1, null)")
    statement.fetch_size = 1
    assert [row.c for row in session.execute(statement)] == [0, 1, 2, 3]


@pytest.mark.parametrize("condition", ["v > null", "v <= null", "s LIKE null", "l CONTAINS null", "m CONTAINS KEY null", "m[null] = 1"])
def test_in_if(session, rule, condition):
    update = f"UPDATE t SET s = 'changed' WHERE p = 1 AND c = 1 IF {condition}"
    if rule == "unknown":
        assert not session.execute(update).was_applied
    else:
        with pytest.raises(InvalidRequest, match="null"):
            session.execute(update)
    assert session.execute("UPDATE t SET s = 'changed' WHERE p = 1 AND c = 3 IF v = null").was_applied
    assert not session.execute("UPDATE t SET s = 'changed' WHERE p = 1 AND c = 1 IF v = null").was_applied
    assert session.execute("UPDATE t SET s = 'changed' WHERE p = 1 AND c = 1 IF v IN (1, null)").was_applied


def test_a_write_must_have_its_key(session):
    for statement in ["UPDATE t SET v = 1 WHERE p = %s AND c = 1", "DELETE FROM t WHERE p = 1 AND c = %s"]:
        with pytest.raises(InvalidRequest, match="null"):
            session.execute(statement, (None,))
