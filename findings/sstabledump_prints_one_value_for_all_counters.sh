#!/usr/bin/env bash
# Apache Cassandra 5.0.8: what sstabledump (org.apache.cassandra.tools.SSTableExport) prints for a counter.
#
# Guess: "value" is the counter's value, as SELECT returns it.
# Seen: it is the same number for each counter that one node wrote. The cell's bytes are a list of shards, one per node
# that has counted, and the tool prints the first 8 of these bytes as a bigint: 2 bytes for how many entries the header
# has (1), 2 for the first of them (a global shard, 0x8000), and the first 4 of the node's host id. The count itself
# comes later in the cell, and no part of the output depends on it.
set -euo pipefail
. "$(dirname "$0")/cassandra_5_0_8.bash"
venv/bin/python - "$port" >seen <<'PYTHON'
import sys

from cassandra.cluster import Cluster

with Cluster(["127.0.0.1"], port=int(sys.argv[1])) as cluster:
    session = cluster.connect()
    # Without a commitlog, the memtable is flushed when the server stops.
    session.execute("""CREATE KEYSPACE k WITH durable_writes = false AND
        replication = {'class': 'SimpleStrategy', 'replication_factor': 1}""")
    session.execute("CREATE TABLE k.t (p int PRIMARY KEY, v counter)")
    for partition, changes in enumerate([[1], [-7], [1_000_000, 2], [2**62]]):
        for change in changes:
            session.execute("UPDATE k.t SET v = v + %s WHERE p = %s", (change, partition))
    print(session.execute("SELECT host_id FROM system.local").one().host_id.hex)
    for partition, value in sorted(session.execute("SELECT p, v FROM k.t")):
        print(partition, value)
PYTHON
stop
java @java.args -cp "conf:jars/*" org.apache.cassandra.tools.SSTableExport data/data/k/*/*-Data.db >dump.json
python3 - <<'PYTHON'
import json

with open("seen") as file:
    host_id, *rows = file.read().splitlines()
values = dict(row.split() for row in rows)
with open("dump.json") as file:
    partitions = json.load(file)
assert len(partitions) == len(values) == 4
for partition in sorted(partitions, key=lambda p: p["partition"]["key"]):
    (key,), (row,) = partition["partition"]["key"], partition["rows"]
    printed = row["cells"][0]["value"]
    as_bytes = printed.to_bytes(8, "big").hex()
    print(f"counter {values[key]}: sstabledump prints {printed}, which is {as_bytes}; host id {host_id[:8]}...")
    assert as_bytes == "00018000" + host_id[:8], "the behaviour has changed"
PYTHON
