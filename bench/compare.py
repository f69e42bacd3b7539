#!/usr/bin/env python3
"""ceto, Apache Cassandra and Redis in one run: the server pinned to core 0, the client to core 1, one server at a time.

    bench/compare.py [--peers SCRIPT] [--only NAME,...] [--seconds S]

SCRIPT starts and stops Cassandra: `SCRIPT start PORT DIRECTORY CPUS` prints `pid N`, `SCRIPT stop PORT DIRECTORY`; the
environment names it as CETO_PEERS too. Redis is Debian's redis-server, with its append-only file synced every second, which
is what ceto's periodic commitlog is.

Measured: CPU time of the server per request at its peak, and p99 at half of Cassandra's peak rate, which is an open loop
whose latencies count from when a request was due.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness import Node  # noqa: E402
from harness.node import ceto_binary, free_ports  # noqa: E402

SERVER_CORE, CLIENT_CORE = "0", "1"
HOST = "127.0.0.1"
# 16 requests in flight on each connection, the depth at which Redis is compared.
CONNECTIONS, DEPTH = 8, 16
PARTITIONS = 100_000
# A JVM is warm after some hundred thousand requests of each kind; the others get the same.
WARM_UP_SECONDS = 30
WORKLOADS = ("write", "read")

CPU_OF_CASSANDRA_MAX = 1 / 5
CPU_OF_REDIS_MAX = 1.0
P99_OF_CASSANDRA_MAX = 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", default=os.environ.get("CETO_PEERS"), help="script that starts and stops Cassandra")
    parser.add_argument("--only", default="cassandra,redis,ceto", help="servers to run, of cassandra,redis,ceto")
    parser.add_argument("--seconds", type=float, default=10, help="seconds of each measurement")
    parser.add_argument(
        "--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds before the measurements of a server"
    )
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if "cassandra" in names and not arguments.peers:
        print("no Cassandra: name the script that starts it with --peers or CETO_PEERS")
        names.remove("cassandra")

    measured = {}
    half_rates = {}
    for name in ("cassandra", "redis", "ceto"):  # Cassandra first: its peak decides the rates of the latency runs
        if name not in names:
            continue
        with {"cassandra": Cassandra, "redis": Redis, "ceto": Ceto}[name](arguments) as server:
            measured[name] = measure(server, arguments, half_rates)
    return report(measured)


def measure(server, arguments, half_rates):
    """Peak of each workload, then, of CQL servers, each at half of Cassandra's peak."""
    for workload in WORKLOADS:
        run_load(server, workload, arguments.warm_up / len(WORKLOADS), quiet=True)
    found = {workload: run_load(server, workload, arguments.seconds) for workload in WORKLOADS}
    if server.name == "cassandra":
        half_rates |= {workload: found[workload]["rate"] / 2 for workload in WORKLOADS}
    if server.speaks == "cql":
        for workload, rate in half_rates.items():
            found[f"{workload} at half"] = run_load(server, workload, arguments.seconds, rate)
    return found


