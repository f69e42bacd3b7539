"""Shards: what OPTIONS says of them, and how a connection reaches the one it wants."""

import contextlib

import pytest

from harness import cql, wire

pytestmark = pytest.mark.ceto_only("shards are ScyllaDB's extension of the protocol")

SOURCE_PORTS = range(49152, 65536)


def shard_of(token, shards, ignore_msb):
    biased = ((token + (1 << 63)) << ignore_msb) & ((1 << 64) - 1)
    return (biased * shards) >> 64


def test_options_describe_the_shards(server):
    with wire.Connection(server) as connection:
        offered = wire.supported(connection.ask(wire.OPTIONS))
    assert offered["SCYLLA_NR_SHARDS"] == [str(server.node.smp)]
    assert 0 <= int(offered["SCYLLA_SHARD"][0]) < server.node.smp
    assert offered["SCYLLA_SHARDING_ALGORITHM"] == ["biased-token-round-robin"]
    assert 0 <= int(offered["SCYLLA_SHARDING_IGNORE_MSB"][0]) < 64
    assert offered["SCYLLA_PARTITIONER"] == ["org.apache.cassandra.dht.Murmur3Partitioner"]
    assert offered["SCYLLA_SHARD_AWARE_PORT"] == [str(server.shard_aware_port)]


def test_the_shard_aware_port_places_a_connection_by_its_source_port(server):
    placed = 0
    for source_port in SOURCE_PORTS:
        with (
            contextlib.suppress(OSError),
            wire.Connection(server, port=server.shard_aware_port, source_port=source_port) as connection,
        ):
            offered = wire.supported(connection.ask(wire.OPTIONS))
            assert int(offered["SCYLLA_SHARD"][0]) == source_port % server.node.smp
            placed += 1
        if placed == 20:
            return
    raise AssertionError("no source port was free")


def test_connections_to_the_plain_port_are_spread_over_the_shards(server):
    shards = set()
    with contextlib.ExitStack() as stack:
        for _ in range(10 * server.node.smp):
            connection = stack.enter_context(wire.Connection(server))
            shards.add(wire.supported(connection.ask(wire.OPTIONS))["SCYLLA_SHARD"][0])
    assert shards == {str(shard) for shard in range(server.node.smp)}


def test_any_connection_serves_any_key(server, session, keyspace, table):
    name = table("k int PRIMARY KEY, v int")
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    for k in range(50):
        session.execute(insert, (k, k))
    with wire.Connection(server) as connection:
        offered = wire.supported(connection.ask(wire.OPTIONS))
    ignore_msb = int(offered["SCYLLA_SHARDING_IGNORE_MSB"][0])
    owners = {
        shard_of(token, server.node.smp, ignore_msb) for (token,) in cql.rows(session, f"SELECT token(k) FROM {name}")
    }
    assert owners == set(range(server.node.smp)), "the keys belong to all shards"
    for _ in range(2 * server.node.smp):
        with wire.Connection(server) as connection:
            connection.startup()
            for k in range(50):
                answer = connection.query(f"SELECT v FROM {keyspace}.{name} WHERE k = {k}", stream=k)
                assert answer.opcode == wire.RESULT
                assert answer.body.endswith(b"\0\0\0\4" + k.to_bytes(4, "big"))
