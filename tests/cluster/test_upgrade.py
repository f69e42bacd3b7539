"""An upgrade from an older release while applications write and read, with a way back at every step: docs/operating/upgrade.md."""

import re
from pathlib import Path

import pytest

from harness import Cluster, cql
from harness.cluster import eventually
from harness.counter import Counter
from harness.members import host_of
from harness.node import NodeFailed, ceto_binary
from harness.repairs import marks, repaired
from harness.witness import NO_ANSWER, TIMEOUTS, UNAVAILABLE, Witness

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operating" / "upgrade.md"
# Features that the older release lacks.
NEW_FEATURES = ("disk_levels", "incremental_repair", "tablet_moves")
HOLD = ["--enable-new-features", "false"]
REQUESTS = 400
ROWS = 50


@pytest.fixture
def cluster(request, older):
    """Three nodes of the older release."""
    cluster = Cluster(3, repairs=True, runtime=request.config.getoption("--runtime"))
    for node in cluster:
        node.binary = older
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def page_commands():
    """The commands of the page that any node takes, in its order."""
    commands = re.findall(r"^ +ceto nodetool (.+)$", PAGE.read_text(), re.M)
    return [command.split() for command in commands if "HOST_ID" not in command]


def moving_table(session):
    """A table of one tablet that two of three nodes have, with rows; its keyspace."""
    name = cql.unique("moving")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}}"
        " AND tablets = {'initial': 1}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    for k in range(ROWS):
        session.execute(f"INSERT INTO {name}.t (k, v) VALUES (%s, %s)", (k, k))
    return name


def ask(cluster, statement):
    """The rows, by a driver of its own: one that asks seldom has no connection when all nodes have restarted meanwhile."""
    with cluster.driver(only=1) as driver:
        return cql.rows(driver.connect(), statement)


def replicas_of(cluster, name):
    rows = ask(cluster, "SELECT keyspace_name, table_name, replicas FROM system.tablets")
    [found] = [replicas for keyspace, table, replicas in rows if (keyspace, table) == (name, "t")]
    return {str(host): shard for host, shard in found}


def move(cluster, name):
    """Moves the tablet to the node that does not have it."""
    where, all_hosts = replicas_of(cluster, name), [host_of(node) for node in cluster]
    source, target = sorted(where)[0], next(host for host in all_hosts if host not in where)
    cluster.node(1).nodetool("movetablet", name, "t", "0", "0", source, target)
    return target


def repaired_table(session):
    """A table whose tablets all nodes have, with rows; its keyspace."""
    name = cql.unique("repaired")
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    for k in range(ROWS):
        session.execute(f"INSERT INTO {name}.t (k, v) VALUES (%s, %s)", (k, k))
    return name


def is_repaired_without_marks(cluster, name):
    """A repair reads everything each time, as before there were marks, and one that should mark is refused."""
    for number in (1, 2):
        told = repaired(cluster, number, name)
        assert (told["rows"], told["differing"], told["skipped"]) == (ROWS, 0, 0), told
    with pytest.raises(NodeFailed, match="not all nodes are of a release that repairs incrementally"):
        cluster.node(1).nodetool("repair", "--incremental-mode", "incremental", name)
    found = marks(cluster, name)
    assert found and all(mark == 0 for mark in found), found


class Upgrade:
    """Nodes that get another binary while a witness and a counter ask them."""

    def __init__(self, cluster, witness, counter, older):
        self.cluster, self.witness, self.counter = cluster, witness, counter
        self.binaries = {"old": older, "held": ceto_binary(), "new": ceto_binary()}
        self.plain = list(cluster.node(1).options)

    def to(self, release, *numbers):
        for number in numbers:
            self.witness.phase(f"{number} becomes {release}, step {next(self.steps)}")
            self.cluster.stop(number)
            node = self.cluster.node(number)
            node.binary = self.binaries[release]
            node.options = self.plain + (HOLD if release == "held" else [])
            self.cluster.start(number)
            self.witness.sees_all()
            self.witness.more(REQUESTS)
            self.counter.more()

    steps = iter(range(1, 1000))


def test_nodes_are_upgraded_one_after_another_and_can_go_back_until_features_are_enabled(cluster, older):
    with cluster.driver() as driver:
        session = driver.connect()
        name, repairable = moving_table(session), repaired_table(session)
    with Witness(cluster) as witness, Counter(cluster) as counter:
        witness.more(REQUESTS)
        counter.more()
        upgrade = Upgrade(cluster, witness, counter, older)

        # One goes back in the middle, and forward again.
        upgrade.to("held", 1, 2)
        # The older release knows no repairs: the command says which replica cannot.
        with pytest.raises(NodeFailed, match=f"{host_of(cluster.node(3))}.* is not known here"):
            cluster.node(1).nodetool("repair", repairable)
        assert all(mark == 0 for mark in marks(cluster, repairable))
        upgrade.to("old", 2)
        upgrade.to("held", 2, 3)
        for command in page_commands():
            cluster.node(2).nodetool(*command)
        assert not any(node.has_enabled(feature) for node in cluster for feature in NEW_FEATURES)
        is_repaired_without_marks(cluster, repairable)
        with pytest.raises(NodeFailed, match="tablet_moves"):
            move(cluster, name)

        # All go back: nothing that the older release does not read was written.
        upgrade.to("old", 1, 2, 3)

        # All go forward, and features are enabled with the last.
        upgrade.to("new", 3, 1, 2)
        for node in cluster:
            eventually("features are enabled", lambda node=node: all(node.has_enabled(feature) for feature in NEW_FEATURES))
        target = move(cluster, name)
        eventually("the tablet has moved", lambda: target in replicas_of(cluster, name))

        # Now repairs mark, and the next one skips what they have marked.
        repaired(cluster, 1, repairable)
        assert any(mark > 0 for mark in marks(cluster, repairable))
        assert repaired(cluster, 2, repairable)["skipped"] > 0

        # From now on the cluster has no place for the older release.
        witness.phase("1 is too old")
        cluster.stop(1)
        cluster.node(1).binary = older
        with pytest.raises(NodeFailed) as refused:
            cluster.node(1).start()
        assert "which this release does not know; a later release wrote it" in refused.value.log, refused.value.log
        cluster.node(1).binary = upgrade.binaries["new"]
        cluster.start(1)
        witness.sees_all()
        witness.phase("whole")
        witness.more(REQUESTS)
        counter.more()
        account = witness.finish()
        allowed = dict.fromkeys(account.phases, NO_ANSWER | TIMEOUTS | UNAVAILABLE)
        account.check(allowed | {"before": (), "whole": ()})
        counter.check()
    rows = set(ask(cluster, f"SELECT k, v FROM {name}.t"))
    assert rows == {(k, k) for k in range(ROWS)}
