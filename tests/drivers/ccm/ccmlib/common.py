"""Sockets, and which cluster is the current one."""

import socket
import time
from pathlib import Path

POLL_SECONDS = 0.02
CURRENT = "CURRENT"


def check_socket_listening(interface, timeout=60):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            socket.create_connection(interface, timeout=1).close()
            return True
        except OSError:
            time.sleep(POLL_SECONDS)
    return False


def switch_cluster(path, name):
    Path(path, CURRENT).write_text(name)


def current_cluster(path):
    return Path(path, CURRENT).read_text().strip()
