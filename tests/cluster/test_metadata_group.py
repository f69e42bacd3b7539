"""The metadata group with real processes: quiet starts, orderly stops, nodes of an older feature level, lost majorities, lost metadata, and backups."""

import re
import shutil
import threading
import time

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from harness import Cluster, NodeFailed, cql
from harness.cluster import eventually
from harness.node import run_ceto

SETTLE_SECONDS = 30
ELECTION_SECONDS = 1.0
# cqlsh waits 10 s for an answer, and some drivers 5 s.
SCHEMA_SECONDS_MAX = 5.0
# The runtime says so when the machine is too busy to run a shard for some milliseconds; it says nothing of the node.
MACHINE_IS_BUSY = "[runtime::executor] stall"
FEATURE = "per_partition_rate_limit"
NOTED = "the cluster has noted this start of the node"


@pytest.fixture
def form(request):
    """form(size, first=options) forms a cluster whose first node has these options besides."""
    clusters = []

    def make(size=3, first=()):
        cluster = Cluster(size, runtime=request.config.getoption("--runtime"))
        clusters.append(cluster)
        plain = cluster.node(1).options
        cluster.node(1).options = [*plain, *first]
        cluster.form()
        cluster.node(1).options = plain
        cluster.has_voters()
        return cluster

    yield make
    for cluster in clusters:
        print(cluster.log())
        cluster.remove()


def create_keyspace(cluster, number, name=None, replication=3):
    name = name or cql.unique("ks")
    with cluster.driver(only=number) as driver:
        driver.connect().execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replication}}}"
        )
    return name


def said(node, words):
    return any(words in line for line in node.lines)


def test_three_nodes_start_without_a_warning(form):
    cluster = form(3)
    create_keyspace(cluster, 3)
    # Those that join later find it enabled.
    eventually("the feature is enabled", lambda: cluster.node(1).has_enabled(FEATURE))
    for node in cluster:
        warnings = [line for line in node.lines if re.match("WARN|ERROR", line) and MACHINE_IS_BUSY not in line]
        # The keyspace's strategy is one that guardrails warn of.
        warnings = [line for line in warnings if "replication_strategy_warn_list" not in line]
        assert warnings == [], f"node {node.host}"
        print(f"{node.host} served after {node.start_seconds:.2f} s")


class SchemaChanges(threading.Thread):
    """Changes the schema through one node as often as it can, and notes how long each takes."""

    def __init__(self, cluster, number):
        super().__init__(daemon=True)
        self.driver = cluster.driver(only=number)
        self.session = self.driver.connect()
        self.session.execute(
            "CREATE KEYSPACE busy WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}"
        )
        self.is_over = threading.Event()
        self.seconds = []
        self.error = None

    def run(self):
        try:
            while not self.is_over.is_set():
                begun = time.monotonic()
                self.session.execute(f"CREATE TABLE busy.t{len(self.seconds)} (k int PRIMARY KEY)")
                self.seconds.append(time.monotonic() - begun)
                time.sleep(0.02)
        except Exception as error:  # what the test shows
            self.error = error

    def stop(self):
        self.is_over.set()
        self.join()
        self.driver.shutdown()
        if self.error:
            raise self.error
        return self.seconds


def test_a_leader_that_drains_hands_over_and_schema_changes_go_on(form):
    cluster = form(3)
    eventually("the feature is enabled", lambda: cluster.node(1).has_enabled(FEATURE))
    # The first node formed the cluster and leads; the others must vote before one of them can.
    eventually("all vote", lambda: cluster.node(1).metrics().get("ceto_raft_voters") == 3)
    changes = SchemaChanges(cluster, 2)
    changes.start()
    eventually("changes are made", lambda: len(changes.seconds) > 3)
    leader = cluster.node(1)
    leader.stop()
    assert said(leader, "another node leads the metadata group now")
    before = len(changes.seconds)
    eventually("changes go on", lambda: len(changes.seconds) > before + 10)
    seconds = changes.stop()
    print(f"longest change while the leader drained: {max(seconds):.3f} s of {len(seconds)}")
    assert max(seconds) < ELECTION_SECONDS, "a change waited for an election"
    cluster.start(1)
    assert leader.start_seconds < ELECTION_SECONDS, "the node came back to a group that had a leader"


