"""Pages: whatever their size, together they are the answer; their state is opaque and may move to another session."""

import struct

import pytest
from cassandra.query import SimpleStatement

from harness import cql, wire


@pytest.fixture(scope="module")
def pages_table(session):
    """Partitions of 0 to 9 rows, some with a static column only, and deleted rows between."""
    name = cql.unique("pages")
    session.execute(f"CREATE TABLE {name} (p int, c int, s int static, v text, PRIMARY KEY (p, c))")
    for p in range(10):
        for c in range(p):
            session.execute(f"INSERT INTO {name} (p, c, v) VALUES ({p}, {c}, 'v{p}.{c}')")
        if p % 3 == 0:
            session.execute(f"UPDATE {name} SET s = {p} WHERE p = {p}")
        session.execute(f"DELETE FROM {name} WHERE p = {p} AND c = 2")
    session.execute(f"DELETE FROM {name} WHERE p = 5 AND c >= 1 AND c < 4")
    yield name
    session.execute(f"DROP TABLE {name}")


SELECTS = [
    "SELECT * FROM {t}",
    "SELECT v FROM {t} WHERE p = 9",
    "SELECT v FROM {t} WHERE p = 9 ORDER BY c DESC",
    "SELECT v FROM {t} WHERE p = 9 AND c > 2 AND c < 8",
    "SELECT v FROM {t} WHERE p = 9 AND c IN (0, 1, 2, 5, 7)",
    "SELECT p, c, s FROM {t} WHERE p IN (0, 3, 6, 9)",
    "SELECT DISTINCT p, s FROM {t}",
    "SELECT * FROM {t} LIMIT 11",
    "SELECT * FROM {t} PER PARTITION LIMIT 2",
    "SELECT * FROM {t} WHERE c > 4 ALLOW FILTERING",
    "SELECT * FROM {t} WHERE v = 'v7.6' ALLOW FILTERING",
    "SELECT * FROM {t} WHERE token(p) > 0",
    "SELECT COUNT(*) FROM {t}",
    "SELECT * FROM {t} WHERE p = 77",
]


@pytest.mark.parametrize("fetch_size", [1, 2, 7, 1000])
@pytest.mark.parametrize("select", SELECTS)
def test_pages_together_are_the_answer(session, pages_table, select, fetch_size):
    select = select.format(t=pages_table)
    whole = cql.rows(session, SimpleStatement(select, fetch_size=None))
    assert cql.rows(session, SimpleStatement(select, fetch_size=fetch_size)) == whole
    prepared = session.prepare(select)
    prepared.fetch_size = fetch_size
    assert cql.rows(session, prepared) == whole


@pytest.mark.parametrize("fetch_size", [1, 2, 7])
def test_a_page_holds_no_more_rows_than_asked_for(session, pages_table, fetch_size):
    answer = session.execute(SimpleStatement(f"SELECT * FROM {pages_table}", fetch_size=fetch_size))
    seen = 0
    while True:
        assert len(answer.current_rows) <= fetch_size
        seen += len(answer.current_rows)
        if not answer.has_more_pages:
            break
        answer.fetch_next_page()
    ((count,),) = cql.rows(session, f"SELECT COUNT(*) FROM {pages_table}")
    assert seen == count


def test_the_paging_state_resumes_in_another_session(server, keyspace, session, pages_table):
    select = SimpleStatement(f"SELECT * FROM {pages_table}", fetch_size=5)
    whole = cql.rows(session, SimpleStatement(f"SELECT * FROM {pages_table}", fetch_size=None))
    seen, state = [], None
    while True:
        with cql.cluster(server) as cluster:
            answer = cluster.connect(keyspace).execute(select, paging_state=state)
            seen += [tuple(row) for row in answer.current_rows]
            state = answer.paging_state
        if state is None:
            break
    assert seen == whole


def test_rows_written_between_two_pages_do_not_disturb(session, table):
    name = table("p int, c int, PRIMARY KEY (p, c)")
    for c in range(0, 100, 2):
        session.execute(f"INSERT INTO {name} (p, c) VALUES (1, {c})")
    answer = session.execute(SimpleStatement(f"SELECT c FROM {name} WHERE p = 1", fetch_size=10))
    first = [c for (c,) in answer.current_rows]
    session.execute(f"INSERT INTO {name} (p, c) VALUES (1, 1)")
    session.execute(f"INSERT INTO {name} (p, c) VALUES (1, 51)")
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c = 18")
    session.execute(f"DELETE FROM {name} WHERE p = 1 AND c = 20")
    rest = []
    while answer.has_more_pages:
        answer.fetch_next_page()
        rest += [c for (c,) in answer.current_rows]
    assert first == list(range(0, 20, 2))
    assert rest == sorted([*range(22, 100, 2), 51])


