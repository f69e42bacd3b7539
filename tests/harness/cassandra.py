"""Apache Cassandra from its jars (`./dev test` puts them in .dev/cassandra): the judge of our sstables.

`sstabledump` needs no server. `Cassandra` is a throw-away node that imports sstables and reads them.
"""

import json
import os
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from decimal import Decimal
from pathlib import Path

from harness.node import free_ports
from harness.server import Server

START_SECONDS = 180
STOP_SECONDS = 60
# Java 17 closes packages to the outside that Cassandra reaches into.
EXPORTED = {
    "java.base": ["jdk.internal.misc", "jdk.internal.ref", "sun.nio.ch", "java.lang.ref"],
    "java.management.rmi": ["com.sun.jmx.remote.internal.rmi"],
    "java.rmi": ["sun.rmi.registry", "sun.rmi.server"],
    "java.sql": ["java.sql"],
    "jdk.unsupported": ["sun.misc"],
}
OPENED = {
    "java.base": [
        "java.io",
        "java.lang",
        "java.lang.module",
        "java.lang.reflect",
        "java.math",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "java.util.concurrent.atomic",
        "jdk.internal.loader",
        "jdk.internal.math",
        "jdk.internal.module",
        "jdk.internal.ref",
        "jdk.internal.reflect",
        "jdk.internal.util.jar",
        "sun.nio.ch",
    ],
    "jdk.management": ["com.sun.management.internal"],
}
LOGBACK = """<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><target>${log.to}</target>
<encoder><pattern>%level %logger{0}: %msg%n</pattern></encoder></appender>
<root level="${log.level}"><appender-ref ref="OUT"/></root></configuration>"""


def jars():
    """Where the jars are, or None."""
    directory = Path(os.environ.get("CETO_CASSANDRA_JARS", Path(__file__).resolve().parents[2] / ".dev" / "cassandra"))
    return directory if any(directory.glob("cassandra-all-*.jar")) else None


def java(directory, *arguments, properties=(), heap="1g", log_level="WARN", log_to="System.err"):
    opens = [f"--add-exports={m}/{p}=ALL-UNNAMED" for m, packages in EXPORTED.items() for p in packages]
    opens += [f"--add-opens={m}/{p}=ALL-UNNAMED" for m, packages in OPENED.items() for p in packages]
    flags = [
        "-Djava.security.manager=allow",
        "-Djava.net.preferIPv4Stack=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dcassandra.config=file://{directory}/cassandra.yaml",
        f"-Dcassandra.storagedir={directory}",
        f"-Dlogback.configurationFile={directory}/logback.xml",
        f"-Dlog.level={log_level}",
        f"-Dlog.to={log_to}",
        *properties,
    ]
    return ["java", f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", *opens, *flags, "-cp", f"{jars()}/*", *arguments]


def write_configuration(directory, port, storage_port):
    places = {
        "commitlog_directory": "commitlog",
        "saved_caches_directory": "saved_caches",
        "hints_directory": "hints",
        "cdc_raw_directory": "cdc_raw",
    }
    configuration = {
        "cluster_name": "interchange",
        "num_tokens": 1,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": f"127.0.0.1:{storage_port}"}],
            }
        ],
        "listen_address": "127.0.0.1",
        "rpc_address": "127.0.0.1",
        "native_transport_port": port,
        "storage_port": storage_port,
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "10000ms",
        "data_file_directories": [str(directory / "data")],
    } | {key: str(directory / place) for key, place in places.items()}
    (directory / "triggers").mkdir(exist_ok=True)
    (directory / "logback.xml").write_text(LOGBACK)
    (directory / "cassandra.yaml").write_text(json.dumps(configuration, indent=1))  # JSON is YAML


class Offline:
    """Cassandra's tools on files."""

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="ceto-cassandra-"))
        write_configuration(self.directory, 9042, 7000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)

    def command(self, tool, *arguments):
        return java(self.directory, f"org.apache.cassandra.tools.{tool}", *arguments)

    def dump(self, data_file):
        """sstabledump: the partitions of an sstable, one by one, numbers as they are written."""
        with subprocess.Popen(
            self.command("SSTableExport", str(data_file), "-l"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            said = []
            reader = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
            reader.start()
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line, parse_float=Decimal)
            code = process.wait()
            reader.join()
        assert code == 0, f"sstabledump refused {data_file}:\n{''.join(said)}"

    def metadata(self, data_file):
        """sstablemetadata: what it prints."""
        done = subprocess.run(self.command("SSTableMetadataViewer", str(data_file)), capture_output=True, text=True)
        assert done.returncode == 0, f"sstablemetadata refused {data_file}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


class Cassandra:
    """A node for one test."""

    def __init__(self, heap="1g"):
        self.directory = Path(tempfile.mkdtemp(prefix="ceto-cassandra-"))
        self.port, self.jmx_port, storage_port = free_ports("127.0.0.1", 3)
        self.heap = heap
        write_configuration(self.directory, self.port, storage_port)
        self.process = None

    def __enter__(self):
        properties = [
            f"-Dcassandra.triggers_dir={self.directory}/triggers",
            f"-Dcassandra.jmx.local.port={self.jmx_port}",
            "-Dcassandra.ring_delay_ms=100",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra-foreground=yes",
        ]
        line = java(
            self.directory,
            "org.apache.cassandra.service.CassandraDaemon",
            properties=properties,
            heap=self.heap,
            log_level="INFO",
            log_to="System.out",
        )
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        self.lines, serving = [], queue.SimpleQueue()

        def read():
            for line in self.process.stdout:
                self.lines.append(line)
                if "Starting listening for CQL clients" in line:
                    serving.put(True)
            serving.put(False)

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        try:
            assert serving.get(timeout=START_SECONDS), "Cassandra ended:\n" + "".join(self.lines[-40:])
            self._wait_until_it_listens()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_until_it_listens(self):
        """It announces the port a moment before it opens it."""
        deadline = time.monotonic() + START_SECONDS
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            assert time.monotonic() < deadline and self.process.poll() is None, "".join(self.lines[-40:])

    @property
    def server(self):
        return Server("127.0.0.1", self.port)

    def nodetool(self, *arguments):
        tool = "org.apache.cassandra.tools.NodeTool"
        line = java(self.directory, tool, "-p", str(self.jmx_port), *arguments, properties=["-Dnodetool.history=false"])
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, f"nodetool {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout
