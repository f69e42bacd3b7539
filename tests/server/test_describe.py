"""DESCRIBE: its forms, its pages, and that what it says of a schema makes that schema again."""

import pytest
from cassandra.query import SimpleStatement

from harness import cql
from harness.node import Node

REPLICATION = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"

NATIVE = (
    "ascii bigint blob boolean date decimal double duration float inet int smallint text time timestamp timeuuid tinyint"
    " uuid varint"
).split()
NESTED = [
    "list<text>",
    "set<int>",
    "map<text, int>",
    "frozen<list<frozen<map<int, text>>>>",
    "frozen<set<uuid>>",
    "tuple<int, text, frozen<list<int>>>",
    "vector<float, 3>",
    "outer",
    "frozen<outer>",
    "list<frozen<inner>>",
    'frozen<"Quoted type">',
]
OPTIONS = [
    "additional_write_policy = 'MIN(99p,50ms)'",
    "allow_auto_snapshot = false",
    "bloom_filter_fp_chance = 0.05",
    "caching = {'keys': 'NONE', 'rows_per_partition': '10'}",
    "cdc = false",
    "comment = 'it''s \"quoted\"'",
    "compaction = {'class': 'SizeTieredCompactionStrategy', 'min_threshold': '6', 'bucket_high': '1.7'}",
    "compression = {'class': 'ZstdCompressor', 'chunk_length_in_kb': '64', 'compression_level': '5'}",
    "crc_check_chance = 0.5",
    "default_time_to_live = 600",
    "extensions = {'a': 0xcafe}",
    "gc_grace_seconds = 77",
    "incremental_backups = false",
    "max_index_interval = 4096",
    "memtable = 'default'",
    "memtable_flush_period_in_ms = 3600000",
    "min_index_interval = 64",
    "paxos_grace_seconds = 86400",
    "per_partition_rate_limit = {'max_reads_per_second': '7', 'max_writes_per_second': '8'}",
    "read_repair = 'NONE'",
    "speculative_retry = '99.9p'",
    "tablets = {'min_tablet_count': '2'}",
    "tombstone_gc = {'mode': 'timeout', 'propagation_delay_in_seconds': '60'}",
]


def statements():
    """A schema with every type and every option, in keyspaces with and without tablets."""
    columns = [f"n{number} {name}" for number, name in enumerate(NATIVE)]
    columns += [f"x{number} {name}" for number, name in enumerate(NESTED)]
    return [
        f'CREATE KEYSPACE "Upper" {REPLICATION} AND durable_writes = true',
        "CREATE KEYSPACE everything WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        " AND tablets = {'enabled': true}",
        "CREATE KEYSPACE ring WITH replication = {'class': 'EverywhereStrategy'} AND tablets = {'enabled': false}",
        "CREATE TYPE everything.zz (a int, b frozen<list<text>>)",
        "CREATE TYPE everything.inner (z frozen<zz>, t text)",
        'CREATE TYPE everything."Quoted type" ("A field" frozen<inner>, select_ int)',
        'CREATE TYPE everything.outer (a frozen<"Quoted type">, b int)',
        f"CREATE TABLE everything.types (k0 int, k1 text, c0 timeuuid, c1 frozen<inner>, s int static,"
        f" {', '.join(columns)}, PRIMARY KEY ((k0, k1), c0, c1)) WITH CLUSTERING ORDER BY (c0 DESC, c1 ASC)",
        f'CREATE TABLE everything.options (k int PRIMARY KEY, "V" text) WITH {" AND ".join(OPTIONS)}',
        "CREATE TABLE everything.counters (k int PRIMARY KEY, n counter)",
        "CREATE TABLE everything.dropped (k int, c int, gone text, back int, s list<int> static, PRIMARY KEY (k, c))",
        "ALTER TABLE everything.dropped DROP gone",
        "ALTER TABLE everything.dropped DROP back",
        "ALTER TABLE everything.dropped ADD back int",
        "ALTER TABLE everything.dropped DROP s",
        "CREATE TABLE everything.copy LIKE everything.types WITH comment = 'a copy'",
        "ALTER TABLE everything.copy ALTER n0 TYPE blob",
        'CREATE TABLE "Upper"."Select" ("From" int, "c-1" text, PRIMARY KEY ("From", "c-1"))',
        "CREATE TABLE ring.repaired (k int PRIMARY KEY) WITH tombstone_gc = {'mode': 'repair'}",
        "CREATE TABLE ring.plain (k int PRIMARY KEY)",
    ]


def described(session, what="SCHEMA WITH INTERNALS", **options):
    answer = session.execute(SimpleStatement(f"DESCRIBE {what}", **options))
    return [tuple(row) for row in answer]


def texts(rows):
    """The statements of a description: a table whose columns were dropped has several."""
    for row in rows:
        for statement in row[-1].split(";\n"):
            yield statement


