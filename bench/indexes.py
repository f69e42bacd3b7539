"""Figures of secondary indexes: what they cost writes, what they take on the disk, and what queries by them cost."""

import os
import time
from pathlib import Path

from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement
from figures import figure

from harness import Node, cql
from harness.cluster import eventually

ONE_INDEX_MAX, THREE_INDEXES_MAX = 1.4, 2.0
BYTES_OF_ROW_MAX = 2.0
READ_MIN, COUNT_MIN, BUILD_MIN = 200_000, 2_000_000, 300_000
ROWS = int(os.environ.get("CETO_INDEX_ROWS", "300000"))
KINDS, GROUPS = 3, 1_000


def indexes(counted):
    """`counted(kind, operations)` counts the instructions of a workload of simple-query."""
    operations = 20_000
    per_write = {}
    for count in (0, 1, 3):
        kind = ["--write", "--indexes", str(count)]
        per_write[count] = (counted(kind, 2 * operations) - counted(kind, operations)) / operations
        figure(f"write beside {count} indexes, simple-query under callgrind", per_write[count], "instructions/op")
    figure("a write beside one index against one beside none", per_write[1] / per_write[0], "times", most=ONE_INDEX_MAX)
    figure("a write beside three indexes against one beside none", per_write[3] / per_write[0], "times", most=THREE_INDEXES_MAX)
    with Node(smp=1) as node, cql.cluster(node.server) as driver:
        _stored(node, driver.connect())


def _rate(node, rows, work):
    """Rows for each second of the server's processor time."""
    before = node.cpu_seconds()
    work()
    return rows / max(node.cpu_seconds() - before, 0.01)


def _files(node, number):
    return [path for path in Path(node.workdir).rglob(f"*-CetoIndex_{number}.db") if "snapshots" not in path.parts]


def _stored(node, session):
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE k.t (k bigint PRIMARY KEY, kind int, grp int, only bigint, filler text)")
    insert = session.prepare("INSERT INTO k.t (k, kind, grp, only, filler) VALUES (?, ?, ?, ?, 'some text of a row')")
    rows = ((n, n % KINDS, n * 7919 % GROUPS, n) for n in range(ROWS))
    execute_concurrent_with_args(session, insert, rows, concurrency=200)
    node.nodetool("flush", "k")
    node.nodetool("compact", "k")
    for number, column in enumerate(("kind", "grp", "only")):
        sstables = len([path for path in Path(node.workdir).rglob("*-big-Data.db") if "/k/" in str(path)])
        began, before = time.monotonic(), node.cpu_seconds()
        session.execute(f"CREATE INDEX ON k.t ({column})")
        eventually(f"the index of {column} is built", lambda number=number: len(_files(node, number)) >= sstables)
        figure(f"an index of {column} of {ROWS:,} rows built", ROWS / (node.cpu_seconds() - before), "rows/s of a core",
               least=BUILD_MIN)
        figure(f"that in time", time.monotonic() - began, "s")
    size = sum(path.stat().st_size for path in _files(node, 1)) / ROWS
    figure(f"an index of an int with {GROUPS:,} values, on the disk", size, "bytes/row", most=BYTES_OF_ROW_MAX)

    def read(condition, selected="k, kind"):
        statement = SimpleStatement(f"SELECT {selected} FROM k.t WHERE {condition}", fetch_size=5_000)
        return sum(1 for _ in session.execute(statement))

    of_kind = ROWS // KINDS
    figure("rows of one of three values read, in pages of 5,000", _rate(node, of_kind, lambda: read("kind = 1")),
           "rows/s of a core", least=READ_MIN)
    figure("count(*) of one of three values", _rate(node, of_kind, lambda: read("kind = 1", "count(*)")), "rows/s of a core",
           least=COUNT_MIN)
    of_group = ROWS // GROUPS
    figure("rows of one of 1,000 values read", _rate(node, of_group * 100, lambda: [read(f"grp = {n}") for n in range(100)]),
           "rows/s of a core")
    figure("rows of unique values read", _rate(node, 3_000, lambda: [read(f"only = {n * 97}") for n in range(3_000)]),
           "rows/s of a core")
    figure("queries by two indexes of which one has 1,000 values",
           _rate(node, 1_000, lambda: [read(f"grp = {n} AND kind = 1") for n in range(1_000)]), "queries/s of a core")
