"""Guardrails, as a client sees them: a warning beside the answer, or an error after which nothing was done. Each option changes while the node runs."""

import time

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, ReadFailure
from cassandra.query import BatchStatement, SimpleStatement

from harness.cluster import eventually, hang_up

# Those whose defaults would speak up in the middle of other cases.
QUIET = {"minimum_replication_factor_warn_threshold": -1, "replication_strategy_warn_list": "none"}
KEYSPACE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
TIME_WINDOWS = "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', 'compaction_window_size': 1}"
INSERT = "INSERT INTO t (k, c, v) VALUES (1, 1, 1)"
POINT = "SELECT v FROM t WHERE k = 1 AND c = 1"


class Guarded:
    """A node whose options change without a restart."""

    def __init__(self, node, session, file):
        self.node, self.session, self.file = node, session, file

    def give(self, **options):
        self.file.write_text("".join(f"{name}: {value}\n" for name, value in {**QUIET, **options}.items()))
        hang_up(self.node)

    def warnings(self, statement, parameters=None):
        future = self.session.execute_async(statement, parameters)
        future.result()
        return future.warnings or []

    def refuses(self, statement, words, parameters=None):
        with pytest.raises(InvalidRequest) as refused:
            self.session.execute(statement, parameters)
        assert words in str(refused.value)

    def beyond(self, option, values, statement, parameters=None, **others):
        """The statement is taken in silence, then with a warning, then not at all, as the two options of a threshold say."""
        warn, fail = (f"{option}_warn_threshold", f"{option}_fail_threshold")
        self.give(**others)
        assert self.warnings(statement, parameters) == []
        self.give(**{warn: values}, **others)
        told = self.warnings(statement, parameters)
        assert len(told) == 1 and warn in told[0], told
        self.give(**{fail: values}, **others)
        self.refuses(statement, fail, parameters)


@pytest.fixture
def guarded(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("")
    node = new_node(options=["--options-file", str(file)]).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int, c int, v int, l list<int>, m map<int, text>, PRIMARY KEY (k, c))")
    return Guarded(node, session, file)


# What ScyllaDB refuses and Cassandra takes.
SCYLLA = {
    "max_partition_key_restrictions_per_query": 100,
    "max_clustering_key_restrictions_per_query": 100,
    "restrict_future_timestamp": "true",
    "twcs_max_window_count": 50,
}


def test_the_defaults_warn_and_refuse_nothing(guarded):
    told = guarded.warnings(KEYSPACE.format("of_defaults"))
    assert len(told) == 2, told
    assert "(see replication_strategy_warn_list)" in told[0] and "minimum_replication_factor_warn_threshold is 3" in told[1]
    eventually("the log has both", lambda: all([line for line in guarded.node.lines if words in line] for words in told))
    windows = "CREATE TABLE w (k int PRIMARY KEY) WITH compaction = " + TIME_WINDOWS
    assert "restrict_twcs_without_default_ttl" in "".join(guarded.warnings(windows))
    many_windows = f"ALTER TABLE w WITH default_time_to_live = {51 * 86_400}"
    far = f"{INSERT} USING TIMESTAMP {time.time_ns()}"
    many = f"SELECT * FROM t WHERE k IN ({', '.join(str(number) for number in range(101))})"
    prepared = guarded.session.prepare("DELETE FROM t WHERE k = 1 AND c IN ?")
    assert guarded.warnings(many_windows) == []
    assert "maximum_timestamp_warn_threshold" in "".join(guarded.warnings(far))
    assert guarded.warnings(many) == [] and guarded.warnings(prepared, [list(range(101))]) == []
    guarded.session.execute("TRUNCATE t")

    guarded.give(**SCYLLA)
    guarded.refuses(f"ALTER TABLE w WITH default_time_to_live = {52 * 86_400}", "twcs_max_window_count is 50")
    guarded.refuses(far, "restrict_future_timestamp")
    guarded.refuses(many, "max_partition_key_restrictions_per_query is 100")
    guarded.refuses(prepared, "max_clustering_key_restrictions_per_query is 100", [list(range(101))])
    assert guarded.warnings(prepared, [list(range(100))]) == []
    assert guarded.warnings(INSERT) == [] and guarded.warnings(POINT) == []