@pytest.mark.ceto_only("it has options and strategies of ceto, and nodes of its own")
def test_what_is_said_of_a_schema_makes_the_schema_again():
    with Node(smp=1) as node, cql.cluster(node.server) as driver:
        session = driver.connect()
        for statement in statements():
            session.execute(statement)
        first, of_users = described(session), described(session, "SCHEMA")
        assert {row[1] for row in first} == {"keyspace", "type", "table"}
    with Node(smp=1) as node, cql.cluster(node.server) as driver:
        session = driver.connect()
        assert described(session) == []
        for statement in texts(first):
            session.execute(statement)
        assert described(session) == first
        assert described(session, "SCHEMA") == of_users
        for option in OPTIONS:
            name = option.partition(" = ")[0]
            (row,) = described(session, "TABLE everything.options")
            assert f" {name} = " in row[-1], option
    with Node(smp=1) as node, cql.cluster(node.server) as driver:
        session = driver.connect()
        for statement in texts(of_users):
            session.execute(statement)
        columns = "SELECT table_name, column_name, type, kind FROM system_schema.columns WHERE keyspace_name = 'everything'"
        assert len(cql.rows(session, columns)) > len(NATIVE) * 2
        assert described(session, "TYPES") == [
            ("everything", "type", name) for name in ("inner", "outer", '"Quoted type"', "zz")
        ]


def test_a_description_comes_in_pages(session, keyspace, table):
    for _ in range(5):
        table("k int PRIMARY KEY, v text")
    whole = described(session, f"KEYSPACE {keyspace}", fetch_size=5000)
    assert len(whole) >= 6
    first = session.execute(SimpleStatement(f"DESCRIBE KEYSPACE {keyspace}", fetch_size=2))
    assert first.has_more_pages and len(first.current_rows) == 2
    assert described(session, f"KEYSPACE {keyspace}", fetch_size=2) == whole
    assert described(session, f"KEYSPACE {keyspace}", fetch_size=len(whole)) == whole


def test_a_page_of_another_schema_is_refused(session, keyspace, table):
    table("k int PRIMARY KEY")
    first = session.execute(SimpleStatement(f"DESCRIBE KEYSPACE {keyspace}", fetch_size=1))
    table("k int PRIMARY KEY")
    with pytest.raises(Exception, match="schema has changed"):
        first.fetch_next_page()


ABSENT = [
    ("KEYSPACE nope", "'nope' not found in keyspaces"),
    ("TABLE {ks}.nope", "Table 'nope' not found in keyspace '{ks}'"),
    ("TABLE nope.t", "'nope' not found in keyspaces"),
    ("TYPE {ks}.nope", "User defined type 'nope' not found in '{ks}'"),
    ("FUNCTION {ks}.nope", "User defined function 'nope' not found in '{ks}'"),
    ("AGGREGATE {ks}.nope", "User defined aggregate 'nope' not found in '{ks}'"),
    ("INDEX {ks}.nope", "Table for existing index 'nope' not found in '{ks}'"),
    ("MATERIALIZED VIEW {ks}.nope", "Materialized view 'nope' not found in '{ks}'"),
    ("{ks}.nope", "'nope' not found in keyspace '{ks}'"),
    ("nope.nope", "'nope' not found in keyspaces"),
]


@pytest.mark.parametrize("what, words", ABSENT, ids=[what for what, _ in ABSENT])
def test_what_is_not_there_cannot_be_described(session, keyspace, what, words):
    cql.refused(session, f"DESCRIBE {what.replace('{ks}', keyspace)}", cql.INVALID, words.replace("{ks}", keyspace))


def test_names_stand_in_lists_as_one_writes_them(session, keyspace):
    session.execute('CREATE TYPE "Z type" (x int)')
    session.execute('CREATE TABLE "T" ("K" int PRIMARY KEY)')
    try:
        assert (keyspace, "type", '"Z type"') in described(session, "TYPES")
        assert (keyspace, "table", '"T"') in described(session, "TABLES")
        assert (keyspace, "keyspace", keyspace) in described(session, "KEYSPACES")
        assert described(session, "FUNCTIONS") == described(session, "AGGREGATES") == []
        (row,) = described(session, 'TYPE "Z type"')
        assert row == (keyspace, "type", '"Z type"', f'CREATE TYPE {keyspace}."Z type" (\n    x int\n);')
        (row,) = described(session, f"ONLY KEYSPACE {keyspace}")
        assert row[:3] == (keyspace, "keyspace", keyspace)
        (row,) = described(session, '"T"')
        assert row[:3] == (keyspace, "table", '"T"')
    finally:
        session.execute('DROP TABLE "T"')
        session.execute('DROP TYPE "Z type"')
