"""What an operator meets in the first hour, as the pages tell it: the lines of the first start, where a node listens, dates in answers,
addresses in traces, options of other databases, paths of the REST API, options of commands.
"""

import re
import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from harness import Node, NodeFailed, cql
from harness.tables import ROOT, code, pages, rows

pytestmark = pytest.mark.ceto_only("the pages of ceto")

CONFIGURATION = "docs/operating/configuration.md"
CLIENTS, NODES = "127.0.44.1", "127.0.44.2"
FIRST_LINES_MAX = 10
# Not open without being asked for.
OF_DYNAMODB = {"alternator_address", "alternator_port", "alternator_https_port"}
EPOCH_SECONDS = re.compile(r"\b1[789]\d{8}\b")
# Commands that check their options after they have connected to a node.
READ_BY_COMMAND = ["cleanup", "clearsnapshot", "clientstats", "cluster repair", "compactionstats", "rebuild", "removenode", "repair", "snapshot",
                   "tasks list", "toppartitions ks t 1"]  # fmt: skip


@pytest.fixture(scope="module")
def warned():
    """Options that are warned of, each with another value than the one that is met, and the reason."""
    special = {"audit": "table", "tablets_mode_for_new_keyspaces": "enforced"}
    found = {}
    for row in rows(CONFIGURATION):
        if "what happens instead" in row:
            [name], met = code(row["option"]), code(row["value that is met"])
            number = bool(met) and met[0].lstrip("-").isdigit()
            other = "7" if number else "true" if "false" in met else "false" if "true" in met else "another"
            found[name] = (special.get(name, other), row["what happens instead"].replace("`", ""))
    assert len(found) > 40
    return found


@pytest.fixture(scope="module")
def first(warned, pytestconfig, tmp_path_factory):
    """A node at its first start, with addresses of its own for clients and for nodes, and a file of options that ceto does not use."""
    file, outer = tmp_path_factory.mktemp("options") / "other.yaml", {}
    for name, (value, _) in warned.items():
        first, _, inner = name.partition(".")
        outer.setdefault(first, []).append(f"\n  {inner}: {value}" if inner else f" {value}")
    file.write_text("".join(f"{name}:{''.join(given)}\n" for name, given in outer.items()))
    node = Node(smp=1, memory="256M", host=CLIENTS, options=["--options-file", str(file)], runtime=pytestconfig.getoption("--runtime"))
    node.listen_host = NODES
    with node:
        yield node


@pytest.fixture(scope="module")
def first_session(first):
    with cql.cluster(first) as cluster:
        session = cluster.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
        session.set_keyspace("ks")
        session.execute("CREATE TABLE t (k int PRIMARY KEY)")
        yield session


def test_options_of_other_databases_are_warned_of_in_a_line_with_the_reason_of_the_page(first, warned):
    said = {match[1]: line for line in first.lines if (match := re.search(r"option '([\w.]+)' at line \d+: ", line))}
    assert said.keys() == warned.keys()
    for name, (value, why) in warned.items():
        assert "WARN" in said[name] and f"'{value}' given" in said[name], said[name]
        assert why in said[name].replace("`", ""), f"{said[name]!r} does not say {why!r}"


def test_a_limit_of_the_page_of_options_is_that_of_the_page_of_limits(warned):
    [hints] = [row["limit"] for row in rows("docs/limits.md", "Of a node") if row["what"] == "hints"]
    assert hints.partition(" a node")[0] in warned["max_hints_size_per_host"][1]


def test_a_first_start_logs_few_lines(first):
    own = [line for line in first.lines if "option '" not in line]
    assert "serving CQL on" in "".join(own)
    assert len([line for line in own if "feature" in line]) <= 1, "".join(own)
    assert len(own) <= FIRST_LINES_MAX, "".join(own)


def test_traces_name_the_address_that_other_nodes_know(first, first_session):
    future = first_session.execute_async("INSERT INTO t (k) VALUES (1)", trace=True)
    future.result()
    trace = future.get_query_trace(query_cl=1)
    assert str(trace.coordinator) == NODES
    assert {str(event.source) for event in trace.events} == {NODES}
    assert not (others := [event.description for event in trace.events if re.search(r"127\.0\.(?!44\.2)", event.description)]), others


def listening(pid):
    """The addresses at which a process takes TCP connections."""
    own = {link.name for fd in Path(f"/proc/{pid}/fd").iterdir() if (link := Path(re.sub(r"socket:\[(\d+)\]", r"\1", str(fd.readlink()))))}
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in own:
            host, port = fields[1].split(":")
            found.add((socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)))
    return found


