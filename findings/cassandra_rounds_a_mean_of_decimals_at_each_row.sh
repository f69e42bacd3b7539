#!/usr/bin/env bash
# Apache Cassandra 5.0.8: avg() of a decimal column.
#
# Guess: the sum divided by the count, rounded at most once; the order of the rows does not matter.
# Seen: a running mean, rounded half to even at each row to as many digits after the point as the values so far have.
# The mean of 1 and 2 is 1, that of 2 and 1 is 2, and that of 5, 0 and 0 is 2. So it depends on the clustering order,
# and a server that gives the same answer cannot compute it in parts or from the sum.
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
