"""A client that counts up by conditional statements, one after the other, and knows what was acknowledged."""

import threading

from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable

from harness import cql
from harness.cluster import eventually

# What an application may see of a node that ends; none of it acknowledges anything.
OF_AN_END = (NoHostAvailable, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout)
MORE = 5
REPLICATION = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"


class Counter:
    """`ring`: its table is on the token ring and has no tablets. `local`: it agrees with the replicas of its datacenter alone.
    `replication`: that of its keyspace.
    """

    def __init__(self, cluster, ring=False, local=False, replication=REPLICATION):
        self.driver = cluster.driver(consistency="LOCAL_QUORUM" if local else "QUORUM")
        self.serial = ConsistencyLevel.LOCAL_SERIAL if local else ConsistencyLevel.SERIAL
        self.replication = replication
        self.tablets = " AND tablets = {'enabled': false}" if ring else ""
        self.done, self.thread = threading.Event(), threading.Thread(target=self._run)
        self.acknowledged, self.tried, self.wrong = 0, 0, []
        self.current, self.errors = "before", {}

    def __enter__(self):
        self.keyspace = cql.unique("counter")
        self.session = self.driver.__enter__().connect()
        self.session.execute(f"CREATE KEYSPACE {self.keyspace} WITH replication = {self.replication}{self.tablets}")
        self.session.execute(f"CREATE TABLE {self.keyspace}.c (k int PRIMARY KEY, n int)")
        self.session.execute(f"INSERT INTO {self.keyspace}.c (k, n) VALUES (0, 0)")
        self.add = self.session.prepare(f"UPDATE {self.keyspace}.c SET n = ? WHERE k = 0 IF n = ?")
        self.add.serial_consistency_level = self.serial
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.driver.__exit__(None, None, None)

    def _run(self):
        while not self.done.is_set():
            before, self.tried = self.acknowledged, self.acknowledged + 1
            phase = self.current
            try:
                applied = self.session.execute(self.add, (self.tried, before)).one()
            except OF_AN_END as error:
                kinds = self.errors.setdefault(phase, {})
                kinds[type(error).__name__] = kinds.get(type(error).__name__, 0) + 1
                continue
            except Exception as error:
                self.wrong.append(repr(error))
                continue
            # After an error without an answer the statement may have been applied.
            if applied[0] or applied[1] == self.tried:
                self.acknowledged = self.tried
            elif applied[1] != before:
                self.wrong.append(f"{before} was acknowledged, {self.tried} was tried, and there is {applied[1]}")
                self.acknowledged = applied[1]

    def phase(self, name):
        """Errors of what is asked from now on are counted under this name."""
        self.current = name

    def more(self, count=MORE):
        """Return when statements have succeeded."""
        goal = self.acknowledged + count
        eventually("conditional statements succeed", lambda: self.acknowledged >= goal)

    def check(self, allowed=None):
        """What was acknowledged is there; if phases are given, errors came in these alone."""
        # What it would still count is not compared.
        self.done.set()
        self.thread.join()
        print(self)
        assert not self.wrong, self.wrong[:5]
        strange = set() if allowed is None else set(self.errors) - set(allowed)
        assert not strange, f"in phases {strange} statements failed: {self.errors}"
        found = self.session.execute(f"SELECT n FROM {self.keyspace}.c WHERE k = 0").one()[0]
        assert found in (self.acknowledged, self.tried), f"{self.acknowledged} were acknowledged, and {found} are there"

    def __str__(self):
        return f"{self.acknowledged} conditional statements were acknowledged, errors {self.errors}"
