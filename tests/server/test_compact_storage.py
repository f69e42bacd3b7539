"""Tables WITH COMPACT STORAGE, beyond what the recorded answers of tests/differential/compact.cql say: what drivers and tools see of them, and their end."""

import pytest
from cassandra import InvalidRequest
from cassandra.query import SimpleStatement

from harness import cql
from harness.cluster import eventually, hang_up

COLUMNS = "SELECT column_name, kind, type FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s"


def columns(session, keyspace, name):
    return sorted(cql.rows(session, COLUMNS, (keyspace, name)))


def flags(session, keyspace, name):
    [(found,)] = cql.rows(
        session, "SELECT flags FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s", (keyspace, name)
    )
    return set(found)


def test_the_schema_tables_have_what_cassandra_has(session, keyspace, table):
    static = table("k int PRIMARY KEY, v int", " WITH COMPACT STORAGE")
    assert flags(session, keyspace, static) == set()
    assert columns(session, keyspace, static) == [
        ("column1", "clustering", "text"),
        ("k", "partition_key", "int"),
        ("v", "static", "int"),
        ("value", "regular", "blob"),
    ]
    dense = table("k int, c int, PRIMARY KEY (k, c)", " WITH COMPACT STORAGE")
    assert flags(session, keyspace, dense) == {"dense"}
    assert columns(session, keyspace, dense) == [
        ("c", "clustering", "int"),
        ("k", "partition_key", "int"),
        ("value", "regular", "empty"),
    ]
    wide = table("k int, c int, d int, v int, PRIMARY KEY (k, c, d)", " WITH COMPACT STORAGE")
    assert flags(session, keyspace, wide) == {"compound", "dense"}
    counted = table("k int PRIMARY KEY, v counter", " WITH COMPACT STORAGE")
    assert flags(session, keyspace, counted) == {"counter"}
    assert ("value", "regular", "counter") in columns(session, keyspace, counted)


def test_drivers_see_the_declared_columns(session, keyspace, table, cluster):
    static = table("k int PRIMARY KEY, v int", " WITH COMPACT STORAGE")
    dense = table("k int, c int, PRIMARY KEY (k, c)", " WITH COMPACT STORAGE")
    cluster.refresh_table_metadata(keyspace, static)
    cluster.refresh_table_metadata(keyspace, dense)
    tables = cluster.metadata.keyspaces[keyspace].tables
    assert tables[static].is_compact_storage and list(tables[static].columns) == ["k", "v"]
    assert tables[dense].is_compact_storage and list(tables[dense].columns) == ["k", "c"]
    assert session.execute(f"SELECT * FROM {static}").column_names == ["k", "v"]
    prepared = session.prepare(f"INSERT INTO {dense} (k, c) VALUES (?, ?)")
    session.execute(prepared, (1, 2))
    assert cql.rows(session, f"SELECT * FROM {dense}") == [(1, 2)]


def test_describe_makes_the_table_again(session, table):
    name = table("k int, c text, v blob, PRIMARY KEY (k, c)", " WITH COMPACT STORAGE AND CLUSTERING ORDER BY (c DESC)")
    static = table("k int PRIMARY KEY, w int, v int", " WITH COMPACT STORAGE")
    for each in (name, static):
        text = session.execute(f"DESCRIBE TABLE {each}").one().create_statement
        assert "WITH COMPACT STORAGE" in text and "column1" not in text, text
        session.execute(f"DROP TABLE {each}")
        session.execute(text)
        assert session.execute(f"DESCRIBE TABLE {each}").one().create_statement == text


def test_compact_storage_is_dropped_where_that_is_allowed(new_node, connect, tmp_path):
    node = new_node(options=["--drop-compact-storage-enabled", "1"]).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v int) WITH COMPACT STORAGE")
    session.execute("CREATE TABLE d (k int, c int, v int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE")
    select, insert = session.prepare("SELECT * FROM t"), session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
    session.execute(insert, (1, 2))
    session.execute("INSERT INTO d (k, c, v) VALUES (1, 1, 1)")
    node.nodetool("flush")
    for name in ("t", "d"):
        session.execute(f"ALTER TABLE {name} DROP COMPACT STORAGE")
    assert session.execute("SELECT * FROM t").column_names == ["k", "column1", "v", "value"]
    assert cql.rows(session, "SELECT * FROM t") == [(1, None, 2, None)]
    eventually("the driver has the new columns", lambda: cql.rows(session, select) == [(1, None, 2, None)])
    session.execute("INSERT INTO t (k, column1, value) VALUES (1, 'a', 0x01)")
    assert cql.rows(session, "SELECT * FROM t") == [(1, "a", 2, b"\x01")]
    session.execute("INSERT INTO d (k, c) VALUES (2, 2)")
    assert sorted(cql.rows(session, "SELECT * FROM d")) == [(1, 1, 1), (2, 2, None)]
    node.kill9()
    session.cluster.shutdown()
    node.start()
    session = connect(node)
    assert cql.rows(session, "SELECT * FROM t") == [(1, "a", 2, b"\x01")]
    with pytest.raises(InvalidRequest, match="on table without COMPACT STORAGE"):
        session.execute("ALTER TABLE t DROP COMPACT STORAGE")


