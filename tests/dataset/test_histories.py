"""Random histories of writes and deletions, in every order of timestamps: Cassandra imports the flushed files and reads the rows that ceto reads.

Readers of the format do not merge within a file: what a deletion of a file covers must not be in it.
"""

import random

import pytest

from dataset import sstables
from harness import cassandra, cql

pytestmark = [
    pytest.mark.skipif(cassandra.jars() is None, reason="Cassandra's jars are not there: ./dev setup"),
    pytest.mark.ceto_only("the files of a node that the harness started are read"),
]

KEYSPACE, TABLE = "histories", "t"
SEED, STATEMENTS, PARTITIONS, ROWS, TIMESTAMPS = 5, 4_000, 120, 5, 24
# Far beyond the test's end, so that nothing expires between the two reads.
TTL = 86_400
COLUMNS = "p, c, d, s, u, v, l, m, n"


def create(session):
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    session.execute(
        f"CREATE TABLE {KEYSPACE}.{TABLE} (p int, c int, d int, s int static, u set<int> static, v int, l text, m map<int, int>, "
        "n frozen<list<int>>, PRIMARY KEY (p, c, d)) WITH CLUSTERING ORDER BY (c ASC, d DESC)"
    )


def statement(chance):
    """A random statement; deletions are as frequent as writes, and any may be older than what it meets."""
    p, c, d, v = (chance.randrange(n) for n in (PARTITIONS, ROWS, ROWS, 100))
    at = f"TIMESTAMP {chance.randrange(1, TIMESTAMPS)}"
    using = f"USING {at}" + (f" AND TTL {TTL}" if chance.randrange(4) == 0 else "")
    row = f"p = {p} AND c = {c} AND d = {d}"
    return chance.choice(
        [
            f"INSERT INTO {TABLE} (p, c, d, v, l, n) VALUES ({p}, {c}, {d}, {v}, '{v}', [{v}, {c}]) {using}",
            f"INSERT INTO {TABLE} (p, c, d, m) VALUES ({p}, {c}, {d}, {{{v}: {c}, 1: 2}}) {using}",
            f"UPDATE {TABLE} {using} SET v = {v} WHERE {row}",
            f"UPDATE {TABLE} {using} SET m[{v % 5}] = {v}, l = null WHERE {row}",
            f"UPDATE {TABLE} {using} SET m = m - {{{v % 5}}} WHERE {row}",
            f"UPDATE {TABLE} {using} SET s = {v}, u = u + {{{v % 7}}} WHERE p = {p}",
            f"DELETE v FROM {TABLE} USING {at} WHERE {row}",
            f"DELETE m, n FROM {TABLE} USING {at} WHERE {row}",
            f"DELETE u FROM {TABLE} USING {at} WHERE p = {p}",
            f"DELETE FROM {TABLE} USING {at} WHERE {row}",
            f"DELETE FROM {TABLE} USING {at} WHERE p = {p} AND c = {c}",
            f"DELETE FROM {TABLE} USING {at} WHERE p = {p} AND c >= {c} AND c < {c + v % 4}",
            f"DELETE FROM {TABLE} USING {at} WHERE p = {p} AND c = {c} AND d > {d}",
            # Older than most, so that something is left of most partitions.
            f"DELETE FROM {TABLE} USING TIMESTAMP {chance.randrange(1, TIMESTAMPS // 3)} WHERE p = {p}",
        ]
    )


def rows(session):
    return sorted(cql.rows(session, f"SELECT {COLUMNS}, writetime(v), writetime(s) FROM {KEYSPACE}.{TABLE}"), key=str)


@pytest.mark.parametrize("flushes", [1, 3])
def test_cassandra_reads_the_rows_of_flushed_histories(own_node, flushes, tmp_path):
    chance = random.Random(SEED + flushes)
    with cql.cluster(own_node.server) as cluster:
        session = cluster.connect()
        create(session)
        session.set_keyspace(KEYSPACE)
        for _ in range(flushes):
            for _ in range(STATEMENTS // flushes):
                session.execute(statement(chance))
            own_node.nodetool("flush")
        expected = rows(session)
    assert len(expected) > PARTITIONS, "the deletions leave something to compare"
    assert own_node.stop() == 0
    files = sstables.data_files(own_node.workdir, f"{TABLE}-")
    with sstables.imported(files, tmp_path, create, KEYSPACE, TABLE) as (_, session):
        assert rows(session) == expected
