"""`ALTER TABLE … DROP c USING TIMESTAMP t`, and the column added again: what was written after `t` is there, and nothing older."""

import pytest

from harness import Node, cql


@pytest.fixture
def table(session):
    name = cql.unique("dropped")
    session.execute(f"CREATE TABLE {name} (k int, c int, s int static, v int, m map<int, int>, PRIMARY KEY (k, c))")
    yield name
    session.execute(f"DROP TABLE {name}")


def test_what_was_written_after_the_time_of_the_drop_is_there_again(session, table):
    session.execute(f"INSERT INTO {table} (k, c) VALUES (1, 1) USING TIMESTAMP 5")
    for timestamp in (10, 30):
        session.execute(f"UPDATE {table} USING TIMESTAMP {timestamp} SET s = {timestamp}, v = {timestamp}, m[{timestamp}] = 1 WHERE k = 1 AND c = 1")
    session.execute(f"UPDATE {table} USING TIMESTAMP 10 SET s = 10, v = 10 WHERE k = 2 AND c = 1")
    for column, text in (("v", "v int"), ("s", "s int static"), ("m", "m map<int, int>")):
        session.execute(f"ALTER TABLE {table} DROP {column} USING TIMESTAMP 20")
        assert len(cql.rows(session, f"SELECT * FROM {table} WHERE k = 1")) == 1
        session.execute(f"ALTER TABLE {table} ADD {text}")
    assert cql.rows(session, f"SELECT s, v, m FROM {table} WHERE k = 1 AND c = 1") == [(30, 30, {30: 1})]
    assert cql.rows(session, f"SELECT v FROM {table} WHERE k = 2 AND c = 1") == []


def test_a_column_that_was_dropped_now_comes_back_empty(session, table):
    session.execute(f"INSERT INTO {table} (k, c, v) VALUES (1, 1, 1)")
    session.execute(f"ALTER TABLE {table} DROP v")
    session.execute(f"ALTER TABLE {table} ADD v int")
    assert cql.rows(session, f"SELECT c, v FROM {table}") == [(1, None)]


def test_a_successor_of_another_type_is_refused_with_both_types(session, table):
    session.execute(f"ALTER TABLE {table} DROP v")
    cql.refused(session, f"ALTER TABLE {table} ADD v text", cql.INVALID, "of type text, incompatible with previous")


@pytest.mark.ceto_only("the harness compacts and kills its own node")
@pytest.mark.parametrize("flushed", [False, True], ids=["memory", "file"])
def test_a_compaction_and_a_kill_between_drop_and_add_keep_what_is_newer(flushed):
    def run(*statements):
        with cql.cluster(node) as cluster:
            session = cluster.connect()
            return [cql.rows(session, statement) for statement in statements][-1]

    with Node(smp=1) as node:
        run(
            "CREATE KEYSPACE d WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE d.t (k int, c int, s int static, v int, m map<int, int>, PRIMARY KEY (k, c))",
            "INSERT INTO d.t (k, c) VALUES (1, 1) USING TIMESTAMP 5",
            *(
                f"UPDATE d.t USING TIMESTAMP {at} SET s = {at}, v = {at}, m[{at}] = 1 WHERE k = 1 AND c = 1"
                for at in (10, 30)
            ),
        )
        if flushed:
            node.nodetool("flush")
        run(*(f"ALTER TABLE d.t DROP {column} USING TIMESTAMP 20" for column in "svm"))
        node.nodetool("compact", "d")
        assert run("SELECT * FROM d.t") == [(1, 1)]
        node.kill9()
        node.start()
        node.nodetool("compact", "d")
        run(*(f"ALTER TABLE d.t ADD {column}" for column in ("s int static", "v int", "m map<int, int>")))
        assert run("SELECT s, v, m FROM d.t") == [(30, 30, {30: 1})]
        node.nodetool("compact", "d")
        assert run("SELECT s, v, m FROM d.t") == [(30, 30, {30: 1})]
