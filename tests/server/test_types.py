"""Every native type keeps its values: as a literal, as a bound value, null, unset and empty."""

import datetime
import ipaddress
import math
import uuid
from decimal import Decimal

import pytest
from cassandra.query import UNSET_VALUE
from cassandra.util import Date, Duration, Time

from harness import cql

TIMEUUID = uuid.UUID("d2177dd0-eaa2-11de-a572-001b779c76e3")

# type: [(literal, value the driver gives and takes)]
VALUES = {
    "ascii": [("'plain'", "plain"), ("''", ""), ("'it''s'", "it's"), ("$$it's$$", "it's")],
    "bigint": [("0", 0), ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))],
    "blob": [("0x", b""), ("0xCafe00", b"\xca\xfe\x00"), ("0x" + "ab" * 4096, b"\xab" * 4096)],
    "boolean": [("true", True), ("FALSE", False)],
    "date": [
        ("'1970-01-01'", Date(0)),
        ("'2024-02-29'", Date("2024-02-29")),
        ("'1582-10-15'", Date("1582-10-15")),
        ("2147483648", Date(0)),
        ("'-5877641-06-23'", Date(-(2**31))),
    ],
    "decimal": [
        ("0", Decimal("0")),
        ("1.50", Decimal("1.50")),
        ("-12345678901234567890.123456789", Decimal("-12345678901234567890.123456789")),
        ("1e-40", Decimal("1e-40")),
        ("1E10", Decimal("1E10")),
    ],
    "double": [
        ("0", 0.0),
        ("-1.5e300", -1.5e300),
        ("1", 1.0),
        ("NaN", math.nan),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
    ],
    "duration": [
        ("1y2mo3w4d5h6m7s8ms9us10ns", Duration(14, 25, 18367008009010)),
        ("-2mo3d", Duration(-2, -3, 0)),
        ("P1Y2M3DT4H5M6S", Duration(14, 3, 14706000000000)),
        ("89h9m", Duration(0, 0, 320940000000000)),
    ],
    "float": [("0", 0.0), ("1.5", 1.5), ("-2.5e9", -2.5e9), ("NaN", math.nan)],
    "inet": [("'127.0.0.1'", "127.0.0.1"), ("'::1'", "::1"), ("'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329")],
    "int": [("0", 0), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))],
    "smallint": [("0", 0), ("32767", 2**15 - 1), ("-32768", -(2**15))],
    "text": [("'grüße, 世界 🌍'", "grüße, 世界 🌍"), ("''", ""), ("'" + "long " * 5000 + "'", "long " * 5000)],
    "varchar": [("'the same as text'", "the same as text")],
    "time": [("'00:00:00'", Time(0)), ("'23:59:59.999999999'", Time("23:59:59.999999999")), ("1", Time(1))],
    "timestamp": [
        ("0", datetime.datetime(1970, 1, 1)),
        ("'2024-02-29 12:34:56.789+0000'", datetime.datetime(2024, 2, 29, 12, 34, 56, 789000)),
        ("'2024-02-29T12:34:56+0200'", datetime.datetime(2024, 2, 29, 10, 34, 56)),
        ("'2024-02-29 +0000'", datetime.datetime(2024, 2, 29)),
        ("-1", datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ],
    "timeuuid": [(str(TIMEUUID), TIMEUUID)],
    "tinyint": [("0", 0), ("127", 127), ("-128", -128)],
    "uuid": [("550e8400-e29b-41d4-a716-446655440000", uuid.UUID("550e8400-e29b-41d4-a716-446655440000"))],
    "varint": [("0", 0), ("-1", -1), (str(2**200), 2**200), (str(-(2**127)), -(2**127)), ("128", 128), ("-129", -129)],
}
CASES = [(name, literal, value) for name, values in VALUES.items() for literal, value in values]


@pytest.fixture(scope="module")
def types_table(session):
    """One table with a column of each type, named after it."""
    name = cql.unique("types")
    session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, {', '.join(f'{t}_ {t}' for t in VALUES)})")
    yield name
    session.execute(f"DROP TABLE {name}")


def same(a, b):
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    return a == b


@pytest.mark.parametrize("kind, literal, value", CASES, ids=[f"{t} {text[:30]}" for t, text, _ in CASES])
def test_a_value_comes_back(session, types_table, kind, literal, value):
    session.execute(f"INSERT INTO {types_table} (k, {kind}_) VALUES (1, {literal})")
    session.execute(session.prepare(f"INSERT INTO {types_table} (k, {kind}_) VALUES (2, ?)"), (value,))
    select = session.prepare(f"SELECT {kind}_ FROM {types_table} WHERE k = ?")
    for k, way in ((1, "literal"), (2, "bound value")):
        ((got,),) = cql.rows(session, select, (k,))
        assert same(got, value), f"{kind} {way} came back as {got!r}"


