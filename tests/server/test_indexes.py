"""Secondary indexes as drivers see them: events, metadata, DESCRIBE and the tables of the schema."""

import threading
from pathlib import Path

import pytest

from harness import NodeFailed, cql

COLUMNS = "k int, k2 int, c text, v int, w text, m map<text, int>, f frozen<list<int>>, \"Mix\" int, PRIMARY KEY ((k, k2), c)"
EVENT_SECONDS = 10
SASI = "org.apache.cassandra.index.sasi.SASIIndex"
# Name, what CREATE INDEX says behind it, kind, and the options in system_schema.indexes.
INDEXES = [
    ("i_v", "(v)", "COMPOSITES", {"target": "v"}),
    ("i_c", "(c)", "COMPOSITES", {"target": "c"}),
    ("i_k2", "(k2)", "COMPOSITES", {"target": "k2"}),
    ("i_keys", "(keys(m))", "COMPOSITES", {"target": "keys(m)"}),
    ("i_full", "(full(f))", "COMPOSITES", {"target": "full(f)"}),
    ('"I_Mix"', '("Mix")', "COMPOSITES", {"target": '"Mix"'}),
    ("i_sai", "(v) USING 'sai'", "CUSTOM", {"target": "v", "class_name": "sai"}),
    (
        "i_text",
        "(w) USING 'StorageAttachedIndex' WITH OPTIONS = {'case_sensitive': 'false'}",
        "CUSTOM",
        {"target": "w", "class_name": "StorageAttachedIndex", "case_sensitive": "false"},
    ),
    ("i_sasi", f"(w) USING '{SASI}' WITH OPTIONS = {{'mode': 'CONTAINS'}}", "CUSTOM", {"target": "w", "class_name": SASI, "mode": "CONTAINS"}),
]


def create(table, name, rest, kind="COMPOSITES"):
    return f"CREATE {'CUSTOM ' if kind == 'CUSTOM' else ''}INDEX {name} ON {table} {rest}"


def described(session, what):
    return [row.create_statement for row in session.execute(f"DESCRIBE {what}")]


@pytest.fixture
def indexed(session, table):
    name = table(COLUMNS)
    for index, rest, kind, _ in INDEXES:
        session.execute(create(name, index, rest, kind))
    return name


def test_a_driver_has_the_indexes_of_a_table_in_its_metadata(cluster, session, keyspace, indexed):
    cluster.refresh_table_metadata(keyspace, indexed)
    metadata = cluster.metadata.keyspaces[keyspace].tables[indexed]
    found = {name: (index.kind, dict(index.index_options)) for name, index in metadata.indexes.items()}
    assert found == {name.strip('"'): (kind, options) for name, _, kind, options in INDEXES}
    for name, rest, kind, _ in INDEXES:
        expected = create(f"{keyspace}.{indexed}", name, rest, kind)
        assert metadata.indexes[name.strip('"')].as_cql_query() == expected
        assert f"{expected};" in metadata.export_as_string()
        assert described(session, f"INDEX {name}") == [f"{expected};"]


def test_statements_of_describe_make_the_indexes_again(session, indexed):
    first, *indexes = described(session, f"TABLE {indexed}")
    assert len(indexes) == len(INDEXES)
    session.execute(f"DROP TABLE {indexed}")
    assert cql.rows(session, f"SELECT index_name FROM system_schema.indexes WHERE keyspace_name = '{session.keyspace}' AND table_name = '{indexed}'") == []
    for statement in (first, *indexes):
        session.execute(statement)
    assert described(session, f"TABLE {indexed}") == [first, *indexes]


def test_an_index_statement_is_an_update_of_its_table(server, session, table):
    name = table(COLUMNS)
    heard, arrived = [], threading.Condition()

    def listen(event):
        with arrived:
            heard.append((event["change_type"], event["target_type"], event.get("table")))
            arrived.notify_all()

    with cql.cluster(server, schema_event_refresh_window=-1) as other:
        other.connect()
        other.control_connection._connection.register_watcher("SCHEMA_CHANGE", listen)
        for number, statement in enumerate((create(name, "told", "(v)"), "CREATE INDEX IF NOT EXISTS told ON " + name + " (v)", "DROP INDEX told")):
            session.execute(statement)
            expected = [("UPDATED", "TABLE", name)] * (1 if number < 2 else 2)
            with arrived:
                arrived.wait_for(lambda expected=expected: len(heard) >= len(expected), EVENT_SECONDS)
            assert heard == expected, statement


