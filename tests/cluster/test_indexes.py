"""Secondary indexes on three nodes: a query at QUORUM finds what QUORUM has written, also while a node is down and after it has
missed writes for good."""

import random
from concurrent.futures import ThreadPoolExecutor

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql

KEYS = 300
COLOURS = ["red", "green", "blue"]


def found(session, table, colour, level, page=100):
    statement = SimpleStatement(
        f"SELECT k, c, size FROM {table} WHERE colour = '{colour}'", fetch_size=page, consistency_level=level
    )
    return [tuple(row) for row in session.execute(statement)]


def test_quorum_finds_by_an_index_what_quorum_has_written_while_a_node_misses_it(forgetful_cluster):
    cluster = forgetful_cluster
    with cluster.driver(only=1) as driver:
        play(cluster, driver.connect())


def play(cluster, session):
    keyspace = cql.unique("ks")
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    table = f"{keyspace}.things"
    session.execute(f"CREATE TABLE {table} (k int, c int, colour text, size int, PRIMARY KEY (k, c))")
    session.execute(f"CREATE INDEX ON {table} (colour)")
    session.execute(f"CREATE INDEX ON {table} (size)")
    insert = session.prepare(f"INSERT INTO {table} (k, c, colour, size) VALUES (?, ?, ?, ?)")
    insert.consistency_level = ConsistencyLevel.QUORUM
    dice = random.Random(7)
    things = {}

    def write(some):
        for k, c in some:
            things[k, c] = dice.choice(COLOURS), dice.randrange(20)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: session.execute(insert, (*name, *things[name])), some))

    def check(level):
        for colour in COLOURS:
            wanted = sorted((k, c, size) for (k, c), (its, size) in things.items() if its == colour)
            for page in (7, 1000):
                rows = found(session, table, colour, level, page)
                assert sorted(rows) == wanted, f"{colour}, {page} rows a page"
        statement = f"SELECT count(*) FROM {table} WHERE colour = 'red' AND size >= 5 AND size < 12"
        ((count,),) = session.execute(SimpleStatement(statement, consistency_level=level))
        assert count == sum(1 for its, size in things.values() if its == "red" and 5 <= size < 12)
        k, c = dice.choice(list(things))
        statement = f"SELECT c FROM {table} WHERE k = {k} AND size = {things[k, c][1]}"
        rows = session.execute(SimpleStatement(statement, consistency_level=level))
        assert sorted(row.c for row in rows) == sorted(
            other for (its, other), (_, size) in things.items() if its == k and size == things[k, c][1]
        )

    names = [(n % 40, n) for n in range(KEYS)]
    write(names)
    check(ConsistencyLevel.QUORUM)
    cluster.kill(3)
    write(dice.sample(names, 120))
    check(ConsistencyLevel.QUORUM)
    cluster.start(3)
    cluster.sees_itself_whole()
    # It has not heard of what was written, and there are no hints.
    for _ in range(3):
        check(ConsistencyLevel.QUORUM)
    for node in cluster.nodes:
        node.nodetool("flush", keyspace)
    check(ConsistencyLevel.QUORUM)
    check(ConsistencyLevel.ALL)
    session.execute(f"DROP KEYSPACE {keyspace}")
