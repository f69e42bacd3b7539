"""Concurrent loads: writes that remember what was acknowledged, and reads that count what they came to."""

import contextlib
import threading

from harness import cql


class Load:
    """Keeps `concurrency` writes in flight until told to stop or until the node is gone.

    `next_write()` gives (key, parameters) of the next write. `acknowledged` maps a key to the parameters of its newest
    acknowledged write; `refused` holds the errors, which acknowledge nothing. The first refusal ends the load, unless
    `retry_refused`: then the next write follows, as an application does that is told to slow down.
    """

    def __init__(self, session, statement, next_write, concurrency=64, retry_refused=False):
        self._session = session
        self._statement = statement
        self._next_write = next_write
        self._concurrency = concurrency
        self._retry_refused = retry_refused
        self._changed = threading.Condition()
        self._in_flight = 0
        self._stopping = False
        self.acknowledged = {}
        self.acknowledgements = 0
        self.refused = []

    def start(self):
        for _ in range(self._concurrency):
            with self._changed:
                self._in_flight += 1
            self._write()
        return self

    def wait_for(self, acknowledgements, seconds=120):
        """Return once so many writes have been acknowledged since the start."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.acknowledgements >= acknowledgements or self._in_flight == 0, seconds
            )
            assert done and self.acknowledgements >= acknowledgements, (
                f"{self.acknowledgements} of {acknowledgements} writes acknowledged; errors: {self.refused[:3]}"
            )

    def stop(self, seconds=120):
        """No further writes; return when none is in flight."""
        with self._changed:
            self._stopping = True
            assert self._changed.wait_for(lambda: self._in_flight == 0, seconds), (
                f"{self._in_flight} writes never ended"
            )

    def wait_for_refusal(self, writes_max, seconds=120):
        """Return once a write has been refused and none is in flight, or after so many acknowledged writes."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.refused or self.acknowledgements >= writes_max, seconds)
            assert done, f"neither a refusal nor progress: {self.acknowledgements} writes acknowledged"
        self.stop(seconds)

    def _write(self):
        with self._changed:
            if self._stopping:
                self._end()
                return
            key, parameters = self._next_write()
        try:
            future = self._session.execute_async(self._statement, parameters)
        except Exception as failure:
            self._failed(failure)
            return
        future.add_callbacks(self._succeeded, self._failed, callback_args=(key, parameters))

    def _succeeded(self, _, key, parameters):
        with self._changed:
            self.acknowledged[key] = max(parameters, self.acknowledged.get(key, parameters))
            self.acknowledgements += 1
            self._changed.notify_all()
        self._write()

    def _failed(self, failure):
        with self._changed:
            self.refused.append(failure)
            if not (self._retry_refused and is_answer(failure)):
                self._stopping = True
                self._end()
                return
        self._write()

    def _end(self):
        self._in_flight -= 1
        self._changed.notify_all()


def is_answer(failure):
    """Whether a server said this, rather than that there is none to ask."""
    try:
        cql.error_of(failure)
    except AssertionError:
        return False
    return True


class Reads:
    """Keeps reads in flight on a session's connections, and counts what they came to; a wrong answer is an error."""

    def __init__(self, session, statement, parameters, expected, level, concurrency=32):
        self.statement = statement
        self._session = session
        self._parameters = parameters
        self._expected = expected
        self._concurrency = concurrency
        self._select = session.prepare(statement)
        self._select.consistency_level = level
        self._changed = threading.Condition()
        self._in_flight = 0
        self._stopping = False
        self.answered = 0
        self.errors = []

    def __enter__(self):
        for _ in range(self._concurrency):
            self._read()
        return self

    def __exit__(self, *_):
        with self._changed:
            self._stopping = True
            assert self._changed.wait_for(lambda: self._in_flight == 0, 60), f"{self._in_flight} reads never ended"

    def wait_for_more(self, count):
        with self._changed:
            wanted = self.answered + count
            assert self._changed.wait_for(lambda: self.answered >= wanted or self.errors, 60), "the reads do not go on"

    def _read(self):
        with self._changed:
            if self._stopping:
                return
            self._in_flight += 1
        future = self._session.execute_async(self._select, self._parameters)
        future.add_callbacks(self._ended, self._failed)

    def _ended(self, rows):
        with self._changed:
            self._in_flight -= 1
            if [tuple(row) for row in rows] == self._expected:
                self.answered += 1
            else:
                self.errors.append(f"wrong rows: {rows}")
            self._changed.notify_all()
        self._read()

    def _failed(self, failure):
        with self._changed:
            self._in_flight -= 1
            self.errors.append(failure)
            self._changed.notify_all()


@contextlib.contextmanager
def steady_reads(session, level, replicas):
    """Reads of a row, on a table of their own, that go on until the end."""
    keyspace = cql.unique("ks")
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v text)")
    session.execute(f"INSERT INTO {keyspace}.t (k, v) VALUES (1, 'one')")
    with Reads(session, f"SELECT v FROM {keyspace}.t WHERE k = ?", (1,), [("one",)], level) as reads:
        yield reads
