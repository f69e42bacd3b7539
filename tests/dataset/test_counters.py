"""Cassandra's sstabledump finds the counters in our files, and a Cassandra node imports them and goes on counting."""

import json

import pytest

from dataset import sstables
from harness import cassandra, cql
from harness.node import run_ceto

pytestmark = [
    pytest.mark.skipif(cassandra.jars() is None, reason="Cassandra's jars are not there: ./dev setup"),
    pytest.mark.ceto_only("the files of a node that the harness started are read"),
]

KEYSPACE, TABLE = "counting", "counters"
NAMES = ("k", "c", "s", "m", "n")
PARTITIONS = 40


def create(session):
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    session.execute(
        f"CREATE TABLE {KEYSPACE}.{TABLE} (k int, c int, n counter, m counter, s counter static, PRIMARY KEY (k, c))"
    )
    session.set_keyspace(KEYSPACE)


def add(session, flush):
    """Additions in three files and in the log, up and down, to clustering and static columns."""
    statement = session.prepare(f"UPDATE {TABLE} SET n = n + ?, m = m - ?, s = s + ? WHERE k = ? AND c = ?")
    for part in range(3):
        for k in range(PARTITIONS):
            for c in range(1 + k % 3):
                session.execute(statement, ((1 << (k % 60)) + part, c, 1, k, c))
        flush()


def delete(session):
    session.execute(f"DELETE FROM {TABLE} WHERE k = 1")
    session.execute(f"DELETE n FROM {TABLE} WHERE k = 2 AND c = 1")
    session.execute(f"DELETE FROM {TABLE} WHERE k = 5 AND c = 1")
    session.execute(f"DELETE s FROM {TABLE} WHERE k = 4")
    session.execute(f"DELETE FROM {TABLE} WHERE k = 8 AND c >= 1")


def add_again(session):
    """To counters that were deleted: Cassandra itself does not count them well, but reads files in which it was done."""
    session.execute(f"UPDATE {TABLE} SET n = n + 7 WHERE k = 1 AND c = 0")
    session.execute(f"UPDATE {TABLE} SET n = n + 8 WHERE k = 2 AND c = 1")
    session.execute(f"UPDATE {TABLE} SET m = m + 9 WHERE k = 5 AND c = 1")


def rows(session):
    return sorted(cql.rows(session, f"SELECT {', '.join(NAMES)} FROM {TABLE}"), key=str)


def is_deleted(part):
    return "deletion_info" in part


def dumped(partitions, value):
    """What SELECT would return of the partitions that a dump of one file printed that has everything; `value` is of a counter's cell."""
    found = []
    for partition in partitions:
        k = int(partition["partition"]["key"][0])
        live = []
        static = None
        for row in partition["rows"]:
            cells = {cell["name"]: value(cell) for cell in row.get("cells", []) if not is_deleted(cell)}
            if row["type"] == "static_block":
                static = cells.get("s")
            elif row["type"] == "row" and cells:
                live.append((int(row["clustering"][0]), cells))
        found += [(k, c, static, cells.get("m"), cells.get("n")) for c, cells in live]
        if static is not None and not live:
            found.append((k, None, static, None, None))
    return sorted(found, key=str)


@pytest.fixture
def counted(own_node):
    """Our data files, each key in one, after additions and deletions; and what a SELECT returned of them."""
    with cql.cluster(own_node.server) as cluster:
        session = cluster.connect()
        create(session)
        add(session, lambda: own_node.nodetool("flush"))
        delete(session)
        own_node.nodetool("flush")
        add_again(session)
        expected = rows(session)
        own_node.nodetool("flush")
        own_node.nodetool("compact")
        assert rows(session) == expected
    assert own_node.stop() == 0
    return sstables.data_files(own_node.workdir, TABLE), expected


def test_sstabledump_finds_every_counter(counted):
    """It prints the first bytes of a counter as a number: how many shards the counter has, and that the first one is a global one."""
    files, expected = counted
    with cassandra.Offline() as offline:
        partitions = [partition for file in files for partition in offline.dump(file)]
    heads = set()

    def presence(cell):
        heads.add(cell["value"] >> 32)
        return "counter"

    found = dumped(partitions, presence)
    assert found == sorted(((k, c, *(v if v is None else "counter" for v in values)) for k, c, *values in expected), key=str)
    assert heads <= {0x0001_8000, 0x0002_8000}, [hex(head) for head in heads]


def test_our_dump_prints_the_counters(counted):
    files, expected = counted
    partitions = [partition for file in files for partition in json.loads(run_ceto("sstable", "dump", str(file)))]
    assert dumped(partitions, lambda cell: int(cell["value"])) == expected


def test_cassandra_imports_verifies_and_goes_on_counting(counted, tmp_path):
    files, expected = counted
    with sstables.imported(files, tmp_path, create, KEYSPACE, TABLE, "--extended-verify") as (node, session):
        assert rows(session) == expected
        session.execute(f"UPDATE {TABLE} SET n = n + 5 WHERE k = 3 AND c = 0")
        session.execute(f"UPDATE {TABLE} SET n = n + 5 WHERE k = 1 AND c = 0")
        more = [(*row[:4], row[4] + 5) if row[:2] in ((3, 0), (1, 0)) else row for row in expected]
        assert rows(session) == more
        node.nodetool("flush")
        node.nodetool("compact")
        assert rows(session) == more
