"""What requests cost on three nodes, and three Cassandra nodes beside them where CETO_PEERS names the script that starts them.

Replication factor 3, so every node has every row. Servers and client share the processors of the machine, one cluster runs at a
time, and CPU time is that of all three nodes together, per answer.
"""

import contextlib
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from compare import free_cassandra_port, run_peer
from figures import ROOT, figure, missing, perf
from harness import cql
from harness.cluster import Cluster, address

NODES = 3
# 64 in flight, as the baseline of the peers was measured.
CONNECTIONS, DEPTH = 16, 4
PARTITIONS = 10_000
MEASURED_SECONDS = float(os.environ.get("CETO_BENCH_SECONDS", "10"))
# Each workload runs until a stretch of it costs no less than the one before, so that a JVM has compiled what it will; at most so long.
WARM_UP_SECONDS = float(os.environ.get("CETO_BENCH_WARM_UP_SECONDS", "60"))
WARM_UP_STRETCH_SECONDS = 5
WARM_AT = 0.95
COUNTED_OPERATIONS = 20_000

WORKLOADS = {"write": ["--workload", "write"], "read": ["--workload", "read"], "conditional write": ["--lwt"]}
# CPU of three nodes, microseconds an operation, of Cassandra 5.0.8 on a machine like those that ceto was made on.
CASSANDRA_CPU = {"write": 331, "read": 241, "conditional write": 1_410}
CPU_OF_CASSANDRA_MAX = {"write": 1 / 12, "read": 1 / 16, "conditional write": 1 / 25}
CONDITIONAL_INSTRUCTIONS_MAX = 75_000

# The clients of the published table of conditional writes.
CLIENTS = (1, 10, 100, 500, 1_000, 2_000, 4_000)
CLIENTS_WITHOUT_TIMEOUTS = 1_000
CLIENT_CONNECTIONS_MAX = 50
CONTENDERS = 100
CONTENDED_P99_MAX = 20

TRUNCATIONS = 20
TRUNCATE_MS_MAX = 50

TABLET_MAP_BYTES_MAX = 40e6
TABLET_CHANGE_MS_MAX = 3


def cluster():
    cassandra = measure(Cassandra) if os.environ.get("CETO_PEERS") else {}
    ceto = measure(Ceto)
    for workload, most in CPU_OF_CASSANDRA_MAX.items():
        figure(f"QUORUM {workload}, CPU of three nodes", ceto[workload], "us/operation")
        if cassandra:
            figure(f"QUORUM {workload}, CPU of three Cassandra nodes", cassandra[workload], "us/operation")
            figure(f"QUORUM {workload}, CPU against theirs", ceto[workload] / cassandra[workload], "times", most=most)
        against = ceto[workload] / CASSANDRA_CPU[workload]
        figure(f"QUORUM {workload}, CPU against {CASSANDRA_CPU[workload]} us of a Cassandra", against, "times", most=most)
    if not cassandra:
        print("no Cassandra: CETO_PEERS names the script that starts it")
    tablet_map()


def measure(servers):
    """CPU time per operation of each workload."""
    with servers() as nodes:
        found = {workload: cpu(nodes, workload, options) for workload, options in WORKLOADS.items()}
        nodes.more_figures()
    return found


def cpu(nodes, workload, options):
    options = [*options, "--warm-up", "0", "--server-pid", ",".join(map(str, nodes.pids))]
    costs = [load(nodes, *options, seconds=WARM_UP_STRETCH_SECONDS)["server_cpu_us_per_operation"]]
    options.append("--no-populate")
    while len(costs) * WARM_UP_STRETCH_SECONDS < WARM_UP_SECONDS:
        costs.append(load(nodes, *options, seconds=WARM_UP_STRETCH_SECONDS)["server_cpu_us_per_operation"])
        if costs[-1] > WARM_AT * costs[-2]:
            break
    print(f"{nodes.name:10} {workload:18} warming up, CPU: {', '.join(f'{c:.1f}' for c in costs)} us", flush=True)
    result = load(nodes, *options)
    latency = result["latency"]
    print(
        f"{nodes.name:10} {workload:18} {result['rate']:>10,.0f}/s  CPU {result['server_cpu_us_per_operation']:8.2f} us"
        f"  p50 {latency['p50_us'] / 1000:7.2f}  p99 {latency['p99_us'] / 1000:7.2f} ms  {errors_of(result)}",
        flush=True,
    )
    return result["server_cpu_us_per_operation"]


def load(nodes, *options, connections=CONNECTIONS, depth=DEPTH, partitions=PARTITIONS, seconds=MEASURED_SECONDS):
    """One run of the load generator against all nodes; its report."""
    hosts = ",".join(f"{host}:{nodes.port}" for host in nodes.hosts)
    size = ["--connections", str(connections), "--depth", str(depth), "--partitions", str(partitions)]
    common = ["--replication-factor", str(NODES), "--consistency-level", "QUORUM", "--duration", str(seconds)]
    result, _ = perf("cql", "--connect", hosts, *size, *common, *options)
    return result


def truncate():
    """The time of a TRUNCATE of an empty table, as a driver waits for it."""
    with Ceto() as nodes, cql.cluster(nodes.cluster.node(1).server) as driver:
        session = driver.connect()
        replication = f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {NODES}}}"
        session.execute(f"CREATE KEYSPACE truncated WITH replication = {replication}")
        session.execute("CREATE TABLE truncated.empty (k int PRIMARY KEY, v text)")
        times = []
        for _ in range(TRUNCATIONS):
            began = time.monotonic()
            session.execute("TRUNCATE truncated.empty")
            times.append((time.monotonic() - began) * 1000)
    figure(f"TRUNCATE of an empty table, {NODES} nodes, median of {TRUNCATIONS}", statistics.median(times), "ms", most=TRUNCATE_MS_MAX)
    figure("and the longest", max(times), "ms")


