"""INSERT JSON: rows that come as text, in the statement and bound, as Cassandra 5.0 takes them."""

import pytest
from cassandra import InvalidRequest
from cassandra.query import BatchStatement

from harness import cql


@pytest.fixture
def name(table):
    return table('k int, c int, "V" text, v int, m map<text, int>, s int static, PRIMARY KEY (k, c)')


def rows(session, name):
    found = cql.rows(session, f'SELECT k, c, "V", v, m, s FROM {name}')
    return sorted(tuple(dict(value) if hasattr(value, "items") else value for value in row) for row in found)


def test_a_row_in_the_statement(session, name):
    session.execute(rf"""INSERT INTO {name} JSON '{{"K": 1, "c": 1, "v": 2, "\"V\"": "x", "m": {{"a": 1}}, "s": 4}}'""")
    assert rows(session, name) == [(1, 1, "x", 2, {"a": 1}, 4)]
    session.execute(f"""INSERT INTO {name} JSON '{{"k": 1, "c": 1, "v": 3}}' DEFAULT UNSET""")
    assert rows(session, name) == [(1, 1, "x", 3, {"a": 1}, 4)]
    session.execute(f"""INSERT INTO {name} JSON '{{"k": 1, "c": 1, "v": 5}}'""")
    assert rows(session, name) == [(1, 1, None, 5, None, None)], "what is not named becomes null"


def test_a_bound_row(session, name):
    insert = session.prepare(f"INSERT INTO {name} JSON ? DEFAULT UNSET USING TIMESTAMP ?")
    assert [marker.name for marker in insert.column_metadata] == ["[json]", "[timestamp]"]
    session.execute(insert, ('{"k": 1, "c": 2, "v": 3}', 1))
    session.execute(insert, ('{"c": 2, "k": 1, "m": {"b": 2}, "s": 9}', 2))
    assert rows(session, name) == [(1, 2, None, 3, {"b": 2}, 9)]
    batch = BatchStatement()
    batch.add(insert, ('{"k": 1, "c": 2, "v": null}', 3))
    batch.add(insert, ('{"k": 2, "c": 3}', 3))
    session.execute(batch)
    assert rows(session, name) == [(1, 2, None, None, {"b": 2}, 9), (2, 3, None, None, None, None)]
    two = session.prepare(f"BEGIN BATCH INSERT INTO {name} JSON :a; INSERT INTO {name} JSON :b; APPLY BATCH")
    session.execute(two, ('{"k": 5, "c": 1, "v": 1}', '{"k": 5, "c": 2, "v": 2}'))
    assert [row[:4] for row in rows(session, name) if row[0] == 5] == [(5, 1, None, 1), (5, 2, None, 2)]


def test_a_conditional_row(session, name):
    insert = session.prepare(f"INSERT INTO {name} JSON ? IF NOT EXISTS")
    assert tuple(session.execute(insert, ('{"k": 1, "c": 9, "v": 9}',)).one()) == (True,)
    refused = session.execute(insert, ('{"k": 1, "c": 9, "v": 8}',)).one()
    assert (refused[0], refused.k, refused.c, refused.v) == (False, 1, 9, 9)


REFUSED = [
    ('{"k": 1, "v": 3}', "Invalid null value in condition for column c"),
    ('{"k": null, "c": 3}', "Invalid null value in condition for column k"),
    ('{"k": 1, "c": 1, "x": 3}', "JSON values map contains unrecognized column: x"),
    ('{"k": 1, "c": 1, "v": "a"}', "Error decoding JSON value for v: Unable to make int from 'a'"),
    ("null", "Got null for INSERT JSON values"),
    ("[1]", "Could not decode JSON string as a map"),
    ("x{", "Could not decode JSON string as a map"),
    ("", "Could not decode JSON string as a map"),
]


@pytest.mark.parametrize("text, message", REFUSED)
def test_rows_that_are_refused(session, name, text, message):
    with pytest.raises(InvalidRequest, match="^.*" + message.replace("{", r"\{")):
        session.execute(f"INSERT INTO {name} JSON '{text}'")
    with pytest.raises(InvalidRequest, match="^.*" + message.replace("{", r"\{")):
        session.execute(session.prepare(f"INSERT INTO {name} JSON ?"), (text,))
    assert rows(session, name) == []
