"""Statements that change tables: types that change under data, tables made like others, and options that the node obeys."""

import uuid

import pytest

from harness import cql
from harness.cluster import eventually
from harness.node import Node

REPLICATION = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"

MILLIS = 1_700_000_000_123
TIME_UUID = uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f")

# Column, old type, new type, a literal of the old type, what it is then, another literal of the new type, what that is.
CHANGES = [
    ("va", "ascii", "text", "'old'", "old", "'ne\u00fc'", "ne\u00fc"),
    ("vb", "text", "blob", "'old'", b"old", "0xff", b"\xff"),
    ("vc", "bigint", "timestamp", str(MILLIS), MILLIS, str(MILLIS + 1), MILLIS + 1),
    ("vd", "timestamp", "bigint", str(MILLIS), MILLIS, "-5", -5),
    ("ve", "timeuuid", "uuid", str(TIME_UUID), TIME_UUID, "00000000-0000-4000-8000-000000000001", uuid.UUID(int=0x40008000000000000001)),
    ("vf", "varint", "blob", "258", b"\x01\x02", "0x", b""),
    # Values that were written before lack the last one.
    ("vh", "tuple<int, int>", "frozen<tuple<int, int, text>>", "(1, 2)", (1, 2, None), "(3, 4, 'five')", (3, 4, "five")),
    ("vg", "frozen<list<int>>", "blob", "[1]", b"\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01", "0x00", b"\x00"),
]


def shown(cql_type, column):
    """How a column is read, so that a timestamp comes as a number."""
    return f"toUnixTimestamp({column})" if cql_type == "timestamp" else column


def values(session, key):
    selected = ", ".join(shown(new, name) for name, _, new, *_ in CHANGES)
    (row,) = cql.rows(session, f"SELECT {selected} FROM d.t WHERE k = '{key}' AND c = '{key}'")
    return list(row)


@pytest.mark.ceto_only("Cassandra changes no types")
def test_a_type_changes_under_rows_in_memory_in_files_and_in_the_log():
    old = [old for *_, old, _, _ in CHANGES]
    new = [new for *_, new in CHANGES]
    with Node(smp=1) as node:
        with cql.cluster(node.server) as driver:
            session = driver.connect()
            session.execute(f"CREATE KEYSPACE d {REPLICATION}")
            columns = ", ".join(f"{name} {before}" for name, before, *_ in CHANGES)
            session.execute(f"CREATE TABLE d.t (k ascii, c ascii, {columns}, PRIMARY KEY (k, c))")
            names = ", ".join(name for name, *_ in CHANGES)
            literals = ", ".join(change[3] for change in CHANGES)
            session.execute(f"INSERT INTO d.t (k, c, {names}) VALUES ('file', 'file', {literals})")
            node.nodetool("flush")
            session.execute(f"INSERT INTO d.t (k, c, {names}) VALUES ('memory', 'memory', {literals})")
            prepared = session.prepare("SELECT va FROM d.t WHERE k = ? AND c = ?")
            for name, _, after, *_ in CHANGES:
                session.execute(f"ALTER TABLE d.t ALTER {name} TYPE {after}")
            for key in "kc":
                session.execute(f"ALTER TABLE d.t ALTER {key} TYPE text")
            assert values(session, "file") == old
            assert values(session, "memory") == old
            assert cql.rows(session, prepared, ("file", "file")) == [("old",)]
            literals = ", ".join(change[5] for change in CHANGES)
            session.execute(f"INSERT INTO d.t (k, c, {names}) VALUES ('n\u00fc', 'n\u00fc', {literals})")
        node.kill9()
        node.start()
        with cql.cluster(node.server) as driver:
            session = driver.connect()
            for _ in range(2):
                assert values(session, "file") == old
                assert values(session, "memory") == old
                assert values(session, "n\u00fc") == new
                node.nodetool("flush")
                node.nodetool("compact", "d")
            cql.refused(session, "ALTER TABLE d.t ALTER vb TYPE text", cql.INVALID, "from type blob to type text: types are incompatible")
            cql.refused(session, "ALTER TABLE d.t ALTER nope TYPE text", cql.INVALID, "Column nope was not found")
            types = dict(cql.rows(session, "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = 'd'"))
            assert types == {"k": "text", "c": "text"} | {name: after for name, _, after, *_ in CHANGES}


