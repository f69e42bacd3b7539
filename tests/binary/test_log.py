"""The log of a node: its forms, and its levels while the node runs."""

import json
import re
import signal
import subprocess

import pytest

from harness import cql
from harness.cluster import eventually
from harness.node import Node, NodeFailed, ceto_binary

pytestmark = pytest.mark.ceto_only("the binary itself")

LEVELS = {"error", "warn", "info", "debug", "trace"}
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z")


def parsed(lines):
    """Every line of a JSON log, each of which must be one object with the fields that the documentation names."""
    parsed = [json.loads(line) for line in lines]
    for line in parsed:
        assert set(line) == {"time", "level", "module", "shard", "message"}, line
        assert TIME.fullmatch(line["time"]) and line["level"] in LEVELS, line
        assert line["shard"] is None or line["shard"] in range(2), line
    return parsed


def test_every_line_of_a_json_log_is_an_object():
    node = Node(options=["--log-format", "json", "--log-level", "debug"])
    try:
        node.start()
        with cql.cluster(node) as cluster:
            session = cluster.connect()
            session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            session.execute("CREATE TABLE k.t (\n    k int PRIMARY KEY,\n    \"quoted \"\"name\"\"\" text)")
            session.execute("INSERT INTO k.t (k) VALUES (1)")
        node.nodetool("flush")
        node.process.send_signal(signal.SIGHUP)
        eventually("the options were read again", lambda: any("SIGHUP" in line for line in node.lines))
        assert node.stop() == 0
        # These two go to standard output, for people and scripts that start nodes.
        said = [line for line in node.lines if line.startswith(("serving CQL on ", "connect with: "))]
        assert len(said) == 2, node.log()
        lines = parsed(line for line in node.lines if line not in said)
    finally:
        node.remove()
    table = next(line for line in lines if "CREATE TABLE k.t" in line["message"])
    assert (table["level"], table["module"].split("::")[0]) == ("info", "cql_server"), table
    told = [line["message"] for line in lines if line["level"] == "debug" and line["module"] == "replica::metrics::activity"]
    assert any(message.startswith("flushed a memtable of k.t: ") and "-big-Data.db" in message for message in told), told
    # The node ends within the minute that a summary is of, which is then shorter.
    told = [line["message"] for line in lines if line["level"] == "info" and line["module"] == "replica::metrics::activity"]
    assert any(re.fullmatch(r"flushed \d+ memtables? of \d+ tables?, .* (bytes|KiB), in \d+ s", message) for message in told), told
    assert {line["shard"] for line in lines} >= {None, 0}, "lines of shards and of other threads"
    assert lines[-1]["message"].startswith("drained"), lines[-1]


def test_the_reason_why_a_node_ends_is_json_too():
    with Node() as node:
        options = ["--workdir", str(node.workdir), "--developer-mode", "1", "--overprovisioned", "--smp", "1", "--memory", "256M"]
        done = subprocess.run(
            [ceto_binary(), *options, "--log-format", "json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1
    last = parsed(done.stderr.splitlines())[-1]
    assert last["level"] == "error" and "another node is running" in last["message"], last


def test_log_levels_change_by_module_while_a_node_runs(tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("default_log_level: info\n")
    with Node(smp=1, options=["--options-file", str(file)]) as node, cql.cluster(node) as cluster:
        session = cluster.connect()
        session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        tables = iter(range(1000))

        def levels():
            shown = node.nodetool("getlogginglevels").split("\n")
            assert shown[1].split() == ["Logger", "Name", "Log", "Level"], shown
            return dict(line.split() for line in shown[2:] if line)

        def tells_of_tables():
            """Whether a schema change is logged, which `cql_server` does at INFO; it is logged before the client is answered."""
            name = f"t{next(tables)}"
            session.execute(f"CREATE TABLE k.{name} (k int PRIMARY KEY)")
            # What the API logs afterwards shows that all lines up to here were read.
            mark = sum("an operator removed the log level of node::open" in line for line in node.lines)
            node.nodetool("setlogginglevel", "node::open")
            eventually("the mark", lambda: sum("an operator removed the log level of node::open" in line for line in node.lines) > mark)
            return any(f"CREATE TABLE k.{name}" in line for line in node.lines)

        assert levels() == {"ROOT": "INFO"} and tells_of_tables()
        node.nodetool("setlogginglevel", "cql_server", "warn")
        assert levels() == {"ROOT": "INFO", "cql_server": "WARN"} and not tells_of_tables()
        node.nodetool("setlogginglevels", "cql_server::dispatch", "INFO")
        assert levels() == {"ROOT": "INFO", "cql_server": "WARN", "cql_server::dispatch": "INFO"} and tells_of_tables()
        # Without a level a module's own goes; without a module all go.
        node.nodetool("setlogginglevel", "cql_server::dispatch")
        assert levels() == {"ROOT": "INFO", "cql_server": "WARN"} and not tells_of_tables()
        node.nodetool("setlogginglevel", "ROOT", "WARN")
        node.nodetool("setlogginglevel", "cql_server", "INFO")
        assert levels() == {"ROOT": "WARN", "cql_server": "INFO"} and tells_of_tables()
        node.nodetool("setlogginglevel")
        assert levels() == {"ROOT": "INFO"} and tells_of_tables()

        # SIGHUP takes the level of the options, and drops all that were set since: the last action wins.
        node.nodetool("setlogginglevel", "cql_server", "WARN")
        file.write_text("default_log_level: debug\n")
        node.process.send_signal(signal.SIGHUP)
        eventually("the level of the options", lambda: levels() == {"ROOT": "DEBUG"})
        assert tells_of_tables()
        node.nodetool("setlogginglevel", "ROOT", "WARN")
        assert levels() == {"ROOT": "WARN"}
        node.nodetool("setlogginglevel")
        assert levels() == {"ROOT": "DEBUG"}, "a reset returns to the options as they were read last"

        for arguments, words in [
            (["org.apache.cassandra", "DEBUG"], "unknown logger 'org.apache.cassandra'.*query"),
            (["cql_server", "LOUD"], "expected off, error, warn, info, debug or trace, got 'LOUD'"),
            (["cql_server", "INFO", "more"], "usage: ceto nodetool setlogginglevel"),
        ]:
            with pytest.raises(NodeFailed, match=words):
                node.nodetool("setlogginglevel", *arguments)
        assert levels() == {"ROOT": "DEBUG"}

        assert node.api("/system/logger/rpc::link?level=trace", "POST") == (200, None)
        assert node.api("/system/logger") == (200, ["root", "rpc::link"])
        assert node.api("/system/logger/rpc::link") == (200, "trace")
        assert node.api("/system/logger/rpc") == (200, "debug")
        assert node.api("/system/logger/rpc::link", "DELETE") == (200, None)
        assert node.api("/system/logger", "DELETE") == (200, None)
        assert node.api("/system/logger") == (200, ["root"])
        assert node.api("/system/logger/nothing")[0] == 400
