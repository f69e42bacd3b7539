"""One node of a cluster: a process of ceto that outlives this one. Its state is in the cluster's file."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

SERVING = re.compile(r"serving CQL on ")
ERROR = re.compile(r"^\S+ +ERROR ", re.M)
START_SECONDS = 60
STOP_SECONDS = 60
NOTICE_SECONDS = 60
COMMAND_SECONDS = 300
POLL_SECONDS = 0.02
SHARDS, MEMORY = 2, "256M"
# Nothing of ceto is at these: the options file has the name, and a suite gives them to each node of Cassandra.
MEANINGLESS = {
    "start_rpc", "rpc_port", "enable_sasi_indexes", "sasi_indexes_enabled", "enable_transient_replication", "transient_replication_enabled",
    "enable_materialized_views", "materialized_views_enabled", "start_native_transport", "concurrent_reads", "concurrent_writes", "phi_convict_threshold",
}  # fmt: skip
PLACES = {
    "storage_port": "storage_port",
    "native_transport_port": "port",
}


class TimeoutError(Exception):  # noqa: A001 - CCM's name
    pass


class NodeError(Exception):
    pass


class Node:
    def __init__(self, cluster, name, facts):
        self.cluster = cluster
        self.name = name
        self.facts = facts  # what the cluster's file keeps of it

    # --- what suites read ---

    @property
    def address(self):
        return self.facts["address"]

    @property
    def data_center(self):
        return self.facts["data_center"]

    @property
    def network_interfaces(self):
        return {"binary": (self.address, self.facts["port"]), "storage": (self.address, self.facts["storage_port"])}

    @property
    def workloads(self):
        return []

    @property
    def pid(self):
        return self.facts.get("pid")

    @property
    def status(self):
        if self.is_running():
            return "UP"
        return "DOWN" if self.facts.get("started") else "DOWN (Not initialized)"

    def is_running(self):
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"

    is_live = is_running

    def address_and_port(self):
        return self.network_interfaces["binary"]

    def get_path(self):
        return str(self.directory)

    @property
    def directory(self):
        return Path(self.cluster.path, self.cluster.name, self.name)

    @property
    def _log(self):
        return self.directory / "logs" / "system.log"

    def grep_log_for_errors(self):
        return [[line] for line in self._log.read_text(errors="replace").splitlines() if ERROR.match(line)] if self._log.exists() else []

    def grep_log(self, expression):
        pattern = re.compile(expression)
        return [(line, match) for line in self._log.read_text(errors="replace").splitlines() if (match := pattern.search(line))]

    # --- what it is told ---

    def set_configuration_options(self, values=None, **_):
        for name, value in (values or {}).items():
            self.facts["options"][name] = value
        self.cluster.save()
        return self

    def set_workloads(self, workloads):
        if workloads:
            raise NodeError(f"workloads are of DataStax Enterprise: {workloads}")

    def set_log_level(self, level, *_):
        pass

    # --- life ---

    def start(self, wait_other_notice=True, wait_for_binary_proto=True, **_):
        """Start and wait until it serves."""
        if self.is_running():
            return
        self._configure()
        self.directory.joinpath("logs").mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            begin = log.tell()
            process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.facts |= {"pid": process.pid, "started": True}
        self.cluster.save()
        deadline = time.monotonic() + START_SECONDS
        while not SERVING.search(said := self._log.read_bytes()[begin:].decode(errors="replace")):
            if process.poll() is not None:
                self.facts["pid"] = None
                self.cluster.save()
                raise NodeError(f"{self.name} ended before it served:\n{said[-2000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not serve within {START_SECONDS} s:\n{said[-2000:]}")
            time.sleep(POLL_SECONDS)
        if wait_other_notice:
            self.cluster.agrees()

    def stop(self, wait=True, gently=True, wait_other_notice=False, **_):
        if not self.is_running():
            return
        self.resume()
        os.kill(self.pid, signal.SIGTERM if gently else signal.SIGKILL)
        deadline = time.monotonic() + STOP_SECONDS
        while self.is_running():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not end within {STOP_SECONDS} s")
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
            time.sleep(POLL_SECONDS)
        self.facts["pid"] = None
        self.cluster.save()
        if wait_other_notice:
            self.cluster.agrees()

    def pause(self):
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def decommission(self, force=False):
        self.nodetool("decommission")
        self.stop()

    def remove(self):
        self.stop(gently=False)
        self.cluster.forget(self)
        shutil.rmtree(self.directory, ignore_errors=True)

    def clear(self, *_, **__):
        self.stop(gently=False)
        shutil.rmtree(self.directory / "work", ignore_errors=True)
        self.facts["started"] = False

    def nodetool(self, command):
        """`ceto nodetool COMMAND` against this node: its output."""
        done = subprocess.run(
            [self.cluster.binary, "nodetool", "--workdir", self.directory / "work", *command.split()],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS,
        )  # fmt: skip
        if done.returncode != 0:
            raise NodeError(f"nodetool {command} on {self.name}: {done.stdout}{done.stderr}")
        return done.stdout

    def _configure(self):
        """The options file: what the suite asked for, less what says nothing about ceto."""
        options = {}
        for name, value in (self.cluster.facts["options"] | self.facts["options"]).items():
            if name in PLACES:
                self.facts[PLACES[name]] = int(value)
            elif name not in MEANINGLESS:
                options[name] = value
        work = self.directory / "work"
        work.mkdir(parents=True, exist_ok=True)
        (work / "ceto.yaml").write_text("".join(f"{name}: {_yaml(value)}\n" for name, value in sorted(options.items())))
        self.directory.joinpath("conf").mkdir(exist_ok=True)

    def _command(self):
        facts = self.facts
        return [
            self.cluster.binary,
            *("--workdir", self.directory / "work", "--smp", str(SHARDS), "--memory", MEMORY, "--developer-mode", "1", "--overprovisioned"),
            *("--listen-address", self.address, "--rpc-address", self.address, "--seeds", f"{self.cluster.seed()}:{facts['storage_port']}"),
            *("--storage-port", str(facts["storage_port"]), "--native-transport-port", str(facts["port"])),
            *("--native-shard-aware-transport-port", str(facts["port"] + 10_000)),
            # Not any free port: it could be the one that a suite has found free for a node which it has yet to start.
            *("--api-port", str(facts["port"] + 20_000), "--prometheus-port", "none", "--cluster-name", self.cluster.name, "--auto-snapshot", "0"),
            *(("--data-center", self.data_center, "--rack", "r1") if self.data_center else ()),
            *os.environ.get("CETO_CCM_OPTIONS", "").split(),
        ]  # fmt: skip


def _yaml(value):
    """A value as YAML: suites give text, numbers and booleans, the latter two often as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
