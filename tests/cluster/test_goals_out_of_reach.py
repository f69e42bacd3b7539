"""A replication that the nodes cannot have yet: operators see what it waits for, and it goes on when there is room."""

import pytest

from harness import Cluster, cql
from harness.cluster import eventually


@pytest.fixture
def cluster(request):
    cluster = Cluster(2, smp=1, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def test_the_status_says_that_no_disk_has_room_for_another_copy(cluster):
    full = cluster.add("--critical-disk-utilization-level", "0.01")
    cluster.known_to_clients()
    name = cql.unique("ks")
    replication = "{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"

    def stuck():
        lines = cluster.node(1).nodetool("status").splitlines()
        operation = [at for at, line in enumerate(lines) if line.startswith(f"Operation replication of {name}")]
        return operation and "no node that may hold the copy has room on its disk" in lines[operation[0] + 1]

    with cluster.driver() as driver:
        session = driver.connect()
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {replication.format(copies=2)}")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY)")
        session.execute(f"ALTER KEYSPACE {name} WITH replication = {replication.format(copies=3)}")
        eventually("the status says what it waits for", stuck)
        # The same node with other options.
        cluster.node(full).options[-1] = "1"
        cluster.restart(full)
        eventually("it goes on", lambda: name not in cluster.node(1).nodetool("status"))
        rows = cql.rows(session, "SELECT table_name, replicas FROM system.tablets")
        assert all(len(replicas) == 3 for table, replicas in rows if table == "t"), rows