def test_a_table_like_a_compact_one_is_compact(session, keyspace, table):
    for columns_of, inserted in (("k int PRIMARY KEY, v int", (1, 2)), ("k int, c int, PRIMARY KEY (k, c)", (1, 2))):
        source = table(columns_of, " WITH COMPACT STORAGE")
        copy = cql.unique("t")
        session.execute(f"CREATE TABLE {copy} LIKE {source}")
        assert flags(session, keyspace, copy) == flags(session, keyspace, source)
        assert columns(session, keyspace, copy) == columns(session, keyspace, source)
        names = session.execute(f"SELECT * FROM {copy}").column_names
        session.execute(f"INSERT INTO {copy} ({', '.join(names)}) VALUES (%s, %s)", inserted)
        assert cql.rows(session, f"SELECT * FROM {copy}") == [inserted]
        session.execute(f"DROP TABLE {copy}")


def test_options_forbid_it(new_node, connect, tmp_path):
    file = tmp_path / "ceto.yaml"
    file.write_text("")
    node = new_node(options=["--options-file", str(file)]).start()
    session = connect(node)
    session.execute("CREATE TABLE made_before (k int PRIMARY KEY, v int) WITH COMPACT STORAGE")
    file.write_text("compact_tables_enabled: false\n")
    hang_up(node, "compact_tables_enabled is false")
    for statement in (
        "CREATE TABLE t (k int PRIMARY KEY, v int) WITH COMPACT STORAGE",
        "CREATE TABLE t LIKE made_before",
    ):
        with pytest.raises(InvalidRequest, match="compact_tables_enabled is false"):
            session.execute(statement)
    session.execute("ALTER TABLE made_before WITH comment = 'x'")
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    with pytest.raises(InvalidRequest, match="drop_compact_storage_enabled is false"):
        session.execute("ALTER TABLE t DROP COMPACT STORAGE")


def test_a_row_may_lack_its_last_clustering_columns(new_node, connect):
    """In memory and in files, page by page in both directions, behind a crash, and when compact storage is no more."""
    node = new_node(options=["--drop-compact-storage-enabled", "1"]).start()
    session = connect(node)
    session.execute(
        "CREATE TABLE t (k int, c int, d text, v int, PRIMARY KEY (k, c, d)) WITH COMPACT STORAGE"
        " AND CLUSTERING ORDER BY (c ASC, d DESC)"
    )
    insert = session.prepare("INSERT INTO t (k, c, v) VALUES (1, ?, ?)")
    wanted = []
    for c in range(20):
        session.execute(insert, (c, -c))
        for d in ("b", "a", ""):
            session.execute("INSERT INTO t (k, c, d, v) VALUES (1, %s, %s, %s)", (c, d, c))
        wanted += [(1, c, None, -c), (1, c, "b", c), (1, c, "a", c), (1, c, "", c)]
        if c == 10:
            node.nodetool("flush")

    def check(session):
        for order, rows in (("", wanted), (" ORDER BY c DESC", wanted[::-1])):
            for size in (1, 2, 3, 5, 1000):
                select = SimpleStatement(f"SELECT * FROM t WHERE k = 1{order}", fetch_size=size)
                assert cql.rows(session, select) == rows, f"pages of {size}{order}"
        assert cql.rows(session, "SELECT * FROM t WHERE k = 1 AND c = 3") == wanted[12:16]
        assert cql.rows(session, "SELECT * FROM t WHERE k = 1 AND c = 3 AND d = 'a'") == wanted[14:15]
        assert cql.rows(session, "SELECT c, count(d) FROM t WHERE k = 1 AND c = 3 GROUP BY c") == [(3, 3)]

    check(session)
    node.kill9()
    session.cluster.shutdown()
    session = connect(node.start())
    check(session)
    fragments = SimpleStatement("SELECT mutation_fragment_kind, c, d FROM MUTATION_FRAGMENTS(t) WHERE k = 1", fetch_size=1)
    rows = [(c, d) for kind, c, d in cql.rows(session, fragments) if kind == "clustering row"]
    assert sorted(rows, key=repr) == sorted(((c, d) for _, c, d, _ in wanted), key=repr)
    session.execute("DELETE FROM t WHERE k = 1 AND c = 3")
    wanted[12:16] = []
    assert cql.rows(session, "SELECT * FROM t WHERE k = 1") == wanted
    session.execute("ALTER TABLE t DROP COMPACT STORAGE")
    assert cql.rows(session, "SELECT * FROM t WHERE k = 1") == wanted
    with pytest.raises(InvalidRequest, match="Some clustering keys are missing: d"):
        session.execute("INSERT INTO t (k, c, v) VALUES (1, 1, 1)")


def test_a_row_has_its_first_clustering_columns(session, table):
    name = table("k int, c int, d text, v int, PRIMARY KEY (k, c, d)", " WITH COMPACT STORAGE")
    for statement, message in (
        (f"INSERT INTO {name} (k, v) VALUES (1, 1)", "Some clustering keys are missing: c, d"),
        (f"UPDATE {name} SET v = 1 WHERE k = 1", "Some clustering keys are missing: c, d"),
        (f"INSERT INTO {name} (k, d, v) VALUES (1, 'a', 1)", 'as preceding column "c" is not restricted'),
        (f"INSERT INTO {name} (k, c, d, v) VALUES (1, 1, null, 1)", "Invalid null value in condition for column d"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            session.execute(statement)
