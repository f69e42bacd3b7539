"""The dashboard and the alert rules of docs/operating/monitoring: PromQL that parses, over metrics and labels that nodes export.

Where Prometheus is installed, it loads the rules, scrapes a node and evaluates every expression.
"""

import json
import re
import shutil
import subprocess
import time
from contextlib import contextmanager
from urllib.parse import urlencode
from urllib.request import urlopen

import promql_parser
import pytest
import yaml

from harness import Cluster
from harness.cluster import eventually
from harness.exposition import PAGE, ROOT, address, families, raw, with_everything
from harness.node import free_ports

pytestmark = pytest.mark.ceto_only("the metrics are those of a ceto node")

FILES = ROOT / "docs" / "operating" / "monitoring"
DASHBOARD = json.loads((FILES / "ceto-dashboard.json").read_text())
ALERTS = [rule for group in yaml.safe_load((FILES / "ceto-alerts.yml").read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# What Prometheus itself adds to each metric, and what it makes of each target.
ADDED_LABELS = {"job", "instance"}
ADDED_METRICS = {"up": ("gauge", set())}


def expressions():
    """Every expression by where it is."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in ALERTS}
    for panel in PANELS:
        for target in panel["targets"]:
            found[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    for note in DASHBOARD["annotations"]["list"]:
        found[f"annotation {note['name']}"] = note["expr"]
    return {place: plain(text) for place, text in found.items()}


def plain(text, job="ceto"):
    """An expression with values for Grafana's variables."""
    return text.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$job", job)


@pytest.fixture(scope="module")
def cluster(pytestconfig):
    """Two nodes, of which one is down."""
    options = ("--enable-node-aggregated-table-metrics", "1")
    cluster = Cluster(2, options=options, runtime=pytestconfig.getoption("--runtime"))
    with cluster, cluster.driver(only=1, consistency="ONE") as driver:
        with_everything(cluster, driver)
        yield cluster


@pytest.fixture(scope="module")
def exported(cluster):
    """Types and labels by name."""
    return families(raw(cluster.node(1))) | ADDED_METRICS


def selectors(node):
    """All vector selectors of a parsed expression, and all lists of labels that it groups by."""
    found, groups = [], []

    def visit(part):
        match part:
            case promql_parser.VectorSelector():
                found.append(part)
            case promql_parser.MatrixSelector():
                visit(part.vector_selector)
            case promql_parser.AggregateExpr():
                if part.modifier:
                    groups.append(list(part.modifier.labels))
                visit(part.expr)
                if part.param is not None:
                    visit(part.param)
            case promql_parser.BinaryExpr():
                visit(part.lhs)
                visit(part.rhs)
            case promql_parser.Call():
                for argument in part.args:
                    visit(argument)
            case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
                visit(part.expr)
            case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
                pass
            case _:
                raise AssertionError(f"what is {part}?")

    visit(node)
    return found, groups


def labels(exported, selector):
    """The labels that a selected series has."""
    name = selector.name
    if name in exported:
        return exported[name][1] | ADDED_LABELS
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    assert exported.get(family, ("", set()))[0] == "histogram", f"no node exports {name}"
    return exported[family][1] | ADDED_LABELS | ({"le"} if name.endswith("_bucket") else set())


@pytest.mark.parametrize("place", expressions())
def test_an_expression_is_over_metrics_and_labels_that_nodes_export(exported, place):
    text = expressions()[place]
    found, groups = selectors(promql_parser.parse(text))
    assert found, "an expression of nothing"
    known = set()
    for selector in found:
        has = labels(exported, selector)
        known |= has
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= has, f"{selector.name} has no label {asked - has}"
    for group in groups:
        assert set(group) <= known, f"nothing has the labels {set(group) - known}"


def test_counters_are_only_looked_at_by_rate(exported):
    """A counter itself says nothing: it depends on when the node started."""
    for place, text in expressions().items():
        for name in re.findall(r"ceto_\w+_total\b", text):
            assert re.search(rf"(rate|increase)\({name}\b", text), f"{place} shows {name} without its rate"


def test_kinds_that_an_expression_asks_for_are_exported(cluster):
    text = raw(cluster.node(1))
    for place, expression in expressions().items():
        for selector in selectors(promql_parser.parse(expression))[0]:
            for matcher in selector.matchers.matchers:
                if matcher.name not in ADDED_LABELS and matcher.op == promql_parser.MatchOp.Re:
                    values = set(re.findall(rf'^{selector.name}\{{.*\b{matcher.name}="(\w+)"', text, re.M))
                    for alternative in matcher.value.split("|"):
                        assert any(re.fullmatch(alternative, value) for value in values), f"{place}: {alternative} of {values}"
                elif matcher.name not in ADDED_LABELS:
                    assert f'{matcher.name}="{matcher.value}"' in text, f"{place}: nothing has {matcher.value}"


# --- the dashboard ---


def test_the_dashboard_has_what_grafana_requires():
    assert DASHBOARD["title"] and DASHBOARD["uid"] and DASHBOARD["schemaVersion"] >= 36
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)), "an id is used twice"
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, f"{panel['title']} covers another panel"
        taken |= cells
    for panel in PANELS:
        assert panel["type"] in ("timeseries", "stat") and panel["title"], panel
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["fieldConfig"]["overrides"] == [], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(references) == len(set(references)), panel["title"]
    titles = [panel["title"] for panel in PANELS]
    assert len(titles) == len(set(titles)), "a title is used twice"


