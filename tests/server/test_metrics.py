"""What nodes export for Prometheus: docs/metrics.md names every metric and no other, and values are those of the machine and of what clients did."""

import os
import re
import shutil
import socket
import time

import pytest

from harness import Cluster, Node, cql
from harness.cluster import eventually
from harness.exposition import PAGE, families, raw, with_everything
from harness.node import run_ceto

pytestmark = pytest.mark.ceto_only("the names are those of a ceto node")

# What a node exports only where the machine lets it.
ONLY_ON_SOME_MACHINES = {"ceto_shard_user_instructions_total": "perf_event_open may be forbidden"}
TYPES = ("counter", "gauge", "histogram")
LABELS = {"shard", "keyspace", "table", "peer", "kind", "class", "group", "operation"}
# Whose labels are what it says.
INFO = "ceto_build_info"
# 3 MB in four sstables.
ROWS, ROW_BYTES = 100, 8_000


def documented():
    """Type and labels by name, as the tables of the page have them."""
    rows = re.findall(r"^\| `(ceto_\w+)` \|([^|]*)\|([^|]*)\|", PAGE.read_text(), re.M)
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names)), "a metric has two rows"
    return {name: (kind.split(",")[0].split(":")[0].strip(), labels_of(labels)) for name, labels, kind in rows}


def labels_of(text):
    return {label.strip() for label in text.split(",")} - {""}


@pytest.fixture(scope="module")
def said(pytestconfig):
    """What one of two nodes exports while the other is down, so that hints wait for it."""
    options = ("--enable-node-aggregated-table-metrics", "1")
    cluster = Cluster(2, options=options, runtime=pytestconfig.getoption("--runtime"))
    with cluster, cluster.driver(only=1, consistency="ONE") as driver:
        with_everything(cluster, driver)
        yield raw(cluster.node(1))


# --- names ---


def test_the_page_names_every_metric_and_no_other(said):
    page, nodes = documented(), families(said)
    assert not (missing := set(nodes) - set(page)), f"docs/metrics.md lacks {sorted(missing)}"
    invented = set(page) - set(nodes) - set(ONLY_ON_SOME_MACHINES)
    assert not invented, f"docs/metrics.md names what no node exports: {sorted(invented)}"
    assert set(ONLY_ON_SOME_MACHINES) <= set(page)


def test_types_and_labels_of_the_page_are_those_of_the_nodes(said):
    page, nodes = documented(), families(said)
    differing = {name: (page[name], nodes[name]) for name in nodes if name in page and page[name] != nodes[name]}
    assert not differing, f"page and node differ: {differing}"
    assert {kind for kind, _ in page.values()} <= set(TYPES)


def test_names_follow_the_guide_of_prometheus(said):
    for name, (kind, labels) in families(said).items():
        assert (kind == "counter") == name.endswith("_total"), f"{name} is a {kind}"
        assert not re.search(r"_(ms|us|ns|milli|micro|nano\w*|minutes|hours|days|kb|mb|gb|kib|mib|gib|percent)(_|$)", name), name
        assert name == INFO or labels <= LABELS, f"{name} has the labels {labels}"
    helps = re.findall(r"^# HELP (\S+) (.*)$", said, re.M)
    assert all(text.endswith(".") and len(text) > 10 for _, text in helps), helps


def test_histograms_have_the_bounds_1_2_5(said):
    bounds = re.findall(r'^ceto_request_latency_seconds_bucket\{shard="0",kind="read",le="(.*?)"\}', said, re.M)
    steps = [f"{step}e{power}" for power in range(-6, 3) for step in (1, 2, 5)] + ["1e3"]
    assert [float(bound) for bound in bounds] == [float(step) for step in steps] + [float("inf")]


def test_other_pages_name_only_metrics_that_exist(said):
    """Every name of a metric in the operators' pages has a row on the page of metrics."""
    page = documented()
    for file in PAGE.parent.glob("**/*.md"):
        for name in re.findall(r"\bceto_[a-z_]+\b", file.read_text()):
            named = name in page or any(other.startswith(name) for other in page)
            assert named, f"{file.relative_to(PAGE.parent)} names {name}"


