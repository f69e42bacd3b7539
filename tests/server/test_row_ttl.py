"""A column that says when its row expires, as ScyllaDB's per-row TTL: the row is deleted some time after that moment."""

import time

import pytest
from cassandra import InvalidRequest

from harness.cluster import eventually

NEVER = 4_000_000_000


@pytest.fixture
def node(new_node):
    return new_node(smp=2, options=["--alternator-ttl-period-in-seconds", "1"]).start()


def names(session):
    return sorted(row.name for row in session.execute("SELECT name FROM t"))


def counted(node, name):
    return sum(value for key, value in node.metrics().items() if key.startswith(f"ceto_{name}{{"))


@pytest.mark.parametrize("cql_type", ["timestamp", "bigint", "int"])
def test_rows_go_when_their_moment_has_passed(node, connect, cql_type):
    session = connect(node)
    session.execute(f"CREATE TABLE t (k int, c int, s text static, name text, tags set<text>, ends {cql_type} TTL, PRIMARY KEY (k, c))")
    unit = 1000 if cql_type == "timestamp" else 1
    future = (2_000_000_000 if cql_type == "int" else NEVER) * unit
    past = (int(time.time()) - 5) * unit
    for k in range(20):
        insert = f"INSERT INTO t (k, c, name, tags, ends) VALUES ({k}, %s, %s, {{'a', 'b'}}, %s)"
        session.execute(insert, (0, "past", past))
        session.execute(insert, (1, "future", future))
        session.execute(insert, (2, "no moment", None))
        session.execute(f"UPDATE t SET s = 'static' WHERE k = {k}")
    eventually("the expired rows are gone", lambda: "past" not in names(session))
    assert names(session) == ["future"] * 20 + ["no moment"] * 20
    assert {row.s for row in session.execute("SELECT s FROM t")} == {"static"}
    assert counted(node, "expiration_items_deleted_total") == 20
    assert counted(node, "expiration_scan_passes_total") > 0 and counted(node, "expiration_scanned_rows_total") >= 20
    session.execute(f"UPDATE t SET ends = {past} WHERE k = 3 AND c = 1")
    eventually("one whose moment was moved into the past", lambda: names(session).count("future") == 19)
    node.restart()
    session = connect(node)
    assert names(session) == ["future"] * 19 + ["no moment"] * 20, "what was deleted stays deleted"


def test_a_partition_of_one_row_goes_whole(node, connect):
    session = connect(node)
    session.execute("CREATE TABLE t (name text PRIMARY KEY, ends timestamp TTL)")
    session.execute("INSERT INTO t (name, ends) VALUES ('a', 1)")
    session.execute("UPDATE t SET ends = 2 WHERE name = 'b'")
    session.execute("INSERT INTO t (name, ends) VALUES ('c', null)")
    eventually("the expired rows are gone", lambda: names(session) == ["c"])


def test_the_column_is_chosen_and_taken_back_and_described(node, connect):
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, name text, ends bigint, s int)")
    session.execute("INSERT INTO t (k, name, ends, s) VALUES (1, 'old', 5, 6)")
    passes = counted(node, "expiration_scan_passes_total")
    eventually("two passes more", lambda: counted(node, "expiration_scan_passes_total") >= passes + 4)
    assert names(session) == ["old"], "no column says that rows expire"
    session.execute("ALTER TABLE t TTL ends")
    described = session.execute("DESCRIBE TABLE t").one().create_statement
    assert "    ends bigint TTL,\n" in described
    for statement, why in [
        ("ALTER TABLE t DROP ends", "Cannot drop the TTL column ends"),
        ("ALTER TABLE t TTL s", "has the TTL column ends"),
        ("CREATE TABLE u (k int PRIMARY KEY, v text TTL)", "it has the type text; expected timestamp, bigint or int"),
        ("CREATE TABLE u (k int TTL PRIMARY KEY)", "it is a column of the primary key"),
    ]:
        with pytest.raises(InvalidRequest, match=why):
            session.execute(statement)
    eventually("rows from before expire", lambda: names(session) == [])
    session.execute("ALTER TABLE t TTL NULL")
    assert "TTL" not in session.execute("DESCRIBE TABLE t").one().create_statement
    session.execute("DROP TABLE t")
    session.execute(described)
    session.execute("INSERT INTO t (k, name, ends) VALUES (1, 'again', 5)")
    eventually("the described table is the same", lambda: names(session) == [])


def test_the_period_changes_while_the_node_runs(new_node, connect):
    node = new_node(smp=1).start()
    session = connect(node)
    session.execute("CREATE TABLE t (name text PRIMARY KEY, ends timestamp TTL)")
    session.execute("INSERT INTO t (name, ends) VALUES ('a', 1)")
    session.execute("UPDATE system.config SET value = '1' WHERE name = 'alternator_ttl_period_in_seconds'")
    eventually("the row is gone", lambda: names(session) == [])
    with pytest.raises(InvalidRequest, match="expected a number of seconds above 0"):
        session.execute("UPDATE system.config SET value = '0' WHERE name = 'alternator_ttl_period_in_seconds'")
