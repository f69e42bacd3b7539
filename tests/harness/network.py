"""A machine room in network namespaces: each node has a network interface of its own, and any cable can be cut in either direction.

    switch: 10.99.0.254, where clients stand        node 1: 10.99.0.1        node 2: 10.99.0.2        ...

All of it is inside namespaces that are made here, so nothing else on this machine sees it. It needs root.

A direction is cut by giving the sender a wrong hardware address for the receiver: what it sends goes out and nobody takes it, as
on a broken cable. Nothing is refused, no connection is reset.
"""

import contextlib
import itertools
import os
import subprocess

NOBODY = "02:00:00:00:00:00"
PORTS = (9042, 19042, 7000)
_numbers = itertools.count(1)


class NotPermitted(Exception):
    """This process may not make network namespaces."""


class Network:
    def __init__(self, size):
        self.ports = PORTS
        self._name = f"ceto-{os.getpid():x}-{next(_numbers)}"
        self._numbers = range(1, size + 1)
        try:
            self._build()
        except (subprocess.CalledProcessError, FileNotFoundError) as failure:
            self.remove()
            raise NotPermitted(getattr(failure, "stderr", None) or str(failure)) from failure

    def _build(self):
        switch = self._namespace(0)
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", switch, "address", "add", f"{self.address(254)}/24", "dev", "switch")
        _ip("-n", switch, "link", "set", "switch", "up")
        for number in self._numbers:
            node = self._namespace(number)
            _ip("netns", "add", node)
            _ip("-n", switch, "link", "add", f"node{number}", "type", "veth", "peer", "name", "eth0", "netns", node)
            _ip("-n", switch, "link", "set", f"node{number}", "master", "switch", "up")
            _ip("-n", node, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", node, "link", "set", "eth0", "up")
            _ip("-n", node, "link", "set", "lo", "up")

    def _namespace(self, number):
        return f"{self._name}-{number}"

    def address(self, number):
        return f"10.99.0.{number}"

    def wrapper(self, number=0):
        """What runs a command on the machine of a node, or beside the switch."""
        return ["ip", "netns", "exec", self._namespace(number)]

    def cut(self, source, target):
        """What one node sends does not come to the other any more."""
        self._neighbour("replace", source, target, "lladdr", NOBODY, "nud", "permanent")

    def heal(self, source, target):
        self._neighbour("delete", source, target)

    def _neighbour(self, verb, source, target, *what):
        _ip("-n", self._namespace(source), "neighbour", verb, self.address(target), *what, "dev", "eth0")

    def remove(self):
        for number in [*self._numbers, 0]:
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                _ip("netns", "delete", self._namespace(number))


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
