"""What cannot be done is said, by an error of the right class, in the words that users of Cassandra know."""

import pytest
from cassandra import FunctionFailure

from harness import cql, wire

KEY_BYTES_MAX = 65535

SYNTAX = [
    ("", "no viable alternative at input '<EOF>'"),
    ("SELEKT * FROM t", "no viable alternative at input 'SELEKT'"),
    ("SELECT * FORM t", "mismatched input 'FORM' expecting K_FROM"),
    ("SELECT * FROM", "no viable alternative at input '<EOF>'"),
    ("SELECT * FROM t WHERE", "<EOF>"),
    ("SELECT * FROM t; SELECT * FROM t", "expecting EOF"),
    ("INSERT INTO t (k) VALUES (1", "<EOF>"),
    ("INSERT INTO t VALUES (1)", "VALUES"),
    ("CREATE TABLE select (k int PRIMARY KEY)", "select"),
    ("SELECT * FROM t WHERE k = 'unfinished", "line 1:"),
    ('SELECT "unfinished FROM t', "line 1:"),
    ("SELECT * FROM t WHERE k == 1", "line 1:"),
    ("UPDATE t SET v = 1", "<EOF>"),
    ("DELETE FROM t WHERE", "<EOF>"),
    ("@#!", "line 1:"),
]


@pytest.mark.parametrize("statement, words", SYNTAX, ids=[s for s, _ in SYNTAX])
def test_malformed_cql_is_a_syntax_error_with_its_place(session, statement, words):
    cql.refused(session, statement, cql.SYNTAX, words)
    cql.refused(session, statement, cql.SYNTAX, "line ")


def test_deep_nesting_is_refused_and_does_not_end_the_node(session, table):
    name = table("k int PRIMARY KEY, v int")
    deep = "(" * 20_000 + "1" + ")" * 20_000
    for value in (deep, "[" * 20_000 + "]" * 20_000):
        code, message = cql.refusal(session, f"INSERT INTO {name} (k, v) VALUES (1, {value})")
        assert code in (cql.SERVER, cql.SYNTAX, cql.INVALID), message  # Cassandra's own stack overflows here
    assert cql.rows(session, f"SELECT * FROM {name}") == []


def test_unknown_names(session, keyspace):
    cql.refused(session, "SELECT * FROM nowhere.t", cql.INVALID, "keyspace nowhere does not exist")
    cql.refused(session, "SELECT * FROM nothing", cql.INVALID, "table nothing does not exist")
    cql.refused(session, "INSERT INTO nowhere.t (k) VALUES (1)", cql.INVALID, "keyspace nowhere does not exist")
    cql.refused(session, "INSERT INTO nothing (k) VALUES (1)", cql.INVALID, "table nothing does not exist")
    cql.refused(session, "UPDATE nothing SET v = 1 WHERE k = 1", cql.INVALID, "table nothing does not exist")
    cql.refused(session, "DELETE FROM nothing WHERE k = 1", cql.INVALID, "table nothing does not exist")


@pytest.mark.parametrize("size", [KEY_BYTES_MAX, KEY_BYTES_MAX + 1])
def test_the_limit_of_a_partition_key(session, table, size):
    name = table("k blob PRIMARY KEY, v int")
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, 1)")
    select = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
    key = b"x" * size
    if size <= KEY_BYTES_MAX:
        for _ in range(2):
            session.execute(insert, (key,))
            assert cql.rows(session, select, (key,)) == [(1,)]
            assert cql.rows(session, f"SELECT k FROM {name}") == [(key,)]
    else:
        words = f"Key length of {size} is longer than maximum of {KEY_BYTES_MAX}"
        cql.refused(session, insert, cql.INVALID, words, (key,))
        cql.refused(session, select, cql.INVALID, words, (key,))
        cql.refused(session, f"INSERT INTO {name} (k, v) VALUES (0x{key.hex()}, 1)", cql.INVALID, words)


def test_the_limit_holds_for_a_composite_key_as_a_whole(session, table):
    name = table("a blob, b blob, v int, PRIMARY KEY ((a, b))")
    insert = session.prepare(f"INSERT INTO {name} (a, b, v) VALUES (?, ?, 1)")
    half = KEY_BYTES_MAX // 2 + 1
    cql.refused(session, insert, cql.INVALID, "is longer than maximum of 65535", (b"x" * half, b"y" * half))
    session.execute(insert, (b"x" * (half - 10), b"y" * (half - 10)))