def test_legends_name_labels_that_the_expression_leaves(exported):
    for panel in PANELS:
        for target in panel["targets"]:
            found, groups = selectors(promql_parser.parse(plain(target["expr"])))
            left = set().union(*groups) if groups else set().union(*(labels(exported, selector) for selector in found))
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert target["legendFormat"] and named <= left, f"{panel['title']}: nothing has {named - left}"


def test_variables_of_the_dashboard_are_defined_and_used():
    defined = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    text = json.dumps(DASHBOARD)
    used = set(re.findall(r"\$\{?([a-z]\w*)", text))
    assert used == set(defined), "defined and used variables differ"
    for panel in PANELS:
        for target in panel["targets"]:
            for selector in selectors(promql_parser.parse(plain(target["expr"], "$job")))[0]:
                asked = {matcher.name for matcher in selector.matchers.matchers}
                assert asked >= ADDED_LABELS, f"{panel['title']} shows all clusters"


def test_the_page_of_monitoring_names_each_row():
    page = (FILES.parent / "monitoring.md").read_text()
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            assert re.search(rf"^\| {panel['title']} \||\*{panel['title']}\*", page, re.M), panel["title"]


# --- the rules ---


def test_each_alert_is_on_the_page_of_metrics_and_no_other():
    rows = re.findall(r"^\| `(Ceto\w+)` \|", PAGE.read_text(), re.M)
    assert rows == [rule["alert"] for rule in ALERTS], "the page has other alerts, or another order"
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"]["summary"] and rule["annotations"]["description"], rule["alert"]
        assert promql_parser.parse_duration(rule.get("for", "1m")), rule["alert"]


# What a healthy node says, as promtool writes series: a value, or a value and what each sample adds.
HEALTHY = {
    'up{job="ceto"}': "1",
    "ceto_members": "3",
    "ceto_members_live": "3",
    "ceto_takes_writes": "1",
    "ceto_members_refusing_writes": "0",
    "ceto_disk_level": "1",
    "ceto_members_with_full_disks": "0",
    'ceto_disk_total_bytes{kind="data"}': "1000",
    'ceto_disk_available_bytes{kind="data"}': "500",
    "ceto_sstables_quarantined": "0",
    "ceto_disk_failures_total": "7",
    "ceto_clock_state": "0",
    "ceto_metadata_differing_members": "0",
    "ceto_raft_is_withdrawn": "0",
    'ceto_raft_is_leader{job="ceto"}': "1",
    "ceto_tombstones_held_since_seconds": "0",
    "ceto_hints_dropped_total": "7",
    "ceto_hints_expired_total": "7",
    "ceto_hints_rejected_total": "7",
    "ceto_failed_flushes_total": "7",
    'ceto_tasks_failed_total{class="compaction"}': "7",
    'ceto_cql_errors_total{kind="unavailable"}': "7",
    # An application's own faults.
    'ceto_cql_errors_total{kind="syntax_error"}': "0+100",
    "ceto_cql_connections_shed_total": "7",
    "ceto_dirty_bytes": "50",
    "ceto_dirty_bytes_max": "100",
    "ceto_compaction_backlog_bytes": "20000000000",
    "ceto_sstable_bytes": "100000000000",
    "ceto_process_open_fds": "100",
    "ceto_process_max_fds": "1000",
}
# What fires each alert, and no other.
SICK = {
    "CetoNotScraped": {'up{job="ceto"}': "0"},
    "CetoNodeDown": {"ceto_members_live": "2"},
    "CetoWritesRefused": {"ceto_takes_writes": "0"},
    "CetoDiskFull": {"ceto_members_with_full_disks": "1"},
    "CetoDiskAlmostFull": {'ceto_disk_available_bytes{kind="data"}': "90"},
    "CetoDiskFillsSoon": {'ceto_disk_available_bytes{kind="data"}': "500-1"},
    "CetoDamagedSstables": {"ceto_sstables_quarantined": "1"},
    "CetoDiskFails": {"ceto_disk_failures_total": "0+1"},
    "CetoClockWrong": {"ceto_clock_state": "1"},
    "CetoMetadataDiffers": {"ceto_raft_is_withdrawn": "1"},
    "CetoNoLeader": {'ceto_raft_is_leader{job="ceto"}': "0"},
    "CetoTombstonesHeld": {"ceto_tombstones_held_since_seconds": "1000000"},
    "CetoHintsLost": {"ceto_hints_rejected_total": "0+1"},
    "CetoFlushesFail": {"ceto_failed_flushes_total": "0+1"},
    "CetoTasksFail": {'ceto_tasks_failed_total{class="compaction"}': "0+1"},
    "CetoClientsGetErrors": {'ceto_cql_errors_total{kind="unavailable"}': "0+1"},
    "CetoConnectionsShed": {"ceto_cql_connections_shed_total": "0+1"},
    "CetoMemtablesFull": {"ceto_dirty_bytes": "95"},
    "CetoCompactionBehind": {"ceto_compaction_backlog_bytes": "60000000000"},
    "CetoFewFileDescriptors": {"ceto_process_open_fds": "900"},
}
MINUTES = 4
# More than any rule waits or looks back, but for the one that waits for days.
HOURS, LONG_HOURS = 14, 50


