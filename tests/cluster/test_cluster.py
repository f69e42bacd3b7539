"""Three nodes are one database: what one is told all know, and one of them may be missing."""

import pytest

from harness import cql
from harness.cluster import eventually

NODES = (1, 2, 3)


@pytest.fixture
def sessions(cluster):
    """sessions(number) asks that node alone."""
    drivers = []

    def connect(number, keyspace=None):
        drivers.append(cluster.driver(only=number))
        return drivers[-1].connect(keyspace)

    yield connect
    for driver in drivers:
        driver.shutdown()


@pytest.fixture
def keyspace(cluster, sessions):
    name = cql.unique("ks")
    session = sessions(1)
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
    return name


def write(session, keyspace, keys, text):
    insert = session.prepare(f"INSERT INTO {keyspace}.t (k, v) VALUES (?, ?)")
    for k in keys:
        session.execute(insert, (k, f"{text}{k}"))


def read(session, keyspace, keys):
    select = session.prepare(f"SELECT v FROM {keyspace}.t WHERE k = ?")
    return [cql.rows(session, select, (k,)) for k in keys]


def expected(keys, text):
    return [[(f"{text}{k}",)] for k in keys]


def test_a_schema_change_waits_for_no_node_that_is_down(cluster, sessions):
    """Clients compare the versions in system.peers after a schema change, and wait while two differ."""
    session = sessions(1)
    versions = "SELECT schema_version FROM system.peers WHERE peer = %s"
    down = (cluster.node(3).host,)
    cluster.kill(3)
    try:
        eventually("the node is seen down", lambda: cql.rows(session, versions, down) == [(None,)])
        name = cql.unique("ks")
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        assert session.cluster.control_connection.wait_for_schema_agreement(wait_time=1)
    finally:
        cluster.start(3)
        cluster.sees_itself_whole()
    eventually("its version is told again", lambda: cql.rows(session, versions, down) != [(None,)])


@pytest.mark.parametrize("creator", NODES)
def test_a_schema_made_on_one_node_is_seen_on_all(cluster, sessions, creator):
    name = cql.unique("ks")
    session = sessions(creator)
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
    for number in NODES:
        columns = cql.rows(
            sessions(number),
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = %s AND table_name = 't'",
            (name,),
        )
        assert columns == [("k",), ("v",)], f"on node {number}"


def test_what_a_quorum_wrote_through_one_node_is_read_through_each(sessions, keyspace):
    for writer in NODES:
        keys = range(writer * 100, writer * 100 + 20)
        write(sessions(writer), keyspace, keys, "v")
        for reader in NODES:
            got = read(sessions(reader), keyspace, keys)
            assert got == expected(keys, "v"), f"written through node {writer}, read through {reader}"


def test_a_quorum_goes_on_without_a_killed_node_which_comes_back_and_serves(cluster, sessions, keyspace):
    before, during, after = range(0, 50), range(50, 100), range(100, 150)
    write(sessions(1), keyspace, before, "before")
    cluster.kill(3)
    try:
        write(sessions(1), keyspace, during, "during")
        for number in (1, 2):
            assert read(sessions(number), keyspace, before) == expected(before, "before"), f"through node {number}"
            assert read(sessions(number), keyspace, during) == expected(during, "during"), f"through node {number}"
    finally:
        cluster.start(3)
    assert read(sessions(3), keyspace, during) == expected(during, "during"), "written while the node was dead"
    write(sessions(3), keyspace, after, "after")
    assert read(sessions(1), keyspace, after) == expected(after, "after"), "written through the node that came back"


def test_a_quorum_goes_on_while_a_node_is_frozen(cluster, sessions, keyspace):
    frozen, later = range(0, 30), range(30, 60)
    session = sessions(1)
    cluster.pause(2)
    try:
        write(session, keyspace, frozen, "frozen")
        assert read(session, keyspace, frozen) == expected(frozen, "frozen")
    finally:
        cluster.resume(2)
    write(session, keyspace, later, "later")
    assert read(sessions(2), keyspace, [*frozen, *later]) == expected(frozen, "frozen") + expected(later, "later")


def test_a_driver_that_knows_one_node_finds_all_and_asks_replicas(cluster, keyspace):
    with cluster.driver() as driver:
        session = driver.connect(keyspace)
        hosts = {host.address for host in driver.metadata.all_hosts()}
        assert hosts == {node.host for node in cluster}
        eventually("all hosts are up", lambda: all(host.is_up for host in driver.metadata.all_hosts()))
        tokens = driver.metadata.token_map.token_to_host_owner
        assert {host.address for host in tokens.values()} == hosts, "each node owns a part of the ring"
        insert = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
        asked = set()
        for k in range(200):
            bound = insert.bind((k, "v"))
            future = session.execute_async(bound)
            future.result()
            replicas = {host.address for host in driver.metadata.get_replicas(keyspace, bound.routing_key)}
            assert future.coordinator_host.address in replicas, f"key {k}"
            asked.add(future.coordinator_host.address)
        assert asked == hosts, "the writes were spread over all nodes"


def test_each_node_lists_the_others_and_not_itself(cluster, sessions):
    for number in NODES:
        session = sessions(number)
        others = {node.host for node in cluster} - {cluster.node(number).host}
        for table in ("peers", "peers_v2"):
            assert {peer for (peer,) in cql.rows(session, f"SELECT peer FROM system.{table}")} == others
        status = cql.rows(session, "SELECT peer, status, up FROM system.cluster_status")
        assert sorted(status) == [(node.host, "NORMAL", True) for node in cluster], f"on node {number}"
        versions = cql.rows(session, "SELECT schema_version FROM system.peers")
        versions += cql.rows(session, "SELECT schema_version FROM system.local")
        assert len(set(versions)) == 1, f"node {number} sees several schema versions: {versions}"


def test_a_driver_hears_of_a_node_that_dies_and_comes_back(cluster):
    with cluster.driver(only=1) as driver:
        driver.connect()
        heard = []
        driver.control_connection._connection.register_watcher("STATUS_CHANGE", heard.append)
        dead, address = cluster.node(3), (cluster.node(3).host, cluster.ports[0])
        cluster.kill(3)
        try:
            eventually("DOWN was told", lambda: {"change_type": "DOWN", "address": address} in heard)
        finally:
            cluster.start(3)
        assert dead.alive
        eventually("UP was told", lambda: {"change_type": "UP", "address": address} in heard)
