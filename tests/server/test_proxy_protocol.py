"""Ports for proxies: each connection begins with a header of the PROXY protocol, which says who the client is."""

import ipaddress
import socket
import struct

import pytest

from harness.cluster import eventually
from harness.node import free_ports

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
OPTIONS, SUPPORTED = 0x05, 0x06
STARTUP, READY = 0x01, 0x02
STARTUP_BODY = b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0"


def frame(opcode, body=b""):
    return struct.pack(">BBhBI", 4, 0, 0, opcode, len(body)) + body


def v1(client, port):
    family = f"TCP{ipaddress.ip_address(client).version}"
    to = "10.0.0.1" if family == "TCP4" else "::1"
    return f"PROXY {family} {client} {to} {port} 9042\r\n".encode()


def v2(client, port, command=1, values=b""):
    address = ipaddress.ip_address(client)
    family = 0x11 if address.version == 4 else 0x21
    to = ipaddress.ip_address("10.0.0.1" if address.version == 4 else "::1")
    rest = address.packed + to.packed + struct.pack(">HH", port, 9042) + values
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack(">H", len(rest)) + rest


class Proxied:
    def __init__(self, node, session, port, aware_port):
        self.node, self.session, self.port, self.aware_port = node, session, port, aware_port

    def open(self, header, port=None, pieces=False):
        """A connection that has sent its header and STARTUP; the opcode of the answer, None where the node closed."""
        connection = socket.create_connection(("127.0.0.1", port or self.port), timeout=30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = header + frame(STARTUP, STARTUP_BODY)
        for piece in [sent[i : i + 1] for i in range(len(sent))] if pieces else [sent]:
            connection.sendall(piece)
        return connection, answer(connection)

    def clients(self):
        rows = self.session.execute("SELECT address, port, shard_id FROM system.clients")
        return {(row.address, row.port): row.shard_id for row in rows}


def answer(connection):
    header = b""
    while len(header) < 9:
        try:
            piece = connection.recv(9 - len(header))
        except ConnectionError:
            return None
        if not piece:
            return None
        header += piece
    return header[4]


@pytest.fixture
def proxied(new_node, connect):
    port, aware_port = free_ports("127.0.0.1", 2)
    options = [
        "--native-transport-port-proxy-protocol", str(port),
        "--native-shard-aware-transport-port-proxy-protocol", str(aware_port),
    ]
    node = new_node(options=options).start()
    return Proxied(node, connect(node), port, aware_port)


def test_the_client_is_who_the_header_names(proxied):
    opened = []
    for header, client in [
        (v1("192.0.2.7", 43981), ("192.0.2.7", 43981)),
        (v1("2001:db8::7", 1), ("2001:db8::7", 1)),
        (v2("192.0.2.8", 43982), ("192.0.2.8", 43982)),
        (v2("2001:db8::8", 2, values=b"\x03\x00\x04\x01\x02\x03\x04"), ("2001:db8::8", 2)),
    ]:
        for pieces in False, True:
            connection, opcode = proxied.open(header, pieces=pieces)
            assert opcode == READY, header
            assert client in proxied.clients(), header
            connection.close()
            eventually("the connection to end", lambda: client not in proxied.clients())
    # Who connects for itself is who it is.
    for header in b"PROXY UNKNOWN\r\n", v2("192.0.2.9", 5, command=0):
        connection, opcode = proxied.open(header)
        assert opcode == READY
        assert connection.getsockname() in proxied.clients()
        opened.append(connection)
    for connection in opened:
        connection.close()


def test_the_port_of_the_client_chooses_the_shard(proxied):
    shards = proxied.node.smp
    for port in range(50_000, 50_000 + 2 * shards):
        connection, opcode = proxied.open(v2("192.0.2.7", port), proxied.aware_port)
        assert opcode == READY
        assert proxied.clients()["192.0.2.7", port] == port % shards
        connection.close()


def test_what_begins_with_no_header_is_closed_and_logged(proxied):
    before = len(proxied.node.lines)
    for header in b"", b"GET / HTTP/1.1\r\n\r\n", b"PROXY TCP4 nobody 10.0.0.1 1 2\r\n", SIGNATURE + b"\x31\x11\x00\x00":
        connection, opcode = proxied.open(header)
        assert opcode is None, header
        connection.close()

    def logged():
        lines = [line for line in proxied.node.lines[before:] if "begins with no PROXY header" in line]
        return len(lines) == 4 and all("WARN" in line for line in lines)

    eventually("a line for each", logged)
    # The log has a limit, and the port serves on.
    for _ in range(20):
        proxied.open(b"nothing of the kind")[0].close()
    connection, opcode = proxied.open(v1("192.0.2.7", 43981))
    assert opcode == READY
    lines = [line for line in proxied.node.lines[before:] if "begins with no PROXY header" in line]
    assert len(lines) <= 10 * proxied.node.smp
    connection.close()


def test_the_usual_ports_take_no_header(proxied):
    host, port = proxied.node.server.host, proxied.node.server.port
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(v1("192.0.2.7", 43981) + frame(STARTUP, STARTUP_BODY))
        assert answer(connection) != READY
    assert ("192.0.2.7", 43981) not in proxied.clients()
