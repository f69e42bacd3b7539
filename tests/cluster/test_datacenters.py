"""A second datacenter is added and removed while clients of the first write and read, and an arbiter keeps the majority when a datacenter is lost."""

import contextlib

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import Cluster, NodeFailed, cql
from harness.cluster import eventually
from harness.counted import PATIENT
from harness.counter import Counter
from harness.members import copies_on_ring, host_of, is_still, replicas_of, state_of
from harness.page import Page
from harness.witness import Witness

ROWS = 500
REQUESTS = 300
# The ring's ranges are copied one by one, on a machine that does much else.
SECONDS = 300
FEW_TOKENS = ["--num-tokens", "4"]
FIRST, SECOND = "datacenter1", "dc2"
HERE = f"{{'class': 'NetworkTopologyStrategy', '{FIRST}': 3}}"
BOTH = f"{{'class': 'NetworkTopologyStrategy', '{FIRST}': 3, '{SECOND}': 2}}"
SEEDS = "10.0.0.1,10.0.0.2"


@pytest.fixture
def form(request):
    formed = []

    def make(size, *options):
        formed.append(Cluster(size, runtime=request.config.getoption("--runtime"), options=options))
        return formed[-1].form().known_to_clients()

    try:
        yield make
    finally:
        for cluster in formed:
            # Shown when the test has failed.
            print(cluster.log())
            cluster.remove()


def fill(session, replication):
    """Two tables of rows: one with tablets, one on the token ring; their keyspaces."""
    names = []
    for tablets in ("true", "false"):
        names.append(cql.unique("ks"))
        session.execute(f"CREATE KEYSPACE {names[-1]} WITH replication = {replication} AND tablets = {{'enabled': {tablets}}}")
        session.execute(f"CREATE TABLE {names[-1]}.t (k int PRIMARY KEY, v int)")
        insert = session.prepare(f"INSERT INTO {names[-1]}.t (k, v) VALUES (?, ?)")
        for k in range(ROWS):
            session.execute(insert, (k, k))
    return names


def keys(cluster, number, name, level="LOCAL_QUORUM"):
    """What a client of this node finds."""
    with cluster.driver(only=number, consistency=level) as driver:
        return sorted(k for (k,) in cql.rows(driver.connect(), f"SELECT k FROM {name}.t"))


def copies(session, cluster, name):
    """How many copies the tablets or the ranges of a keyspace have."""
    of_tablets = {len(replicas) for replicas in replicas_of(session, name)}
    return of_tablets or copies_on_ring(cluster, name)


def are_where(session, cluster, names, count, what):
    for name in names:
        eventually(f"{name} {what}", lambda name=name: copies(session, cluster, name) == {count}, SECONDS)


def is_done(cluster, *names):
    status = cluster.node(1).nodetool("status")
    return not any(f"replication of {name}" in status for name in names) and is_still(cluster)


def differing(cluster, number, name):
    """How many rows the replicas of this node do not have alike."""
    printed = cluster.node(number).nodetool("repair", "--preview", name)
    return 0 if printed.startswith("There is nothing to repair") else int(printed.splitlines()[-1].split()[4])


class Loads:
    """What clients of the first datacenter do meanwhile: writes and reads at LOCAL_QUORUM, and conditional statements that both
    datacenters or one of them agree on. Each does so in tables with tablets and on the token ring.
    """

    def __init__(self, cluster, running):
        rings = (False, True)
        self.witnesses = [
            running.enter_context(Witness(cluster, ring=ring, chains=2, consistency="LOCAL_QUORUM", replication=HERE)) for ring in rings
        ]
        self.counters = [
            running.enter_context(Counter(cluster, ring=ring, local=local, replication=HERE))
            for ring, local in ((False, False), (False, True), (True, False))
        ]
        self.keyspaces = [load.keyspace for load in [*self.witnesses, *self.counters]]

    def phase(self, name):
        for load in [*self.witnesses, *self.counters]:
            load.phase(name)

    def more(self):
        for witness in self.witnesses:
            witness.more(REQUESTS)
        for counter in self.counters:
            counter.more()

    def check(self):
        """No request was refused, and nothing acknowledged is lost."""
        for witness in self.witnesses:
            witness.finish(levels=("LOCAL_QUORUM", "ALL")).check()
        for counter in self.counters:
            counter.check(allowed=())


def alter(session, replication, names):
    for name in names:
        # While the token ring goes to other owners, it takes no second change.
        eventually(f"{name} may have another replication", lambda name=name: is_altered(session, name, replication), SECONDS)


