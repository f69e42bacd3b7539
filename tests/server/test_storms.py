"""Thousands of connections at once: who works is served, who is let in becomes ready, and who is too many is told so at once."""

import contextlib
import random
import socket
import threading

import pytest
from cassandra import ConsistencyLevel

from harness import Node, cql, wire
from harness.cluster import eventually
from harness.load import steady_reads
from harness.node import runtime_available
from harness.storm import OF_DRIVERS, silent, storm

pytestmark = pytest.mark.ceto_only("nodes of our own are started")

STORM = 2_000
# What a shard lets in that is not ready.
UNINITIALIZED_MAX = 4096
MEBIBYTE = 1 << 20


@contextlib.contextmanager
def reading(node, level=ConsistencyLevel.QUORUM):
    """A steady load of reads on a table of its own."""
    with cql.cluster(node.server) as cluster, steady_reads(cluster.connect(), level, replicas=1) as reads:
        yield reads


def counted(node, name):
    """A metric, over all shards."""
    return sum(value for key, value in node.metrics().items() if key.startswith(f"ceto_{name}{{"))


@pytest.mark.parametrize("level", [ConsistencyLevel.ONE, ConsistencyLevel.QUORUM], ids=["ONE", "QUORUM"])
@pytest.mark.parametrize("runtime", ["io_uring", "epoll"])
def test_a_storm_of_connections_costs_those_who_work_no_request(runtime, level):
    # Some kernels and containers refuse io_uring; the node falls back to epoll there, which nobody refuses.
    if not runtime_available(runtime):
        pytest.skip(f"no {runtime} here")
    with Node(smp=2, runtime=runtime) as node, reading(node, level) as reads:
        reads.wait_for_more(100)
        outcomes = []
        storming = threading.Thread(target=lambda: outcomes.append(storm(node.host, node.port, STORM, OF_DRIVERS)))
        storming.start()
        with cql.cluster(node.server) as driver:
            session = driver.connect()
            assert cql.rows(session, session.prepare(reads.statement), (1,)) == [("one",)], "a driver in the middle of it"
        reads.wait_for_more(100)
        storming.join()
        (outcome,) = outcomes
        reads.wait_for_more(100)
        assert not reads.errors, f"reads of connections that were there before: {reads.errors[:3]}"
        assert (outcome.ready, outcome.shed, outcome.broken, outcome.unanswered) == (STORM, 0, 0, 0), outcome
        assert counted(node, "cql_connections_shed_total") == 0, "a connection under the bound was shed"
        assert counted(node, "cql_handshakes_total") > STORM
        assert counted(node, "cql_connections_accepted_total") >= counted(node, "cql_handshakes_total")
        assert counted(node, "group_run_seconds_total") > 0
        assert any('group="sl:driver"' in name for name in node.metrics()), "the storm ran in a group of its own"


def test_what_is_too_many_is_shed_and_the_rest_goes_on():
    uninitialized = "cql_connections_uninitialized"
    with Node(smp=1) as node, reading(node) as reads, silent(node.host, node.port, UNINITIALIZED_MAX - 50):
        with silent(node.host, node.port, 50):
            eventually("all are accepted", lambda: counted(node, uninitialized) == UNINITIALIZED_MAX)
            assert counted(node, "cql_connections_shed_total") == 0, "one under the bound was shed"
            outcome = storm(node.host, node.port, 100)
            assert (outcome.ready, outcome.shed) == (0, 100), f"above the bound: {outcome}"
            assert counted(node, "cql_connections_shed_total") == 100
            reads.wait_for_more(100)
        eventually("their ends are noticed", lambda: counted(node, uninitialized) <= UNINITIALIZED_MAX - 50)
        assert storm(node.host, node.port, 50, OF_DRIVERS).ready == 50, "there is room again"
        assert not reads.errors, f"reads of connections that were there before: {reads.errors[:3]}"


