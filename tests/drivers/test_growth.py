"""A cluster grows from three nodes to six and shrinks to three while the Go and the Java driver write, read and count by conditional statements, in
tables with tablets and on the token ring: harness/growth.py has the story.
"""

import contextlib
import subprocess
from pathlib import Path

import pytest

from harness import Cluster, cql
from harness.counted import PATIENT
from harness.growth import Growth
from harness.loader import Loader

HERE = Path(__file__).parent
REQUESTS = 100
BUILD_SECONDS = 1200
# How each is built and run.
DRIVERS = {
    "go": (["go", "build", "-o", "driver-test", "."], ["./driver-test"], ["load"]),
    "java": (
        ["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"],
        ["sh", "-c", 'exec java -cp "target/classes:$(cat target/classpath)" LoadTest "$@"', "java"],
        [],
    ),
}


@pytest.fixture
def cluster(request):
    cluster = Cluster(3, runtime=request.config.getoption("--runtime"), options=PATIENT)
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def test_drivers_write_and_read_while_a_cluster_grows_and_shrinks(cluster):
    for driver, (build, _, _) in DRIVERS.items():
        built = subprocess.run(build, cwd=HERE / driver, capture_output=True, text=True, timeout=BUILD_SECONDS)
        assert built.returncode == 0, f"{driver}: {built.stdout[-3000:]}\n{built.stderr[-3000:]}"
    node = cluster.node(1)
    with contextlib.ExitStack() as running:
        loads, rings = [], []
        for driver, (_, run, arguments) in DRIVERS.items():
            for kind in ([], ["ring"]):
                keyspace = cql.unique(driver)
                command = [*run, node.host, str(node.port), keyspace, *arguments, *kind]
                loads.append(running.enter_context(Loader(command, HERE / driver, keyspace, REQUESTS)))
                rings += [keyspace] if kind else []
        Growth(cluster, loads, rings).play()
