#!/usr/bin/env bash
# Apache Cassandra 5.0.8: a selected expression's text is the name of its column in the result's metadata. That name is
# a [string] of the native protocol, whose length has two bytes (native_protocol_v4.spec, sections 3 and 4.2.5.2).
#
# Guess: an expression of more than 65,535 bytes is refused, or its name is cut.
# Seen: the name is written whole and its length modulo 65,536, so clients read the middle of the name as the column's
# type. cassandra-driver 3.30.1 for Python raises NotSupportedError. With a bound value the name is short: (text)?
set -euo pipefail
. "$(dirname "$0")/cassandra_5_0_8.bash"
venv/bin/python - "$port" <<'PYTHON'
import socket
import struct
import sys

from cassandra.cluster import Cluster

PORT = int(sys.argv[1])
QUERY, RESULT, ROWS, TEXT, ONE = 7, 8, 2, 13, 1


def string(text):
    return struct.pack(">H", len(text)) + text


def received(connection, count):
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data)) or sys.exit("the connection is closed")
    return data


def request(connection, opcode, body):
    """Sends one frame of protocol version 4 and returns the body of its answer."""
    connection.sendall(struct.pack(">BBhBi", 4, 0, 0, opcode, len(body)) + body)
    _, _, _, answer, length = struct.unpack(">BBhBi", received(connection, 9))
    return answer, received(connection, length)


def statement(length):
    """A statement whose only column has a name of so many bytes."""
    return "SELECT (text)'" + "x" * (length - len("(text)''")) + "' FROM system.local"


with socket.create_connection(("127.0.0.1", PORT)) as connection:
    request(connection, 1, struct.pack(">H", 1) + string(b"CQL_VERSION") + string(b"3.0.0"))
    for length in (10, 65_535, 65_536, 65_546):
        text = statement(length).encode()
        name = text[len("SELECT ") : -len(" FROM system.local")]
        answer, body = request(connection, QUERY, struct.pack(">i", len(text)) + text + struct.pack(">HB", ONE, 0))
        # One column of one table: kind, flags, column count, keyspace, table.
        before = struct.pack(">iii", ROWS, 1, 1) + string(b"system") + string(b"local")
        assert answer == RESULT and body.startswith(before)
        stored = struct.unpack_from(">H", body, len(before))[0]
        rest = body[len(before) + 2 :]
        value = name[len("(text)'") : -1]
        row = struct.pack(">Hii", TEXT, 1, len(value)) + value
        print(f"a name of {length} bytes: the length {stored}, then {len(rest) - len(row)} bytes of the name")
        assert rest == name + row, "the behaviour has changed"
        assert stored == length % 65_536, "the behaviour has changed"

with Cluster(["127.0.0.1"], port=PORT) as cluster:
    session = cluster.connect()
    bound = session.execute(session.prepare("SELECT (text)? FROM system.local"), ["x" * 65_536])
    print(f"the driver, a bound value of {len(bound.one()[0])} bytes: column {bound.column_names}")
    try:
        seen = session.execute(statement(65_536)).column_names
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
    print("the driver, a name of 65536 bytes:", seen)
    assert str(seen).startswith("NotSupportedError: Unknown data type code"), "the behaviour has changed"
PYTHON
