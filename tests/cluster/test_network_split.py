"""A node is cut off from the others while applications write and read at QUORUM through it and through them."""

import pytest

from harness import Cluster
from harness.network import Network, NotPermitted
from harness.witness import TIMEOUTS, UNAVAILABLE, Witness

REQUESTS = 500
REFUSALS = 50
# Longer than any hiccup of a machine that runs other things, shorter than the time after which a request is given up.
P99_MS_MAX = 1_000


@pytest.fixture(scope="module")
def network():
    try:
        network = Network(3)
    except NotPermitted as reason:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    yield network
    network.remove()


@pytest.fixture(scope="module")
def cluster(request, network):
    cluster = Cluster(3, network=network, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form()
    finally:
        cluster.remove()


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param([(3, 1), (3, 2), (1, 3), (2, 3)], id="both ways"),
        pytest.param([(3, 1), (3, 2)], id="nothing comes from it"),
        pytest.param([(1, 3), (2, 3)], id="nothing comes to it"),
    ],
)
def test_a_node_is_cut_off(network, cluster, cut):
    with (
        Witness(cluster, only=[1, 2], wrapper=network.wrapper()) as majority,
        Witness(cluster, only=[3], wrapper=network.wrapper()) as minority,
    ):
        majority.more(REQUESTS)
        minority.more(REQUESTS)
        steps = [
            ("cut", network.cut, lambda: minority.refused(REFUSALS)),
            ("healed", network.heal, lambda: minority.more(REQUESTS)),
        ]
        for phase, change, until in steps:
            for witness in (majority, minority):
                witness.phase(phase)
            for source, target in cut:
                change(source, target)
            until()
            majority.more(REQUESTS)
        accounts = {"majority": majority.finish(), "minority": minority.finish()}
    accounts["majority"].check()
    assert accounts["majority"].p99_ms("cut") < P99_MS_MAX, "a quorum waits for a node that is cut off"
    # It says so as soon as it knows; what it was asked before that, and what had left when the cable was cut, times out.
    promised = UNAVAILABLE | TIMEOUTS
    accounts["minority"].check({"before": promised, "cut": promised, "healed": promised})
    assert "Unavailable" in accounts["minority"].refused("cut"), "it never learned that it is alone"
