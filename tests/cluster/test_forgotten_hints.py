"""A member that is down for longer than hints are kept for it no longer keeps the tombstones of tablets that it has no part in."""

import datetime

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.cluster import eventually
from harness.members import host_of

# What a member made in the last minute before it counts as down for long is not forgotten: clocks differ. So half a minute of its downtime is.
WINDOW_SECONDS = 90
# The window, a look of the leader, and a repair of each range.
LATE_SECONDS = WINDOW_SECONDS + 120
AWAY = 4


@pytest.fixture(scope="module")
def cluster(request):
    """Four nodes that keep hints for a minute and a half, and repair a range again a second later."""
    options = ["--max-hint-window", f"{WINDOW_SECONDS}s", "--auto-repair-threshold-default-in-seconds", "1"]
    cluster = Cluster(4, smp=1, repairs=True, runtime=request.config.getoption("--runtime"), options=options)
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


def test_a_member_that_is_down_for_long_holds_the_watermark_of_its_own_tablets_alone(cluster, session):
    keyspace = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
        " AND tablets = {'enabled': true}"
    )
    options = "tablets = {'min_tablet_count': 16} AND tombstone_gc = {'mode': 'repair', 'propagation_delay_in_seconds': '0'}"
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int) WITH {options}")
    away = cluster.node(AWAY)
    host = host_of(away)

    for k in range(50):
        insert = f"INSERT INTO {keyspace}.t (k, v) VALUES ({k}, {k})"
        session.execute(SimpleStatement(insert, consistency_level=ConsistencyLevel.ALL))

    def tablets():
        """By their last tokens, whether the member has a replica, and the watermark."""
        rows = session.execute("SELECT keyspace_name, table_name, last_token, replicas, watermark FROM system.tablets")
        of_table = [row for row in rows if (row.keyspace_name, row.table_name) == (keyspace, "t")]
        has = {row.last_token: any(str(replica[0]) == host for replica in row.replicas) for row in of_table}
        return sorted((row.last_token, has[row.last_token], row.watermark or datetime.datetime.min) for row in of_table)

    def watermarks():
        """Of the tablets that the member has a replica of, and of the others."""
        found = tablets()
        return [one for _, has, one in found if has], [one for _, has, one in found if not has]

    # Nothing that the member misses: hints for it would hold the watermark, too.
    keys = [
        k
        for k, token in cql.rows(session, f"SELECT k, token(k) FROM {keyspace}.t")
        if not next(has for last, has, _ in tablets() if token <= last)
    ]
    assert keys
    away.kill9()
    eventually("the others miss it", lambda: f"DN  {away.host}" in cluster.node(1).nodetool("status"))
    for k in keys:
        delete = f"DELETE FROM {keyspace}.t WHERE k = {k}"
        session.execute(SimpleStatement(delete, consistency_level=ConsistencyLevel.ALL))
    deleted = datetime.datetime.utcnow()
    own, others = watermarks()
    assert own and others, "the member has replicas of some tablets"
    assert max(own + others) < deleted, "it may have older writes for all of them"
    eventually("others are held no more", lambda: min(watermarks()[1]) > deleted, seconds=LATE_SECONDS)
    assert max(watermarks()[0]) < deleted, "a replica that is down is not known to be equal"