@pytest.mark.ceto_only("Cassandra changes no types")
def test_types_of_keys_change_and_rows_stay_in_their_places():
    with Node(smp=2) as node:

        def run(*statements):
            with cql.cluster(node.server) as driver:
                session = driver.connect()
                return [cql.rows(session, statement) for statement in statements]

        run(
            f"CREATE KEYSPACE d {REPLICATION}",
            "CREATE TABLE d.t (a int, b timeuuid, c bigint, d text, v int, PRIMARY KEY ((a, b), c, d))"
            " WITH CLUSTERING ORDER BY (c DESC, d ASC)",
            *(
                f"INSERT INTO d.t (a, b, c, d, v) VALUES ({a}, {TIME_UUID}, {c}, '{d}', {c})"
                for a in range(8)
                for c in (-1, 0, 5)
                for d in ("x", "yy")
            ),
        )
        node.nodetool("flush")
        run("UPDATE d.t SET v = 7 WHERE a = 3 AND b = 50554d6e-29bb-11e5-b345-feff819cdc9f AND c = 5 AND d = 'x'")
        changes = ("a TYPE blob", "b TYPE uuid", "c TYPE timestamp", "d TYPE blob")
        run(*(f"ALTER TABLE d.t ALTER {change}" for change in changes))
        partition = f"a = 0x00000003 AND b = {TIME_UUID}"
        for step in ("memory", "log", "file", "compacted"):
            found, row, slice_, every = run(
                f"SELECT toUnixTimestamp(c), d, v FROM d.t WHERE {partition}",
                f"SELECT v FROM d.t WHERE {partition} AND c = 5 AND d = 0x78",
                f"SELECT v FROM d.t WHERE {partition} AND c < 5",
                "SELECT count(*) FROM d.t",
            )
            expected = [(c, d, c) for c in (5, 0, -1) for d in (b"x", b"yy")]
            assert found == [(5, b"x", 7), *expected[1:]], step
            assert (row, slice_, every) == ([(7,)], [(0,), (0,), (-1,), (-1,)], [(48,)]), step
            if step == "memory":
                node.kill9()
                node.start()
            if step == "log":
                node.nodetool("flush")
            if step == "file":
                node.nodetool("compact", "d")


@pytest.mark.ceto_only("Cassandra 5.0 makes no table like another")
def test_a_table_is_made_like_another(session, keyspace, table):
    source = table(
        "k int, c int, s int static, v list<int>, gone int, PRIMARY KEY (k, c)",
        " WITH CLUSTERING ORDER BY (c DESC) AND comment = 'source' AND gc_grace_seconds = 5",
    )
    session.execute(f"ALTER TABLE {source} DROP gone")
    session.execute(f"INSERT INTO {source} (k, c, s, v) VALUES (1, 2, 3, [4])")
    copy = cql.unique("copy")
    session.execute(f"CREATE TABLE {copy} LIKE {source} WITH comment = 'copy'")
    try:
        assert cql.rows(session, f"SELECT * FROM {copy}") == [], "the data is not copied"
        session.execute(f"INSERT INTO {copy} (k, c, s, v) VALUES (1, 2, 3, [4])")
        assert cql.rows(session, f"SELECT k, c, s, v FROM {copy}") == [(1, 2, 3, [4])]
        (text,) = [row[-1] for row in session.execute(f"DESCRIBE TABLE {copy}")]
        (of_source,) = [row[-1] for row in session.execute(f"DESCRIBE TABLE {source}")]
        assert text == of_source.replace(source, copy).replace("'source'", "'copy'")
        session.execute(f"CREATE TABLE IF NOT EXISTS {copy} LIKE {source}")
        cql.refused(session, f"CREATE TABLE {copy} LIKE {source}", cql.ALREADY_EXISTS, "already exists")
        cql.refused(session, "CREATE TABLE other LIKE nope", cql.INVALID, "doesn't exist")
        cql.refused(session, "CREATE TABLE other LIKE system.local", cql.INVALID, "system")
    finally:
        session.execute(f"DROP TABLE {copy}")


@pytest.mark.ceto_only("a keyspace needs its replication in Cassandra")
def test_a_keyspace_without_replication_has_a_copy_on_each_rack(session):
    name = cql.unique("ks")
    session.execute(f"CREATE KEYSPACE {name}")
    try:
        ((replication,),) = cql.rows(
            session, "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s", (name,)
        )
        datacenter = session.execute("SELECT data_center FROM system.local").one().data_center
        assert replication == {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", datacenter: "1"}
        session.execute(f"ALTER KEYSPACE {name} WITH replication = {{'class': 'EverywhereStrategy'}}")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY)")
        session.execute(f"INSERT INTO {name}.t (k) VALUES (1)")
        assert cql.rows(session, f"SELECT * FROM {name}.t") == [(1,)]
        cql.refused(session, f"ALTER KEYSPACE {name} WITH consistency = 'global'", cql.CONFIG, "only 'eventual'")
        cql.refused(session, f"ALTER KEYSPACE {name} WITH storage = {{'type': 'S3'}}", cql.CONFIG, "LOCAL")
    finally:
        session.execute(f"DROP KEYSPACE {name}")


