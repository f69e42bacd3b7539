"""The Python way in and back: load the rows with execute_concurrent, and compare what a scan returns.

python -m dataset.load load HOST:PORT COUNT
python -m dataset.load verify HOST:PORT COUNT
"""

import hashlib
import sys
import time

from cassandra.concurrent import execute_concurrent_with_args

from dataset import rows
from harness import Server, cql

IN_FLIGHT = 128
BATCH_OF_ARGUMENTS = 10_000
FETCH_SIZE = 2000
DIFFERENCES_SHOWN = 5


def create(session):
    session.execute(rows.CREATE_KEYSPACE)
    session.execute(rows.CREATE_TABLE)


def load(session, count, seed=rows.SEED):
    create(session)
    names = ", ".join(rows.COLUMNS)
    insert = session.prepare(
        f"INSERT INTO {rows.KEYSPACE}.{rows.TABLE} ({names}) VALUES ({', '.join('?' * len(rows.COLUMNS))})"
    )
    arguments = []
    for row in rows.rows(count, seed):
        arguments.append(row)
        if len(arguments) == BATCH_OF_ARGUMENTS:
            execute_concurrent_with_args(session, insert, arguments, concurrency=IN_FLIGHT)
            arguments = []
    execute_concurrent_with_args(session, insert, arguments, concurrency=IN_FLIGHT)


class Expected:
    """What must come back, as digests by key: a million rows fit in little memory."""

    def __init__(self, count, seed=rows.SEED):
        self.left = {}
        self.wrong = []
        for row in rows.rows(count, seed):
            row = rows.canonical(row)
            self.left[digest(row[: len(rows.KEYS)])] = digest(row)

    def found(self, row):
        """A row in the order of COLUMNS, canonical."""
        if self.left.pop(digest(row[: len(rows.KEYS)]), None) != digest(row):
            self.wrong.append(row)

    def check(self):
        assert not self.wrong, f"{len(self.wrong)} rows are not as they were written: {self.wrong[:DIFFERENCES_SHOWN]}"
        assert not self.left, f"{len(self.left)} rows are missing"


def digest(values):
    return hashlib.blake2b(repr(values).encode(), digest_size=8).digest()


def verify(session, count, seed=rows.SEED):
    expected = Expected(count, seed)
    select = session.prepare(f"SELECT {', '.join(rows.COLUMNS)} FROM {rows.KEYSPACE}.{rows.TABLE}")
    select.fetch_size = FETCH_SIZE
    for row in session.execute(select):
        expected.found(rows.canonical(row))
    expected.check()


if __name__ == "__main__":
    action, address, count = sys.argv[1:]
    with cql.cluster(Server.parse(address)) as cluster:
        begin = time.monotonic()
        {"load": load, "verify": verify}[action](cluster.connect(), int(count))
        seconds = time.monotonic() - begin
        print(f"{action}: {count} rows in {seconds:.1f} s, {int(count) / seconds:,.0f} rows/s")
