"""SELECT … FROM MUTATION_FRAGMENTS(table), as in ScyllaDB: what memtables and sstables of the node have, before it is merged."""

import json

import pytest
from cassandra import InvalidRequest
from cassandra.query import SimpleStatement

START, STATIC, CLUSTERED, END = range(4)


@pytest.fixture
def session(new_node, connect):
    node = new_node().start()
    session = connect(node)
    session.node = node
    return session


def fragments(session, table, where="", fetch_size=None):
    statement = SimpleStatement(f"SELECT * FROM MUTATION_FRAGMENTS({table}) {where}", fetch_size=fetch_size)
    return [row._asdict() for row in session.execute(statement)]


def kinds(rows):
    return [row["mutation_fragment_kind"] for row in rows]


def test_the_fragments_of_a_memtable(session):
    session.execute("CREATE TABLE t (pk int, ck int, s int static, v int, PRIMARY KEY (pk, ck))")
    session.execute("DELETE FROM t USING TIMESTAMP 5 WHERE pk = 0")
    session.execute("DELETE FROM t USING TIMESTAMP 6 WHERE pk = 0 AND ck > 0 AND ck < 2")
    session.execute("INSERT INTO t (pk, ck, v) VALUES (0, 0, 10) USING TIMESTAMP 7")
    session.execute("INSERT INTO t (pk, ck, v) VALUES (0, 1, 11) USING TIMESTAMP 8")
    session.execute("UPDATE t USING TIMESTAMP 9 AND TTL 3600 SET v = 12 WHERE pk = 0 AND ck = 2")
    session.execute("UPDATE t USING TIMESTAMP 10 SET s = 1 WHERE pk = 0")
    rows = fragments(session, "t")
    assert [row["mutation_source"] for row in rows] == ["memtable:0"] * 8
    assert [(row["partition_region"], row["ck"], row["position_weight"]) for row in rows] == [
        (START, None, None),
        (STATIC, None, None),
        (CLUSTERED, 0, 0),
        (CLUSTERED, 0, 1),
        (CLUSTERED, 1, 0),
        (CLUSTERED, 2, -1),
        (CLUSTERED, 2, 0),
        (END, None, None),
    ]
    row, change = "clustering row", "range tombstone change"
    assert kinds(rows) == ["partition start", "static row", row, change, row, change, row, "partition end"]
    metadata = [json.loads(row["metadata"] or "null") for row in rows]
    assert metadata[0]["tombstone"]["timestamp"] == 5 and metadata[0]["tombstone"]["deletion_time"]
    assert metadata[1] == {"s": {"is_live": True, "type": "regular", "timestamp": 10}}
    assert metadata[2] == {"marker": {"timestamp": 7}, "columns": {"v": {"is_live": True, "type": "regular", "timestamp": 7}}}
    assert metadata[3]["tombstone"]["timestamp"] == 6 and metadata[5] == {"tombstone": {}}
    assert metadata[6]["columns"]["v"]["ttl"] == "3600s" and "marker" not in metadata[6]
    assert metadata[7] is None
    values = [json.loads(row["value"] or "null") for row in rows]
    assert values == [None, {"s": "1"}, {"v": "10"}, None, {"v": "11"}, None, {"v": "12"}, None]


def test_each_source_is_shown_alone(session):
    session.execute("CREATE TABLE t (pk int, ck text, v text, PRIMARY KEY (pk, ck))")
    session.execute("INSERT INTO t (pk, ck, v) VALUES (1, 'a', 'old')")
    session.node.nodetool("flush", session.keyspace)
    session.execute("INSERT INTO t (pk, ck, v) VALUES (1, 'a', 'new')")
    session.execute("INSERT INTO t (pk, ck, v) VALUES (2, '', 'other partition')")
    rows = fragments(session, "t", "WHERE pk = 1")
    assert kinds(rows) == ["partition start", "clustering row", "partition end"] * 2
    of_memtable, of_file = rows[1], rows[4]
    assert of_memtable["mutation_source"] == "memtable:0"
    assert of_file["mutation_source"].startswith("sstable:/") and of_file["mutation_source"].endswith("-Data.db")
    assert [json.loads(row["value"]) for row in (of_memtable, of_file)] == [{"v": "new"}, {"v": "old"}]
    restricted = fragments(session, "t", "WHERE pk = 1 AND mutation_source = 'memtable:0' AND partition_region = 2 AND ck = 'a'")
    assert restricted == [of_memtable]
    assert fragments(session, "t", "WHERE pk = 2")[1]["ck"] == ""
    assert fragments(session, "t", "WHERE pk = 77") == []
    (counted,) = session.execute("SELECT count(*) FROM MUTATION_FRAGMENTS(t)")
    assert counted.count == 9


def test_collections_types_and_counters(session):
    session.execute("CREATE TYPE place (street text, number int)")
    session.execute("CREATE TABLE t (k int PRIMARY KEY, m map<text, int>, f frozen<list<int>>, p place)")
    session.execute("INSERT INTO t (k, m, f, p) VALUES (1, {'a': 1}, [1, 2], {street: 's', number: 7})")
    session.execute("DELETE m['b'] FROM t WHERE k = 1")
    row = fragments(session, "t", "WHERE k = 1")[1]
    metadata, value = json.loads(row["metadata"])["columns"], json.loads(row["value"])
    assert metadata["m"]["type"] == "collection" and "timestamp" in metadata["m"]["tombstone"]
    assert [(cell["key"], cell["value"]["is_live"]) for cell in metadata["m"]["cells"]] == [("a", True), ("b", False)]
    assert metadata["f"]["type"] == "frozen-collection"
    assert value["m"] == [{"key": "a", "value": "1"}] and value["f"] == "[1, 2]"
    assert value["p"] == [{"key": "street", "value": "s"}, {"key": "number", "value": "7"}]
    session.execute("CREATE TABLE c (k int PRIMARY KEY, n counter)")
    session.execute("UPDATE c SET n = n + 5 WHERE k = 1")
    (shard,) = json.loads(fragments(session, "c")[1]["value"])["n"]
    assert shard["value"] == 5 and shard["clock"] > 0 and len(shard["id"]) == 36


@pytest.mark.parametrize("fetch_size", [1, 2, 7])
def test_pages_of_fragments_are_the_whole(session, fetch_size):
    session.execute("CREATE TABLE t (pk int, a int, b int, v int, PRIMARY KEY (pk, a, b))")
    for pk in range(3):
        for n in range(12):
            session.execute(f"INSERT INTO t (pk, a, b, v) VALUES ({pk}, {n // 4}, {n}, {n})")
        session.execute(f"DELETE FROM t WHERE pk = {pk} AND a = 1")
        session.execute(f"DELETE FROM t WHERE pk = {pk} AND a = 2 AND b > 9")
        if pk == 1:
            session.node.nodetool("flush", session.keyspace)
    whole = fragments(session, "t")
    # Of the flushed partitions the file has only what its own deletions leave; memory has every row of the third.
    assert kinds(whole).count("partition end") == 3 and kinds(whole).count("clustering row") == 6 + 6 + 12
    assert fragments(session, "t", fetch_size=fetch_size) == whole


def test_what_cannot_be_read_is_refused(session):
    session.execute("CREATE TABLE t (value int PRIMARY KEY)")
    with pytest.raises(InvalidRequest, match="value is a key column of the table and of its fragments"):
        fragments(session, "t")
    with pytest.raises(InvalidRequest, match="its rows are computed, and nowhere stored"):
        fragments(session, "system.local")
    with pytest.raises(InvalidRequest, match="table nothing does not exist"):
        fragments(session, "nothing")
