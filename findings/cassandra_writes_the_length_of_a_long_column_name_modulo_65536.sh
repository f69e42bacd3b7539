#!/usr/bin/env bash
# Apache Cassandra 5.0.8: a selected expression's text is the name of its column in the result's metadata. That name is
# a [string] of the native protocol, whose length has two bytes (native_protocol_v4.spec, sections 3 and 4.2.5.2).
#
# Guess: an expression of more than 65,535 bytes is refused, or its name is cut.
# Seen: the name is written whole and its length modulo 65,536, so clients read the middle of the name as the column's
# type. cassandra-driver 3.30.1 for Python raises NotSupportedError. With a bound value the name is short: (text)?
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
import socket
import struct
import sys

from cassandra.cluster import Cluster

PORT = int(sys.argv[1])
QUERY, RESULT, ROWS, TEXT, ONE = 7, 8, 2, 13, 1


def string(text):
    return struct.pack(">H", len(text)) + text


def received(connection, count):
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data)) or sys.exit("the connection is closed")
    return data


def request(connection, opcode, body):
    """Sends one frame of protocol version 4 and returns the body of its answer."""
    connection.sendall(struct.pack(">BBhBi", 4, 0, 0, opcode, len(body)) + body)
    _, _, _, answer, length = struct.unpack(">BBhBi", received(connection, 9))
    return answer, received(connection, length)


def statement(length):
    """A statement whose only column has a name of so many bytes."""
    return "SELECT (text)'" + "x" * (length - len("(text)''")) + "' FROM system.local"


with socket.create_connection(("127.0.0.1", PORT)) as connection:
    request(connection, 1, struct.pack(">H", 1) + string(b"CQL_VERSION") + string(b"3.0.0"))
    for length in (10, 65_535, 65_536, 65_546):
        text = statement(length).encode()
        name = text[len("SELECT ") : -len(" FROM system.local")]
        answer, body = request(connection, QUERY, struct.pack(">i", len(text)) + text + struct.pack(">HB", ONE, 0))
        # One column of one table: kind, flags, column count, keyspace, table.
        before = struct.pack(">iii", ROWS, 1, 1) + string(b"system") + string(b"local")
        assert answer == RESULT and body.startswith(before)
        stored = struct.unpack_from(">H", body, len(before))[0]
        rest = body[len(before) + 2 :]
        value = name[len("(text)'") : -1]
        row = struct.pack(">Hii", TEXT, 1, len(value)) + value
        print(f"a name of {length} bytes: the length {stored}, then {len(rest) - len(row)} bytes of the name")
        assert rest == name + row, "the behaviour has changed"
        assert stored == length % 65_536, "the behaviour has changed"

with Cluster(["127.0.0.1"], port=PORT) as cluster:
    session = cluster.connect()
    bound = session.execute(session.prepare("SELECT (text)? FROM system.local"), ["x" * 65_536])
    print(f"the driver, a bound value of {len(bound.one()[0])} bytes: column {bound.column_names}")
    try:
        seen = session.execute(statement(65_536)).column_names
    except Exception as error:
        seen = f"{type(error).__name__}: {error}"
    print("the driver, a name of 65536 bytes:", seen)
    assert str(seen).startswith("NotSupportedError: Unknown data type code"), "the behaviour has changed"
PYTHON
