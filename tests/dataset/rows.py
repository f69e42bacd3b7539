"""A million rows as an application has them: the same for the same count and seed, whoever asks.

Readings of sensors. A partition is one sensor on one day; its rows run from the newest to the oldest. About a third of
the optional columns is null, texts come in several scripts with quotes and commas (no line ends: cqlsh cannot read those),
collections are of any size from none to a dozen.

    python -m dataset.rows 1000000 > rows.csv      for cqlsh COPY ... FROM
"""

import csv
import datetime
import ipaddress
import random
import sys
import uuid
from decimal import Decimal

KEYSPACE, TABLE = "dataset", "readings"
COLUMNS = {
    "sensor": "text",
    "day": "date",
    "at": "timestamp",
    "id": "uuid",
    "station": "text",
    "reading": "decimal",
    "level": "double",
    "total": "bigint",
    "samples": "int",
    "valid": "boolean",
    "address": "inet",
    "note": "text",
    "payload": "blob",
    "history": "list<int>",
    "tags": "set<text>",
    "labels": "map<text, text>",
    "quality": "frozen<map<text, int>>",
}
KEYS = ("sensor", "day", "at", "id")
CREATE_KEYSPACE = (
    f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE}"
    " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
)
CREATE_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.{TABLE} ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())},"
    " PRIMARY KEY ((sensor, day), at, id)) WITH CLUSTERING ORDER BY (at DESC, id ASC)"
)
ROWS_PER_PARTITION = 40
SEED = 2
EPOCH = datetime.datetime(2024, 1, 1)

WORDS = "river stone cloud harvest signal quiet amber window orbit lantern Größe naïve 温度 датчик μέτρηση 🌡 O'Brien 50%".split()
NOTES = [
    "a, b",
    'she said "no"',
    "two; parts",
    "trailing space ",
    "back\\slash",
    "it's",
    "tab\there",
    "{not: a map}",
    "NULL",
]
TAGS = ["indoor", "outdoor", "calibrated", "beta", "très froid", "低温"]


def rows(count, seed=SEED):
    """Tuples in the order of COLUMNS."""
    r = random.Random(f"ceto dataset {seed}")
    partitions = max(1, count // ROWS_PER_PARTITION)
    for number in range(count):
        partition = number % partitions
        sensor, day = f"sensor-{partition // 30:05d}", (EPOCH + datetime.timedelta(days=partition % 30)).date()
        at = datetime.datetime.combine(day, datetime.time()) + datetime.timedelta(milliseconds=r.randrange(86_400_000))
        yield (
            sensor,
            day,
            at,
            uuid.UUID(int=r.getrandbits(128), version=4),
            r.choice(WORDS) + " " + r.choice(WORDS),
            Decimal(r.randrange(-(10**9), 10**9)).scaleb(-r.randrange(8)),
            r.uniform(-1e6, 1e6) if r.random() < 0.9 else None,
            r.randrange(-(2**63), 2**63),
            r.randrange(1000) if r.random() < 0.7 else None,
            r.random() < 0.9,
            _address(r) if r.random() < 0.5 else None,
            _note(r) if r.random() < 0.6 else None,
            r.randbytes(r.randrange(1, 40)) if r.random() < 0.3 else None,
            [r.randrange(100) for _ in range(r.randrange(1, 12))] if r.random() < 0.4 else None,
            set(r.sample(TAGS, r.randrange(1, len(TAGS)))) if r.random() < 0.5 else None,
            {tag: r.choice(WORDS) for tag in r.sample(TAGS, r.randrange(1, 4))} if r.random() < 0.4 else None,
            {"accuracy": r.randrange(100), "drift": r.randrange(-5, 5)} if r.random() < 0.3 else None,
        )


def _address(r):
    if r.random() < 0.5:
        return str(ipaddress.IPv4Address(r.getrandbits(32)))
    return str(ipaddress.IPv6Address((0x20010DB8 << 96) | r.getrandbits(64)))


def _note(r):
    return r.choice(NOTES) if r.random() < 0.3 else " ".join(r.choices(WORDS, k=r.randrange(1, 20)))


# --- CSV, as cqlsh reads it ---


def write_csv(file, count, seed=SEED):
    writer = csv.writer(file, doublequote=False, escapechar="\\")  # the dialect of COPY
    writer.writerows([csv_text(value) for value in row] for row in rows(count, seed))


def csv_text(value, inside=False):
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}+0000"
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'" if inside else value
    if isinstance(value, list):
        return "[" + ", ".join(csv_text(v, True) for v in value) + "]"
    if isinstance(value, set):
        return "{" + ", ".join(csv_text(v, True) for v in sorted(value)) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{csv_text(k, True)}: {csv_text(v, True)}" for k, v in value.items()) + "}"
    return str(value)


# --- one spelling of a row, to compare what comes back by different ways ---


def canonical(row):
    return tuple(_canonical(value) for value in row)


def _canonical(value):
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}"
    if isinstance(value, (bool, float, int, str, bytes)) or value is None:
        return value
    if hasattr(value, "items"):
        return tuple(sorted((_canonical(k), _canonical(v)) for k, v in value.items()))
    if isinstance(value, list):
        return tuple(_canonical(v) for v in value)
    if isinstance(value, (set, frozenset)) or type(value).__name__ == "SortedSet":
        return tuple(sorted(_canonical(v) for v in value))
    return str(value)


if __name__ == "__main__":
    write_csv(sys.stdout, int(sys.argv[1]))
