"""What a server answers to a statement, byte for byte, and how two answers differ."""

import re
import struct
from dataclasses import dataclass, field, replace

from differential.fuzzing.statements import TOKEN, TTL_SECONDS
from differential.fuzzing.terms import UNSET
from harness import wire

VOID, ROWS, KEYSPACE_SET, PREPARED, SCHEMA_CHANGE = 1, 2, 3, 4, 5
LOCAL_QUORUM = 6
PAGES_MAX = 200
TEXT_MAX = 2_000
BATCH = re.compile(r"BEGIN (UNLOGGED |COUNTER )?BATCH (?:USING TIMESTAMP (\d+) )?(.*?);? APPLY BATCH", re.S)
TYPES = {
    1: "ascii", 2: "bigint", 3: "blob", 4: "boolean", 5: "counter", 6: "decimal", 7: "double", 8: "float", 9: "int",
    11: "timestamp", 12: "uuid", 13: "text", 14: "varint", 15: "timeuuid", 16: "inet", 17: "date", 18: "time",
    19: "smallint", 20: "tinyint", 21: "duration",
}  # fmt: skip


@dataclass
class Answer:
    """`columns` are (table, name, type); `binds` those of the markers; `pages` counts the rows of each page."""

    error: tuple | None = None
    kind: str = "void"
    columns: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    pages: list = field(default_factory=list)
    binds: list = field(default_factory=list)

    def lines(self):
        if self.error:
            return [f"error {self.error[0]:04x} {self.error[1]}"]
        if self.kind != "rows":
            return [f"{self.kind}   markers {self.binds}" if self.binds else self.kind]
        head = " | ".join(f"{name} {type_}" for _, name, type_ in self.columns)
        types = [type_ for _, _, type_ in self.columns]
        rows = [" | ".join(text(t, v) for t, v in zip(types, row, strict=True)) for row in self.rows]
        head += f"   markers {[*self.binds]}" if self.binds else ""
        pages = filled_pages(self)
        return [head, *rows] + ([f"pages of {pages}"] if len(pages) > 1 else [])

    def recorded(self, line):
        """The lines as they are written down: of an error the code, of a time to live what it was at first, nothing of markers."""
        if self.error:
            return [f"error {self.error[0]:04x}"]
        return replace(self, rows=comparable_rows(line, self), binds=[]).lines()


