"""Nodes that own nothing, nodes that an operator has excluded, and operations that operators watch and abandon."""

import contextlib
import itertools
import threading
import uuid

import pytest

from harness import Cluster, cql
from harness.cluster import eventually
from harness.node import NodeFailed


@pytest.fixture
def form(request):
    formed = []

    def make(size):
        formed.append(Cluster(size, runtime=request.config.getoption("--runtime")))
        return formed[-1].form().known_to_clients()

    yield make
    for cluster in formed:
        cluster.remove()


def host_of(node):
    return node.api("/storage_service/hostid/local")[1]


def state_of(cluster, node, by=1):
    """UN, XN and so on, by what another node knows; None when it knows no such node."""
    lines = cluster.node(by).nodetool("status").splitlines()
    return next((line[:2] for line in lines if f"  {node.host} " in line), None)


def join(cluster, *options):
    """Start one more node with options of its own."""
    number = len(cluster.nodes) + 1
    node = cluster._node(number)
    node.options = node.options + list(options)
    cluster.nodes.append(node)
    return node.start()


def test_a_zero_token_node_coordinates_votes_and_owns_nothing(form):
    cluster = form(2)
    arbiter = join(cluster, "--join-ring", "false")
    eventually("it is a full member", lambda: state_of(cluster, arbiter) == "UN")
    assert f"own no data (join_ring: false): {arbiter.host}" in cluster.node(1).nodetool("status")
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        peers = {peer for (peer,) in cql.rows(session, "SELECT rpc_address FROM system.peers")}
        assert peers == {cluster.node(2).host}, "drivers are not told of it"
        with_ring = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2} AND tablets = {'enabled': false}"
        for name, replication in (
            ("tablets", "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}"),
            ("ring", with_ring),
        ):
            session.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
            session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    # A client that connects to it is served from what the others have.
    with cluster.driver(only=3) as driver:
        session = driver.connect()
        assert cql.rows(session, "SELECT tokens FROM system.local") == [(None,)]
        for name in ("tablets", "ring"):
            for key in range(20):
                session.execute(f"INSERT INTO {name}.t (k, v) VALUES ({key}, {key})")
            assert len(cql.rows(session, f"SELECT * FROM {name}.t")) == 20
            for (replicas,) in cql.rows(session, f"SELECT replicas FROM system.tablets WHERE keyspace_name = '{name}' ALLOW FILTERING"):
                assert host_of(arbiter) not in {str(host) for host, _ in replicas}
    # With it, one of two owners may fail and the schema still changes.
    cluster.has_voters()
    cluster.kill(2)
    eventually("the others miss it", lambda: state_of(cluster, cluster.node(2)) == "DN")
    with cluster.driver(only=1, consistency="ONE") as driver:
        driver.connect().execute("CREATE TABLE tablets.more (k int PRIMARY KEY)")
    cluster.start(2)
    cluster.sees_itself_whole()

    arbiter.stop()
    arbiter.options[-1] = "true"
    with pytest.raises(NodeFailed, match="set join_ring: false again"):
        arbiter.start()
    arbiter.options[-1] = "false"
    arbiter.start()
    arbiter.nodetool("decommission")
    assert state_of(cluster, arbiter) is None
    eventually("the node has stopped by itself", lambda: not arbiter.alive)
    cluster.nodes.pop().remove()


def test_an_arbiter_datacenter_is_no_target_of_a_replication(form):
    cluster = form(1)
    arbiter = join(cluster, "--join-ring", "false", "--data-center", "arbiter")
    eventually("it is a full member", lambda: state_of(cluster, arbiter) == "UN")
    with cluster.driver(only=1, consistency="ONE") as driver:
        session = driver.connect()
        refused = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1, 'arbiter': 1}"
        with pytest.raises(Exception, match="arbiter"):
            session.execute(f"CREATE KEYSPACE refused WITH replication = {refused}")
        taken = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        session.execute(f"CREATE KEYSPACE taken WITH replication = {taken}")
        [(replication,)] = cql.rows(session, "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'taken'")
        assert "arbiter" not in replication


