"""A load at QUORUM that remembers what it was told, in a process of its own.

A test breaks the cluster while the witness writes and reads through an unmodified driver. The witness counts each request as
acknowledged or refused, by phase and kind of error, and never loses count: at the end all requests are the one or the other. Then it
reads everything back, at QUORUM and at ALL.

    with Witness(cluster) as witness:
        witness.phase("one node is dead")
        cluster.kill(3)
        witness.more(500)               # returns when 500 more requests were acknowledged
        account = witness.finish()      # stops, reads back; account.check() fails with what was lost

Each of its chains has a few keys and one request at a time: it overwrites a key, reads it, inserts a new key, and begins again. So a
read at QUORUM has a smallest number that it must show, the newest one acknowledged, and a largest, the newest one tried: a write
that was refused by a timeout may have happened.

It is a process because a test may want it in another network namespace, and so that what the test does takes no time from it.
"""

import argparse
import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

from harness.failures import said_by_hosts

CHAINS = 8
KEYS_OF_A_CHAIN = 8
REQUEST_SECONDS = 15.0
HEARTBEAT_SECONDS = 1.0
POLL_SECONDS = 0.05
# What a refused chain waits before it goes on, so that a dead cluster is not asked a million times.
REFUSED_SECONDS = 0.02
ANSWER_SECONDS = 120
READ_BACK_SECONDS = 60
EXAMPLES = 3
REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 3}"

# Answers that a cluster may give at QUORUM while too few replicas can be reached, and the silence of a node that died with a request.
UNAVAILABLE, TIMEOUTS, NO_ANSWER = {"Unavailable"}, {"WriteTimeout", "ReadTimeout"}, {"OperationTimedOut"}

_numbers = itertools.count(1)