class Client:
    """One connection for each version of the protocol, which all use this keyspace."""

    def __init__(self, server, keyspace="fuzz"):
        self.server, self.keyspace = server, keyspace
        self.connections = {}
        self._query(
            self._connection(4),
            f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
            None,
            None,
        )
        self.run(f"USE {keyspace}")

    def close(self):
        """Forget the connections: the server ended. The next statement opens new ones."""
        for connection in self.connections.values():
            connection.socket.close()
        self.connections = {}

    def run(self, text):
        return self._query(self._connection(4), text, None, None)[0]

    def ask(self, statement):
        connection = self._connection(statement.protocol)
        if statement.frame:
            return self._batch(connection, statement)
        if statement.values is None:
            return self._paged(statement.page, lambda page, state: self._query(connection, statement.text, page, state))
        prepared = self._prepare(connection, statement.text)
        if isinstance(prepared, Answer):
            return prepared
        head, binds = prepared
        answer = self._paged(
            statement.page, lambda page, state: self._execute(connection, head, statement.values, page, state)
        )
        answer.binds = binds
        return answer

    def _connection(self, version):
        if version not in self.connections:
            connection = wire.Connection(self.server, version)
            connection.socket.settimeout(60)
            connection.startup()
            # The first one of a new server finds no keyspace.
            self._query(connection, f"USE {self.keyspace}", None, None)
            self.connections[version] = connection
        return self.connections[version]

    def _prepare(self, connection, text_):
        """What an EXECUTE begins with, and the metadata of the markers; or the error."""
        flags = struct.pack(">I", 0) if connection.version >= 5 else b""
        frame = connection.ask(wire.PREPARE, wire.long_string(text_) + flags)
        if frame.opcode == wire.ERROR:
            return Answer(error=error(frame))
        reader = Reader(without_warnings(frame))
        assert reader.int() == PREPARED, "PREPARE is answered by something else"
        ids = [reader.bytes_(reader.short()) for _ in range(2 if connection.version >= 5 else 1)]
        head = b"".join(struct.pack(">H", len(id_)) + id_ for id_ in ids)
        return head, reader.bound_metadata(connection.version)

    def _paged(self, page, ask):
        whole, state = ask(page, None)
        while state is not None and page is not None and len(whole.pages) < PAGES_MAX:
            more, state = ask(page, state)
            if more.error:
                return more
            whole.rows += more.rows
            whole.pages += more.pages
        return whole

    def _query(self, connection, text_, page, state):
        body = wire.query_body(text_, connection.version, LOCAL_QUORUM, page, state)
        return self._answer(connection.ask(wire.QUERY, body))

    def _execute(self, connection, head, values, page, state):
        flags, options = 0x01, struct.pack(">H", len(values)) + b"".join(map(bound, values))
        if page is not None:
            flags, options = flags | 0x04, options + struct.pack(">i", page)
        if state is not None:
            flags, options = flags | 0x08, options + struct.pack(">i", len(state)) + state
        head += struct.pack(">H", LOCAL_QUORUM) + flags_of(connection, flags)
        return self._answer(connection.ask(wire.EXECUTE, head + options))

    def _batch(self, connection, statement):
        """The statements of a BATCH's text in a BATCH frame: those with markers are prepared, the others sent as text."""
        kind, timestamp, parts = BATCH.fullmatch(statement.text).groups()
        values = list(statement.values or [])
        body, count = b"", 0
        for part in parts.split("; "):
            if not part:
                continue
            count += 1
            markers = sum(token == "?" or token.startswith(":m") for token in TOKEN.findall(part))
            if not markers:
                body += b"\0" + wire.long_string(part) + struct.pack(">H", 0)
                continue
            prepared = self._prepare(connection, part)
            if isinstance(prepared, Answer):
                return prepared
            head = prepared[0]
            (length,) = struct.unpack_from(">H", head)
            body += b"\1" + head[: 2 + length] + struct.pack(">H", markers) + b"".join(map(bound, values[:markers]))
            values = values[markers:]
        flags, options = (0x20, struct.pack(">q", int(timestamp))) if timestamp else (0, b"")
        head = bytes([["", "UNLOGGED ", "COUNTER "].index(kind or "")]) + struct.pack(">H", count)
        body = head + body + struct.pack(">H", LOCAL_QUORUM) + flags_of(connection, flags) + options
        return self._answer(connection.ask(wire.BATCH, body))[0]

    def _answer(self, frame):
        if frame.opcode == wire.ERROR:
            return Answer(error=error(frame)), None
        reader = Reader(without_warnings(frame))
        kind = reader.int()
        if kind != ROWS:
            return Answer(kind={VOID: "void", SCHEMA_CHANGE: "schema", KEYSPACE_SET: "keyspace"}[kind]), None
        columns, state = reader.result_metadata()
        rows = [[reader.value() for _ in columns] for _ in range(reader.int())]
        return Answer(kind="rows", columns=columns, rows=rows, pages=[len(rows)]), state


def flags_of(connection, flags):
    return struct.pack(">I" if connection.version >= 5 else ">B", flags)


def error(frame):
    reader = Reader(without_warnings(frame))
    return reader.int(), reader.string()


def without_warnings(frame):
    reader = Reader(frame.body)
    if frame.flags & 0x08:
        for _ in range(reader.short()):
            reader.string()
    return frame.body[reader.at :]


def bound(value):
    if value is UNSET:
        return struct.pack(">i", -2)
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


class Reader:
    def __init__(self, body):
        self.body, self.at = body, 0

    def bytes_(self, count):
        self.at += count
        return self.body[self.at - count : self.at]

    def int(self):
        return struct.unpack(">i", self.bytes_(4))[0]

    def short(self):
        return struct.unpack(">H", self.bytes_(2))[0]

    def string(self):
        return self.bytes_(self.short()).decode()

    def value(self):
        length = self.int()
        return None if length < 0 else self.bytes_(length)

    def type_(self):
        code = self.short()
        if code == 0:
            return custom(self.string())
        if code == 0x20:
            return ("list", self.type_())
        if code == 0x21:
            return ("map", self.type_(), self.type_())
        if code == 0x22:
            return ("set", self.type_())
        if code == 0x30:
            self.string()
            self.string()
            fields = [(self.string(), self.type_()) for _ in range(self.short())]
            return ("udt", *(type_ for _, type_ in fields))
        if code == 0x31:
            return ("tuple", *(self.type_() for _ in range(self.short())))
        return TYPES[code]

    def result_metadata(self):
        flags, count = self.int(), self.int()
        state = self.value() if flags & 0x02 else None
        if flags & 0x08:
            self.bytes_(self.short())  # the id of the metadata, which changed
        return self._columns(flags, count), state

    def bound_metadata(self, version=4):
        flags, count = self.int(), self.int()
        keys = [self.short() for _ in range(self.int())] if version >= 4 else []
        return self._columns(flags, count) + [("partition key", str(keys), "")]

    def _columns(self, flags, count):
        table = None
        if flags & 0x01:
            self.string()
            table = self.string()
        columns = []
        for _ in range(count):
            if not flags & 0x01:
                self.string()
                table = self.string()
            columns.append((table, self.string(), self.type_()))
        return columns


