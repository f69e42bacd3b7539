"""A keyspace goes from the token ring to tablets and back, while applications write, read and count in it at QUORUM. No request fails, and nothing is lost."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.cluster import eventually
from harness.counted import PATIENT, CountedLoad
from harness.node import NodeFailed

NODES = 4
ROWS = 2000
OPTIONS = [*PATIENT, "--num-tokens", "4", "--tablet-load-stats-refresh-interval-in-seconds", "1"]


@pytest.fixture
def cluster(request):
    cluster = Cluster(NODES, smp=2, runtime=request.config.getoption("--runtime"), options=OPTIONS)
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def tablets(session, name, copies=3):
    """By table: the last token and the number of replicas of each tablet; none for tables of the ring."""
    rows = cql.rows(session, "SELECT keyspace_name, table_name, last_token, replicas, new_replicas FROM system.tablets")
    found = {}
    for keyspace, table, last, replicas, new in rows:
        if keyspace == name:
            assert len(replicas) == copies, rows
            found.setdefault(table, []).append((last, bool(new)))
    return found


def create_on_ring(session, name, copies):
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}"
        " AND tablets = {'enabled': false}"
    )


def is_even(of_table):
    """Tablets of equal size, of which none moves."""
    size = (1 << 64) // len(of_table)
    ends = [-(1 << 63) + size * (at + 1) - 1 for at in range(len(of_table))]
    return len(of_table).bit_count() == 1 and sorted(of_table) == [(last, False) for last in ends]


def goes_on(node, name):
    return f"Operation replication of {name}" in node.nodetool("status")


def check(session, name, load):
    scan = SimpleStatement(f"SELECT k FROM {name}.t", consistency_level=ConsistencyLevel.ALL)
    found = [k for (k,) in cql.rows(session, scan)]
    assert len(found) == len(set(found)), "no row is there twice"
    assert set(found) == set(range(ROWS)) | load.written | {-1}
    counted = SimpleStatement(f"SELECT n FROM {name}.t WHERE k = -1", consistency_level=ConsistencyLevel.SERIAL)
    assert cql.rows(session, counted) == [(load.counted,)]
    added = SimpleStatement(f"SELECT sum(n) FROM {name}.c", consistency_level=ConsistencyLevel.ALL)
    assert cql.rows(session, added) == [(load.counted,)]


def test_nodetool_takes_a_keyspace_to_tablets(cluster):
    name = cql.unique("ks")
    node = cluster.node(2)
    with cluster.driver() as driver:
        session = driver.connect()
        create_on_ring(session, name, copies=2)
        session.execute(f"CREATE TABLE {name}.a (k int PRIMARY KEY)")
        session.execute(f"CREATE TABLE {name}.b (k int PRIMARY KEY)")
        on_ring = f"Keyspace: {name}\nStatus: vnodes\nOn the token ring: a, b\n"
        assert node.nodetool("migrate-to-tablets", "status", name) == on_ring
        with pytest.raises(NodeFailed, match="not on its way to tablets"):
            node.nodetool("migrate-to-tablets", "finalize", name)
        assert "Status: migrating_to_tablets" in node.nodetool("migrate-to-tablets", "start", name)
        done = f"Keyspace: {name}\nStatus: tablets\nWith tablets: a, b\n"
        assert node.nodetool("migrate-to-tablets", "finalize", name) == done
        assert {table: is_even(of) for table, of in tablets(session, name, copies=2).items()} == {"a": True, "b": True}
        # Nothing is left to begin.
        assert node.nodetool("migrate-to-tablets", "start", name) == done
        session.execute(f"ALTER KEYSPACE {name} WITH tablets = {{'enabled': false}}")
        eventually("it is on the ring", lambda: node.nodetool("migrate-to-tablets", "status", name) == on_ring)
    for words, why in (
        (["upgrade"], "no node has to be upgraded or restarted"),
        (["downgrade"], "takes a keyspace back to the token ring"),
        (["start", "none"], "Can't find a keyspace none"),
        (["start", "system_traces"], "is the system's"),
        (["start"], "usage: ceto nodetool migrate-to-tablets"),
    ):
        with pytest.raises(NodeFailed, match=why):
            node.nodetool("migrate-to-tablets", *words)


def test_a_keyspace_goes_to_tablets_and_back_under_load(cluster):
    name = cql.unique("ks")
    with cluster.driver() as driver:
        session = driver.connect()
        create_on_ring(session, name, copies=3)
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v blob, n int)")
        session.execute(f"CREATE TABLE {name}.c (k int PRIMARY KEY, n counter)")
        insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
        for outcome in execute_concurrent_with_args(session, insert, [(k, bytes(500)) for k in range(ROWS)]):
            assert outcome.success, outcome
        for node in cluster:
            node.nodetool("flush", name)
        with CountedLoad(cluster, name, counters=True) as load:
            load.wait_for_more(20)
            assert tablets(session, name) == {}
            session.execute(f"ALTER KEYSPACE {name} WITH tablets = {{'enabled': true}}")
            # New tables have tablets at once.
            session.execute(f"CREATE TABLE {name}.new (k int PRIMARY KEY)")
            assert is_even(tablets(session, name)["new"])

            def has_tablets():
                found = tablets(session, name)
                return set(found) == {"t", "c", "new"} and all(is_even(of) for of in found.values())

            eventually("all tables have tablets of equal size", has_tablets)
            eventually("nothing is left to do", lambda: not any(goes_on(node, name) for node in cluster))
            load.wait_for_more(20)
            session.execute(f"ALTER KEYSPACE {name} WITH tablets = {{'enabled': false}}")
            session.execute(f"CREATE TABLE {name}.newer (k int PRIMARY KEY)")
            assert "newer" not in tablets(session, name)
            eventually("all tables are on the ring", lambda: tablets(session, name) == {})
            eventually("nothing is left to do", lambda: not any(goes_on(node, name) for node in cluster))
            load.wait_for_more(20)
        check(session, name, load)
    # What a restart finds is what the nodes had.
    for number in range(1, NODES + 1):
        cluster.restart(number)
    cluster.known_to_clients()
    with cluster.driver() as driver:
        check(driver.connect(), name, load)
