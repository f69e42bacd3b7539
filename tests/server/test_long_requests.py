"""A request with very many values gives way to others: on its connection, and on its shard."""

import pytest

from harness import cql, wire
from harness.wire import Connection

pytestmark = pytest.mark.ceto_only("Cassandra executes requests on a pool of threads")

QUERY = 0x07
ERROR = 0x00
VALUES = 200_000
LONG, SHORT = 1, 2

NUMBERS = ",".join(map(str, range(VALUES)))
ROWS = " ".join(f"INSERT INTO {{t}} (k, c) VALUES (2, {c});" for c in range(10_000))
STATEMENTS = {
    "list": f"INSERT INTO {{t}} (k, c, l) VALUES (1, 1, [{NUMBERS}])",
    "set": f"UPDATE {{t}} SET s = s + {{{{{NUMBERS}}}}} WHERE k = 1 AND c = 1",
    "json": f'INSERT INTO {{t}} JSON \'{{{{"k": 1, "c": 2, "l": [{NUMBERS}]}}}}\'',
    "rows": f"DELETE FROM {{t}} WHERE k = 1 AND c IN ({NUMBERS})",
    "condition": f"UPDATE {{t}} SET v = 1 WHERE k = 1 AND c = 1 IF v IN ({NUMBERS})",
    "batch": f"BEGIN UNLOGGED BATCH {ROWS} APPLY BATCH",
}


@pytest.fixture(scope="module")
def table(session):
    name = cql.unique("long")
    session.execute(f"CREATE TABLE {name} (k int, c int, v int, l list<int>, s set<int>, PRIMARY KEY (k, c))")
    yield f"{session.keyspace}.{name}"
    session.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("statement", STATEMENTS)
def test_short_requests_do_not_wait_until_a_long_one_is_done(server, table, statement):
    short = f"SELECT v FROM {table} WHERE k = 3 AND c = 1"
    with Connection(server) as connection:
        connection.startup()
        long = wire.frame(QUERY, wire.query_body(STATEMENTS[statement].format(t=table)), LONG, 0, connection.version)
        after = wire.frame(QUERY, wire.query_body(short), SHORT, 0, connection.version)
        # One write: the short request waits in the socket when the shard begins the long one, however fast either is.
        connection.send_frames(long + after)
        streams = []
        for _ in range(2):
            answer = connection.recv()
            assert answer.opcode != ERROR, answer.error
            streams.append(answer.stream)
        assert streams == [SHORT, LONG], "the short request waited until the long one was done"


def test_the_values_of_a_long_request_are_all_there(session, table):
    session.execute(f"INSERT INTO {table} (k, c, l, s) VALUES (5, 1, [{NUMBERS}], {{{NUMBERS}}})")
    row = session.execute(f"SELECT l, s FROM {table} WHERE k = 5").one()
    assert row.l == list(range(VALUES)) and set(row.s) == set(range(VALUES))
    session.execute(f"UPDATE {table} SET l = l - [{NUMBERS}], s = s - {{1,2,3}} WHERE k = 5 AND c = 1")
    row = session.execute(f"SELECT l, s FROM {table} WHERE k = 5").one()
    assert row.l is None and len(row.s) == VALUES - 3
