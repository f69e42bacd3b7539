"""Bind variables: a name that a statement has twice is one variable, unless an option makes it one for each place, as in Cassandra."""

import pytest
from cassandra import InvalidRequest

from harness import cql

pytestmark = pytest.mark.ceto_only("Cassandra has a variable for each place")

OPTION = "--cql-duplicate-bind-variable-names-refer-to-same-variable"
STATEMENT = "SELECT k FROM {} WHERE a = :x AND b = :x AND c < ? AND k = :x ALLOW FILTERING"


def names(prepared):
    return [column.name for column in prepared.column_metadata]


def test_equal_names_are_one_variable(session, table):
    name = table("k int PRIMARY KEY, a int, b int, c int")
    session.execute(f"INSERT INTO {name} (k, a, b, c) VALUES (7, 7, 7, 1)")
    session.execute(f"INSERT INTO {name} (k, a, b, c) VALUES (8, 8, 7, 1)")
    prepared = session.prepare(STATEMENT.format(name))
    assert names(prepared) == ["x", "c"]
    assert cql.rows(session, prepared, (7, 2)) == [(7,)]
    assert cql.rows(session, prepared, (8, 2)) == []
    assert cql.rows(session, prepared, {"x": 7, "c": 2}) == [(7,)]
    insert = session.prepare(f"INSERT INTO {name} (k, a, b, c) VALUES (:n, :n, :n, :n)")
    session.execute(insert, (9,))
    assert cql.rows(session, f"SELECT k, a, b, c FROM {name} WHERE k = 9") == [(9, 9, 9, 9)]
    batch = session.prepare(f"BEGIN BATCH UPDATE {name} SET a = :v WHERE k = 1; UPDATE {name} SET b = :v WHERE k = 2 APPLY BATCH")
    assert names(batch) == ["v"]


def test_a_variable_has_one_type(session, table):
    name = table("k int PRIMARY KEY, t text")
    with pytest.raises(InvalidRequest, match="Bind variable :x is used for a value of type int and for one of type text"):
        session.prepare(f"INSERT INTO {name} (k, t) VALUES (:x, :x)")


def test_an_option_makes_a_variable_of_each_place(new_node, connect):
    node = new_node(options=[OPTION, "false"]).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, a int, b int, c int)")
    session.execute("INSERT INTO t (k, a, b, c) VALUES (7, 7, 6, 1)")
    prepared = session.prepare(STATEMENT.format("t"))
    assert names(prepared) == ["x", "x", "c", "x"]
    assert cql.rows(session, prepared, (7, 6, 2, 7)) == [(7,)]
    assert cql.rows(session, prepared, {"x": 7, "c": 2}) == []
