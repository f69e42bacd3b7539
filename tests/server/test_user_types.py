"""User-defined types with the Python driver: values as its own classes, in both directions, and types that are altered while it is connected."""

import threading
from collections import namedtuple

import pytest
from cassandra import InvalidRequest

from harness import cql

KEYSPACE = "user_types"
Point = namedtuple("Point", "x y")
Line = namedtuple("Line", "name a b")


@pytest.fixture
def connected(server):
    """A cluster and a session in an empty keyspace with two types and a table of them."""
    with cql.cluster(server) as cluster:
        session = cluster.connect()
        session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
        session.execute(
            f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session.set_keyspace(KEYSPACE)
        session.execute("CREATE TYPE point (x int, y int)")
        session.execute("CREATE TYPE line (name text, a frozen<point>, b frozen<point>)")
        session.execute(
            "CREATE TABLE t (k int PRIMARY KEY, p point, f frozen<line>, l list<frozen<point>>, m map<text, frozen<line>>, "
            "s set<frozen<point>>, u tuple<int, frozen<point>>)"
        )
        cluster.register_user_type(KEYSPACE, "point", Point)
        cluster.register_user_type(KEYSPACE, "line", Line)
        yield cluster, session


def test_registered_classes_go_there_and_back(connected):
    _, session = connected
    insert = session.prepare("INSERT INTO t (k, p, f, l, m, s, u) VALUES (?, ?, ?, ?, ?, ?, ?)")
    line = Line("diagonal", Point(0, 0), Point(1, None))
    row = (1, Point(1, 2), line, [Point(3, None), Point(5, 6)], {"a": line}, {Point(7, 8)}, (9, Point(None, 10)))
    session.execute(insert, row)
    got = session.execute(session.prepare("SELECT k, p, f, l, m, s, u FROM t WHERE k = ?"), (1,)).one()
    assert tuple(got[:4]) == row[:4]
    assert dict(got.m) == row[4]
    assert set(got.s) == row[5]
    assert tuple(got.u) == row[6]


def test_fields_are_bound_and_read_one_by_one(connected):
    _, session = connected
    update = session.prepare("UPDATE t SET p.x = ?, f = {name: ?, b: ?} WHERE k = ?")
    session.execute(update, (1, "n", Point(2, 3), 1))
    session.execute(session.prepare("UPDATE t SET p.y = :y WHERE k = :k"), {"y": 4, "k": 1})
    assert tuple(session.execute("SELECT p.x, p.y, f.name, f.a, f.b.y FROM t WHERE k = 1").one()) == (1, 4, "n", None, 3)
    changed = session.execute(session.prepare("UPDATE t SET p.x = 9 WHERE k = 1 IF p = ?"), (Point(1, 4),))
    assert changed.was_applied
    session.execute("DELETE p.y FROM t WHERE k = 1")
    assert session.execute("SELECT p FROM t WHERE k = 1").one().p == Point(9, None)


def test_a_value_of_too_many_fields_is_refused(connected):
    _, session = connected
    insert = session.prepare("INSERT INTO t (k, f) VALUES (?, ?)")
    # Four fields, all null, for a type of three.
    insert.column_metadata[1] = insert.column_metadata[1]._replace(type=cql_bytes())
    with pytest.raises(InvalidRequest, match="remaining data"):
        session.execute(insert, (1, b"\xff" * 16))


def cql_bytes():
    from cassandra.cqltypes import BytesType

    return BytesType


def test_the_driver_knows_the_types(connected):
    cluster, _ = connected
    cluster.refresh_schema_metadata()
    types = cluster.metadata.keyspaces[KEYSPACE].user_types
    assert types["line"].field_names == ["name", "a", "b"]
    assert types["line"].field_types == ["text", "frozen<point>", "frozen<point>"]
    text = cluster.metadata.keyspaces[KEYSPACE].export_as_string()
    assert text.index("CREATE TYPE user_types.point") < text.index("CREATE TYPE user_types.line") < text.index("CREATE TABLE")


def test_an_altered_type_has_its_new_field_in_prepared_statements(connected):
    cluster, session = connected
    select = session.prepare("SELECT p FROM t WHERE k = 1")
    session.execute("INSERT INTO t (k, p) VALUES (1, {x: 1, y: 2})")
    assert session.execute(select).one().p == Point(1, 2)
    session.execute("ALTER TYPE point ADD z int")
    Space = namedtuple("Space", "x y z")
    cluster.register_user_type(KEYSPACE, "point", Space)
    session.execute("UPDATE t SET p.z = 3 WHERE k = 1")
    assert session.execute(session.prepare("SELECT p FROM t WHERE k = 1")).one().p == Space(1, 2, 3)
    assert session.execute("SELECT p FROM t WHERE k = 1").one().p == Space(1, 2, 3)
    cluster.refresh_user_type_metadata(KEYSPACE, "point")
    assert cluster.metadata.keyspaces[KEYSPACE].user_types["point"].field_names == ["x", "y", "z"]


def test_what_is_described_makes_the_same_keyspace(connected):
    _, session = connected
    described = [row.create_statement for row in session.execute(f"DESCRIBE KEYSPACE {KEYSPACE}")]
    session.execute(f"DROP KEYSPACE {KEYSPACE}")
    for statement in described:
        session.execute(statement)
    assert [row.create_statement for row in session.execute(f"DESCRIBE KEYSPACE {KEYSPACE}")] == described


def test_writes_go_on_while_a_type_is_altered(connected):
    cluster, session = connected
    stop, failures, written = threading.Event(), [], []

    def write():
        number = 0
        while not stop.is_set() and number < 100_000:
            number += 1
            try:
                session.execute(f"UPDATE t SET p.x = {number}, f = {{name: '{number}'}} WHERE k = {number % 50}")
                written.append(number)
            except Exception as failure:
                failures.append(failure)
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(10):
            session.execute(f"ALTER TYPE point ADD f{number} text")
            session.execute(f"ALTER TYPE line ADD g{number} frozen<list<int>>")
            session.execute(f"UPDATE t SET p.f{number} = 'new', f = {{g{number}: [{number}]}} WHERE k = {1000 + number}")
    finally:
        stop.set()
        writer.join()
    assert not failures and written
    for number in range(10):
        row = session.execute(f"SELECT p.f{number}, f.g{number} FROM t WHERE k = {1000 + number}").one()
        assert tuple(row) == ("new", [number])
    assert session.execute(f"SELECT p.x FROM t WHERE k = {written[-1] % 50}").one()[0] == written[-1]


def test_clients_that_make_a_type_and_its_table_at_once_agree(connected):
    _, session = connected
    failures = []

    def make(number):
        try:
            session.execute("CREATE TYPE IF NOT EXISTS once (a int, b text)")
            session.execute(f"CREATE TABLE once_{number} (k int PRIMARY KEY, v once, w frozen<once>)")
            session.execute(f"INSERT INTO once_{number} (k, v, w) VALUES (1, {{a: 1}}, {{b: 'x'}})")
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with pytest.raises(InvalidRequest, match="still used by tables"):
        session.execute("DROP TYPE once")
    for number in range(6):
        assert tuple(session.execute(f"SELECT v.a, w.b FROM once_{number}").one()) == (1, "x")
