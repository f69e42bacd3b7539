"""Columns whose names begin with a letter beyond ASCII: Cassandra has an order of its own for them, by which it finds the cells of a row in a file."""

import itertools
import json

import pytest

from dataset import sstables
from harness import cassandra, cql
from harness.node import run_ceto

pytestmark = [
    pytest.mark.skipif(cassandra.jars() is None, reason="Cassandra's jars are not there: ./dev setup"),
    pytest.mark.ceto_only("the files of a node that the harness started are read"),
]

KEYSPACE, TABLE = "named", "things"
# Of one type each, so that a value of the wrong column is read without an error.
SIMPLE, COMPLEX, STATIC = ["é", "z", "Z", "日本", "éa", "a", "aé"], ["ü", "ä", "b", "y"], ["ö", "s", "õ"]


def create(session):
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    columns = [f'"{name}" text' for name in SIMPLE] + [f'"{name}" set<text>' for name in COMPLEX] + [f'"{name}" text static' for name in STATIC]
    session.execute(f"CREATE TABLE {KEYSPACE}.{TABLE} (k int, c int, {', '.join(columns)}, PRIMARY KEY (k, c))")
    session.set_keyspace(KEYSPACE)


def rows(session):
    """Each row by its key; a value that is there."""
    columns = ", ".join(f'"{name}"' for name in (*SIMPLE, *COMPLEX, *STATIC))
    found = {}
    for k, c, *values in cql.rows(session, f"SELECT k, c, {columns} FROM {TABLE}"):
        plain = (set(value) if name in COMPLEX and value else value for name, value in zip((*SIMPLE, *COMPLEX, *STATIC), values, strict=True))
        found[k, c] = [value for value in plain if value]
    return found


@pytest.fixture
def written(own_node):
    """The files, and what a SELECT returned: each row has two of the columns, so that it says which it has."""
    with cql.cluster(own_node.server) as cluster:
        session = cluster.connect()
        create(session)
        for k, names in enumerate(itertools.combinations((*SIMPLE, *COMPLEX), 2)):
            values = [f"{{'{name}'}}" if name in COMPLEX else f"'{name}'" for name in names]
            quoted = [f'"{name}"' for name in (*names, STATIC[k % 3])]
            session.execute(f"INSERT INTO {TABLE} (k, c, {', '.join(quoted)}) VALUES ({k}, 0, {', '.join(values)}, '{STATIC[k % 3]}')")
        own_node.nodetool("flush")
        own_node.nodetool("compact")
        expected = rows(session)
    assert own_node.stop() == 0
    return sstables.data_files(own_node.workdir, TABLE), expected


def test_cassandra_finds_each_cell_under_its_column(written):
    files, expected = written
    assert expected
    with cassandra.Offline() as offline:
        check(partition for file in files for partition in offline.dump(file))


def check(partitions):
    """Each cell has the name of its column for a value."""
    cells = [cell for partition in partitions for row in partition["rows"] for cell in row["cells"] if "deletion_info" not in cell]
    assert len(cells) == 3 * len(list(itertools.combinations(SIMPLE + COMPLEX, 2)))
    for cell in cells:
        assert cell["name"].strip('"') == (cell["path"][0] if "path" in cell else cell["value"]), cell


def test_cassandra_reads_and_compacts_the_rows(written, tmp_path):
    files, expected = written
    with sstables.imported(files, tmp_path, create, KEYSPACE, TABLE) as (judge, session):
        assert rows(session) == expected
        judge.nodetool("compact")
        assert rows(session) == expected


def test_our_dump_finds_each_cell_under_its_column(written):
    files, _ = written
    check(partition for file in files for partition in json.loads(run_ceto("sstable", "dump", str(file))))