@pytest.mark.parametrize("kind", VALUES)
def test_null_and_unset(session, types_table, kind):
    value = VALUES[kind][0][1]
    insert = session.prepare(f"INSERT INTO {types_table} (k, {kind}_) VALUES (3, ?)")
    select = f"SELECT {kind}_ FROM {types_table} WHERE k = 3"
    session.execute(insert, (value,))
    session.execute(insert, (UNSET_VALUE,))
    assert same(cql.rows(session, select)[0][0], value), "an unset value leaves the column as it was"
    session.execute(insert, (None,))
    assert cql.rows(session, select) == [(None,)], "null deletes"
    session.execute(insert, (value,))
    session.execute(f"UPDATE {types_table} SET {kind}_ = null WHERE k = 3")
    assert cql.rows(session, select) == [(None,)], "the literal null deletes too"


# Types whose value may be no bytes at all; text and blob have their empty value above.
EMPTY_ALLOWED = [
    "bigint",
    "boolean",
    "decimal",
    "double",
    "float",
    "inet",
    "int",
    "timestamp",
    "timeuuid",
    "uuid",
    "varint",
]


@pytest.mark.parametrize("kind", EMPTY_ALLOWED)
def test_an_empty_value_is_neither_null_nor_zero(session, types_table, kind):
    insert = session.prepare(f"INSERT INTO {types_table} (k, {kind}_) VALUES (4, ?)")
    bound = insert.bind((None,))
    bound.values = [b""]
    session.execute(bound)
    as_blob = cql.rows(session, f"SELECT {kind}asblob({kind}_) FROM {types_table} WHERE k = 4")
    assert as_blob == [(b"",)]


KEY_TYPES = [t for t in VALUES if t not in ("duration",)]


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_a_type_serves_as_partition_and_clustering_key(session, table, kind):
    values = [v for _, v in VALUES[kind] if not (isinstance(v, str) and len(v) > 1000) and v not in ("", b"")]
    name = table(f"p {kind}, c {kind}, v int, PRIMARY KEY (p, c)")
    insert = session.prepare(f"INSERT INTO {name} (p, c, v) VALUES (?, ?, ?)")
    select = session.prepare(f"SELECT v FROM {name} WHERE p = ? AND c = ?")
    for number, value in enumerate(values):
        session.execute(insert, (value, value, number))
        assert cql.rows(session, select, (value, value)) == [(number,)]


ORDER = {
    "int": [-(2**31), -1, 0, 1, 2**31 - 1],
    "bigint": [-(2**63), -1, 0, 1, 2**63 - 1],
    "smallint": [-32768, -1, 0, 32767],
    "tinyint": [-128, -1, 0, 127],
    "varint": [-(2**100), -256, -255, -1, 0, 1, 255, 256, 2**100],
    "decimal": [Decimal(s) for s in ("-1e20", "-1.5", "-1.4", "0", "0.1", "1.25", "3", "1e20")],
    "double": [-math.inf, -1.5, -0.0, 0.0, 1e-300, 2.0, math.inf, math.nan],
    "float": [-1.5, 0.0, 2.0, math.inf, math.nan],
    "text": ["", "A", "Z", "a", "aa", "b", "ä", "世", "🌍"],
    "blob": [b"", b"\0", b"\0\1", b"\x7f", b"\x80", b"\xff"],
    "boolean": [False, True],
    "date": [Date(-(2**31)), Date(-1), Date(0), Date(1)],
    "time": [Time(0), Time(1), Time(86399999999999)],
    "timestamp": [datetime.datetime(1960, 1, 1), datetime.datetime(1970, 1, 1), datetime.datetime(2030, 1, 1)],
    "inet": [ipaddress.ip_address(a).compressed for a in ("1.2.3.4", "127.0.0.1", "200.0.0.1")],
    # uuid: by version first, time-based ones by time, others by their bytes without sign
    "uuid": [
        uuid.UUID("ffffffff-eaa2-11de-a572-001b779c76e3"),
        uuid.UUID("00000000-eaa3-11de-a572-001b779c76e3"),
        uuid.UUID("00000000-0000-4000-8000-000000000000"),
        uuid.UUID("7fffffff-0000-4000-8000-000000000000"),
        uuid.UUID("80000000-0000-4000-8000-000000000000"),
    ],
    # timeuuid: by time, then by the last eight bytes with sign
    "timeuuid": [
        uuid.UUID("00000000-eaa2-11de-a572-001b779c76e3"),
        uuid.UUID("00000001-eaa2-11de-8572-001b779c76e3"),
        uuid.UUID("00000001-eaa2-11de-a572-001b779c76e3"),
        uuid.UUID("00000000-eaa3-11de-a572-001b779c76e3"),
    ],
}