def test_an_excluded_node_is_waited_for_no_more_and_may_not_come_back(form):
    cluster = form(3)
    lost = cluster.node(3)
    host = host_of(lost)
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"
        session.execute(f"CREATE KEYSPACE ks WITH replication = {replication}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
        session.execute("INSERT INTO ks.t (k) VALUES (1)")
        with pytest.raises(NodeFailed, match="only a node that is down can be excluded"):
            cluster.node(1).nodetool("excludenode", host)
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        with pytest.raises(Exception, match="TRUNCATE needs all replicas"):
            session.execute("TRUNCATE ks.t")
        cluster.node(1).nodetool("excludenode", host)
        for by in (1, 2):
            eventually("it is excluded", lambda by=by: state_of(cluster, lost, by) == "XN")
        session.execute("TRUNCATE ks.t")
        assert cql.rows(session, "SELECT * FROM ks.t") == []
    with pytest.raises(NodeFailed, match="left the cluster or was removed|was excluded"):
        lost.start()
        eventually("it has stopped", lambda: not lost.alive)
        raise NodeFailed("it has stopped by itself", None, lost.log())
    assert state_of(cluster, lost) == "XN"
    heir = join(cluster, "--replace-node-first-boot", host, "--ignore-dead-nodes-for-replace", "")
    eventually("another takes its place", lambda: state_of(cluster, heir) == "UN" and state_of(cluster, lost) is None)
    lost.remove()
    cluster.nodes.remove(lost)


def test_nodes_to_ignore_are_not_excluded_for_a_removal_that_is_refused(form):
    cluster = form(5)
    cluster.has_voters()
    lost, ignored = cluster.node(4), cluster.node(5)
    hosts = [host_of(node) for node in (lost, ignored)]
    with cluster.driver(only=1) as driver:
        fill(driver.connect(), "ks", 1, rows=50)
    for node in (lost, ignored):
        node.kill9()
    for node, by in itertools.product((lost, ignored), (1, 2, 3)):
        eventually("the others miss it", lambda node=node, by=by: state_of(cluster, node, by) == "DN")
    for gone, why in ((hosts[0], "only copy|alone owns"), (str(uuid.uuid4()), "is not a member")):
        with pytest.raises(NodeFailed, match=why):
            cluster.node(1).nodetool("removenode", "--ignore-dead-nodes", hosts[1], gone)
        assert state_of(cluster, ignored) == "DN", "it was excluded for nothing, and may not come back"
    # One that lives keeps the other from being excluded, whoever is asked.
    alive = host_of(cluster.node(2))
    for by in (1, 2, 3):
        with pytest.raises(NodeFailed, match="only a node that is down can be excluded"):
            cluster.node(by).nodetool("excludenode", hosts[1], alive)
        assert state_of(cluster, ignored, by) == "DN", "it was excluded for nothing, and may not come back"
    for by in (1, 2, 3):
        cluster.node(by).nodetool("excludenode", *hosts)
        assert [state_of(cluster, node, by) for node in (lost, ignored)] == ["XN", "XN"]


def fill(session, keyspace, replication, rows=500):
    """Two tables of rows: one with tablets, one on the token ring."""
    for name, tablets in ((keyspace, "true"), (f"{keyspace}_ring", "false")):
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replication}}}"
            f" AND tablets = {{'enabled': {tablets}}}"
        )
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
        insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
        for key in range(rows):
            session.execute(insert, (key, "v" * 100))
    return [keyspace, f"{keyspace}_ring"]


def test_cleanup_removes_what_a_node_owned_before_others_joined(form):
    cluster = form(1)
    first = cluster.node(1)
    with cluster.driver(only=1, consistency="ONE") as driver:
        session = driver.connect()
        names = fill(session, "ks", 1)
        first.nodetool("flush")
        assert first.nodetool("cleanup").splitlines() == ["Checked 2 tables for tokens that are not this node's"]
        new = cluster.node(cluster.add())
        eventually("it owns its part", lambda: state_of(cluster, new) == "UN")
        eventually("nothing moves", lambda: first.api("/storage_service/tablets/balancing")[1]["moving"] == 0)
        # The former owner of ranges of the token ring has their rows still; tablets have gone with their files.
        told = first.nodetool("cleanup")
        assert "ks_ring.t: removed " in told and "ks.t: removed" not in told, told
        assert "removed" not in first.nodetool("cleanup", "ks_ring", "t")
        assert "removed" not in new.nodetool("cleanup")
        for name in names:
            assert len(cql.rows(session, f"SELECT k FROM {name}.t")) == 500
        kinds = {task["type"] for task in first.api("/task_manager/list_module_tasks/compaction")[1]}
        assert "cleanup" in kinds
    status, answer = first.api("/storage_service/keyspace_cleanup/none", method="POST")
    assert status == 400, answer