def test_the_limit_of_a_clustering_key(session, table):
    name = table("k int, c blob, PRIMARY KEY (k, c)")
    insert = session.prepare(f"INSERT INTO {name} (k, c) VALUES (1, ?)")
    session.execute(insert, (b"x" * KEY_BYTES_MAX,))
    cql.refused(session, insert, cql.INVALID, "is longer than maximum of 65535", (b"x" * (KEY_BYTES_MAX + 1),))


def test_the_limit_holds_for_all_clustering_columns_together(session, table):
    name = table("k int, a blob, b blob, v int, PRIMARY KEY (k, a, b)")
    half = KEY_BYTES_MAX // 2 + 1
    long, words = (b"x" * half, b"y" * half), f"Key length of {2 * half} is longer than maximum of {KEY_BYTES_MAX}"
    for statement in [
        f"INSERT INTO {name} (k, a, b, v) VALUES (1, ?, ?, 1)",
        f"UPDATE {name} SET v = 1 WHERE k = 1 AND a = ? AND b = ?",
        f"UPDATE {name} SET v = 1 WHERE k = 1 AND a = ? AND b IN (?)",
        f"DELETE FROM {name} WHERE k = 1 AND a = ? AND b = ?",
    ]:
        cql.refused(session, session.prepare(statement), cql.INVALID, words, long)
    select = session.prepare(f"SELECT v FROM {name} WHERE k = 1 AND a = ? AND b = ?")
    assert cql.rows(session, select, long) == [], "no row has that name"
    session.execute(session.prepare(f"INSERT INTO {name} (k, a, b, v) VALUES (1, ?, ?, 1)"), (b"x" * half, b"y" * (half - 1)))


def test_elements_and_keys_of_collections_may_be_longer_than_keys_of_rows(session, table):
    name = table("k int PRIMARY KEY, s set<blob>, m map<blob, int>")
    long = b"x" * (KEY_BYTES_MAX + 1)
    session.execute(session.prepare(f"INSERT INTO {name} (k, s, m) VALUES (1, ?, ?)"), ({long, b"y"}, {long: 1}))
    assert cql.rows(session, f"SELECT s, m FROM {name}") == [({long, b"y"}, {long: 1})]
    session.execute(session.prepare(f"UPDATE {name} SET s = s - ?, m[?] = 2 WHERE k = 1"), ({b"y"}, long))
    assert cql.rows(session, f"SELECT s, m FROM {name}") == [({long}, {long: 2})]


@pytest.mark.parametrize(
    "columns, insert", [("k blob PRIMARY KEY", "(k) VALUES (0x)"), ("k text PRIMARY KEY", "(k) VALUES ('')")]
)
def test_an_empty_partition_key_is_refused(session, table, columns, insert):
    cql.refused(session, f"INSERT INTO {table(columns)} {insert}", cql.INVALID, "Key may not be empty")


def test_parts_of_a_composite_key_may_be_empty(session, table):
    name = table("a text, b blob, c text, PRIMARY KEY ((a, b), c)")
    session.execute(f"INSERT INTO {name} (a, b, c) VALUES ('', 0x, '')")
    assert cql.rows(session, f"SELECT * FROM {name}") == [("", b"", "")]


def test_values_of_a_megabyte(session, table):
    name = table("k int PRIMARY KEY, v blob, t text")
    insert = session.prepare(f"INSERT INTO {name} (k, v, t) VALUES (?, ?, ?)")
    v, t = bytes(range(256)) * 4096, "text" * 262144
    session.execute(insert, (1, v, t))
    assert cql.rows(session, f"SELECT v, t FROM {name}") == [(v, t)]


def test_wrong_numbers_of_values(session, table):
    name = table("k int PRIMARY KEY, v int")
    select = f"SELECT * FROM {name} WHERE k = ?"
    cql.refused(session, select, cql.INVALID, "Invalid amount of bind variables")
    prepared = session.prepare(select)
    bound = prepared.bind((1,))
    bound.values = [b"\0\0\0\1", b"\0\0\0\2"]
    cql.refused(session, bound, cql.INVALID, "there were 1 markers(?) in CQL but 2 bound variables")
    bound.values = []
    cql.refused(session, bound, cql.INVALID, "there were 1 markers(?) in CQL but 0 bound variables")


