"""Connections that come by the thousand to every node of a cluster, while it reads at QUORUM."""

from concurrent.futures import ThreadPoolExecutor

from cassandra import ConsistencyLevel

from harness.load import steady_reads
from harness.storm import OF_DRIVERS, storm

STORM = 500


def test_reads_at_quorum_go_on_while_all_nodes_are_stormed(cluster):
    driver = cluster.driver()
    with steady_reads(driver.connect(), ConsistencyLevel.QUORUM, replicas=3) as reads:
        reads.wait_for_more(100)
        with ThreadPoolExecutor(len(cluster.nodes)) as pool:
            outcomes = pool.map(lambda node: storm(node.host, node.port, STORM, OF_DRIVERS), cluster)
            reads.wait_for_more(100)
            for outcome in outcomes:
                assert (outcome.ready, outcome.shed, outcome.broken, outcome.unanswered) == (STORM, 0, 0, 0), outcome
        reads.wait_for_more(100)
        assert not reads.errors, f"reads of connections that were there before: {reads.errors[:3]}"
    driver.shutdown()
