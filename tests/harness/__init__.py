"""What the suites share: a node under test, sessions of drivers, and raw frames."""

from harness.node import Node, NodeFailed, runtime_available
from harness.server import Server

__all__ = ["Node", "NodeFailed", "Server", "runtime_available"]
