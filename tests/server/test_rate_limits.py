"""per_partition_rate_limit: as many reads and writes of one partition as its table takes in a second, and an error of its own for the others."""

import struct
import time

import pytest

from harness import cql, wire
from harness.wire import Connection

pytestmark = pytest.mark.ceto_only("Cassandra has no such option")

LIMIT = 20
ATTEMPTS = 400
READ, WRITE = 0, 1


def options(**limits):
    return " WITH per_partition_rate_limit = {" + ", ".join(f"'{name}': {limit}" for name, limit in limits.items()) + "}"


def outcomes(ask, attempts=ATTEMPTS):
    """How many were taken, what the others were told, and the most that may be taken in the time it took."""
    taken, told, began = 0, set(), time.monotonic()
    for n in range(attempts):
        error = ask(n)
        if error is None:
            taken += 1
        else:
            told.add(error)
    return taken, told, LIMIT * (1 + time.monotonic() - began)


def refusal_of(session, statement, values):
    try:
        session.execute(statement, values)
    except Exception as failure:  # noqa: BLE001: the driver has a class for each code
        return cql.error_of(failure)
    return None


def test_a_partition_is_written_as_often_as_its_table_says_and_others_as_often_as_they_like(session, table):
    name = table("k int PRIMARY KEY, v int", options(max_writes_per_second=LIMIT))
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    taken, told, most = outcomes(lambda n: refusal_of(session, insert, (1, n)))
    assert LIMIT <= taken <= most
    # This driver does not know the error, so it is that of a configuration.
    assert {code for code, _ in told} == {cql.CONFIG}
    (words,) = {words for _, words in told}
    assert words == f"Per-partition rate limit reached: the table takes {LIMIT} writes of one partition in a second. Nothing was done"
    for k in range(100, 100 + ATTEMPTS):
        session.execute(insert, (k, k))
    select = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
    taken, told, _ = outcomes(lambda _: refusal_of(session, select, (1,)))
    assert (taken, told) == (ATTEMPTS, set()), "reads have no limit"


def test_what_was_refused_was_not_written(session, table):
    name = table("k int, c int, PRIMARY KEY (k, c)", options(max_writes_per_second=LIMIT))
    insert = session.prepare(f"INSERT INTO {name} (k, c) VALUES (1, ?)")
    taken = [c for c in range(ATTEMPTS) if refusal_of(session, insert, (c,)) is None]
    assert [c for (c,) in cql.rows(session, f"SELECT c FROM {name} WHERE k = 1")] == taken


def test_reads_of_a_partition_are_limited_from_memory_and_from_files(server, session, table):
    name = table("k int, c int, v int, PRIMARY KEY (k, c)", options(max_reads_per_second=LIMIT))
    for c in range(3):
        session.execute(f"INSERT INTO {name} (k, c, v) VALUES (1, {c}, {c})")
    point = session.prepare(f"SELECT v FROM {name} WHERE k = 1 AND c = ?")
    whole = session.prepare(f"SELECT v FROM {name} WHERE k = 1")
    asked = {"a row": lambda n: refusal_of(session, point, (n % 3,)), "a partition": lambda _: refusal_of(session, whole, ())}
    for where in ("memory", "files"):
        for what, ask in asked.items():
            taken, told, most = outcomes(ask)
            assert taken <= most, f"{what} from {where}"
            assert {code for code, _ in told} == {cql.CONFIG}, f"{what} from {where}"
        server.node.nodetool("flush")
    count = session.execute(f"SELECT count(*) FROM {name}").one()
    assert count == (3,), "a scan has no limit"


def test_batches_and_conditional_statements_have_no_limit(session, table):
    name = table("k int PRIMARY KEY, v int", options(max_writes_per_second=1, max_reads_per_second=1))
    for v in range(20):
        session.execute(f"BEGIN BATCH UPDATE {name} SET v = {v} WHERE k = 1; UPDATE {name} SET v = {v} WHERE k = 2; APPLY BATCH")
        session.execute(f"UPDATE {name} SET v = {v} WHERE k = 1 IF v = {v}")


def test_altering_the_limit_takes_effect_at_once(session, table):
    name = table("k int PRIMARY KEY, v int", options(max_writes_per_second=1))
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (1, ?)")
    _, told, _ = outcomes(lambda n: refusal_of(session, insert, (n,)), 10)
    assert told
    session.execute(f"ALTER TABLE {name} WITH per_partition_rate_limit = {{}}")
    taken, told, _ = outcomes(lambda n: refusal_of(session, insert, (n,)))
    assert (taken, told) == (ATTEMPTS, set())


def test_who_asked_for_the_error_is_told_what_was_limited_and_by_whom(server, keyspace, table):
    name = table("k int PRIMARY KEY, v int", options(max_writes_per_second=1, max_reads_per_second=1))
    with Connection(server) as connection:
        (code,) = wire.supported(connection.ask(wire.OPTIONS))["SCYLLA_RATE_LIMIT_ERROR"]
        code = int(code.removeprefix("ERROR_CODE="))
        connection.startup(SCYLLA_RATE_LIMIT_ERROR="")
        statements = {
            READ: f"SELECT v FROM {keyspace}.{name} WHERE k = 1",
            WRITE: f"INSERT INTO {keyspace}.{name} (k, v) VALUES (1, 1)",
        }
        for operation, statement in statements.items():
            answers = [connection.query(statement) for _ in range(10)]
            (refused, *_) = [answer for answer in answers if answer.opcode == wire.ERROR]
            assert refused.error[0] == code
            tail = refused.body[6 + len(refused.error[1].encode()) :]
            assert struct.unpack(">BB", tail) == (operation, 1), "one node coordinates and counts"
