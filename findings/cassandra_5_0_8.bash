# For the findings about Apache Cassandra 5.0.8, which source it: installs the server and cassandra-driver 3.30.1 in a
# temporary folder, goes there, and starts the server on free loopback ports. Sets $home, $port, $server; `stop` ends
# the server. The folder is removed at the end.
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