def is_altered(session, name, replication):
    try:
        session.execute(f"ALTER KEYSPACE {name} WITH replication = {replication}")
    except Exception as refused:
        assert "the token ring goes to other owners" in str(refused), refused
        return False
    return True


def test_a_datacenter_is_added_and_removed_while_the_other_is_written_and_read(form):
    cluster = form(3, *PATIENT, *FEW_TOKENS)
    with contextlib.ExitStack() as running:
        session = running.enter_context(cluster.driver(only=1)).connect()
        names = fill(session, HERE)
        loads = Loads(cluster, running)
        every = [*names, *loads.keyspaces]
        loads.more()

        loads.phase("three nodes of a second datacenter join")
        for _ in range(3):
            cluster.add("--data-center", SECOND, "--rack", "rack1")
        eventually("they are full members", lambda: is_still(cluster))
        second = {host_of(cluster.node(number)) for number in (4, 5, 6)}
        assert not any({str(host) for host, _ in replicas} & second for replicas in replicas_of(session, names[0]))
        loads.more()

        loads.phase("it gets two copies")
        alter(session, BOTH, every)
        loads.more()
        are_where(session, cluster, every, 5, "has them")
        eventually("nothing moves", lambda: is_done(cluster, *every), SECONDS)
        loads.more()
        for name in names:
            for number in (4, 5, 6):
                assert keys(cluster, number, name) == list(range(ROWS)), f"{name} by node {number}"
                assert differing(cluster, number, name) == 0, f"{name} by node {number}"

        # What a user of Cassandra does then has nothing to bring, and does no harm.
        loads.phase("its nodes are rebuilt")
        for number in (4, 5, 6):
            assert "Copied " in cluster.node(number).nodetool("rebuild", FIRST)
        loads.more()

        loads.phase("both are written")
        with cluster.driver(only=5, consistency="LOCAL_QUORUM") as driver:
            of_second = driver.connect()
            for name in names:
                for k in range(ROWS, 2 * ROWS):
                    of_second.execute(f"INSERT INTO {name}.t (k, v) VALUES ({k}, {k})")
        loads.more()
        for name in names:
            cluster.node(1).nodetool("cluster", "repair", name)

        loads.phase("it has no copies any more")
        alter(session, HERE, every)
        are_where(session, cluster, every, 3, "has them where it began")
        eventually("nothing moves", lambda: is_done(cluster, *every), SECONDS)
        loads.more()

        for number in (6, 5, 4):
            loads.phase(f"node {number} leaves")
            leaving = cluster.node(number)
            leaving.nodetool("decommission")
            cluster.nodes.remove(leaving)
            assert state_of(cluster, leaving) is None
            eventually("the node has stopped by itself", lambda leaving=leaving: not leaving.alive)
            leaving.remove()
            loads.more()
        loads.phase("one datacenter again")
        assert SECOND not in cluster.node(1).nodetool("status")
        loads.more()
        loads.check()
        for name in names:
            assert keys(cluster, 2, name) == list(range(2 * ROWS))
        assert are_equal(cluster, names)


