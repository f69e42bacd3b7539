"""Many connections that come at once, as when an application starts or a network is back. One thread, no driver.

    outcome = storm(node.host, node.port, 2000, ["SELECT * FROM system.local"])
    nice -n 19 python -m harness.storm HOST PORT CONNECTIONS SECONDS     # wave after wave, for measurements
    python -m harness.storm HOST PORT CONNECTIONS                        # opened and silent until standard input ends
"""

import contextlib
import errno
import json
import select
import socket
import struct
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import wire

SECONDS = 60
TESTS = Path(__file__).resolve().parents[1]
# What drivers ask to know the cluster.
OF_DRIVERS = [
    "SELECT * FROM system.local WHERE key = 'local'",
    "SELECT * FROM system.peers",
    "SELECT * FROM system_schema.tables",
]


@dataclass
class Outcome:
    """What became of the connections; one of the first four happens to each."""

    ready: int = 0  # told READY, and every statement answered with rows
    shed: int = 0  # closed before it was told anything
    broken: int = 0  # closed, or answered with an error, later
    unanswered: int = 0  # neither, when the time was over
    seconds: float = 0.0


class _Guest:
    """A connection: what it still has to say, one after the other."""

    def __init__(self, host, port, statements):
        self.told = bytearray()
        self.answers = 0
        self.requests = [wire.frame(wire.STARTUP, wire.string_map({"CQL_VERSION": "3.0.0", "DRIVER_NAME": "a storm"}))]
        self.requests += [wire.frame(wire.QUERY, wire.query_body(statement)) for statement in statements]
        self.socket = socket.socket()
        self.socket.setblocking(False)
        # Closed by a reset: thousands of ports are not to be kept from the next storm.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        code = self.socket.connect_ex((host, port))
        assert code == errno.EINPROGRESS, f"connect: {errno.errorcode.get(code, code)}"

    def go_on(self, events):
        """Say and hear what can be; the name of the outcome once it is known."""
        try:
            if events & select.EPOLLOUT:
                self.socket.send(self.requests[0])  # small: the kernel takes all of it
                return None
            data = self.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return "broken" if self.told or self.answers else "shed"
        self.told += data
        while len(self.told) >= wire.HEADER.size:
            _, _, _, opcode, length = wire.HEADER.unpack_from(self.told)
            if len(self.told) < wire.HEADER.size + length:
                break
            del self.told[: wire.HEADER.size + length]
            if opcode != (wire.RESULT if self.answers else wire.READY):
                return "broken"
            self.answers += 1
            if self.answers == len(self.requests):
                return "ready"
            self.socket.send(self.requests[self.answers])
        return None


def storm(host, port, connections, statements=(), seconds=SECONDS):
    """So many connections at once, each of which starts and asks the statements; all stay open until the last is done."""
    began, outcome = time.monotonic(), Outcome()
    with contextlib.ExitStack() as stack, contextlib.closing(select.epoll()) as poll:
        guests = {}
        for _ in range(connections):
            guest = _Guest(host, port, statements)
            stack.callback(guest.socket.close)
            guests[guest.socket.fileno()] = guest
            poll.register(guest.socket, select.EPOLLOUT)
        while guests and (left := began + seconds - time.monotonic()) > 0:
            for fd, events in poll.poll(left):
                guest = guests[fd]
                if events & select.EPOLLOUT:
                    poll.modify(fd, select.EPOLLIN)
                if came_to := guest.go_on(events):
                    setattr(outcome, came_to, getattr(outcome, came_to) + 1)
                    poll.unregister(fd)
                    del guests[fd]
        outcome.unanswered = len(guests)
        outcome.seconds = time.monotonic() - began
    return outcome


@contextlib.contextmanager
def silent(host, port, connections):
    """So many connections that say nothing. A process of their own opens them: beside a driver's threads each would wait for its
    turn, and the first would be closed for its silence before the last is there."""
    command = [sys.executable, "-m", "harness.storm", host, str(port), str(connections)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TESTS) as process:
        assert process.stdout.readline() == b"open\n", f"{connections} connections to {host}:{port} were not opened"
        yield  # its standard input is closed behind this


def stay_silent(host, port, connections):
    """Open the connections, say so, and keep them until standard input ends."""
    with contextlib.ExitStack() as stack:
        for _ in range(connections):
            stack.enter_context(socket.create_connection((host, port)))
        print("open", flush=True)
        sys.stdin.read()


def main():
    host, port, connections, *seconds = sys.argv[1], *map(int, sys.argv[2:5])
    if not seconds:
        stay_silent(host, port, connections)
        return
    end = time.monotonic() + seconds[0]
    while time.monotonic() < end:
        print(json.dumps(asdict(storm(host, port, connections, OF_DRIVERS))), flush=True)


if __name__ == "__main__":
    main()
