"""The shard-aware fork of the Python driver (scylla-driver, in an environment of its own: .dev/venv-scylla)."""

import pytest
from cassandra import OperationTimedOut
from cassandra.cluster import NoHostAvailable

from harness import cql
from harness.cluster import eventually
from harness.forwarder import Forwarder
from harness.members import host_of

CONNECT_QUERIES_MAX = 20_000


@pytest.fixture
def scylla_session(server, keyspace):
    with cql.cluster(server) as cluster:
        yield cluster.connect(keyspace)


def test_it_creates_writes_and_reads(scylla_session):
    name = cql.unique("scylla")
    scylla_session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v text, l list<int>)")
    insert = scylla_session.prepare(f"INSERT INTO {name} (k, v, l) VALUES (?, ?, ?)")
    for k in range(100):
        scylla_session.execute(insert, (k, f"v{k}", [k, k + 1]))
    select = scylla_session.prepare(f"SELECT v, l FROM {name} WHERE k = ?")
    for k in range(100):
        assert cql.rows(scylla_session, select, (k,)) == [(f"v{k}", [k, k + 1])]
    select_all = scylla_session.prepare(f"SELECT k FROM {name}")
    select_all.fetch_size = 7
    assert sorted(k for (k,) in cql.rows(scylla_session, select_all)) == list(range(100))
    tables = scylla_session.cluster.metadata.keyspaces[scylla_session.keyspace].tables
    assert [column for column in tables[name].columns] == ["k", "l", "v"]
    scylla_session.execute(f"DROP TABLE {name}")


@pytest.mark.ceto_only("Cassandra has no shards")
def test_it_connects_to_every_shard_and_asks_the_owner(server, scylla_session):
    cluster = scylla_session.cluster
    assert cluster.is_shard_aware()

    def connected():
        (pool,) = cluster.shard_aware_stats().values()
        assert pool["shards_count"] == server.node.smp
        return pool["connected"] == server.node.smp

    # The pool opens its connections in the background; each question is a request, so this does not spin.
    for _ in range(CONNECT_QUERIES_MAX):
        if connected():
            break
        scylla_session.execute("SELECT key FROM system.local")
    assert connected(), cluster.shard_aware_stats()

    name = cql.unique("scylla")
    scylla_session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
    insert = scylla_session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    asked = set()
    for k in range(50):
        bound = insert.bind((k, k))
        future = scylla_session.execute_async(bound)
        future.result()
        token = cluster.metadata.token_map.token_class.from_key(bound.routing_key)
        (host,) = cluster.metadata.all_hosts()
        owner = host.sharding_info.shard_id_from_token(token.value)
        assert future._connection.features.shard_id == owner
        asked.add(owner)
    assert asked == set(range(server.node.smp))
    scylla_session.execute(f"DROP TABLE {name}")


@pytest.mark.ceto_only("Cassandra has no limits of partitions")
def test_it_is_told_what_was_limited(scylla_session):
    from cassandra import OperationType, RateLimitReached

    name = cql.unique("scylla")
    limits = "{'max_reads_per_second': 1, 'max_writes_per_second': 1}"
    scylla_session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int) WITH per_partition_rate_limit = {limits}")
    statements = {
        OperationType.Write: f"INSERT INTO {name} (k, v) VALUES (1, 1)",
        OperationType.Read: f"SELECT v FROM {name} WHERE k = 1",
    }
    for operation, statement in statements.items():
        with pytest.raises(RateLimitReached) as refused:
            for _ in range(10):
                scylla_session.execute(statement)
        assert refused.value.op_type == operation
    scylla_session.execute(f"DROP TABLE {name}")


@pytest.mark.ceto_only("Cassandra has no client routes")
def test_it_reaches_a_node_through_proxies_and_follows_their_routes(new_node):
    from cassandra.client_routes import ClientRouteProxy, ClientRoutesConfig

    node = new_node(smp=2).start()
    host_id = host_of(node)

    def lead_through(proxy):
        route = {"connection_id": "private", "host_id": host_id, "address": proxy.address, "port": proxy.port}
        assert node.api("/v2/client-routes", "POST", [route]) == (200, None)

    target = (node.host, node.port)
    routes = ClientRoutesConfig([ClientRouteProxy("private")])
    with Forwarder(target) as first, Forwarder(target) as second:
        lead_through(first)
        with cql.cluster(node, client_routes_config=routes) as driver:
            session = driver.connect()
            assert session.execute("SELECT key FROM system.local").one() is not None
            assert first.accepted > 0 and second.accepted == 0
            lead_through(second)
            first.close()

            def answers():
                try:
                    return session.execute("SELECT key FROM system.local").one() is not None and second.accepted > 0
                except (NoHostAvailable, OperationTimedOut):
                    return False

            eventually("the driver goes through the second proxy", answers)
