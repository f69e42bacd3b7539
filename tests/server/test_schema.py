"""DDL, the schema tables that drivers read, agreement, and events."""

import threading

import pytest

from harness import cql

REPLICATION = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
EVENT_SECONDS = 30


@pytest.fixture
def own_keyspace(session):
    name = cql.unique("own")
    session.execute(f"CREATE KEYSPACE {name} {REPLICATION}")
    yield name
    session.execute(f"DROP KEYSPACE IF EXISTS {name}")


def columns(session, keyspace, table):
    return {
        name: (kind, position, kind_of_type, order)
        for name, kind, position, kind_of_type, order in cql.rows(
            session,
            "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns"
            " WHERE keyspace_name = %s AND table_name = %s",
            (keyspace, table),
        )
    }


def test_local_describes_the_node(session, server):
    local = session.execute("SELECT * FROM system.local WHERE key = 'local'").one()
    assert local.key == "local"
    assert local.bootstrapped == "COMPLETED"
    assert local.partitioner == "org.apache.cassandra.dht.Murmur3Partitioner"
    assert local.rpc_address == server.host
    assert int(local.release_version.split(".")[0]) >= 4, "cqlsh asks such a node for DESCRIBE"
    assert local.cql_version.startswith("3.4.")
    assert local.native_protocol_version == "5"
    assert local.host_id and local.schema_version and local.tokens
    assert local.data_center and local.rack and local.cluster_name


def test_there_are_no_peers(session):
    assert cql.rows(session, "SELECT * FROM system.peers") == []


def test_a_table_is_described_in_the_schema_tables(session, own_keyspace):
    session.execute(
        f"CREATE TABLE {own_keyspace}.t (a int, b text, c timeuuid, d bigint, s int static, v list<text>,"
        " w frozen<map<int, text>>, PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)"
        " AND comment = 'of a test' AND default_time_to_live = 600 AND gc_grace_seconds = 77"
    )
    assert columns(session, own_keyspace, "t") == {
        "a": ("partition_key", 0, "int", "none"),
        "b": ("partition_key", 1, "text", "none"),
        "c": ("clustering", 0, "timeuuid", "desc"),
        "d": ("clustering", 1, "bigint", "asc"),
        "s": ("static", -1, "int", "none"),
        "v": ("regular", -1, "list<text>", "none"),
        "w": ("regular", -1, "frozen<map<int, text>>", "none"),
    }
    options = cql.rows(
        session,
        "SELECT comment, default_time_to_live, gc_grace_seconds, flags FROM system_schema.tables"
        " WHERE keyspace_name = %s AND table_name = 't'",
        (own_keyspace,),
    )
    assert [(comment, ttl, grace, set(flags)) for comment, ttl, grace, flags in options] == [
        ("of a test", 600, 77, {"compound"})
    ]


def test_a_keyspace_is_described_in_the_schema_tables(session, own_keyspace):
    def described():
        ((durable, replication),) = cql.rows(
            session,
            "SELECT durable_writes, replication FROM system_schema.keyspaces WHERE keyspace_name = %s",
            (own_keyspace,),
        )
        return durable, dict(replication)

    simple = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"}
    assert described() == (True, simple)
    session.execute(f"ALTER KEYSPACE {own_keyspace} {REPLICATION} AND durable_writes = false")
    assert described() == (False, simple)


def test_the_driver_reads_the_schema(server, own_keyspace, session):
    session.execute(f"CREATE TABLE {own_keyspace}.t (a int, b int, c text, PRIMARY KEY (a, b))")
    with cql.cluster(server) as cluster:
        cluster.connect()
        table = cluster.metadata.keyspaces[own_keyspace].tables["t"]
        assert [c.name for c in table.partition_key] == ["a"]
        assert [c.name for c in table.clustering_key] == ["b"]
        assert table.columns["c"].cql_type == "text"
        assert cluster.metadata.partitioner == "org.apache.cassandra.dht.Murmur3Partitioner"
        assert f"CREATE TABLE {own_keyspace}.t" in table.export_as_string()


def test_schema_changes_are_agreed_on(session, own_keyspace):
    def version():
        return session.execute("SELECT schema_version FROM system.local").one().schema_version

    before = version()
    answer = session.execute(f"CREATE TABLE {own_keyspace}.t (k int PRIMARY KEY)")
    assert answer.response_future.is_schema_agreed
    assert version() != before


