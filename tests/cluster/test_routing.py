"""An unmodified driver on three nodes: it knows where data is, by the nodes' own count, and goes on when one of them is killed.

Runs with cassandra-driver, which knows nodes, and with scylla-driver (an environment of its own), which knows shards and tablets too.
"""

import pytest
from cassandra import ConsistencyLevel

from harness import Cluster, cql
from harness.routing import at_once, routed

SHARDS = 2
ROWS = 300
WARMING_ROUNDS = 3
ROUTED_MIN = 0.95
COUNTED_MIN = 2 * ROWS * 0.5  # of those that wait for other nodes the owner is found for a sample
# Tables on the ring, where every driver computes what is where, and with tablets, of which drivers are told.
KEYSPACES = {
    "three copies on the ring": (3, False),
    "one copy on the ring": (1, False),
    "three copies of tablets": (3, True),
    "one copy of tablets": (1, True),
}


@pytest.fixture(scope="module")
def cluster(request):
    cluster = Cluster(3, smp=SHARDS, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


@pytest.fixture(scope="module")
def session(cluster):
    with cluster.driver() as driver:
        session = driver.connect()
        if knows_shards(driver):
            wait_for_all_shards(session, len(cluster.nodes) * SHARDS)
        yield session


@pytest.fixture
def table(session):
    """table(copies, tablets) is a new table."""

    def make(copies=3, tablets=False):
        name = cql.unique("routing")
        session.execute(
            f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"
            f" AND tablets = {{'enabled': {str(tablets).lower()}}}"
        )
        session.execute(f"CREATE TABLE {name}.t (k int, c int, v text, PRIMARY KEY (k, c))")
        return f"{name}.t"

    return make


def knows_shards(driver):
    return getattr(driver, "is_shard_aware", bool)()


def wait_for_all_shards(session, count):
    """The driver opens its connections in the background; each question is a request, so this does not spin."""
    for _ in range(20_000):
        pools = session.cluster.shard_aware_stats().values()
        if sum(pool["connected"] for pool in pools) == count:
            return
        session.execute("SELECT key FROM system.local")
    raise AssertionError(session.cluster.shard_aware_stats())


@pytest.mark.parametrize("copies, tablets", KEYSPACES.values(), ids=KEYSPACES)
def test_requests_reach_who_has_the_data(cluster, session, table, copies, tablets):
    shard_aware = knows_shards(session.cluster)
    if tablets and copies == 1 and not shard_aware:
        pytest.skip("this driver knows nothing of tablets, and takes the ring for true")
    name = table(copies, tablets)
    insert = session.prepare(f"INSERT INTO {name} (k, c, v) VALUES (?, ?, ?)")
    select = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
    # Where tablets are the driver learns from the first answers.
    for _ in range(WARMING_ROUNDS if tablets else 0):
        for k in range(ROWS):
            session.execute(insert, (k, 0, "v"))
    before = routed(cluster)
    for k in range(ROWS):
        session.execute(insert, (k, 0, f"v{k}"))
        assert cql.rows(session, select, (k,)) == [(f"v{k}",)]
    counted = {place: count - before[place] for place, count in routed(cluster).items()}
    print(counted)
    known = counted["owner"] if shard_aware else counted["owner"] + counted["owning_node"]
    assert sum(counted.values()) >= COUNTED_MIN, counted
    assert known >= ROUTED_MIN * sum(counted.values()), counted
    if shard_aware:
        # Whatever the number of copies: the shard that has one answers in the call that brings the request.
        row = session.prepare(f"SELECT v FROM {name} WHERE k = ? AND c = 0")
        row.consistency_level = ConsistencyLevel.ONE
        before = at_once(cluster)
        for k in range(ROWS):
            assert cql.rows(session, row, (k,)) == [(f"v{k}",)]
        answered = at_once(cluster) - before
        assert answered >= ROUTED_MIN * ROWS, f"{answered} of {ROWS} reads at ONE were answered in one call"


def test_pages_conditions_and_a_node_that_is_killed(cluster, session, table):
    name = table()
    insert = session.prepare(f"INSERT INTO {name} (k, c, v) VALUES (?, ?, ?)")
    condition = session.prepare(f"UPDATE {name} SET v = ? WHERE k = ? AND c = ? IF v = ?")
    for statement in (insert, condition):
        statement.consistency_level = ConsistencyLevel.QUORUM
        statement.is_idempotent = statement is insert
    for k in range(ROWS):
        session.execute(insert, (k % 10, k, "before"))
    assert session.execute(condition, ("taken", 1, 1, "before")).one().applied
    refused = session.execute(condition, ("again", 1, 1, "before")).one()
    assert (refused.applied, refused.v) == (False, "taken")

    select = session.prepare(f"SELECT k, c FROM {name}")
    select.fetch_size = 7
    expected = {(k % 10, k) for k in range(ROWS)}
    pages = session.execute(select)
    first = {tuple(row) for row in pages.current_rows}
    assert len(first) == 7
    cluster.kill(3)
    try:
        # The paging state of one node is good on any other.
        got = []
        while True:
            got += [tuple(row) for row in pages.current_rows]
            if not pages.has_more_pages:
                break
            pages.fetch_next_page()
        assert len(got) == len(expected) and set(got) == expected
        for k in range(ROWS):
            session.execute(insert, (k % 10, k, "without node 3"))
        assert session.execute(condition, ("taken", 1, 1, "without node 3")).one().applied
        assert len(cql.rows(session, f"SELECT k FROM {name}")) == ROWS
    finally:
        cluster.start(3)
