"""A keyspace of EverywhereStrategy has a copy on each node, also on one that joins later: any node alone can then answer."""

import pytest

from harness import Cluster, cql
from harness.cluster import eventually

ROWS = 100
OPTIONS = ["--tablet-load-stats-refresh-interval-in-seconds", "1"]


@pytest.mark.parametrize("tablets", ["true", "false"])
def test_a_node_that_joins_gets_everything(request, tablets):
    runtime = request.config.getoption("--runtime")
    with Cluster(2, smp=1, runtime=runtime, options=OPTIONS, repairs=False) as cluster:
        session = cluster.driver().connect()
        session.execute(
            f"CREATE KEYSPACE e WITH replication = {{'class': 'EverywhereStrategy'}} AND tablets = {{'enabled': {tablets}}}"
        )
        session.execute("CREATE TABLE e.t (k int PRIMARY KEY, v int)")
        for k in range(ROWS):
            session.execute(f"INSERT INTO e.t (k, v) VALUES ({k}, {k})")
        joined = cluster.add()

        def has_a_copy_of_each_tablet():
            rows = cql.rows(session, "SELECT keyspace_name, replicas, new_replicas FROM system.tablets")
            return all(len(replicas) == 3 and not new for keyspace, replicas, new in rows if keyspace == "e")

        eventually("the new node has a copy of each tablet", has_a_copy_of_each_tablet)
        session.cluster.shutdown()
        for number in (1, 2):
            cluster.node(number).kill9()
        alone = cluster.driver(only=joined, consistency="ONE")
        rows = cql.rows(alone.connect(), "SELECT k, v FROM e.t")
        assert sorted(rows) == [(k, k) for k in range(ROWS)]
        alone.shutdown()