def test_datacenters_come_go_and_are_lost_as_the_page_says(form):
    cluster = form(2)
    seeds = {SEEDS: f"{cluster.node(1).host},{cluster.node(2).host}"}
    with Page("datacenters") as page:
        with cluster.driver(only=1) as driver:
            names = fill(driver.connect(), f"{{'class': 'NetworkTopologyStrategy', '{FIRST}': 2}}")

        def start(command, values):
            cluster.nodes.append(page.start(cluster, len(cluster.nodes) + 1, command, seeds | values))

        joins = "ceto --workdir DIR --seeds 10.0.0.1,10.0.0.2 --data-center dc2 --rack rack1 …"
        for _ in range(2):
            start(joins, {})
        start("ceto --workdir DIR --seeds 10.0.0.1,10.0.0.2 --join-ring false --data-center arbiter …", {})
        eventually("they are full members", lambda: is_still(cluster))
        assert f"Datacenter: {SECOND}" in page.nodetool(cluster.node(1), "status")

        def replicate(statement, copies_each):
            # With a session of its own: the node is killed in between.
            with cluster.driver(only=1) as driver:
                session = driver.connect()
                for name in names:
                    values = {"KEYSPACE ks": f"KEYSPACE {name}", "'dc1': 3": f"'{FIRST}': 2"}
                    page.statement(session, statement, values)
                    eventually("it has its copies", lambda name=name: copies(session, cluster, name) == {copies_each})
            eventually("nothing goes on", lambda: is_done(cluster, *names))

        replicate("ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3, 'dc2': 2}", 4)
        page.nodetool(cluster.node(1), "tabletbalancing")
        page.nodetool(cluster.node(3), "rebuild --source-dc dc1", {"dc1": FIRST})
        for name in names:
            assert keys(cluster, 3, name) == list(range(ROWS))

        # With the arbiter the schema changes on either side while the other is lost.
        cluster.has_voters()
        for here, lost in (((1, 2), (3, 4)), ((3, 4), (1, 2))):
            for number in lost:
                cluster.kill(number)
            asked = here[0]
            for number in lost:
                eventually("the others miss it", lambda number=number: state_of(cluster, cluster.node(number), asked) == "DN")
            with cluster.driver(only=asked, consistency="LOCAL_QUORUM") as survivors:
                survivor = survivors.connect()
                survivor.execute(f"CREATE TABLE {names[0]}.by{asked} (k int PRIMARY KEY)")
                survivor.execute(f"INSERT INTO {names[0]}.by{asked} (k) VALUES (1)")
                assert cql.rows(survivor, f"SELECT k FROM {names[0]}.by{asked}") == [(1,)]
                majority = SimpleStatement(f"SELECT k FROM {names[0]}.t WHERE k = 1", consistency_level=ConsistencyLevel.QUORUM)
                with pytest.raises(Exception, match="Unavailable|Cannot achieve consistency level QUORUM"):
                    survivor.execute(majority)
            for name in names:
                assert keys(cluster, asked, name) == list(range(ROWS))
            cluster.start(*lost)
            cluster.sees_itself_whole()

        with pytest.raises(NodeFailed):
            page.nodetool(cluster.node(4), "decommission")
        page.nodetool(cluster.node(1), "cluster repair")
        replicate("ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}", 2)
        for number in (4, 3):
            leaving = cluster.node(number)
            page.nodetool(leaving, "decommission")
            cluster.nodes.remove(leaving)
            eventually("it has stopped", lambda leaving=leaving: not leaving.alive)
            leaving.remove()
        for name in names:
            assert keys(cluster, 2, name) == list(range(ROWS))


def test_a_node_keeps_its_rack_and_another_rack_takes_a_new_node(form):
    cluster = form(3)
    moved = cluster.node(3)
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        names = fill(session, f"{{'class': 'NetworkTopologyStrategy', '{FIRST}': 2}}")
        plain = list(moved.options)
        moved.stop()
        for changed in (["--data-center", FIRST, "--rack", "rack2"], ["--data-center", SECOND, "--rack", "rack1"]):
            moved.options = plain + changed
            with pytest.raises(NodeFailed, match=f"The node was in datacenter {FIRST} rack rack1"):
                moved.start()
        moved.options = plain
        moved.start()
        cluster.sees_itself_whole()

        in_rack2 = ["--data-center", FIRST, "--rack", "rack2"]
        new = cluster.node(cluster.add(*in_rack2))
        eventually("it is a full member", lambda: is_done(cluster, *names))
        moved.nodetool("decommission")
        cluster.nodes.remove(moved)
        eventually("it has stopped", lambda: not moved.alive)
        moved.remove()
        # It is alone in its rack, and has a copy of everything.
        alone = host_of(new)
        eventually(
            "each tablet has a copy in each rack",
            lambda: all(alone in {str(host) for host, _ in replicas} for replicas in replicas_of(session, names[0])),
        )
        eventually("nothing moves", lambda: is_done(cluster, *names))
        assert are_equal(cluster, names)

        # One that is lost is replaced by a node of another rack: the replacement changes which nodes have the copies, and all copies are whole.
        lost = cluster.node(2)
        host = host_of(lost)
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        in_rack3 = ["--data-center", FIRST, "--rack", "rack3"]
        heir = cluster._node(5)
        heir.options += [*in_rack3, "--replace-node-first-boot", host]
        cluster.nodes[1] = heir.start()
        eventually("the lost node has left", lambda: host not in cluster.node(1).nodetool("status"))
        lost.remove()
        eventually("nothing moves", lambda: is_done(cluster, *names))
        assert are_equal(cluster, names)
        for number, _ in enumerate(cluster, 1):
            for name in names:
                assert keys(cluster, number, name, "ALL") == list(range(ROWS))


def are_equal(cluster, names):
    """Whether the replicas of all ranges have the same rows."""
    return all(differing(cluster, number, name) == 0 for name in names for number, _ in enumerate(cluster, 1))
