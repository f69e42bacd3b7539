"""A story of a cluster that grows from three nodes to six and shrinks to three, while loads write and read.

Two copies become three and two again, a rack is added, and a node is killed permanently and replaced. What was written before is counted
afterwards. CETO_TEST_GROWTH names the bytes of it: 16M without it; 5G takes many minutes and 25 GB of disk. A load has `keyspace`, `phase(name)`, `more()` and `check(allowed)`; the last ends it, and fails with what was lost and with
errors that no phase allows.
"""

import os
import time

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql
from harness.cluster import eventually
from harness.members import copies_on_ring, host_of, is_still, replicas_of, state_of
from harness.node import run_ceto

# What an application may see of a node that ends; none of it acknowledges anything.
OF_A_DYING_NODE = ("NoHostAvailable", "OperationTimedOut", "ReadTimeout", "Unavailable", "WriteTimeout")
ROW_BYTES = 1_000
PRELOADED = os.environ.get("CETO_TEST_GROWTH", "16M")
UNITS = {"M": 10**6, "G": 10**9}
SLICES = 64
SAMPLED = 2_000
SECONDS = 120
# Each gigabyte is copied some times, on a machine that does much else.
SECONDS_FOR_GB = 600
KILLED = 6
# Nodes of both racks: the cluster that is left has both, too.
LEAVING = (6, 3, 2)


