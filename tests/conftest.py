"""Which server the suites talk to.

pytest tests/server                       a ceto node that the harness starts (CETO_BIN, or the newest build)
pytest tests/server --server HOST:PORT    any server that runs already, for example Apache Cassandra: the oracle
"""

import pytest

from harness import Node, Server, cql, runtime_available


def pytest_addoption(parser):
    parser.addoption("--server", metavar="HOST:PORT", help="test this running server instead of starting ceto")
    parser.addoption(
        "--runtime", choices=["epoll", "io_uring"], help="the runtime backend of the nodes that are started"
    )
    parser.addoption(
        "--cassandra", metavar="HOST:PORT", help="compare with this Cassandra instead of its recorded answers"
    )
    parser.addoption("--record", action="store_true", help="write down the answers of --cassandra")


def pytest_collection_modifyitems(config, items):
    runtime = config.getoption("--runtime")
    if runtime and not runtime_available(runtime):
        skip = pytest.mark.skip(reason=f"{runtime} is forbidden here")
        for item in items:
            item.add_marker(skip)
    if config.getoption("--server"):
        for item in items:
            if mark := item.get_closest_marker("ceto_only"):
                item.add_marker(pytest.mark.skip(reason=f"ceto only: {mark.args[0]}"))


@pytest.fixture(scope="session")
def node(pytestconfig):
    """The node that most tests share."""
    node = Node(smp=2, memory="512M", runtime=pytestconfig.getoption("--runtime"))
    node.start()
    yield node
    died = not node.alive
    log = node.log()
    node.remove()
    assert not died, f"the node died during the tests\n{log}"


@pytest.fixture(scope="session")
def server(request):
    if address := request.config.getoption("--server"):
        return Server.parse(address)
    return request.getfixturevalue("node").server


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what its node printed."""
    report = yield
    if report.when == "call" and report.failed:
        nodes = {id(v): v for v in item.funcargs.values() if isinstance(v, Node)}
        for value in item.funcargs.values():
            if isinstance(value, Server) and value.node:
                nodes[id(value.node)] = value.node
        for node in nodes.values():
            report.sections.append((f"output of ceto in {node.workdir}", node.log()))
    return report
