"""TRACING ON over three nodes: each replica's steps are in the trace, under its own address."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, SimpleStatement

from harness import cql
from harness.cluster import eventually

EVENTS = "SELECT source, activity FROM system_traces.events WHERE session_id = %s"


@pytest.fixture(scope="module")
def session(cluster):
    driver = cluster.driver(only=1)
    yield driver.connect()
    driver.shutdown()


@pytest.fixture(scope="module")
def keyspace(session):
    name = cql.unique("traced")
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    session.execute(f"CREATE TABLE {name}.c (k int PRIMARY KEY, n counter)")
    yield name
    session.execute(f"DROP KEYSPACE {name}")


def activities(session, cluster, statement, *wanted, of_both=True, here=()):
    """The trace of a statement at level ALL, as activities by node number, once both other nodes have those that are wanted, or one of them has, and the
    coordinator's shards have those of `here`."""
    statement.consistency_level = ConsistencyLevel.ALL
    trace_id = session.execute(statement, trace=True).response_future.get_query_trace_ids()[0]
    numbers = {cluster.address(number): number for number in (1, 2, 3)}

    def by_node():
        found = {1: [], 2: [], 3: []}
        for source, activity in session.execute(SimpleStatement(EVENTS, consistency_level=ConsistencyLevel.ALL), (trace_id,)):
            found[numbers[source]].append(activity)
        enough = all if of_both else any
        are_there = all(enough(any(text in activity for activity in found[node]) for node in (2, 3)) for text in wanted)
        # Its coordinator writes what it noted behind the answer, the last step last.
        is_whole = found[1] and found[1][-1] == "Request complete"
        are_here = all(any(text in activity for activity in found[1]) for text in here)
        return found if are_there and are_here and is_whole else None

    return eventually(f"steps {wanted} of the other replicas", by_node)


def test_the_steps_of_a_write_and_of_a_read(session, cluster, keyspace):
    insert = SimpleStatement(f"INSERT INTO {keyspace}.t (k, v) VALUES (1, 1)")
    found = activities(session, cluster, insert, "Mutate request received from 127.0.0.1", f"Appended to the commitlog and the memtable of {keyspace}.t")
    assert any(f"Appended to the commitlog and the memtable of {keyspace}.t" in activity for activity in found[1])
    select = SimpleStatement(f"SELECT v FROM {keyspace}.t WHERE k = 1")
    found = activities(session, cluster, select, "Read request received", "Sending the answer")
    assert "Read 1 live rows and 0 tombstone cells" in found[1], found[1]
    scan = SimpleStatement(f"SELECT * FROM {keyspace}.t")
    activities(session, cluster, scan, f"of {keyspace}.t from 0 sstables and 1 memtables", "Read 1 live rows and 0 tombstone cells")


def test_the_steps_of_a_conditional_statement_of_a_counter_and_of_a_batch(session, cluster, keyspace):
    update = SimpleStatement(f"UPDATE {keyspace}.t SET v = 2 WHERE k = 2 IF v = null")
    # A majority decides, and all learn it.
    steps = ("for a promise", "A quorum promised", "to accept the proposal", "A quorum accepted", "Writing the decision to all replicas, at ALL")
    activities(session, cluster, update, "Promising a ballot", "Accepting a proposal", of_both=False, here=steps)
    update = SimpleStatement(f"UPDATE {keyspace}.t SET v = 3 WHERE k = 2 IF v = 2")
    activities(session, cluster, update, f"Appended to the commitlog and the memtable of {keyspace}.t")
    add = SimpleStatement(f"UPDATE {keyspace}.c SET n = n + 1 WHERE k = 1")
    activities(session, cluster, add, f"Appended to the commitlog and the memtable of {keyspace}.c")
    batch = BatchStatement()
    for k in range(10, 14):
        batch.add(SimpleStatement(f"INSERT INTO {keyspace}.t (k, v) VALUES ({k}, 1)"))
    activities(session, cluster, batch, f"Appended to the commitlog and the memtable of {keyspace}.t")


def test_the_parts_of_an_aggregate(session, cluster, keyspace):
    for k in range(20, 30):
        session.execute(f"INSERT INTO {keyspace}.t (k, v) VALUES ({k}, 1)")
    count = SimpleStatement(f"SELECT count(*) FROM {keyspace}.t")
    found = activities(session, cluster, count, f"of {keyspace}.t from 0 sstables and 1 memtables", here=["Aggregating "])
    assert any("ranges of tokens on " in activity for activity in found[1]), found[1]


def test_a_replica_that_answers_too_late_still_keeps_its_steps(session, cluster, keyspace):
    """What a slow replica did is what a trace is for."""
    insert = SimpleStatement(f"INSERT INTO {keyspace}.t (k, v) VALUES (3, 1)", consistency_level=ConsistencyLevel.ONE)
    cluster.pause(3)
    try:
        trace_id = session.execute(insert, trace=True).response_future.get_query_trace_ids()[0]
    finally:
        cluster.resume(3)
    late = cluster.address(3)
    events = SimpleStatement(EVENTS, consistency_level=ConsistencyLevel.ONE)
    eventually(
        "the steps of the node that was frozen",
        lambda: [activity for source, activity in session.execute(events, (trace_id,)) if source == late and "Appended" in activity],
    )
