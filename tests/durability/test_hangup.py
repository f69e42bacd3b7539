"""SIGHUP has a node read its options again; it never ends it."""

import signal

from harness import cql
from harness.cluster import eventually, hang_up


def test_the_largest_batch_changes(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("batch_size_fail_threshold_in_kb: 5\n")
    node = new_node(options=["--options-file", str(file)]).start()
    session = connect(node)
    session.execute("CREATE TABLE b (k int PRIMARY KEY, v text)")
    batch = f"BEGIN BATCH INSERT INTO b (k, v) VALUES (1, '{'x' * 6000}'); INSERT INTO b (k) VALUES (2); APPLY BATCH"
    cql.refused(session, batch, cql.INVALID, "Batch too large: it has 6120 bytes, and batch_size_fail_threshold is 5120")
    file.write_text("batch_size_fail_threshold: 6KiB\n")
    hang_up(node, "batch_size_fail_threshold is 6KiB")
    session.execute(batch)
    assert sorted(cql.rows(session, "SELECT k FROM b")) == [(1,), (2,)]


def test_options_are_read_again_and_a_wrong_file_changes_nothing(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("default_log_level: info\n")
    node = new_node(options=["--options-file", str(file)]).start()
    hang_up(node, "nothing has changed")
    file.write_text("default_log_level: debug\nread_request_timeout: 7s\nnum_tokens: 8\n")
    hang_up(node, "default_log_level is debug", "read_request_timeout is 7000ms", "num_tokens changed, which takes effect at the next start")
    connect(node).execute("CREATE TABLE t (k int PRIMARY KEY)")
    file.write_text("read_request_timeout: soon\n")
    hang_up(node, "ERROR", "cannot read the options", "read_request_timeout")
    assert cql.rows(connect(node), "SELECT * FROM t") == []
    # At WARN nobody is told that a level was taken over, nor of a table.
    file.write_text("default_log_level: warn\n")
    node.process.send_signal(signal.SIGHUP)
    session, tables = connect(node), iter(range(1000))

    def is_silent():
        name = f"t{next(tables)}"
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY)")
        return not any(f"CREATE TABLE {name}" in line for line in node.lines)

    eventually("INFO is not logged any more", is_silent)


def test_slow_requests_are_logged_with_their_text_from_the_threshold_on(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("slow_query_log_timeout: 1us\n")
    node = new_node(options=["--options-file", str(file)]).start()
    session = connect(node)
    session.execute("CREATE TABLE slow (k int PRIMARY KEY)")
    scan = session.prepare("SELECT count(*) FROM slow")

    def slow_lines():
        # A shard logs few of them in a moment, and counts the others.
        for _ in range(20):
            session.execute(scan)
        slow = [line for line in node.lines if "slow request of client 127.0.0.1" in line]
        assert all("WARN" in line and "threshold 1µs" in line for line in slow)
        are_counted = [line for line in node.lines if "more slow requests are not logged" in line]
        return are_counted and any("SELECT count(*) FROM slow" in line for line in slow)

    eventually("slow requests in the log", slow_lines)
    file.write_text("slow_query_log_timeout: 0ms\n")
    hang_up(node, "slow_query_log_timeout is 0ms")
    before = len(node.lines)
    session.execute("SELECT count(*) FROM slow WHERE k > -1 ALLOW FILTERING")
    session.execute("CREATE TABLE after_it (k int PRIMARY KEY)")
    eventually("a later line", lambda: [line for line in node.lines[before:] if "after_it" in line])
    assert not [line for line in node.lines[before:] if "slow request" in line]