def test_what_a_node_has_lost_of_the_token_ring_goes_by_itself(form):
    cluster = form(1)
    first = cluster.node(1)
    with cluster.driver(only=1, consistency="ONE") as driver:
        fill(driver.connect(), "ks", 1, rows=2000)
    cleans_soon(first)
    before = ring_bytes(first)
    second = cluster.node(cluster.add())
    eventually("nobody had to clean up", lambda: ring_bytes(first) < before * 0.9)
    eventually("it says so", lambda: any("of ranges of the token ring that other nodes own now" in line for line in first.lines))
    assert "removed" not in first.nodetool("cleanup"), "something was left"
    # A node that is killed before its cleanup makes it after its start.
    second.nodetool("flush")
    before = ring_bytes(second)
    cluster.add()
    second.kill9()
    assert ring_bytes(second) >= before * 0.9, "it was cleaned up too soon to be killed before"
    cleans_soon(second)
    eventually("it is cleaned up", lambda: ring_bytes(second) < before * 0.9)
    with cluster.driver(only=1, consistency="ONE") as driver:
        assert len(cql.rows(driver.connect(), "SELECT k FROM ks_ring.t")) == 2000
    with pytest.raises(NodeFailed, match="each node removes by itself"):
        first.nodetool("cluster", "cleanup")


def cleans_soon(node):
    """Have a node not wait with its cleanups."""
    if node.process is not None:
        node.nodetool("flush")
        node.stop()
    node.options = [*node.options, "--auto-cleanup-delay-in-seconds", "0"]
    node.start()