def test_the_table_of_clients_says_who_drives_and_who_works():
    with Node(smp=2) as node, reading(node) as reads, cql.cluster(node.server) as driver:
        session = driver.connect()
        reads.wait_for_more(10)
        silent = socket.create_connection((node.host, node.port))
        with silent:
            statement = (
                "SELECT port, connection_stage, scheduling_group, driver_name, protocol_version, shard_id, client_type, "
                "ssl_enabled, username FROM system.clients"
            )
            clients = {}

            def is_listed():
                clients.update({client.port: client for client in session.execute(statement)})
                return own(silent) in clients

            eventually("it is listed", is_listed)
            quiet = clients.pop(own(silent))
            assert (quiet.connection_stage, quiet.driver_name, quiet.protocol_version) == ("ESTABLISHED", None, None)
            assert {c.connection_stage for c in clients.values()} == {"READY"}
            assert {c.scheduling_group for c in clients.values()} == {"sl:driver", "statement"}
            assert {c.protocol_version for c in clients.values()} == {4}
            assert all("Python" in c.driver_name for c in clients.values()), clients
            assert {c.shard_id for c in clients.values()} <= {0, 1}
            assert {(c.client_type, c.ssl_enabled, c.username) for c in clients.values()} == {("cql", False, "anonymous")}


def own(connection):
    return connection.getsockname()[1]


def unread(host, port, request, count):
    """A connection that sends requests and takes no answers: what its system takes without it is little."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, port))
    startup = wire.frame(wire.STARTUP, wire.string_map({"CQL_VERSION": "3.0.0"}))
    client.sendall(startup + request * count)
    return client


def half_sent(host, port, bytes_sent):
    """A connection that has sent a part of a request of 16 MiB, as far as the node takes it."""
    client = socket.create_connection((host, port))
    client.sendall(wire.frame(wire.STARTUP, wire.string_map({"CQL_VERSION": "3.0.0"})))
    client.settimeout(0.05)
    head = wire.HEADER.pack(4, 0, 1, wire.QUERY, 16 * MEBIBYTE - wire.HEADER.size)
    with contextlib.suppress(TimeoutError, ConnectionError):
        client.sendall(head + b"a" * bytes_sent)
    return client


def test_clients_that_stop_half_way_take_a_bounded_memory_and_it_is_given_back():
    with Node(smp=1, memory="256M") as node, reading(node) as reads, cql.cluster(node.server) as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.large (k int, c int, v blob, PRIMARY KEY (k, c))")
        insert = session.prepare("INSERT INTO ks.large (k, c, v) VALUES (0, ?, ?)")
        for row in range(8):
            session.execute(insert, (row, random.Random(row).randbytes(MEBIBYTE)))
        before = node.resident_bytes()
        with contextlib.ExitStack() as held:
            for _ in range(100):
                held.enter_context(half_sent(node.host, node.port, 15 * MEBIBYTE))
            request = wire.frame(wire.QUERY, wire.query_body("SELECT * FROM ks.large WHERE k = 0"))
            for _ in range(40):
                held.enter_context(unread(node.host, node.port, request, 20))
            reads.wait_for_more(1000)
            taken = "is closed: it has taken"
            eventually("a client that takes nothing is closed", lambda: any(taken in line for line in node.lines))
        reads.wait_for_more(100)
        assert not reads.errors, f"reads of a client that behaves: {reads.errors[:3]}"
        limit = 256 * MEBIBYTE * 115 // 100
        assert node.resident_bytes_peak() <= limit, f"{node.resident_bytes_peak()} bytes of {limit}"
        # Pages of the cache stay; a tenth of the memory is more than they are.
        most = before + 256 * MEBIBYTE // 10
        eventually("the memory is given back", lambda: node.resident_bytes() <= most, seconds=10)
        for part in ("requests", "results", "unsent", "frames"):
            name = f'ceto_cql_memory_bytes{{shard="0",kind="{part}"}}'
            eventually(f"no {part} are left", lambda name=name: node.metrics()[name] == 0)
