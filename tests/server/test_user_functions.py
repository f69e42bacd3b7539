"""User-defined functions and aggregates with the Python driver: calls, its metadata, events, errors, DESCRIBE, and a restart."""

import threading
import uuid
from decimal import Decimal

import pytest
from cassandra import FunctionFailure, InvalidRequest, ReadTimeout
from cassandra.concurrent import execute_concurrent_with_args

from harness import cql
from harness.node import Node

KEYSPACE = "functions"
EVENT_SECONDS = 30
ENABLED = ["--user-defined-functions-enabled", "1"]

FIBONACCI = """
(module
    (func $fib (param $n i64) (result i64)
        (if (i64.lt_s (local.get $n) (i64.const 2)) (then (return (local.get $n))))
        (i64.add
            (call $fib (i64.sub (local.get $n) (i64.const 1)))
            (call $fib (i64.sub (local.get $n) (i64.const 2)))))
    (memory 2)
    (export "memory" (memory 0))
    (export "fib" (func $fib))
    (global i32 (i32.const 1024))
    (export "_scylla_abi" (global 0))
    (data (i32.const 1024) "\\01"))
"""


def function(signature, returns, body, on_null="RETURNS NULL", language="lua"):
    return (
        f"CREATE FUNCTION {signature} {on_null} ON NULL INPUT RETURNS {returns} LANGUAGE {language} AS $${body}$$"
    )


@pytest.fixture(scope="module")
def node():
    with Node(options=ENABLED) as node:
        yield node


