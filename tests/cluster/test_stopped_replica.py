"""What a replica finds in its sockets long after its coordinator gave it up: an older write could come behind the deletion of its row."""

import time

from harness import cql
from harness.cluster import eventually

ROWS = 200
STOPPED = 3
# Above the time of a write and the two seconds by which it may be late, and below the silence after which a connection is closed.
LATER_SECONDS = 6


def test_a_stopped_replica_does_not_write_what_its_coordinator_has_given_up(forgetful_cluster):
    cluster = forgetful_cluster
    name = cql.unique("late")
    with cluster.driver(only=1, consistency="ALL") as driver:
        session = driver.connect()
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
        insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
        for k in range(ROWS):
            session.execute(insert, (k, "in time"))
        insert.consistency_level = cql.ConsistencyLevel.ONE
        cluster.pause(STOPPED)
        try:
            for k in range(ROWS):
                session.execute(insert, (k, "late"))
            written = time.monotonic()
            eventually("their time is over", lambda: time.monotonic() > written + LATER_SECONDS)
        finally:
            cluster.resume(STOPPED)
    cluster.sees_itself_whole()
    with cluster.driver(only=STOPPED, consistency="ONE") as driver:
        # At ONE a replica of all tokens asks nobody.
        values = cql.rows(driver.connect(), f"SELECT v FROM {name}.t")
    assert values == [("in time",)] * ROWS
