"""Types of columns, and values of them: each as a literal of CQL and as the bytes that a driver binds.

Most values lie at an edge of their type. No two values of one type are equal and written differently (1.5 and 1.50): which spelling
Cassandra keeps then depends on when it flushes. No value contains a line break, because a script has one statement per line.
"""

import ipaddress
import struct
import uuid
from typing import NamedTuple


class Value(NamedTuple):
    literal: str
    data: bytes | None


NULL = Value("null", None)
LONG = 70_000


def _packed(form, *values):
    return [Value(str(v), struct.pack(form, v)) for v in values]


def _text(*values):
    return [Value("'" + v.replace("'", "''") + "'", v.encode()) for v in values]


def varint(number):
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal(literal, scale, unscaled):
    return Value(literal, struct.pack(">i", scale) + varint(unscaled))


def unsigned_vint(number):
    """The variable-length integer of durations and of vectors: the leading ones of the first byte count the bytes behind it."""
    extra = next(n for n in range(9) if n == 8 or number < 1 << (7 * (n + 1)))
    first = 0xFF00 >> extra & 0xFF
    data = number.to_bytes(extra + 1, "big") if extra < 8 else b"\0" + number.to_bytes(8, "big")
    return bytes([data[0] | first]) + data[1:]


def _duration(literal, months, days, nanos):
    return Value(literal, b"".join(unsigned_vint(n << 1 ^ n >> 63) for n in (months, days, nanos)))


def _floats(form, *literals):
    return [Value(v, struct.pack(form, float(v))) for v in literals]


def _uuids(*literals):
    return [Value(v, uuid.UUID(v).bytes) for v in literals]


def _date(literal, days):
    return Value(f"'{literal}'", struct.pack(">I", days + (1 << 31)))


def _time(literal, nanos):
    return Value(f"'{literal}'", struct.pack(">q", nanos))


