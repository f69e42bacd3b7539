"""A node that cannot run says why, on its last lines, and exits with an error; the one that runs is not disturbed."""

import os
import socket
import stat

import pytest

from harness import NodeFailed, cql
from harness.node import free_ports


def refusal(node):
    with pytest.raises(NodeFailed) as caught:
        node.start()
    assert caught.value.code not in (0, None), f"exit code {caught.value.code}, after {caught.value.log}"
    assert "panicked" not in caught.value.log, caught.value.log
    return caught.value.log


def test_a_second_node_on_the_same_directory(new_node, connect):
    first = new_node().start()
    log = refusal(new_node(workdir=first.workdir))
    assert str(first.workdir) in log
    assert "another node" in log or "in use" in log, log
    assert cql.rows(connect(first), "SELECT key FROM system.local") == [("local",)]


def test_a_port_in_use(new_node):
    node = new_node()
    with socket.create_server((node.host, 0)) as taken:
        node.port = taken.getsockname()[1]
        (node.shard_aware_port,) = free_ports(node.host, 1)
        log = refusal(node)
    assert str(node.port) in log and "in use" in log, log


def test_a_shard_aware_port_in_use(new_node):
    node = new_node()
    with socket.create_server((node.host, 0)) as taken:
        node.shard_aware_port = taken.getsockname()[1]
        (node.port,) = free_ports(node.host, 1)
        log = refusal(node)
    assert str(node.shard_aware_port) in log and "in use" in log, log


def test_a_file_where_the_directory_should_be(new_node, tmp_path):
    file = tmp_path / "file"
    file.write_text("not a directory")
    log = refusal(new_node(workdir=file))
    assert str(file) in log and "directory" in log.lower(), log
    assert file.read_text() == "not a directory"


def test_a_directory_that_may_not_be_read(new_node, tmp_path):
    directory = tmp_path / "closed"
    directory.mkdir()
    directory.chmod(0)
    # Root may read everything, unless it gives up the capabilities for it.
    closed_to_root = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    try:
        log = refusal(new_node(workdir=directory, wrapper=closed_to_root))
    finally:
        directory.chmod(stat.S_IRWXU)
    assert str(directory) in log and "denied" in log.lower(), log


OPTIONS = {
    "an unknown option": (["--nonsense"], "--nonsense"),
    "an unknown way to sync": (["--commitlog-sync", "sometimes"], "sometimes"),
    "an options file that is not there": (["--options-file", "/nowhere/ceto.yaml"], "/nowhere/ceto.yaml"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_wrong_options(new_node, what):
    options, word = OPTIONS[what]
    node = new_node(options=options)
    node.port, node.shard_aware_port = free_ports(node.host, 2)
    assert word in refusal(node)


def test_memory_that_is_not_a_size(new_node):
    assert "plenty" in refusal(new_node(memory="plenty"))


def test_an_unknown_key_in_the_options_file_is_refused_with_the_nearest_known_one(new_node, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("cluster_name: mine\ncomitlog_sync: batch\n")
    log = refusal(new_node(options=["--options-file", str(file)]))
    assert "comitlog_sync" in log and "commitlog_sync" in log, log


def test_a_known_key_that_is_not_used_only_warns(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("cluster_name: mine\nmax_hints_delivery_threads: 2\n")
    node = new_node(options=["--options-file", str(file)]).start()
    assert "max_hints_delivery_threads" in "".join(node.lines)
    assert cql.rows(connect(node), "SELECT cluster_name FROM system.local") == [("mine",)]


def flushed(new_node, connect):
    """A node that has stopped, and the directory of its table `t (k, v)` with one sstable."""
    node = new_node().start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    session.execute("INSERT INTO t (k, v) VALUES (1, 1)")
    node.stop()
    (data,) = node.workdir.glob("data/ks/t-*/*-Data.db")
    return node, data


@pytest.mark.parametrize("name", ["nb-1-big-Data.db", "da-3-bti-Data.db", "ks-t-ka-1-Data.db", "nb-3gcd_0dtp_1d0kw2cpdo5wxxgmvg-big-Data.db"])
def test_sstables_of_a_version_that_it_cannot_read(new_node, connect, name):
    """They would be missing, and the table would look empty."""
    node, data = flushed(new_node, connect)
    foreign = data.with_name(name)
    foreign.write_bytes(data.read_bytes())
    log = refusal(node)
    assert str(foreign) in log and "version" in log, log
    foreign.unlink()
    assert cql.rows(connect(node.start()), "SELECT k, v FROM t") == [(1, 1)]


def test_an_sstable_with_a_column_that_the_table_lacks(new_node, connect):
    """The next rewrite of the file would drop what it has there."""
    node, data = flushed(new_node, connect)
    session = connect(node.start())
    session.execute("CREATE TABLE narrow (k int PRIMARY KEY)")
    session.execute("INSERT INTO narrow (k) VALUES (1)")
    node.stop()
    (narrow,) = node.workdir.glob("data/ks/narrow-*")
    for file in data.parent.glob(data.name.replace("Data.db", "*")):
        (narrow / file.name).write_bytes(file.read_bytes())
    log = refusal(node)
    assert "column v (int) is in the file" in log and "ks.narrow" in log, log
