"""Directories that are not mounted, moved, or lost, on real processes and with the command that accepts a loss."""

import re
import shutil

import pytest

from harness import Cluster, NodeFailed, cql
from harness.cluster import eventually
from harness.node import run_ceto

ROWS = 20


@pytest.fixture
def cluster(request, tmp_path):
    cluster = Cluster(3, runtime=request.config.getoption("--runtime"))
    # As on a volume of its own.
    third = cluster.node(3)
    third.options = [*third.options, "--data-file-directories", str(tmp_path / "volume")]
    cluster.form()
    yield cluster
    print(cluster.log())
    cluster.remove()


def refused(node):
    with pytest.raises(NodeFailed) as failure:
        node.start()
    return failure.value.log


def recover(node, directory, *arguments):
    return run_ceto("recover-directory", "--workdir", str(node.workdir), "--accept", directory, *arguments)


def rows(cluster, number, consistency):
    with cluster.driver(only=number, consistency=consistency) as driver:
        return sorted(k for (k,) in cql.rows(driver.connect(), "SELECT k FROM ks.t"))


def reports_everything_missed(node):
    """Whether a report says that this node missed writes since the first second."""
    lines = [line.split() for line in node.nodetool("listmissedwrites").splitlines()]
    return any(line[1:3] == [node.host, "1970-01-01T00:00:01Z"] for line in lines if len(line) == 4)


def test_a_data_directory_that_is_not_there_is_refused_until_it_is_back_or_its_loss_is_accepted(cluster, tmp_path):
    third, volume = cluster.node(3), tmp_path / "volume"
    with cluster.driver(only=1, consistency="ALL") as driver:
        session = driver.connect()
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 3} AND tablets = {'enabled': false}"
        session.execute(f"CREATE KEYSPACE ks WITH replication = {replication}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
        for k in range(ROWS):
            session.execute("INSERT INTO ks.t (k) VALUES (%s)", (k,))
    cluster.stop(3)

    unmounted = tmp_path / "unmounted"
    volume.rename(unmounted)
    assert f"the data directory {volume} (data_file_directories) does not exist" in refused(third)
    assert not volume.exists(), "the start made it"
    volume.mkdir()
    log = refused(third)
    assert "is empty" in log and "recover-directory" in log and "ceto page rejoin" in log, log
    assert rows(cluster, 1, "QUORUM") == list(range(ROWS))

    # Mounted elsewhere, it is found there.
    third.options[-1] = str(unmounted)
    third.start()
    assert rows(cluster, 3, "ONE") == list(range(ROWS))
    with pytest.raises(NodeFailed, match="another node is running on the workdir"):
        recover(third, "data", "--data-file-directories", str(unmounted))
    cluster.stop(3)

    # Lost permanently.
    shutil.rmtree(unmounted)
    third.options[-1] = str(volume)
    refused(third)
    at = ["--data-file-directories", str(volume)]
    explanation = recover(third, "data", *at)
    assert "reads at ONE miss" in explanation and "Nothing was changed" in explanation, explanation
    assert list(volume.iterdir()) == []
    with pytest.raises(NodeFailed, match="nothing was changed"):
        recover(third, "data", *at, "--confirm", "yes")
    recover(third, "data", *at, "--confirm", re.search('--confirm "(.*)"', explanation)[1])
    with pytest.raises(NodeFailed, match="nothing is lost"):
        recover(third, "data", *at)
    third.start()
    assert rows(cluster, 3, "ONE") == [], "they were in the lost directory"
    eventually("the loss is reported", lambda: reports_everything_missed(third))
    assert rows(cluster, 3, "QUORUM") == list(range(ROWS))
    assert rows(cluster, 3, "ALL") == list(range(ROWS))
    assert rows(cluster, 3, "ONE") == list(range(ROWS))
    third.nodetool("releasetombstones", third.host)
    eventually("it is whole", lambda: not reports_everything_missed(third))
