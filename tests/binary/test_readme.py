"""The commands of README.md do what it says when they are pasted, in its order, with the binary under test as `ceto`.

README's ports are the defaults, so nodes and clients run in a network namespace of their own. Where none may be made,
the ports must be free.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.cluster import eventually
from harness.node import ceto_binary

pytestmark = pytest.mark.ceto_only("the binary itself")

README = Path(__file__).resolve().parents[2] / "README.md"
SERVE_SECONDS = 60
END_SECONDS = 60
COMMAND_SECONDS = 120

# Blocks by their first line. Those that are run say by which test; the others say why not.
RUN = {
    "./dev run": "test_one_node: `ceto --workdir ./data`, which is what it starts when it has built",
    "serving CQL on 127.0.0.1:9042 (shard-aware port 19042), 2 shards, data in ./data": "test_one_node: printed",
    "ceto --workdir a --listen-address 127.0.0.1 --rpc-address 127.0.0.1 --seeds 127.0.0.1": "test_several_nodes",
    "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1};": "test_one_node",
    "from cassandra.cluster import Cluster": "test_one_node",
}
NOT_RUN = {
    "./dev test": "builds, and runs this test",
    "./dev cluster 3": "builds, and waits at a prompt; tests/cluster starts nodes with the same harness",
    "pipx install cqlsh": "needs the network; the other line of the block is run",
    'let session = SessionBuilder::new().known_node("127.0.0.1:9042").build().await?;': "no whole program, see drivers/rust",
}


def blocks():
    """Every block of code: those in fences, and those that are indented."""
    text = README.read_text()
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)
    rest = re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.M | re.S)
    indented = re.findall(r"(?:^    .*\n)+", rest, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) if block in indented else block for block in fenced + indented]


def block(first_line):
    return next(block for block in blocks() if block.splitlines()[0] == first_line)


class Room:
    """A machine where nobody else listens."""

    def __init__(self, directory):
        self.directory = directory
        self._namespace = f"ceto-readme-{os.getpid():x}"
        self._wrapper = []
        self._nodes = []
        bin_directory = directory / "bin"
        bin_directory.mkdir()
        (bin_directory / "ceto").symlink_to(ceto_binary())
        self._env = os.environ | {"PATH": f"{bin_directory}:{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def __enter__(self):
        try:
            self._ip("netns", "add", self._namespace)
            self._ip("-n", self._namespace, "link", "set", "lo", "up")
            self._wrapper = ["ip", "netns", "exec", self._namespace]
        except (subprocess.CalledProcessError, FileNotFoundError):
            if taken := [port for port in (9042, 19042, 7000, 9180, 10000) if listening(port)]:
                pytest.skip(f"a network namespace needs root, and without one ports {taken} must be free")
        return self

    def __exit__(self, *_):
        for node in self._nodes:
            node.end(signal.SIGKILL)
        with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
            self._ip("netns", "delete", self._namespace)

    def start(self, line):
        """Start a node by a line of shell, and wait until it serves."""
        self._nodes.append(Started(self._wrapper + ["sh", "-c", f"exec {line}"], self.directory, self._env))
        return self._nodes[-1].serving()

    def run(self, *command):
        """A command to its end: its output."""
        done = subprocess.run(
            [*self._wrapper, *command],
            cwd=self.directory,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout

    @staticmethod
    def _ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Started:
    def __init__(self, command, directory, env):
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._serves = threading.Event()
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self.said += line
            if line.startswith("connect with:"):
                self._serves.set()
        self._serves.set()  # it ended

    def serving(self):
        assert self._serves.wait(SERVE_SECONDS), f"it does not serve:\n{self.said}"
        assert "connect with:" in self.said, f"it ended before it served:\n{self.said}"
        return self

    def end(self, by=signal.SIGTERM):
        if self._process.poll() is None:
            self._process.send_signal(by)
        code = self._process.wait(END_SECONDS)
        self._reader.join()
        return code


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def room(tmp_path):
    with Room(tmp_path) as room:
        yield room


def test_every_block_is_run_or_has_a_reason():
    found = [block.splitlines()[0] for block in blocks()]
    assert sorted(found) == sorted([*RUN, *NOT_RUN]), "list a block in RUN with its test, or in NOT_RUN with a reason"


def test_one_node(room):
    node = room.start("ceto --workdir ./data")
    expected = block("serving CQL on 127.0.0.1:9042 (shard-aware port 19042), 2 shards, data in ./data")
    for line in expected.splitlines():
        pattern = re.escape(line).replace(r"2\ shards", r"\d+ shards?")
        assert re.search(pattern, node.said), f"{line!r} is not printed:\n{node.said}"
    assert "cqlsh 127.0.0.1 9042" in block("pipx install cqlsh")
    (room.directory / "shop.cql").write_text(block(next(first for first in RUN if first.startswith("CREATE KEYSPACE"))))
    said = room.run("cqlsh", "127.0.0.1", "9042", "-f", "shop.cql")
    assert "{'tea': 2}" in said, said
    # The one warning that README speaks of.
    assert said.count("minimum_replication_factor_warn_threshold") == 1 and said.count("see ") <= 1, said
    room.run("python", "-c", block("from cassandra.cluster import Cluster"))
    assert node.end() == 0, "SIGTERM drains the node, and it exits with 0"


def test_several_nodes(room):
    lines = block(next(first for first in RUN if first.startswith("ceto --workdir a"))).splitlines()
    for line in lines:
        room.start(line)

    def all_up():
        shown = room.run("ceto", "nodetool", "--workdir", "a", "status")
        return sum(line.startswith("UN ") for line in shown.splitlines()) == len(lines)

    eventually("all nodes of the example are up and have their part of the ring", all_up)


def test_files_that_readme_links_are_there():
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README.read_text()):
        assert target.startswith("http") or (README.parent / target).exists(), f"README links {target}"
