#!/usr/bin/env bash
# Apache Cassandra 5.0.8: the text of a timestamp before year 1, in toJson(), SELECT JSON and CAST(... AS text). CQL's
# timestamp is a signed 64-bit number of milliseconds, so years before year 1 are valid.
#
# Guess: the text has the sign of the year, as the text of a date of the same day does.
# Seen: it has the year of the era, and no era: the year -5 (6 BC) is written 0006, as the year 6 is. This is valid text
# of another moment: fromJson() of what toJson() wrote stores one that is 11 years later, without an error.
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

from cassandra.cluster import Cluster

DAY_MS = 86_400_000

with Cluster(["127.0.0.1"], port=int(sys.argv[1])) as cluster:
    session = cluster.connect()
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE k.t (p int PRIMARY KEY, v timestamp)")

    def one(columns):
        return session.execute(f"SELECT {columns} FROM k.t").one()

    for day_number, text, expected in [
        (-719_162, "0001-01-01", "0001-01-01"),
        (-719_163, "0000-12-31", "0001-12-31"),
        (-719_529, "-0001-12-31", "0002-12-31"),
        (-721_354, "-0005-01-01", "0006-01-01"),
    ]:
        given = day_number * DAY_MS
        session.execute(f"INSERT INTO k.t (p, v) VALUES (1, {given})")
        written, cast, day = one("toJson(v), CAST(v AS text), CAST(toDate(v) AS text)")
        session.execute(f"INSERT INTO k.t (p, v) VALUES (1, fromJson('{written}'))")
        back = one("toUnixTimestamp(v)")[0]
        later = (back - given) // DAY_MS
        print(f"{text}: date {day}, timestamp {cast}, as JSON {written}, from which it is read {later} days later")
        assert day == text
        assert written == f'"{expected} 00:00:00.000Z"', "the behaviour has changed"
        assert cast == f"{expected}T00:00:00.000Z", "the behaviour has changed"
        assert (back == given) == (text == expected), "the behaviour has changed"
PYTHON
