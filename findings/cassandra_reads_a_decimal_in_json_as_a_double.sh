#!/usr/bin/env bash
# Apache Cassandra 5.0.8: a decimal in INSERT JSON or fromJson(), written as a JSON number.
#
# Guess: CQL's decimal has any number of digits, and so has a JSON number: all digits are kept, as toJson() writes them.
# Seen: a number with a point or an exponent is read as a 64-bit float first. 20 digits become 17 and zeros at the end
# are lost, without a warning; 1E+400 is refused as 'Infinity'. So INSERT JSON of what SELECT JSON returned stores
# another value. A number without a point or an exponent is exact, and so are the digits in a JSON string.
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

from cassandra import InvalidRequest
from cassandra.cluster import Cluster

with Cluster(["127.0.0.1"], port=int(sys.argv[1])) as cluster:
    session = cluster.connect()
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE k.t (p text PRIMARY KEY, v decimal)")

    def stored(row):
        try:
            session.execute(f"INSERT INTO k.t JSON '{row}'")
        except InvalidRequest as error:
            return str(error).partition("message=")[2]
        return str(session.execute("SELECT v FROM k.t WHERE p = 'json'").one().v)

    for digits, expected in [
        ("1.2345678901234567890", "1.2345678901234567"),
        ("123456789012345678.5", "1.2345678901234568E+17"),
        ("1.10", "1.1"),
        ("100000000000000000000000000000000000001", "100000000000000000000000000000000000001"),
        ("1E+400", None),
    ]:
        number, text = (stored(f'{{"p": "json", "v": {v}}}') for v in (digits, f'"{digits}"'))
        print(f"{digits}: a JSON number becomes {number}; a JSON string becomes {text}")
        assert text == digits
        assert number == expected or (expected is None and "'Infinity'" in number), "the behaviour has changed"

    session.execute("INSERT INTO k.t (p, v) VALUES ('json', 1.2345678901234567890)")
    row = session.execute("SELECT JSON p, v FROM k.t WHERE p = 'json'").one()[0]
    back = stored(row)
    print(f"SELECT JSON returns {row}; INSERT JSON of it stores {back}")
    assert back == "1.2345678901234567" and "1.2345678901234567890" in row, "the behaviour has changed"
PYTHON
