"""SIGHUP has a node read its options again; it never ends it."""

import signal

from harness import cql
from harness.cluster import eventually


def hang_up(node, *words):
    before = len(node.lines)
    node.process.send_signal(signal.SIGHUP)
    return eventually(f"a line with {words}", lambda: [line for line in node.lines[before:] if "SIGHUP" in line and all(word in line for word in words)])


def test_options_are_read_again_and_a_wrong_file_changes_nothing(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("default_log_level: info\n")
    node = new_node(options=["--options-file", str(file)]).start()
    hang_up(node, "none is another")
    file.write_text("default_log_level: debug\nread_request_timeout: 7s\nnum_tokens: 8\n")
    hang_up(node, "default_log_level is debug", "read_request_timeout is 7000ms", "num_tokens changed, which takes effect at the next start")
    connect(node).execute("CREATE TABLE t (k int PRIMARY KEY)")
    file.write_text("read_request_timeout: soon\n")
    hang_up(node, "ERROR", "stay as they are", "read_request_timeout")
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
