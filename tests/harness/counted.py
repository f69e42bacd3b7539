"""A load of which every answer is checked: rows that are read back, and additions that are counted."""

import threading

from cassandra import ConsistencyLevel

from harness import cql
from harness.cluster import eventually

# Options of nodes that take other maps of tablets over while they are asked: on a machine that does much else a request may wait longer than it usually does.
PATIENT = [
    option
    for name in ("write-request-timeout", "read-request-timeout", "cas-contention-timeout")
    for option in (f"--{name}", "20s")
]
# Where the keys of the load begin.
FIRST_KEY = 1_000_000


class CountedLoad:
    """A client that writes rows to `NAME.t (k int PRIMARY KEY, n int, ...)` at QUORUM, reads them back, and counts in the row of key -1 by conditional statements,
    until it is told to end. With `counters` it also adds to `NAME.c (k int PRIMARY KEY, n counter)`. It pauses for so many seconds after each addition: a table that is
    busy is not merged.

    `written` has the keys that were acknowledged, `counted` how many additions were."""

    def __init__(self, cluster, name, counters=False, pause=0.0):
        self.name, self.counters, self.pause, self.driver = name, counters, pause, cluster.driver()
        self.done, self.written, self.failures, self.counted = threading.Event(), set(), [], 0
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.session = self.driver.__enter__().connect()
        self.session.execute(f"INSERT INTO {self.name}.t (k, n) VALUES (-1, 0)")
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.driver.__exit__(None, None, None)
        assert not self.failures, self.failures[:3]

    def prepare(self, statement):
        prepared = self.session.prepare(statement)
        prepared.consistency_level = ConsistencyLevel.QUORUM
        return prepared

    def run(self):
        insert = self.prepare(f"INSERT INTO {self.name}.t (k, n) VALUES (?, ?)")
        select = self.prepare(f"SELECT n FROM {self.name}.t WHERE k = ?")
        count = self.session.prepare(f"UPDATE {self.name}.t SET n = ? WHERE k = -1 IF n = ?")
        add = self.prepare(f"UPDATE {self.name}.c SET n = n + 1 WHERE k = ?") if self.counters else None
        k = FIRST_KEY
        while not self.done.is_set():
            k += 1
            try:
                self.session.execute(insert, (k, k))
                self.written.add(k)
                if cql.rows(self.session, select, (k,)) != [(k,)]:
                    self.failures.append(f"{k} was written and is not there")
                applied = self.session.execute(count, (self.counted + 1, self.counted)).one()
                if not applied[0]:
                    self.failures.append(f"addition {self.counted + 1} was not applied: {applied}")
                if add:
                    self.session.execute(add, (k % 50,))
                self.counted += 1
                self.done.wait(self.pause)
            except Exception as error:
                self.failures.append(repr(error))

    def wait_for_more(self, additions):
        """Return once so many more additions are acknowledged."""
        wanted = self.counted + additions
        eventually("the load goes on", lambda: self.counted >= wanted or self.failures)
        assert not self.failures, self.failures[:3]
