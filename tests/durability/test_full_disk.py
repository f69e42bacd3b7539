"""A disk that fills up: above critical_disk_utilization_level a node takes deletes and no data, and recovers by itself. The commands are those of
docs/operating/full-disk.md, and are tried here.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel, WriteFailure

from harness import Cluster, cql
from harness.cluster import eventually

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operating" / "full-disk.md"
DISK_BYTES = 512 << 20
VALUE = b"x" * 10_000
ROWS = 200
REFUSED = "Write request failed because disk usage exceeds the failure threshold"
WRITE_FAILURE = 0x1500
OPTIONS = ["--commitlog-segment-size-in-mb", "1"]


def mount(directory):
    directory.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount: {mounted.stderr.strip()}")


@pytest.fixture
def small_disks(tmp_path):
    """Directories node1, node2, … with a small disk each, made when they are asked for."""
    mounted = []

    def disk(number):
        directory = tmp_path / f"node{number}"
        mount(directory)
        mounted.append(directory)
        return directory

    yield disk
    for directory in mounted:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(disk, percent, name="filler"):
    """Makes a file that brings the disk to this utilisation."""
    told = os.statvfs(disk)
    whole, free = told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize
    size = free - whole * (100 - percent) // 100
    filler = disk / f"{name}-{percent}"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))
    return filler


def level_of(node):
    return int(node.metrics()["ceto_disk_level"])


def said(node, words):
    return [line for line in node.lines if words in line]


def warnings_of(session, statement, parameters=None):
    future = session.execute_async(statement, parameters)
    future.result()
    return future.warnings or []


def test_the_levels_of_a_node(small_disks, new_node, connect, tmp_path):
    disk = small_disks(1)
    options_file = tmp_path / "ceto.yaml"
    options_file.write_text("data_disk_usage_percentage_warn_threshold: 70\n")
    options = [*OPTIONS, "--options-file", str(options_file)]
    node = new_node(workdir=disk, smp=2, memory="256M", options=options).start()
    session = connect(node)
    for table in ("t", "other", "third"):
        session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v blob)")
    insert = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
    for k in range(ROWS):
        session.execute(insert, (k, VALUE))
    assert level_of(node) == 0
    assert not warnings_of(session, insert, (0, VALUE))

    warned = fill(disk, 80)
    eventually("the node warns", lambda: level_of(node) == 1)
    for statement in (insert, "INSERT INTO t (k, v) VALUES (%s, %s)"):
        warnings = warnings_of(session, statement, (0, VALUE))
        assert any("disk usage exceeds warn threshold" in warning for warning in warnings), warnings
    assert not warnings_of(session, "SELECT k FROM t WHERE k = 0")
    assert "nearly full" in node.nodetool("status") and "nearly full" in node.nodetool("info")

    full = fill(disk, 99)
    eventually("the node is full", lambda: level_of(node) == 2)
    assert said(node, "this node refuses writes that add data")
    batch = "BEGIN BATCH INSERT INTO t (k) VALUES (1); DELETE FROM t WHERE k = 2; APPLY BATCH"
    unlogged = "BEGIN UNLOGGED BATCH INSERT INTO t (k) VALUES (1); INSERT INTO t (k) VALUES (2); APPLY BATCH"
    cas = "INSERT INTO t (k, v) VALUES (-1, 0x00) IF NOT EXISTS"
    for statement in ("INSERT INTO t (k, v) VALUES (-1, 0x00)", "UPDATE t SET v = 0x00 WHERE k = -1", batch, unlogged, cas):
        cql.refused(session, statement, WRITE_FAILURE, REFUSED)
    cql.refused(session, insert, WRITE_FAILURE, REFUSED, (0, VALUE))
    # What only deletes is taken, and what reads is served.
    session.execute("DELETE FROM t WHERE k = 1")
    session.execute("DELETE v FROM t WHERE k = 2")
    session.execute("UPDATE t SET v = null WHERE k = 3")
    session.execute("BEGIN BATCH DELETE FROM t WHERE k = 4; DELETE FROM t WHERE k = 5; APPLY BATCH")
    assert session.execute("DELETE FROM t WHERE k = 6 IF EXISTS").one()[0]
    session.execute("TRUNCATE other")
    session.execute("DROP TABLE third")
    assert {k for (k,) in cql.rows(session, "SELECT k FROM t")} == {0, 2, 3, *range(7, ROWS)}
    assert cql.rows(session, "SELECT level FROM system_views.disk_levels") == [("critical",)]
    assert "are full" in node.nodetool("status") and "critical" in node.nodetool("info")
    for command in page_commands():
        node.nodetool(*command)

    # What the commands have freed others take.
    more = fill(disk, 99, "more")
    # A restart changes nothing: what the log has is there, and the node is full before it serves.
    node.kill9()
    session.cluster.shutdown()
    node.start()
    session = connect(node)
    cql.refused(session, "INSERT INTO t (k, v) VALUES (-1, 0x00)", WRITE_FAILURE, REFUSED)
    assert len(cql.rows(session, "SELECT k FROM t")) == ROWS - 4

    # An operator raises the threshold, and takes that back.
    options_file.write_text("critical_disk_utilization_level: 0.995\n")
    node.process.send_signal(signal.SIGHUP)
    eventually("the node has room by its new threshold", lambda: level_of(node) == 0)
    session.execute("INSERT INTO t (k, v) VALUES (-1, 0x00)")
    options_file.write_text("data_disk_usage_percentage_fail_threshold: 90\n")
    node.process.send_signal(signal.SIGHUP)
    eventually("the node is full by Cassandra's threshold", lambda: level_of(node) == 2)

    # Room again: nobody has to do anything.
    for filler in (full, warned, more):
        filler.unlink()
    eventually("the node recovers", lambda: level_of(node) == 0)
    session.execute("INSERT INTO t (k, v) VALUES (-2, 0x00)")
    assert said(node, "this node takes all writes")
    assert len(cql.rows(session, "SELECT k FROM t")) == ROWS - 2


def page_commands():
    """The commands of the page, in its order."""
    commands = re.findall(r"^ +ceto nodetool (.+)$", PAGE.read_text(), re.M)
    assert commands, "the page names no command"
    return [command.split() for command in commands]


def test_a_full_node_of_three_misses_no_write_that_was_acknowledged(small_disks, request):
    workdir = small_disks(3).parent
    cluster = Cluster(3, workdir=workdir, options=OPTIONS, runtime=request.config.getoption("--runtime"))
    for number in (1, 2):
        (workdir / f"node{number}").mkdir()
    try:
        cluster.form().known_to_clients()
        # Node 1 coordinates: a full node keeps no hint for itself.
        with cluster.driver(only=1) as driver:
            session = driver.connect()
            name = cql.unique("full")
            session.execute(
                f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
            )
            session.set_keyspace(name)
            session.execute("CREATE TABLE t (k int PRIMARY KEY, v blob)")
            insert, everywhere = (session.prepare("INSERT INTO t (k, v) VALUES (?, ?)") for _ in range(2))
            everywhere.consistency_level = ConsistencyLevel.ALL
            full = fill(workdir / "node3", 99)
            for node in cluster:
                eventually("all know that node 3 is full", lambda node=node: int(node.metrics()["ceto_members_with_full_disks"]) == 1)
            for k in range(ROWS):
                session.execute(insert, (k, VALUE))
            cql.refused(session, everywhere, WRITE_FAILURE, REFUSED, (-1, VALUE))
            session.execute(f"CREATE KEYSPACE {name}_1 WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}")
            session.execute(f"CREATE TABLE {name}_1.t (k int PRIMARY KEY)")
            refused = 0
            for k in range(ROWS):
                try:
                    warned = warnings_of(session, f"INSERT INTO {name}_1.t (k) VALUES ({k})")
                    assert not warned, f"{k} is on a node whose disk has room"
                except WriteFailure as error:
                    refused += 1
                    assert REFUSED in str(error)
            assert 0 < refused < ROWS, "some keys are on the full node"
            shown = cluster.node(1).nodetool("status")
            assert f"they take deletes and no data: {cluster.node(3).host}" in shown, shown
            full.unlink()
            for node in cluster:
                eventually("all know that it has room", lambda node=node: int(node.metrics()["ceto_members_with_full_disks"]) == 0)
            session.execute(everywhere, (-1, VALUE))

        def has_all():
            with cluster.driver(only=3, consistency="ONE") as driver:
                return len(cql.rows(driver.connect(), f"SELECT k FROM {name}.t")) == ROWS + 1

        # Node 3 answers from its own data: hints have brought what it missed.
        eventually("hints are handed over", has_all)
    finally:
        cluster.remove()
