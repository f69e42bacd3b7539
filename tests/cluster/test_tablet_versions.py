"""TABLETS_ROUTING_V2_EXPERIMENTAL: each EXECUTE says what its driver knows of the tablet's version, and hears of the tablet when that is not so."""

import struct

import pytest

from harness import Cluster, cql, wire
from harness.members import host_of
from harness.tablet_route import BLOCKS, FEATURE, V1, V2, tablet

KEY, VALUE = struct.pack(">i", 7), struct.pack(">i", 1)
PROTOCOL_ERROR = 0x000A


@pytest.fixture(scope="module")
def cluster(request):
    cluster = Cluster(3, smp=2, runtime=request.config.getoption("--runtime"), options=FEATURE)
    try:
        cluster.form().known_to_clients()
        # Tablets stay where these tests put them.
        cluster.node(1).nodetool("tabletbalancing", "off")
        yield cluster
    finally:
        cluster.remove()


class Driver(wire.Connection):
    def __init__(self, node, *extensions):
        super().__init__(node)
        assert self.startup(**dict.fromkeys(extensions, "")).opcode == wire.READY

    def told(self, statement, values, behind=b""):
        """The tablet that the answer to an EXECUTE names."""
        return tablet(wire.custom_payload(self.execute(statement, values, behind)))


def table(session, copies, tablets=1):
    """A table of one tablet, or of none."""
    name = cql.unique("versions")
    count = f"'initial': {tablets}" if tablets else "'enabled': false"
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}"
        f" AND tablets = {{{count}}}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    return f"{name}.t"


def places(session, name):
    """Host id and shard of each replica of the tablet, in order."""
    rows = cql.rows(session, "SELECT keyspace_name, replicas FROM system.tablets")
    [found] = [replicas for keyspace, replicas in rows if f"{keyspace}.t" == name]
    return tuple(sorted((host, shard) for host, shard in found))


def statements(driver, name):
    """Statements of one partition, with their values."""
    return {
        driver.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)"): [KEY, VALUE],
        driver.prepare(f"SELECT v FROM {name} WHERE k = ?"): [KEY],
        driver.prepare(f"UPDATE {name} SET v = 1 WHERE k = ? IF v = 1"): [KEY],
        driver.prepare(f"SELECT v FROM {name} WHERE k = ? AND v = 1 ALLOW FILTERING"): [KEY],
    }


@pytest.mark.parametrize("copies", [1, 3])
def test_a_wrong_block_gets_the_tablet_and_a_right_one_nothing(cluster, session, copies):
    name = table(session, copies)
    found = set()
    for node in cluster:
        with Driver(node, V1, V2) as driver:
            for statement, values in statements(driver, name).items():
                told = [driver.told(statement, values, bytes([value])) for value in BLOCKS]
                [now] = set(told) - {None}
                assert told.count(None) == 1, "one of sixteen values is the right one"
                assert now.replicas == places(session, name)
                assert (now.after, now.last) == (-(2**63), 2**63 - 1)
                for number in BLOCKS:
                    assert driver.told(statement, values, now.block(number)) is None
                    assert driver.told(statement, values, now.block(number, wrong_by=1 + number % 15)) == now
                found.add(now)
    assert len(found) == 1, "all nodes say the same"


def test_who_does_not_route_by_a_partition_is_told_nothing(cluster, session):
    name, on_ring = table(session, 1), table(session, 1, tablets=0)
    for node in cluster:
        with Driver(node, V2) as driver:
            scan = driver.prepare(f"SELECT k FROM {name}")
            of_ring = statements(driver, on_ring)
            for value in BLOCKS:
                assert driver.told(scan, [], bytes([value])) is None
                for statement, values in of_ring.items():
                    assert driver.told(statement, values, bytes([value])) is None
            assert wire.custom_payload(driver.query(f"SELECT v FROM {name} WHERE k = 7")) == {}
            # Without the byte that was agreed on there is no EXECUTE.
            code, message = driver.execute(scan).error
            assert code == PROTOCOL_ERROR and "tablet version block" in message
        # Who agrees on the first version alone hears of the tablet at a shard without a replica, and sends no byte.
        with Driver(node, V1) as driver:
            select = driver.prepare(f"SELECT v FROM {name} WHERE k = ?")
            told = driver.told(select, [KEY])
            assert told is None or (told.version, told.replicas) == (None, places(session, name))


def test_a_driver_hears_of_each_move_by_the_version_that_it_has(cluster, session):
    name = table(session, 1)
    keyspace = name.partition(".")[0]
    with Driver(cluster.node(1), V2) as one, Driver(cluster.node(2), V2) as two:
        drivers = [(driver, driver.prepare(f"SELECT v FROM {name} WHERE k = ?")) for driver in (one, two)]
        for driver, _ in drivers:
            statement = driver.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
            assert driver.execute(statement, [KEY, VALUE], b"\0").opcode == wire.RESULT

        def now():
            """What drivers are told that have no version."""
            told = [driver.told(select, [KEY], bytes([value])) for driver, select in drivers for value in (0, 1)]
            [found] = set(told) - {None}
            return found

        versions = [now()]
        [(host, shard)] = places(session, name)
        others = [host_of(node) for node in cluster if host_of(node) != str(host)]
        cluster.node(1).nodetool("movetablet", keyspace, "t", "0", str(1 - shard), str(host))
        versions.append(now())
        for other in others:
            [(host, _)] = places(session, name)
            cluster.node(1).nodetool("movetablet", keyspace, "t", "0", "0", str(host), other)
            versions.append(now())
        assert len({found.version for found in versions}) == len(versions)
        assert versions[-1].replicas == places(session, name)
        for driver, select in drivers:
            for former in versions[:-1]:
                differing = [number for number in BLOCKS if former.block(number) != versions[-1].block(number)]
                assert differing, "no block tells the versions apart"
                for number in BLOCKS:
                    expected = versions[-1] if number in differing else None
                    assert driver.told(select, [KEY], former.block(number)) == expected


def test_the_extension_is_offered_where_the_option_names_it(cluster, request, tmp_path):
    with wire.Connection(cluster.node(1)) as connection:
        assert wire.supported(connection.ask(wire.OPTIONS))[V2] == [""]
    options = tmp_path / "ceto.yaml"
    options.write_text("experimental_features: [udf, keyspace-storage-options]\n")
    with Cluster(1, smp=1, runtime=request.config.getoption("--runtime"), options=["--options-file", str(options)]) as alone:
        node = alone.node(1)
        assert any("names 'udf', which has no effect here" in line for line in node.lines)
        with wire.Connection(node) as connection:
            offered = wire.supported(connection.ask(wire.OPTIONS))
            assert V1 in offered and V2 not in offered
        with alone.driver(only=1) as driver:
            name = table(driver.connect(), 1)
        # A key that the node does not offer means nothing: no byte is expected, and none is an error.
        with Driver(node, V2) as driver:
            for statement, values in statements(driver, name).items():
                assert driver.told(statement, values) is None