def test_null_and_unset_in_keys(session, table):
    from cassandra.query import UNSET_VALUE

    name = table("k int, c int, v int, PRIMARY KEY (k, c)")
    insert = session.prepare(f"INSERT INTO {name} (k, c, v) VALUES (?, ?, 1)")
    cql.refused(session, insert, cql.INVALID, "Invalid null value in condition for column k", (None, 1))
    cql.refused(session, insert, cql.INVALID, "Invalid null value in condition for column c", (1, None))
    for values in ((UNSET_VALUE, 1), (1, UNSET_VALUE)):
        bound = insert.bind((1, 1))
        bound.values = [b"\0\0\0\1" if value is not UNSET_VALUE else UNSET_VALUE for value in values]
        cql.refused(session, bound, cql.INVALID, "Invalid unset value")


def test_wrong_bind_marker_types(session, table):
    name = table("k int PRIMARY KEY, l list<int>")
    bound = session.prepare(f"INSERT INTO {name} (k, l) VALUES (1, ?)").bind((None,))
    for bad in (b"\0\0\0\2\0\0\0\4\0\0\0\1", b"\xff\xff\xff\x00", b"\0", b"\0\0\0\1\x7f\xff\xff\xff"):
        bound.values = [bad]
        code, message = cql.refusal(session, bound)
        assert code == cql.INVALID, message


# Statements of CQL that ceto does not speak yet, or that Cassandra refuses by its configuration.
UNSUPPORTED = [
    "CREATE ROLE r",
    "GRANT SELECT ON ALL KEYSPACES TO r",
    "LIST ROLES",
    "CREATE TRIGGER tr ON {t} USING 'x'",
    "CREATE FUNCTION f (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'",
]


@pytest.mark.parametrize("statement", UNSUPPORTED)
def test_what_is_not_supported_is_refused(session, table, statement):
    name = table("k int PRIMARY KEY, v int")
    code, _ = cql.refusal(session, statement.format(t=name))
    assert code in (cql.SYNTAX, cql.INVALID, cql.UNAUTHORIZED, cql.CONFIG)


NOT_YET = [
    "CREATE MATERIALIZED VIEW {t}_v AS SELECT * FROM {t} WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)",
    "CREATE AGGREGATE {t}_a (int) SFUNC f STYPE int",
]


@pytest.mark.ceto_only("Cassandra speaks these; ceto says until it does that it does not")
@pytest.mark.parametrize("statement", NOT_YET)
def test_a_statement_that_comes_later_is_refused_and_not_ignored(session, table, statement):
    name = table("k int PRIMARY KEY, v int")
    code, message = cql.refusal(session, statement.format(t=name))
    assert code in (cql.SYNTAX, cql.INVALID)
    assert message
    assert cql.rows(session, f"SELECT * FROM {name}") == []



def test_a_prepared_statement_is_prepared_again_after_its_table_was_made_anew(session, keyspace):
    name = cql.unique("t")
    create = f"CREATE TABLE {name} (k int PRIMARY KEY, v text)"
    session.execute(create)
    insert = session.prepare(f"INSERT INTO {keyspace}.{name} (k, v) VALUES (?, ?)")
    session.execute(insert, (1, "a"))
    session.execute(f"DROP TABLE {name}")
    cql.refused(session, insert, cql.INVALID, f"table {name} does not exist", (2, "b"))
    session.execute(create)
    session.execute(insert, (3, "c"))
    assert cql.rows(session, f"SELECT * FROM {name}") == [(3, "c")]
    session.execute(f"DROP TABLE {name}")


def test_a_function_that_fails_tells_its_signature(session, table):
    name = table("k int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 0)")
    with pytest.raises(FunctionFailure) as failure:
        session.execute(f"SELECT k / v FROM {name}")
    raised = failure.value
    assert (raised.keyspace, raised.function, raised.arg_types) == ("system", "_divide", ["int", "int"])


def test_a_client_that_prepares_after_use_is_warned_once(server, keyspace, table):
    name = table("k int PRIMARY KEY, v int")
    with wire.Connection(server) as connection:
        connection.startup()

        def warnings(statement):
            frame = connection.ask(wire.PREPARE, wire.long_string(statement))
            return frame.body.count(b"`USE <keyspace>` with prepared statements") if frame.flags & 0x08 else 0

        assert warnings(f"SELECT * FROM {keyspace}.{name}") == 0
        connection.query(f"USE {keyspace}")
        told = [warnings(f"SELECT {column} FROM {name}") for column in ("k", "v")]
        assert told == [1, 0]
