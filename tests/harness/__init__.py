"""What the suites share: nodes under test, sessions of drivers, and raw frames."""

from harness.cluster import Cluster
from harness.node import Node, NodeFailed, runtime_available
from harness.server import Server

__all__ = ["Cluster", "Node", "NodeFailed", "Server", "runtime_available"]