@pytest.fixture
def connected(node):
    """A cluster and a session in an empty keyspace with one table."""
    with cql.cluster(node) as cluster:
        session = cluster.connect()
        session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
        session.execute(
            f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session.set_keyspace(KEYSPACE)
        session.execute("CREATE TABLE t (p int, c int, v int, w text, PRIMARY KEY (p, c))")
        for row in [(1, 1, 10, "a"), (1, 2, 20, "b"), (2, 1, None, "c")]:
            session.execute("INSERT INTO t (p, c, v, w) VALUES (%s, %s, %s, %s)", row)
        yield cluster, session


@pytest.fixture
def session(connected):
    return connected[1]


def rows(session, text, values=None):
    return sorted((tuple(row) for row in session.execute(text, values)), key=repr)


def refused(session, text, kind=InvalidRequest):
    with pytest.raises(kind) as refusal:
        session.execute(text)
    return str(refusal.value)


def test_calls_are_told_apart_by_their_arguments_and_nest(session):
    session.execute(function("f(a int)", "int", "return a + 1"))
    session.execute(function("f(a text)", "text", "return a .. '!'"))
    session.execute(function("f()", "int", "return 42"))
    result = session.execute(f"SELECT f(v), {KEYSPACE}.f(w), f(), f(f(v)) FROM t WHERE p = 1 AND c = 1")
    assert result.column_names[:1] == ["functions_f_v"] or result.column_names[0] == f"{KEYSPACE}.f(v)"
    assert tuple(result.one()) == (11, "a!", 42, 12)
    assert rows(session, "SELECT f(v) FROM t WHERE p = 2") == [(None,)]
    assert "none of its type signatures match" in refused(session, f"SELECT {KEYSPACE}.f(1.5) FROM t")
    assert f"Unknown function '{KEYSPACE}.nof'" in refused(session, f"SELECT {KEYSPACE}.nof(v) FROM t")


def test_calls_stand_where_terms_may(session):
    session.execute(function("f(a int)", "int", "return a + 1"))
    insert = session.prepare("INSERT INTO t (p, c, v) VALUES (?, f(?), f(9))")
    session.execute(insert, (7, 5))
    assert rows(session, "SELECT p, c, v FROM t WHERE p = f(6) AND c = f(5)") == [(7, 6, 10)]
    session.execute("UPDATE t SET v = f(99) WHERE p = 7 AND c IN (f(5), 8)")
    assert rows(session, "SELECT c, v FROM t WHERE p = 7") == [(6, 100), (8, 100)]
    assert rows(session, "SELECT p, c FROM t WHERE v = f(99) ALLOW FILTERING") == [(7, 6), (7, 8)]
    assert rows(session, "SELECT f(p) FROM t GROUP BY p") == [(2,), (3,), (8,)]
    assert session.execute("DELETE FROM t WHERE p = 7 AND c = 6 IF v = f(99)").was_applied


def test_values_of_many_types(session):
    session.execute("CREATE TYPE point (x int, y text)")
    session.execute(
        "CREATE TABLE many (k int PRIMARY KEY, b bigint, d decimal, i varint, u uuid, l list<int>, s set<text>, m map<text, int>,"
        " t tuple<int, text>, p frozen<point>)"
    )
    some = uuid.uuid4()
    session.execute(
        "INSERT INTO many (k, b, d, i, u, l, s, m, t, p) VALUES (1, %s, %s, %s, %s, [3, 1, 2], {'x'}, {'a': 1}, (1, 'z'), {x: 4, y: 'q'})",
        (2**40, Decimal("1.25"), 2**100, some),
    )
    for column, cql_type, body, expected in [
        ("b", "bigint", "return a // 2", 2**39),
        ("d", "decimal", "return a * 2", Decimal("2.50")),
        ("i", "varint", "return a + 1", 2**100 + 1),
        ("u", "uuid", "return a:upper()", some),
        ("l", "list<int>", "table.sort(a) return a", [1, 2, 3]),
        ("s", "set<text>", "a.y = true return a", {"x", "y"}),
        ("m", "map<text, int>", "a.b = a.a + 1 return a", {"a": 1, "b": 2}),
        ("t", "tuple<int, text>", "return {a[1] + 1}", (2, None)),
        ("p", "point", "a.x = a.x + 1 return a", (5, "q")),
    ]:
        session.execute(function(f"g_{column}(a {cql_type})", cql_type, body))
        (found,) = session.execute(f"SELECT g_{column}({column}) FROM many").one()
        if column == "m":
            found = dict(found)
        assert type(expected)(found) == expected if column in "sltp" else found == expected, column


def test_aggregates(session):
    session.execute(function("plus(s int, v int)", "int", "return s + v"))
    session.execute(function("both(a int, b int)", "int", "return a + b"))
    session.execute(function("text(s int)", "text", "return 'r' .. s", "CALLED"))
    session.execute("CREATE AGGREGATE total(int) SFUNC plus STYPE int FINALFUNC text INITCOND 0")
    session.execute("CREATE AGGREGATE joined(int) SFUNC plus STYPE int REDUCEFUNC both INITCOND 0")
    assert rows(session, "SELECT total(v), joined(v) FROM t") == [("r30", 30)]
    assert rows(session, "SELECT p, total(v) FROM t GROUP BY p") == [(1, "r30"), (2, "r0")]
    assert rows(session, "SELECT total(v) FROM t WHERE p = 100") == [("r0",)]
    assert rows(session, "SELECT both(joined(v), 1), joined(both(v, 1)) FROM t") == [(31, 32)]
    assert "not supported in the where clause" in refused(session, "SELECT * FROM t WHERE p = joined(1)")
    session.execute(function("count3(s int, a int, b text)", "int", "return s + 1", "CALLED"))
    session.execute("CREATE AGGREGATE count3(int, text) SFUNC count3 STYPE int INITCOND 0")
    session.execute(function("count0(s int)", "int", "return s + 1", "CALLED"))
    session.execute("CREATE AGGREGATE count0() SFUNC count0 STYPE int INITCOND 0")
    assert rows(session, "SELECT count3(v, w), count0() FROM t") == [(3, 3)]


def test_an_aggregate_over_all_shards_is_that_over_the_rows(session):
    session.execute(function("plus(s bigint, v int)", "bigint", "return s + v"))
    session.execute(function("join2(a bigint, b bigint)", "bigint", "return a + b"))
    session.execute(function("twice(v int)", "int", "return 2 * v"))
    session.execute("CREATE AGGREGATE joined(int) SFUNC plus STYPE bigint REDUCEFUNC join2 INITCOND 0")
    session.execute("CREATE AGGREGATE whole(int) SFUNC plus STYPE bigint INITCOND 0")
    insert = session.prepare("INSERT INTO t (p, c, v) VALUES (?, 1, ?)")
    for p in range(10, 510):
        session.execute(insert, (p, p))
    expected = 30 + sum(range(10, 510))
    assert rows(session, "SELECT joined(v), whole(v), joined(twice(v)), sum(twice(v)) FROM t") == [
        (expected, expected, 2 * expected, 2 * expected)
    ]


def test_wasm(session):
    session.execute(function("fib(n bigint)", "bigint", FIBONACCI, language="wasm"))
    assert rows(session, "SELECT fib(10) FROM t WHERE p = 2") == [(55,)]
    assert "took longer than 10 ms" in refused(session, "SELECT fib(90) FROM t", FunctionFailure)
    assert "no function named 'gib'" in refused(session, function("gib(n bigint)", "bigint", FIBONACCI, language="wasm"))


def test_a_function_that_fails_says_which(session):
    session.execute(function("bad(a int, b text)", "int", "error('boom ' .. b)"))
    session.execute(function("endless()", "int", "while true do end"))
    session.execute(function("greedy()", "text", "local s = 'x' while true do s = s .. s end"))
    for text in [
        "SELECT bad(v, w) FROM t WHERE p = 1 AND c = 1",
        "INSERT INTO t (p, c, v) VALUES (8, 8, bad(1, 'a'))",
    ]:
        with pytest.raises(FunctionFailure) as failure:
            session.execute(text)
        assert (failure.value.keyspace, failure.value.function) == (KEYSPACE, "bad")
        assert failure.value.arg_types == ["int", "text"]
        assert "bad:1: boom a" in str(failure.value)
    assert "took longer than 10 ms" in refused(session, "SELECT endless() FROM t", FunctionFailure)
    assert "bytes of memory" in refused(session, "SELECT greedy() FROM t", FunctionFailure)
    session.execute("CREATE FUNCTION sf(s int, v int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'error(1)'")
    session.execute("CREATE AGGREGATE fails(int) SFUNC sf STYPE int")
    refused(session, "SELECT fails(v) FROM t", FunctionFailure)
    assert rows(session, "SELECT count(*) FROM t") == [(3,)], "the node goes on"


def test_a_prepared_statement_calls_what_replaced_its_function(session):
    session.execute(function("f(a int)", "int", "return a + 1"))
    select = session.prepare("SELECT f(v) FROM t WHERE p = 1 AND c = ?")
    assert session.execute(select, (1,)).one()[0] == 11
    session.execute(function("f(a int)", "int", "return a + 2").replace("CREATE", "CREATE OR REPLACE"))
    assert session.execute(select, (1,)).one()[0] == 12


def test_the_drivers_metadata(connected):
    cluster, session = connected
    session.execute(function('"F f"(a int, "B" list<text>)', "int", "return a", "CALLED"))
    session.execute(function("plus(s int, v int)", "int", "return s + v"))
    session.execute(function("text(s int)", "text", "return 'r' .. s", "CALLED"))
    session.execute("CREATE AGGREGATE total(int) SFUNC plus STYPE int FINALFUNC text INITCOND 5")
    cluster.refresh_schema_metadata()
    keyspace = cluster.metadata.keyspaces[KEYSPACE]
    found = keyspace.functions['F f(int,list<text>)']
    assert (found.argument_names, found.argument_types) == (["a", "B"], ["int", "list<text>"])
    assert (found.return_type, found.language, found.body, found.called_on_null_input) == ("int", "lua", "return a", True)
    total = keyspace.aggregates["total(int)"]
    assert (total.state_func, total.state_type, total.final_func) == ("plus", "int", "text")
    assert (total.initial_condition, total.return_type) == ("5", "text")
    session.execute("DROP AGGREGATE total")
    session.execute('DROP FUNCTION "F f"')
    cluster.refresh_schema_metadata()
    keyspace = cluster.metadata.keyspaces[KEYSPACE]
    assert set(keyspace.functions) == {"plus(int,int)", "text(int)"} and not keyspace.aggregates


def test_clients_hear_of_changes(connected):
    cluster, session = connected
    told = []
    changed = threading.Condition()

    def hear(event):
        with changed:
            told.append(event)
            changed.notify_all()

    cluster.control_connection._connection.register_watchers({"SCHEMA_CHANGE": hear})
    session.execute(function("plus(s int, v int)", "int", "return s + v"))
    session.execute("CREATE AGGREGATE total(int) SFUNC plus STYPE int INITCOND 5")
    session.execute("CREATE OR REPLACE AGGREGATE total(int) SFUNC plus STYPE int INITCOND 6")
    session.execute("DROP AGGREGATE total(int)")
    session.execute("DROP FUNCTION plus")
    expected = [
        ("CREATED", "FUNCTION", "plus", ["int", "int"]),
        ("CREATED", "AGGREGATE", "total", ["int"]),
        ("UPDATED", "AGGREGATE", "total", ["int"]),
        ("DROPPED", "AGGREGATE", "total", ["int"]),
        ("DROPPED", "FUNCTION", "plus", ["int", "int"]),
    ]

    def heard():
        mine = [event for event in told if event.get("keyspace") == KEYSPACE]
        return [
            (event["change_type"], event["target_type"], *next((v.name, v.argument_types) for k, v in event.items() if k in ("function", "aggregate")))
            for event in mine
            if event["target_type"] in ("FUNCTION", "AGGREGATE")
        ]

    with changed:
        assert changed.wait_for(lambda: len(heard()) >= len(expected), EVENT_SECONDS), told
        assert heard() == expected


def test_describe(session):
    session.execute(function("f(a int)", "int", "return a + 1"))
    session.execute(function("f(a text)", "text", 'return "it\'s"', "CALLED"))
    session.execute(function("plus(s int, v int)", "int", "return s + v"))
    session.execute("CREATE AGGREGATE total(int) SFUNC plus STYPE int REDUCEFUNC plus INITCOND 5")
    described = [row.create_statement for row in session.execute("DESCRIBE FUNCTION f")]
    assert described == [
        f"CREATE FUNCTION {KEYSPACE}.f(a int)\n    RETURNS NULL ON NULL INPUT\n    RETURNS int\n    LANGUAGE lua\n"
        "    AS $$return a + 1$$;",
        f"CREATE FUNCTION {KEYSPACE}.f(a text)\n    CALLED ON NULL INPUT\n    RETURNS text\n    LANGUAGE lua\n"
        "    AS $$return \"it's\"$$;",
    ]
    aggregate = session.execute("DESCRIBE AGGREGATE total").one().create_statement
    assert aggregate == (
        f"CREATE AGGREGATE {KEYSPACE}.total(int)\n    SFUNC plus\n    STYPE int\n    REDUCEFUNC plus\n    INITCOND 5;"
    )
    assert [row.name for row in session.execute("DESCRIBE FUNCTIONS")] == ["f(int)", "f(text)", "plus(int, int)"]
    assert [row.name for row in session.execute("DESCRIBE AGGREGATES")] == ["total(int)"]
    (told,) = session.execute("SELECT * FROM system_schema.scylla_aggregates")
    assert (told.keyspace_name, told.aggregate_name, told.argument_types) == (KEYSPACE, "total", ["int"])
    assert (told.reduce_func, told.state_type) == ("plus", "int")
    kinds = [row.type for row in session.execute(f"DESCRIBE KEYSPACE {KEYSPACE}")]
    assert kinds == ["keyspace", "function", "function", "function", "aggregate", "table"]
    assert "User defined function 'no' not found in" in refused(session, "DESCRIBE FUNCTION no")
    session.execute("DROP AGGREGATE total")
    session.execute("DROP FUNCTION f(int)")
    for text in [described[0], aggregate]:
        session.execute(text.rstrip(";"))


def test_the_timeout_of_a_statement_ends_its_calls(session):
    """Each call is within its limit; all together would take seconds."""
    body = "local x = 0 for i = 1, 100000 do x = x + i end return x % 100"
    session.execute(function("slow(a int)", "int", body))
    rows_of_partition = 2_000
    insert = session.prepare("INSERT INTO t (p, c, v) VALUES (7, ?, 1)")
    execute_concurrent_with_args(session, insert, [(c,) for c in range(rows_of_partition)])
    for what in ("slow(c)", "sum(slow(c))"):
        for where in ("", " WHERE p = 7"):
            with pytest.raises(ReadTimeout):
                session.execute(f"SELECT {what} FROM t{where} USING TIMEOUT 100ms")


def test_functions_are_there_after_a_restart():
    with Node(options=ENABLED) as node:
        with cql.cluster(node) as cluster:
            session = cluster.connect()
            session.execute(
                f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            )
            session.set_keyspace(KEYSPACE)
            session.execute("CREATE TABLE t (p int PRIMARY KEY)")
            session.execute("INSERT INTO t (p) VALUES (1)")
            session.execute(function("plus(s int, v int)", "int", "return s + v"))
            session.execute("CREATE AGGREGATE total(int) SFUNC plus STYPE int INITCOND 5")
        node.options = []
        node.restart()
        with cql.cluster(node) as cluster:
            session = cluster.connect(KEYSPACE)
            assert rows(session, "SELECT total(p), plus(1, 2) FROM t") == [(6, 3)]
            text = function("more()", "int", "return 1")
            assert "User-defined functions are disabled" in refused(session, text)
            session.execute("DROP AGGREGATE total")
            session.execute("DROP FUNCTION plus")