def test_a_node_listens_where_the_page_says_and_nowhere_else(first, first_session):
    ports = {option: row for row in rows("docs/install.md", "Ports") for option in code(row["option"])}
    api = (first.workdir / "api").read_text().strip().rpartition(":")
    [metrics] = [match.groups() for line in first.lines if (match := re.search(r"metrics for Prometheus are at http://(\S+):(\d+)/", line))]
    [storage] = first_session.execute("SELECT listen_address, listen_port FROM system.local")
    # The listen address is a loopback address, so the REST API is there too.
    expected = {
        "native_transport_port": (CLIENTS, first.port),
        "native_shard_aware_transport_port": (CLIENTS, first.shard_aware_port),
        "storage_port": (NODES, storage.listen_port),
        "api_port": (NODES, int(api[2])),
        "prometheus_port": (NODES, int(metrics[1])),
    }
    assert (api[0], metrics[0], storage.listen_address) == (NODES, NODES, NODES)
    assert ports.keys() == expected.keys() | {"ssl_storage_port", "api_address", "prometheus_address"} | OF_DYNAMODB
    assert listening(first.pid) == set(expected.values())


def test_commands_refuse_options_that_they_do_not_know(first):
    for command in READ_BY_COMMAND:
        with pytest.raises(NodeFailed, match="--no-such-option"):
            first.nodetool(*command.split(), "--no-such-option")


def test_paths_and_parameters_of_the_rest_api_that_pages_name_are_there(first):
    _, index = first.api("/")
    routes = [(route["method"], re.compile(re.sub(r"\{\w+\}", "[^/]+", route["path"]) + "/?"), {p["name"] for p in route["parameters"]}) for route in index]
    named = set()
    for page in pages():
        text = page.read_text()
        if page.name.startswith("dynamodb"):
            # Its paths are of another port.
            text = re.sub(r"GET /localnodes", "", text)
        named |= {(page.name, *found) for found in re.findall(r"\b(GET|POST|PUT|DELETE) (/[\w/{}.-]*)(\?[\w=,&]*)?", text)}
        for line in re.findall(r"curl .*http://\S+", text):
            method = re.search(r"-X (\w+)", line)
            path, _, query = re.search(r"http://[^/\s]+(/[^\s\"']*)", line)[1].partition("?")
            named.add((page.name, method[1] if method else "GET", path, query))
    named = {found for found in named if found[2] not in ("/", "/metrics")}
    assert len(named) > 30
    for page, method, path, query in sorted(named):
        parameters = {pair.partition("=")[0] for pair in query.lstrip("?").split("&")} - {""}
        fitting = [known for verb, pattern, known in routes if verb == method and pattern.fullmatch(path)]
        assert fitting, f"{page}: {method} {path} is no path"
        assert any(parameters <= known for known in fitting), f"{page}: {method} {path} does not take {parameters}, but {fitting}"


def test_the_workdir_has_what_the_page_of_questions_says(first, first_session):
    [answer] = re.findall(r"\*\*Where is the data\?\*\* (.*?)\n\n", (ROOT / "docs/faq.md").read_text(), re.S)
    first_session.execute("INSERT INTO t (k) VALUES (2)")
    first.nodetool("flush", "ks")
    named = {name.partition("/")[0] for name in code(answer)}
    own = {"api", "cluster", "lock"}  # of the process, and the cluster's name
    assert {path.name for path in first.workdir.iterdir()} == named | own
    [directory] = code(answer)[0].replace("KEYSPACE", "ks").split("TABLE-ID")[:1]
    assert list((first.workdir / directory).glob("t-*/*-Data.db")), "no sstable is where the page says"


def test_waiting_for_a_task_ends_with_the_codes_of_the_page(first, first_session):
    [line] = re.findall(r"tasks wait ID --quiet .*", (ROOT / "docs/operating/tasks.md").read_text())
    codes = {words: int(number) for number, words in re.findall(r"(\d+) \(([^)]+)\)", line)}
    wait = ["tasks", "wait", "00000000-0000-0000-0000-000000000000", "--quiet"]
    with pytest.raises(NodeFailed) as failed:
        first.nodetool(*wait)
    assert failed.value.code == codes["unknown"]
    compaction = first.api("/tasks/compaction/keyspace_compaction/ks", "POST")
    assert compaction[0] == 200, compaction
    first.nodetool("tasks", "wait", compaction[1], "--quiet")
    assert codes["done"] == 0


def test_answers_give_dates_and_no_seconds_since_1970(new_node, connect):
    node = new_node(smp=1, memory="256M").start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY)")
    session.execute("DELETE FROM t WHERE k = 1")
    before = datetime.now(timezone.utc)
    node.kill9()
    node.start()
    # At once, not only after the node has reported it to the cluster, which it is alone.
    missed = node.nodetool("listmissedwrites")
    assert "Reported by" in missed, missed
    [since] = re.findall(r"Tombstones kept since +: (\S+)", node.nodetool("info"))
    for answer in (missed, since):
        assert not EPOCH_SECONDS.search(answer), answer
        dates = [datetime.fromisoformat(date.replace("Z", "+00:00")) for date in re.findall(r"\d{4}-\d\d-\d\dT[\d:]{8}Z", answer)]
        assert dates and all(abs(date - before) < timedelta(minutes=2) for date in dates), answer
