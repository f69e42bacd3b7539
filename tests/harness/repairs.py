"""Repairs of one table, and the marks that they leave."""

from harness.node import run_ceto


def repaired(cluster, number, *words):
    """What a repair of one table says of it."""
    printed = cluster.node(number).nodetool("repair", *words).strip().splitlines()
    assert len(printed) == 2, printed
    names = ["ranges", "rows", "differing", "sent", "received", "skipped"]
    return dict(zip(names, (int(word) for word in printed[1].split()[2:]), strict=True))


def files(cluster, keyspace):
    """The sstables of all nodes."""
    return [file for node in cluster for file in (node.workdir / "data" / keyspace).glob("t-*/*-Data.db")]


def marks(cluster, keyspace):
    """The marks in the sstables of all nodes, as the tool reads them from the files."""
    found = []
    for file in files(cluster, keyspace):
        [line] = [line for line in run_ceto("sstable", "metadata", str(file)).splitlines() if line.startswith("Repaired at")]
        found.append(int(line.split()[-1]))
    return found
