"""Nodes that should not come in, or come in otherwise than meant, while applications write and read at QUORUM: each is refused with its
reason, or receives and owns nothing, and no row is ever lost.

The load writes to a keyspace on the token ring: there a node that comes in wrongly would take ranges whose rows are elsewhere.
"""

import shutil
import subprocess

import pytest

from harness import Node, NodeFailed, cql
from harness.cluster import address, eventually
from harness.witness import Witness

REQUESTS = 500
STRANGER = 5  # the address of the node that comes
ELSEWHERE = 6
NOBODY = 77


@pytest.fixture
def witness(cluster):
    """Runs over the whole test; what it is told counts at the end."""
    with Witness(cluster, ring=True) as witness:
        witness.more(REQUESTS)
        yield witness
        witness.more(REQUESTS)
        witness.finish().check()


@pytest.fixture
def new_node(cluster, tmp_path):
    made = []

    def make(number=STRANGER, seeds=(1,), options=(), **settings):
        seeds = ",".join(address(seed) for seed in seeds)
        settings = {"workdir": tmp_path / f"node{len(made)}", "smp": 1, "memory": "256M"} | settings
        options = ["--seeds", seeds, *options]
        made.append(Node(host=address(number), ports=cluster.ports, options=options, **settings))
        return made[-1]

    yield make
    for node in made:
        node.kill9()


def refused(node, *words):
    """The node ends by itself before it serves, and says why."""
    with pytest.raises(NodeFailed) as failure:
        node.start()
    assert failure.value.code not in (0, None), failure.value
    for word in words:
        assert word in failure.value.log, failure.value


def members(cluster, number=1):
    """What a node knows of all: address to (status, tokens)."""
    with cluster.driver(only=number) as driver:
        rows = cql.rows(driver.connect(), "SELECT peer, status, tokens FROM system.cluster_status")
    return {peer: (status, tokens) for peer, status, tokens in rows}


def owners(cluster, number=1):
    """Who owns how many tokens, by what a node knows."""
    return {peer: tokens for peer, (_, tokens) in members(cluster, number).items() if tokens}


def test_a_copy_of_a_running_nodes_directory(cluster, witness, new_node, tmp_path):
    copy = tmp_path / "copy"
    # As a snapshot of the disk is taken: the node goes on writing. A file may go while it is copied.
    subprocess.run(["cp", "-a", str(cluster.node(3).workdir), str(copy)], capture_output=True)
    before = members(cluster)
    refused(new_node(workdir=copy), "two", "one identity")
    witness.more(REQUESTS)
    assert members(cluster) == before


def test_a_directory_that_is_older_than_its_copy(cluster, witness, new_node, tmp_path):
    """What ran elsewhere has acknowledged writes that the original lacks: it must not come back in its stead, and may come home."""
    node, home, copy = cluster.node(3), cluster.node(3).workdir, tmp_path / "copy"
    cluster.stop(3)
    shutil.copytree(home, copy)
    elsewhere = new_node(ELSEWHERE, workdir=copy).start()
    eventually("node 1 knows the new address", lambda: elsewhere.host in owners(cluster))
    tokens = owners(cluster)
    witness.more(REQUESTS)
    elsewhere.stop()
    refused(new_node(3, workdir=home), "older than what ran last", "Start the node from the directory that ran last")
    witness.more(REQUESTS)
    assert owners(cluster) == tokens
    shutil.rmtree(home)
    shutil.copytree(copy, home)
    cluster.start(3)
    tokens[node.host] = tokens.pop(elsewhere.host)
    for number in (1, 2, 3):
        eventually(f"node {number} knows where it is", lambda: owners(cluster, number) == tokens)
    with cluster.driver(only=3) as driver:
        assert cql.rows(driver.connect(), f"SELECT count(*) FROM {witness.keyspace}.t")[0][0] >= REQUESTS // 3
    witness.sees_all()


def test_a_node_of_another_cluster_name(cluster, witness, new_node):
    before = members(cluster)
    refused(new_node(options=["--cluster-name", "Another"]), "Another", "Test Cluster", "correct the cluster name")
    assert members(cluster) == before


def test_a_seed_that_is_nobody(cluster, witness, new_node):
    node = new_node(seeds=[NOBODY])
    printed = node._spawn()
    while "waiting to be let in by the seeds" not in (line := printed.get(timeout=60)):
        assert line is not None, node.log()
    witness.more(REQUESTS)
    assert node.alive, "it waits for its seed"
    assert not any("serving CQL" in line or "formed cluster" in line for line in node.lines), node.log()


def test_a_node_with_the_files_of_another_cluster(cluster, witness, new_node, tmp_path):
    files = tmp_path / "files"
    other = new_node(seeds=[STRANGER], workdir=files).start()
    with cql.cluster(other.server) as driver:
        session = driver.connect()
        session.execute(
            "CREATE KEYSPACE mine WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.execute("CREATE TABLE mine.t (k int PRIMARY KEY)")
        session.execute("INSERT INTO mine.t (k) VALUES (1)")
    other.stop()
    before = members(cluster)
    refused(new_node(seeds=[1], workdir=files), "cluster", "Correct the seeds", "empty data directory")
    assert members(cluster) == before
    # Nothing of it is lost: it still is the cluster that it was.
    with new_node(seeds=[STRANGER], workdir=files) as again, cql.cluster(again.server) as driver:
        assert cql.rows(driver.connect(), "SELECT k FROM mine.t") == [(1,)]


@pytest.mark.parametrize("seconds", ["3600", "-3600"], ids=["ahead", "behind"])
def test_a_clock_that_is_an_hour_off(cluster, witness, new_node, seconds):
    node = new_node(options=["--clock-wrong-by", seconds])
    before = members(cluster)
    refused(node, "clock", "3600", "NTP")
    assert members(cluster) == before


def test_an_address_that_another_node_has(cluster, witness, new_node):
    """A new, empty node in the place of a node that is down: its rows must not be forgotten because of it."""
    cluster.kill(3)
    try:
        with cluster.driver(only=1) as driver:
            session = driver.connect()
            up = f"SELECT up FROM system.cluster_status WHERE peer = '{cluster.node(3).host}'"
            eventually("node 3 is down", lambda: cql.rows(session, up) == [(False,)])
        refused(new_node(3), cluster.node(3).host, "down", "remove")
    finally:
        cluster.start(3)
    witness.sees_all()


def test_a_node_comes_back_on_another_address(cluster, witness):
    node = cluster.node(3)
    home = node.host
    tokens = owners(cluster)
    for before, host in ((home, address(ELSEWHERE)), (address(ELSEWHERE), home)):
        cluster.stop(3)
        node.host = host
        cluster.start(3)
        tokens[host] = tokens.pop(before)
        witness.more(REQUESTS)
        for number in (1, 2, 3):
            eventually(f"node {number} knows the new address", lambda: owners(cluster, number) == tokens)
        with cluster.driver(only=3) as driver:
            assert cql.rows(driver.connect(), "SELECT rpc_address FROM system.local") == [(host,)]
        witness.sees_all()


def test_a_node_that_takes_no_tokens_owns_nothing_of_the_ring(cluster, witness, new_node):
    tokens = owners(cluster)
    node = new_node(STRANGER, options=["--auto-bootstrap", "false"]).start()
    witness.more(REQUESTS)
    assert owners(cluster) == tokens
    # It answers clients from what the others have.
    with Witness(cluster, ring=True, hosts=[node.host]) as through_it:
        through_it.more(REQUESTS)
        through_it.finish().check()
