"""A full disk: writes are refused by an error, reads go on, and once there is space again so do writes."""

import itertools
import os
import subprocess

import pytest

from harness import cql
from harness.load import Load

DISK_BYTES = 512 << 20
VALUE = b"x" * 10_000
SETTLE_REQUESTS = 20_000


@pytest.fixture
def small_disk(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(tmp_path)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(path, leave):
    """A file that takes all of the disk but `leave` bytes."""
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(free - leave, 1))


def test_a_full_disk(small_disk, new_node, connect):
    workdir = small_disk / "node"
    workdir.mkdir()
    # The last byte, not the threshold before it, which test_full_disk.py is about.
    off = ["--critical-disk-utilization-level", "1"]
    node = new_node(workdir=workdir, smp=1, memory="256M", options=off).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k bigint PRIMARY KEY, v blob)")
    insert = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
    select = session.prepare("SELECT k FROM t WHERE k = ?")
    numbers = itertools.count()

    def next_write():
        k = next(numbers)
        return k, (k, VALUE)

    filler = small_disk / "filler"
    fill(filler, leave=48 << 20)
    load = Load(session, insert, next_write, concurrency=8).start()
    load.wait_for_refusal(writes_max=2 * DISK_BYTES // len(VALUE))
    acknowledged = set(load.acknowledged)
    assert acknowledged and load.refused, "the disk never became full"
    code, message = cql.error_of(load.refused[0])
    assert message
    assert node.alive, node.log()

    # reads go on, and a write is still refused, by an answer and not by silence
    for k in list(acknowledged)[:: max(1, len(acknowledged) // 200)]:
        assert cql.rows(session, select, (k,)) == [(k,)]
    assert {k for (k,) in cql.rows(session, "SELECT k FROM t")} >= acknowledged

    filler.unlink()
    for _ in range(SETTLE_REQUESTS):
        try:
            session.execute(insert, (-1, VALUE))
            break
        except Exception as failure:
            cql.error_of(failure)
    else:
        raise AssertionError("there is space again, and writes are still refused")
    load = Load(session, insert, next_write, concurrency=8).start()
    load.wait_for(500)
    load.stop()
    assert not load.refused
    acknowledged |= set(load.acknowledged) | {-1}

    node.kill9()
    session.cluster.shutdown()
    node.start()
    assert {k for (k,) in cql.rows(connect(node), "SELECT k FROM t")} >= acknowledged
