"""What drivers know of nodes that join, leave, move, are replaced and are closed to clients: exactly those that serve, soon after each change.

The order of the events that lead there is a test of its own, in crates/sim/tests/events. CI runs the Python driver; `./dev drivers members` runs all of them.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness import Cluster
from harness.cluster import eventually
from harness.members import host_of, state_of

HERE = Path(__file__).parent
KNOWN_SECONDS = 10
BUILD_SECONDS = 1200
MAVEN = ["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"]
JAVA = ["sh", "-c", 'exec java -cp "target/classes:$(cat target/classpath)" Members "$@"', "java"]
# Where each is, and how it is built and run.
PROGRAMS = {
    "java": ("java", MAVEN, JAVA),
    "java3": ("java3", MAVEN, JAVA),
    "node": ("node", ["npm", "install", "--silent", "--no-audit", "--no-package-lock"], ["node", "members.js"]),
    "go1": ("go", ["go", "build", "-tags", "gocql1", "-o", "target/members1", "./members"], ["target/members1"]),
    "go2": ("go", ["go", "build", "-o", "target/members2", "./members"], ["target/members2"]),
    "rust": ("rust", ["cargo", "build", "--quiet", "--release", "--bin", "members"], ["target/release/members"]),
}
# gocql 1.7.0 and 2.1.2 wait so long before they connect again to a known node of release 4.1 (cassVersion.nodeUpDelay in host_source.go takes that for one before 2.2).
UP_DELAY_SECONDS = {"go1": 10, "go2": 10}
# The Python driver rests between an event and its next look at the tables, at random up to this time.
WINDOW_SECONDS = 1


class Program:
    """A driver in a process of its own, which prints what it knows when it reads a line."""

    def __init__(self, name, node):
        directory, build, run = PROGRAMS[name]
        built = subprocess.run(build, cwd=HERE / directory, capture_output=True, text=True, timeout=BUILD_SECONDS)
        assert built.returncode == 0, f"{name}: {built.stdout[-3000:]}\n{built.stderr[-3000:]}"
        self._process = subprocess.Popen(
            [*run, node.host, str(node.port)], cwd=HERE / directory, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def known(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = next((line for line in self._process.stdout if line.startswith("known")), None)
        assert line is not None, "the driver ended"
        return dict(shown.split("=") for shown in line.split()[1:])

    def end(self):
        self._process.kill()
        self._process.wait()


class Python:
    """The Python driver, in this process."""

    def __init__(self, cluster):
        # Its control connection is to a node that stays open: when a node closes it, driver 3.30.1 hears no event until a heartbeat, 30 s later.
        self._driver = cluster.driver(
            first=1, topology_event_refresh_window=WINDOW_SECONDS, status_event_refresh_window=WINDOW_SECONDS
        )
        # The driver forgets a session that nobody holds, and with it the connections for which it ignores that a node is down.
        self._session = self._driver.connect()

    def known(self):
        return {str(host.host_id): host.address for host in self._driver.metadata.all_hosts() if host.is_up}

    def end(self):
        self._driver.shutdown()


@pytest.fixture
def cluster(request):
    cluster = Cluster(3, smp=1, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def knows(driver, nodes, seconds=KNOWN_SECONDS):
    """Wait until the driver knows these nodes, at their addresses, and no other."""
    expected = {host_of(node): node.host for node in nodes}
    last = []

    def is_known():
        last[:] = [driver.known()]
        return last == [expected]

    try:
        eventually("the driver knows the nodes that serve", is_known, seconds)
    except AssertionError:
        raise AssertionError(f"the driver knows {last[0]}, and there are {expected}") from None


def move(node, host, listen_host):
    node.stop()
    node.host, node.listen_host = host, listen_host
    node.start()


@pytest.mark.parametrize("name", ["python", *PROGRAMS])
def test_a_driver_knows_the_nodes_that_serve(cluster, name):
    driver = Python(cluster) if name == "python" else Program(name, cluster.node(1))
    try:
        first, second, third = cluster.nodes
        knows(driver, cluster.nodes)
        fourth = cluster.node(cluster.add())
        knows(driver, cluster.nodes)
        fourth.nodetool("decommission")
        knows(driver, [first, second, third])

        third.nodetool("disablebinary")
        knows(driver, [first, second])
        third.nodetool("enablebinary")
        knows(driver, [first, second, third], KNOWN_SECONDS + UP_DELAY_SECONDS.get(name, 0))

        home, away = third.host, cluster.address(7)
        for host, listen_host in [(away, home), (home, away), (away, away), (home, home)]:
            move(third, host, listen_host)
            knows(driver, [first, second, third])

        third.kill9()
        eventually("the others miss it", lambda: state_of(cluster, third) == "DN")
        shutil.rmtree(third.workdir)
        third.workdir.mkdir()
        third.options += ["--replace-address-first-boot", third.host]
        third.start()
        knows(driver, [first, second, third])

        # The node of its control connection: the Python driver notices that at a heartbeat, 30 s later.
        if name != "python":
            first.nodetool("disablebinary")
            knows(driver, [second, third])
    finally:
        driver.end()


def test_a_decommissioned_node_ends_well_and_does_not_start_again(cluster):
    node = cluster.node(3)
    node.nodetool("decommission")
    assert node.process.wait(KNOWN_SECONDS + 20) == 0, node.log()
    assert not [line for line in node.lines if line.startswith("ERROR")], node.log()
    node._reap()
    refused = subprocess.run(node.command(), capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert refused.returncode == 3, refused.stderr
    assert "has left its cluster" in refused.stderr
