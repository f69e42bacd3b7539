#!/usr/bin/env bash
# Apache Cassandra 5.0.8: what sstabledump (org.apache.cassandra.tools.SSTableExport) prints for a counter.
#
# Guess: "value" is the counter's value, as SELECT returns it.
# Seen: it is the same number for each counter that one node wrote. The cell's bytes are a list of shards, one per node
# that has counted, and the tool prints the first 8 of these bytes as a bigint: 2 bytes for how many entries the header
# has (1), 2 for the first of them (a global shard, 0x8000), and the first 4 of the node's host id. The count itself
# comes later in the cell, and no part of the output depends on it.
set -euo pipefail
home=$(mktemp -d)
server=
stop() { [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" || true; server=; }; }
trap 'stop; rm -rf -- "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check cassandra-driver==3.30.1
cat >pom.xml <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>example</groupId><artifactId>example</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>5.0.8</version>
    </dependency>
  </dependencies>
</project>
POM
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars >/dev/null
read -r port storage <<<"$(python3 -c 'import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(server.getsockname()[1] for server in free))')"
mkdir conf
echo '<configuration/>' >conf/logback.xml
cat >conf/cassandra.yaml <<YAML
cluster_name: example
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider:
  - {class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: "127.0.0.1:$storage"}]}
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: $storage
native_transport_port: $port
commitlog_sync: periodic
commitlog_sync_period: 10s
YAML
{
    # Packages that Java 17 closes.
    printf -- '--add-opens=java.base/%s=ALL-UNNAMED\n' jdk.internal.{misc,ref} sun.nio.ch java.{io,lang,nio}
    echo "-Djava.security.manager=allow -Djava.io.tmpdir=$home"
    echo "-Dcassandra.config=file:$home/conf/cassandra.yaml -Dcassandra.storagedir=$home/data"
} >java.args
java @java.args -Xmx1G -Dcassandra.ring_delay_ms=100 -Dcassandra.skip_wait_for_gossip_to_settle=0 \
    -cp "conf:jars/*" org.apache.cassandra.service.CassandraDaemon >log 2>&1 &
server=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || { tail log >&2; exit 1; }
    sleep 0.5
done
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