def test_a_node_of_an_older_feature_level_works_with_the_others_and_holds_the_feature_back(form):
    cluster = form(3, first=["--hold-back-feature", FEATURE])
    name = create_keyspace(cluster, 2)
    with cluster.driver() as driver:
        session = driver.connect(name)
        session.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
        for k in range(30):
            session.execute("INSERT INTO t (k, v) VALUES (%s, %s)", (k, k))
        assert len(session.execute("SELECT * FROM t").all()) == 30
    assert not any(node.has_enabled(FEATURE) for node in cluster), "one of three cannot do it"
    held_back = cluster.node(1)
    held_back.stop()
    create_keyspace(cluster, 3)
    cluster.start(1)
    eventually("the feature is enabled", lambda: all(node.has_enabled(FEATURE) for node in cluster))
    # From then on the cluster has no place for a node without it.
    cluster.stop(1)
    held_back.options = [*held_back.options, "--hold-back-feature", FEATURE]
    with pytest.raises(NodeFailed) as failure:
        held_back.start()
    assert FEATURE in failure.value.log


def test_a_schema_change_without_a_majority_is_answered_before_clients_give_up(form):
    cluster = form()
    keyspace = create_keyspace(cluster, 1)
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        for number in (2, 3):
            cluster.kill(number)
        begun = time.monotonic()
        cql.refused(session, f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY)", cql.SERVER, "the schema change failed")
        seconds = time.monotonic() - begun
    assert seconds < SCHEMA_SECONDS_MAX, f"{seconds:.1f} s"


def test_a_lost_majority_is_given_up_by_a_command_and_by_nothing_else(form):
    cluster = form(3)
    name = create_keyspace(cluster, 1)
    with cluster.driver(only=1) as driver:
        session = driver.connect(name)
        session.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
        insert = SimpleStatement("INSERT INTO t (k, v) VALUES (%s, %s)", consistency_level=ConsistencyLevel.ALL)
        for k in range(20):
            session.execute(insert, (k, k))
    survivor = cluster.node(1)
    workdir = str(survivor.workdir)

    def recover(*arguments):
        return run_ceto("recover-metadata", "--workdir", workdir, *arguments)

    with pytest.raises(NodeFailed, match="another node is running on the workdir"):
        recover()
    survivor.stop()
    assert "nothing is lost" in recover(), "two of three voters answer"
    sentence = "the lost voters will never be started again: " + ", ".join(
        f"{cluster.node(number).host}:{cluster.ports[2]}" for number in (2, 3)
    )
    with pytest.raises(NodeFailed, match="nothing is lost"):
        recover("--confirm", sentence)
    cluster.start(1)

    # One workdir is gone permanently, the other comes back when it should not.
    old = cluster.node(3).workdir.with_name(cluster.node(3).workdir.name + "-old")
    cluster.kill(2)
    cluster.kill(3)
    shutil.rmtree(cluster.node(2).workdir)
    cluster.node(3).workdir.rename(old)
    with cluster.driver(only=1, consistency="ONE") as driver:
        session = driver.connect(name)
        # The first may have reached a leader of the past; then nobody leads.
        with pytest.raises(NoHostAvailable, match="may have happened|did not happen"):
            session.execute("CREATE TABLE refused (k int PRIMARY KEY)")
        session.execute("INSERT INTO t (k, v) VALUES (100, 100)")
        assert len(session.execute("SELECT * FROM t").all()) == 21, "reads and writes go on at ONE"
    survivor.kill9()
    survivor.start()
    survivor.stop()

    shown = recover()
    assert sentence in shown and "Nothing was changed" in shown, shown
    with pytest.raises(NodeFailed, match="nothing was changed"):
        recover("--confirm", "yes")
    assert recover() == shown, "a wrong sentence changes nothing"
    assert "only voter" in recover("--confirm", sentence)
    with pytest.raises(NodeFailed, match="only voter already"):
        recover()
    survivor.start()
    with cluster.driver(only=1, consistency="ONE") as driver:
        session = driver.connect(name)
        session.execute("CREATE TABLE works_again (k int PRIMARY KEY)")
        assert len(session.execute("SELECT * FROM t").all()) == 21, "the survivor has what it had"

    added = cluster.add()
    create_keyspace(cluster, added)

    # A node that was given up is told so, and stops by itself.
    returned = cluster.node(3)
    old.rename(returned.workdir)
    try:
        returned.start()
    except NodeFailed as failure:
        log = failure.log
    else:
        assert returned.process.wait(SETTLE_SECONDS) != 0
        returned.kill9()
        log = returned.log()
    assert "given up when the cluster's metadata was recovered from a lost majority" in log


