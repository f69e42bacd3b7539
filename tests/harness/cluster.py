"""Several ceto nodes on this machine, one on each of 127.0.0.1, 127.0.0.2, ..., all with the same ports.

    with Cluster(3) as cluster:
        cluster.kill(2)                     # nodes are counted from 1, as their addresses are
        session = cluster.driver().connect()
        cluster.start(2)

Linux routes all of 127.0.0.0/8 to the machine itself, so no address must be set up. A network split needs a `harness.network.Network`,
which needs root; without it a node is cut off by pausing it.
"""

import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from harness.node import LOG_LINES_SHOWN, Node, ceto_binary, free_ports

# As in the metadata group.
VOTERS_MAX = 5
NODES_MAX = 200
REQUEST_SECONDS = 30
RECONNECT_SECONDS = 0.2
SETTLE_SECONDS = 180
POLL_SECONDS = 0.02


class Cluster:
    def __init__(self, size=3, *, smp=1, memory="256M", options=(), workdir=None, network=None, repairs=False, **settings):
        self.network = network
        # What nodes miss stays missing, unless a test wants it mended.
        repairs = [] if repairs else ["--auto-repair-enabled-default", "false"]
        self.options = ["--seeds", self.address(1), *repairs, *options]
        self.settings = {"smp": smp, "memory": memory, "overprovisioned": True} | settings
        self.workdir = workdir
        # Room for nodes that are added later.
        self.ports = network.ports if network else free_ports([address(number) for number in range(1, size + 8)], 3)
        self.nodes = [self._node(number) for number in range(1, size + 1)]

    def _node(self, number):
        wrapper = {"wrapper": self.network.wrapper(number)} if self.network else {}
        return Node(
            workdir=self.workdir and self.workdir / f"node{number}",
            host=self.address(number),
            ports=self.ports,
            options=self.options,
            **self.settings | wrapper,
        )

    def address(self, number):
        return self.network.address(number) if self.network else address(number)

    def node(self, number):
        return self.nodes[number - 1]

    def __iter__(self):
        return iter(self.nodes)

    # --- life ---

    def form(self):
        """Start them for the first time, one after another: the first forms the cluster, the others join."""
        for node in self.nodes:
            node.start()
        self.trusts_its_clocks()
        return self

    def add(self, *options):
        """Start one more, with options that the others do not have; its number."""
        assert len(self.nodes) < NODES_MAX
        node = self._node(len(self.nodes) + 1)
        node.options += options
        self.nodes.append(node)
        node.start()
        return len(self.nodes)

    def kill(self, number):
        """SIGKILL."""
        self.node(number).kill9()

    def stop(self, number):
        """SIGTERM, and wait until it has drained."""
        self.node(number).stop()

    def pause(self, number):
        """SIGSTOP: to the others it looks like a machine that froze, or a cable that was cut."""
        self.node(number).pause()

    def resume(self, number):
        self.node(number).resume()

    def start(self, *numbers):
        """Start nodes that ran before, at the same time: none of them may serve before there is a majority."""
        with ThreadPoolExecutor(len(numbers)) as starting:
            list(starting.map(lambda number: self.node(number).start(), numbers))

    def restart(self, number):
        self.node(number).restart()

    def sees_itself_whole(self):
        """Wait until each node takes every node for alive."""

        def all_up(node):
            shown = [line.split()[0] for line in node.nodetool("status").splitlines() if line[:2] in ("UN", "UJ", "DN", "DJ")]
            return len(shown) == len(self.nodes) and all(state.startswith("U") for state in shown)

        for node in self.nodes:
            eventually(f"{node.host} sees all nodes up", lambda node=node: all_up(node))
        self.trusts_its_clocks()

    def trusts_its_clocks(self):
        """Wait until each node has compared its clock with the others': before that a repair marks nothing and nothing is purged."""
        for node in self.nodes:
            eventually(f"{node.host} trusts its clock", lambda node=node: node.api("/ceto/clock")[1]["state"] == "TRUSTED")

    def has_voters(self):
        """Wait until each node votes on metadata, which it may when it has served for some seconds."""

        def all_vote(node):
            return node.api("/raft/status")[1]["voters"] == min(len(self.nodes), VOTERS_MAX)

        for node in self.nodes:
            eventually(f"{node.host} knows all voters", lambda node=node: all_vote(node))

    def remove(self):
        for node in self.nodes:
            node.remove()

    def __enter__(self):
        try:
            return self.form()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_):
        self.remove()

    # --- what clients see ---

    def known_to_clients(self):
        """Wait until each node tells clients of all others: a driver that asks before takes ten seconds to ask again."""
        others = len(self.nodes) - 1
        for number, node in enumerate(self.nodes, 1):
            with self.driver(only=number) as driver:
                session = driver.connect()
                ask = "SELECT peer FROM system.peers"
                eventually(f"{node.host} tells of {others} others", lambda: len(list(session.execute(ask))) == others)
        return self

    def driver(self, only=None, consistency="QUORUM", first=None, **options):
        """A driver that knows all nodes and picks replicas; with `only`, one that asks this node alone; with `first`, one that hears from this node of the others."""
        # Not everyone who starts a cluster has the driver.
        from cassandra import ConsistencyLevel
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
        from cassandra.cluster import Cluster as Driver
        from cassandra.policies import (
            ConstantReconnectionPolicy,
            DCAwareRoundRobinPolicy,
            TokenAwarePolicy,
            WhiteListRoundRobinPolicy,
        )

        if only is None:
            policy = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc="datacenter1"))
            contact = [self.node(first).host] if first else [node.host for node in self.nodes if node.alive]
        else:
            policy = WhiteListRoundRobinPolicy([self.node(only).host])
            contact = [self.node(only).host]
        profile = ExecutionProfile(
            load_balancing_policy=policy,
            consistency_level=ConsistencyLevel.name_to_value[consistency],
            request_timeout=REQUEST_SECONDS,
        )
        options.setdefault("protocol_version", 4)
        options.setdefault("reconnection_policy", ConstantReconnectionPolicy(RECONNECT_SECONDS, max_attempts=None))
        options.setdefault("connect_timeout", REQUEST_SECONDS)
        options.setdefault("control_connection_timeout", REQUEST_SECONDS)
        return Driver(contact, port=self.ports[0], execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **options)

    def set_option(self, number, name, value):
        """Give a running node another value of an option, as a client does."""
        with self.driver(only=number) as driver:
            driver.connect().execute("UPDATE system.config SET value = %s WHERE name = %s", (value, name))

    def log(self, lines=LOG_LINES_SHOWN):
        return "\n".join(f"--- {node.host}\n{node.log(lines)}" for node in self.nodes)

    # --- what they use ---

    def metrics(self):
        """Of each node that runs: what `ceto nodetool info` says, its memory and its processor time."""
        return {
            number: {
                "info": node.nodetool("info"),
                "resident_bytes": node.resident_bytes(),
                "cpu_seconds": node.cpu_seconds(),
            }
            for number, node in enumerate(self.nodes, 1)
            if node.alive
        }


def eventually(what, condition, seconds=SETTLE_SECONDS):
    """Ask again until it holds."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(POLL_SECONDS)
    return answer


def hang_up(node, *words):
    """Have the node read its options again; what it then logs of SIGHUP with all of these words."""
    before = len(node.lines)
    node.process.send_signal(signal.SIGHUP)
    return eventually(
        f"a line of SIGHUP with {words}",
        lambda: [line for line in node.lines[before:] if "SIGHUP" in line and all(word in line for word in words)],
    )


def address(number):
    return f"127.0.0.{number}"


def forms_clusters():
    """Whether the binary knows how to join others."""
    shown = subprocess.run([str(ceto_binary()), "--help"], capture_output=True, text=True, check=False)
    return "--seeds" in shown.stdout
