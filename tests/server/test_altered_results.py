"""Prepared statements whose result an ALTER changes: no client may read rows by metadata from before it."""

import struct

import pytest

from harness import cql, wire
from harness.wire import Connection

ROWS, PREPARED = 2, 4
METADATA_CHANGED, NO_METADATA = 0x8, 0x4
WITH_VALUES, SKIP_METADATA, ONE = 0x01, 0x02, 1
WARNINGS = 0x08  # of a frame


def prepare(connection, statement):
    """The id of the statement, and from version 5 that of its result."""
    body = wire.long_string(statement) + (b"\0\0\0\0" if connection.version >= 5 else b"")
    answer = connection.ask(wire.PREPARE, body)
    at = 0
    if answer.flags & WARNINGS:
        (count,) = struct.unpack_from(">H", answer.body)
        at = 2
        for _ in range(count):
            at += 2 + struct.unpack_from(">H", answer.body, at)[0]
    assert answer.opcode == wire.RESULT and struct.unpack_from(">i", answer.body, at) == (PREPARED,), answer
    ids, at = [], at + 4
    for _ in range(2 if connection.version >= 5 else 1):
        (length,) = struct.unpack_from(">H", answer.body, at)
        ids.append(answer.body[at + 2 : at + 2 + length])
        at += 2 + length
    return ids


def execute(connection, ids):
    """The answer to EXECUTE of a client that has the metadata already."""
    flags = struct.pack(">I" if connection.version >= 5 else ">B", SKIP_METADATA)
    body = b"".join(struct.pack(">H", len(id)) + id for id in ids) + struct.pack(">H", ONE) + flags
    return connection.ask(wire.EXECUTE, body)


def rows(answer):
    """What RESULT rows says of its metadata, and its column count."""
    assert answer.opcode == wire.RESULT, answer.error
    kind, flags, columns = struct.unpack_from(">iii", answer.body)
    assert kind == ROWS
    return flags & (METADATA_CHANGED | NO_METADATA), columns


@pytest.fixture
def open_connection(server):
    opened = []

    def make(version):
        opened.append(Connection(server, version))
        opened[-1].startup()
        return opened[-1]

    yield make
    for connection in opened:
        connection.socket.close()


@pytest.mark.parametrize("change", ["ADD c int", "DROP v"])
def test_a_client_of_version_4_is_told_to_prepare_again(session, keyspace, table, open_connection, change):
    name = table("k int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1)")
    statement = f"SELECT * FROM {keyspace}.{name}"
    connection = open_connection(4)
    ids = prepare(connection, statement)
    assert rows(execute(connection, ids)) == (NO_METADATA, 2)
    session.execute(f"ALTER TABLE {name} {change}")
    assert execute(connection, ids).error[0] == cql.UNPREPARED
    # A driver takes a statement that has another id for another one.
    assert prepare(connection, statement) == ids
    assert rows(execute(connection, ids))[1] == (3 if change.startswith("ADD") else 1)


@pytest.mark.ceto_only("Cassandra sends the second client rows that it reads by stale metadata (CASSANDRA-10786)")
def test_a_client_that_did_not_prepare_again_gets_the_metadata_with_the_rows(session, keyspace, table, open_connection):
    name = table("k int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1)")
    statement = f"SELECT * FROM {keyspace}.{name}"
    first, second = open_connection(4), open_connection(4)
    ids = prepare(first, statement)
    assert prepare(second, statement) == ids
    session.execute(f"ALTER TABLE {name} ADD c int")
    assert execute(first, ids).error[0] == cql.UNPREPARED
    prepare(first, statement)
    assert rows(execute(second, ids)) == (0, 3)


def test_a_client_of_version_5_learns_of_a_new_field(session, keyspace, table, open_connection):
    udt = cql.unique("address")
    session.execute(f"CREATE TYPE {udt} (street text)")
    name = table(f"k int PRIMARY KEY, v frozen<{udt}>")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, {{street: 'Main'}})")
    statement = f"SELECT v FROM {keyspace}.{name}"
    connection = open_connection(5)
    before = prepare(connection, statement)
    session.execute(f"ALTER TYPE {udt} ADD city text")
    after = prepare(connection, statement)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert rows(execute(connection, before)) == (METADATA_CHANGED, 1)
    assert rows(execute(connection, after)) == (NO_METADATA, 1)


def use(connection, keyspace):
    answer = connection.ask(wire.QUERY, wire.long_string(f"USE {keyspace}") + struct.pack(">HB", ONE, 0))
    assert answer.opcode == wire.RESULT, answer.error