class Witness:
    """The test's end of it. `only`: the numbers of the nodes that it asks, or `hosts`: their addresses. `ring`: its table is on the
    token ring and has no tablets. `wrapper`: a command that runs the rest of its line. `consistency`: the level of its reads and writes.
    `replication`: that of its keyspace.
    """

    def __init__(
        self,
        cluster,
        *,
        only=None,
        hosts=None,
        chains=CHAINS,
        padding=0,
        ring=False,
        wrapper=(),
        consistency="QUORUM",
        replication=REPLICATION,
    ):
        nodes = list(cluster) if only is None else [cluster.node(number) for number in only]
        self._hosts = hosts or [node.host for node in nodes]
        self._wrapper = list(wrapper)
        self.keyspace = f"witness_{os.getpid():x}_{next(_numbers)}"
        self._options = ["--port", str(cluster.ports[0]), "--keyspace", self.keyspace]
        self._options += ["--chains", str(chains), "--padding", str(padding)]
        self._options += ["--consistency", consistency, "--replication", replication]
        self._options += ["--only"] if only or hosts else []
        self._options += ["--ring"] if ring else []
        self._process = None

    def __enter__(self):
        command = [sys.executable, "-m", "harness.witness", *self._options, *self._hosts]
        self._process = subprocess.Popen(
            self._wrapper + command,
            cwd=Path(__file__).resolve().parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers = queue.SimpleQueue()
        threading.Thread(target=_deliver, args=(self._process.stdout, self._answers), daemon=True).start()
        self._answer("started")
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def phase(self, name):
        """What is asked from now on is counted under this name."""
        self._ask("phase", name)

    def more(self, acknowledged, seconds=ANSWER_SECONDS):
        """Return when so many more requests have been acknowledged."""
        self._ask("more", acknowledged, seconds)

    def refused(self, count, seconds=ANSWER_SECONDS):
        """Return when so many more requests have been refused."""
        self._ask("refused", count, seconds)

    def sees_all(self):
        """Return when the driver is connected to all nodes that it was given."""
        self._ask("sees all")

    def account(self):
        return Account(self._ask("account"))

    def stop(self):
        """No further requests; returns when none is under way."""
        self._ask("stop")

    def finish(self, levels=("QUORUM", "ALL")):
        """Stop, and read everything back at these levels."""
        self.stop()
        return Account(self._ask("read back", levels))

    def _ask(self, *question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer(question)

    def _answer(self, question):
        try:
            line = self._answers.get(timeout=2 * ANSWER_SECONDS)
        except queue.Empty:
            raise AssertionError(f"the load says nothing to {question}") from None
        assert line is not None, f"the load ended when it was asked {question}"
        answer = json.loads(line)
        assert "failure" not in answer, f"{answer['failure']}\n{json.dumps(answer.get('account'), indent=1)}"
        return answer["answer"]


class Account:
    """What a witness was told: by phase, and what is wrong with what it read."""

    def __init__(self, told):
        self.phases = told["phases"]
        self.wrong = told["wrong"]
        self.rows = told["rows"]

    def acknowledged(self, *phases):
        return sum(self.phases[phase]["acknowledged"] for phase in phases or self.phases if phase in self.phases)

    def refused(self, *phases):
        """How many of each kind."""
        kinds = {}
        for phase in phases or self.phases:
            for kind, count in self.phases.get(phase, {"refused": {}})["refused"].items():
                kinds[kind] = kinds.get(kind, 0) + count
        return kinds

    def p99_ms(self, phase):
        """What 99 of 100 acknowledged requests took at most."""
        return self.phases[phase]["p99_ms"]

    def check(self, allowed=None):
        """Nothing acknowledged is lost, no request is unaccounted for, and no errors came but those allowed: kinds by phase."""
        print(self)
        assert not self.wrong, f"acknowledged, and not there when it was read: {self.wrong[:10]}\n{self}"
        for phase, told in self.phases.items():
            answered = told["acknowledged"] + sum(told["refused"].values())
            assert told["asked"] == answered, f"in phase {phase!r} {told['asked']} asked and {answered} answered"
            strange = set(told["refused"]) - set((allowed or {}).get(phase, ()))
            assert not strange, f"in phase {phase!r} requests were refused with {strange}: {told['examples']}\n{self}"

    def __str__(self):
        lines = [
            f"{name}: {told['acknowledged']} acknowledged, p99 {told['p99_ms']:.0f} ms, refused {told['refused']}"
            for name, told in self.phases.items()
        ]
        return "\n".join([*lines, f"rows read back: {self.rows}"])


def _deliver(stream, answers):
    for line in stream:
        answers.put(line)
    answers.put(None)


# --- the process ---


class _Load:
    def __init__(self, session, chains, padding):
        self.session = session
        self.changed = threading.Condition()
        self.phases, self.latencies_ms = {}, {}
        self.phase = "before"
        self.acknowledged = self.refused = 0
        self.in_flight = 0
        self.stopping = False
        self.wrong = []
        self.rows = {}
        # By key: the newest number that was acknowledged and the newest that was tried.
        self.newest, self.tried = {}, {}
        self.padding = b"x" * padding
        self.insert = session.prepare("INSERT INTO t (k, n, padding) VALUES (?, ?, ?)")
        self.select = session.prepare("SELECT n FROM t WHERE k = ?")
        self.chains = [self._chain(number, chains) for number in range(chains)]

    def _chain(self, number, chains):
        """The requests of a chain, one after another: (write, key, number) or (read, key, the least it may show)."""
        fresh = chains * KEYS_OF_A_CHAIN + number
        turn = 0
        while True:
            key = number * KEYS_OF_A_CHAIN + turn % KEYS_OF_A_CHAIN
            turn += 1
            yield "write", key, turn
            yield "read", key, self.newest.get(key, 0)
            yield "write", fresh, 1
            fresh += chains

    def start(self):
        self.in_flight = len(self.chains)
        for chain in self.chains:
            self._next(chain)

    def _next(self, chain):
        with self.changed:
            if self.stopping:
                self.in_flight -= 1
                self.changed.notify_all()
                return
            kind, key, number = next(chain)
            phase = self.phase
            self._told(phase)["asked"] += 1
            if kind == "write":
                self.tried[key] = number
        begin = time.monotonic()
        parameters = (key, number, self.padding) if kind == "write" else (key,)
        statement = self.insert if kind == "write" else self.select
        asked = (chain, phase, kind, key, number, begin)
        try:
            future = self.session.execute_async(statement, parameters)
        except Exception as failure:  # the driver's own failures are refusals too
            self._failed(failure, *asked)
            return
        future.add_callbacks(self._succeeded, self._failed, callback_args=asked, errback_args=asked)

    def _succeeded(self, rows, chain, phase, kind, key, number, begin):
        with self.changed:
            told = self._told(phase)
            told["acknowledged"] += 1
            self.latencies_ms.setdefault(phase, []).append((time.monotonic() - begin) * 1000)
            self.acknowledged += 1
            if kind == "write":
                self.newest[key] = number
            else:
                self._compare(f"read in phase {phase!r}", key, rows[0].n if rows else 0, number)
            self.changed.notify_all()
        self._next(chain)

    def _failed(self, failure, chain, phase, *_):
        kind = _kind(failure)
        with self.changed:
            told = self._told(phase)
            told["refused"][kind] = told["refused"].get(kind, 0) + 1
            examples = told["examples"].setdefault(kind, [])
            if len(examples) < EXAMPLES:
                examples.append(str(failure)[:500])
            self.refused += 1
            self.changed.notify_all()
        later = threading.Timer(REFUSED_SECONDS, self._next, (chain,))
        later.daemon = True
        later.start()

    def _told(self, phase):
        nothing = {"asked": 0, "acknowledged": 0, "refused": {}, "examples": {}}
        return self.phases.setdefault(phase, nothing)

    def _compare(self, where, key, got, least):
        if not least <= got <= self.tried.get(key, 0):
            self.wrong.append(f"{where}: key {key} has {got}, between {least} and {self.tried.get(key)} expected")

    def wait(self, what, count, seconds):
        with self.changed:
            target = getattr(self, what) + count
            done = self.changed.wait_for(lambda: getattr(self, what) >= target, seconds)
            assert done, f"{getattr(self, what) - target + count} of {count} requests {what} within {seconds} s"

    def sees_all(self):
        count = len(self.session.cluster.contact_points)
        deadline = time.monotonic() + ANSWER_SECONDS
        while sum(pool["open_count"] > 0 for pool in self.session.get_pool_state().values()) < count:
            assert time.monotonic() < deadline, f"not connected to {count} nodes: {self.session.get_pool_state()}"
            time.sleep(POLL_SECONDS)

    def stop(self):
        with self.changed:
            self.stopping = True
            assert self.changed.wait_for(lambda: self.in_flight == 0, ANSWER_SECONDS), "requests never ended"

    def read_back(self, levels):
        from cassandra import ConsistencyLevel
        from cassandra.query import SimpleStatement

        overwritten = [key for key in self.newest if key < len(self.chains) * KEYS_OF_A_CHAIN]
        for level in levels:
            value = ConsistencyLevel.name_to_value[level]
            scan = SimpleStatement("SELECT k, n FROM t", consistency_level=value, fetch_size=2000)
            got = {k: n for k, n in _patiently(lambda scan=scan: list(self.session.execute(scan, timeout=30)))}
            self.rows[level] = len(got)
            for key, number in self.newest.items():
                self._compare(f"scan at {level}", key, got.get(key, 0), number)
            one = self.session.prepare("SELECT n FROM t WHERE k = ?")
            one.consistency_level = value
            for key in overwritten:
                row = _patiently(lambda one=one, key=key: self.session.execute(one, (key,)).one())
                self._compare(f"read at {level}", key, row.n if row else 0, self.newest[key])

    def account(self):
        with self.changed:
            for phase, told in self.phases.items():
                sorted_ms = sorted(self.latencies_ms.get(phase, [0.0]))
                told["p99_ms"] = sorted_ms[len(sorted_ms) * 99 // 100]
            return {"phases": self.phases, "wrong": self.wrong, "rows": self.rows}


def _patiently(read):
    """Reads again when it was refused: nodes that are just back may not be seen by all yet."""
    deadline = time.monotonic() + READ_BACK_SECONDS
    while True:
        try:
            return read()
        except Exception as failure:
            if time.monotonic() > deadline:
                raise AssertionError(f"not readable again: {failure}") from failure


def _kind(failure):
    """The class of an error; of a driver that tried all its nodes, what they said."""
    from cassandra.cluster import NoHostAvailable

    said = said_by_hosts(failure) if isinstance(failure, NoHostAvailable) else []
    return "+".join(sorted({type(error).__name__ for error in said})) or type(failure).__name__


def _connect(asked):
    from cassandra import ConsistencyLevel
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import (
        ConstantReconnectionPolicy,
        DCAwareRoundRobinPolicy,
        TokenAwarePolicy,
        WhiteListRoundRobinPolicy,
    )

    policy = (
        WhiteListRoundRobinPolicy(asked.hosts)
        if asked.only
        else TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc="datacenter1"))
    )
    profile = ExecutionProfile(
        load_balancing_policy=policy,
        consistency_level=ConsistencyLevel.name_to_value[asked.consistency],
        request_timeout=REQUEST_SECONDS,
    )
    cluster = Cluster(
        asked.hosts,
        port=asked.port,
        protocol_version=4,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.2, max_attempts=None),
        connect_timeout=REQUEST_SECONDS,
        control_connection_timeout=REQUEST_SECONDS,
        # A node that says nothing at all is given up, and its requests go to another.
        idle_heartbeat_interval=HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=HEARTBEAT_SECONDS,
    )
    session = cluster.connect()
    session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {asked.keyspace} WITH replication = {asked.replication}"
        + (" AND tablets = {'enabled': false}" if asked.ring else "")
    )
    session.execute(f"CREATE TABLE IF NOT EXISTS {asked.keyspace}.t (k int PRIMARY KEY, n int, padding blob)")
    session.set_keyspace(asked.keyspace)
    return session


