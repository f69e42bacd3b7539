"""One ceto node as a child process.

A node owns a work directory and two free ports. `start` returns when the node has printed that it serves; nothing here
sleeps or guesses. The harness ends only processes that it started, each by its own handle.

    with Node(smp=2) as node:
        session = connect(node.server).connect()
        node.kill9()
        node.start()        # the same work directory, the same ports
"""

import atexit
import contextlib
import ctypes
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness.http_answer import http_answer
from harness.server import Server

SERVING = re.compile(r"serving CQL on (\S+):(\d+)")
APART = re.compile(r"maintenance mode: serving CQL on the socket ")
METRICS = re.compile(r"metrics for Prometheus are at http://(\S+):(\d+)/metrics")
START_SECONDS = 60.0
STOP_SECONDS = 60.0
COMMAND_SECONDS = 120
POLL_SECONDS = 0.001
# Another process may take a port between the moment we saw it free and the moment the node binds it.
PORT_ATTEMPTS = 5
LOG_LINES_SHOWN = 60
HTTP_ANSWER = str(Path(__file__).with_name("http_answer.py"))

_started = set()


@atexit.register
def _end_leftovers():
    for node in list(_started):
        node.kill9()


class NodeFailed(Exception):
    """The node ended, or did not serve in time. Carries its exit code and what it printed."""

    def __init__(self, what, code, log):
        super().__init__(f"{what} (exit code {code})\n--- last lines of its output ---\n{log}")
        self.code = code
        self.log = log


class Node:
    def __init__(
        self,
        workdir=None,
        *,
        smp=2,
        memory="512M",
        commitlog_sync=None,
        runtime=None,
        overprovisioned=True,
        options=(),
        env=None,
        wrapper=(),
        host="127.0.0.1",
        ports=None,
    ):
        self.binary = ceto_binary()
        self._temporary = None if workdir else tempfile.mkdtemp(prefix="ceto-test-")
        self.workdir = Path(workdir or self._temporary)
        self.smp = smp
        self.memory = memory
        self.commitlog_sync = commitlog_sync
        self.runtime = runtime or os.environ.get("CETO_RUNTIME")
        self.overprovisioned = overprovisioned
        self.options = list(options)
        self.env = dict(env or {})
        self.wrapper = list(wrapper)  # a command that runs the rest of its line, such as setpriv
        self.host = host
        # Where other nodes reach it, if not where clients do.
        self.listen_host = None
        # CQL, shard-aware CQL and other nodes; those of a node that is alone are chosen at its first start.
        self.port, self.shard_aware_port, self.storage_port = ports or (None, None, 0)
        self.process = None
        self._reaping = threading.Lock()
        self.lines = []
        self.start_seconds = None

    # --- life ---

    def command(self):
        line = [
            str(self.binary),
            "--workdir",
            str(self.workdir),
            "--smp",
            str(self.smp),
            "--memory",
            self.memory,
            "--developer-mode",
            "1",
            "--listen-address",
            self.listen_host or self.host,
            "--rpc-address",
            self.host,
            "--storage-port",
            str(self.storage_port),
            "--native-transport-port",
            str(self.port),
            "--native-shard-aware-transport-port",
            str(self.shard_aware_port),
        ]
        for option in ("--api-port", "--prometheus-port"):
            if option not in self.options:
                line += [option, "0"]
        if self.overprovisioned:
            line.append("--overprovisioned")  # tests share the machine: neither pinned nor spinning
        if self.commitlog_sync:
            line += ["--commitlog-sync", self.commitlog_sync]
        return line + self.options

    def start(self, apart=False):
        """Start and wait until CQL is served; `apart`, in maintenance mode. Ports are chosen at the first start and kept over restarts."""
        chosen = self.port is not None
        for attempt in range(PORT_ATTEMPTS):
            if not chosen:
                self.port, self.shard_aware_port = free_ports(self.host, 2)
            try:
                return self._start_once(apart)
            except NodeFailed as failure:
                taken = "in use" in failure.log
                if chosen or not taken or attempt + 1 == PORT_ATTEMPTS:
                    raise
        raise AssertionError("unreachable: the last attempt returned or raised")

    def start_and_kill9(self):
        """Start, and end it with SIGKILL before it serves, as soon as it has printed anything."""
        printed = self._spawn()
        printed.get(timeout=START_SECONDS)
        self.kill9()

    def _start_once(self, apart):
        begin = time.monotonic()
        printed = self._spawn()
        while True:
            left = begin + START_SECONDS - time.monotonic()
            try:
                line = printed.get(timeout=max(left, 0.001))
            except queue.Empty:
                self.kill9()
                raise NodeFailed(f"the node did not serve within {START_SECONDS:.0f} s", None, self.log()) from None
            if line is None:
                code = self._reap()
                raise NodeFailed("the node ended before it served", code, self.log())
            match = (APART if apart else SERVING).search(line)
            if match and (apart or int(match[2]) == self.port):
                self.start_seconds = time.monotonic() - begin
                return self

    def _spawn(self):
        """Start the process; the queue receives what it prints, line by line, and None at its end."""
        assert self.process is None, "the node runs already"
        env = os.environ | self.env
        if self.runtime:
            env["CETO_RUNTIME"] = self.runtime
        self.process = subprocess.Popen(
            self.wrapper + self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            text=True,
            errors="replace",
        )
        _started.add(self)
        printed = queue.SimpleQueue()
        self.lines = []
        self._reader = threading.Thread(target=_drain, args=(self.process.stdout, self.lines, printed), daemon=True)
        self._reader.start()
        return printed

    def stop(self):
        """SIGTERM; the exit code. Ends with SIGKILL, and an error, when the node does not drain in time."""
        self.resume()  # a paused process does not see SIGTERM
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise NodeFailed(f"SIGTERM did not end the node within {STOP_SECONDS:.0f} s", None, self.log()) from None
        return self._reap()

    def pause(self):
        """SIGSTOP: the node keeps its sockets and answers nobody. Returns when every thread stands still: one of them has to run to stop the others."""
        self.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        while not self._stands_still():
            assert time.monotonic() < deadline, "SIGSTOP did not stop the node"
            time.sleep(POLL_SECONDS)

    def _stands_still(self):
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        # The state follows the name, which stands in parentheses.
        return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill9(self):
        process = self.process
        if process is not None:
            process.kill()
            self._reap()

    def restart(self):
        self.stop()
        return self.start()

    def _reap(self):
        """The exit code; None if another thread, whose `start` has failed, was first."""
        with self._reaping:
            if self.process is None:
                return None
            code = self.process.wait()
            self._reader.join()
            self.process.stdout.close()
            self.process = None
            _started.discard(self)
            return code

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    def remove(self):
        """End the node and forget its directory, when the harness made it."""
        self.kill9()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.remove()

    # --- what it says, what it uses ---

    @property
    def server(self):
        return Server(self.host, self.port, self.shard_aware_port, self)

    @property
    def pid(self):
        return self.process.pid

    def log(self, lines=LOG_LINES_SHOWN):
        return "".join(self.lines[-lines:])

    def has_enabled(self, feature):
        """Whether the log says, since the start of the process, that the cluster enabled a feature."""
        pattern = re.compile(rf"enabled features that all members have: .*\b{feature}\b")
        return any(pattern.search(line) for line in self.lines)

    def resident_bytes(self):
        return self._memory("VmRSS")

    def resident_bytes_peak(self):
        return self._memory("VmHWM")

    def _memory(self, field):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.M)[1]) * 1024

    def cpu_seconds(self):
        # The command may hold blanks, so count from its closing bracket; utime and stime are fields 14 and 15 of proc(5).
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def api(self, path, method="GET", body=None):
        """What the REST API answers: status and JSON, None for no body. `body` is sent as JSON."""
        sent = [] if body is None else [json.dumps(body)]
        address = (self.workdir / "api").read_text().strip()
        if self.wrapper:  # the node may stand where this process cannot reach it, such as in a network namespace
            command = [*self.wrapper, sys.executable, HTTP_ANSWER, address, method, path, *sent]
            answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS)
            status, _, body = answer.stdout.partition("\n")
        else:
            status, body = http_answer(address, method, path, *sent)
        return int(status), json.loads(body) if body else None

    def metrics(self):
        """What Prometheus is told: values by name and labels, as they are written."""
        host, port = next(m.groups() for line in self.lines if (m := METRICS.search(line)))
        _, text = http_answer(f"{host}:{port}", "GET", "/metrics")
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def nodetool(self, *arguments, timeout=COMMAND_SECONDS):
        """`ceto nodetool --workdir DIR ...` against this node: its output."""
        return run_ceto("nodetool", "--workdir", str(self.workdir), *arguments, timeout=timeout)


