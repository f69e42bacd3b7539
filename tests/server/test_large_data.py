"""Partitions, rows and cells above the thresholds of the configuration are listed with their sstable, as in ScyllaDB."""

from datetime import datetime, timedelta, timezone

import pytest

OPTIONS = """
compaction_large_partition_warning_threshold: 64KiB
compaction_rows_count_warning_threshold: 100
compaction_large_row_warning_threshold: 20KiB
compaction_large_cell_warning_threshold: 10KiB
compaction_collection_elements_count_warning_threshold: 50
"""


@pytest.fixture
def node(new_node, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text(OPTIONS)
    return new_node(smp=1, options=["--options-file", str(file)]).start()


def listed(session, table):
    of_table = "WHERE keyspace_name = %s AND table_name = %s"
    rows = session.execute(f"SELECT * FROM system.{table} {of_table}", (session.keyspace, "t"))
    return [row._asdict() for row in rows]


def test_what_is_large_is_listed_and_survives_a_restart(node, connect):
    session = connect(node)
    session.execute("CREATE TABLE t (a int, b text, c int, v blob, m map<int, int>, PRIMARY KEY ((a, b), c))")
    session.execute("INSERT INTO t (a, b, c, v) VALUES (1, 'row', 7, %s)", (b"x" * 30_000,))
    session.execute("INSERT INTO t (a, b, c, m) VALUES (1, 'elements', 8, %s)", ({n: n for n in range(60)},))
    for c in range(101):
        session.execute("INSERT INTO t (a, b, c, v) VALUES (2, 'rows', %s, %s)", (c, b"x"))
    session.execute("DELETE FROM t WHERE a = 2 AND b = 'rows' AND c = 0")
    session.execute("DELETE FROM t WHERE a = 2 AND b = 'rows' AND c > 200")
    for c in range(8):
        session.execute("INSERT INTO t (a, b, c, v) VALUES (3, 'bytes', %s, %s)", (c, b"x" * 9_000))
    assert listed(session, "large_rows") == []
    node.nodetool("flush", session.keyspace)

    def check(session):
        partitions = listed(session, "large_partitions")
        assert [(row["partition_key"], row["rows"]) for row in partitions] == [("3:bytes", 8), ("2:rows", 101)]
        assert partitions[0]["partition_size"] > 64 << 10
        assert (partitions[1]["dead_rows"], partitions[1]["range_tombstones"]) == (1, 1)
        now = datetime.now(timezone.utc).replace(tzinfo=None)
        assert now - timedelta(minutes=10) < partitions[0]["compaction_time"] <= now
        assert partitions[0]["sstable_name"].endswith("-big-Data.db")
        (row,) = listed(session, "large_rows")
        assert (row["partition_key"], row["clustering_key"]) == ("1:row", "7") and row["row_size"] > 30_000
        cells = listed(session, "large_cells")
        assert [(cell["column_name"], cell["collection_elements"]) for cell in cells] == [("v", 0), ("m", 60)]
        assert cells[0]["cell_size"] == 30_000 and cells[1]["clustering_key"] == "8"

    check(session)
    assert "t: the sstable" in node.log() and "1 large rows, one of" in node.log()
    node.restart()
    session = connect(node)
    check(session)
    session.execute("TRUNCATE t")
    assert [listed(session, f"large_{what}") for what in ("partitions", "rows", "cells")] == [[], [], []]


def test_thresholds_change_while_the_node_runs(node, connect):
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v blob)")
    change = "UPDATE system.config SET value = %s WHERE name = 'compaction_large_cell_warning_threshold'"
    session.execute(change, ("0",))
    session.execute("INSERT INTO t (k, v) VALUES (1, %s)", (b"x" * 15_000,))
    node.nodetool("flush", session.keyspace)
    assert listed(session, "large_cells") == []
    session.execute(change, ("14KiB",))
    session.execute("INSERT INTO t (k, v) VALUES (2, %s)", (b"x" * 15_000,))
    node.nodetool("flush", session.keyspace)
    assert [cell["partition_key"] for cell in listed(session, "large_cells")] == ["2"]
