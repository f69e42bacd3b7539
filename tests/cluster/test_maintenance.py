"""A node in maintenance mode: apart from its cluster, with its own data at its own socket. And the socket in normal mode."""

import contextlib
import grp
import os
import socket
import stat

import pytest
from cassandra import ConsistencyLevel, Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.cluster import Cluster as Driver
from cassandra.connection import UnixSocketEndPoint
from cassandra.policies import FallthroughRetryPolicy, HostFilterPolicy, RoundRobinPolicy
from cassandra.query import SimpleStatement

from harness import Cluster, NodeFailed, cql
from harness.cluster import eventually
from harness.members import state_of
from harness.page import Page

ROWS = 50
APART = 3
REFUSED = "the node is in maintenance mode"


@pytest.fixture
def cluster(request):
    cluster = Cluster(3, smp=2, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


@contextlib.contextmanager
def at_socket(path, consistency=ConsistencyLevel.ONE):
    """A session through a maintenance socket."""
    path = str(path)
    profile = ExecutionProfile(
        load_balancing_policy=HostFilterPolicy(RoundRobinPolicy(), lambda host: host.address == path),
        consistency_level=consistency,
        retry_policy=FallthroughRetryPolicy(),
        request_timeout=cql.REQUEST_SECONDS,
    )
    driver = Driver(
        [UnixSocketEndPoint(path)],
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        protocol_version=4,
        connect_timeout=cql.REQUEST_SECONDS,
        control_connection_timeout=cql.REQUEST_SECONDS,
    )
    try:
        yield driver.connect()
    finally:
        driver.shutdown()


@contextlib.contextmanager
def at_port(cluster, number, consistency="QUORUM"):
    driver = cluster.driver(only=number, consistency=consistency)
    try:
        yield driver.connect()
    finally:
        driver.shutdown()


def at_one(statement):
    return SimpleStatement(statement, consistency_level=ConsistencyLevel.ONE)


def keyspace(session, copies, tablets=True):
    """A table with some rows on all replicas; its keyspace."""
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"
        f" AND tablets = {{'enabled': {str(tablets).lower()}}}"
    )
    session.execute(f"CREATE TABLE {name}.t (key int PRIMARY KEY, v int)")
    for key in range(ROWS):
        insert = f"INSERT INTO {name}.t (key, v) VALUES ({key}, {key})"
        session.execute(SimpleStatement(insert, consistency_level=ConsistencyLevel.ALL))
    return name


def keys(session, name):
    return sorted(key for (key,) in cql.rows(session, f"SELECT key FROM {name}.t"))


def owned_and_others(session, name):
    """The keys that a node answers for at ONE, and those that it refuses. None may be answered as if there were no such row."""
    owned, others = [], []
    for key in range(ROWS):
        try:
            assert cql.rows(session, f"SELECT v FROM {name}.t WHERE key = {key}") == [(key,)], f"key {key} is answered as empty"
            owned.append(key)
        except Unavailable:
            others.append(key)
    return owned, others


def is_closed(host, port):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) != 0


def enter(node):
    """Restart a node in maintenance mode."""
    node.stop()
    node.options.append("--maintenance-mode")
    return node.start(apart=True)


def leave(node):
    node.stop()
    node.options.remove("--maintenance-mode")
    node.start()


def test_a_node_in_maintenance_mode_serves_its_own_data_to_operators_alone(cluster):
    node, path = cluster.node(APART), cluster.node(APART).workdir / "cql.m"
    with at_port(cluster, 1) as session:
        thrice, once, ring = keyspace(session, 3), keyspace(session, 1), keyspace(session, 1, tablets=False)
    assert not path.exists(), "there is a socket that nobody asked for"
    enter(node)
    try:
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o660
        for port in (node.port, node.shard_aware_port, node.storage_port):
            assert is_closed(node.host, port), f"port {port} is open"
        for other in (1, 2):
            eventually("the others miss it", lambda other=other: state_of(cluster, node, by=other) == "DN")
        with at_socket(path) as session:
            assert keys(session, thrice) == list(range(ROWS))
            assert [up for (up,) in cql.rows(session, "SELECT up FROM system.cluster_status")].count(True) == 1
            for name in (once, ring):
                owned, others = owned_and_others(session, name)
                assert owned and others, f"of {name} it has {owned} and lacks {others}"
                with pytest.raises(Unavailable):
                    session.execute(f"SELECT key FROM {name}.t")
                with pytest.raises(Unavailable):
                    session.execute(f"INSERT INTO {name}.t (key, v) VALUES ({others[0]}, 7)")
                # This node has the only copy, and may be wrong about that: conditions are for those who agree on who has it.
                with pytest.raises(Unavailable):
                    session.execute(f"UPDATE {name}.t SET v = 7 WHERE key = {owned[0]} IF v = {owned[0]}")
            # One of three is no majority, whatever is asked.
            for statement in (
                f"SELECT v FROM {thrice}.t WHERE key = 1",
                f"INSERT INTO {thrice}.t (key, v) VALUES (1, 7)",
                f"UPDATE {thrice}.t SET v = 7 WHERE key = 1 IF v = 1",
            ):
                with pytest.raises(Unavailable):
                    session.execute(SimpleStatement(statement, consistency_level=ConsistencyLevel.QUORUM))
            for statement in (
                f"CREATE KEYSPACE x WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}}",
                f"ALTER TABLE {thrice}.t ADD w int",
                f"DROP TABLE {thrice}.t",
            ):
                _, message = cql.refusal(session, statement)
                assert REFUSED in message, f"{statement}: {message}"
            _, message = cql.refusal(session, f"TRUNCATE {thrice}.t")
            assert "is down, and TRUNCATE needs all replicas" in message
            session.execute(f"INSERT INTO {thrice}.t (key, v) VALUES (1, 1000)")
            session.execute(f"DELETE FROM {thrice}.t WHERE key = 2")
        with at_port(cluster, 1) as session:
            assert cql.rows(session, f"SELECT v FROM {thrice}.t WHERE key = 1") == [(1,)], "the others have heard of it"
        # A crash loses nothing that was acknowledged.
        node.kill9()
        node.start(apart=True)
        with at_socket(path) as session:
            assert cql.rows(session, f"SELECT v FROM {thrice}.t WHERE key = 1") == [(1000,)]
    finally:
        leave(node)
    cluster.sees_itself_whole()
    assert not path.exists(), "the socket is left behind"
    with at_port(cluster, APART, "ONE") as session:
        assert cql.rows(session, f"SELECT v FROM {thrice}.t WHERE key = 1") == [(1000,)]
        session.execute(f"ALTER TABLE {thrice}.t ADD w int")
    for other in (1, 2):
        with at_port(cluster, other, "ONE") as session:
            # The hints of the time apart are handed over.
            query = f"SELECT v FROM {thrice}.t WHERE key IN (1, 2)"
            eventually("it has what was written apart", lambda s=session: cql.rows(s, query) == [(1000,)])


