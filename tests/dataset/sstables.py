"""The rows that Cassandra's sstabledump prints, in the spelling of dataset.rows.

python -m dataset.sstables COUNT FILE-Data.db...      compare the files together with the rows of that count
"""

import contextlib
import ipaddress
import shutil
import sys
import time
from decimal import Decimal

from dataset import load, rows
from harness import cassandra, cql
from harness.cassandra import Offline

SCALARS = {
    "decimal": lambda value: f"{Decimal(value):f}",
    "double": float,
    "inet": lambda value: str(ipaddress.ip_address(value)),
    "timestamp": lambda value: value.removesuffix("Z"),
    "blob": lambda value: bytes.fromhex(value.removeprefix("0x")),
    "frozen<map<text, int>>": lambda value: tuple(sorted(value.items())),
}


def apart(files, directory):
    """Copies of sstables, a directory for each: a table's files may stand in several places with the same numbers."""
    copies = []
    for file in files:
        copies.append(directory / str(len(copies)))
        copies[-1].mkdir()
        for component in file.parent.glob(file.name.replace("-Data.db", "-*")):
            shutil.copy(component, copies[-1])
    return copies


def data_files(directory, table):
    files = sorted(path for path in directory.rglob("*-Data.db") if path.parent.name.startswith(table))
    assert files, f"no data file of {table} under {directory}"
    return files


@contextlib.contextmanager
def imported(files, copies, create, keyspace, table, *options):
    """A Cassandra node, and a session of it, whose table has what is in the files; `copies` is an empty directory."""
    directories = apart(files, copies)
    with cassandra.Cassandra() as node, cql.cluster(node.server) as cluster:
        session = cluster.connect()
        create(session)
        node.nodetool("import", *options, keyspace, table, *map(str, directories))
        yield node, session


def dumped_rows(offline, data_file):
    """Canonical rows of an sstable."""
    for partition in offline.dump(data_file):
        assert "deletion_info" not in partition["partition"], partition["partition"]
        key = partition["partition"]["key"]
        for row in partition["rows"]:
            assert row["type"] == "row" and "deletion_info" not in row, row
            yield row_of(dict(zip(rows.KEYS, [*key, *row["clustering"]], strict=True)), row["cells"])


def row_of(keys, cells):
    values = {name: SCALARS.get(rows.COLUMNS[name], str)(value) for name, value in keys.items()}
    collections = {}
    for cell in cells:
        name = cell["name"]
        if "path" in cell:
            if "deletion_info" not in cell:
                collections.setdefault(name, []).append((cell["path"][0], cell["value"]))
        elif "deletion_info" not in cell:
            convert = SCALARS.get(rows.COLUMNS[name])
            values[name] = convert(cell["value"]) if convert else cell["value"]
    for name, elements in collections.items():
        kind = rows.COLUMNS[name]
        if kind.startswith("list"):
            values[name] = tuple(value for _, value in elements)
        elif kind.startswith("set"):
            values[name] = tuple(sorted(path for path, _ in elements))
        else:
            values[name] = tuple(sorted(elements))
    return tuple(values.get(name) for name in rows.COLUMNS)


def compare(data_files, count, seed=rows.SEED):
    expected = load.Expected(count, seed)
    with Offline() as offline:
        for data_file in data_files:
            for row in dumped_rows(offline, data_file):
                expected.found(row)
    expected.check()


if __name__ == "__main__":
    begin = time.monotonic()
    compare(sys.argv[2:], int(sys.argv[1]))
    print(f"{sys.argv[1]} rows in {len(sys.argv) - 2} sstables as they were written ({time.monotonic() - begin:.0f} s)")