def rejoin(cluster, number, *arguments):
    seed = f"{cluster.address(1)}:{cluster.ports[2]}"
    workdir = str(cluster.node(number).workdir)
    return run_ceto("recover-metadata", "--workdir", workdir, "--rejoin", "--seeds", seed, *arguments)


def shown(node):
    """State and address of each member, as a node's nodetool prints them."""
    return [line.split()[:2] for line in node.nodetool("status").splitlines()]


def fails_to_go_on(node):
    """Start a node that refuses, or stops by itself soon after; its log."""
    try:
        node.start()
    except NodeFailed as failure:
        return failure.log
    assert node.process.wait(SETTLE_SECONDS) != 0
    node.kill9()
    return node.log()


def test_a_node_without_its_metadata_rejoins_with_its_data_and_one_that_is_gone_is_removed(form):
    cluster = form(3)
    eventually("all vote", lambda: cluster.node(1).metrics().get("ceto_raft_voters") == 3)
    with cluster.driver(only=1, consistency="ALL") as driver:
        session = driver.connect()
        session.execute(
            "CREATE KEYSPACE rings WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}"
            " AND tablets = {'enabled': false}"
        )
        session.execute("CREATE TABLE rings.t (k int PRIMARY KEY, v int)")
        for k in range(20):
            session.execute("INSERT INTO rings.t (k, v) VALUES (%s, %s)", (k, k))
    third = cluster.node(3)
    host_id = (third.workdir / "host_id").read_text().strip()

    # The rows are in its commitlog only, which a start without the schema must not touch.
    cluster.kill(3)
    shutil.rmtree(third.workdir / "metadata")
    assert "--rejoin" in fails_to_go_on(third)
    sentence = re.search('--confirm "(.*)"', rejoin(cluster, 3))[1]
    with pytest.raises(NodeFailed, match="nothing was changed"):
        rejoin(cluster, 3, "--confirm", "yes")
    assert "another Raft id" in rejoin(cluster, 3, "--confirm", sentence)
    third.start()
    with pytest.raises(NodeFailed, match="another node is running on the workdir"):
        rejoin(cluster, 3, "--confirm", sentence)
    with cluster.driver(only=3, consistency="ONE") as driver:
        session = driver.connect()
        assert len(session.execute("SELECT * FROM rings.t").all()) == 20, "it has its data"
        session.execute("CREATE TABLE rings.u (k int PRIMARY KEY)")
    cluster.sees_itself_whole()
    eventually("it votes again", lambda: third.metrics().get("ceto_raft_voters") == 3)
    assert all(node.metrics()["ceto_metadata_differing_members"] == 0 for node in cluster)

    with pytest.raises(NodeFailed, match="is alive at"):
        cluster.node(1).nodetool("removenode", host_id)
    cluster.kill(3)
    eventually("it is down", lambda: ["DN", third.host] in shown(cluster.node(1)))
    cluster.node(1).nodetool("removenode", host_id)
    eventually("all hear of it", lambda: third.host not in cluster.node(2).nodetool("status"))
    with cluster.driver(only=2) as driver:
        session = driver.connect()
        assert len(session.execute("SELECT * FROM rings.t").all()) == 20
        session.execute("TRUNCATE rings.t")
    assert "removed" in fails_to_go_on(third)


def test_a_backup_of_the_metadata_is_refused_by_whoever_is_there(form):
    cluster = form(3)
    third = cluster.node(3)
    metadata = third.workdir / "metadata"
    backup = third.workdir / "backup"
    create_keyspace(cluster, 3)
    cluster.stop(3)
    shutil.copytree(metadata, backup)
    third.start()
    create_keyspace(cluster, 3)
    eventually("its start is noted", lambda: said(third, NOTED))
    cluster.kill(3)
    newest = third.workdir / "newest"
    metadata.rename(newest)
    backup.rename(metadata)
    # The one that led and has its word is away.
    cluster.kill(1)
    log = fails_to_go_on(third)
    assert "older than what ran last" in log, log
    shutil.rmtree(metadata)
    newest.rename(metadata)
    third.start()
    create_keyspace(cluster, 3, replication=2)
