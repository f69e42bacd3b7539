"""Long rows of other nodes: what a coordinator holds for a client that does not read its answers."""

import contextlib

import pytest

from harness import Cluster, cql, wire
from harness.wire import Connection

ROWS = 6
VALUE = b"x" * (1 << 20)
REQUESTS = 1000
QUORUM = 4
# Results and unread answers have 16 % of 256 MiB; one result more may be made. Without a limit it was 1.8 GiB.
GROWTH_MAX = 160 << 20


@pytest.mark.parametrize("place", ["memory", "files"])
def test_a_slow_reader_costs_its_coordinator_a_bounded_amount_of_memory(place):
    cluster = Cluster(3)
    try:
        cluster.form().known_to_clients()
        with cluster.driver(only=1) as driver:
            session = driver.connect()
            keyspace = cql.unique("long")
            # One copy: of most rows the first node is no replica.
            session.execute(
                f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}"
            )
            session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v blob)")
            insert = session.prepare(f"INSERT INTO {keyspace}.t (k, v) VALUES (?, ?)")
            for k in range(ROWS):
                session.execute(insert, (k, VALUE))
            for node in cluster if place == "files" else ():
                node.nodetool("flush")
            before = cluster.node(1).resident_bytes()
            with Connection(cluster.node(1).server) as slow:
                slow.startup()
                # A node that no longer reads fills this socket.
                slow.socket.settimeout(2)
                with contextlib.suppress(TimeoutError):
                    for stream in range(REQUESTS):
                        statement = f"SELECT v FROM {keyspace}.t WHERE k = {stream % ROWS}"
                        slow.send(wire.QUERY, wire.query_body(statement, consistency=QUORUM), stream)
                # Each read has begun when a later one of another client is answered.
                for k in [*range(ROWS)] * 5:
                    assert len(cql.rows(session, "SELECT key FROM system.local")) == 1, k
                grown = cluster.node(1).resident_bytes() - before
                assert grown < GROWTH_MAX, f"{grown >> 20} MiB held for a client that does not read"
                slow.socket.settimeout(wire.SECONDS)
                for _ in range(5):
                    assert slow.recv().opcode in (wire.RESULT, wire.ERROR), "what was sent is answered once it is read"
            # The memory is free again: every row is read in full.
            for k in range(ROWS):
                assert cql.rows(session, f"SELECT v FROM {keyspace}.t WHERE k = {k}") == [(VALUE,)]
            peak = cluster.node(1).resident_bytes_peak() - before
            assert peak < 2 * GROWTH_MAX, f"{peak >> 20} MiB at the peak"
    finally:
        cluster.remove()
