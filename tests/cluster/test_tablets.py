"""Tables have tablets: every node knows where they are, and a node that is restarted with other shards keeps its data."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import Node, cql
from harness.cluster import eventually

NODES = (1, 2, 3)
ROWS = 300


@pytest.fixture
def session(cluster):
    with cluster.driver(only=1) as driver:
        yield driver.connect()


def keyspace(session, replicas, tablets="{'enabled': true}"):
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
        f" AND tablets = {tablets}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    return name


def tablets(session, name):
    rows = cql.rows(session, "SELECT keyspace_name, last_token, tablet_count, replicas FROM system.tablets")
    return sorted(row[1:] for row in rows if row[0] == name)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_all_nodes_see_the_same_tablets_spread_over_all_shards(cluster, session, replicas):
    name = keyspace(session, replicas)
    found = tablets(session, name)
    assert found[-1][0] == (1 << 63) - 1, "the last tablet ends with the ring"
    assert {count for _, count, _ in found} == {len(found)}
    load = {}
    for _, _, places in found:
        assert len({host for host, _ in places}) == replicas
        for place in places:
            load[place] = load.get(place, 0) + 1
    assert len(load) == sum(node.smp for node in cluster), "every shard of every node has some"
    assert max(load.values()) <= 1.1 * sum(load.values()) / len(load) + 1
    for number in NODES[1:]:
        with cluster.driver(only=number) as driver:
            assert tablets(driver.connect(), name) == found, f"node {number} sees others"


@pytest.mark.parametrize(("replicas", "options"), [(1, "{'initial': 16}"), (2, "{'initial': 16}"), (2, "{'enabled': false}")])
def test_rows_are_written_read_and_scanned_through_any_node(cluster, session, replicas, options):
    name = keyspace(session, replicas, options)
    assert len(tablets(session, name)) == (0 if "false" in options else 16)
    insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
    insert.consistency_level = ConsistencyLevel.ALL
    for future in [session.execute_async(insert, (k, k)) for k in range(ROWS)]:
        future.result()
    for number in NODES:
        with cluster.driver(only=number) as driver:
            there = driver.connect()
            scan = SimpleStatement(f"SELECT k FROM {name}.t", fetch_size=37, consistency_level=ConsistencyLevel.ONE)
            assert sorted(k for (k,) in cql.rows(there, scan)) == list(range(ROWS)), f"through node {number}"
            tokens = [token for (token,) in cql.rows(there, f"SELECT token(k) FROM {name}.t")]
            assert tokens == sorted(tokens), f"node {number} gives rows in token order"
            select = there.prepare(f"SELECT v FROM {name}.t WHERE k = ?")
            assert [cql.rows(there, select, (k,)) for k in range(20)] == [[(k,)] for k in range(20)]
            k = 100 + number
            update = there.execute(f"UPDATE {name}.t SET v = {-k} WHERE k = {k} IF v = {k}")
            assert update.was_applied


def test_a_replication_is_altered_and_tablets_get_their_copies(session):
    name = keyspace(session, 1)
    session.execute(f"INSERT INTO {name}.t (k, v) VALUES (1, 2)")
    session.execute(f"ALTER KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}")
    eventually("each tablet has three copies", lambda: all(len(places) == 3 for _, _, places in tablets(session, name)))
    session.execute(f"CREATE TABLE {name}.u (k int PRIMARY KEY, v int)")
    assert all(len(places) == 3 for _, table, places in tablets(session, name) if table == "u")


def test_a_replication_on_the_token_ring_is_altered_and_rows_are_where_they_are_read(cluster, session):
    name = keyspace(session, 1, "{'enabled': false}")
    for k in range(50):
        session.execute(f"INSERT INTO {name}.t (k, v) VALUES ({k}, {k})")
    session.execute(f"ALTER KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}")
    wanted = f"SELECT v FROM {name}.t WHERE k = 7"
    for number in (1, 2, 3):
        with cluster.driver(only=number, consistency="ONE") as driver:
            assert cql.rows(driver.connect(), wanted) == [(7,)]
    eventually("the ring has its owners", lambda: owners_of(cluster, name) == {3})
    for number in (1, 2, 3):
        with cluster.driver(only=number, consistency="ALL") as driver:
            found = cql.rows(driver.connect(), f"SELECT k FROM {name}.t")
            assert sorted(k for (k,) in found) == list(range(50))


def owners_of(cluster, keyspace):
    """How many owners the ranges of a keyspace on the ring have."""
    ranges = cluster.node(1).api(f"/storage_service/describe_ring/{keyspace}")[1]
    return {len(each["endpoints"]) for each in ranges}


@pytest.mark.parametrize("ending", ["stop", "kill9"])
def test_a_node_keeps_its_rows_with_more_and_with_fewer_shards(ending):
    with Node(smp=3) as node:
        for smp in (3, 1, 2, 4):
            node.smp = smp
            if smp != 3:
                node.start()
            with cql.cluster(node.server) as driver:
                session = driver.connect()
                if smp == 3:
                    name = keyspace(session, 1)
                insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
                for k in range(100):
                    session.execute(insert, (smp * 1000 + k, k))
                node.nodetool("flush")
                for k in range(100, 200):
                    session.execute(insert, (smp * 1000 + k, k))
                session.execute(f"INSERT INTO {name}.t (k, v) VALUES (-{smp}, 0) IF NOT EXISTS")
                [(count,)] = cql.rows(session, f"SELECT COUNT(*) FROM {name}.t")
                assert count == 201 * (1 + [3, 1, 2, 4].index(smp)), f"with {smp} shards"
            getattr(node, ending)()
