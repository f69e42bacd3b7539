"""A TCP proxy in front of a node: connections to its port go to the node, until it closes."""

import contextlib
import socket
import threading


class Forwarder:
    def __init__(self, target):
        """`target` is host and port of the node."""
        self.target = target
        self.accepted = 0
        self._lock = threading.Lock()
        self._sockets = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address, self.port = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Accept no more, and close what was accepted."""
        with self._lock:
            self._listener.close()
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                node = socket.create_connection(self.target)
                with self._lock:
                    self.accepted += 1
                    self._sockets += [client, node]
                for source, sink in ((client, node), (node, client)):
                    threading.Thread(target=_forward, args=(source, sink), daemon=True).start()


def _forward(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
