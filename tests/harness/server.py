"""A CQL server that a suite talks to: a ceto node that the harness started, or any other that listens on HOST:PORT."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Server:
    host: str
    port: int
    shard_aware_port: int | None = None
    node: object = None  # harness.Node when the harness started it

    @property
    def is_ceto(self):
        return self.node is not None

    @staticmethod
    def parse(address):
        host, _, port = address.rpartition(":")
        return Server(host or "127.0.0.1", int(port))
