"""system.config: the options of a node, which clients read, and change while it runs."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType

from harness import cql
from harness.cluster import hang_up

INVALID = 0x2200


class Configured:
    """A node with an options file, and what its system.config says."""

    def __init__(self, node, connect, file):
        self.node, self.connect, self.file = node, connect, file
        self.session = connect(node)

    def write(self, **options):
        self.file.write_text("".join(f"{name}: {value}\n" for name, value in options.items()))

    def shows(self, name):
        rows = list(self.session.execute("SELECT source, type, value FROM system.config WHERE name = %s", (name,)))
        return tuple(rows[0]) if rows else None

    def set(self, name, value):
        self.session.execute("UPDATE system.config SET value = %s WHERE name = %s", (value, name))

    def refused(self, name, value, words):
        statement = "UPDATE system.config SET value = %s WHERE name = %s"
        cql.refused(self.session, statement, INVALID, words, (value, name))


@pytest.fixture
def configured(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("tombstone_warn_threshold: 7\nbatch_size_fail_threshold_in_kb: 64\n")
    node = new_node(options=["--options-file", str(file), "--slow-query-log-timeout", "3s"]).start()
    return Configured(node, connect, file)


def test_each_option_has_a_row_that_says_where_its_value_is_from(configured):
    names = [row.name for row in configured.session.execute("SELECT name FROM system.config")]
    assert len(names) == len(set(names)) and len(names) > 140
    for name, expected in {
        "smp": ("cli", "integer", str(configured.node.smp)),
        "tombstone_warn_threshold": ("config", "integer", "7"),
        "batch_size_fail_threshold": ("config", "size", '"64KiB"'),
        "batch_size_fail_threshold_in_kb": ("config", "integer", "64"),
        "slow_query_log_timeout": ("cli", "duration", '"3000ms"'),
        "slow_query_log_timeout_in_ms": ("cli", "integer", "3000"),
        "auto_snapshot": ("default", "bool", "true"),
        "cluster_name": ("default", "string", '"Test Cluster"'),
        "no_such_option": None,
    }.items():
        assert configured.shows(name) == expected, name


def test_a_client_changes_an_option_at_once(configured):
    session = configured.session
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    group_by = "SELECT k, count(*) FROM t GROUP BY k"
    session.execute(group_by)
    configured.set("group_by_enabled", "false")
    assert configured.shows("group_by_enabled") == ("cql", "bool", "false")
    settings = session.execute("SELECT value FROM system_views.settings WHERE name = 'group_by_enabled'")
    assert settings.one().value == "false"
    cql.refused(session, group_by, INVALID, "group_by_enabled")
    # The value may be given as it is shown, by any spelling, and by each statement that writes.
    session.execute(
        "INSERT INTO system.config (name, value) VALUES (%s, %s)", ("slow_query_log_timeout", '"2s"')
    )
    assert configured.shows("slow_query_log_timeout_in_ms") == ("cql", "integer", "2000")
    session.execute("""INSERT INTO system.config JSON '{"name": "slow_query_log_timeout_in_ms", "value": "2500"}'""")
    prepared = session.prepare("UPDATE system.config SET value = ? WHERE name = ?")
    prepared.consistency_level = ConsistencyLevel.ALL
    session.execute(prepared, ("true", "group_by_enabled"))
    session.execute(group_by)
    # The others stay.
    assert configured.shows("slow_query_log_timeout") == ("cql", "duration", '"2500ms"')
    assert configured.shows("tombstone_warn_threshold") == ("config", "integer", "7")
    # Several at once are all or none.
    both = "UPDATE system.config SET value = 'false' WHERE name IN ('group_by_enabled', 'auto_snapshot')"
    session.execute(both)
    assert configured.shows("auto_snapshot") == ("cql", "bool", "false")
    cql.refused(session, both.replace("false", "no").replace("auto_snapshot", "smp"), INVALID, "smp")
    assert configured.shows("group_by_enabled") == ("cql", "bool", "false")


def test_what_cannot_be_is_refused_by_name(configured):
    for name, value, words in [
        ("smp", "4", "option 'smp' does not change while the node runs"),
        ("cluster_name", "x", "option 'cluster_name' does not change while the node runs"),
        ("max_hint_window", "1h", "nodetool setmaxhintwindow"),
        ("read_request_timeot", "1s", "did you mean 'read_request_timeout'"),
        ("read_request_timeout", "soon", "option 'read_request_timeout': 'soon' given, expected a duration"),
        ("read_request_timeout_in_ms", "1.5", "option 'read_request_timeout_in_ms': '1.5' given, expected"),
        ("read_request_timeout", None, "no value given"),
    ]:
        configured.refused(name, value, words)
    assert configured.shows("read_request_timeout") == ("default", "duration", '"5000ms"')
    for statement, words in [
        ("UPDATE system.config SET source = 'default' WHERE name = 'smp'", "column source of system.config"),
        ("DELETE FROM system.config WHERE name = 'auto_snapshot'", "Deletion is not supported"),
        ("DELETE value FROM system.config WHERE name = 'auto_snapshot'", "Deletion is not supported"),
        ("TRUNCATE system.config", "Truncation is not supported by table system.config"),
        ("UPDATE system.config USING TTL 5 SET value = 'false' WHERE name = 'auto_snapshot'", "Expiring columns"),
        ("UPDATE system.config USING TIMESTAMP 5 SET value = 'false' WHERE name = 'auto_snapshot'", "Custom timestamp"),
        ("UPDATE system.config SET value = 'false' WHERE name = 'auto_snapshot' IF EXISTS", "Conditional updates"),
        ("INSERT INTO system.config (name, value) VALUES ('auto_snapshot', 'false') IF NOT EXISTS", "Conditional updates"),
        ("INSERT INTO system.config (name) VALUES ('auto_snapshot')", "no value given"),
        ("UPDATE system_views.settings SET value = '1' WHERE name = 'x'", "Modification is not supported by table system_views.settings"),
        (
            "BEGIN BATCH UPDATE system.config SET value = 'false' WHERE name = 'auto_snapshot'; APPLY BATCH",
            "Cannot include a virtual table statement in a logged batch",
        ),
    ]:
        cql.refused(configured.session, statement, INVALID, words)
    for kind in BatchType.LOGGED, BatchType.UNLOGGED:
        batch = BatchStatement(kind)
        batch.add(configured.session.prepare("UPDATE system.config SET value = 'false' WHERE name = 'auto_snapshot'"))
        cql.refused(configured.session, batch, INVALID, "Cannot include a virtual table statement")
    assert configured.shows("auto_snapshot") == ("default", "bool", "true")


def test_at_sighup_the_file_beats_what_a_client_has_set(configured):
    configured.set("tombstone_warn_threshold", "9")
    configured.set("auto_snapshot", "false")
    configured.set("slow_query_log_timeout", "1s")
    # A line of the file beats the client; what the file does not say, or the command line says, stays as the client has it.
    configured.write(tombstone_warn_threshold=8, slow_query_log_timeout="4s", group_by_enabled="false")
    hang_up(configured.node, "group_by_enabled is false")
    assert configured.shows("tombstone_warn_threshold") == ("config", "integer", "8")
    assert configured.shows("group_by_enabled") == ("config", "bool", "false")
    assert configured.shows("auto_snapshot") == ("cql", "bool", "false")
    assert configured.shows("slow_query_log_timeout") == ("cql", "duration", '"1000ms"')
    # What clients set is gone with the process.
    configured.node.stop()
    configured.node.start()
    configured.session = configured.connect(configured.node)
    assert configured.shows("auto_snapshot") == ("default", "bool", "true")
    assert configured.shows("slow_query_log_timeout") == ("cli", "duration", '"3000ms"')


def test_a_change_takes_nothing_else_from_the_file(configured):
    configured.write(tombstone_warn_threshold=8)
    configured.set("auto_snapshot", "false")
    assert configured.shows("tombstone_warn_threshold") == ("config", "integer", "7")


def test_what_nodetool_changed_is_shown_and_stays(configured):
    configured.node.api("/storage_service/compaction_throughput?value=16", "POST")
    shown = ("internal", "rate", '"16MiB/s"')
    assert configured.shows("compaction_throughput") == shown
    configured.set("auto_snapshot", "false")
    assert configured.shows("compaction_throughput") == shown
    configured.set("compaction_throughput_mb_per_sec", "32")
    assert configured.shows("compaction_throughput") == ("cql", "rate", '"32MiB/s"')


def test_an_operator_forbids_changes_by_clients(configured):
    configured.set("enable_cql_config_updates", "false")
    configured.refused("auto_snapshot", "false", "enable_cql_config_updates is false")
    configured.refused("live_updatable_config_params_changeable_via_cql", "true", "enable_cql_config_updates is false")
    configured.write(enable_cql_config_updates="true")
    hang_up(configured.node, "enable_cql_config_updates is true")
    configured.set("auto_snapshot", "false")


def test_the_rest_api_has_the_options(configured):
    def get(path):
        status, answer = configured.node.api(path)
        assert status == 200, answer
        return answer

    assert get("/v2/config/tombstone_warn_threshold") == 7
    configured.set("tombstone_warn_threshold", "9")
    assert get("/v2/config/tombstone_warn_threshold") == 9
    assert get("/v2/config/cluster_name") == "Test Cluster"
    assert get("/v2/config/auto_snapshot") is True
    listed = {option["name"]: option for option in get("/v2/config")}
    assert listed["tombstone_warn_threshold"] == {
        "name": "tombstone_warn_threshold", "source": "cql", "type": "integer", "value": 9,
    }
    assert len(listed) == len(list(configured.session.execute("SELECT name FROM system.config")))
    assert configured.node.api("/v2/config/no_such") == (404, {"message": "there is no option 'no_such'", "code": 404})
