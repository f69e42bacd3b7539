"""An unmodified driver connects, whatever protocol version and compression it chooses."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql, wire


@pytest.mark.parametrize("compression", [False, "lz4", "snappy"], ids=["plain", "lz4", "snappy"])
@pytest.mark.parametrize("protocol_version", [3, 4, 5])
def test_a_driver_reads_and_writes(server, keyspace, protocol_version, compression):
    name = cql.unique("t")
    long_text = "repeat after me " * 20_000  # several v5 segments, and worth compressing
    with cql.cluster(server, protocol_version=protocol_version, compression=compression) as cluster:
        session = cluster.connect(keyspace)
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v text)")
        session.execute(f"INSERT INTO {name} (k, v) VALUES (%s, %s)", (1, "simple"))
        insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
        session.execute(insert, (2, long_text))
        select = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
        assert cql.rows(session, select, (1,)) == [("simple",)]
        assert cql.rows(session, select, (2,)) == [(long_text,)]
        session.execute(f"DROP TABLE {name}")


def test_a_driver_that_asks_for_the_newest_version_falls_back(server):
    # Without a chosen version the driver starts at its highest and follows the server's refusals down.
    from cassandra.cluster import Cluster, ExecutionProfile, EXEC_PROFILE_DEFAULT
    from cassandra.policies import RoundRobinPolicy

    profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=RoundRobinPolicy())}
    with Cluster([server.host], port=server.port, execution_profiles=profiles) as cluster:
        assert cql.rows(cluster.connect(), "SELECT key FROM system.local") == [("local",)]
        assert cluster.protocol_version == 5


@pytest.mark.parametrize("version", [7, 66, 127])
def test_an_unsupported_version_is_refused_with_one_that_is_spoken(server, version):
    with wire.Connection(server, version) as connection:
        connection.send(wire.OPTIONS)
        answer = connection.recv()
        code, message = answer.error
        assert code == cql.PROTOCOL
        assert "Invalid or unsupported protocol version" in message
        assert answer.version in (3, 4, 5), "the answer's version is the one to fall back to"


def test_options_name_what_the_server_offers(server):
    with wire.Connection(server) as connection:
        offered = wire.supported(connection.ask(wire.OPTIONS))
    assert set(offered["COMPRESSION"]) >= {"lz4", "snappy"}
    assert offered["CQL_VERSION"][0].startswith("3.")


def test_startup_accepts_options_that_it_does_not_know(server):
    with wire.Connection(server) as connection:
        answer = connection.startup(DRIVER_NAME="a test", DRIVER_VERSION="0", WHATEVER="ignored", CLIENT_OPTIONS="{}")
        assert answer.opcode == wire.READY


def test_an_unknown_compression_is_refused(server):
    with wire.Connection(server) as connection:
        code, message = connection.startup(COMPRESSION="brotli").error
        assert code == cql.PROTOCOL
        assert "Unknown compression algorithm: brotli" in message


def test_a_request_before_startup_is_refused(server):
    with wire.Connection(server) as connection:
        connection.send(wire.QUERY, wire.query_body("SELECT * FROM system.local"))
        code, message = connection.recv().error  # Cassandra answers on stream 0
        assert code == cql.PROTOCOL
        assert "expecting STARTUP" in message


def test_answers_find_their_requests_when_many_are_in_flight(session, table):
    name = table("k int PRIMARY KEY, v int")
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    for future in [session.execute_async(insert, (k, k * k)) for k in range(500)]:
        future.result()
    select = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
    futures = [session.execute_async(select, (k,)) for k in range(500)]
    assert [future.result().one().v for future in futures] == [k * k for k in range(500)]


CONSISTENCY = ["ANY", "ONE", "TWO", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"]


@pytest.mark.parametrize("level", CONSISTENCY)
def test_each_consistency_level_works_or_says_why_not(session, table, level):
    name = table("k int PRIMARY KEY")
    insert = SimpleStatement(f"INSERT INTO {name} (k) VALUES (1)", consistency_level=getattr(ConsistencyLevel, level))
    if level == "TWO":  # one replica cannot be two
        cql.refused(session, insert, cql.UNAVAILABLE, "Cannot achieve consistency level TWO")
    else:
        session.execute(insert)
        assert cql.rows(session, f"SELECT k FROM {name}") == [(1,)]


@pytest.mark.parametrize(
    "level, words", [("ANY", "ANY ConsistencyLevel is only supported for writes"), ("SERIAL", None)]
)
def test_a_read_at_a_level_for_writes_is_refused(session, table, level, words):
    name = table("k int PRIMARY KEY")
    select = SimpleStatement(f"SELECT k FROM {name} WHERE k = 1", consistency_level=getattr(ConsistencyLevel, level))
    if words:
        cql.refused(session, select, cql.INVALID, words)
    else:
        assert cql.rows(session, select) == []


def test_tracing_is_accepted(session):
    # Asking for a trace must not disturb the answer; the driver reads the trace id out of the response.
    answer = session.execute("SELECT key FROM system.local", trace=True)
    assert [tuple(row) for row in answer] == [("local",)]
    assert answer.response_future._query_traces


def test_a_custom_payload_is_accepted(session):
    payload = {"who": b"a test", "empty": b""}
    answer = session.execute("SELECT key FROM system.local", custom_payload=payload)
    assert [tuple(row) for row in answer] == [("local",)]


def test_named_and_positional_values(server, keyspace, session, table):
    name = table("k int PRIMARY KEY, a text, b text")
    insert = session.prepare(f"INSERT INTO {name} (k, a, b) VALUES (:key, :first, :second)")
    session.execute(insert, {"second": "b", "first": "a", "key": 1})
    session.execute(f"INSERT INTO {name} (k, a, b) VALUES (%(key)s, %(a)s, %(b)s)", {"b": "B", "a": "A", "key": 2})
    assert sorted(cql.rows(session, f"SELECT * FROM {name}")) == [(1, "a", "b"), (2, "A", "B")]


def test_use_changes_the_keyspace_of_the_session(cluster, keyspace, table):
    name = table("k int PRIMARY KEY")
    session = cluster.connect()
    cql.refused(session, f"SELECT * FROM {name}", cql.INVALID, "No keyspace has been specified")
    session.execute(f"USE {keyspace}")
    assert cql.rows(session, f"SELECT * FROM {name}") == []
    cql.refused(session, "USE nowhere", cql.INVALID, "Keyspace 'nowhere' does not exist")
    session.shutdown()


def test_a_warning_reaches_the_client(server, keyspace, table):
    name = table("k int PRIMARY KEY")
    with cql.cluster(server) as cluster:
        future = cluster.connect(keyspace).execute_async(f"SELECT COUNT(*) FROM {name}")
        assert [tuple(row) for row in future.result()] == [(0,)]
        assert future.warnings == ["Aggregation query used without partition key"]


OF_ALL = ["Aggregation query used without partition key"]
OF_SEVERAL = ["Aggregation query used on multiple partition keys (IN restriction)"]


@pytest.mark.parametrize(
    "where, values, warnings",
    [
        ("", (), OF_ALL),
        ("WHERE v = 1 ALLOW FILTERING", (), OF_ALL),
        ("WHERE token(k) > ? AND token(k) <= ?", (0, 9), []),
        ("WHERE k > 1 ALLOW FILTERING", (), []),
        ("WHERE k = 1", (), []),
        ("WHERE k IN (1)", (), []),
        ("WHERE k IN (1, 2)", (), OF_SEVERAL),
        ("WHERE k IN ?", ([1, 2],), OF_SEVERAL),
        ("WHERE k IN (?, ?)", (1, 2), OF_SEVERAL),
        ("WHERE k IN (1, 2) GROUP BY k", (), OF_SEVERAL),
    ],
)
def test_an_aggregate_over_several_partitions_is_warned_of(server, keyspace, table, where, values, warnings):
    name = table("k int PRIMARY KEY, v int")
    with cql.cluster(server) as cluster:
        session = cluster.connect(keyspace)
        future = session.execute_async(session.prepare(f"SELECT count(*) FROM {keyspace}.{name} {where}"), values)
        future.result()
        assert (future.warnings or []) == warnings