@pytest.mark.parametrize("order", ["ASC", "DESC"])
@pytest.mark.parametrize("kind", ORDER)
def test_clustering_rows_are_in_the_order_of_their_type(session, table, kind, order):
    name = table(f"p int, c {kind}, n int, PRIMARY KEY (p, c)", f" WITH CLUSTERING ORDER BY (c {order})")
    values = ORDER[kind]
    insert = session.prepare(f"INSERT INTO {name} (p, c, n) VALUES (0, ?, ?)")
    for number in sorted(range(len(values)), key=lambda n: n * 7 % len(values)):
        session.execute(insert, (values[number], number))
    forward = list(range(len(values)))
    expected = forward if order == "ASC" else forward[::-1]
    assert [n for (n,) in cql.rows(session, f"SELECT n FROM {name} WHERE p = 0")] == expected
    turned = "DESC" if order == "ASC" else "ASC"
    reverse = f"SELECT n FROM {name} WHERE p = 0 ORDER BY c {turned}"
    assert [n for (n,) in cql.rows(session, reverse)] == expected[::-1]
    below = session.prepare(f"SELECT n FROM {name} WHERE p = 0 AND c < ? ORDER BY c ASC")
    assert [n for (n,) in cql.rows(session, below, (values[-1],))] == forward[:-1]


WRONG_LITERALS = [
    ("int", "'text'", 'Invalid STRING constant (text) for "int_" of type int'),
    ("int", "2147483648", "Unable to make int from '2147483648'"),
    ("int", "1.5", 'Invalid FLOAT constant (1.5) for "int_" of type int'),
    ("tinyint", "128", "Unable to make byte from '128'"),
    ("smallint", "40000", "Unable to make short from '40000'"),
    ("text", "5", 'Invalid INTEGER constant (5) for "text_" of type text'),
    ("ascii", "'ü'", "Invalid ASCII character in string literal"),
    ("blob", "'text'", 'Invalid STRING constant (text) for "blob_" of type blob'),
    ("blob", "0xabc", "cannot parse 'abc' as hex bytes"),
    ("boolean", "1", 'Invalid INTEGER constant (1) for "boolean_" of type boolean'),
    ("uuid", "'x'", 'Invalid STRING constant (x) for "uuid_" of type uuid'),
    ("timeuuid", "550e8400-e29b-41d4-a716-446655440000", "TimeUUID supports only version 1 UUIDs"),
    ("timestamp", "'yesterday'", "Unable to parse a date/time from 'yesterday'"),
    ("date", "'2024-13-01'", "Unable to coerce '2024-13-01' to a formatted date (long)"),
    ("time", "'25:00:00'", "Unable to coerce '25:00:00' to a formatted time (long)"),
    ("inet", "'999.1.1.1'", "unable to make inet address from '999.1.1.1'"),
    ("decimal", "'x'", 'Invalid STRING constant (x) for "decimal_" of type decimal'),
    ("double", "true", 'Invalid BOOLEAN constant (true) for "double_" of type double'),
]


@pytest.mark.parametrize("kind, literal, words", WRONG_LITERALS)
def test_a_literal_of_the_wrong_type_is_refused(session, types_table, kind, literal, words):
    statement = f"INSERT INTO {types_table} (k, {kind}_) VALUES (1, {literal})"
    cql.refused(session, statement, cql.INVALID, words)


WRONG_BYTES = [
    ("int", b"\0\0\0", "Expected 4 or 0 byte int (3)"),
    ("bigint", b"\0" * 9, "Expected 8 or 0 byte long (9)"),
    ("smallint", b"\0", "Expected 2 bytes for a smallint (1)"),
    ("tinyint", b"\0\0", "Expected 1 byte for a tinyint (2)"),
    ("boolean", b"\0\0", "Expected 1 or 0 byte value (2)"),
    ("double", b"\0" * 4, "Expected 8 or 0 byte value for a double (4)"),
    ("float", b"\0" * 8, "Expected 4 or 0 byte value for a float (8)"),
    ("uuid", b"\0" * 15, "UUID should be 16 or 0 bytes (15)"),
    ("timeuuid", bytes.fromhex("550e8400e29b41d4a716446655440000"), "Invalid version for TimeUUID type"),
    ("inet", b"\0" * 5, "Expected 4 or 16 byte inetaddress; got 0000000000"),
    ("text", b"\xff\xfe", "String didn't validate."),
    ("ascii", b"\x80", "Invalid byte for ascii"),
    ("date", b"\0\0", "Expected 4 byte long for date (2)"),
    ("time", b"\0" * 4, "Expected 8 byte long for time (4)"),
    ("timestamp", b"\0" * 4, "Expected 8 or 0 byte long for date (4)"),
    ("decimal", b"\0", "Expected 0 or at least 4 bytes"),
]


@pytest.mark.parametrize("kind, value, words", WRONG_BYTES, ids=[t for t, _, _ in WRONG_BYTES])
def test_a_bound_value_of_the_wrong_size_is_refused(session, types_table, kind, value, words):
    bound = session.prepare(f"INSERT INTO {types_table} (k, {kind}_) VALUES (5, ?)").bind((None,))
    bound.values = [value]
    cql.refused(session, bound, cql.INVALID, words)
    assert cql.rows(session, f"SELECT k FROM {types_table} WHERE k = 5") == []
