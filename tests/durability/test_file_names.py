"""Sstables have names that no file from elsewhere has, so that files copied into a table's directory overwrite nothing."""

import re
import shutil

import pytest

from harness import cql

UUID_NAME = re.compile(r"me-[0-9a-z]{4}_[0-9a-z]{4}_[0-9a-z]{18}-big-Data\.db")


def flushed_row(new_node, connect, k, options=()):
    """A stopped node whose table t has one row, in an sstable; the files of the sstable."""
    node = new_node(smp=1, options=list(options)).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY)")
    session.execute(f"INSERT INTO t (k) VALUES ({k})")
    node.stop()
    return node, [file for file in node.workdir.glob("data/ks/t-*/*-big-*")]


def test_files_of_another_node_stand_beside_a_nodes_own(new_node, connect):
    one, own = flushed_row(new_node, connect, 1)
    _, others = flushed_row(new_node, connect, 2)
    assert all(UUID_NAME.fullmatch(file.name) for file in own + others if file.name.endswith("Data.db"))
    for file in others:
        shutil.copy(file, own[0].parent / file.name)
    assert sorted(cql.rows(connect(one.start()), "SELECT k FROM t")) == [(1,), (2,)]


@pytest.mark.parametrize("switch, pattern", [("false", re.compile(r"me-\d+-big-Data\.db")), ("true", UUID_NAME)])
def test_numbers_are_there_for_older_tools(new_node, connect, switch, pattern):
    _, files = flushed_row(new_node, connect, 1, ["--uuid-sstable-identifiers-enabled", switch])
    (data,) = [file.name for file in files if file.name.endswith("Data.db")]
    assert pattern.fullmatch(data)