def test_changes_of_the_schema_meet_guardrails_that_change_while_the_node_runs(guarded):
    guarded.give(keyspaces_fail_threshold=1)
    guarded.refuses(KEYSPACE.format("one_more"), "keyspaces_fail_threshold is 1")
    guarded.give(tables_fail_threshold=1)
    guarded.refuses("CREATE TABLE n (k int PRIMARY KEY)", "tables_fail_threshold is 1")
    guarded.give(columns_per_table_warn_threshold=1, columns_per_table_fail_threshold=2)
    assert "columns_per_table_warn_threshold" in "".join(guarded.warnings("CREATE TABLE two (k int PRIMARY KEY, v int)"))
    guarded.refuses("ALTER TABLE two ADD w int", "columns_per_table_fail_threshold is 2")
    for option, value in {"simplestrategy_enabled": "false", "replication_strategy_fail_list": "SimpleStrategy"}.items():
        guarded.give(**{option: value})
        guarded.refuses(KEYSPACE.format("simple"), option)
    guarded.give(minimum_replication_factor_fail_threshold=2)
    guarded.refuses(KEYSPACE.format("few"), "minimum_replication_factor_fail_threshold is 2")
    cases = {
        "uncompressed_tables_enabled": "CREATE TABLE u (k int PRIMARY KEY) WITH compression = {'enabled': 'false'}",
        "alter_table_enabled": "ALTER TABLE t WITH comment = 'x'",
        "drop_truncate_table_enabled": "DROP TABLE t",
        "drop_keyspace_enabled": "DROP KEYSPACE one_more",
    }
    for option, statement in cases.items():
        guarded.give(**{option: "false"})
        guarded.refuses(statement, f"{option} is false")
    guarded.give(drop_truncate_table_enabled="false")
    guarded.refuses("TRUNCATE t", "drop_truncate_table_enabled is false")
    guarded.give(table_properties_warned="[comment]", table_properties_disallowed="[caching, cdc]")
    assert "table_properties_warned" in "".join(guarded.warnings("ALTER TABLE t WITH comment = 'y'"))
    guarded.refuses("ALTER TABLE t WITH caching = {'keys': 'NONE'}", "table_properties_disallowed")


