"""What happens to single nodes while applications write and read at QUORUM: nothing that was acknowledged is lost, and nobody is told
an error that was not promised.
"""

import os
import re

import pytest

from harness import Cluster, disks
from harness.witness import NO_ANSWER, Witness

REQUESTS = 1_500
DISK_BYTES = 400 << 20
# Of the small disk, what the node gets in the end: less than the log grows by.
LEFT_BYTES = 8 << 20
PADDING = 4_000
STEPS_MAX = 50
ROLLS = 3
# What is written while a node reads nothing, and by how much the others may grow meanwhile: by their memtables and by bounded queues.
BULK_PADDING, BULK_CHAINS = 20_000, 16
BULK_BYTES = 240 << 20
GROWTH_BYTES_MAX = 160 << 20
# Longer than any hiccup of a machine that runs other things, shorter than the time after which a request is given up.
P99_MS_MAX = 1_000
FULL = re.compile(r"ERROR.*No space left on device")
ROOM_AGAIN = re.compile("the commitlog takes writes again")


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    """The disk of node 3; None where this process may not mount one."""
    root = tmp_path_factory.mktemp("nodes")
    disk = root / "node3"
    disk.mkdir()
    with disks.small_disk(disk, DISK_BYTES) as mounted:
        yield disk if mounted else None


@pytest.fixture(scope="module")
def cluster(request, small_disk, tmp_path_factory):
    # A disk is filled to its last byte here; test_full_disk.py is about the threshold before it.
    options = ["--commitlog-segment-size-in-mb", "1", "--critical-disk-utilization-level", "1"]
    workdir = small_disk.parent if small_disk else tmp_path_factory.mktemp("nodes")
    for number in (1, 2, 3):
        (workdir / f"node{number}").mkdir(exist_ok=True)
    cluster = Cluster(3, workdir=workdir, options=options, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def test_a_row_that_is_gone_is_noticed(cluster):
    """Of the load itself: what is deleted behind its back is lost to it."""
    with Witness(cluster) as witness, cluster.driver() as driver:
        witness.more(REQUESTS)
        witness.stop()
        driver.connect().execute(f"DELETE FROM {witness.keyspace}.t WHERE k = 0")
        account = witness.finish()
    assert any("key 0 has 0" in wrong for wrong in account.wrong), account.wrong
    with pytest.raises(AssertionError, match="acknowledged, and not there"):
        account.check()


def test_a_node_is_killed_and_comes_back(cluster):
    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        witness.phase("dead")
        cluster.kill(3)
        witness.more(REQUESTS)
        witness.phase("back")
        cluster.start(3)
        witness.more(REQUESTS)
        account = witness.finish()
    account.check()


def test_a_node_freezes_and_goes_on(cluster):
    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        witness.phase("frozen")
        cluster.pause(3)
        witness.more(REQUESTS)
        witness.phase("thawed")
        cluster.resume(3)
        witness.more(REQUESTS)
        account = witness.finish()
    # What the frozen node was asked it answers when it goes on, or its client stops waiting.
    account.check({"frozen": NO_ANSWER, "before": NO_ANSWER})


def test_all_nodes_are_restarted_one_after_another(cluster):
    """Nobody asks the cluster before the next goes: a node that serves is up for the others, and one that stops is down for them first. Only the
    driver, which tries again every 0.2 s, must have connections to more than the node that goes.
    """
    with Witness(cluster) as witness:
        witness.more(REQUESTS)
        for turn in range(ROLLS):
            for number in (1, 2, 3):
                witness.phase(f"{turn}: without {number}")
                cluster.stop(number)
                cluster.start(number)
                witness.sees_all()
        witness.phase("whole")
        witness.more(REQUESTS)
        account = witness.finish()
    account.check()


def test_a_killed_node_that_serves_again_is_up_for_the_others(cluster):
    """So the next may be stopped at once, whether the others missed the first or not."""
    with Witness(cluster) as witness:
        for number in (1, 2, 3):
            witness.phase(f"{number} killed")
            cluster.kill(number)
            cluster.start(number)
            witness.sees_all()
            witness.phase(f"{number} is back")
            other = number % 3 + 1
            cluster.stop(other)
            cluster.start(other)
            witness.sees_all()
        account = witness.finish()
    killed = {f"{number} killed": NO_ANSWER for number in (1, 2, 3)}
    account.check(killed)


def node_says(cluster, witness, words):
    """Requests go on until node 3 has said this."""
    for _ in range(STEPS_MAX):
        if any(words.search(line) for line in cluster.node(3).lines):
            return
        witness.more(REQUESTS)
    raise AssertionError(f"node 3 never said {words.pattern!r}:\n{cluster.node(3).log()}")


def test_the_disk_of_a_node_is_full(cluster, small_disk):
    if small_disk is None:
        pytest.skip("a small disk needs the right to mount")
    filler = small_disk / "filler"
    with Witness(cluster, padding=PADDING) as witness:
        witness.more(REQUESTS)
        witness.phase("full")
        with filler.open("wb") as file:
            free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
            os.posix_fallocate(file.fileno(), 0, free - LEFT_BYTES)
        node_says(cluster, witness, FULL)
        witness.more(REQUESTS)
        assert cluster.node(3).alive, cluster.node(3).log()
        witness.phase("space again")
        filler.unlink()
        node_says(cluster, witness, ROOM_AGAIN)
        witness.more(REQUESTS)
        account = witness.finish()
    account.check()


def test_a_node_that_reads_nothing_harms_only_itself(cluster):
    """What it does not take must not pile up in the others, nor slow them."""
    with Witness(cluster, only=[1, 2], padding=BULK_PADDING, chains=BULK_CHAINS) as witness:
        witness.more(REQUESTS)
        before = {number: cluster.node(number).resident_bytes() for number in (1, 2)}
        witness.phase("frozen")
        cluster.pause(3)
        # Two requests of three are writes.
        while witness.account().acknowledged("frozen") * 2 // 3 * BULK_PADDING < BULK_BYTES:
            witness.more(REQUESTS)
        grown = {number: cluster.node(number).resident_bytes_peak() - before[number] for number in (1, 2)}
        witness.phase("thawed")
        cluster.resume(3)
        witness.more(REQUESTS)
        account = witness.finish()
    account.check()
    print(f"grown by {[size >> 20 for size in grown.values()]} MiB")
    assert account.p99_ms("frozen") < P99_MS_MAX, "a quorum waits for a node that reads nothing"
    assert max(grown.values()) < GROWTH_BYTES_MAX, grown