def test_another_session_hears_of_schema_changes(server, session, own_keyspace):
    heard, arrived = [], threading.Condition()

    def listen(event):
        with arrived:
            heard.append((event["change_type"], event["target_type"], event.get("table")))
            arrived.notify_all()

    def hear(*expected):
        with arrived:
            assert arrived.wait_for(lambda: expected in heard, EVENT_SECONDS), f"heard only {heard}, not {expected}"

    with cql.cluster(server, schema_event_refresh_window=-1) as other:
        other.connect()
        other.control_connection._connection.register_watcher("SCHEMA_CHANGE", listen)
        session.execute(f"CREATE TABLE {own_keyspace}.heard (k int PRIMARY KEY)")
        hear("CREATED", "TABLE", "heard")
        session.execute(f"ALTER TABLE {own_keyspace}.heard ADD v int")
        hear("UPDATED", "TABLE", "heard")
        session.execute(f"DROP TABLE {own_keyspace}.heard")
        hear("DROPPED", "TABLE", "heard")
        session.execute(f"ALTER KEYSPACE {own_keyspace} WITH durable_writes = false")
        hear("UPDATED", "KEYSPACE", None)
        session.execute(f"DROP KEYSPACE {own_keyspace}")
        hear("DROPPED", "KEYSPACE", None)


def test_alter_table_adds_drops_and_renames(session, table, keyspace):
    name = table("k int, c int, v text, gone int, PRIMARY KEY (k, c)")
    session.execute(f"INSERT INTO {name} (k, c, v, gone) VALUES (1, 2, 'kept', 3)")
    session.execute(f"ALTER TABLE {name} ADD extra list<int>")
    session.execute(f"ALTER TABLE {name} DROP gone")
    session.execute(f"ALTER TABLE {name} RENAME c TO place")
    assert cql.rows(session, f"SELECT k, place, extra, v FROM {name}") == [(1, 2, None, "kept")]
    cql.refused(session, f"SELECT gone FROM {name}", cql.INVALID, "Undefined column name gone")
    session.execute(f"INSERT INTO {name} (k, place, extra) VALUES (1, 2, [7])")
    assert cql.rows(session, f"SELECT extra, v FROM {name}") == [([7], "kept")]
    session.execute(f"ALTER TABLE {name} WITH gc_grace_seconds = 5 AND comment = 'altered'")
    changed = "SELECT gc_grace_seconds, comment FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
    assert cql.rows(session, changed, (keyspace, name)) == [(5, "altered")]


def test_a_column_that_is_dropped_and_added_again_has_lost_its_values(session, table):
    name = table("k int PRIMARY KEY, v text")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 'old')")
    session.execute(f"ALTER TABLE {name} DROP v")
    session.execute(f"ALTER TABLE {name} ADD v text")
    assert cql.rows(session, f"SELECT k, v FROM {name}") == [(1, None)]
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 'new')")
    assert cql.rows(session, f"SELECT k, v FROM {name}") == [(1, "new")]


def test_truncate_empties_a_table(session, table):
    name = table("k int PRIMARY KEY")
    for k in range(10):
        session.execute(f"INSERT INTO {name} (k) VALUES ({k})")
    session.execute(f"TRUNCATE {name}")
    assert cql.rows(session, f"SELECT * FROM {name}") == []
    session.execute(f"INSERT INTO {name} (k) VALUES (1)")
    assert cql.rows(session, f"SELECT * FROM {name}") == [(1,)]


def test_if_not_exists_and_if_exists_are_quiet(session, own_keyspace):
    for _ in range(2):
        session.execute(f"CREATE KEYSPACE IF NOT EXISTS {own_keyspace} {REPLICATION}")
        session.execute(f"CREATE TABLE IF NOT EXISTS {own_keyspace}.t (k int PRIMARY KEY)")
    for _ in range(2):
        session.execute(f"DROP TABLE IF EXISTS {own_keyspace}.t")
        session.execute(f"DROP KEYSPACE IF EXISTS {own_keyspace}")


def test_a_prepared_select_of_everything_sees_a_new_column(server, keyspace, table):
    # Protocol v5 tells the driver in the answer that the columns have changed (result metadata id).
    name = table("k int PRIMARY KEY")
    with cql.cluster(server, protocol_version=5) as cluster:
        session = cluster.connect(keyspace)
        select = session.prepare(f"SELECT * FROM {name}")
        session.execute(f"INSERT INTO {name} (k) VALUES (1)")
        assert cql.rows(session, select) == [(1,)]
        session.execute(f"ALTER TABLE {name} ADD v text")
        session.execute(f"UPDATE {name} SET v = 'x' WHERE k = 1")
        assert cql.rows(session, select) == [(1, "x")]


NAMES = ["Capital", 'quo""ted', "with space", "select", "ünï"]


@pytest.mark.parametrize("column", NAMES)
def test_quoted_column_names_keep_their_letters(session, table, column):
    name = table(f'k int PRIMARY KEY, "{column}" int')
    session.execute(f'INSERT INTO {name} (k, "{column}") VALUES (1, 2)')
    answer = session.execute(f'SELECT "{column}" FROM {name}')
    assert answer.column_names == [column.replace('""', '"')]


