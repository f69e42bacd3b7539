"""What a node missed is kept for it, handed over when it is back, and one can wait until that is done."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import cql
from harness.cluster import address, eventually
from harness.node import NodeFailed

ROWS = 200
AWAY = 3
KEEPERS = (1, 2)
# What a command may take on a machine with nothing else to do; tests print what it took.
QUICK_SECONDS = 0.05
TOLERATED_SECONDS = 2.0
LATE_SECONDS = 120


@contextlib.contextmanager
def session_of(cluster, number, consistency):
    driver = cluster.driver(only=number, consistency=consistency)
    try:
        yield driver.connect()
    finally:
        driver.shutdown()


@pytest.fixture
def table(cluster):
    name = cql.unique("missed")
    with session_of(cluster, 1, "ALL") as session:
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}"
        )
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
    return f"{name}.t"


@pytest.fixture
def without_third(cluster):
    """Node 3 is down, and the others know; afterwards all is as it was."""
    cluster.stop(AWAY)
    for number in KEEPERS:
        eventually("node 3 is down", lambda number=number: address(AWAY) in down(cluster.node(number)))
    yield
    if not cluster.node(AWAY).alive:
        cluster.start(AWAY)
    for number in KEEPERS:
        node = cluster.node(number)
        node.nodetool("enablehandoff")
        node.nodetool("resumehandoff")
        node.nodetool("enablehintsfordc", "datacenter1")
        eventually("no hints wait", lambda node=node: node.api("/hinted_handoff/hints")[1] == [])
    cluster.sees_itself_whole()


def down(node):
    return node.api("/gossiper/endpoint/down")[1]


def write(cluster, table):
    """All rows, half of them through each of the keepers."""
    for number in KEEPERS:
        with session_of(cluster, number, "QUORUM") as session:
            insert = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
            for k in range(number - 1, ROWS, len(KEEPERS)):
                session.execute(insert, (k, "v" * 50))


def rows_of_third(cluster, table):
    """What node 3 has by itself: at ONE a replica of all tokens asks nobody."""
    with session_of(cluster, AWAY, "ONE") as session:
        return {row.k for row in session.execute(f"SELECT k FROM {table}")}


def sync_point(node, **parameters):
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    status, point = node.api(f"/hinted_handoff/sync_point?{query}", "POST")
    assert status == 200, point
    return point


def asked(node, point, timeout=None):
    tail = "" if timeout is None else f"&timeout={timeout}"
    status, said = node.api(f"/hinted_handoff/sync_point?id={point}{tail}")
    assert status == 200, said
    return said


def test_who_waits_for_a_sync_point_waits_until_the_node_has_every_row(cluster, table, without_third):
    write(cluster, table)
    points = {number: sync_point(cluster.node(number), target_hosts=address(AWAY)) for number in KEEPERS}
    for number in KEEPERS:
        node = cluster.node(number)
        assert asked(node, points[number]) == "IN_PROGRESS", "node 3 is down"
        begin = time.monotonic()
        assert asked(node, points[number], 1) == "IN_PROGRESS"
        assert time.monotonic() - begin >= 1, "it did not wait"
        assert asked(node, sync_point(node, target_hosts=address(3 - number))) == "DONE", "nothing waits for that one"
        listed = node.nodetool("listpendinghints")
        assert address(AWAY) in listed and "DOWN" in listed and "datacenter1" in listed, listed
        assert node.metrics()["ceto_handoff_targets"] == 1
        assert sum(v for k, v in node.metrics().items() if k.startswith("ceto_hints_pending_bytes")) > 0
    # The id is good after a restart of who made it.
    cluster.restart(1)
    assert asked(cluster.node(1), points[1]) == "IN_PROGRESS"
    # Nothing is handed over until we say so: what node 3 has is what it has by itself.
    for number in KEEPERS:
        cluster.node(number).nodetool("pausehandoff")
    cluster.start(AWAY)
    assert rows_of_third(cluster, table) == set(), "node 3 got what it missed in another way"
    with ThreadPoolExecutor(len(KEEPERS)) as waiting:
        answers = [waiting.submit(asked, cluster.node(number), points[number], -1) for number in KEEPERS]
        time.sleep(0.5)  # they wait
        assert not any(answer.done() for answer in answers), "handing over is paused"
        for number in KEEPERS:
            cluster.node(number).nodetool("resumehandoff")
        assert [answer.result(LATE_SECONDS) for answer in answers] == ["DONE", "DONE"]
    assert rows_of_third(cluster, table) == set(range(ROWS)), "the sync points are reached and rows are missing"
    for number in KEEPERS:
        assert asked(cluster.node(number), points[number]) == "DONE"


def test_ids_that_are_not_of_this_node_are_refused_with_the_reason(cluster):
    node = cluster.node(1)
    point = sync_point(node)

    def refused(path, method="GET", by=node):
        status, said = by.api(path, method)
        assert status == 400, said
        return said["message"]

    path = "/hinted_handoff/sync_point"
    assert "made this sync point" in refused(f"{path}?id={point}", by=cluster.node(2))
    assert "damaged" in refused(f"{path}?id={point[:-2]}")
    assert "damaged" in refused(f"{path}?id=hello")
    assert refused(f"{path}?timeout=-1") == "Missing mandatory parameter 'id'"
    assert "whole seconds" in refused(f"{path}?id={point}&timeout=soon")
    assert "10.9.8.7" in refused(f"{path}?target_hosts=10.9.8.7", "POST")


def test_hints_are_kept_for_whom_the_operator_allows(cluster, table, without_third):
    node = cluster.node(1)
    switches = [
        ("disablehandoff", "enablehandoff", "Hinted handoff is not running"),
        ("disablehintsfordc datacenter1", "enablehintsfordc datacenter1", "Data center datacenter1 is disabled"),
    ]
    for off, on, said in switches:
        for number in KEEPERS:
            cluster.node(number).nodetool(*off.split())
        assert said in node.nodetool("statushandoff")
        write(cluster, table)
        assert node.api("/hinted_handoff/hints") == (200, []), f"hints are kept after {off}"
        for number in KEEPERS:
            cluster.node(number).nodetool(*on.split())
        assert node.nodetool("statushandoff") == "Hinted handoff is running\n"
    write(cluster, table)
    assert node.api("/hinted_handoff/hints") == (200, [address(AWAY)])
    node.nodetool("truncatehints", address(2))
    assert node.api("/hinted_handoff/hints") == (200, [address(AWAY)]), "another node's hints are gone"
    for number in KEEPERS:
        cluster.node(number).nodetool("truncatehints", address(AWAY))
    assert "does not have any pending hints" in node.nodetool("listpendinghints")
    assert asked(node, sync_point(node)) == "DONE"
    # With a window of nothing no hint is kept for who is down.
    for number in KEEPERS:
        cluster.node(number).nodetool("setmaxhintwindow", "0")
    write(cluster, table)
    assert node.api("/hinted_handoff/hints") == (200, [])
    for number in KEEPERS:
        cluster.node(number).nodetool("setmaxhintwindow", "10800000")
    assert node.nodetool("getmaxhintwindow") == "Current max hint window: 10800000 ms\n"
    cluster.start(AWAY)
    assert rows_of_third(cluster, table) == set(), "there was nothing to hand over"


@pytest.mark.parametrize(
    "command",
    [
        "statushandoff",
        "enablehandoff",
        "resumehandoff",
        "enablehintsfordc datacenter1",
        "getmaxhintwindow",
        "setmaxhintwindow 10800000",
        "listpendinghints",
        "truncatehints",
    ],
)
def test_commands_answer_quickly(cluster, command):
    begin = time.monotonic()
    cluster.node(2).nodetool(*command.split())
    took = time.monotonic() - begin
    print(f"nodetool {command}: {took * 1000:.0f} ms of {QUICK_SECONDS * 1000:.0f}")
    assert took < TOLERATED_SECONDS, f"nodetool {command} took {took:.1f} s"


def test_mistakes_in_typing_are_refused(cluster):
    node = cluster.node(1)
    with pytest.raises(NodeFailed, match="no datacenter 'datacentre1'; known are: datacenter1"):
        node.nodetool("disablehintsfordc", "datacentre1")
    with pytest.raises(NodeFailed, match="expected milliseconds"):
        node.nodetool("setmaxhintwindow", "3h")
    with pytest.raises(NodeFailed, match="no member of the cluster"):
        node.nodetool("truncatehints", "10.9.8.7")
    status, said = node.api("/hinted_handoff/pause?pause=maybe", "POST")
    assert status == 400 and "true or false" in said["message"], said