TIMEUUIDS = _uuids(
    "00000000-0000-1000-8080-808080808080",
    "ffffffff-ffff-1fff-bf7f-7f7f7f7f7f7f",
    "d2177dd0-eaa2-11de-a572-001b779c76e3",
    "d2177dd0-eaa2-11de-8080-808080808080",
    "13814000-1dd2-11b2-8080-808080808080",
)
NATIVE = {
    "ascii": _text("", "A", "a", "~", "it's", "zz"),
    "bigint": _packed(">q", 0, 1, -1, 2**63 - 1, -(2**63), 4294967296),
    "blob": [Value("0x" + v.hex(), v) for v in (b"", b"\0", b"\xff", b"\0\1", b"\xca\xfe", b"\x7f" * 40)],
    "boolean": [Value("true", b"\1"), Value("false", b"\0")],
    "date": [
        _date("1970-01-01", 0),
        _date("1969-12-31", -1),
        _date("2024-02-29", 19782),
        _date("0001-01-01", -719162),
        Value("0", struct.pack(">I", 0)),
        Value("4294967295", struct.pack(">I", 2**32 - 1)),
    ],
    "decimal": [
        _decimal("0", 0, 0),
        _decimal("1.5", 1, 15),
        _decimal("-12345678901234567890.1", 1, -123456789012345678901),
        _decimal("1E-30", 30, 1),
        _decimal("1E+30", -30, 1),
        _decimal("-0.01", 2, -1),
    ],
    "double": _floats(
        ">d", "0", "-0.0", "-1.5", "1e10", "NaN", "Infinity", "-Infinity", "5E-324", "1.7976931348623157E308"
    ),
    "duration": [
        _duration("1y2mo3d4h5m6s", 14, 3, 14706 * 10**9),
        _duration("-1mo", -1, 0, 0),
        _duration("0s", 0, 0, 0),
        _duration("2147483647mo", 2**31 - 1, 0, 0),
        _duration("1ns", 0, 0, 1),
        _duration("30d", 0, 30, 0),
    ],
    "float": _floats(">f", "0", "-0.0", "-1.5", "16777216", "NaN", "Infinity", "-Infinity", "1E-45", "3.4028235E38"),
    "inet": [
        Value(f"'{v}'", ipaddress.ip_address(v).packed)
        for v in ("127.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "::", "2001:db8::ff00:42:8329")
    ],
    "int": _packed(">i", 0, 1, -1, 2**31 - 1, -(2**31), 7),
    "smallint": _packed(">h", 0, 1, -1, 32767, -32768),
    "text": _text("", "a", "b", "ab", "grüße", "it's", "𝄞", "Z", " ", '{"a": 1}', "\\", "%_", "x" * 200),
    "time": [
        _time("00:00:00", 0),
        _time("23:59:59.999999999", 86400 * 10**9 - 1),
        _time("12:34:56.789", 45296789 * 10**6),
        Value("1", struct.pack(">q", 1)),
    ],
    "timestamp": [
        *_packed(">q", 0, -1, 2**63 - 1, -(2**63), 1700000000000),
        Value("'2024-02-29T12:00:00.123+0000'", struct.pack(">q", 1709208000123)),
        Value("'1582-10-14 00:00:00Z'", struct.pack(">q", -12219379200000)),
    ],
    "timeuuid": TIMEUUIDS,
    "tinyint": _packed(">b", 0, 1, -1, 127, -128),
    "uuid": TIMEUUIDS
    + _uuids(
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "00000000-0000-4000-8000-000000000001",
        "7fffffff-0000-4000-8000-000000000000",
    ),
    "varint": [
        Value(str(v), varint(v)) for v in (0, -1, 127, 128, -128, -129, 2**63, -(2**63), 123456789012345678901234567890)
    ],
}
NUMBERS = ["tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double"]
SIZES = {"boolean": 1, "int": 4, "bigint": 8, "float": 4, "double": 8, "timestamp": 8, "uuid": 16, "timeuuid": 16}


class Type:
    """A type of CQL: `kind` is the name of a native type or list, set, map, tuple, vector; `of` its arguments."""

    def __init__(self, kind, of=(), frozen=False, length=0):
        self.kind, self.of, self.frozen, self.length = kind, list(of), frozen, length
        self.pool = None  # a native type's few values in this table

    def __str__(self):
        if not self.of:
            return self.kind
        inner = ", ".join(map(str, self.of)) + (f", {self.length}" if self.kind == "vector" else "")
        name = f"{self.kind}<{inner}>"
        return f"frozen<{name}>" if self.frozen else name

    @property
    def collection(self):
        return self.kind in ("list", "set", "map")

    @property
    def multi_cell(self):
        return self.collection and not self.frozen

    @property
    def scalar(self):
        return not self.of

    def can_be_key(self):
        return self.kind not in ("duration", "counter") and not self.multi_cell and all(t.can_be_key() for t in self.of)

    def fix_pool(self, random, size):
        """Choose the few values that this table has of each native type in it."""
        for inner in self.of:
            inner.fix_pool(random, size)
        if self.scalar and self.kind != "counter":
            known = NATIVE[self.kind]
            self.pool = random.sample(known, min(size, len(known)))

    # --- values ---

    def value(self, random, odd=0.0):
        """Some value; with probability `odd` one whose bytes no careful driver sends, though its literal is plain."""
        if self.scalar:
            return random.choice(self.pool or NATIVE[self.kind])
        if self.kind == "tuple":
            return self._tuple(random, odd)
        if self.kind == "vector":
            return self._vector(random, odd)
        # Cassandra takes `{}` for a set where a frozen map is meant, and fails.
        fewest = 1 if self.kind == "map" and random.random() < 0.98 else 0
        return self.filled(random, random.choice([fewest, 1, 1, 2, 3]), odd)

    def filled(self, random, size, odd=0.0):
        parts = [tuple(t.value(random, odd) for t in self.of) for _ in range(size)]
        if self.kind != "list":
            parts = list({part[0].data: part for part in parts}.values())
        sent = list(parts)
        if self.kind != "list" and sent and random.random() < odd:
            sent.append(random.choice(sent))
            random.shuffle(sent)
        literals = [": ".join(v.literal for v in part) for part in parts]
        literal = "[" + ", ".join(literals) + "]" if self.kind == "list" else "{" + ", ".join(literals) + "}"
        return Value(literal, struct.pack(">i", len(sent)) + b"".join(sized(v.data) for part in sent for v in part))

    def _tuple(self, random, odd):
        parts = [NULL if random.random() < 0.1 else t.value(random, odd) for t in self.of]
        sent = parts[: random.randint(1, len(parts))] if random.random() < odd / 2 else parts
        return Value("(" + ", ".join(v.literal for v in parts) + ")", b"".join(sized(v.data) for v in sent))

    def _vector(self, random, odd):
        parts = [self.of[0].value(random, odd) for _ in range(self.length)]
        fixed = self.of[0].kind in SIZES
        data = b"".join(v.data if fixed else unsigned_vint(len(v.data)) + v.data for v in parts)
        return Value("[" + ", ".join(v.literal for v in parts) + "]", data)


def sized(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def random_type(random, depth=0):
    """A type that a regular column may have; nested ones are frozen."""
    chance = random.random()
    if chance < (0.55 if depth == 0 else 0.75):
        return Type(random.choice(list(NATIVE)))
    kind = random.choice(["list", "set", "map", "map", "set", "list", "tuple", "vector"])
    if depth >= 2:
        return Type("int")
    frozen = depth > 0 or random.random() < 0.4
    if kind == "tuple":
        return Type("tuple", [random_type(random, depth + 1) for _ in range(random.randint(1, 3))], True)
    if kind == "vector":
        return Type("vector", [Type(random.choice(["float", "int", "text"]))], False, random.randint(1, 3))
    of = [random_type(random, depth + 1) for _ in range(2 if kind == "map" else 1)]
    while kind != "list" and not of[0].can_be_key():
        of[0] = random_type(random, depth + 1)
    return Type(kind, of, frozen)


def random_key_type(random):
    """A type that a key column may have."""
    if random.random() < 0.85:
        return Type(random.choice([kind for kind in NATIVE if kind != "duration"]))
    while True:
        found = random_type(random, 1)
        if not found.scalar and found.can_be_key():
            return found
