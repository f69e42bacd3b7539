"""docs/metrics.md names every metric that nodes export, and no other."""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from harness import Cluster
from harness.cluster import eventually
from harness.node import METRICS

pytestmark = pytest.mark.ceto_only("the names are those of a ceto node")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
# What a node exports only where the machine lets it.
ONLY_ON_SOME_MACHINES = {"ceto_shard_user_instructions_total": "perf_event_open may be forbidden"}
TYPES = ("counter", "gauge", "histogram")


def documented():
    """Type and labels by name, as the tables of the page have them."""
    rows = re.findall(r"^\| `(ceto_\w+)` \|([^|]*)\|([^|]*)\|", PAGE.read_text(), re.M)
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names)), "a metric has two rows"
    return {name: (kind.split(",")[0].split(":")[0].strip(), labels_of(labels)) for name, labels, kind in rows}


def labels_of(text):
    return {label.strip() for label in text.split(",")} - {""}


def exported(text):
    """The same of what nodes said."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    found = {name: (kind, set()) for name, kind in kinds.items()}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.M):
        family = name if name in found else re.sub(r"_(bucket|sum|count)$", "", name)
        found[family][1].update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    return found


@pytest.fixture(scope="module")
def said(pytestconfig):
    """What one of two nodes exports while the other is down, so that hints wait for it."""
    options = ("--enable-node-aggregated-table-metrics", "1")
    cluster = Cluster(2, options=options, runtime=pytestconfig.getoption("--runtime"))
    with cluster, cluster.driver(only=1, consistency="ONE") as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
        cluster.kill(2)
        hints = "ceto_hints_pending_bytes"

        def kept():
            session.execute("INSERT INTO ks.t (k) VALUES (1)")
            return any(name.startswith(hints) for name in cluster.node(1).metrics())

        eventually("a hint waits for node 2", kept)
        yield raw(cluster.node(1))


def raw(node):
    """The text of /metrics."""
    host, port = next(m.groups() for line in node.lines if (m := METRICS.search(line)))
    with urlopen(f"http://{host}:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def test_the_page_names_every_metric_and_no_other(said):
    page, nodes = documented(), exported(said)
    assert not (missing := set(nodes) - set(page)), f"docs/metrics.md lacks {sorted(missing)}"
    invented = set(page) - set(nodes) - set(ONLY_ON_SOME_MACHINES)
    assert not invented, f"docs/metrics.md names what no node exports: {sorted(invented)}"
    assert set(ONLY_ON_SOME_MACHINES) <= set(page)


def test_types_and_labels_of_the_page_are_those_of_the_nodes(said):
    page, nodes = documented(), exported(said)
    differing = {name: (page[name], nodes[name]) for name in nodes if name in page and page[name] != nodes[name]}
    assert not differing, f"page and node differ: {differing}"
    assert {kind for kind, _ in page.values()} <= set(TYPES)


def test_other_pages_name_only_metrics_that_exist(said):
    """Every name of a metric in the operators' pages has a row on the page of metrics."""
    page = documented()
    for file in PAGE.parent.glob("**/*.md"):
        for name in re.findall(r"\bceto_[a-z_]+\b", file.read_text()):
            named = name in page or any(other.startswith(name) for other in page)
            assert named, f"{file.relative_to(PAGE.parent)} names {name}"
