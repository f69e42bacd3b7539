"""A table is split as it grows and merged as it shrinks, while applications write, read and count in it at QUORUM. No request fails, and nothing is lost."""

import os

import pytest
from cassandra import ConsistencyLevel
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.cluster import eventually
from harness.counted import PATIENT, CountedLoad

GOAL = 64 << 10
ROW_BYTES = 1000
# A table of 16 tablets is split when it has more than 32 times the goal.
ROWS = 3000
# Of 1,000 requests a second to a tablet, a quarter keeps its table from being merged.
PAUSE = 0.05
OPTIONS = [
    *PATIENT,
    "--target-tablet-size-in-bytes",
    str(GOAL),
    "--tablet-load-stats-refresh-interval-in-seconds",
    "1",
    "--task-ttl-in-seconds",
    "3600",
]


@pytest.fixture
def cluster(request):
    cluster = Cluster(3, smp=1, runtime=request.config.getoption("--runtime"), options=OPTIONS)
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


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


def hand_overs(cluster, name):
    """The tasks in which a node gives tablets from one of its shards to another, while requests for them wait."""
    listed = []
    for node in cluster:
        for internal in ("false", "true"):
            status, tasks = node.api(f"/task_manager/list_module_tasks/tablets?keyspace={name}&internal={internal}")
            assert status == 200, tasks
            listed += [task for task in tasks if task["type"] == "hand over tablets"]
    return listed


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
        with CountedLoad(cluster, name) as load:
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
            # The leader counts a split when it hears that it is done, which others may know before.
            eventually("five splits are counted", lambda: metric(cluster, "ceto_balance_splits_total") == 5)
        assert cql.rows(session, f"SELECT n FROM {name}.t WHERE k = -1") == [(load.counted,)]
        # It shrinks. What the load has written in the time that this machine took would be enough for 32 tablets, so it goes too, and another load begins: one that
        # leaves the tablet with its counted row far from hot, which on a slow machine is known before the merge is due.
        delete = session.prepare(f"DELETE FROM {name}.t WHERE k = ?")
        for outcome in execute_concurrent_with_args(session, delete, [(k,) for k in (*range(ROWS), *load.written)]):
            assert outcome.success, outcome
        with CountedLoad(cluster, name, pause=PAUSE) as load:
            # A replica may have deletions later than the client has its answers, and so behind one compaction.
            def is_merged():
                for node in cluster:
                    node.nodetool("flush", name)
                    node.nodetool("compact", name)
                return tablets(session, name) == 16

            # Each shard has ten tablets of it at least, so there are sixteen.
            eventually("it is merged", is_merged)
        found = keys(session, name)
        assert len(found) == len(set(found)), "no row is there twice"
        assert set(found) == load.written | {-1}
        assert not hand_overs(cluster, name), "no request waits for a split or a merge"
        assert cql.rows(session, f"SELECT n FROM {name}.t WHERE k = -1") == [(load.counted,)]
