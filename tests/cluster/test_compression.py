"""Which connections between nodes are compressed: bytes between nodes of one rack, of two racks and of two datacenters."""

import re

import pytest

from harness import Cluster, cql

PLACES = {1: ("east", "one"), 2: ("east", "one"), 3: ("east", "two"), 4: ("west", "one")}
ROWS = 50
ROW_BYTES = 20_000
PEER = re.compile(r'ceto_rpc_(sent_bytes|disconnects)_total\{.*peer="([0-9a-f-]+)"')


def form(tmp_path, yaml):
    path = tmp_path / "options.yaml"
    path.write_text(yaml)
    cluster = Cluster(len(PLACES), options=["--options-file", str(path)])
    for number, (datacenter, rack) in PLACES.items():
        node = cluster.node(number)
        node.options = [*node.options, "--data-center", datacenter, "--rack", rack]
    return cluster


def told_of_peers(cluster, what):
    """Of each other node by number, what node 1 counts."""
    told = dict.fromkeys(range(2, len(PLACES) + 1), 0)
    hosts = {node.api("/storage_service/hostid/local")[1]: number for number, node in enumerate(cluster, 1)}
    for name, value in cluster.node(1).metrics().items():
        match = PEER.match(name)
        if match and match[1] == what:
            told[hosts[match[2]]] += value
    return told


@pytest.mark.parametrize(
    "mode, algorithms, compressed",
    [
        ("none", "lz4,zstd", set()),
        ("dc", "lz4,zstd", {4}),
        ("rack", "zstd", {3, 4}),
        ("all", "lz4", {2, 3, 4}),
    ],
)
def test_what_is_far_enough_is_compressed(tmp_path, mode, algorithms, compressed):
    yaml = f"internode_compression: {mode}\ninternode_compression_algorithms: '{algorithms}'\n"
    with form(tmp_path, yaml) as cluster:
        cluster.sees_itself_whole()
        name = cql.unique("far")
        replication = "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 1}"
        driver = cluster.driver(only=1, consistency="ALL")
        try:
            session = driver.connect()
            session.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
            session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
            insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
            before = {what: told_of_peers(cluster, what) for what in ("sent_bytes", "disconnects")}
            for k in range(ROWS):
                session.execute(insert, (k, "far" * (ROW_BYTES // 3)))
        finally:
            driver.shutdown()
        for number, bytes_sent in told_of_peers(cluster, "sent_bytes").items():
            sent = bytes_sent - before["sent_bytes"][number]
            print(f"{mode}: {sent:.0f} bytes to node {number} at {PLACES[number]}")
            if number in compressed:
                assert sent < ROWS * ROW_BYTES / 5, f"{sent:.0f} bytes to node {number} at {PLACES[number]}"
            else:
                assert sent > ROWS * ROW_BYTES, f"{sent:.0f} bytes to node {number} at {PLACES[number]}"
        ended = told_of_peers(cluster, "disconnects")
        assert ended == before["disconnects"], "connections ended while nodes talked"
