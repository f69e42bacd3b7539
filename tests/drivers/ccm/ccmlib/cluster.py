"""A cluster: a directory of its name, with a file of what is known of its nodes."""

import json
import os
import shutil
import time
from pathlib import Path

from ccmlib.common import switch_cluster
from ccmlib.node import NOTICE_SECONDS, POLL_SECONDS, Node, NodeError, TimeoutError

FACTS = "cluster.json"
PORT, STORAGE_PORT = 9042, 7000


def evenly(number, count):
    """The token of this node, counted from 0, of a ring that is shared evenly."""
    return str(-(2**63) + number * (2**64 // count))


class Cluster:
    def __init__(self, path, name, create_directory=True, **_):
        self.path, self.name = str(path), name
        self.binary = os.environ["CETO_BIN"]
        self.facts = {"options": {}, "nodes": {}}
        self.nodes = {}
        directory = Path(path, name)
        if directory.exists():
            raise NodeError(f"cluster {name} exists")
        directory.mkdir(parents=True)
        self.save()
        switch_cluster(path, name)

    @classmethod
    def load(cls, path, name):
        cluster = cls.__new__(cls)
        cluster.path, cluster.name = str(path), name
        cluster.binary = os.environ["CETO_BIN"]
        cluster.facts = json.loads(Path(path, name, FACTS).read_text())
        cluster.nodes = {name: Node(cluster, name, facts) for name, facts in cluster.facts["nodes"].items()}
        return cluster

    def save(self):
        self.facts["nodes"] = {node.name: node.facts for node in self.nodes.values()}
        new = Path(self.path, self.name, FACTS + ".new")
        new.write_text(json.dumps(self.facts, indent=1))
        new.rename(new.with_name(FACTS))

    def populate(self, nodes, ipformat=None, use_single_interface=False, prefix="127.0.0.", use_vnodes=False, **_):
        """`nodes` in one datacenter, or a list of how many in each; without vnodes each has one token."""
        # As with CCM: a number is of datacenter1, a list is of dc1, dc2, …
        named = isinstance(nodes, list)
        counts = nodes if named else [nodes]
        for place, count in enumerate(counts, 1):
            for _ in range(count):
                number = len(self.nodes) + 1
                if use_single_interface:
                    raise NodeError("nodes of ceto that share an address are not to be told apart by clients")
                address = ipformat % number if ipformat else f"{prefix}{number}"
                node = self.add_node(f"node{number}", address, f"dc{place}" if named else None)
                if not use_vnodes:
                    node.set_configuration_options({"initial_token": evenly(number - 1, sum(counts))})
        return self

    def add_node(self, name, address, data_center=None, port=PORT, storage_port=STORAGE_PORT):
        if name in self.nodes:
            raise NodeError(f"{name} exists")
        facts = {"address": address, "data_center": data_center, "port": port, "storage_port": storage_port, "options": {}}
        node = self.nodes[name] = Node(self, name, facts)
        # CCM's file; there are suites that change ports of JMX in it.
        node.directory.mkdir()
        (node.directory / "node.conf").write_text(f"name: {name}\n")
        self.save()
        return node

    def forget(self, node):
        del self.nodes[node.name]
        self.save()

    def seed(self):
        return next(iter(self.nodes.values())).address

    def nodelist(self):
        return list(self.nodes.values())

    def set_configuration_options(self, values=None, **_):
        self.facts["options"] |= values or {}
        self.save()
        return self

    def set_dse_configuration_options(self, values=None, **_):
        if values:
            raise NodeError(f"options of DataStax Enterprise: {values}")
        return self

    def set_install_dir(self, **_):
        pass

    def start(self, **_):
        """Those that ran before at the same time, since none serves before there is a majority; new ones one after another."""
        from concurrent.futures import ThreadPoolExecutor

        again = [node for node in self.nodelist() if node.facts.get("started") and not node.is_running()]
        if again:
            with ThreadPoolExecutor(len(again)) as starting:
                list(starting.map(lambda node: node.start(wait_other_notice=False), again))
        for node in self.nodelist():
            if not node.is_running():
                node.start(wait_other_notice=False)
        self.agrees()
        return [(node, None, 0) for node in self.nodelist()]

    def stop(self, gently=True, **_):
        for node in self.nodelist():
            node.stop(gently=gently)

    def clear(self):
        for node in self.nodelist():
            node.clear()
        self.save()

    def remove(self, node=None, **_):
        if node:
            return node.remove()
        self.stop(gently=False)
        shutil.rmtree(Path(self.path, self.name), ignore_errors=True)

    def agrees(self):
        """Wait until every node that runs takes for up exactly those that run."""
        running = {node.address for node in self.nodelist() if node.is_running()}
        deadline = time.monotonic() + NOTICE_SECONDS
        waiting = [node for node in self.nodelist() if node.is_running()]
        while waiting:
            shown = waiting[0].nodetool("status")
            up = {words[1] for line in shown.splitlines() if len(words := line.split()) > 1 and words[0] in ("UN", "UJ")}
            if {address.partition(":")[0] for address in up} == running:
                waiting.pop(0)
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{waiting[0].name} does not see {running} up:\n{shown}")
            else:
                time.sleep(POLL_SECONDS)