# --- values ---


@pytest.fixture
def alone(pytestconfig):
    """A node for one test, so that nobody else makes it count."""
    with Node(smp=2, runtime=pytestconfig.getoption("--runtime"), options=("--enable-node-aggregated-table-metrics", "1")) as node:
        yield node


def total(node, name, **labels):
    """The sum of a metric over its labels, but those given."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    found = [v for n, v in node.metrics().items() if n.partition("{")[0] == name and all(label in n for label in wanted)]
    assert found, f"{name} {labels} is not exported"
    return sum(found)


def errors(node):
    """Error responses so far, by kind, without those of which there were none."""
    counts = {}
    for name, count in node.metrics().items():
        if (match := re.fullmatch(r'ceto_cql_errors_total\{shard="\d+",kind="(\w+)"\}', name)) and count:
            counts[match[1]] = counts.get(match[1], 0) + count
    return counts


def frame(opcode, body, stream=1):
    """A frame of protocol version 4."""
    return bytes([4, 0]) + stream.to_bytes(2, "big") + bytes([opcode]) + len(body).to_bytes(4, "big") + body


def test_each_error_response_is_counted_once_by_its_name(alone):
    with cql.cluster(alone.server) as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v int)")
        insert = session.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)")
        for k in range(20):
            session.execute(insert, (k, k))
        before = errors(alone)
        assert not set(before) - {"invalid", "unprepared"}, f"only what a driver asks of tables that are not here: {before}"
        for k in range(20):
            session.execute(insert, (k, k))
            session.execute(f"SELECT v FROM ks.t WHERE k = {k}")
        assert errors(alone) == before, "a success was counted"
        for count, kind, statement, code in (
            (3, "syntax_error", "SELEKT 1", cql.SYNTAX),
            (2, "invalid", "SELECT nothing FROM ks.t", cql.INVALID),
            (4, "already_exists", "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", 0x2400),
        ):
            for _ in range(count):
                assert cql.refusal(session, statement)[0] == code
            assert errors(alone).get(kind, 0) - before.get(kind, 0) == count, f"{kind}: {errors(alone)}"
        # Before the handshake, and a frame that cannot be read.
        for sent in (frame(7, b"\0\0\0\x08SELECT 1\0\x01\0"), b"\x7f" * 16):
            protocol = errors(alone).get("protocol_error", 0)
            with socket.create_connection((alone.host, alone.port), timeout=30) as connection:
                connection.sendall(sent)
                assert connection.recv(9)[4] == 0, "an ERROR"
            assert errors(alone)["protocol_error"] == protocol + 1
        assert set(errors(alone)) - set(before) == {"syntax_error", "already_exists", "protocol_error"} | ({"invalid"} - set(before))


def test_tombstones_that_a_select_reads_are_counted(alone):
    with cql.cluster(alone.server) as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c))")

        def read(statement):
            before = total(alone, "ceto_tombstones_read_total")
            cql.rows(session, statement)
            return total(alone, "ceto_tombstones_read_total") - before

        for c in range(10):
            session.execute(f"INSERT INTO ks.t (p, c, v) VALUES (1, {c}, 0)")
        assert read("SELECT * FROM ks.t") == 0, "rows that live"
        for c in range(4):
            session.execute(f"DELETE FROM ks.t WHERE p = 1 AND c = {c}")
        assert read("SELECT * FROM ks.t WHERE p = 1") == 4, "rows that do not"
        session.execute("DELETE FROM ks.t WHERE p = 2 AND c > 3 AND c < 9")
        assert read("SELECT * FROM ks.t WHERE p = 2") == 1, "a range"
        session.execute("DELETE FROM ks.t WHERE p = 3")
        assert read("SELECT * FROM ks.t WHERE p = 3") == 1, "a partition"
        assert read("SELECT * FROM ks.t") == 6, "all of them"
        assert read("SELECT count(*) FROM ks.t") == 6, "by an aggregate"
        session.execute("CREATE TABLE ks.live (p int, c int, PRIMARY KEY (p, c))")
        session.execute("INSERT INTO ks.live (p, c) VALUES (1, 1)")
        assert read("SELECT * FROM ks.live") == 0


def test_process_and_disks_are_those_of_the_system(alone):
    started = total(alone, "ceto_start_time_seconds")
    before = time.time()
    uptime = total(alone, "ceto_uptime_seconds")
    # The start has whole seconds.
    assert before - started - 2 <= uptime <= time.time() - started + 1
    resident = total(alone, "ceto_process_resident_memory_bytes")
    assert alone.resident_bytes() / 2 < resident < alone.resident_bytes() * 2
    assert resident < total(alone, "ceto_memory_bytes_max")
    cpu = total(alone, "ceto_process_cpu_seconds_total")
    # The kernel's file has hundredths.
    assert 0 < cpu <= alone.cpu_seconds() + 0.05
    assert sum(v for n, v in alone.metrics().items() if n.startswith("ceto_shard_cpu_seconds_total")) <= alone.cpu_seconds() + 0.05
    descriptors = len(os.listdir(f"/proc/{alone.pid}/fd"))
    assert abs(total(alone, "ceto_process_open_fds") - descriptors) < 16, "a scrape has a connection or two"
    assert total(alone, "ceto_process_open_fds") < total(alone, "ceto_process_max_fds")
    disk = shutil.disk_usage(alone.workdir)
    for kind in ("data", "commitlog", "hints"):
        assert total(alone, "ceto_disk_total_bytes", kind=kind) == disk.total
        assert abs(total(alone, "ceto_disk_available_bytes", kind=kind) - disk.free) < disk.total / 10, "others write, too"
        assert 0 < total(alone, "ceto_disk_used_bytes", kind=kind) < disk.total
    (build,) = (name for name in alone.metrics() if name.startswith("ceto_build_info"))
    version = re.search(r'version="(.*?)"', build)[1]
    assert run_ceto("--version").split() == ["ceto", version]


def test_sstables_their_bytes_and_the_backlog_of_compactions(alone):
    with cql.cluster(alone.server) as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v blob) WITH compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}")
        insert = session.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)")

        def of_table(name):
            return total(alone, f"ceto_table_{name}", keyspace="ks", table="t")

        def write_and_flush():
            for k in range(ROWS):
                session.execute(insert, (k, os.urandom(ROW_BYTES)))
            alone.nodetool("flush", "ks")

        for _ in range(4):
            write_and_flush()
        live = of_table("live_disk_bytes")
        files = sum(f.stat().st_size for f in alone.workdir.glob("data/ks/t-*/*") if f.is_file())
        assert 4 * ROWS * ROW_BYTES <= live <= files
        assert of_table("total_disk_bytes") == live
        assert total(alone, "ceto_sstables") >= of_table("sstables") >= 4
        assert total(alone, "ceto_sstable_bytes") >= live
        assert of_table("compaction_backlog_bytes") == 0, "nothing may compact the table"
        alone.nodetool("snapshot", "-t", "kept", "ks")
        # So slow that the compactions run for seconds.
        alone.nodetool("tasks", "limits", "compaction", "--throughput", "1")
        session.execute("ALTER TABLE ks.t WITH compaction = {'class': 'SizeTieredCompactionStrategy'}")
        write_and_flush()
        eventually("compactions wait or run", lambda: of_table("compaction_backlog_bytes") >= live / 2)
        assert total(alone, "ceto_compaction_backlog_bytes") >= live / 2
        assert total(alone, "ceto_compactions") >= 1
        alone.nodetool("tasks", "limits", "compaction", "--throughput", "0")
        eventually("they have ended", lambda: of_table("compaction_backlog_bytes") == 0 and of_table("sstables") <= 4)
        assert of_table("total_disk_bytes") >= of_table("live_disk_bytes") + live / 2, "the snapshot keeps the inputs"
