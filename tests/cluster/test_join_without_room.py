"""A node that joins and has no room for its share says so at once, and not again and again."""

import contextlib
import os
import threading

import pytest

from harness import Cluster, NodeFailed
from harness.cluster import eventually
from harness.disks import small_disk

DISK_BYTES = 40 << 20
ROWS, ROW_BYTES = 1_200, 100_000
# It tries again each second, and serves clients without its share after 30 s.
SOON_SECONDS = 20


def start(node):
    with contextlib.suppress(NodeFailed):
        node.start()


@pytest.fixture
def joining(request, tmp_path):
    """A node with 120 MB on the token ring, and one with a disk of 40 MB that joins it."""
    for number in (1, 2):
        (tmp_path / f"node{number}").mkdir()
    options = ["--commitlog-segment-size-in-mb", "1", "--commitlog-total-space-in-mb", "16"]
    with small_disk(tmp_path / "node2", DISK_BYTES) as mounted:
        if not mounted:
            # As in test_faults.py: only root may mount. CI runs as root.
            pytest.skip("a small disk needs the right to mount")
        cluster = Cluster(2, workdir=tmp_path, options=options, runtime=request.config.getoption("--runtime"))
        try:
            cluster.node(1).start()
            with cluster.driver(only=1, consistency="ONE") as driver:
                session = driver.connect()
                session.execute(
                    "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
                )
                session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v blob) WITH compression = {'enabled': false}")
                insert = session.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)")
                for k in range(ROWS):
                    session.execute(insert, (k, os.urandom(ROW_BYTES)))
            cluster.node(1).nodetool("flush")
            # It serves clients after half a minute, whether it has its share or not.
            starting = threading.Thread(target=start, args=(cluster.node(2),))
            starting.start()
            yield cluster
            cluster.node(2).kill9()
            starting.join()
        finally:
            cluster.remove()


def test_a_join_without_room_says_so_at_once_and_once_a_minute(joining):
    first, second = joining.node(1), joining.node(2)

    def waits():
        lines = first.nodetool("status").splitlines()
        return [line for line in lines if line.startswith("    waits: ") and "room" in line]

    eventually("the status says that there is no room", waits, SOON_SECONDS)
    said = [line for line in second.lines if "could not be copied" in line]
    assert len(said) == 1, "".join(said)