def errors_of(result):
    found = [f"{count} {name}" for name, count in result["errors"].items()]
    if result["not_applied"]:
        found.append(f"{result['not_applied']} not applied")
    return ", ".join(found) or "no errors"


# --- the servers ---


class Ceto:
    name = "ceto"
    hosts = [address(number) for number in range(1, NODES + 1)]

    def __init__(self, **settings):
        self.cluster = Cluster(NODES, memory="1G", **settings)

    def __enter__(self):
        self.cluster.__enter__()
        self.port = self.cluster.ports[0]
        self.pids = [node.pid for node in self.cluster]
        return self

    def __exit__(self, *_):
        self.cluster.remove()

    def more_figures(self):
        for workload, options in WORKLOADS.items():
            most = CONDITIONAL_INSTRUCTIONS_MAX if workload == "conditional write" else None
            instructions(self, workload, options, most)
        clients(self)

    def user_instructions(self):
        """Of the shards of all nodes; none where they are not counted."""
        told = [node.metrics() for node in self.cluster]
        counts = [value for of_node in told for name, value in of_node.items() if "user_instructions" in name]
        return sum(counts) if counts else None


class Cassandra:
    name = "cassandra"
    hosts = Ceto.hosts

    def __init__(self):
        self.script = os.environ["CETO_PEERS"]
        self.port = free_cassandra_port()
        self.running = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as started:
            self.directory = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="ceto-bench-cassandra-")))
            self.pids = [self._start(host, started) for host in self.hosts]
            self.running = started.pop_all()
        return self

    def _start(self, host, started):
        environment = {"CASS_HEAP": "1536M"} | os.environ | {"CASS_IP": host, "CASS_SEEDS": self.hosts[0]}
        arguments = [str(self.port), str(self.directory / host)]
        started.callback(run_peer, self.script, "stop", *arguments, environment=environment)
        said = run_peer(self.script, "start", *arguments, environment=environment)
        return int(re.search(r"pid (\d+)", said)[1])

    def __exit__(self, *_):
        self.running.close()

    def more_figures(self):
        pass


# --- what only ceto is asked ---


def instructions(nodes, workload, options, most):
    """User instructions of all nodes per operation, by the processor's counters; what nodes do besides is in it."""
    what = f"QUORUM {workload}, three nodes"
    counted = ["--no-populate", "--warm-up", "0", "--operations", str(COUNTED_OPERATIONS)]
    before = nodes.user_instructions()
    load(nodes, *options, *counted)
    after = nodes.user_instructions()
    if before is None:
        return missing(what, "instructions are not counted here: perf_event_open(2) is refused")
    return figure(what, (after - before) / COUNTED_OPERATIONS, "instructions/op", most=most)


def clients(nodes):
    """Conditional writes of more and more clients, each to its own key; then of many to one."""
    p99 = {}
    for count in CLIENTS:
        result = lwt(nodes, count)
        p99[count] = result["latency"]["p99_us"]
        if count <= CLIENTS_WITHOUT_TIMEOUTS:
            figure(f"conditional writes of {count:,} clients, timeouts", result["timeouts"], "timeouts", most=0)
            figure(f"conditional writes of {count:,} clients, errors", sum(result["errors"].values()), "errors", most=0)
    result = lwt(nodes, CONTENDERS, "--contended")
    what = f"conditional writes of {CONTENDERS} clients to one key"
    figure(f"{what}, errors", sum(result["errors"].values()), "errors", most=0)
    figure(f"{what}, least of a client", result["answers_of_slowest_client"], "answers", least=1)
    ratio = result["latency"]["p99_us"] / p99[CONTENDERS]
    figure(f"{what}, p99 against own keys", ratio, "times", most=CONTENDED_P99_MAX)


def lwt(nodes, count, *options):
    connections = min(count, CLIENT_CONNECTIONS_MAX)
    depth = count // connections
    result = load(nodes, "--lwt", *options, connections=connections, depth=depth, partitions=count)
    latency = result["latency"]
    print(
        f"{count:>6,} clients{', one key' if options else '':9} {result['rate']:>10,.0f}/s"
        f"  p50 {latency['p50_us'] / 1000:8.2f}  p99 {latency['p99_us'] / 1000:8.2f}  max {latency['max_us'] / 1000:8.2f} ms"
        f"  {result['timeouts']} timeouts  {errors_of(result)}",
        flush=True,
    )
    return result


def tablet_map():
    """131,072 tablets: bytes of the map, time of a change of 1,000 of them."""
    line = ["cargo", "run", "--quiet", "--release", "-p", "topology", "--example", "tablet_map"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return missing("131,072 tablets", f"{' '.join(line)} failed: {done.stderr[-300:]}")
    size = int(re.search(r"^memory: (\d+) bytes", done.stdout, re.M)[1])
    change = float(re.search(r"decoded and applied: ([\d.]+) ms", done.stdout)[1])
    figure("map of 131,072 tablets", size, "bytes", most=TABLET_MAP_BYTES_MAX)
    return figure("map of 131,072 tablets, change of 1,000", change, "ms", most=TABLET_CHANGE_MS_MAX)
