"""A node that waits for its seeds: it finds one whose name gets another address, and ends at once when it is told to."""

import os
import signal
import subprocess
import time

import pytest

from harness import Node
from harness.cluster import address, eventually
from harness.node import free_ports

NAME = "seed.ceto.test"
NOBODY = address(9)
# What ends a node that waits takes far less than the two minutes for which it would wait.
END_SECONDS = 10


@pytest.fixture
def ports():
    return free_ports([address(number) for number in (1, 2, 9)], 3)


@pytest.fixture
def nodes():
    made = []
    yield made
    for node in made:
        node.remove()


def waits(node):
    return eventually("it waits for its seeds", lambda: any("waiting to be let in by the seeds" in line for line in node.lines))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_node_that_waits_for_its_seeds(nodes, ports, number):
    node = Node(smp=2, memory="256M", host=address(1), ports=ports, options=["--seeds", NOBODY])
    nodes.append(node)
    node._spawn()
    waits(node)
    process, begun = node.process, time.monotonic()
    process.send_signal(number)
    assert process.wait(END_SECONDS) == 0, node.log()
    assert time.monotonic() - begun < END_SECONDS
    assert any("a signal ends the node before it serves" in line for line in node.lines), node.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a process a host file of its own needs root")
def test_a_seed_whose_name_gets_another_address_is_found(nodes, ports, tmp_path):
    hosts = tmp_path / "hosts"

    def say(where):
        # In place: the processes have mounted this file.
        with hosts.open("w") as file:
            file.write(f"127.0.0.1 localhost\n{where} {NAME}\n")

    say(NOBODY)
    own_hosts = ["unshare", "--mount", "sh", "-c", f'mount --bind "{hosts}" /etc/hosts && exec "$@"', "sh"]
    if subprocess.run([*own_hosts, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mounts of one's own")
    first = Node(smp=1, memory="256M", host=address(1), ports=ports)
    second = Node(smp=1, memory="256M", host=address(2), ports=ports, options=["--seeds", NAME], wrapper=own_hosts)
    nodes += [first, second]
    first.start()
    printed = second._spawn()
    waits(second)
    assert any(f"{NAME} ({NOBODY}:{ports[2]})" in line for line in second.lines), second.log()
    say(first.host)
    while (line := printed.get(timeout=60)) is not None and "serving CQL" not in line:
        pass
    assert line is not None, second.log()
    assert any(f"seed {NAME} does not answer at {NOBODY}: trying {first.host}" in line for line in second.lines), second.log()
    eventually("both are up", lambda: second.nodetool("status").count("UN ") == 2)
