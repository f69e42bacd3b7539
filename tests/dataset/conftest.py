"""How many rows: CETO_TEST_ROWS; ./dev bench uses 1,000,000."""

import os

import pytest

from dataset import rows
from harness import Node, cql


@pytest.fixture(scope="session")
def count():
    return int(os.environ.get("CETO_TEST_ROWS", "20000"))


@pytest.fixture
def empty(server):
    """A session on a server where the table exists and is empty."""
    with cql.cluster(server) as cluster:
        session = cluster.connect()
        session.execute(f"DROP KEYSPACE IF EXISTS {rows.KEYSPACE}")
        session.execute(rows.CREATE_KEYSPACE)
        session.execute(rows.CREATE_TABLE)
        yield session
        session.execute(f"DROP KEYSPACE {rows.KEYSPACE}")


@pytest.fixture
def own_node(request):
    with Node(smp=2, memory="512M", runtime=request.config.getoption("--runtime")) as node:
        yield node
