"""One session and one keyspace for all tests of this directory; each test makes tables of its own."""

from importlib.util import find_spec

import pytest

from harness import cql

# scylla-driver takes the module name `cassandra` too: its own tests are collected in its own environment only.
collect_ignore = [] if find_spec("cassandra.shard_info") else ["test_scylla_driver.py"]


@pytest.fixture(scope="session")
def cluster(server):
    cluster = cql.cluster(server)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="session")
def keyspace(cluster):
    name = cql.unique("ks")
    session = cluster.connect()
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    yield name
    session.execute(f"DROP KEYSPACE {name}")


@pytest.fixture(scope="session")
def session(cluster, keyspace):
    return cluster.connect(keyspace)


@pytest.fixture
def table(session):
    """table("k int PRIMARY KEY, v text", " WITH ...") creates a table and returns its name."""
    made = []

    def create(columns, options=""):
        name = cql.unique("t")
        session.execute(f"CREATE TABLE {name} ({columns}){options}")
        made.append(name)
        return name

    yield create
    for name in made:
        session.execute(f"DROP TABLE IF EXISTS {name}")
