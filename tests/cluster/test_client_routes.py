"""Client routes: what an operator says at one node, the drivers of all nodes hear, and read in `system.client_routes`."""

import struct
from uuid import UUID

from harness import Cluster, cql, wire
from harness.events import Listener

PATH = "/v2/client-routes"
FIRST, SECOND = "8ad27d74-8f8b-4bb4-9af7-7650a6cddf01", "8ad27d74-8f8b-4bb4-9af7-7650a6cddf02"


def route(connection_id, host_id, **more):
    return {"connection_id": connection_id, "host_id": host_id, "address": "proxy.example", "port": 19042} | more


def key(connection_id, host_id):
    return {"connection_id": connection_id, "host_id": host_id}


def event(*pairs):
    """The body of the event that names these routes."""

    def strings(texts):
        return struct.pack(">H", len(texts)) + b"".join(map(wire.string, texts))

    connection_ids, host_ids = zip(*pairs, strict=True)
    return wire.string("CLIENT_ROUTES_CHANGE") + wire.string("UPDATE_NODES") + strings(connection_ids) + strings(host_ids)


def hears(listener, *pairs):
    listener.hears(event(*pairs))


def stored(cluster, number):
    with cluster.driver(only=number) as driver:
        columns = "connection_id, host_id, address, port, tls_port, alternator_port, alternator_https_port"
        return sorted(cql.rows(driver.connect(), f"SELECT {columns} FROM system.client_routes"))


def test_a_change_at_one_node_reaches_the_drivers_of_all(request):
    with Cluster(2, smp=2, runtime=request.config.getoption("--runtime")) as cluster:
        one, two = cluster
        with (
            Listener(two, "CLIENT_ROUTES_CHANGE") as v4,
            Listener(two, "STATUS_CHANGE", "CLIENT_ROUTES_CHANGE", version=5) as v5,
            Listener(one, "CLIENT_ROUTES_CHANGE") as at_one,
            Listener(two, "SCHEMA_CHANGE", "TOPOLOGY_CHANGE") as other,
        ):
            heard_by = (v4, v5, at_one)
            wanted = [route("west", FIRST), route("east", SECOND), route("east", FIRST, tls_port=19142)]
            assert one.api(PATH, "POST", wanted) == (200, None)
            for listener in heard_by:
                hears(listener, ("east", FIRST), ("east", SECOND), ("west", FIRST))
            rows = [
                ("east", UUID(FIRST), "proxy.example", 19042, 19142, None, None),
                ("east", UUID(SECOND), "proxy.example", 19042, None, None, None),
                ("west", UUID(FIRST), "proxy.example", 19042, None, None, None),
            ]
            assert stored(cluster, 1) == stored(cluster, 2) == rows
            # What is put as it was is no change: the next event is that of the next change.
            assert one.api(PATH, "POST", [route("west", FIRST)]) == (200, None)
            assert two.api(PATH, "POST", [route("east", FIRST)]) == (200, None)
            assert two.api(PATH, "DELETE", [key("east", SECOND), key("north", FIRST)]) == (200, None)
            for listener in heard_by:
                hears(listener, ("east", FIRST))
                hears(listener, ("east", SECOND))
                listener.hears_nothing()
            other.hears_nothing()
        left = [route("east", FIRST), route("west", FIRST)]
        assert two.api(PATH) == (200, left)
        with cluster.driver(only=2) as driver:
            session = driver.connect()
            read = "SELECT host_id, port FROM system.client_routes WHERE connection_id = %s AND host_id IN (%s, %s)"
            assert cql.rows(session, read, ("east", UUID(FIRST), UUID(SECOND))) == [(UUID(FIRST), 19042)]
            insert = f"INSERT INTO system.client_routes (connection_id, host_id, address) VALUES ('x', {FIRST}, 'y')"
            cql.refused(session, insert, cql.INVALID, "Modification is not supported by table system.client_routes")
        for number in (1, 2):
            cluster.restart(number)
        assert [row[:2] for row in stored(cluster, 2)] == [("east", UUID(FIRST)), ("west", UUID(FIRST))]
        assert one.api(PATH) == (200, left)


REFUSED = {
    "no array": ({}, "expected a JSON array of client routes"),
    "an unknown field": ([route("c", FIRST, rack="r")], "client route 1: unknown field 'rack'"),
    "no UUID": ([route("c", "node-1")], "client route 1: host_id: expected a UUID, got 'node-1'"),
    "a port beyond the last": (
        [route("c", FIRST), route("d", FIRST, tls_port=65536)],
        "client route 2: tls_port: expected a number from 1 to 65535, got 65536",
    ),
    "an empty address": ([route("c", FIRST, address="")], "client route 1: address is empty"),
    "an address that is too long": ([route("c", FIRST, address="a" * 256)], "has 256 bytes; 255 are the most"),
    "a route twice": ([route("c", FIRST), route("c", FIRST)], "client route 2: connection 'c'"),
}


def test_bad_routes_are_refused_and_nothing_of_the_request_is_taken(cluster):
    node = cluster.node(1)
    for name, (body, message) in REFUSED.items():
        status, answer = node.api(PATH, "POST", body)
        assert (status, answer["code"]) == (400, 400), name
        assert message in answer["message"], name
    status, answer = node.api(PATH, "DELETE", [route("c", FIRST)])
    assert status == 400 and "unknown field 'address'" in answer["message"]
    assert node.api(PATH) == (200, [])
