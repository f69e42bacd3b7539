#!/usr/bin/env bash
# Apache Cassandra 5.0.8: avg() of a decimal column.
#
# Guess: the sum divided by the count, rounded at most once; the order of the rows does not matter.
# Seen: a running mean, rounded half to even at each row to as many digits after the point as the values so far have.
# The mean of 1 and 2 is 1, that of 2 and 1 is 2, and that of 5, 0 and 0 is 2. So it depends on the clustering order,
# and a server that gives the same answer cannot compute it in parts or from the sum.
set -euo pipefail
. "$(dirname "$0")/cassandra_5_0_8.bash"
venv/bin/python - "$port" <<'PYTHON'
import sys
from decimal import ROUND_HALF_EVEN, Decimal

from cassandra.cluster import Cluster


def running_mean(values):
    """The mean so far changes by a part of its distance to the next value."""
    mean = Decimal(0)
    for count, value in enumerate(values, 1):
        distance = value - mean
        mean += (distance / count).quantize(distance, ROUND_HALF_EVEN)
    return mean


with Cluster(["127.0.0.1"], port=int(sys.argv[1])) as cluster:
    session = cluster.connect()
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE k.t (p int, c int, v decimal, PRIMARY KEY (p, c))")
    insert = session.prepare("INSERT INTO k.t (p, c, v) VALUES (?, ?, ?)")
    mean_and_sum = session.prepare("SELECT avg(v), sum(v) FROM k.t WHERE p = ?")
    for partition, (texts, expected) in enumerate([
        ("1 2", "1"),
        ("2 1", "2"),
        ("5 0 0", "2"),
        ("0 0 5", "2"),
        ("1 2 2 2 2", "1"),
        ("100 1 1 1", "26"),
        ("0.1 0.2", "0.1"),
        ("1.0 2", "1.5"),
    ]):
        values = [Decimal(text) for text in texts.split()]
        for clustering, value in enumerate(values):
            session.execute(insert, (partition, clustering, value))
        mean, total = session.execute(mean_and_sum, (partition,)).one()
        print(f"the mean of {texts}: {mean}; the sum divided by the count: {total / len(values)}")
        assert total == sum(values)
        assert str(mean) == expected == str(running_mean(values)), "the behaviour has changed"
PYTHON
