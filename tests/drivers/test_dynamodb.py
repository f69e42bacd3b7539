"""Applications of the DynamoDB API run with their endpoint changed and nothing else: AWS SDKs, and libraries that use them, as their registries have them.

Each program does what a user does with its SDK or library, prints one line for each check, and ends with 1 at the first that fails:

    PROGRAM ENDPOINT CUTTING_ENDPOINT PREFIX

CUTTING_ENDPOINT is the node behind `harness.lost_answers`. PREFIX begins the name of each table of the program. With `--server HOST:PORT` the programs
ask any other server of the API, for example an emulator.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cql
from harness.cluster import Cluster, address
from harness.dynamodb import api_node
from harness.lost_answers import LostAnswers
from harness.node import free_ports

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "dynamodb.md"
BUILD_SECONDS = 1200
RUN_SECONDS = 600
LAST_LINE = "all as it should be"

CARGO = [["cargo", "build", "--quiet", "--locked"]]
GO = [["go", "build", "-o", "target/sdk", "."]]
MAVEN = [["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"]]
NPM = [["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"]]
PIP = [
    [sys.executable, "-m", "venv", "target/venv"],
    [sys.executable, "-m", "venv", "target/venv-cli"],
    ["target/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"],
    ["target/venv-cli/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements-cli.txt"],
]
JAVA = ["sh", "-c", 'exec java -cp "target/classes:$(cat target/classpath)" "$@"', "java"]
# Each language with how its programs are built, all at once, and how one of them is run.
LANGUAGES = {
    "go": (GO, lambda program: [f"target/{program}"]),
    "java": (MAVEN, lambda program: [*JAVA, program]),
    "node": (NPM, lambda program: ["node", f"{program}.js"]),
    "python": (PIP, lambda program: ["target/venv/bin/python", f"{program}.py"]),
    "rust": (CARGO, lambda program: [f"target/debug/{program}"]),
}
SDKS = {
    "AWS SDK for Go 2": ("go", "sdk"),
    "AWS SDK for Java 2": ("java", "Sdk"),
    "AWS SDK for Java 2, enhanced client": ("java", "Enhanced"),
    "AWS SDK for JavaScript 2": ("node", "sdk2"),
    "AWS SDK for JavaScript 3, client-dynamodb": ("node", "sdk"),
    "AWS SDK for JavaScript 3, lib-dynamodb": ("node", "document"),
    "AWS SDK for Python, resources of boto3": ("python", "boto3_resource"),
    "AWS SDK for Rust": ("rust", "dynamodb-test"),
}
LIBRARIES = {
    "Celery": ("python", "celery_results"),
    "ElectroDB": ("node", "electrodb"),
    "Kinesis Client Library": ("java", "Leases"),
    "PynamoDB": ("python", "pynamodb_models"),
    "aiodynamo": ("python", "aiodynamo_client"),
    "dynamodb-admin": ("node", "admin"),
    "dynamodb-onetable": ("node", "onetable"),
    "dynamodb-toolbox": ("node", "toolbox"),
    "dynamoose": ("node", "dynamoose"),
}


def one_node(runtime):
    with api_node(smp=2, memory="1G", runtime=runtime) as node:
        yield node.endpoint
        assert node.alive, node.log()


def two_of_three_nodes(runtime):
    """A node of three, after one of the others was killed."""
    (port,) = free_ports([address(number) for number in (1, 2, 3)], 1)
    cluster = Cluster(3, smp=1, runtime=runtime, options=["--alternator-port", str(port)])
    try:
        cluster.form()
        cluster.kill(3)
        yield f"http://{cluster.address(1)}:{port}"
    finally:
        cluster.remove()


@pytest.fixture(scope="module")
def endpoint(pytestconfig, request):
    nodes = getattr(request, "param", one_node)
    if server := pytestconfig.getoption("--server"):
        if nodes is not one_node:
            pytest.skip("kills a node")
        yield f"http://{server}"
        return
    yield from nodes(pytestconfig.getoption("--runtime"))


@pytest.fixture(scope="module")
def cutting_endpoint(endpoint):
    with LostAnswers(endpoint) as proxy:
        yield proxy.endpoint


@pytest.fixture(scope="module")
def built():
    """built(language) builds the programs of a language, once, and returns their directory."""
    directories = {}

    def build(language):
        if language not in directories:
            directory = HERE / language / "dynamodb"
            for command in LANGUAGES[language][0]:
                done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
                assert done.returncode == 0, f"{language}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            directories[language] = directory
        return directories[language]

    return build


@pytest.fixture
def runs(built, endpoint, cutting_endpoint):
    """runs(language, program) runs a program to its end and asserts that each of its checks passed."""

    def run(language, program):
        directory = built(language)
        command = [*LANGUAGES[language][1](program), endpoint, cutting_endpoint, cql.unique(program)]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
        print(done.stdout, done.stderr)
        assert done.returncode == 0, f"{program}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert done.stdout.splitlines()[-1] == LAST_LINE

    return run


on_each = pytest.mark.parametrize("endpoint", [one_node, two_of_three_nodes], indirect=True)


@on_each
@pytest.mark.parametrize("sdk", SDKS)
def test_an_application_of_an_sdk_runs_unchanged(runs, sdk):
    runs(*SDKS[sdk])


@on_each
@pytest.mark.parametrize("library", LIBRARIES)
def test_an_application_of_a_library_runs_unchanged(runs, library):
    runs(*LIBRARIES[library])


def test_the_commands_of_the_page_work_as_they_are_printed(built, endpoint):
    """The AWS CLI runs what docs/dynamodb.md begins with, but for the address of the node."""
    printed = re.search(r"^    \./dev run\n((?:    .*\n)+)", PAGE.read_text(), re.MULTILINE)[1]
    assert "aws dynamodb query" in printed
    delete = "aws dynamodb delete-table --endpoint-url http://127.0.0.1:8000 --region us-east-1 --table-name music"
    commands = f"set -e\n{printed}\n{delete}".replace("http://127.0.0.1:8000", endpoint)
    path = f"{built('python') / 'target/venv-cli/bin'}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", commands], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert '"S": "Sinnerman"' in done.stdout
