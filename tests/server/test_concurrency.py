"""Many clients at once: each reads its own writes, and changes of the schema disturb nobody."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import cql
from harness.load import Load

CLIENTS = 6
OPERATIONS = 300


def in_parallel(work, arguments):
    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(work, arguments))


def test_every_client_reads_its_own_writes(server, keyspace, table):
    name = table("k int, c int, v text, PRIMARY KEY (k, c)")

    def client(number):
        with cql.cluster(server) as cluster:
            session = cluster.connect(keyspace)
            insert = session.prepare(f"INSERT INTO {name} (k, c, v) VALUES (?, ?, ?)")
            select = session.prepare(f"SELECT v FROM {name} WHERE k = ? AND c = ?")
            delete = session.prepare(f"DELETE FROM {name} WHERE k = ? AND c = ?")
            for operation in range(OPERATIONS):
                k, c = operation % 50, number
                session.execute(insert, (k, c, f"{number}.{operation}"))
                assert cql.rows(session, select, (k, c)) == [(f"{number}.{operation}",)]
                if operation % 10 == 0:
                    session.execute(delete, (k, c))
                    assert cql.rows(session, select, (k, c)) == []

    in_parallel(client, range(CLIENTS))


@pytest.fixture
def load(session, table):
    """Writes of fresh keys into a table, all along the test."""
    name = table("k int PRIMARY KEY, v int")
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    numbers = itertools.count()

    def next_write():
        k = next(numbers)
        return k, (k, k)

    load = Load(session, insert, next_write, concurrency=32).start()
    load.table = name
    yield load
    load.stop()


def finish(load, more=500):
    """Some more writes, then the end: nothing was refused."""
    load.wait_for(load.acknowledgements + more)
    load.stop()
    assert not load.refused, load.refused[:3]


def test_writes_go_on_while_other_tables_come_and_go(session, load):
    for _ in range(5):
        name = cql.unique("passing")
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY)")
        session.execute(f"INSERT INTO {name} (k) VALUES (1)")
        assert cql.rows(session, f"SELECT k FROM {name}") == [(1,)]
        session.execute(f"DROP TABLE {name}")
    finish(load)
    found = {k for k, _ in cql.rows(session, f"SELECT k, v FROM {load.table}")}
    assert found >= set(load.acknowledged)


def test_writes_go_on_while_their_table_is_altered(session, load):
    for number in range(5):
        load.wait_for(load.acknowledgements + 100)
        session.execute(f"ALTER TABLE {load.table} ADD extra{number} text")
    session.execute(f"ALTER TABLE {load.table} DROP extra0")
    finish(load)
    found = dict(cql.rows(session, f"SELECT k, v FROM {load.table}"))
    assert {k: found.get(k) for k in load.acknowledged} == {k: k for k in load.acknowledged}
    assert session.execute(f"SELECT * FROM {load.table} LIMIT 1").column_names == [
        "k",
        "extra1",
        "extra2",
        "extra3",
        "extra4",
        "v",
    ]


def test_truncate_under_writes_leaves_nothing_from_before(session, load):
    load.wait_for(500)
    before = set(load.acknowledged)
    session.execute(f"TRUNCATE {load.table}")
    finish(load)
    assert not before & {k for (k,) in cql.rows(session, f"SELECT k FROM {load.table}")}


def test_several_clients_make_tables_at_once(server, keyspace):
    names = [[cql.unique("parallel") for _ in range(3)] for _ in range(4)]

    def client(mine):
        with cql.cluster(server) as cluster:
            session = cluster.connect(keyspace)
            for name in mine:
                session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
                session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1)")

    in_parallel(client, names)
    with cql.cluster(server) as cluster:
        session = cluster.connect(keyspace)
        for name in itertools.chain(*names):
            assert cql.rows(session, f"SELECT v FROM {name}") == [(1,)]
            session.execute(f"DROP TABLE {name}")
