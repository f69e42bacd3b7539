"""Bytes that no driver sends. Each costs its sender an error or its connection; everyone else goes on."""

import contextlib
import random
import re
import socket
import struct
import time

import pytest

from harness import cql, wire
from harness.cluster import eventually
from harness.wire import Closed, Connection

SELECT = "SELECT key FROM system.local"
UNKNOWN_ID = b"sixteen bytes id"


@pytest.fixture(autouse=True)
def others_go_on(request, server, session):
    """A connection opened before the test, and one opened after it, both work."""
    with Connection(server) as before:
        before.startup()
        yield
        assert before.query(SELECT).opcode == wire.RESULT
    with Connection(server) as after:
        after.startup()
        assert after.query(SELECT).opcode == wire.RESULT
    assert cql.rows(session, SELECT) == [("local",)]


def frame_of(opcode, body=b"", **options):
    return lambda connection: connection.send(opcode, body, **options)


def raw(data):
    return lambda connection: connection.send_bytes(data)


def corrupted(data, at):
    data = bytearray(data)
    data[at] ^= 0x01
    return bytes(data)


V5_SEGMENT = wire.segment(wire.frame(wire.QUERY, wire.query_body(SELECT, 5), version=5))

# These are for authors of drivers, who look at the code; the words only have to name the fault, so a pattern takes
# Cassandra's and ceto's.
WRONG_DIRECTION = r"Wrong protocol direction|opcode of a request"

# each: protocol version, what is sent after STARTUP, what the protocol error says
PROTOCOL_ERRORS = {
    "garbage": (4, raw(b"\xde\xad\xbe\xef" * 256), r"Invalid or unsupported protocol version \(94\)"),
    "an unknown opcode": (4, frame_of(0x42), r"Unknown opcode (66|0x42)"),
    "an opcode of answers": (4, frame_of(wire.RESULT, b"\0\0\0\1"), WRONG_DIRECTION),
    "the direction bit of answers": (
        4,
        frame_of(wire.QUERY, wire.query_body(SELECT), version=0x84),
        WRONG_DIRECTION,
    ),
    "a string longer than its frame": (
        4,
        frame_of(wire.QUERY, struct.pack(">i", 1000) + b"select"),
        r"Not enough bytes to read|Truncated|expected a length",
    ),
    "a string of negative length": (
        4,
        frame_of(wire.QUERY, struct.pack(">i", -5)),
        r"Not enough bytes to read|Truncated|expected a length",
    ),
    "an empty body": (4, frame_of(wire.QUERY), r"Not enough bytes to read|Truncated|expected a length"),
    "text that is not UTF-8": (4, frame_of(wire.QUERY, struct.pack(">i", 3) + b"\xff\xfe\xfd\0\1\0"), r"UTF-?8"),
    "an unknown consistency level": (
        4,
        frame_of(wire.QUERY, wire.query_body(SELECT, consistency=0x77)),
        r"consistency.*119|119.*consistency",
    ),
    "a second STARTUP": (
        4,
        frame_of(wire.STARTUP, wire.string_map({"CQL_VERSION": "3.0.0"})),
        r"Unexpected message STARTUP",
    ),
    "another version, lower": (
        4,
        frame_of(wire.QUERY, wire.query_body(SELECT), version=3),
        "Invalid message version. Got 3/v3 but previous messages on this connection had version 4/v4",
    ),
    "another version, higher": (
        4,
        frame_of(wire.QUERY, wire.query_body(SELECT, 5), version=5),
        "Invalid message version. Got 5/v5 but previous messages on this connection had version 4/v4",
    ),
    "an unknown event": (4, frame_of(wire.REGISTER, b"\0\1" + wire.string("NOTHING")), r"'NOTHING'"),
    "an unknown kind of batch": (4, frame_of(wire.BATCH, b"\x09\0\0\0\1\0"), r"(?i)invalid batch.* 9"),
    "a custom payload before version 4": (
        3,
        frame_of(wire.QUERY, struct.pack(">H", 0) + wire.query_body(SELECT, 3), flags=wire.CUSTOM_PAYLOAD),
        "Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4",
    ),
    "a segment with a damaged header": (
        5,
        raw(corrupted(V5_SEGMENT, 1)),
        r"CRC mismatch detected in frame header|the header has checksum",
    ),
    "a segment with a damaged payload": (
        5,
        raw(corrupted(V5_SEGMENT, -6)),
        r"CRC mismatch detected in frame body|the payload has checksum",
    ),
    "a frame where a segment is due": (
        5,
        raw(wire.frame(wire.QUERY, wire.query_body(SELECT, 5), version=5)),
        r"CRC mismatch detected in frame header|the header has checksum",
    ),
}


