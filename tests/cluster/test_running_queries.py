"""`system_views.queries`: what a node is working on for its clients."""

from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from harness import cql
from harness.cluster import eventually

PATIENT = "USING TIMEOUT 60s"


def test_requests_that_wait_for_replicas_are_shown_until_they_end(cluster):
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        name = cql.unique("ks")
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")

        def shown():
            rows = session.execute("SELECT thread_id, queued_micros, running_micros, task FROM system_views.queries")
            return {task: (thread, queued, running) for thread, queued, running, task in rows if name in task}

        insert = f"INSERT INTO {name}.t (k, v) VALUES (?, ?) {PATIENT}"
        update = f"UPDATE {name}.t {PATIENT} SET v = 2 WHERE k = 1 IF v = 1"
        select = f"SELECT v FROM {name}.t WHERE k = 1 {PATIENT}"
        prepared = session.prepare(insert)
        prepared.consistency_level = ConsistencyLevel.QUORUM
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.QUORUM)
        batch.add(prepared, (2, 2))
        batch.add(prepared, (3, 3))
        session.execute(prepared, (1, 1))
        wanted = {
            f"EXECUTE {insert} at consistency QUORUM",
            f"QUERY {update} at consistency ONE",
            f"QUERY {select} at consistency QUORUM",
            f"BATCH of 2 statements, the first: {insert} at consistency QUORUM",
        }
        for number in (2, 3):
            cluster.pause(number)
        try:
            waiting = [
                session.execute_async(prepared, (1, 1)),
                session.execute_async(SimpleStatement(update, consistency_level=ConsistencyLevel.ONE)),
                session.execute_async(SimpleStatement(select, consistency_level=ConsistencyLevel.QUORUM)),
                session.execute_async(batch),
            ]
            eventually("all four are shown", lambda: set(shown()) == wanted)
            requests = shown()
            assert len({thread for thread, _, _ in requests.values()}) == 4, requests
            for thread, queued, running in requests.values():
                assert "client 127.0.0.1:" in thread and thread.startswith("shard "), thread
                assert 0 <= queued and 0 < running < 60_000_000, requests
        finally:
            for number in (2, 3):
                cluster.node(number).resume()
        for request in waiting:
            request.result()
        eventually("none is shown any more", lambda: not shown())


def test_the_question_itself_is_shown(cluster):
    with cluster.driver(only=1) as driver:
        [(queued, task)] = driver.connect().execute("SELECT queued_micros, task FROM system_views.queries")
        assert queued >= 0
        assert task == "QUERY SELECT queued_micros, task FROM system_views.queries at consistency QUORUM"