def test_reads_and_writes_meet_guardrails_that_change_while_the_node_runs(guarded):
    session = guarded.session
    guarded.give()
    session.execute(INSERT)
    # Prepared once: what it meets later is what holds then.
    read = session.prepare("SELECT v FROM t WHERE k IN ? AND c IN (1, 2)")
    guarded.beyond("partition_keys_in_select", 2, read, [[1, 2, 3]])
    guarded.beyond("in_select_cartesian_product", 2, read, [[1, 2, 3]])
    guarded.beyond("page_size", 99, SimpleStatement("SELECT * FROM t", fetch_size=100))
    guarded.beyond("items_per_collection", 1, "UPDATE t SET l = [1, 2] WHERE k = 1 AND c = 1")
    guarded.beyond("collection_size", "10B", "UPDATE t SET m = {1: 'a'} WHERE k = 1 AND c = 1")
    guarded.beyond("column_value_size", "2B", session.prepare(INSERT))
    old = f"{INSERT} USING TIMESTAMP 1"
    guarded.beyond("minimum_timestamp", "1h", old)
    ahead = f"{INSERT} USING TIMESTAMP {time.time_ns() // 1000 + 86_400_000_000}"
    guarded.beyond("maximum_timestamp", "1h", ahead)
    guarded.beyond("maximum_timestamp", "1h", f"BEGIN BATCH {ahead}; {INSERT}; APPLY BATCH")

    levels = {"read": POINT, "write": INSERT}
    for kind, text in levels.items():
        one, two = (SimpleStatement(text, consistency_level=level) for level in (ConsistencyLevel.ONE, ConsistencyLevel.QUORUM))
        prepared = session.prepare(text)
        prepared.consistency_level = ConsistencyLevel.ONE
        guarded.give(**{f"{kind}_consistency_levels_warned": "[ONE, TWO]"})
        for statement in (one, prepared):
            assert f"{kind}_consistency_levels_warned" in "".join(guarded.warnings(statement))
        assert guarded.warnings(two) == []
        guarded.give(**{f"{kind}_consistency_levels_disallowed": "ONE"})
        for statement in (one, prepared):
            guarded.refuses(statement, f"{kind}_consistency_levels_disallowed")
        assert guarded.warnings(two) == []
    batch = BatchStatement(consistency_level=ConsistencyLevel.ONE)
    batch.add(INSERT)
    guarded.refuses(batch, "write_consistency_levels_disallowed")
    guarded.give(write_consistency_levels_warned="ONE,SERIAL")
    assert len(guarded.warnings(batch)) == 1
    conditional = SimpleStatement(f"{INSERT} IF NOT EXISTS", consistency_level=ConsistencyLevel.QUORUM, serial_consistency_level=ConsistencyLevel.SERIAL)
    assert "SERIAL" in "".join(guarded.warnings(conditional))

    cases = {
        "allow_filtering_enabled": "SELECT * FROM t WHERE v = 1 ALLOW FILTERING",
        "group_by_enabled": "SELECT k, count(*) FROM t GROUP BY k",
        "read_before_write_list_operations_enabled": "UPDATE t SET l = l - [7] WHERE k = 1 AND c = 1",
        "user_timestamps_enabled": old,
    }
    for option, statement in cases.items():
        guarded.give()
        prepared = session.prepare(statement)
        session.execute(prepared)
        guarded.give(**{option: "false"})
        for statement in (statement, prepared):
            guarded.refuses(statement, f"{option} is false")
    guarded.give(maximum_timestamp_warn_threshold="none")
    assert guarded.warnings(f"{INSERT} USING TIMESTAMP {time.time_ns()}") == []


def test_relations_of_where_are_counted(guarded):
    three = "SELECT v FROM t WHERE k = 1 AND c > 1 AND c < 9"
    write = "UPDATE t SET v = 1 WHERE k = 1 AND c = 1"
    guarded.give()
    guarded.warnings(three)
    guarded.give(max_relations_in_where_clause=2)
    guarded.refuses(three, "3 relations in WHERE, and max_relations_in_where_clause is 2")
    guarded.warnings(write)
    guarded.give(max_relations_in_where_clause=1)
    guarded.refuses(f"BEGIN BATCH {write}; APPLY BATCH", "max_relations_in_where_clause")


def test_sizes_of_pages_and_of_results_without_pages_are_limited(guarded):
    session = guarded.session
    session.execute("CREATE TABLE large (k int, c int, v text, PRIMARY KEY (k, c))")
    for c in range(12):
        session.execute("INSERT INTO large (k, c, v) VALUES (1, %s, %s)", (c, "v" * 200_000))
    paged = SimpleStatement("SELECT c FROM large", fetch_size=1000)
    whole = SimpleStatement("SELECT v FROM large WHERE k = 1", fetch_size=None)
    guarded.give()
    assert guarded.warnings(whole) == []
    assert len(session.execute(SimpleStatement("SELECT v FROM large", fetch_size=1000)).current_rows) == 6
    guarded.give(query_page_size_in_bytes=400_000)
    assert len(session.execute(SimpleStatement("SELECT v FROM large", fetch_size=1000)).current_rows) == 2
    assert len(session.execute(paged).current_rows) == 12
    guarded.give(max_memory_for_unlimited_query_soft_limit=2_000_000)
    (told,) = guarded.warnings(whole)
    assert "max_memory_for_unlimited_query_soft_limit is 1.91 MiB: use paging" in told, told
    assert guarded.warnings(SimpleStatement("SELECT v FROM large", fetch_size=1000)) == []
    guarded.give(max_memory_for_unlimited_query_hard_limit=2_000_000)
    with pytest.raises(ReadFailure, match="larger than the 1.91 MiB"):
        session.execute(whole)