@pytest.mark.parametrize("what", PROTOCOL_ERRORS)
def test_a_protocol_error_is_said(server, what):
    version, send, words = PROTOCOL_ERRORS[what]
    with Connection(server, version) as connection:
        connection.startup()
        send(connection)
        code, message = connection.recv().error
        assert code == cql.PROTOCOL, message
        assert re.search(words, message), f"{message!r} does not say {words!r}"


# The same before STARTUP.
FIRST_MESSAGES = {
    "garbage": (raw(b"\xde\xad\xbe\xef" * 256), r"Invalid or unsupported protocol version \(94\)"),
    "HTTP": (raw(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"), r"Invalid or unsupported protocol version \(71\)"),
    "STARTUP without a version": (
        frame_of(wire.STARTUP, wire.string_map({})),
        "Missing value CQL_VERSION in STARTUP message",
    ),
    "STARTUP of CQL 2": (
        frame_of(wire.STARTUP, wire.string_map({"cql_version": "2.0.0"})),
        r"CQL version 2.0.0 is not supported by the binary protocol \(supported version are >= 3.0.0\)",
    ),
    "STARTUP cut short": (
        frame_of(wire.STARTUP, b"\0\5\0\1a"),
        r"Not enough bytes to read|Truncated|expected a length",
    ),
    "an answer to a password that was not asked for": (
        frame_of(wire.AUTH_RESPONSE, struct.pack(">i", 4) + b"\0a\0b"),
        "Unexpected message AUTH_RESPONSE, expecting STARTUP or OPTIONS",
    ),
}


@pytest.mark.parametrize("what", FIRST_MESSAGES)
def test_a_wrong_first_message_is_refused(server, what):
    send, words = FIRST_MESSAGES[what]
    with Connection(server) as connection:
        send(connection)
        code, message = connection.recv().error
        assert code == cql.PROTOCOL, message
        assert re.search(words, message), f"{message!r} does not say {words!r}"


# Where Cassandra answers with an internal error of its own, closes without a word, or ends itself.
CETO_ALONE = {
    "a query without a consistency level": (frame_of(wire.QUERY, wire.long_string(SELECT)), {}),
    "a batch of 65,535 statements that are not there": (frame_of(wire.BATCH, b"\0\xff\xff"), {}),
    "65,535 values that are not there": (frame_of(wire.QUERY, wire.long_string(SELECT) + b"\0\1\1\xff\xff"), {}),
    "a value of 2 GB that is not there": (
        frame_of(wire.QUERY, wire.long_string(SELECT) + b"\0\1\1\0\1\x7f\xff\xff\xff"),
        {},
    ),
    "compressed garbage": (frame_of(wire.QUERY, b"\xff" * 40, flags=1), {"COMPRESSION": "lz4"}),
    "a frame that claims to hold 2 GB when decompressed": (
        frame_of(wire.QUERY, b"\x7f\xff\xff\xff" + b"\0" * 40, flags=1),
        {"COMPRESSION": "lz4"},
    ),
    "compressed snappy garbage": (frame_of(wire.QUERY, b"\xff" * 40, flags=1), {"COMPRESSION": "snappy"}),
    "a frame of 512 MB, announced": (raw(wire.HEADER.pack(4, 0, 1, wire.QUERY, (1 << 29) - 1) + b"x" * 4096), {}),
    "a frame of 4 GB, announced": (raw(wire.HEADER.pack(4, 0, 1, wire.QUERY, (1 << 32) - 1)), {}),
}
RESIDENT_GROWTH_MAX = 64 << 20


@pytest.mark.ceto_only("Cassandra answers these with an internal error, with silence, or by running out of memory")
@pytest.mark.parametrize("what", CETO_ALONE)
def test_a_lie_costs_one_connection(server, what):
    send, options = CETO_ALONE[what]
    before = server.node.resident_bytes()
    with Connection(server) as connection:
        assert connection.startup(**options).opcode == wire.READY
        with contextlib.suppress(Closed, ConnectionError):
            send(connection)
            header = wire.HEADER.unpack(connection.recv_bytes(wire.HEADER.size))
            body = connection.recv_bytes(header[4])
            assert header[3] == wire.ERROR, f"opcode {header[3]:#x} instead of ERROR"
            if not header[1] & wire.COMPRESSED:
                assert wire.Frame(*header[:4], body).error[0] in (cql.PROTOCOL, cql.INVALID)
    assert server.node.resident_bytes() - before < RESIDENT_GROWTH_MAX


def test_a_frame_may_arrive_byte_by_byte(server):
    with Connection(server) as connection:
        connection.startup()
        for byte in wire.frame(wire.QUERY, wire.query_body(SELECT)):
            connection.send_bytes(bytes([byte]))
        assert connection.recv().opcode == wire.RESULT


def test_a_v5_frame_may_arrive_in_several_segments(server):
    data = wire.frame(wire.QUERY, wire.query_body(SELECT, 5), version=5)
    with Connection(server, 5) as connection:
        connection.startup()
        connection.send_bytes(wire.segment(data[:20], self_contained=False))
        connection.send_bytes(wire.segment(data[20:], self_contained=False))
        assert connection.recv().opcode == wire.RESULT


@pytest.mark.parametrize("version", [4, 5])
def test_a_request_above_the_limit_is_refused_and_the_connection_stays(server, version):
    with Connection(server, version) as connection:
        connection.startup()
        connection.send(wire.QUERY, wire.long_string("x" * (16 << 20)) + b"\0" * 7, stream=7)
        answer = connection.recv()
        code, message = answer.error
        assert (answer.stream, code) == (7, cql.INVALID), message
        assert re.search(r"Request is too big|exceeds allowed maximum", message)
        # Cassandra answers the next request of version 5 alone.
        if server.is_ceto or version == 5:
            assert connection.query(SELECT, stream=8).opcode == wire.RESULT


@pytest.mark.parametrize("sent", [1, 8, 9, 20])
def test_a_client_may_leave_in_the_middle_of_a_frame(server, sent):
    for _ in range(50):
        with Connection(server) as connection:
            connection.startup()
            connection.send_bytes(wire.frame(wire.QUERY, wire.query_body(SELECT))[:sent])


def test_a_client_may_leave_without_reading_its_answers(server):
    for _ in range(20):
        with Connection(server) as connection:
            connection.startup()
            for stream in range(100):
                connection.send(wire.QUERY, wire.query_body("SELECT * FROM system_schema.columns"), stream)


def test_many_frames_in_one_packet_are_all_answered(server):
    with Connection(server) as connection:
        connection.startup()
        streams = range(1000)
        body = wire.query_body(SELECT)
        connection.send_bytes(b"".join(wire.frame(wire.QUERY, body, stream) for stream in streams))
        answers = [connection.recv() for _ in streams]
        assert {answer.opcode for answer in answers} == {wire.RESULT}
        assert sorted(answer.stream for answer in answers) == list(streams)


def test_an_unknown_prepared_id_is_answered_with_that_id(server):
    for version, body in (
        (4, struct.pack(">H", 16) + UNKNOWN_ID + b"\0\1\0"),
        (5, (struct.pack(">H", 16) + UNKNOWN_ID) * 2 + b"\0\1\0\0\0\0"),
    ):
        with Connection(server, version) as connection:
            connection.startup()
            answer = connection.ask(wire.EXECUTE, body)
            code, message = answer.error
            assert code == cql.UNPREPARED
            assert f"Prepared query with ID {UNKNOWN_ID.hex()} not found" in message
            assert answer.body.endswith(struct.pack(">H", 16) + UNKNOWN_ID)


def moment(level, now=None):
    """What ends a QUERY or BATCH of version 5: the consistency level, and the moment that the client names, in seconds."""
    return struct.pack(">HI", level, 0 if now is None else 0x100) + (b"" if now is None else struct.pack(">i", now))


def number_of(answer, width):
    """The value of one row with one column, or nothing."""
    assert answer.opcode == wire.RESULT, answer.error
    length = answer.body[-width - 4 : -width]
    return int.from_bytes(answer.body[-width:], "big") if length == struct.pack(">i", width) else None


def test_a_client_may_name_the_moment_of_ttls_and_moves_no_timestamps_by_it(server, keyspace, table):
    name = f"{keyspace}.{table('k int PRIMARY KEY, v int')}"
    insert = f"INSERT INTO {name} (k, v) VALUES ({{}}, 1)"
    with Connection(server, 5) as connection:
        connection.startup()

        def ask(statement, now=None):
            return connection.ask(wire.QUERY, wire.long_string(statement) + moment(1, now))

        def batch(statement, now):
            said = struct.pack(">BH", 0, 1) + b"\0" + wire.long_string(statement) + struct.pack(">H", 0)
            return connection.ask(wire.BATCH, said + moment(1, now))

        began = time.time()
        writes = (ask, insert), (ask, f"{insert} IF NOT EXISTS"), (batch, insert), (batch, f"{insert} IF NOT EXISTS")
        for k, (send, statement) in enumerate(writes):
            assert send(f"{statement.format(k)} USING TTL 20", 100).opcode == wire.RESULT
            assert number_of(ask(f"SELECT ttl(v) FROM {name} WHERE k = {k}", 110), 4) == 10
            assert number_of(ask(f"SELECT v FROM {name} WHERE k = {k}"), 4) is None
        # What is to come for one client is not so for the others.
        ask(insert.format(10), 2_000_000_000)
        for k in range(11, 20):
            ask(insert.format(k))
        for k in range(10, 20):
            written = number_of(ask(f"SELECT writetime(v) FROM {name} WHERE k = {k}"), 8)
            assert began - 60 < written / 1e6 < time.time() + 60
        now = number_of(ask(f"SELECT toUnixTimestamp(now()) FROM {name} WHERE k = 10", 100), 8)
        assert began - 60 < now / 1e3 < time.time() + 60


def test_a_vector_of_collections_has_the_name_that_drivers_know(server, keyspace, table):
    name = table("k int PRIMARY KEY, v vector<set<float>, 2>")
    with Connection(server) as connection:
        connection.startup()
        answer = connection.query(f"SELECT v FROM {keyspace}.{name}")
        package = "org.apache.cassandra.db.marshal"
        assert wire.string(f"{package}.VectorType({package}.SetType({package}.FloatType) , 2)") in answer.body


def test_clients_of_versions_1_and_2_can_read_why_they_are_refused(server):
    for version in (1, 2):
        with Connection(server) as connection:
            startup = wire.string_map({"CQL_VERSION": "3.0.0"})
            connection.send_bytes(struct.pack(">BBBBI", version, 0, 0, wire.STARTUP, len(startup)) + startup)
            answered, _, _, opcode, length = struct.unpack(">BBBBI", connection.recv_bytes(8))
            assert (answered, opcode) == (0x80 | version, wire.ERROR)
            assert f"Invalid or unsupported protocol version ({version})".encode() in connection.recv_bytes(length)


def test_of_a_dropped_keyspace_clients_are_told_table_by_table(server, session):
    name = cql.unique("told")
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.execute(f"CREATE TYPE {name}.pair (a int, b int)")
    session.execute(f"CREATE TABLE {name}.one (k int PRIMARY KEY, v frozen<pair>)")
    with Connection(server) as connection:
        connection.startup()
        assert connection.ask(wire.REGISTER, b"\0\1" + wire.string("SCHEMA_CHANGE")).opcode == wire.READY
        session.execute(f"DROP KEYSPACE {name}")
        told = []
        while len(told) < 3:
            event = connection.recv()
            if wire.string(name) in event.body:
                told.append(event.body.removeprefix(wire.string("SCHEMA_CHANGE") + wire.string("DROPPED")))
        keyspace = wire.string(name)
        assert told == [
            wire.string("TABLE") + keyspace + wire.string("one"),
            wire.string("TYPE") + keyspace + wire.string("pair"),
            wire.string("KEYSPACE") + keyspace,
        ]


def test_a_connection_that_is_not_asked_for_a_password_may_not_talk_of_one(server):
    # With no authenticator Cassandra takes any credentials; what matters is an answer, and a connection that goes on.
    with Connection(server) as connection:
        assert connection.startup().opcode == wire.READY
        answer = connection.ask(wire.AUTH_RESPONSE, struct.pack(">i", 4) + b"\0a\0b")
        assert answer.opcode == wire.AUTH_SUCCESS or answer.error[0] == cql.PROTOCOL
        assert connection.query(SELECT).opcode == wire.RESULT


SLOW_VALUE_BYTES = 1 << 20
SLOW_REQUESTS = 1000
SLOW_ROWS = 6


# Results in the making and answers that wait have 16 % of the memory; one result more may be made.
SLOW_GROWTH_MAX = 160 << 20


@pytest.mark.ceto_only("the memory of the process is measured")
@pytest.mark.parametrize("place", ["memory", "a file"])
def test_a_slow_reader_costs_a_bounded_amount_of_memory(server, session, keyspace, table, place):
    name = table("k int PRIMARY KEY, v blob")
    for k in range(SLOW_ROWS):
        session.execute(session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)"), (k, b"x" * SLOW_VALUE_BYTES))
    if place == "a file":
        server.node.nodetool("flush")
    # Some rows are on the shard of their connection, some on another.
    for k in range(SLOW_ROWS):
        before = server.node.resident_bytes()
        body = wire.query_body(f"SELECT v FROM {keyspace}.{name} WHERE k = {k}")
        with Connection(server) as slow:
            slow.startup()
            # A server that no longer reads fills this socket: that is a limit, not a failure.
            slow.socket.settimeout(2)
            with contextlib.suppress(TimeoutError):
                for stream in range(SLOW_REQUESTS):
                    slow.send(wire.QUERY, body, stream)
            for _ in range(50):
                assert cql.rows(session, SELECT) == [("local",)]
            grown = server.node.resident_bytes() - before
            assert grown < SLOW_GROWTH_MAX, f"{grown >> 20} MB held for a client that does not read"
            slow.socket.settimeout(wire.SECONDS)
            for _ in range(5):
                answer = slow.recv()
                assert answer.opcode in (wire.RESULT, wire.ERROR), "what was sent is answered once it is read"
        eventually("the memory is given back", lambda before=before: server.node.resident_bytes() - before < RESIDENT_GROWTH_MAX)


CONNECTIONS = 500


def test_many_idle_connections(server):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(server)) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.send(wire.STARTUP, wire.string_map({"CQL_VERSION": "3.0.0"}))
        assert {connection.recv().opcode for connection in connections} == {wire.READY}
        for connection in connections[::50]:
            assert connection.query(SELECT).opcode == wire.RESULT


DAMAGED_FRAMES = 500


def requests(keyspace_table):
    """One good frame of each request."""
    insert = f"INSERT INTO {keyspace_table} (k, v) VALUES (?, 0x00)"
    values = struct.pack(">Hi", 1, 4) + b"\0\0\0\1"
    query = wire.long_string(insert) + b"\0\1\1" + values
    batch = (
        b"\0\0\2"
        + b"\0"
        + wire.long_string(insert)
        + values
        + b"\1"
        + struct.pack(">H", 16)
        + UNKNOWN_ID
        + values
        + b"\0\1\0"
    )
    return [
        wire.frame(wire.QUERY, query),
        wire.frame(wire.QUERY, wire.query_body(SELECT, page_size=5, paging_state=b"state")),
        wire.frame(wire.PREPARE, wire.long_string(insert)),
        wire.frame(wire.EXECUTE, struct.pack(">H", 16) + UNKNOWN_ID + b"\0\1\1" + values),
        wire.frame(wire.BATCH, batch),
        wire.frame(wire.REGISTER, b"\0\1" + wire.string("SCHEMA_CHANGE")),
        wire.frame(wire.STARTUP, wire.string_map({"CQL_VERSION": "3.0.0"})),
        wire.frame(wire.OPTIONS, b""),
    ]


@pytest.mark.ceto_only("some of these end Cassandra: it allocates what they claim to hold")
def test_frames_with_random_damage(server, keyspace, table):
    """Whatever the damage, the connection ends when its client has said all it has to say."""
    chance = random.Random("damage")
    good = requests(f"{keyspace}.{table('k int PRIMARY KEY, v blob')}")
    for number in range(DAMAGED_FRAMES):
        damaged = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(1, len(damaged))  # the version is damaged in tests of its own
            damaged[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(damaged)) :]
        with Connection(server) as connection:
            connection.startup()
            connection.send_bytes(bytes(damaged))
            connection.socket.shutdown(socket.SHUT_WR)
            try:
                while connection.socket.recv(1 << 16):
                    pass
            except ConnectionResetError:
                pass
            except TimeoutError:
                raise AssertionError(f"damaged frame {number} is never done with: {bytes(damaged).hex()}") from None