def test_tables_of_the_system_list_indexes(session, keyspace, indexed):
    names = {name.strip('"') for name, *_ in INDEXES}
    listed = session.execute(f"SELECT index_name FROM system.\"IndexInfo\" WHERE table_name = '{keyspace}'")
    assert names <= {row.index_name for row in listed}
    sai = session.execute(f"SELECT index_name, analyzer, is_string FROM system_views.sai_column_indexes WHERE keyspace_name = '{keyspace}'")
    found = {row.index_name: (row.analyzer, row.is_string) for row in sai}
    assert found["i_sai"] == ("NoOpAnalyzer", False)
    assert found["i_text"] == ("NonTokenizingAnalyzer{caseSensitive=false, normalized=false, ascii=false}", True)


@pytest.mark.ceto_only("nodetool of ceto")
def test_an_operator_makes_the_files_of_indexes_again(server, session, keyspace, table):
    name = table("k int PRIMARY KEY, v int, w text")
    for index in ("(v) USING 'sai'", "(w)"):
        session.execute(f"CREATE INDEX ON {name} {index}")
    for k in range(20):
        session.execute(f"INSERT INTO {name} (k, v, w) VALUES ({k}, {k % 3}, 'w{k % 2}')")
    server.node.nodetool("flush", keyspace, name)

    def files():
        rows = session.execute(f"SELECT * FROM system_views.sai_sstable_indexes WHERE keyspace_name = '{keyspace}'")
        return [row for row in rows if row.table_name == name]

    assert {(row.index_name, row.column_name) for row in files()} == {(f"{name}_v_idx", "v")}
    assert sum(row.cell_count for row in files()) == 20
    assert all(Path(row.sstable_name).exists() and row.per_column_disk_size > 0 for row in files())
    made = {path: path.stat().st_mtime_ns for path in index_files(server, name)}
    assert made
    server.node.nodetool("rebuild_index", keyspace, name, f"{name}_v_idx")
    again = {path: path.stat().st_mtime_ns for path in index_files(server, name)}
    assert again.keys() == made.keys()
    assert sum(again[path] > made[path] for path in made) == len(files())
    server.node.nodetool("rebuild_index", keyspace, name)
    assert all(path.stat().st_mtime_ns > made[path] for path in made)
    assert {row.k for row in session.execute(f"SELECT k FROM {name} WHERE v = 1 AND w = 'w1'")} == {1, 7, 13, 19}
    listed = [line.split() for line in server.node.nodetool("tasks", "list", "compaction").splitlines()]
    assert ["done", keyspace, name, f"{name}_v_idx"] in [[line[5], *line[7:]] for line in listed if line[1:3] == ["index", "build"]]
    for arguments, words in ((("nope",), "Can't find a table nope"), ((name, "nope"), "has no index nope")):
        with pytest.raises(NodeFailed, match=words):
            server.node.nodetool("rebuild_index", keyspace, *arguments)


def index_files(server, table):
    return list(server.node.workdir.glob(f"data/*/{table}-*/*CetoIndex*.db"))


@pytest.mark.ceto_only("ScyllaDB's local index")
def test_a_local_index_of_scylladb_is_written_as_it_was_made(cluster, session, keyspace, table):
    name = table(COLUMNS)
    session.execute(create(name, "near", "((k, k2), v)"))
    cluster.refresh_table_metadata(keyspace, name)
    expected = create(f"{keyspace}.{name}", "near", "((k, k2), v)")
    assert cluster.metadata.keyspaces[keyspace].tables[name].indexes["near"].as_cql_query() == expected
    assert described(session, "INDEX near") == [f"{expected};"]


REFUSALS = [
    ("CREATE INDEX ON {t} (nope)", cql.INVALID, "Undefined column name nope in table {ks}.{t}"),
    ("CREATE INDEX ON {t} (v)", cql.INVALID, "Index {t}_v_idx is a duplicate of existing index i_v"),
    ("CREATE INDEX i_v ON {t} (w)", cql.INVALID, "Index 'i_v' already exists"),
    ("CREATE CUSTOM INDEX ON {t} (v) USING 'nope'", cql.CONFIG, "Unable to find custom indexer class 'nope'"),
    ("CREATE CUSTOM INDEX ON {t} (c) USING 'sai' WITH OPTIONS = {{'x': 'y'}}", cql.CONFIG, "Properties specified [x] are not understood by StorageAttachedIndex"),
    ("DROP INDEX nope", cql.INVALID, "Index '{ks}.nope' doesn't exist'"),
    ("ALTER TABLE {t} DROP w", cql.INVALID, "Cannot drop column w because it has dependent secondary indexes ("),
    ("ALTER TABLE {t} RENAME c TO d", cql.INVALID, "Can't rename column c because it has dependent secondary indexes (i_c)"),
]


def test_refusals_are_those_of_cassandra(session, keyspace, indexed):
    for statement, code, words in REFUSALS:
        got, message = cql.refusal(session, statement.format(t=indexed))
        assert got == code and words.format(t=indexed, ks=keyspace) in message, (statement, message)