@pytest.mark.parametrize("state", [b"nonsense", b"\xff" * 64, b"\0"], ids=["text", "ones", "zero"])
def test_a_forged_paging_state_is_refused(server, keyspace, pages_table, state):
    # By hand: at a protocol error the driver drops its connections.
    with wire.Connection(server) as connection:
        connection.startup()
        select = f"SELECT * FROM {keyspace}.{pages_table}"
        code, message = connection.query(select, page_size=2, paging_state=state).error
        assert code == cql.PROTOCOL
        assert "Invalid value for the paging state" in message
        assert connection.query(select, stream=2).opcode == wire.RESULT, "the connection goes on"


def page(connection, select, page_size, state=None):
    """The number of rows of a page, and the state of the next one."""
    answer = connection.query(select, page_size=page_size, paging_state=state)
    assert answer.opcode == wire.RESULT, answer.error
    body = answer.body
    if answer.flags & wire.WARNED:
        (count,), at = struct.unpack_from(">H", body), 2
        for _ in range(count):
            at += 2 + struct.unpack_from(">H", body, at)[0]
        body = body[at:]
    if answer.flags & wire.CUSTOM_PAYLOAD:
        (count,), at = struct.unpack_from(">H", body), 2
        for _ in range(count):
            at += 2 + struct.unpack_from(">H", body, at)[0]
            at += 4 + max(struct.unpack_from(">i", body, at)[0], 0)
        body = body[at:]
    kind, flags, columns = struct.unpack_from(">iii", body)
    assert (kind, columns) == (2, 1), "one column of a result"
    at, next_state = 12, None
    if flags & 0x2:
        (length,) = struct.unpack_from(">i", body, at)
        at += 4 + length
        next_state = body[at - length : at]
    for _ in range(3):  # keyspace, table, column
        at += 2 + struct.unpack_from(">H", body, at)[0]
    return struct.unpack_from(">i", body, at + 2)[0], next_state


@pytest.fixture(scope="module")
def deleted_rows(session):
    """A partition of more deleted rows than a page meets without ending, and one living row after them."""
    name = cql.unique("deleted")
    session.execute(f"CREATE TABLE {name} (p int, c int, v int, PRIMARY KEY (p, c))")
    delete = session.prepare(f"BEGIN UNLOGGED BATCH {f'DELETE FROM {name} WHERE p = 1 AND c = ?;' * 100} APPLY BATCH")
    for first in range(0, 12_000, 100):
        session.execute(delete, list(range(first, first + 100)))
    session.execute(f"INSERT INTO {name} (p, c, v) VALUES (1, 20000, 7)")
    yield name
    session.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("where", ["WHERE p = 1", "", "WHERE v = 7 ALLOW FILTERING"])
def test_a_row_after_many_deleted_ones_is_on_the_first_page(session, deleted_rows, where):
    """Drivers of Cassandra take a page without rows for the last one."""
    select = SimpleStatement(f"SELECT v FROM {deleted_rows} {where}", fetch_size=5000)
    assert session.execute(select).current_rows == [(7,)]


@pytest.mark.ceto_only("Cassandra ends no page at tombstones")
@pytest.mark.parametrize("option", ["SCYLLA_RATE_LIMIT_ERROR", "TABLETS_ROUTING_V1"])
def test_a_driver_of_scylla_gets_an_empty_page_first(server, keyspace, deleted_rows, option):
    with wire.Connection(server) as connection:
        connection.startup(**{option: ""})
        select = f"SELECT v FROM {keyspace}.{deleted_rows} WHERE p = 1"
        rows, state = page(connection, select, 5000)
        assert rows == 0 and state is not None
        assert page(connection, select, 5000, state) == (1, None)


@pytest.mark.ceto_only("Cassandra answers with rows from the middle of the other result, or with a NullPointerException")
def test_the_paging_state_of_another_statement_is_refused(server, keyspace, pages_table):
    table = f"{keyspace}.{pages_table}"
    select = f"SELECT v FROM {table} WHERE p = 9"
    with wire.Connection(server) as connection:
        connection.startup()
        _, state = page(connection, select, 2)
        assert page(connection, f"SELECT v\n  FROM {table} /* again */ WHERE p=9;", 3, state)[0] == 3
        for other in [
            f"SELECT v FROM {table} WHERE p = 8",
            f"SELECT v FROM {table} WHERE p = 9 AND c > 5",
            f"SELECT v FROM {table} WHERE p = 9 ORDER BY c DESC",
            f"SELECT v FROM {table}",
            "SELECT key FROM system.local",
            "SELECT keyspace_name FROM system_schema.tables",
        ]:
            code, message = connection.query(other, page_size=2, paging_state=state).error
            assert code == cql.PROTOCOL and "Invalid value for the paging state" in message, other
