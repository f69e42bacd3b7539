"""Every test here starts nodes of its own, and ends them its own way."""

import pytest

from harness import Node, cql


@pytest.fixture
def new_node(request):
    """new_node(...) is a node that is not started; whatever is left of it goes away after the test."""
    made = []
    runtime = request.config.getoption("--runtime")

    def make(*arguments, **options):
        made.append(Node(*arguments, **{"runtime": runtime} | options))
        return made[-1]

    yield make
    for node in made:
        if node.process and not node.alive:
            print(f"the node in {node.workdir} died:\n{node.log()}")
        node.remove()


@pytest.fixture
def connect():
    """connect(node) is a session in keyspace ks, which exists; its cluster is shut down after the test."""
    clusters = []

    def make(node, **options):
        clusters.append(cql.cluster(node.server, **options))
        session = clusters[-1].connect()
        session.execute(
            "CREATE KEYSPACE IF NOT EXISTS ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.set_keyspace("ks")
        return session

    yield make
    for cluster in clusters:
        cluster.shutdown()
