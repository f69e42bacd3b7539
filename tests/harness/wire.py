"""Frames of the native protocol by hand, for what no driver would send.

frame   = version(1) flags(1) stream(2) opcode(1) length(4) body
segment = header(3) crc24(3) payload crc32(4)          protocol v5, after STARTUP, uncompressed
"""

import socket
import struct
import zlib
from dataclasses import dataclass

import lz4.block

ERROR, STARTUP, READY, AUTHENTICATE, OPTIONS, SUPPORTED, QUERY, RESULT = 0, 1, 2, 3, 5, 6, 7, 8
PREPARE, EXECUTE, REGISTER, EVENT, BATCH, AUTH_CHALLENGE, AUTH_RESPONSE, AUTH_SUCCESS = 9, 10, 11, 12, 13, 14, 15, 16
COMPRESSED, TRACED, CUSTOM_PAYLOAD, WARNED = 0x01, 0x02, 0x04, 0x08
HEADER = struct.Struct(">BBhBI")
SECONDS = 20
SEGMENT_BYTES_MAX = 0x1FFFF


@dataclass
class Frame:
    version: int
    flags: int
    stream: int
    opcode: int
    body: bytes

    @property
    def error(self):
        """(code, message) of an ERROR frame."""
        assert self.opcode == ERROR, f"opcode {self.opcode:#x} instead of ERROR"
        code, length = struct.unpack_from(">iH", self.body)
        return code, self.body[6 : 6 + length].decode()


class Closed(Exception):
    """The server closed the connection."""


class Connection:
    def __init__(self, server, version=4, port=None, source_port=0):
        self.version = version
        self.segments = False
        self._pending = b""
        source = (server.host, source_port) if source_port else None
        self.socket = socket.create_connection((server.host, port or server.port), SECONDS, source)
        # As drivers do: without it a small frame after a large one waits 40 ms for the server's delayed ACK.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    # --- bytes ---

    def send_bytes(self, data):
        self.socket.sendall(data)

    def recv_bytes(self, count):
        data = bytearray()
        while len(data) < count:
            try:
                chunk = self.socket.recv(min(count - len(data), 1 << 16))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed(f"closed after {len(data)} of {count} bytes")
            data += chunk
        return bytes(data)

    # --- frames ---

    def send(self, opcode, body=b"", stream=1, flags=0, version=None):
        self.send_frames(frame(opcode, body, stream, flags, version or self.version))

    def send_frames(self, data):
        """Send whole frames in one write."""
        self.send_bytes(segments(data) if self.segments else data)

    def recv(self):
        version, flags, stream, opcode, length = HEADER.unpack(self._read(HEADER.size))
        body = self._read(length)
        if flags & COMPRESSED and not self.segments:
            body = lz4.block.decompress(body[4:], int.from_bytes(body[:4], "big"))
        return Frame(version & 0x7F, flags, stream, opcode, body)

    def ask(self, opcode, body=b"", stream=1, flags=0, version=None):
        self.send(opcode, body, stream, flags, version)
        answer = self.recv()
        assert answer.stream == stream, f"the answer is for stream {answer.stream}, not {stream}"
        return answer

    def _read(self, count):
        while self.segments and len(self._pending) < count:
            head = self.recv_bytes(6)
            length = int.from_bytes(head[:3], "little") & 0x1FFFF
            self._pending += self.recv_bytes(length + 4)[:length]
        if not self.segments:
            return self.recv_bytes(count)
        data, self._pending = self._pending[:count], self._pending[count:]
        return data

    # --- requests ---

    def startup(self, **options):
        answer = self.ask(STARTUP, string_map({"CQL_VERSION": "3.0.0"} | options))
        self.segments = self.version >= 5 and answer.opcode in (READY, AUTHENTICATE)
        return answer

    def query(self, cql, stream=1, flags=0, **options):
        return self.ask(QUERY, query_body(cql, self.version, **options), stream, flags)

    def prepare(self, cql):
        """The id of the statement."""
        answer = self.ask(PREPARE, long_string(cql) + (b"\0\0\0\0" if self.version >= 5 else b""))
        assert answer.opcode == RESULT, answer.error
        (length,) = struct.unpack_from(">H", answer.body, 4)
        return answer.body[6 : 6 + length]

    def execute(self, prepared_id, values=(), behind=b"", consistency=1):
        """Bound values are bytes. `behind` stands behind the message, where extensions have what they need. Not for version 5."""
        bound = struct.pack(">H", len(values)) + b"".join(struct.pack(">i", len(value)) + value for value in values)
        params = struct.pack(">HB", consistency, 0x01) + bound
        return self.ask(EXECUTE, struct.pack(">H", len(prepared_id)) + prepared_id + params + behind)


def frame(opcode, body, stream=1, flags=0, version=4):
    return HEADER.pack(version, flags, stream, opcode, len(body)) + body


def segment(payload, self_contained=True):
    """One uncompressed v5 segment."""
    header = (len(payload) | (1 << 17 if self_contained else 0)).to_bytes(3, "little")
    checksum = zlib.crc32(payload, zlib.crc32(b"\xfa\x2d\x55\xca"))
    return header + crc24(header).to_bytes(3, "little") + payload + checksum.to_bytes(4, "little")


def segments(data):
    """A frame in as many v5 segments as it needs."""
    if len(data) <= SEGMENT_BYTES_MAX:
        return segment(data)
    starts = range(0, len(data), SEGMENT_BYTES_MAX)
    return b"".join(segment(data[at : at + SEGMENT_BYTES_MAX], self_contained=False) for at in starts)


def crc24(data):
    crc = 0x875060
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1974F0B
    return crc & 0xFFFFFF


def string(text):
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def long_string(text):
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def string_map(pairs):
    return struct.pack(">H", len(pairs)) + b"".join(string(k) + string(v) for k, v in pairs.items())


def query_body(cql, version=4, consistency=1, page_size=None, paging_state=None):
    flags, options = 0, b""
    if page_size is not None:
        flags |= 0x04
        options += struct.pack(">i", page_size)
    if paging_state is not None:
        flags |= 0x08
        options += struct.pack(">i", len(paging_state)) + paging_state
    return (
        long_string(cql) + struct.pack(">H", consistency) + struct.pack(">I" if version >= 5 else ">B", flags) + options
    )


def supported(answer):
    """The string multimap of a SUPPORTED frame."""
    assert answer.opcode == SUPPORTED, f"opcode {answer.opcode:#x} instead of SUPPORTED"
    at, found = 2, {}
    (count,) = struct.unpack_from(">H", answer.body)

    def text():
        nonlocal at
        (length,) = struct.unpack_from(">H", answer.body, at)
        at += 2 + length
        return answer.body[at - length : at].decode()

    for _ in range(count):
        key = text()
        (values,) = struct.unpack_from(">H", answer.body, at)
        at += 2
        found[key] = [text() for _ in range(values)]
    assert at == len(answer.body), "bytes follow the last option of SUPPORTED"
    return found


def custom_payload(answer):
    """The custom payload of a RESULT frame: bytes by key."""
    assert answer.opcode == RESULT, answer.error
    if not answer.flags & CUSTOM_PAYLOAD:
        return {}
    assert not answer.flags & (TRACED | WARNED), "more stands before the payload"
    at, found = 2, {}
    for _ in range(struct.unpack_from(">H", answer.body)[0]):
        (length,) = struct.unpack_from(">H", answer.body, at)
        key = answer.body[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (length,) = struct.unpack_from(">i", answer.body, at)
        found[key] = answer.body[at + 4 : at + 4 + length]
        at += 4 + length
    return found
