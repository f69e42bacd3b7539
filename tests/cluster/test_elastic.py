"""A cluster grows, shrinks, loses a node and changes its replication while applications write and read at QUORUM: tables with tablets and tables
on the token ring alike. Nothing that was acknowledged is lost, and no request fails but those of a node that dies.
"""

import contextlib

import pytest

from harness import Cluster, cql
from harness.cluster import eventually
from harness.members import copies_on_ring, host_of, is_still, state_of, tablets_of, tokens_of
from harness.witness import Witness

SHARDS = 2
REQUESTS = 300
# Stages flush and sync: on a machine that does much else that may take longer than a request usually waits.
PATIENT = [option for name in ("write-request-timeout", "read-request-timeout") for option in (f"--{name}", "20s")]
OF_A_DYING_NODE = ("NoHostAvailable", "OperationTimedOut", "ReadTimeout", "Unavailable", "WriteTimeout")


@pytest.fixture
def form(request):
    formed = []

    def make(size):
        formed.append(Cluster(size, smp=SHARDS, runtime=request.config.getoption("--runtime"), options=PATIENT))
        return formed[-1].form().known_to_clients()

    yield make
    for cluster in formed:
        cluster.remove()


class Loads:
    """Two witnesses: of a table with tablets and of one on the token ring."""

    def __init__(self, cluster, **where):
        self.witnesses = [Witness(cluster, ring=ring, chains=4, **where) for ring in (False, True)]
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        for witness in self.witnesses:
            self.stack.enter_context(witness)
        self.more()
        return self

    def __exit__(self, *failure):
        if failure[0] is None:
            for witness in self.witnesses:
                witness.finish().check(self.allowed)
        self.stack.close()

    allowed = None

    def more(self):
        for witness in self.witnesses:
            witness.more(REQUESTS)

    def phase(self, name):
        for witness in self.witnesses:
            witness.phase(name)

    @property
    def keyspaces(self):
        return [witness.keyspace for witness in self.witnesses]


def test_a_cluster_grows_and_shrinks_while_it_is_written_and_read(form):
    cluster = form(3)
    with cluster.driver(only=1) as driver, Loads(cluster) as load:
        session = driver.connect()
        tablets, _ = load.keyspaces
        for size in (4, 5):
            load.phase(f"{size} nodes")
            new = cluster.node(cluster.add())
            eventually(f"{new.host} is a full member", lambda new=new: state_of(cluster, new) == "UN")
            eventually("it has tablets", lambda new=new: tablets_of(session, tablets).get(host_of(new), 0) > 0)
            load.more()
        eventually("nothing moves", lambda: is_still(cluster))
        counts = tablets_of(session, tablets)
        assert len(counts) == 5 and max(counts.values()) - min(counts.values()) <= 2, counts
        # Drivers see the new nodes.
        peers = {peer for (peer,) in cql.rows(session, "SELECT rpc_address FROM system.peers")}
        assert {node.host for node in cluster} - {cluster.node(1).host} == peers
        for number in (5, 4):
            load.phase(f"node {number} leaves")
            leaving = cluster.nodes.pop()
            leaving.nodetool("decommission")
            assert state_of(cluster, leaving) is None
            eventually("the node has stopped by itself", lambda leaving=leaving: not leaving.alive)
            load.allowed = {f"node {number} leaves": OF_A_DYING_NODE} | (load.allowed or {})
            load.more()
            leaving.remove()
        assert len(tablets_of(session, tablets)) == 3


def test_a_replication_goes_up_and_down_while_it_is_written_and_read(form):
    cluster = form(4)
    with cluster.driver(only=1) as driver, Loads(cluster) as load:
        session = driver.connect()
        tablets, ring = load.keyspaces
        for factor in (1, 3, 2, 4, 3):
            load.phase(f"{factor} copies")
            for keyspace in load.keyspaces:
                replication = f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': {factor}}}"
                session.execute(f"ALTER KEYSPACE {keyspace} WITH replication = {replication}")
            load.more()

            def all_have(factor=factor):
                wanted = "SELECT keyspace_name, replicas FROM system.tablets"
                found = [len(replicas) for name, replicas in cql.rows(session, wanted) if name == tablets]
                return set(found) == {factor}

            eventually(f"each tablet has {factor} copies", all_have)
            eventually("nothing moves", lambda: is_still(cluster))
            eventually("the ring has its owners", lambda factor=factor: copies_on_ring(cluster, ring) == {factor})
            load.more()


def test_a_lost_node_is_removed_and_its_copies_are_rebuilt_while_it_is_written_and_read(form):
    cluster = form(4)
    with cluster.driver(only=1) as driver, Loads(cluster) as load:
        session = driver.connect()
        lost = cluster.node(4)
        host = host_of(lost)
        load.phase("a node dies")
        load.allowed = {"a node dies": OF_A_DYING_NODE}
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        load.phase("it is removed")
        cluster.node(1).nodetool("removenode", host)
        assert "Operation remove" not in cluster.node(1).nodetool("status"), "it has ended"
        cluster.nodes.pop()
        load.more()
        assert state_of(cluster, lost) is None
        assert host not in tablets_of(session, load.keyspaces[0])
    lost.remove()


@pytest.mark.parametrize("by", ["host id", "address"])
def test_a_new_node_takes_the_place_of_a_lost_one_while_it_is_written_and_read(form, by):
    cluster = form(3)
    with cluster.driver(only=1) as driver, Loads(cluster) as load:
        session = driver.connect()
        lost = cluster.node(3)
        host, tokens = host_of(lost), tokens_of(session, lost)
        load.phase("a node dies")
        load.allowed = {"a node dies": OF_A_DYING_NODE, "another takes its place": OF_A_DYING_NODE}
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        load.phase("another takes its place")
        # By its address: on the same one.
        number = 4 if by == "host id" else 3
        option = ["--replace-node-first-boot", host] if by == "host id" else ["--replace-address-first-boot", lost.host]
        cluster.options += option
        heir = cluster._node(number)
        cluster.nodes[2] = heir
        heir.start()
        eventually("it is a full member", lambda: state_of(cluster, heir) == "UN")
        eventually("the lost node has left", lambda: host not in cluster.node(1).nodetool("status"))
        eventually("nothing moves", lambda: is_still(cluster))
        load.phase("afterwards")
        load.more()
        assert set(tablets_of(session, load.keyspaces[0])) == {host_of(node) for node in cluster}
        assert tokens_of(session, heir) == tokens
    lost.remove()
