"""The commands of the binary besides the server: each does its work in a small size, or says what is wrong."""

import json
import subprocess

import pytest

from harness import cql
from harness.node import Node, ceto_binary, run_ceto

pytestmark = pytest.mark.ceto_only("the binary itself")


def refused(*arguments):
    """What a command prints when it fails, which it must."""
    done = subprocess.run(
        [ceto_binary(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert "panicked" not in said, said
    return said


def test_help_names_the_commands_and_the_options_people_know():
    said = run_ceto("--help")
    for word in (
        "perf",
        "nodetool",
        "--workdir",
        "--smp",
        "--memory",
        "--commitlog-sync",
        "--options-file",
        "--native-transport-port",
        "--native-shard-aware-transport-port",
        "--overprovisioned",
    ):
        assert word in said, f"--help does not mention {word}"


def test_a_command_without_its_words_prints_how_it_is_called():
    assert run_ceto("nodetool").startswith("usage: ceto nodetool")
    for command, word in (("sstable", "verify"), ("perf", "simple-query"), ("dynamodb", "import")):
        said = refused(command)
        assert "Usage: ceto" in said and word in said, said


def test_a_start_without_a_workdir_makes_no_node(tmp_path):
    done = subprocess.run([ceto_binary()], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "ceto --workdir ./data" in done.stderr, done
    assert list(tmp_path.iterdir()) == [], "the start made something"


def test_nodetool_refuses_what_it_does_not_know_before_it_asks_a_node(tmp_path):
    assert "unknown command 'staus'; did you mean 'status'?" in refused("nodetool", "staus")
    assert "compact: unknown option -st" in refused("nodetool", "compact", "-st", "1")
    assert "127.0.0.1:1" in refused("nodetool", "status", "--host", "127.0.0.1", "--port", "1"), "options may follow"


def test_pages_are_in_the_binary():
    assert "remove-node" in run_ceto("page")
    assert run_ceto("page", "remove-node").startswith("# Removing a node")
    assert "Did you mean 'remove-node'?" in refused("page", "remove-nod")


def test_a_printed_configuration_starts_a_node(tmp_path):
    printed = run_ceto("--print-config", "--smp", "1", "--memory", "512M", "--cluster-name", "It's printed")
    assert "\n# Port of the REST API." in printed and "\napi_port: 10000\n" in printed, printed
    options = tmp_path / "printed.yaml"
    options.write_text(printed)
    with Node(options=["--options-file", str(options)]) as node:
        with cql.cluster(node) as cluster:
            assert cluster.connect().execute("SELECT cluster_name FROM system.local").one() == ("It's printed",)
    assert "options-file" in refused("--print-config", "--options-file", str(options))


def test_all_that_is_wrong_with_the_options_is_told_at_once(tmp_path):
    options = tmp_path / "ceto.yaml"
    options.write_text("authenticator: PasswordAuthenticator\nfrobnicate: 1\nseeds: no-such-host.invalid\n")
    said = refused("--workdir", str(tmp_path), "--replace-address", "node9").splitlines()
    assert len(said) == 4 and all(line.startswith("ceto: ") for line in said), said
    assert f"{options}: option 'authenticator' at line 1: 'PasswordAuthenticator' given" in said[0]
    assert "unknown option 'frobnicate' at line 2" in said[1]
    assert "option 'seeds' at line 3" in said[2] and "'no-such-host.invalid' does not resolve" in said[2]
    assert "--replace-address: 'node9' given" in said[3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ceto.yaml"], "the start came further than its options"


def test_a_file_of_cassandra_starts_a_node_that_says_what_it_does_not_do(tmp_path):
    options = tmp_path / "cassandra.yaml"
    options.write_text("commit_failure_policy: stop\nkey_cache_save_period: 4h\nlisten_address: localhost\nmax_hint_window: 3h\n")
    with Node(options=["--options-file", str(options)]) as node:
        assert "'commit_failure_policy' at line 1: 'stop' given, but a node whose commitlog takes no writes continues to serve reads" in "".join(node.lines)
        assert "1 option has no meaning here: key_cache_save_period" in "".join(node.lines)


def test_nodes_of_one_machine_have_the_api_at_their_own_addresses():
    ports = ["--api-port", "10000", "--prometheus-port", "9180"]
    with Node(host="127.0.42.1", smp=1, options=ports), Node(host="127.0.42.2", smp=1, options=ports) as second:
        assert (second.workdir / "api").read_text().strip() == "127.0.42.2:10000"
        said = run_ceto("nodetool", "--host", "127.0.42.2", "info")
        assert "ID" in said, said
    with Node(host="127.0.42.3", smp=1, options=["--api-address", "localhost"]) as node:
        _, _, port = (node.workdir / "api").read_text().strip().rpartition(":")
        assert run_ceto("nodetool", "--host", "localhost", "--port", port, "version").strip()
        assert "does not resolve" in refused("nodetool", "--host", "no-such-host.invalid", "info")


def test_the_node_prints_how_to_connect(node):
    printed = "".join(node.lines)
    assert f"serving CQL on {node.host}:{node.port}" in printed
    assert "cqlsh" in printed, printed


def test_nodetool_without_a_node(tmp_path):
    assert str(tmp_path) in refused("nodetool", "--workdir", str(tmp_path), "flush")


def test_nodetool_flush(node, server):
    with cql.cluster(server) as cluster:
        session = cluster.connect()
        name = cql.unique("flushed")
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        )
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY)")
        session.execute(f"INSERT INTO {name}.t (k) VALUES (1)")
        node.nodetool("flush")
        assert list(node.workdir.rglob("*-Data.db")), "no sstable was written"
        assert cql.rows(session, f"SELECT k FROM {name}.t") == [(1,)]
        session.execute(f"DROP KEYSPACE {name}")


@pytest.mark.parametrize("kind", ["read", "write", "delete"])
def test_perf_simple_query(kind, tmp_path):
    result = tmp_path / "result.json"
    options = [] if kind == "read" else [f"--{kind}"]
    run_ceto(
        "perf",
        "simple-query",
        *options,
        "--smp",
        "1",
        "--partitions",
        "100",
        "--operations",
        "2000",
        "--json-result",
        str(result),
    )
    found = json.loads(result.read_text())
    assert found["parameters"]["workload"] == kind
    assert found["stats"]["median tps"] > 0 and found["stats"]["allocs_per_op"] >= 0, found


def test_perf_memory_footprint():
    said = run_ceto(
        "perf", "memory-footprint", "--row-count=2", "--partition-count=10", "--data-size=8", "--column-count=4"
    )
    assert "in memtable" in said and "in sstable me" in said, said


@pytest.mark.parametrize("workload", ["--workload read", "--workload write", "--lwt", "--lwt --contended"])
def test_perf_cql(node, tmp_path, workload):
    result = tmp_path / "result.json"
    run_ceto(
        "perf", "cql", "--connect", f"{node.host}:{node.port}", *workload.split(), "--connections", "4", "--depth", "4",
        "--partitions", "1000", "--warm-up", "0", "--operations", "5000", "--server-pid", str(node.pid), "--json-result", str(result),
    )  # fmt: skip
    found = json.loads(result.read_text())
    assert found["operations"] >= 5000 and not found["errors"] and not found["not_applied"], found
    assert found["rate"] > 0 and found["latency"]["p99_us"] > 0


def test_unknown_commands_are_refused(node):
    assert "nonsense" in refused("nonsense")
    assert "nonsense" in refused("perf", "nonsense")
    assert "nonsense" in refused("nodetool", "--workdir", str(node.workdir), "nonsense")


def test_nodetool_has_help_for_each_command():
    listed = [line.split()[0] for line in run_ceto("nodetool", "help").splitlines() if line.startswith("    ")]
    for name in ("status", "drain", "toppartitions", "tablehistograms", "compactionhistory"):
        assert name in listed, listed
    for name in listed:
        said = run_ceto("nodetool", "help", name)
        assert said.startswith(f"usage: ceto nodetool {name}"), said
        assert run_ceto("nodetool", name, "--help") == said
    assert "Also called cfstats" in run_ceto("nodetool", "help", "cfstats")


def test_nodetool_refuses_what_has_no_meaning_here_with_the_reason(tmp_path):
    for words in (["help", "disablegossip"], ["enablegossip", "--help"]):
        assert "failure detector" in refused("nodetool", "--workdir", str(tmp_path), *words)
    assert "unknown command 'frobnicate'" in refused("nodetool", "help", "frobnicate")