REFUSED_DDL = [
    ("CREATE KEYSPACE {ks} " + REPLICATION, cql.ALREADY_EXISTS, "already exists"),
    ("CREATE TABLE {ks}.t (k int PRIMARY KEY)", cql.ALREADY_EXISTS, "already exists"),
    ("CREATE TABLE nowhere.t (k int PRIMARY KEY)", cql.INVALID, "Keyspace 'nowhere' doesn't exist"),
    ("CREATE TABLE {ks}.u (k int)", cql.INVALID, "(exactly one required)"),
    ("CREATE TABLE {ks}.u (k int PRIMARY KEY, v nothing)", cql.INVALID, "Unknown type"),
    ("CREATE TABLE {ks}.u (k int PRIMARY KEY, k text)", cql.INVALID, "Duplicate column 'k' declaration"),
    (
        "CREATE TABLE {ks}.u (k int, PRIMARY KEY (missing))",
        cql.INVALID,
        "Unknown column 'missing' referenced in PRIMARY KEY",
    ),
    ("CREATE TABLE {ks}.u (k list<int> PRIMARY KEY)", cql.INVALID, "Invalid non-frozen collection type"),
    (
        "CREATE TABLE {ks}.u (k int PRIMARY KEY, v list<list<int>>)",
        cql.INVALID,
        "Non-frozen collections are not allowed inside collections",
    ),
    (
        "CREATE TABLE {ks}.u (k int PRIMARY KEY, s int static)",
        cql.INVALID,
        "Static columns are only useful (and thus allowed) if the table has at least one clustering column",
    ),
    ("CREATE TABLE {ks}.u (k int PRIMARY KEY) WITH nonsense = 1", cql.SYNTAX, "Unknown property 'nonsense'"),
    ("CREATE TABLE {ks}.u (k int PRIMARY KEY) WITH gc_grace_seconds = 'x'", cql.SYNTAX, "gc_grace_seconds"),
    ("CREATE KEYSPACE u WITH replication = {'class': 'Nonsense', 'replication_factor': 1}", cql.CONFIG, "Nonsense"),
    ("CREATE KEYSPACE u replication = {}", cql.SYNTAX, "expecting K_WITH"),
    ("ALTER KEYSPACE nowhere WITH durable_writes = true", cql.INVALID, "Keyspace 'nowhere' doesn't exist"),
    ("ALTER TABLE {ks}.nothing ADD v int", cql.INVALID, "doesn't exist"),
    ("ALTER TABLE {ks}.t ADD k int", cql.INVALID, "Column with name 'k' already exists"),
    ("ALTER TABLE {ks}.t DROP k", cql.INVALID, "Cannot drop PRIMARY KEY column k"),
    ("ALTER TABLE {ks}.t DROP nothing", cql.INVALID, "Column nothing was not found in table"),
    ("ALTER TABLE {ks}.t RENAME nothing TO some", cql.INVALID, "Undefined column name nothing in table"),
    ("DROP TABLE {ks}.nothing", cql.INVALID, "doesn't exist"),
    ("DROP KEYSPACE nowhere", cql.INVALID, "Keyspace 'nowhere' doesn't exist"),
    ("TRUNCATE {ks}.nothing", cql.INVALID, "nothing"),
    ("DROP KEYSPACE system", cql.UNAUTHORIZED, "system keyspace is not user-modifiable"),
    ("CREATE TABLE system.t (k int PRIMARY KEY)", cql.UNAUTHORIZED, "system keyspace is not user-modifiable"),
]


@pytest.mark.parametrize("statement, code, words", REFUSED_DDL, ids=[s for s, _, _ in REFUSED_DDL])
def test_wrong_ddl_is_refused(session, own_keyspace, statement, code, words):
    session.execute(f"CREATE TABLE {own_keyspace}.t (k int PRIMARY KEY)")
    cql.refused(session, statement.replace("{ks}", own_keyspace), code, words)

def test_a_row_of_dropped_columns_only_is_not_there(session, table):
    name = table("k int PRIMARY KEY, a int, b int")
    session.execute(f"UPDATE {name} SET a = 1 WHERE k = 1")
    session.execute(f"UPDATE {name} SET b = 2 WHERE k = 2")
    session.execute(f"ALTER TABLE {name} DROP a")
    assert cql.rows(session, f"SELECT k, b FROM {name}") == [(2, 2)]
    session.execute(f"ALTER TABLE {name} ADD a int")
    assert cql.rows(session, f"SELECT k, a FROM {name}") == [(2, None)]
