"""large_data_guardrails_enabled: a table refuses writes to partitions, rows and collections that are too large already, and writes that are too large themselves."""

import pytest
from cassandra import InvalidRequest
from cassandra.query import BatchStatement, SimpleStatement

from harness.cluster import eventually, hang_up

LIMITS = {
    "compaction_large_partition_warning_threshold": "16KiB",
    "large_partition_fail_threshold": "32KiB",
    "compaction_rows_count_warning_threshold": 20,
    "rows_count_fail_threshold": 40,
    "compaction_large_row_warning_threshold": "8KiB",
    "large_row_fail_threshold": "12KiB",
    "compaction_large_cell_warning_threshold": "4KiB",
    "large_cell_fail_threshold": "6KiB",
    "compaction_collection_elements_count_warning_threshold": 10,
    "large_collection_elements_fail_threshold": 15,
}
BYPASS = "BYPASS LARGE_DATA_GUARDRAILS"


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "ceto.yaml"
    give(file, **LIMITS)
    return file


def give(file, **options):
    file.write_text("".join(f"{name}: {value}\n" for name, value in options.items()))


@pytest.fixture
def node(new_node, file):
    return new_node(options=["--options-file", str(file)]).start()


@pytest.fixture
def session(node, connect):
    session = connect(node)
    session.execute(
        "CREATE TABLE t (p int, c int, s text static, v text, m map<int, int>, l list<int>, PRIMARY KEY (p, c))"
        " WITH large_data_guardrails_enabled = true AND compression = {'enabled': false}"
    )
    return session


def warnings(session, statement, values=None):
    future = session.execute_async(statement, values)
    future.result()
    return future.warnings or []


def refused(session, statement, values=None):
    with pytest.raises(InvalidRequest) as refusal:
        session.execute(statement, values)
    return str(refusal.value)


def flush(node):
    node.nodetool("flush")


def fill(session, rows, bytes_of_row, p=1):
    insert = session.prepare("INSERT INTO t (p, c, v) VALUES (?, ?, ?)")
    for c in range(rows):
        session.execute(insert, (p, c, "x" * bytes_of_row))


def test_what_one_statement_writes_is_measured(session):
    insert = "INSERT INTO t (p, c, v) VALUES (%s, 1, %s)"
    assert warnings(session, insert, (1, "x" * 4096)) == []
    (warning,) = warnings(session, insert, (1, "x" * 4097))
    assert warning == (
        f"A value of the column {session.keyspace}.t.v has 4097 bytes, and compaction_large_cell_warning_threshold is 4096"
    )
    assert "has 6145 bytes, and large_cell_fail_threshold is 6144" in refused(session, insert, (2, "x" * 6145))
    assert session.execute("SELECT * FROM t WHERE p = 2").one() is None, "nothing of it was done"
    both = "INSERT INTO t (p, c, v, m) VALUES (2, 1, %s, %s)"
    assert warnings(session, both, ("x", {n: n for n in range(10)})) == []
    (warning,) = warnings(session, both, ("x", {n: n for n in range(11)}))
    assert "11 elements of the collection" in warning
    assert "large_collection_elements_fail_threshold is 15" in refused(session, both, ("x", {n: n for n in range(16)}))
    session.execute("CREATE TABLE wide (p int PRIMARY KEY, a text, b text, c text) WITH large_data_guardrails_enabled = true")
    wide = "INSERT INTO wide (p, a, b, c) VALUES (1, %s, %s, %s)"
    assert warnings(session, wide, ["x" * 2500] * 3) == []
    (warning,) = warnings(session, wide, ["x" * 3000] * 3)
    assert "A row that is written to" in warning and "compaction_large_row_warning_threshold is 8192" in warning
    assert "large_row_fail_threshold is 12288" in refused(session, wide, ["x" * 4096, "x" * 4096, "x" * 4097])


