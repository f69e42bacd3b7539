"""Nobody schedules repairs: what a replica has missed comes to it by itself, and tombstones go when all replicas have the deletion."""

import datetime

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.cluster import eventually

# A repair counts for what was written twenty seconds before it began, and ranges are looked at every quarter of a minute.
SOON = 90
ROWS = 100


@pytest.fixture(scope="module")
def cluster(request):
    """Three nodes that keep no hints, repair a range again a second later, and tell of ended repairs."""
    options = ["--hinted-handoff-enabled", "false", "--auto-repair-threshold-default-in-seconds", "1", "--task-ttl-in-seconds", "3600"]
    cluster = Cluster(3, smp=2, repairs=True, runtime=request.config.getoption("--runtime"), options=options)
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def make(session, tablets, options=""):
    keyspace = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
        f" AND tablets = {{'enabled': {tablets}}}"
    )
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int){options}")
    return f"{keyspace}.t"


def write(session, text):
    session.execute(SimpleStatement(text, consistency_level=ConsistencyLevel.QUORUM))


def fall(cluster, number):
    node = cluster.node(number)
    node.kill9()
    eventually("the others miss it", lambda: f"DN  {node.host}" in cluster.node(1).nodetool("status"))
    return node


def rise(cluster, node):
    node.start()
    cluster.sees_itself_whole()
    cluster.known_to_clients()


def seen_by(cluster, table, number):
    with cluster.driver(only=number, consistency="ONE") as driver:
        return len(cql.rows(driver.connect(), f"SELECT k FROM {table}"))


def tablets(session, table):
    """The times up to which the replicas of each tablet are equal: by a repair, and by all that is known."""
    keyspace, name = table.split(".")
    rows = session.execute("SELECT keyspace_name, table_name, repair_time, watermark FROM system.tablets")
    return [(row.repair_time, row.watermark) for row in rows if (row.keyspace_name, row.table_name) == (keyspace, name)]


def repairs_by_itself(cluster, number, value):
    cluster.set_option(number, "auto_repair_enabled_default", value)


def repairs(cluster, number):
    """The repairs of ranges that a node has begun."""
    with cluster.driver(only=number) as driver:
        return {job.id for job in driver.connect().execute("SELECT id FROM system_views.repairs")}


def repairs_running(cluster, number):
    metrics = cluster.node(number).metrics()
    return sum(value for name, value in metrics.items() if name.startswith("ceto_repair_running"))


def bytes_on(cluster, number, table):
    said = cluster.node(number).nodetool("tablestats", table)
    return next(int(line.split(":")[1]) for line in said.splitlines() if "Space used (live)" in line)


@pytest.mark.parametrize("kind", ["true", "false"], ids=["tablets", "ring"])
def test_what_a_node_missed_comes_to_it_by_itself(cluster, session, kind):
    table = make(session, kind)
    third = fall(cluster, 3)
    for k in range(ROWS):
        write(session, f"INSERT INTO {table} (k, v) VALUES ({k}, {k})")
    rise(cluster, third)
    eventually("the third node has all rows", lambda: seen_by(cluster, table, 3) == ROWS, seconds=SOON)
    keyspace = table.split(".")[0]

    def remembered():
        rows = session.execute("SELECT keyspace_name, table_name, repair_time FROM system.repair_history")
        return any((row.keyspace_name, row.table_name) == (keyspace, "t") for row in rows)

    eventually("the repair is in the history", remembered, seconds=SOON)


def test_a_tombstone_goes_when_all_replicas_have_it_and_not_while_one_is_down(cluster, session):
    table = make(session, "true", " WITH tombstone_gc = {'mode': 'repair', 'propagation_delay_in_seconds': '0'}")
    for k in range(ROWS):
        write(session, f"INSERT INTO {table} (k, v) VALUES ({k}, {k})")
    for number in (1, 2, 3):
        cluster.node(number).nodetool("flush", *table.split("."))
    third = fall(cluster, 3)
    for k in range(ROWS):
        write(session, f"DELETE FROM {table} WHERE k = {k}")
    deleted = datetime.datetime.utcnow()

    def compact():
        for number in (1, 2):
            cluster.node(number).nodetool("flush", *table.split("."))
            cluster.node(number).nodetool("compact", *table.split("."))

    compact()
    assert bytes_on(cluster, 1, table) > 0, "the third node has rows that nothing would delete"
    assert all(watermark is None or watermark < deleted for _, watermark in tablets(session, table))
    rise(cluster, third)
    eventually(
        "the deletions are known to be everywhere",
        lambda: all(watermark is not None and watermark > deleted for _, watermark in tablets(session, table)),
        seconds=2 * SOON,
    )
    compact()
    assert bytes_on(cluster, 1, table) == 0, "neither rows nor tombstones are left"
    for number in (1, 2, 3):
        assert seen_by(cluster, table, number) == 0
    # A restart knows it still.
    before = max(repaired for repaired, _ in tablets(session, table))
    cluster.node(1).stop()
    rise(cluster, cluster.node(1))
    with cluster.driver(only=1) as driver:
        fresh = driver.connect()
        eventually(
            "the history is read again",
            lambda: max(repaired or datetime.datetime.min for repaired, _ in tablets(fresh, table)) >= before,
        )


def test_a_node_repairs_nothing_by_itself_from_when_it_is_told_so(cluster, session):
    make(session, "true", " WITH tablets = {'min_tablet_count': 16}")
    eventually("it repairs", lambda: repairs(cluster, 1), seconds=SOON)
    repairs_by_itself(cluster, 1, "false")
    try:
        eventually("its repairs have ended", lambda: repairs_running(cluster, 1) == 0, seconds=SOON)
        before = {number: repairs(cluster, number) for number in (1, 2, 3)}
        more = lambda number: len(repairs(cluster, number) - before[number])
        eventually("the others go on", lambda: min(more(2), more(3)) >= 8, seconds=SOON)
        assert more(1) == 0, "it repairs though it must not"
    finally:
        repairs_by_itself(cluster, 1, "true")
    eventually("it repairs again", lambda: more(1) > 0, seconds=SOON)


def test_the_option_of_a_table_is_taken_and_told(session):
    table = make(session, "true")

    def told(of):
        return session.execute(f"DESCRIBE TABLE {of}").one().create_statement

    assert "tombstone_gc" not in told(table), "a table with tablets is of mode repair"
    session.execute(f"ALTER TABLE {table} WITH tombstone_gc = {{'mode': 'disabled'}}")
    assert "tombstone_gc = {'mode': 'disabled'" in told(table)
    with pytest.raises(Exception, match="often"):
        session.execute(f"ALTER TABLE {table} WITH tombstone_gc = {{'mode': 'often'}}")