def test_operators_find_what_works_in_maintenance_mode_as_the_page_says(cluster):
    node = cluster.node(APART)
    with at_port(cluster, 1) as session:
        name = keyspace(session, 3)
    page = Page("maintenance")
    with page:
        node.stop()
        words = page.option("ceto --workdir DIR --maintenance-mode …")
        node.options += words[3:-1]
        node.start(apart=True)
        status = page.nodetool(node, "status")
        assert status.count("DN ") == 2 and f"UN  {node.host}" in status, status
        assert "Mode: MAINTENANCE" in page.nodetool(node, "netstats")
        table, keys_of = {"KEYSPACE": name, "TABLE": "t"}, {"KEYSPACE": name}
        page.nodetool(node, "flush KEYSPACE", keys_of)
        page.nodetool(node, "compact KEYSPACE TABLE", table)
        page.nodetool(node, "snapshot -t TAG KEYSPACE", {"TAG": "apart", "KEYSPACE": name})
        assert "apart" in node.nodetool("listsnapshots")
        page.nodetool(node, "cleanup KEYSPACE", keys_of)
        with pytest.raises(NodeFailed, match=page.row("the node is in maintenance mode")):
            page.nodetool(node, "repair KEYSPACE", keys_of)
        page.tried_in("cluster/test_maintenance.py", {"ceto nodetool repair": "repair", "ceto nodetool disablebinary": "disablebinary"})
        with at_socket(node.workdir / "cql.m") as session:
            assert page.statement(session, "SELECT * FROM KEYSPACE.TABLE WHERE key = 1", table) == [(1, 1)]
    other = cluster.node(1).nodetool("info").split("ID")[1].split(":")[1].split()[0]
    for command in (
        ["decommission"],
        ["removenode", other],
        ["excludenode", other],
        ["rebuild"],
        ["cluster", "repair"],
        ["tabletbalancing"],
        ["disablebinary"],
    ):
        with pytest.raises(NodeFailed, match=REFUSED):
            node.nodetool(*command)
    assert "Gossip" in node.nodetool("info")
    assert node.metrics()["ceto_members"] == 3
    for path in ("/storage_service/tablets/balancing", "/storage_service/load_map", "/ceto/clock", "/raft/status"):
        status, answer = node.api(path)
        assert status == 200 or REFUSED in str(answer), f"{path}: {status} {answer}"
    leave(node)
    cluster.sees_itself_whole()


def test_the_socket_serves_in_normal_mode_what_the_port_serves(cluster):
    node = cluster.node(APART)
    group = grp.getgrgid(os.getgid()).gr_name
    path = node.workdir / "operators"
    node.stop()
    node.options += ["--maintenance-socket", str(path), "--maintenance-socket-group", group]
    node.start()
    assert path.stat().st_gid == os.getgid()
    with at_socket(path, ConsistencyLevel.QUORUM) as session:
        name = keyspace(session, 3)
        assert keys(session, name) == list(range(ROWS))
        shards = {shard for address, shard in cql.rows(session, "SELECT address, shard_id FROM system.clients") if address == "0.0.0.0"}
        assert shards == {0, 1}, "connections are not shared out to shards"
    node.nodetool("disablebinary")
    assert not path.exists()
    node.nodetool("enablebinary")
    with at_socket(path, ConsistencyLevel.QUORUM) as session:
        assert keys(session, name) == list(range(ROWS))
    # What a killed process leaves does not stop the next.
    node.kill9()
    assert path.exists()
    node.start()
    with at_socket(path, ConsistencyLevel.QUORUM) as session:
        assert keys(session, name) == list(range(ROWS))
    node.stop()
    assert not path.exists()
    path.write_text("no socket")
    with pytest.raises(NodeFailed, match="cannot listen for CQL on the maintenance socket .*operators: there is a file of that name"):
        node.start()
    path.unlink()
    node.start()


def test_a_node_that_was_in_no_cluster_has_nothing_to_maintain(cluster):
    stranger = cluster._node(4)
    stranger.options.append("--maintenance-mode")
    with pytest.raises(NodeFailed, match="maintenance_mode is for a node that has been in its cluster"):
        stranger.start(apart=True)
    # It has not become one by that.
    stranger.options.remove("--maintenance-mode")
    cluster.nodes.append(stranger)
    stranger.start()
    cluster.sees_itself_whole()