def run_ceto(*arguments, timeout=COMMAND_SECONDS, env=None):
    """Run another command of the binary to its end: its output, or NodeFailed."""
    done = subprocess.run(
        [str(ceto_binary()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        env=os.environ | (env or {}),
    )
    if done.returncode != 0:
        raise NodeFailed(f"ceto {' '.join(arguments)} failed", done.returncode, done.stdout)
    return done.stdout


def ceto_binary():
    """CETO_BIN, or the newest build of this repository."""
    if given := os.environ.get("CETO_BIN"):
        return Path(given).resolve()
    root = Path(__file__).resolve().parents[2]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    built = [p for profile in ("release", "bench-quick", "debug") if (p := target / profile / "ceto").exists()]
    if not built:
        raise FileNotFoundError("no ceto binary: run ./dev build, or name one in CETO_BIN")
    return max(built, key=lambda path: path.stat().st_mtime)


def free_ports(hosts, count):
    """Ports that were free a moment ago on each of these addresses (or this one), all different.

    They lie below those that the kernel gives to clients: a port must still be free when its node is started again. Tests that run side by
    side (pytest -n) take them from sets that have none in common.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    candidates = range(min(10_000, below - 1_000) + worker, below, workers)
    found = set()
    while len(found) < count:
        port = random.choice(candidates)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for host in [hosts] if isinstance(hosts, str) else hosts:
                probes.enter_context(socket.socket()).bind((host, port))
            found.add(port)
    return list(found)


def runtime_available(runtime):
    """Whether this kernel (or container) allows the runtime backend."""
    if runtime != "io_uring":
        return True
    io_uring_setup, parameters = 425, ctypes.create_string_buffer(120)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(io_uring_setup, 1, parameters)
    if fd < 0:
        return False
    os.close(fd)
    return True


def _drain(stream, lines, printed):
    for line in stream:
        lines.append(line)
        printed.put(line)
    printed.put(None)
