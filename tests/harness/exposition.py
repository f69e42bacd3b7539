"""What nodes export for Prometheus, and what documents say of it."""

import re
from pathlib import Path
from urllib.request import urlopen

from .cluster import eventually
from .node import METRICS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"


def raw(node):
    """The text of /metrics."""
    with urlopen(f"http://{address(node)}/metrics", timeout=30) as answer:
        return answer.read().decode()


def address(node):
    """Where a node serves its metrics, as HOST:PORT."""
    host, port = next(m.groups() for line in node.lines if (m := METRICS.search(line)))
    return f"{host}:{port}"


def families(text):
    """Type and labels of each metric by name, as nodes export them."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    found = {name: (kind, set()) for name, kind in kinds.items()}
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.M):
        family = name if name in found else re.sub(r"_(bucket|sum|count)$", "", name)
        found[family][1].update(set(re.findall(r'(\w+)="', labels)) - {"le"})
    return found


def with_everything(cluster, driver):
    """Have node 1 of a cluster of two export all that it can: a table, and hints that wait for node 2, which is killed."""
    session = driver.connect()
    session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
    session.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
    cluster.kill(2)

    def kept():
        session.execute("INSERT INTO ks.t (k) VALUES (1)")
        return any(name.startswith("ceto_hints_pending_bytes") for name in cluster.node(1).metrics())

    eventually("a hint waits for node 2", kept)
