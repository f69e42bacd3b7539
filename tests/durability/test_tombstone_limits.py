"""Reads of many tombstones, as a client and an operator see them: a warning, shorter pages, a failure; and the limits change while the node runs."""

import pytest
from cassandra import ReadFailure
from cassandra.query import SimpleStatement

from harness.cluster import eventually, hang_up

DELETED = 60


def test_a_client_is_warned_of_tombstones_gets_shorter_pages_and_at_last_an_error(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("tombstone_warn_threshold: 20\ntombstone_failure_threshold: 1000\nquery_tombstone_page_limit: 0\n")
    node = new_node(options=["--options-file", str(file)]).start()
    # Version 5 names the reason of a failure.
    session = connect(node, protocol_version=5)
    session.execute("CREATE TABLE t (k text, c int, PRIMARY KEY (k, c))")
    for c in range(DELETED + 1):
        session.execute(f"INSERT INTO t (k, c) VALUES ('here', {c})")
    for c in range(DELETED):
        session.execute(f"DELETE FROM t WHERE k = 'here' AND c = {c}")
    read = SimpleStatement("SELECT c FROM t WHERE k = 'here'", fetch_size=1000)

    def answer():
        future = session.execute_async(read)
        return [row[0] for row in future.result()], future.warnings

    rows, warnings = answer()
    assert rows == [DELETED]
    table = f"{session.keyspace}.t"
    told = f"Read 1 rows and {DELETED} tombstones of {table}, many of them in the partition k = 'here' (see tombstone_warn_threshold)"
    assert warnings == [told]
    eventually("the log has it", lambda: [line for line in node.lines if told in line])

    file.write_text("tombstone_warn_threshold: 20\nquery_tombstone_page_limit: 20\n")
    hang_up(node, "query_tombstone_page_limit is 20")
    result = session.execute(read)
    pages = [list(result.current_rows)]
    while result.has_more_pages:
        result.fetch_next_page()
        pages.append(list(result.current_rows))
    # A driver of Cassandra takes an empty page for the end of the result: it gets the row first.
    assert [len(page) for page in pages] == [1, 0], "a page ends after twenty tombstones, and is empty only if it is the last"

    file.write_text("tombstone_failure_threshold: 50\nquery_tombstone_page_limit: 0\n")
    hang_up(node, "tombstone_failure_threshold is 50")
    with pytest.raises(ReadFailure) as failed:
        session.execute(read)
    # Reason 1 is "too many tombstones read".
    assert list(failed.value.error_code_map.values()) == [1], failed.value.error_code_map
    assert "tombstone_failure_threshold" in str(failed.value)
    file.write_text("")
    hang_up(node, "tombstone_failure_threshold is 100000")
    assert answer() == ([DELETED], None)
