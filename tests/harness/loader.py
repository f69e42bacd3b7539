"""A load of another driver, a program of tests/drivers that goes on until it is told to end.

The program says `started`, then does what lines tell it (phase NAME, more COUNT, end), and answers each with its word; `end` with what
it has counted, as JSON: what `harness.witness.Account` takes, and `counted`, how many conditional statements were answered.
"""

import json
import queue
import subprocess
import threading

from harness.witness import Account

ANSWER_SECONDS = 240
LINES_SHOWN = 60


class Loader:
    def __init__(self, command, cwd, keyspace, requests):
        self.keyspace, self._requests = keyspace, requests
        self._said, self._lines = [], queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, cwd=cwd, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        threading.Thread(target=self._deliver, daemon=True).start()

    def __enter__(self):
        self._until("started")
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def phase(self, name):
        """What is asked from now on is counted under this name."""
        self._tell(f"phase {name}", "phase")

    def more(self):
        """Return when some more requests have been acknowledged, and some more conditional statements."""
        self._tell(f"more {self._requests}", "more")

    def check(self, allowed):
        """End it: nothing acknowledged is lost, conditional statements counted without a gap, and errors came in these phases alone."""
        told = json.loads(self._tell("end", "{"))
        print(f"{self.keyspace}: {told['counted']} conditional statements")
        assert told["counted"] > 0
        Account(told).check(allowed)

    def _tell(self, line, answer):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._until(answer)

    def _until(self, begin):
        while True:
            try:
                line = self._lines.get(timeout=ANSWER_SECONDS)
            except queue.Empty:
                line = None
            assert line is not None, f"it never said {begin!r}:\n{''.join(self._said[-LINES_SHOWN:])}"
            if line.startswith(begin):
                return line

    def _deliver(self):
        for line in self._process.stdout:
            self._said.append(line)
            self._lines.put(line)
        self._lines.put(None)