def custom(name):
    return name.replace("org.apache.cassandra.db.marshal.", "")


# --- text of values ---


def text(type_, data):
    """A value as people read it; its bytes where they are no value of the type."""
    if data is None:
        return "null"
    try:
        return _text(type_, data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return f"{type_}:0x{data.hex()}"


def _text(type_, data):
    if isinstance(type_, tuple):
        kind, *of = type_
        reader = Reader(data)
        if kind in ("tuple", "udt"):
            return "(" + ", ".join(text(t, reader.value()) if reader.at < len(data) else "-" for t in of) + ")"
        parts = [": ".join(text(t, reader.value()) for t in of) for _ in range(reader.int())]
        return f"[{', '.join(parts)}]" if kind == "list" else f"{{{', '.join(parts)}}}"
    if type_ in ("text", "ascii"):
        decoded = data.decode()
        return repr(decoded if len(decoded) < TEXT_MAX else f"{decoded[:20]}... {len(decoded)}")
    forms = {"boolean": ">?", "tinyint": ">b", "smallint": ">h", "int": ">i", "float": ">f", "double": ">d"}
    forms |= dict.fromkeys(["bigint", "counter", "timestamp", "time"], ">q")
    if type_ in forms:
        return str(struct.unpack(forms[type_], data)[0])
    if type_ == "varint":
        return str(int.from_bytes(data, "big", signed=True))
    if type_ == "decimal":
        return f"{int.from_bytes(data[4:], 'big', signed=True)}e{-struct.unpack_from('>i', data)[0]}"
    return "0x" + (data.hex() if len(data) < TEXT_MAX else f"{data[:20].hex()}...{len(data)}")


# --- comparing ---

_NEAR_TTL = re.compile(rb"\x00\x0f[\x34-\x42].", re.S)


def comparable_rows(text_, answer):
    """The rows; a remaining time to live as if no time had passed, and one byte for all that are true: which of two equal keys a row shows is up to the server."""
    rows = answer.rows
    booleans = [at for at, column in enumerate(answer.columns) if column[2] == "boolean"]
    if booleans and rows:
        rows = [
            [b"\1" if at in booleans and v and any(v) else v for at, v in enumerate(row)]
            for row in rows
        ]  # fmt: skip
    if "ttl(" not in text_.lower():
        return rows
    ttl = struct.pack(">i", TTL_SECONDS)
    return [[v and _NEAR_TTL.sub(ttl, v) for v in row] for row in rows]


def difference(statement, cassandra, ceto):
    """None, or what differs in a few words: the first of outcome, code, metadata, rows, order, pages."""
    if cassandra.error and ceto.error:
        codes = cassandra.error[0], ceto.error[0]
        return None if codes[0] == codes[1] else f"error {codes[0]:04x}, not {codes[1]:04x}"
    if cassandra.error:
        return f"accepted, not error {cassandra.error[0]:04x}"
    if ceto.error:
        return f"refused with {ceto.error[0]:04x}"
    if cassandra.kind != ceto.kind:
        return f"result {cassandra.kind}, not {ceto.kind}"
    if cassandra.binds[:-1] != ceto.binds[:-1]:
        return "metadata of markers"
    if cassandra.binds[-1:] != ceto.binds[-1:]:
        return "markers of the partition key"
    for part, name in enumerate(("table", "names", "types")):
        if [c[part] for c in cassandra.columns] != [c[part] for c in ceto.columns]:
            return f"{name} of columns"
    expected, got = (comparable_rows(statement.text, a) for a in (cassandra, ceto))
    if expected != got:
        if sorted(map(str, expected)) == sorted(map(str, got)):
            return "order of rows"
        return "number of rows" if len(expected) != len(got) else "values"
    return "lengths of pages" if filled_pages(cassandra) != filled_pages(ceto) else None


def filled_pages(answer):
    """The lengths of the pages that have rows: whether an empty one follows is up to the server."""
    return [length for length in answer.pages if length]
