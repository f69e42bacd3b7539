"""What a table had when it was dropped or truncated is kept in a snapshot, until its time is over or an operator clears it."""

import json

import pytest

from harness import cql
from harness.cluster import eventually
from harness.node import run_ceto

ROWS = 20


@pytest.fixture
def start(new_node, tmp_path):
    """start(text) starts a node whose options file has this text."""

    def make(text=""):
        file = tmp_path / "ceto.yaml"
        file.write_text(text)
        return new_node(options=["--options-file", str(file)]).start()

    return make


def fill(node):
    """A table `k.t` with rows in memory alone."""
    with cql.cluster(node.server) as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE k.t (k int PRIMARY KEY, v text)")
        session.execute("CREATE TABLE k.empty (k int PRIMARY KEY)")
        for k in range(ROWS):
            session.execute(f"INSERT INTO k.t (k, v) VALUES ({k}, 'v{k}')")


def execute(node, *statements):
    with cql.cluster(node.server) as driver:
        session = driver.connect()
        for statement in statements:
            session.execute(statement)


def snapshots(node):
    """Keyspace, table and name of each, from nodetool."""
    lines = node.nodetool("listsnapshots").splitlines()
    return sorted((words[1], words[2], words[0]) for line in lines if len(words := line.split()) >= 3 and words[1] == "k")


def rows_in(node, tag):
    """How many partitions a snapshot's sstables have, as the dump shows."""
    files = list(node.workdir.glob(f"data/k/*/snapshots/{tag}/*-Data.db"))
    assert files, f"no sstable in snapshot {tag}"
    return sum(len(json.loads(run_ceto("sstable", "dump", str(file)))) for file in files)


def test_what_a_table_had_is_kept_when_it_is_truncated_and_when_it_is_dropped(start):
    node = start()
    fill(node)
    execute(node, "TRUNCATE k.t", "TRUNCATE k.empty")
    ((_, table, tag),) = snapshots(node)
    assert table == "t" and tag.startswith("truncated-") and tag.endswith("-t")
    assert rows_in(node, tag) == ROWS
    execute(node, "INSERT INTO k.t (k) VALUES (1)", "DROP KEYSPACE k")
    node.restart()
    dropped, truncated = snapshots(node)
    assert truncated == ("k", "t", tag)
    assert dropped[2].startswith("dropped-") and rows_in(node, dropped[2]) == 1
    (directory,) = node.workdir.glob(f"data/k/*/snapshots/{tag}")
    assert "CREATE TABLE k.t" in (directory / "schema.cql").read_text()
    node.nodetool("clearsnapshot", "-t", tag)
    assert snapshots(node) == [dropped]
    node.nodetool("clearsnapshot", "--all")
    assert snapshots(node) == [] and not list(node.workdir.glob("data/k/*/*-Data.db"))


def test_a_snapshot_goes_when_its_time_is_over(start):
    node = start("auto_snapshot_ttl: 1s\n")
    fill(node)
    execute(node, "DROP TABLE k.t")
    eventually("the snapshot of the dropped table is gone", lambda: snapshots(node) == [])
    execute(node, "INSERT INTO k.empty (k) VALUES (1)")
    node.nodetool("snapshot", "-t", "mine", "--ttl", "1s", "k")
    eventually("the operator's snapshot is gone", lambda: snapshots(node) == [])
    assert node.api("/storage_service/snapshots?tag=x&ttl=soon", "POST")[0] == 400


def test_nothing_is_kept_where_the_option_says_so(start):
    node = start("auto_snapshot: false\n")
    fill(node)
    execute(node, "TRUNCATE k.t", "DROP TABLE k.t")
    assert snapshots(node) == []


def test_nothing_is_kept_of_a_table_that_says_so(start):
    node = start()
    fill(node)
    execute(node, "ALTER TABLE k.t WITH allow_auto_snapshot = false", "TRUNCATE k.t", "INSERT INTO k.t (k) VALUES (1)")
    assert snapshots(node) == []
    execute(node, "INSERT INTO k.empty (k) VALUES (1)", "DROP KEYSPACE k")
    ((_, table, _),) = snapshots(node)
    assert table == "empty"