@pytest.mark.parametrize("what", ["bytes", "rows"])
def test_a_partition_that_is_too_large_takes_no_more_until_it_is_smaller(node, session, what):
    few, many, size, option = {"bytes": (12, 30, 2000, "large_partition"), "rows": (25, 50, 1, "rows_count")}[what]
    fill(session, few, size)
    flush(node)
    batch = BatchStatement()
    for c in range(3):
        batch.add(SimpleStatement(f"INSERT INTO t (p, c) VALUES (1, {c})"))
    assert len(warnings(session, batch)) == 1, "what three statements of a batch meet is said once"
    (warning,) = warnings(session, "INSERT INTO t (p, c, v) VALUES (1, 1000, 'x')")
    assert "has a partition where p = 1" in warning and "_warning_threshold is" in warning
    session.execute("ALTER TABLE t WITH large_data_guardrails_enabled = false")
    fill(session, many, size)
    session.execute("ALTER TABLE t WITH large_data_guardrails_enabled = true")
    flush(node)
    node.nodetool("compact", session.keyspace)
    for statement in [
        "INSERT INTO t (p, c, v) VALUES (1, 1000, 'x')",
        "UPDATE t SET v = 'x' WHERE p = 1 AND c = 1",
        "UPDATE t SET s = 'x' WHERE p = 1",
        "INSERT INTO t JSON '{\"p\": 1, \"c\": 2000}'",
        "UPDATE t SET v = 'x' WHERE p = 1 AND c = 1 IF EXISTS",
        "INSERT INTO t (p, c) VALUES (1, 1000) IF NOT EXISTS",
        "UPDATE t SET l[0] = 1 WHERE p = 1 AND c = 1",
        "DELETE FROM t WHERE p = 1 AND c = 1",
        "DELETE FROM t WHERE p = 1",
        "BEGIN BATCH INSERT INTO t (p, c) VALUES (2, 1); INSERT INTO t (p, c) VALUES (1, 1000); APPLY BATCH",
    ]:
        message = refused(session, statement)
        assert f"{option}_fail_threshold" in message and "BYPASS LARGE_DATA_GUARDRAILS" in message, statement
    batch = BatchStatement()
    batch.add(SimpleStatement("INSERT INTO t (p, c) VALUES (2, 1)"))
    batch.add(SimpleStatement("INSERT INTO t (p, c) VALUES (1, 1000)"))
    assert f"{option}_fail_threshold" in refused(session, batch)
    assert session.execute("SELECT * FROM t WHERE p = 2").one() is None, "nothing of a batch was done"
    assert warnings(session, "INSERT INTO t (p, c, v) VALUES (3, 1, 'x')") == [], "other partitions are as they were"
    # The way out: what is there is deleted, and compacted away.
    assert session.execute(f"DELETE FROM t WHERE p = 1 AND c = 1 IF EXISTS {BYPASS}").one().applied
    session.execute(f"DELETE FROM t WHERE p = 1 {BYPASS}")
    session.execute("ALTER TABLE t WITH gc_grace_seconds = 0")
    flush(node)
    node.nodetool("compact", session.keyspace)
    assert warnings(session, "INSERT INTO t (p, c, v) VALUES (1, 1, 'x')") == []


def test_rows_and_collections_that_grow_are_stopped_in_memory_and_on_disk(node, session):
    add = "UPDATE t SET m[%s] = 1 WHERE p = 1 AND c = 1"
    told = []
    for n in range(16):
        told.append(warnings(session, add, (n,)))
    assert told[:11] == [[]] * 11 and "11 elements in the collection m" in told[11][0], told
    assert "16 elements in the collection m, and large_collection_elements_fail_threshold is 15" in refused(session, add, (99,))
    flush(node)
    assert "16 elements in the collection m" in refused(session, add, (99,))
    # Other columns, other rows.
    assert warnings(session, "UPDATE t SET v = 'x' WHERE p = 1 AND c = 1") == []
    assert warnings(session, "UPDATE t SET m[1] = 1 WHERE p = 1 AND c = 2") == []
    session.execute("CREATE TABLE r (p int PRIMARY KEY, a text, b text, c text) WITH large_data_guardrails_enabled = true")
    for column in "abc":
        session.execute(f"UPDATE r SET {column} = %s WHERE p = 1", ("x" * 4500,))
    assert "with a row of 13" in refused(session, "UPDATE r SET a = 'x' WHERE p = 1")
    flush(node)
    assert "with a row of 13" in refused(session, "UPDATE r SET a = 'x' WHERE p = 1")
    assert "large_row_fail_threshold" in refused(session, "DELETE FROM r WHERE p = 1")


def test_tables_without_the_option_and_clients_who_want_no_warnings(node, session, file):
    session.execute("ALTER TABLE t WITH large_data_guardrails_enabled = false")
    insert = "INSERT INTO t (p, c, v) VALUES (1, 1, %s)"
    assert warnings(session, insert, ("x" * 100_000,)) == []
    session.execute("ALTER TABLE t WITH large_data_guardrails_enabled = true")
    assert "large_data_guardrails_enabled = true" in session.execute(f"DESCRIBE TABLE {session.keyspace}.t").one().create_statement
    assert "large_cell_fail_threshold" in refused(session, insert, ("x" * 7000,))
    give(file, **LIMITS | {"large_data_cql_warnings": "false", "large_cell_fail_threshold": 0, "large_row_fail_threshold": 0})
    hang_up(node)
    assert warnings(session, "INSERT INTO t (p, c, v) VALUES (2, 1, %s)", ("x" * 7000,)) == []
    words = "compaction_large_cell_warning_threshold is 4096"
    eventually("the log says it all the same", lambda: any(words in line for line in node.lines))


def test_the_clause_is_for_a_deletion_alone(session):
    for statement in [
        f"INSERT INTO t (p, c) VALUES (1, 1) {BYPASS}",
        f"UPDATE t SET v = 'x' WHERE p = 1 AND c = 1 {BYPASS}",
        f"BEGIN BATCH DELETE FROM t WHERE p = 1 {BYPASS}; APPLY BATCH",
        "DELETE FROM t WHERE p = 1 BYPASS CACHE",
    ]:
        with pytest.raises(Exception, match="line 1:"):
            session.execute(statement)
