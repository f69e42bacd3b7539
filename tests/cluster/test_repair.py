"""What a replica has missed permanently comes to it by a repair, and nothing else is sent."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql
from harness.cluster import eventually

ROWS = 200


@pytest.fixture(scope="module")
def cluster(forgetful_cluster):
    return forgetful_cluster


@pytest.fixture(params=["true", "false"], ids=["tablets", "ring"])
def table(session, request):
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
        f" AND tablets = {{'enabled': {request.param}}}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int, c int, v int, s int static, PRIMARY KEY (k, c))")
    return f"{name}.t"


def without(cluster, session, work):
    """Work while the third node is down."""
    third = cluster.node(3)
    third.kill9()
    eventually("the others miss it", lambda: f"DN  {third.host}" in cluster.node(1).nodetool("status"))
    work()
    third.start()
    cluster.sees_itself_whole()
    cluster.known_to_clients()


def write(session, text):
    session.execute(SimpleStatement(text, consistency_level=ConsistencyLevel.QUORUM))


def seen_by(cluster, table, number):
    """What a node has itself."""
    with cluster.driver(only=number, consistency="ONE") as driver:
        rows = cql.rows(driver.connect(), f"SELECT k, c, v, s FROM {table}")
    return sorted(rows)


def repaired(cluster, number, *words):
    """What the command prints for the only table: ranges, rows, differing, bytes sent, received and skipped."""
    printed = cluster.node(number).nodetool("repair", *words).strip().splitlines()
    if printed[0].startswith("There is nothing to repair"):
        return [0, 0, 0, 0, 0, 0]
    assert len(printed) == 2, printed
    return [int(word) for word in printed[1].split()[2:]]


@pytest.mark.parametrize("by", [1, 3])
def test_a_repair_brings_rows_deletions_and_nothing_else(cluster, session, table, by):
    keyspace = table.split(".")[0]
    for k in range(ROWS):
        write(session, f"INSERT INTO {table} (k, c, v, s) VALUES ({k % 20}, {k}, {k}, {k})")

    def change():
        write(session, f"DELETE FROM {table} WHERE k = 3 AND c > 50")
        write(session, f"DELETE FROM {table} WHERE k = 4")
        write(session, f"UPDATE {table} SET s = 7 WHERE k = 5")
        for c in range(ROWS, ROWS + 10):
            write(session, f"INSERT INTO {table} (k, c, v) VALUES (6, {c}, {c})")

    without(cluster, session, change)
    expected = seen_by(cluster, table, 1)
    assert seen_by(cluster, table, 3) != expected, "the node has missed nothing"
    _, rows, differing, *_ = repaired(cluster, by, "--preview", keyspace)
    assert rows > 0 and differing > 0
    assert seen_by(cluster, table, 3) != expected, "a preview has changed something"
    assert repaired(cluster, by, keyspace, "t")[2] == differing
    for number in (1, 2, 3):
        assert seen_by(cluster, table, number) == expected
        assert repaired(cluster, number, "--preview", keyspace)[2] == 0


def test_each_node_repairs_its_first_ranges_and_all_of_them_repair_everything(cluster, session, table):
    keyspace = table.split(".")[0]

    def change():
        for k in range(ROWS):
            write(session, f"INSERT INTO {table} (k, c, v) VALUES ({k}, 0, {k})")

    without(cluster, session, change)
    differing = [repaired(cluster, number, "-pr", keyspace)[2] for number in (1, 2, 3)]
    assert sum(differing) == ROWS
    assert len(seen_by(cluster, table, 3)) == ROWS


def test_tables_show_what_each_node_did_for_a_repair(cluster, session, table):
    keyspace = table.split(".")[0]
    write(session, f"INSERT INTO {table} (k, c, v) VALUES (1, 1, 1)")
    ranges = repaired(cluster, 1, keyspace)[0]

    def shown(number, view):
        with cluster.driver(only=number, consistency="ONE") as driver:
            seen = driver.connect().execute(f"SELECT * FROM system_views.{view}")
            return [row for row in seen.all() if keyspace in str(row) and row.completed]

    sessions, jobs = shown(1, "repair_sessions"), shown(1, "repair_jobs")
    assert len(jobs) == ranges and all(job.table_name == "t" and job.status == "done" and job.ranges for job in jobs)
    assert {job.id for job in jobs} == {id for one in sessions for id in one.jobs}
    repairs = {row.id for row in shown(1, "repairs")}
    assert {job.repair_id for job in jobs} <= repairs and not {job.id for job in jobs} & repairs
    # Each range was compared on both other nodes.
    compared = shown(2, "repair_validations") + shown(3, "repair_validations")
    assert len(compared) == 2 * ranges and sum(one.bytes_read for one in compared) > 0
    with cluster.driver(only=2, consistency="ONE") as driver:
        taken_part = driver.connect().execute("SELECT * FROM system_views.repair_participates").all()
    validations = {id for row in taken_part for id in row.validations}
    assert {one.id for one in shown(2, "repair_validations")} <= validations


def test_what_cannot_be_repaired_is_said(cluster, session, table):
    keyspace = table.split(".")[0]
    third = cluster.node(3)
    third.kill9()
    try:
        eventually("the others miss it", lambda: f"DN  {third.host}" in cluster.node(1).nodetool("status"))
        answer = cluster.node(1).api(f"/ceto/repair?kn={keyspace}", method="POST")
        assert answer[0] >= 400 and "is down" in str(answer[1]), answer
        # The two that are up are repaired.
        assert repaired(cluster, 1, "-hosts", cluster.node(2).host, keyspace)[2] == 0
    finally:
        third.start()
        cluster.sees_itself_whole()
    answer = cluster.node(1).api("/ceto/repair?kn=nowhere", method="POST")
    assert answer[0] >= 400 and "a keyspace nowhere" in str(answer[1]), answer
    for filters, why in (("datacenters=nosuch", "no datacenter 'nosuch'"), ("hosts=127.0.0.99", "127.0.0.99 is no member")):
        answer = cluster.node(1).api(f"/ceto/repair?kn={keyspace}&{filters}", method="POST")
        assert answer[0] >= 400 and why in str(answer[1]), answer


def test_one_command_has_all_nodes_repair_and_ends_when_all_replicas_are_equal(cluster, session, table):
    keyspace = table.split(".")[0]

    def change():
        for k in range(ROWS):
            write(session, f"INSERT INTO {table} (k, c, v) VALUES ({k}, 0, {k})")

    without(cluster, session, change)
    said = cluster.node(2).nodetool("cluster", "repair", keyspace, "t")
    assert said.startswith("All replicas are equal: "), said
    assert len(seen_by(cluster, table, 3)) == ROWS
    third = cluster.node(3)
    third.kill9()
    try:
        eventually("the others miss it", lambda: f"DN  {third.host}" in cluster.node(1).nodetool("status"))
        answer = cluster.node(1).api(f"/ceto/cluster/repair?kn={keyspace}", method="POST")
        assert answer[0] >= 400 and "is down" in str(answer[1]), answer
    finally:
        third.start()
        cluster.sees_itself_whole()