def ring_bytes(node):
    """What a node has of the table on the token ring, in sstables. A compaction may remove one while they are counted."""
    total = 0
    for path in node.workdir.glob("data/ks_ring/t-*/*-Data.db"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_a_node_that_has_lost_its_sstables_is_rebuilt(form):
    cluster = form(3)
    lost = cluster.node(3)
    with cluster.driver(only=1) as driver:
        names = fill(driver.connect(), "ks", 3)
        # What a node alone has cannot be copied from others, and keeps nothing else from being copied.
        fill(driver.connect(), "alone", 1)
    lost.nodetool("flush")
    lost.stop()
    for name in names:
        [directory] = (lost.workdir / "data" / name).glob("t-*")
        removed = [path for path in directory.iterdir() if path.is_file() and path.name[:2] in ("me", "ms")]
        assert removed, list(directory.iterdir())
        for path in removed:
            path.unlink()
    lost.start()
    cluster.sees_itself_whole()
    with cluster.driver(only=3, consistency="ONE") as driver:
        session = driver.connect()

        def rows(name):
            return sum(bool(cql.rows(session, f"SELECT k FROM {name}.t WHERE k = {key}")) for key in range(500))

        assert [rows(name) for name in names] == [0, 0]
        for name in names:
            session.execute(f"INSERT INTO {name}.t (k, v) VALUES (1000, 'kept')")
        with pytest.raises(NodeFailed, match="no datacenter elsewhere"):
            lost.nodetool("rebuild", "--source-dc", "elsewhere")
        assert "Copied " in lost.nodetool("rebuild", "ks")
        assert [rows(name) for name in names] == [500, 0]
        assert "Copied " in lost.nodetool("rebuild", "datacenter1")
        assert [rows(name) for name in names] == [500, 500]
        for name in names:
            assert cql.rows(session, f"SELECT v FROM {name}.t WHERE k = 1000") == [("kept",)]
    tasks = [task for task in lost.api("/task_manager/list_module_tasks/streaming")[1] if task["type"] == "rebuild"]
    assert [task["state"] for task in tasks].count("done") == 2, tasks


def test_a_decommission_is_watched_and_abandoned_at_another_node(form):
    cluster = form(3)
    with cluster.driver(only=1) as driver:
        fill(driver.connect(), "ks", 2, rows=50)
    eventually("nothing goes on", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
    leaving, told = cluster.node(3), []

    def decommission():
        with pytest.raises(NodeFailed) as refused:
            leaving.nodetool("decommission")
        told.append(str(refused.value))

    # A next owner that stands still holds it up.
    cluster.pause(2)
    thread = threading.Thread(target=decommission)
    thread.start()
    try:

        def operation():
            found = cluster.node(1).api("/ceto/operations")[1]
            return next((each for each in found if each["kind"] == "leave" and each["waits"]), None)

        seen = eventually("it waits", operation)
        assert seen["address"] == leaving.host and cluster.node(2).host in seen["waits"], seen
        status = cluster.node(1).nodetool("status")
        assert f"Operation leave of {leaving.host}: " in status and "    waits: " in status, status
        listed = cluster.node(1).nodetool("tasks", "list", "node_ops")
        assert seen["task_id"] in listed, listed
        cluster.node(1).nodetool("tasks", "abort", seen["task_id"])
        eventually("it stays", lambda: state_of(cluster, leaving) == "UN")
    finally:
        cluster.resume(2)
        thread.join()
    assert "stay" in told[0], told
    cluster.sees_itself_whole()
    eventually("nothing goes on", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
    ended = cluster.node(1).api(f"/task_manager/task_status/{seen['task_id']}")[1]
    assert (ended["state"], ended["error"]) == ("failed", "an operator had the node stay"), ended


def test_a_decommission_that_only_its_node_can_abandon_is_refused_at_another_in_words(form):
    """Without tables on the token ring a node gives its tokens away at once, and only itself knows which it wants back."""
    cluster = form(3)
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 2}")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
    eventually("nothing goes on", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
    leaving = cluster.node(3)

    def decommission():
        with pytest.raises(NodeFailed, match="stay"):
            leaving.nodetool("decommission")

    # Nothing can go to a node that stands still.
    cluster.pause(2)
    thread = threading.Thread(target=decommission)
    thread.start()
    try:

        def operation():
            found = cluster.node(1).api("/ceto/operations")[1]
            return next((each for each in found if each["kind"] == "leave"), None)

        seen = eventually("it leaves", operation)
        for _ in range(2):
            with pytest.raises(NodeFailed, match="ask that node"):
                cluster.node(1).nodetool("tasks", "abort", seen["task_id"])
        assert state_of(cluster, leaving) == "UL"
        assert operation()["task_id"] == seen["task_id"], "its task has ended"
        leaving.nodetool("decommission", "--abort")
        eventually("it stays", lambda: state_of(cluster, leaving) == "UN")
    finally:
        cluster.resume(2)
        thread.join()
    cluster.sees_itself_whole()


def test_a_replication_that_changes_is_taken_back_by_its_task(form):
    cluster = form(3)
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        names = fill(session, "ks", 2, rows=200)
        eventually("nothing goes on", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
        # A next owner that stands still holds the change up.
        cluster.pause(2)
        try:
            for name in names:
                session.execute(f"ALTER KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}")

            def operation(name, by=1):
                found = cluster.node(by).api("/ceto/operations")[1]
                return next((each for each in found if each["keyspace"] == name and each["is_abortable"]), None)

            seen = {name: eventually("it goes on", lambda name=name: operation(name, by=3)) for name in names}
            # Any node has a task of it.
            cluster.node(3).nodetool("tasks", "abort", seen[names[0]]["task_id"])
            status, answer = cluster.node(3).api(f"/task_manager/abort_task/{seen[names[1]]['task_id']}", method="POST")
            assert status == 200, answer
        finally:
            cluster.resume(2)
        cluster.sees_itself_whole()
        eventually("nothing goes on", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
        for name in names:
            [(replication,)] = cql.rows(session, f"SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{name}'")
            assert replication["datacenter1"] == "2", replication
            ended = cluster.node(3).api(f"/task_manager/task_status/{seen[name]['task_id']}")[1]
            assert ended["state"] == "failed" and "took the change back" in ended["error"], ended
            assert len(cql.rows(session, f"SELECT k FROM {name}.t")) == 200
        # What has ended is not taken back.
        session.execute(f"ALTER KEYSPACE {names[1]} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}")
        eventually("it has ended", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
        assert len(cql.rows(session, f"SELECT k FROM {names[1]}.t")) == 200


def test_two_nodes_leave_at_once_while_a_keyspace_is_altered(form):
    cluster = form(4)
    told = []

    def decommission(node):
        try:
            told.append(node.nodetool("decommission"))
        except NodeFailed as error:
            told.append(error)

    with cluster.driver(only=1) as driver:
        session = driver.connect()
        names = fill(session, "ks", 1, rows=300)
        eventually("nothing goes on", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
        leaving = [cluster.node(3), cluster.node(4)]
        threads = [threading.Thread(target=decommission, args=(node,)) for node in leaving]
        for thread in threads:
            thread.start()
        # Nothing is refused, in whatever stage the token ring is.
        for count in (2, 1, 2):
            for name in names:
                session.execute(f"ALTER KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {count}}}")
        for thread in threads:
            thread.join()
        assert not [each for each in told if isinstance(each, NodeFailed)], told
        for node in leaving:
            assert state_of(cluster, node) is None
            eventually("it has stopped by itself", lambda node=node: not node.alive)
            cluster.nodes.remove(node)
            node.remove()
        eventually("nothing goes on", lambda: cluster.node(1).api("/ceto/operations") == (200, []))
        for name in names:
            assert len(cql.rows(session, f"SELECT k FROM {name}.t")) == 300
