"""The Go, Java and Rust drivers on three nodes: they find who has the data, by the nodes' own count, and go on when a node is killed.

Each program says on a line of its own what comes next, and goes on when it is told to.
"""

import subprocess
from pathlib import Path

import pytest

from harness import Cluster, cql
from harness.routing import routed

HERE = Path(__file__).parent
SHARDS = 2
ROUTED_MIN = 0.95
COUNTED_MIN = 300
BUILD_SECONDS = 1200
# How each is built and run, and where its requests should come to: it knows nodes, or shards too.
DRIVERS = {
    "go": (["go", "build", "-o", "driver-test", "."], ["./driver-test"], ["cluster"], ["owner", "owning_node"]),
    "java": (
        ["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"],
        ["sh", "-c", 'exec java -cp "target/classes:$(cat target/classpath)" ClusterTest "$@"', "java"],
        [],
        ["owner", "owning_node"],
    ),
    "rust": (["cargo", "build", "--quiet", "--release"], ["target/release/driver-test"], ["cluster"], ["owner"]),
}


@pytest.fixture
def cluster(request):
    cluster = Cluster(3, smp=SHARDS, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


class Program:
    def __init__(self, command, cwd):
        self._process = subprocess.Popen(
            command, cwd=cwd, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._said = []

    def until(self, place):
        """Returns when the program says this line."""
        for line in self._process.stdout:
            self._said.append(line)
            if place in line:
                return
        raise AssertionError(f"it never said {place!r}:\n{''.join(self._said[-60:])}")

    def go_on(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self):
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("driver", DRIVERS)
def test_driver_on_three_nodes(cluster, driver):
    build, run, arguments, known = DRIVERS[driver]
    built = subprocess.run(build, cwd=HERE / driver, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert built.returncode == 0, f"{driver}: {built.stdout[-3000:]}\n{built.stderr[-3000:]}"
    node = cluster.node(1)
    program = Program([*run, node.host, str(node.port), cql.unique(driver), *arguments], HERE / driver)
    try:
        program.until("routing")
        before = routed(cluster)
        program.go_on()
        program.until("routed")
        counted = {place: count - before[place] for place, count in routed(cluster).items()}
        print(counted)
        assert sum(counted.values()) >= COUNTED_MIN, counted
        assert sum(counted[place] for place in known) >= ROUTED_MIN * sum(counted.values()), counted
        program.go_on()
        program.until("kill")
        cluster.kill(3)
        program.go_on()
        program.until("all as it should be")
    finally:
        program.end()