def run_load(server, workload, seconds, rate=None, quiet=False):
    """One run of ceto's load generator, pinned to its core; its report."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        line = [
            "taskset",
            "-c",
            CLIENT_CORE,
            str(ceto_binary()),
            "perf",
            server.speaks,
            "--connect",
            f"{HOST}:{server.port}",
            "--workload",
            workload,
            "--connections",
            str(CONNECTIONS),
            "--depth",
            str(DEPTH),
            "--partitions",
            str(PARTITIONS),
            "--duration",
            str(seconds),
            "--server-pid",
            str(server.pid),
            "--json-result",
            result.name,
        ]
        if rate:
            line += ["--rate", f"{rate:.0f}"]
        done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(line)}\n{done.stdout}{done.stderr}")
        found = json.loads(Path(result.name).read_text())
    errors = sum(found["errors"].values())
    if errors:
        print(f"{server.name} {workload}: {errors} errors, the first: {found['first_error']}")
    if not quiet:
        print(
            f"{server.name:10} {workload:5} {'peak' if rate is None else f'at {rate:,.0f}/s':14}"
            f" {found['rate']:>10,.0f}/s  server CPU {found['server_cpu_us_per_operation']:6.2f} us"
            f"  p50 {found['latency']['p50_us']:8,.0f}  p99 {found['latency']['p99_us']:8,.0f}"
            f"  p99.9 {found['latency']['p999_us']:8,.0f} us",
            flush=True,
        )
    return found


def report(measured):
    """The table of ratios; the exit code is the number of misses."""
    if "ceto" not in measured:
        return 0
    lines = []

    def compare(what, other, run, value, unit, wanted):
        if other not in measured or run not in measured[other]:
            return
        ours, theirs = value(measured["ceto"][run]), value(measured[other][run])
        lines.append((what, f"{ours:,.2f} {unit}", f"{other} {theirs:,.2f} {unit}", ours / theirs, wanted))

    def cpu(run):
        return run["server_cpu_us_per_operation"]

    def p99(run):
        return run["latency"]["p99_us"]

    for workload in WORKLOADS:
        compare(f"CPU per {workload}", "cassandra", workload, cpu, "us", CPU_OF_CASSANDRA_MAX)
        compare(f"CPU per {workload}", "redis", workload, cpu, "us", CPU_OF_REDIS_MAX)
        compare(
            f"p99 of {workload}s at half Cassandra's peak",
            "cassandra",
            f"{workload} at half",
            p99,
            "us",
            P99_OF_CASSANDRA_MAX,
        )
    print(f"\n{'figure':42} {'ceto':>16} {'other':>26} {'ratio':>7} {'wanted':>8}")
    for what, ours, theirs, ratio, wanted in lines:
        print(
            f"{what:42} {ours:>16} {theirs:>26} {ratio:7.3f} {'<= ' + format(wanted, '.2f'):>8} {'pass' if ratio <= wanted else 'MISS'}"
        )
    return sum(ratio > wanted for *_, ratio, wanted in lines)


# --- the servers ---


class Ceto:
    name, speaks = "ceto", "cql"

    def __init__(self, arguments):
        self.node = Node(smp=1, memory="2G", wrapper=["taskset", "-c", SERVER_CORE])

    def __enter__(self):
        self.node.start()
        self.port, self.pid = self.node.port, self.node.pid
        return self

    def __exit__(self, *_):
        self.node.remove()


class Cassandra:
    name, speaks = "cassandra", "cql"

    def __init__(self, arguments):
        self.script = arguments.peers
        self.directory = tempfile.TemporaryDirectory(prefix="ceto-bench-cassandra-")
        self.port = free_cassandra_port()

    def __enter__(self):
        environment = {"CASS_HEAP": "8G"} | os.environ
        said = self._call("start", SERVER_CORE, environment=environment)
        self.pid = int(re.search(r"pid (\d+)", said)[1])
        return self

    def __exit__(self, *_):
        self._call("stop")
        self.directory.cleanup()

    def _call(self, command, *more, environment=None):
        return run_peer(self.script, command, str(self.port), self.directory.name, *more, environment=environment)


def free_cassandra_port():
    """Its other ports move with the first: a number that leaves room for them."""
    (port,) = free_ports(HOST, 1)
    return 20_000 + port % 10_000


def run_peer(*line, environment=None):
    """Run a command of the script that starts Cassandra; what it printed."""
    with tempfile.TemporaryFile("w+") as output:  # a file: the server inherits it, and would keep a pipe open
        code = subprocess.call(line, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        output.seek(0)
        said = output.read()
    if code != 0:
        raise SystemExit(f"{' '.join(line)}\n{said}")
    return said


class Redis:
    name, speaks = "redis", "redis"

    def __init__(self, arguments):
        self.directory = tempfile.TemporaryDirectory(prefix="ceto-bench-redis-")
        (self.port,) = free_ports(HOST, 1)

    def __enter__(self):
        line = [
            "taskset",
            "-c",
            SERVER_CORE,
            "redis-server",
            "--port",
            str(self.port),
            "--bind",
            HOST,
            "--save",
            "",
            "--dir",
            self.directory.name,
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
        ]
        try:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            raise SystemExit("redis-server is missing: apt-get install redis-server") from None
        self.pid = self.process.pid
        for said in self.process.stdout:
            if "Ready to accept connections" in said:
                return self
        raise SystemExit("redis-server ended before it served")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.directory.cleanup()


if __name__ == "__main__":
    sys.exit(main())
