"""Both servers start from an empty keyspace of the same name."""

import pytest

from differential.answers import compared, fresh_session
from harness import Node, Server, cql


def pytest_terminal_summary(terminalreporter):
    if compared["answers"]:
        line = "{statements} statements compared with Cassandra's answers, {answers} times in all".format(**compared)
        terminalreporter.write_line(line)


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


@pytest.fixture(scope="module")
def own_node(request):
    """A node of these tests alone, which they may flush and kill."""
    with Node(smp=2, memory="512M", runtime=request.config.getoption("--runtime")) as node:
        yield node
