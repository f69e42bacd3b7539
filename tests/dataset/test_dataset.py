"""Real rows go in by cqlsh and by Python, come back as they were, and Cassandra reads our files."""

import subprocess
import sys
from pathlib import Path

import pytest

from dataset import load, rows, sstables
from harness import cassandra, cql

COPY_SECONDS = 3600
needs_jars = pytest.mark.skipif(cassandra.jars() is None, reason="Cassandra's jars are not there: ./dev setup")


def test_cqlsh_copy_from(server, empty, count, tmp_path):
    file = tmp_path / "rows.csv"
    with file.open("w", newline="") as out:
        rows.write_csv(out, count)
    names = ", ".join(rows.COLUMNS)
    done = subprocess.run(
        [
            Path(sys.executable).parent / "cqlsh",
            server.host,
            str(server.port),
            "-e",
            f"COPY {rows.KEYSPACE}.{rows.TABLE} ({names}) FROM '{file}' WITH NUMPROCESSES = 1",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COPY_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert f"{count} rows imported" in done.stdout
    load.verify(empty, count)


def test_python_loader(empty, count):
    load.load(empty, count)
    load.verify(empty, count)


def flushed(node, count):
    """The data files of the table, after a node wrote all rows and ended."""
    with cql.cluster(node.server) as cluster:
        load.load(cluster.connect(), count)
    node.nodetool("flush")
    assert node.stop() == 0
    return sstables.data_files(node.workdir, rows.TABLE)


@needs_jars
@pytest.mark.ceto_only("the files of a node that the harness started are read")
def test_sstabledump_prints_the_rows(own_node, count):
    files = flushed(own_node, count)
    assert all(file.name.startswith("me-") for file in files), files
    sstables.compare(files, count)


@needs_jars
@pytest.mark.ceto_only("the files of a node that the harness started are read")
def test_cassandra_imports_and_verifies_the_files(own_node, count, tmp_path):
    files = flushed(own_node, count)
    with sstables.imported(files, tmp_path, load.create, rows.KEYSPACE, rows.TABLE, "--extended-verify") as (_, session):
        load.verify(session, count)


@needs_jars
def test_the_comparison_notices_a_difference(tmp_path):
    """The judge is judged: files of Cassandra itself pass, and fail when one row is expected otherwise."""
    some = 400
    with cassandra.Cassandra() as node:
        with cql.cluster(node.server) as cluster:
            load.load(cluster.connect(), some)
        node.nodetool("flush")
        files = sstables.data_files(node.directory, rows.TABLE)
        sstables.compare(files, some)
        with pytest.raises(AssertionError, match="1 rows are missing"):
            sstables.compare(files, some + 1)
        with pytest.raises(AssertionError, match="not as they were written"):
            sstables.compare(files, some, seed=3)
