"""A cluster grows from three nodes to six and shrinks to three under load: harness/growth.py has the story."""

import contextlib

from harness import Cluster
from harness.counter import Counter
from harness.growth import Growth
from harness.witness import Witness

REQUESTS = 300
# Of each node when it fails: the story is long.
LINES_SHOWN = 2_000
# Stages flush and sync: on a machine that does much else that may take longer than a request usually waits.
TIMEOUTS = ("write-request-timeout", "read-request-timeout", "cas-contention-timeout")
PATIENT = [option for name in TIMEOUTS for option in (f"--{name}", "20s")]


class Witnessed:
    """A witness as the story asks it."""

    def __init__(self, witness):
        self.witness, self.keyspace, self.phase = witness, witness.keyspace, witness.phase

    def more(self):
        self.witness.more(REQUESTS)

    def check(self, allowed):
        self.witness.finish().check(allowed)


def test_three_nodes_grow_to_six_and_shrink_to_three_while_they_are_written_and_read(request):
    cluster = Cluster(3, runtime=request.config.getoption("--runtime"), options=PATIENT)
    try:
        cluster.form().known_to_clients()
        with contextlib.ExitStack() as running:
            witnesses = [running.enter_context(Witness(cluster, ring=ring, chains=4)) for ring in (False, True)]
            counters = [running.enter_context(Counter(cluster, ring=ring)) for ring in (False, True)]
            loads = [*map(Witnessed, witnesses), *counters]
            rings = [witnesses[1].keyspace, counters[1].keyspace]
            Growth(cluster, loads, rings).play()
    except BaseException:
        print(cluster.log(LINES_SHOWN))
        raise
    finally:
        cluster.remove()
