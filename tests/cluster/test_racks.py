"""`rf_rack_valid_keyspaces` and `enforce_rack_list`: keyspaces with tablets keep a copy in each rack."""

import pytest

from harness import Cluster, cql
from harness.node import NodeFailed

REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': %d}"
# ALTER keeps the factors of datacenters that it does not name.
ALTERED = "{'class': 'NetworkTopologyStrategy', 'datacenter1': %d}"


@pytest.fixture
def two_racks(request):
    """two_racks(option) is a cluster of a node in rack1 and one in rack2, both with the option."""
    formed = []

    def make(option):
        cluster = Cluster(1, options=[f"--{option}", "true"], runtime=request.config.getoption("--runtime"))
        formed.append(cluster)
        cluster.form()
        join(cluster, "rack2")
        return cluster.known_to_clients()

    yield make
    for cluster in formed:
        cluster.remove()


def join(cluster, rack):
    node = cluster._node(len(cluster.nodes) + 1)
    node.options = [*node.options, "--rack", rack]
    cluster.nodes.append(node)
    return node.start()


def test_neither_a_statement_nor_a_node_makes_a_keyspace_unfit_for_the_racks(two_racks):
    cluster = two_racks("rf-rack-valid-keyspaces")
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        refused = "Keyspace three has tablets and 3 copies in datacenter datacenter1, with 2 racks that have nodes that hold data"
        cql.refused(session, f"CREATE KEYSPACE three WITH replication = {REPLICATION % 3}", cql.INVALID, refused)
        session.execute(f"CREATE KEYSPACE two WITH replication = {REPLICATION % 2}")
        session.execute(f"CREATE KEYSPACE ring WITH replication = {REPLICATION % 3} AND tablets = {{'enabled': false}}")
        cql.refused(session, f"ALTER KEYSPACE two WITH replication = {ALTERED % 3}", cql.INVALID, "Keyspace two has tablets and 3 copies")
        with pytest.raises(NodeFailed, match="rf_rack_valid_keyspaces"):
            join(cluster, "rack3")
        cluster.nodes.pop().remove()
        with pytest.raises(NodeFailed, match="rf_rack_valid_keyspaces"):
            cluster.node(2).nodetool("decommission")
        session.execute(f"ALTER KEYSPACE two WITH replication = {ALTERED % 1}")


def test_factors_become_lists_of_racks(two_racks):
    cluster = two_racks("enforce-rack-list")
    with cluster.driver(only=2) as driver:
        session = driver.connect()
        session.execute(f"CREATE KEYSPACE two WITH replication = {REPLICATION % 2}")
        [described] = [row.create_statement for row in session.execute("DESCRIBE KEYSPACE two")]
        assert "'datacenter1': ['rack1', 'rack2']" in described, described
        cql.refused(session, f"CREATE KEYSPACE three WITH replication = {REPLICATION % 3}", cql.CONFIG, "which has 2 racks")
        cql.refused(session, f"ALTER KEYSPACE two WITH replication = {ALTERED % 1}", cql.CONFIG, "wants them listed")
        # Racks that come later get no copies, and hinder nobody.
        join(cluster, "rack3")
        session.execute("CREATE TABLE two.t (k int PRIMARY KEY)")
        session.execute("INSERT INTO two.t (k) VALUES (1)")
        assert cql.rows(session, "SELECT k FROM two.t") == [(1,)]


def test_a_node_does_not_start_with_a_keyspace_that_is_unfit(request):
    cluster = Cluster(1, runtime=request.config.getoption("--runtime"))
    try:
        cluster.form()
        with cluster.driver() as driver:
            driver.connect().execute(f"CREATE KEYSPACE two WITH replication = {REPLICATION % 2}")
        node = cluster.node(1)
        node.stop()
        node.options = [*node.options, "--rf-rack-valid-keyspaces", "true"]
        with pytest.raises(NodeFailed, match="Keyspace two has tablets and 2 copies in datacenter datacenter1, with 1 racks"):
            node.start()
    finally:
        cluster.remove()
