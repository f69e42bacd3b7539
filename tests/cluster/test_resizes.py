"""A table is split as it grows and merged as it shrinks, while applications write, read and count in it at QUORUM. No request fails, and nothing is lost."""

import os
import threading

import pytest
from cassandra import ConsistencyLevel
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.cluster import eventually

GOAL = 64 << 10
ROW_BYTES = 1000
# A table of 16 tablets is split when it has more than 32 times the goal.
ROWS = 3000
# Where the keys of the load begin.
LOAD = 1_000_000
# Nodes take splits over while they are asked: on a machine that does much else a request may wait longer than it usually does.
PATIENT = [
    option
    for name in ("write-request-timeout", "read-request-timeout", "cas-contention-timeout")
    for option in (f"--{name}", "20s")
]
OPTIONS = [
    *PATIENT,
    "--target-tablet-size-in-bytes",
    str(GOAL),
    "--tablet-load-stats-refresh-interval-in-seconds",
    "1",
]


@pytest.fixture
def cluster(request):
    cluster = Cluster(3, smp=1, runtime=request.config.getoption("--runtime"), options=OPTIONS)
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


class Load:
    """A client that writes rows, reads them back, and counts by conditional statements, until it is told to end."""

    def __init__(self, cluster, name):
        self.name, self.driver = name, cluster.driver()
        self.done, self.written, self.failures, self.counted = threading.Event(), set(), [], 0
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.session = self.driver.__enter__().connect()
        self.session.execute(f"INSERT INTO {self.name}.t (k, n) VALUES (-1, 0)")
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.driver.__exit__(None, None, None)
        assert not self.failures, self.failures[:3]

    def run(self):
        insert = self.session.prepare(f"INSERT INTO {self.name}.t (k, n) VALUES (?, ?)")
        select = self.session.prepare(f"SELECT n FROM {self.name}.t WHERE k = ?")
        count = self.session.prepare(f"UPDATE {self.name}.t SET n = ? WHERE k = -1 IF n = ?")
        for statement in (insert, select):
            statement.consistency_level = ConsistencyLevel.QUORUM
        k = LOAD
        while not self.done.is_set():
            k += 1
            try:
                self.session.execute(insert, (k, k))
                self.written.add(k)
                if cql.rows(self.session, select, (k,)) != [(k,)]:
                    self.failures.append(f"{k} was written and is not there")
                applied = self.session.execute(count, (self.counted + 1, self.counted)).one()
                if not applied[0]:
                    self.failures.append(f"addition {self.counted + 1} was not applied: {applied}")
                self.counted += 1
            except Exception as error:
                self.failures.append(repr(error))


def tablets(session, name):
    rows = cql.rows(session, "SELECT keyspace_name, table_name FROM system.tablets")
    return sum(1 for row in rows if row == (name, "t"))


def flush(cluster, name):
    for node in cluster:
        node.nodetool("flush", name)


def keys(session, name):
    scan = SimpleStatement(f"SELECT k FROM {name}.t", consistency_level=ConsistencyLevel.ALL)
    return [k for (k,) in cql.rows(session, scan)]


def metric(cluster, name):
    return sum(value for node in cluster for line, value in node.metrics().items() if line.startswith(name))


def test_a_table_is_split_as_it_grows_and_merged_as_it_shrinks_while_it_is_written_and_read(cluster):
    name = cql.unique("ks")
    with cluster.driver() as driver:
        session = driver.connect()
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
            " AND tablets = {'initial': 1}"
        )
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v blob, n int) WITH gc_grace_seconds = 0")
        assert tablets(session, name) == 1
        with Load(cluster, name) as load:
            insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
            step = ROWS // 5
            for first in range(0, ROWS, step):
                rows = [(k, os.urandom(ROW_BYTES)) for k in range(first, first + step)]
                for outcome in execute_concurrent_with_args(session, insert, rows):
                    assert outcome.success, outcome
                flush(cluster, name)
            eventually("it is split into 32 tablets", lambda: tablets(session, name) == 32)
            found = keys(session, name)
            assert len(found) == len(set(found)), "no row is there twice"
            assert set(range(ROWS)) <= set(found)
            # Operators see it.
            told = cluster.node(2).nodetool("tabletbalancing")
            assert "Size of a tablet that is aimed at: 64 KiB" in told and f"{name}.t" in told, told
            assert metric(cluster, "ceto_balance_splits_total") == 5
            # It shrinks.
            delete = session.prepare(f"DELETE FROM {name}.t WHERE k = ?")
            for outcome in execute_concurrent_with_args(session, delete, [(k,) for k in range(ROWS)]):
                assert outcome.success, outcome
            for node in cluster:
                node.nodetool("flush", name)
                node.nodetool("compact", name)
            # Each shard has ten tablets of it at least, so there are sixteen.
            eventually("it is merged", lambda: tablets(session, name) == 16)
        found = keys(session, name)
        assert len(found) == len(set(found)), "no row is there twice"
        assert set(found) == load.written | {-1}
        assert cql.rows(session, f"SELECT n FROM {name}.t WHERE k = -1") == [(load.counted,)]