@pytest.mark.ceto_only("it looks into the node's directory")
def test_a_table_is_flushed_when_its_period_ends():
    with Node(smp=1) as node, cql.cluster(node.server) as driver:
        session = driver.connect()
        session.execute(f"CREATE KEYSPACE d {REPLICATION}")
        for name, options in (("timed", " WITH memtable_flush_period_in_ms = 100"), ("plain", "")):
            session.execute(f"CREATE TABLE d.{name} (k int PRIMARY KEY){options}")
            session.execute(f"INSERT INTO d.{name} (k) VALUES (1)")

        def files(name):
            return list(node.workdir.glob(f"data/d/{name}-*/*-Data.db"))

        eventually("the table is flushed", lambda: files("timed"))
        assert not files("plain")
        session.execute("ALTER TABLE d.plain WITH memtable_flush_period_in_ms = 100")
        eventually("the other is flushed too", lambda: files("plain"))
        assert cql.rows(session, "SELECT k FROM d.timed") == [(1,)]


REFUSED = [
    ("ALTER TABLE {t} WITH memtable_flush_period_in_ms = -1", cql.CONFIG, "greater than or equal to 0 (got -1)"),
    ("ALTER TABLE {t} WITH max_index_interval = 1", cql.CONFIG, "greater than or equal to min_index_interval (128) (got 1)"),
    ("ALTER TABLE {t} WITH crc_check_chance = 2", cql.CONFIG, "smaller than or equal to 1.0 (got 2.0)"),
    ("ALTER TABLE {t} WITH caching = {'keys': 'x'}", cql.CONFIG, "only 'ALL' and 'NONE' are allowed"),
    ("ALTER TABLE {t} WITH allow_auto_snapshot = 'maybe'", cql.SYNTAX, "Invalid boolean value maybe"),
    ("ALTER TABLE {t} WITH speculative_retry = 'MIN(99p,98p)'", cql.CONFIG, "both are of type PERCENTILE"),
    ("ALTER TABLE {t} WITH comment = 'a' AND comment = 'b'", cql.SYNTAX, "Multiple definitions for property 'comment'"),
    ("CREATE TABLE \"a b\" (k int PRIMARY KEY)", cql.CONFIG, "must not be empty or not contain"),
    (f"CREATE TABLE {'n' * 223} (k int PRIMARY KEY)", cql.CONFIG, "more than 222 characters long (got 223 characters"),
    (f"CREATE KEYSPACE {'n' * 49} {REPLICATION}", cql.INVALID, "more than 48 characters long (got 49 characters"),
    (f'CREATE KEYSPACE "a-b" {REPLICATION}', cql.INVALID, "alphanumeric or underscore characters only"),
    ("CREATE TABLE select (k int PRIMARY KEY)", cql.SYNTAX, ""),
    ('CREATE TABLE "" (k int PRIMARY KEY)', cql.SYNTAX, ""),
    ("CREATE TABLE c (primary int PRIMARY KEY)", cql.SYNTAX, ""),
    ("CREATE TYPE int (a int)", cql.SYNTAX, ""),
    ("DROP TYPE nope", cql.INVALID, "doesn't exist"),
    ("DROP TABLE nope.t", cql.INVALID, "Table 'nope.t' doesn't exist"),
]


@pytest.mark.parametrize("statement, code, words", REFUSED, ids=[statement[:60] for statement, _, _ in REFUSED])
def test_ddl_is_refused_in_the_words_of_cassandra(session, table, statement, code, words):
    name = table("k int PRIMARY KEY, v text")
    cql.refused(session, statement.replace("{t}", name), code, words)


def test_words_of_the_language_are_names(session):
    session.execute("CREATE TABLE key (key int PRIMARY KEY, type text, ttl int, like int, language int)")
    session.execute('CREATE TABLE "Select" ("From" int PRIMARY KEY, "primary" text)')
    session.execute("INSERT INTO key (key, type, ttl, like) VALUES (1, 'x', 2, 3)")
    assert cql.rows(session, "SELECT key, type, ttl, like FROM key") == [(1, "x", 2, 3)]
    for name in ("key", '"Select"'):
        session.execute(f"DROP TABLE {name}")
    for kind in ("TABLE", "KEYSPACE", "TYPE"):
        session.execute(f"DROP {kind} IF EXISTS nope")
