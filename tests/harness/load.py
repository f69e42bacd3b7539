"""A concurrent write load that remembers what was acknowledged."""

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