class Growth:
    """`rings`: keyspaces of loads that have no tablets."""

    def __init__(self, cluster, loads, rings):
        self.cluster, self.loads, self.rings = cluster, loads, rings
        preloaded_bytes = int(PRELOADED[:-1]) * UNITS[PRELOADED[-1]]
        self.rows = preloaded_bytes // ROW_BYTES
        self.keyspace = cql.unique("preloaded")
        self.seconds = SECONDS + SECONDS_FOR_GB * preloaded_bytes // 10**9
        self.allowed = {}
        self.begun = []

    def play(self):
        with self.cluster.driver(only=1) as driver:
            self.session = driver.connect()
            self._phase("rows are written before")
            self._preload()
            self._copies(2)
            self._grow()
            self._copies(3)
            self._replace()
            self._copies(2)
            self._shrink()
            self._phase("the end")
            failures = [failure for load in self.loads if (failure := self._failure_of(load))]
            self._count()
            assert not failures, "\n\n".join(failures)

    # --- the chapters ---

    def _preload(self):
        self._create()
        node = self.cluster.node(1)
        size = ["--partitions", str(self.rows), "--columns", "1", "--value-bytes", str(ROW_BYTES)]
        load = ["--connections", "4", "--depth", "32", "--operations", "1", "--warm-up", "0", "--consistency", "ALL"]
        connect = ["--connect", f"{node.host}:{node.port}", "--table", f"{self.keyspace}.t"]
        run_ceto("perf", "cql", *connect, *size, *load, timeout=self.seconds)

    def _create(self):
        replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 2}"
        self.session.execute(f"CREATE KEYSPACE {self.keyspace} WITH replication = {replication} AND tablets = {{'initial': 16}}")
        # The load generator has the same bytes for all rows: they are stored as they come.
        columns = '"KEY" blob PRIMARY KEY, "C0" blob'
        self.session.execute(f"CREATE TABLE {self.keyspace}.t ({columns}) WITH compression = {{'enabled': false}}")

    def _grow(self):
        for number in (4, 5, 6):
            self._phase(f"node {number} joins, of a second rack")
            new = self.cluster.node(self.cluster.add("--data-center", "datacenter1", "--rack", "rack2"))
            eventually(f"{new.host} is a full member", lambda new=new: state_of(self.cluster, new) == "UN", self.seconds)
            self._more()
        eventually("each node has tablets", self._all_have_some, self.seconds)
        eventually("each tablet has a copy in each rack", self._is_spread, self.seconds)
        self._settle()

    def _copies(self, count):
        self._phase(f"{count} copies, {len(self.cluster.nodes)} nodes")
        for keyspace in [self.keyspace, *(load.keyspace for load in self.loads)]:
            self._alter(keyspace, count)
        self._more()
        for keyspace in [self.keyspace, *(load.keyspace for load in self.loads if load.keyspace not in self.rings)]:
            eventually(f"each tablet of {keyspace} has {count} copies", lambda keyspace=keyspace: self._has(keyspace, count), self.seconds)
        for keyspace in self.rings:
            owners = {count}
            eventually(
                f"{keyspace} has its owners", lambda keyspace=keyspace: copies_on_ring(self.cluster, keyspace) == owners, self.seconds
            )
        self._settle()
        self._more()

    def _alter(self, keyspace, count):
        """The cluster takes the change at any time; while the token ring goes to other owners, it waits."""
        replication = f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': {count}}}"
        self.session.execute(f"ALTER KEYSPACE {keyspace} WITH replication = {replication}")

    def _has(self, keyspace, count):
        return {len(replicas) for replicas in replicas_of(self.session, keyspace)} == {count}

    def _replace(self):
        lost = self.cluster.node(KILLED)
        host = host_of(lost)
        self._phase("a node dies", ends=True)
        # What was asked in the phase before has its answer when the node dies.
        self._more()
        lost.kill9()
        eventually("the others miss it", lambda: state_of(self.cluster, lost) == "DN")
        self._more()
        lost.remove()
        self._phase("another takes its place", ends=True)
        self.cluster.nodes.remove(lost)
        options = ["--data-center", "datacenter1", "--rack", "rack2", "--replace-node-first-boot", host]
        heir = self.cluster.node(self.cluster.add(*options))
        eventually("the lost node has left", lambda: host not in self.cluster.node(1).nodetool("status"), self.seconds)
        eventually("the new one is a full member", lambda: state_of(self.cluster, heir) == "UN", self.seconds)
        self._settle()
        self._phase("six nodes again")
        self._more()

    def _shrink(self):
        for number, leaving in [(number, self.cluster.node(number)) for number in LEAVING]:
            self._phase(f"node {number} leaves", ends=True)
            leaving.nodetool("decommission", timeout=self.seconds)
            self.cluster.nodes.remove(leaving)
            assert state_of(self.cluster, leaving) is None
            eventually("the node has stopped by itself", lambda leaving=leaving: not leaving.alive)
            leaving.remove()
            self._more()
        self._phase("three nodes again")
        eventually("each tablet has a copy in each rack", self._is_spread, self.seconds)
        self._settle()
        self._more()

    # --- what they need ---

    def _failure_of(self, load):
        """What a load says is wrong, or None: the others, and what was written before, are counted all the same."""
        try:
            load.check(self.allowed)
        except AssertionError as failure:
            return str(failure)
        return None

    def _phase(self, name, ends=False):
        """`ends`: a node ends in it, and clients may see that."""
        now = time.monotonic()
        if self.begun:
            last, begin = self.begun[-1]
            print(f"{now - begin:.0f} s: {last}", flush=True)
        self.begun.append((name, now))
        if ends:
            self.allowed[name] = OF_A_DYING_NODE
        for load in self.loads:
            load.phase(name)

    def _more(self):
        for load in self.loads:
            load.more()

    def _settle(self):
        eventually("nothing moves", lambda: is_still(self.cluster), self.seconds)

    def _all_have_some(self):
        hosts = {str(host) for replicas in replicas_of(self.session, self.keyspace) for host, _ in replicas}
        return hosts == {host_of(node) for node in self.cluster}

    def _is_spread(self):
        in_rack2 = {host_of(node): "rack2" in node.options for node in self.cluster}
        found = replicas_of(self.session, self.keyspace)
        return all({in_rack2.get(str(host)) for host, _ in replicas} == {True, False} for replicas in found)

    def _count(self):
        """What was written before everything is there, on all copies."""
        step = (1 << 64) // SLICES
        counted = 0
        for begin in range(-(1 << 63), 1 << 63, step):
            part = f"token(\"KEY\") >= {begin} AND token(\"KEY\") <= {begin + step - 1}"
            ask = SimpleStatement(f"SELECT COUNT(*) FROM {self.keyspace}.t WHERE {part}", consistency_level=ConsistencyLevel.ALL)
            counted += self.session.execute(ask).one()[0]
        values = {row[0] for row in self.session.execute(f'SELECT "C0" FROM {self.keyspace}.t LIMIT {SAMPLED}')}
        print(f"{counted:,} of {self.rows:,} rows that were written before are there, at ALL")
        assert counted == self.rows
        assert len(values) == 1 and len(values.pop()) == ROW_BYTES, "all rows have the same value"
