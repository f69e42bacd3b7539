"""What drivers hear of nodes that come and go."""

import ipaddress
import struct

from harness import Cluster, wire
from harness.events import Listener


def about(kind, change, node):
    """The body of the event about a node."""
    address = ipaddress.ip_address(node.host).packed
    inet = bytes([len(address)]) + address + struct.pack(">i", node.port)
    return wire.string(kind) + wire.string(change) + inet


def test_a_new_node_is_told_of_before_it_is_said_to_be_up(request):
    with Cluster(2, smp=1, runtime=request.config.getoption("--runtime")) as cluster:
        cluster.known_to_clients()
        with Listener(cluster.node(1), "STATUS_CHANGE", "TOPOLOGY_CHANGE") as listener:
            number = cluster.add()
            node = cluster.node(number)
            listener.hears(about("TOPOLOGY_CHANGE", "NEW_NODE", node))
            listener.hears(about("STATUS_CHANGE", "UP", node))
            node.nodetool("decommission")
            heard = listener.next()
            # The node stops to let clients in before it is gone.
            if heard == about("STATUS_CHANGE", "DOWN", node):
                heard = listener.next()
            assert heard == about("TOPOLOGY_CHANGE", "REMOVED_NODE", node)
