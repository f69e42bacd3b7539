"""Both servers start from an empty keyspace of the same name."""

import pytest

from differential.generate import KEYSPACE
from harness import Server, cql


def fresh_session(cluster):
    session = cluster.connect()
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    session.set_keyspace(KEYSPACE)
    return session


@pytest.fixture(scope="session")
def session(server):
    with cql.cluster(server) as cluster:
        yield fresh_session(cluster)


@pytest.fixture(scope="session")
def cassandra(request):
    address = request.config.getoption("--cassandra")
    if not address:
        pytest.skip("needs --cassandra HOST:PORT; its recorded answers are compared in the other tests")
    with cql.cluster(Server.parse(address)) as cluster:
        yield fresh_session(cluster)