def _serve(load):
    answers = {
        "phase": lambda name: setattr(load, "phase", name),
        "more": lambda count, seconds: load.wait("acknowledged", count, seconds),
        "refused": lambda count, seconds: load.wait("refused", count, seconds),
        "sees all": load.sees_all,
        "account": load.account,
        "stop": load.stop,
        "read back": lambda levels: (load.read_back(levels), load.account())[1],
    }
    for line in sys.stdin:
        question, *arguments = json.loads(line)
        try:
            _say(answer=answers[question](*arguments))
        except AssertionError as failure:
            _say(failure=str(failure), account=load.account())


def _say(**answer):
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--keyspace", required=True)
    parser.add_argument("--chains", type=int, required=True)
    parser.add_argument("--padding", type=int, required=True, help="bytes added to each row")
    parser.add_argument("--only", action="store_true", help="ask no nodes but these")
    parser.add_argument("--ring", action="store_true", help="a table without tablets")
    parser.add_argument("--consistency", required=True)
    parser.add_argument("--replication", required=True)
    parser.add_argument("hosts", nargs="+")
    arguments = parser.parse_args()
    session = _connect(arguments)
    load = _Load(session, arguments.chains, arguments.padding)
    load.start()
    _say(answer=None)
    _serve(load)


if __name__ == "__main__":
    main()
