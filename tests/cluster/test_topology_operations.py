"""Nodes that own nothing, nodes that an operator has excluded, and operations that operators watch and abandon."""

import pytest

from harness import Cluster, cql
from harness.cluster import eventually
from harness.node import NodeFailed


@pytest.fixture
def form(request):
    formed = []

    def make(size):
        formed.append(Cluster(size, runtime=request.config.getoption("--runtime")))
        return formed[-1].form().known_to_clients()

    yield make
    for cluster in formed:
        cluster.remove()


def host_of(node):
    return node.api("/storage_service/hostid/local")[1]


def state_of(cluster, node, by=1):
    """UN, XN and so on, by what another node knows; None when it knows no such node."""
    lines = cluster.node(by).nodetool("status").splitlines()
    return next((line[:2] for line in lines if f"  {node.host} " in line), None)


def join(cluster, *options):
    """Start one more node with options of its own."""
    number = len(cluster.nodes) + 1
    node = cluster._node(number)
    node.options = node.options + list(options)
    cluster.nodes.append(node)
    return node.start()


def test_a_zero_token_node_coordinates_votes_and_owns_nothing(form):
    cluster = form(2)
    arbiter = join(cluster, "--join-ring", "false")
    eventually("it is a full member", lambda: state_of(cluster, arbiter) == "UN")
    assert f"own no data (join_ring: false): {arbiter.host}" in cluster.node(1).nodetool("status")
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        peers = {peer for (peer,) in cql.rows(session, "SELECT rpc_address FROM system.peers")}
        assert peers == {cluster.node(2).host}, "drivers are not told of it"
        with_ring = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2} AND tablets = {'enabled': false}"
        for name, replication in (
            ("tablets", "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}"),
            ("ring", with_ring),
        ):
            session.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
            session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    # A client that connects to it is served from what the others have.
    with cluster.driver(only=3) as driver:
        session = driver.connect()
        assert cql.rows(session, "SELECT tokens FROM system.local") == [(None,)]
        for name in ("tablets", "ring"):
            for key in range(20):
                session.execute(f"INSERT INTO {name}.t (k, v) VALUES ({key}, {key})")
            assert len(cql.rows(session, f"SELECT * FROM {name}.t")) == 20
            for (replicas,) in cql.rows(session, f"SELECT replicas FROM system.tablets WHERE keyspace_name = '{name}' ALLOW FILTERING"):
                assert host_of(arbiter) not in {str(host) for host, _ in replicas}
    # With it, one of two owners may fail and the schema still changes.
    cluster.has_voters()
    cluster.kill(2)
    eventually("the others miss it", lambda: state_of(cluster, cluster.node(2)) == "DN")
    with cluster.driver(only=1, consistency="ONE") as driver:
        driver.connect().execute("CREATE TABLE tablets.more (k int PRIMARY KEY)")
    cluster.start(2)
    cluster.sees_itself_whole()

    arbiter.stop()
    arbiter.options[-1] = "true"
    with pytest.raises(NodeFailed, match="set join_ring: false again"):
        arbiter.start()
    arbiter.options[-1] = "false"
    arbiter.start()
    arbiter.nodetool("decommission")
    assert state_of(cluster, arbiter) is None
    eventually("the node has stopped by itself", lambda: not arbiter.alive)
    cluster.nodes.pop().remove()


def test_an_arbiter_datacenter_is_no_target_of_a_replication(form):
    cluster = form(1)
    arbiter = join(cluster, "--join-ring", "false", "--data-center", "arbiter")
    eventually("it is a full member", lambda: state_of(cluster, arbiter) == "UN")
    with cluster.driver(only=1, consistency="ONE") as driver:
        session = driver.connect()
        refused = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1, 'arbiter': 1}"
        with pytest.raises(Exception, match="arbiter"):
            session.execute(f"CREATE KEYSPACE refused WITH replication = {refused}")
        taken = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        session.execute(f"CREATE KEYSPACE taken WITH replication = {taken}")
        [(replication,)] = cql.rows(session, "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'taken'")
        assert "arbiter" not in replication


def test_an_excluded_node_is_waited_for_no_more_and_may_not_come_back(form):
    cluster = form(3)
    lost = cluster.node(3)
    host = host_of(lost)
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"
        session.execute(f"CREATE KEYSPACE ks WITH replication = {replication}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
        session.execute("INSERT INTO ks.t (k) VALUES (1)")
        with pytest.raises(NodeFailed, match="only a node that is down can be excluded"):
            cluster.node(1).nodetool("excludenode", host)
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        with pytest.raises(Exception, match="TRUNCATE needs all replicas"):
            session.execute("TRUNCATE ks.t")
        cluster.node(1).nodetool("excludenode", host)
        for by in (1, 2):
            eventually("it is excluded", lambda by=by: state_of(cluster, lost, by) == "XN")
        session.execute("TRUNCATE ks.t")
        assert cql.rows(session, "SELECT * FROM ks.t") == []
    with pytest.raises(NodeFailed, match="left the cluster or was removed|was excluded"):
        lost.start()
        eventually("it has stopped", lambda: not lost.alive)
        raise NodeFailed("it has stopped by itself", None, lost.log())
    assert state_of(cluster, lost) == "XN"
    heir = join(cluster, "--replace-node-first-boot", host, "--ignore-dead-nodes-for-replace", "")
    eventually("another takes its place", lambda: state_of(cluster, heir) == "UN" and state_of(cluster, lost) is None)
    lost.remove()
    cluster.nodes.remove(lost)