def rule_test(sick, firing):
    """One test for promtool: a node that is healthy but for these series, and the alerts that fire in the end."""
    hours = LONG_HOURS if "CetoTombstonesHeld" in firing else HOURS
    samples = hours * 60 // MINUTES
    return {
        "interval": f"{MINUTES}m",
        "input_series": [{"series": name, "values": f"{value}x{samples}"} for name, value in (HEALTHY | sick).items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{hours}h",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing],
            }
        ],
    }


# --- with the real Prometheus ---


def installed(name):
    path = shutil.which(name, path=f"{ROOT / '.dev' / 'prometheus' / 'usr' / 'bin'}") or shutil.which(name)
    return path or pytest.skip(f"{name} is not installed: ./dev setup gets it where apt-get is, otherwise install Prometheus")


def promtool(*arguments, **options):
    done = subprocess.run([installed("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_configuration_and_rules():
    said = promtool("check", "config", FILES / "prometheus.yml")
    assert f"{len(ALERTS)} rules found" in said


def test_each_alert_fires_when_it_should_and_is_silent_on_a_healthy_node(tmp_path):
    assert list(SICK) == [rule["alert"] for rule in ALERTS]
    tests = [rule_test({}, [])] + [rule_test(sick, [name]) for name, sick in SICK.items()]
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(FILES / "ceto-alerts.yml")], "evaluation_interval": f"{MINUTES}m", "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", path)


def test_promtool_finds_nothing_to_say_of_names_and_types(cluster):
    assert promtool("check", "metrics", input=raw(cluster.node(1))).strip() == ""


@contextmanager
def prometheus(directory, target):
    """A Prometheus that scrapes a target every 100 ms: a function that asks its API."""
    config = (FILES / "prometheus.yml").read_text()
    config = config.replace("15s", "100ms").replace("192.0.2.1:9180", target)
    config = re.sub(r', "192[^]]*', "", config)
    (directory / "prometheus.yml").write_text(config)
    shutil.copy(FILES / "ceto-alerts.yml", directory)
    (port,) = free_ports("127.0.0.1", 1)
    command = [installed("prometheus"), f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}"]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)

    def ask(path, **parameters):
        with urlopen(f"http://127.0.0.1:{port}{path}?{urlencode(parameters)}", timeout=30) as answer:
            return json.load(answer)["data"]

    def is_up():
        assert process.poll() is None, (directory / "log").read_text()
        try:
            return [target["health"] for target in ask("/api/v1/targets")["activeTargets"]] == ["up"]
        except OSError:
            return False

    try:
        eventually("Prometheus scrapes the node", is_up)
        yield ask
    finally:
        process.terminate()
        process.wait(60)


def test_prometheus_scrapes_a_node_and_evaluates_every_expression(cluster, tmp_path):
    with prometheus(tmp_path, address(cluster.node(1))) as ask:
        loaded = [rule["name"] for group in ask("/api/v1/rules")["groups"] for rule in group["rules"]]
        assert loaded == [rule["alert"] for rule in ALERTS]

        def pending():
            return {alert["labels"]["alertname"] for alert in ask("/api/v1/alerts")["alerts"]}

        eventually("an alert tells of the node that is down", lambda: "CetoNodeDown" in pending())
        assert not pending() & {"CetoNotScraped", "CetoDamagedSstables", "CetoWritesRefused", "CetoMetadataDiffers"}
        for text in expressions().values():
            ask("/api/v1/query", query=text, time=time.time())
        down = ask("/api/v1/query", query=plain('max(ceto_members{job="$job"} - ceto_members_live{job="$job"})'))["result"]
        assert [series["value"][1] for series in down] == ["1"]
