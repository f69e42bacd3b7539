"""A disk returns other bytes than it was given: the log says which file and where, clients get an error without the server's directories, and the node
does what `disk_failure_policy` says."""

import pytest
from cassandra import ReadFailure

from harness import NodeFailed
from harness.cluster import eventually


def damaged_while_it_runs(new_node, connect, policy):
    """A node with one flushed table and a changed byte in its Data.db, a session, and the file's name."""
    node = new_node(smp=1, options=["--disk-failure-policy", policy]).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    for k in range(100):
        session.execute("INSERT INTO t (k, v) VALUES (%s, %s)", (k, str(k) * 50))
    node.nodetool("flush", "ks", "t")
    (data,) = node.workdir.glob("data/ks/t-*/*-Data.db")
    with data.open("r+b") as file:
        file.seek(data.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0xFF]))
    return node, session, data


def test_a_damaged_sstable_is_named_in_the_log_and_its_directory_in_no_answer(new_node, connect):
    node, session, data = damaged_while_it_runs(new_node, connect, "best_effort")
    with pytest.raises(ReadFailure) as first:
        session.execute("SELECT * FROM t")
    assert data.name in str(first.value)
    eventually("the sstable is moved aside", lambda: node.nodetool("listquarantined") if data.stem.removesuffix("-Data") in node.nodetool("listquarantined") else None)
    with pytest.raises(ReadFailure) as second:
        session.execute("SELECT * FROM t")
    for error in (first, second):
        assert str(node.workdir) not in str(error.value), f"clients see the directory: {error.value}"
    lines = [line for line in node.lines if "ERROR" in line and str(data) in line]
    assert any("offset" in line or "at " in line for line in lines), f"no ERROR names the file and the place: {node.log()}"
    assert "is moved to" in node.log() or "was moved to" in node.log()
    # All else goes on.
    session.execute("CREATE TABLE other (k int PRIMARY KEY)")
    session.execute("INSERT INTO other (k) VALUES (1)")
    assert session.execute("SELECT k FROM other").one().k == 1


def test_stop_paranoid_leaves_service_and_does_not_start_again(new_node, connect):
    node, session, data = damaged_while_it_runs(new_node, connect, "stop_paranoid")
    with pytest.raises(ReadFailure):
        session.execute("SELECT * FROM t")
    eventually("the reason in the log", lambda: [line for line in node.lines if "this node leaves service, as disk_failure_policy demands" in line and data.name in line])
    eventually("clients are sent away", lambda: "OUT_OF_SERVICE" in node.nodetool("netstats"))
    node.stop()
    with pytest.raises(NodeFailed) as refused:
        node.start()
    assert "disk_failure_policy forbids to start without them" in refused.value.log
    node.options = ["--disk-failure-policy", "best_effort"]
    node.start()
    node.nodetool("acceptquarantined", "ks", "t")
    assert list(connect(node).execute("SELECT * FROM t")) == []


def test_die_ends_the_node(new_node, connect):
    node, session, data = damaged_while_it_runs(new_node, connect, "die")
    with pytest.raises(ReadFailure):
        session.execute("SELECT * FROM t")
    eventually("the node has ended", lambda: node.process.poll() is not None)
    assert node.process.poll() not in (0, None)
    assert f"disk_failure_policy is die" in node.log() and data.name in node.log()
