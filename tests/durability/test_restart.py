"""What a node knew before it ended, however it ended, it knows afterwards; what was deleted stays deleted."""

import pytest
from cassandra.concurrent import execute_concurrent_with_args

from harness import cql

ENDINGS = {
    "SIGTERM": lambda node: node.stop(),
    "kill -9": lambda node: node.kill9(),
    "flush, then kill -9": lambda node: (node.nodetool("flush"), node.kill9()),
}


@pytest.fixture(params=ENDINGS)
def end(request):
    return ENDINGS[request.param]


def test_a_node_alone_serves_within_a_second_of_its_start(new_node):
    node = new_node().start()
    first = node.start_seconds
    node.kill9()
    node.start()
    assert max(first, node.start_seconds) < 1.0, "it waits for somebody, and there is nobody else"


def test_schema_and_data(new_node, connect, end):
    node = new_node().start()
    session = connect(node)
    session.execute(
        "CREATE TABLE t (a int, b text, c int, s text static, l list<int>, m map<text, int>, n decimal, PRIMARY KEY ((a, b), c))"
        " WITH CLUSTERING ORDER BY (c DESC) AND comment = 'kept'"
    )
    for c in range(50):
        session.execute(f"INSERT INTO t (a, b, c, l, m, n) VALUES (1, 'x', {c}, [{c}, 1], {{'k': {c}}}, {c}.50)")
    session.execute("UPDATE t SET s = 'static' WHERE a = 1 AND b = 'x'")
    session.execute("UPDATE t SET l = l + [7] WHERE a = 1 AND b = 'x' AND c = 3")
    session.execute("DELETE FROM t WHERE a = 1 AND b = 'x' AND c > 40")
    session.execute("DELETE m['k'] FROM t WHERE a = 1 AND b = 'x' AND c = 5")
    session.execute("ALTER TABLE t ADD added text")
    session.execute("INSERT INTO t (a, b, c, added) VALUES (2, 'y', 0, 'new') USING TTL 100000")

    def everything(session):
        schema = "SELECT * FROM system_schema.columns WHERE keyspace_name = 'ks'"
        tables = "SELECT table_name, comment, id FROM system_schema.tables WHERE keyspace_name = 'ks'"
        local = "SELECT host_id, schema_version FROM system.local"
        data = "SELECT a, b, c, s, l, m, n, added, WRITETIME(n) FROM t"
        return [cql.rows(session, select) for select in (schema, tables, local, data)]

    before = everything(session)
    assert len(before[3]) == 42
    for _ in range(2):
        end(node)
        node.start()
        assert everything(connect(node)) == before


def test_what_was_deleted_does_not_come_back(new_node, connect, end):
    node = new_node().start()
    session = connect(node)
    for name in ("dropped", "truncated", "emptied", "remade"):
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
        for k in range(100):
            session.execute(f"INSERT INTO {name} (k, v) VALUES ({k}, {k})")
    node.nodetool("flush")  # some of it is in sstables, some in the log
    for name in ("dropped", "truncated", "emptied", "remade"):
        session.execute(f"INSERT INTO {name} (k, v) VALUES (1000, 1)")
    session.execute("DROP TABLE dropped")
    session.execute("TRUNCATE truncated")
    session.execute("DROP TABLE remade")
    session.execute("CREATE TABLE remade (k int PRIMARY KEY, other text)")
    for k in [*range(100), 1000]:
        session.execute(f"DELETE FROM emptied WHERE k = {k}")
    end(node)
    node.start()
    session = connect(node)
    for name in ("truncated", "emptied", "remade"):
        assert cql.rows(session, f"SELECT * FROM {name}") == [], name
    cql.refused(session, "SELECT * FROM dropped", cql.INVALID, "table dropped does not exist")


def test_another_number_of_shards(new_node, connect, end):
    """The data belongs to the node, not to the shards it had."""
    node = new_node(smp=1).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
    for k in range(500):
        session.execute(insert, (k, k))
    for smp in (2, 3, 1):
        end(node)
        node.smp = smp
        node.start()
        assert sorted(cql.rows(connect(node), "SELECT k, v FROM t")) == [(k, k) for k in range(500)]


def test_reads_merge_what_several_flushes_wrote(new_node, connect):
    node = new_node().start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?)")
    expected = {}
    for generation in range(5):
        for k in range(20):
            for c in range(generation, generation + 5):
                session.execute(insert, (k, c, f"{generation}"))
                expected[k, c] = f"{generation}"
        session.execute(f"DELETE FROM t WHERE k = {generation}")
        expected = {key: v for key, v in expected.items() if key[0] != generation}
        node.nodetool("flush")
    assert {(k, c): v for k, c, v in cql.rows(session, "SELECT k, c, v FROM t")} == expected
    for k in range(20):
        row_values = [(c, v) for (partition, c), v in sorted(expected.items()) if partition == k]
        assert cql.rows(session, f"SELECT c, v FROM t WHERE k = {k}") == row_values


def test_a_collection_of_many_elements_changed_one_by_one(new_node, connect):
    elements = 20_000
    node = new_node().start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, a int, m map<int, text>, s set<int>)")

    def write(statement, arguments):
        execute_concurrent_with_args(session, session.prepare(statement), arguments, concurrency=128)

    expected = {}
    for generation in range(2):
        order = [n * 7919 % elements for n in range(elements)]  # 7919 is prime: each element once, in no order
        write("UPDATE t SET m[?] = ? WHERE k = 1", [(n, f"{generation} {n}") for n in order])
        expected |= {n: f"{generation} {n}" for n in order}
        session.execute("UPDATE t SET a = 5, s = {3, 1} WHERE k = 1")
        write("DELETE m[?] FROM t WHERE k = 1", [(n,) for n in range(generation, elements, 3)])
        for n in range(generation, elements, 3):
            del expected[n]
        session.execute(f"UPDATE t SET m = m + {{-1: 'added', 7: '{generation}'}} WHERE k = 1")
        expected |= {-1: "added", 7: str(generation)}

        def check():
            assert cql.rows(session, "SELECT a FROM t WHERE k = 1") == [(5,)]
            ((a, m, s),) = cql.rows(session, "SELECT a, m, s FROM t")
            assert (a, list(s), list(m.items())) == (5, [1, 3], sorted(expected.items()))
            assert cql.rows(session, "SELECT m[7], m[-1] FROM t WHERE k = 1") == [(str(generation), "added")]

        check()
        node.nodetool("flush")
        check()
    session.execute("DELETE a, s FROM t WHERE k = 1")
    assert cql.rows(session, "SELECT k, a FROM t WHERE k = 1") == [(1, None)], "the map keeps the row"
    session.execute("DELETE m FROM t WHERE k = 1")
    assert cql.rows(session, "SELECT k, a, m FROM t WHERE k = 1") == []
    write("UPDATE t SET m[?] = 'again' WHERE k = 1", [(n,) for n in range(elements // 10)])
    node.kill9()
    node.start()
    session = connect(node)
    ((m,),) = cql.rows(session, "SELECT m FROM t WHERE k = 1")
    assert dict(m) == {n: "again" for n in range(elements // 10)}
