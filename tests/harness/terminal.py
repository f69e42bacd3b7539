"""A program in a real terminal, as a person has it: typed into, read until something stands on the screen."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

READ_BYTES = 1 << 16
SECONDS = 60
ROWS, COLUMNS = 24, 200
# Colours, and what readline says to the terminal.
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])|\x07")


class Terminal:
    """The program runs until it ends itself, or until the `with` is left."""

    def __init__(self, command, env):
        self._mine, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
        )
        os.close(theirs)
        self.unread = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._mine)

    def type(self, text):
        os.write(self._mine, text.encode())

    def until(self, pattern, seconds=SECONDS):
        """What appears before the pattern does, and what matched it."""
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.unread)):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._mine], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} within {seconds} s, but\n{self.unread}")
            try:
                read = os.read(self._mine, READ_BYTES)
            except OSError:  # what Linux says when the other end is closed
                read = b""
            assert read, f"the program ended, and no {pattern!r} in\n{self.unread}"
            self.unread = _ESCAPES.sub("", self.unread + read.decode(errors="replace")).replace("\r\n", "\n")
        before, self.unread = self.unread[: match.start()], self.unread[match.end() :]
        return before, match[0]

    def ended(self, seconds=SECONDS):
        """Wait for its end; its exit code."""
        return self.process.wait(seconds)