def test_a_statement_that_names_its_keyspace_has_one_id(keyspace, table, open_connection):
    """A driver that prepares again on a connection that uses another keyspace breaks when the id is another."""
    name = table("k int PRIMARY KEY, v int")
    statements = [
        f"SELECT v FROM {keyspace}.{name}",
        f"INSERT INTO {keyspace}.{name} (k, v) VALUES (?, 1)",
        f"BEGIN BATCH DELETE FROM {keyspace}.{name} WHERE k = 1; UPDATE {keyspace}.{name} SET v = 2 WHERE k = 1; APPLY BATCH",
    ]
    connection = open_connection(4)
    before = [prepare(connection, statement) for statement in statements]
    for used in (keyspace, "system"):
        other = open_connection(4)
        use(other, used)
        assert [prepare(other, statement) for statement in statements] == before
    assert rows(execute(connection, before[0])) == (NO_METADATA, 1)


def test_a_statement_without_a_keyspace_has_one_id_for_each(session, keyspace, table, open_connection):
    name = table("k int PRIMARY KEY, v int")
    other_keyspace = cql.unique("other")
    session.execute(f"CREATE KEYSPACE {other_keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.execute(f"CREATE TABLE {other_keyspace}.{name} (k int PRIMARY KEY, v int, w int)")
    first, second = open_connection(4), open_connection(4)
    use(first, keyspace)
    use(second, other_keyspace)
    ids = [prepare(connection, f"SELECT * FROM {name}") for connection in (first, second)]
    assert ids[0] != ids[1]
    assert [rows(execute(first, of)) for of in ids] == [(NO_METADATA, 2), (NO_METADATA, 3)]
    session.execute(f"DROP KEYSPACE {other_keyspace}")


def execute_with(connection, ids, *values):
    """The answer to EXECUTE with bound values."""
    flags = struct.pack(">I" if connection.version >= 5 else ">B", WITH_VALUES)
    bound = struct.pack(">H", len(values)) + b"".join(struct.pack(">i", len(value)) + value for value in values)
    body = b"".join(struct.pack(">H", len(id)) + id for id in ids) + struct.pack(">H", ONE) + flags + bound
    return connection.ask(wire.EXECUTE, body)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_is_told_when_a_type_of_its_values_changes(session, keyspace, table, open_connection, version):
    """Else it would go on to write values without the new field."""
    name, udt = table("k int PRIMARY KEY, v int"), cql.unique("changing")
    session.execute(f"CREATE TYPE {udt} (a int)")
    session.execute(f"ALTER TABLE {name} ADD (f frozen<{udt}>, u {udt}, l list<frozen<{udt}>>)")
    connection = open_connection(version)
    one, key = struct.pack(">ii", 4, 1), struct.pack(">i", 1)
    of_type = [
        (f"INSERT INTO {keyspace}.{name} (f, k) VALUES (?, ?)", one),
        (f"UPDATE {keyspace}.{name} SET u = ? WHERE k = ?", one),
        (f"UPDATE {keyspace}.{name} SET l = l + ? WHERE k = ?", struct.pack(">ii", 1, 8) + one),
        (f"BEGIN BATCH INSERT INTO {keyspace}.{name} (f, k) VALUES (?, ?); APPLY BATCH", one),
        (f"SELECT k FROM {keyspace}.{name} WHERE f = ? AND k = ? ALLOW FILTERING", one),
    ]
    prepared = {text: prepare(connection, text) for text, _ in of_type}
    for change in (f"ALTER TYPE {udt} ADD b int", f"ALTER TYPE {udt} RENAME b TO c"):
        session.execute(change)
        for text, value in of_type:
            refused = execute_with(connection, prepared[text], value, key)
            assert refused.opcode == wire.ERROR and refused.error[0] == cql.UNPREPARED, (change, text)
            # A driver prepares again, and wants the same id.
            assert prepare(connection, text)[0] == prepared[text][0]
            assert execute_with(connection, prepared[text], value, key).opcode == wire.RESULT, (change, text)
    session.execute(f"DROP TABLE {name}")
    session.execute(f"DROP TYPE {udt}")


@pytest.mark.ceto_only("Cassandra forgets every statement of an altered table")
def test_other_statements_stay_prepared(session, keyspace, table, open_connection):
    name = table("k int PRIMARY KEY, v int, w int")
    connection = open_connection(4)
    text = f"INSERT INTO {keyspace}.{name} (k, v) VALUES (?, ?)"
    ids, number = prepare(connection, text), struct.pack(">i", 1)
    for change in ("ADD x int", "DROP w", "ADD w int", "WITH comment = 'c'"):
        session.execute(f"ALTER TABLE {name} {change}")
        assert execute_with(connection, ids, number, number).opcode == wire.RESULT, change
    session.execute(f"ALTER TABLE {name} DROP v")
    assert execute_with(connection, ids, number, number).error[0] == cql.UNPREPARED
