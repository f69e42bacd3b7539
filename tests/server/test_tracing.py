"""TRACING ON: what a node does for a request is in `system_traces`, as drivers and cqlsh look it up. Slow requests are in the log and in a table."""

from uuid import UUID

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import BatchStatement, SimpleStatement

from harness import cql, wire
from harness.cluster import eventually
from harness.wire import Connection

TRACING = 0x02
# The driver asks again until the trace is whole; more would mean that it waited in vain.
WAIT_SECONDS_MAX = 5


@pytest.fixture(scope="module")
def table(session):
    name = cql.unique("traced")
    session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
    yield name
    session.execute(f"DROP TABLE {name}")


def trace_of(session, statement, parameters=None):
    return session.execute(statement, parameters, trace=True).get_query_trace(max_wait_sec=WAIT_SECONDS_MAX)


def test_a_query_is_traced_with_its_text_client_and_duration(session, table):
    trace = trace_of(session, f"INSERT INTO {table} (k, v) VALUES (1, 1)")
    assert trace.request_type == "Execute CQL3 query"
    assert trace.parameters["query"] == f"INSERT INTO {table} (k, v) VALUES (1, 1)"
    assert trace.parameters["consistency_level"] == "LOCAL_QUORUM"
    assert trace.client and trace.coordinator and trace.duration.total_seconds() > 0
    assert trace.events and trace.events[-1].description == "Request complete"
    assert all(event.source == trace.coordinator and event.source_elapsed <= trace.duration for event in trace.events)


def test_prepared_statements_batches_and_conditions_are_traced(session, table):
    select = session.prepare(f"SELECT v FROM {table} WHERE k = ?")
    trace = trace_of(session, select, (1,))
    assert trace.request_type == "Execute CQL3 prepared query"
    assert trace.parameters["bound_var_0_k"] == "1" and trace.parameters["page_size"] == "5000"
    insert = session.prepare(f"INSERT INTO {table} (k, v) VALUES (:key, ?)")
    bound = trace_of(session, insert, (4, None)).parameters
    assert (bound["bound_var_0_key"], bound["bound_var_1_v"]) == ("4", "null"), bound
    batch = BatchStatement()
    batch.add(SimpleStatement(f"INSERT INTO {table} (k, v) VALUES (2, 2)"))
    batch.add(SimpleStatement(f"DELETE FROM {table} WHERE k = 3"))
    assert trace_of(session, batch).request_type == "Execute batch of CQL3 queries"
    assert trace_of(session, f"UPDATE {table} SET v = 5 WHERE k = 1 IF v = 1").events
    assert trace_of(session, f"SELECT count(*) FROM {table}").events


def test_a_change_of_a_list_reads_its_own_rows_and_not_the_partition(session):
    name = cql.unique("traced")
    session.execute(f"CREATE TABLE {name} (k int, c int, s list<int> static, l list<int>, PRIMARY KEY (k, c))")
    session.execute(f"INSERT INTO {name} (k, s) VALUES (1, [1, 2, 3])")
    for c in range(50):
        session.execute(f"INSERT INTO {name} (k, c, l) VALUES (1, {c}, [1, 2, 3])")

    def read_by(statement):
        return [event.description for event in trace_of(session, statement).events if "Reading lists" in event.description]

    assert read_by(f"UPDATE {name} SET l[0] = 9 WHERE k = 1 AND c = 7") == ["Reading lists of the rows that the write names: 1"]
    assert read_by(f"UPDATE {name} SET l = l - [3] WHERE k = 1 AND c IN (9, 8)") == ["Reading lists of the rows that the write names: 2"]
    assert read_by(f"DELETE s[1] FROM {name} WHERE k = 1") == ["Reading lists of the static row for the write"]
    assert read_by(f"UPDATE {name} SET s = s - [3], l = l - [1] WHERE k = 1 AND c = 7") == ["Reading lists of the rows that the write names: 1"]
    rows = cql.rows(session, f"SELECT c, s, l FROM {name} WHERE k = 1")
    expected = {7: [9, 2, 3], 8: [1, 2], 9: [1, 2]}
    assert rows == [(c, [1], expected.get(c, [1, 2, 3])) for c in range(50)]
    session.execute(f"DROP TABLE {name}")


def test_preparing_is_traced(server, session, table):
    text = f"SELECT v FROM {session.keyspace}.{table} WHERE k = ?"
    with Connection(server) as connection:
        connection.startup()
        prepared = connection.ask(wire.PREPARE, wire.long_string(text), flags=TRACING)
    assert prepared.flags & TRACING
    select = "SELECT request, parameters, duration FROM system_traces.sessions WHERE session_id = %s"
    select = SimpleStatement(select, consistency_level=ConsistencyLevel.ONE)
    kept = eventually("the trace", lambda: [row for row in cql.rows(session, select, (UUID(bytes=prepared.body[:16]),)) if row[2] is not None])
    assert [(request, parameters["query"]) for request, parameters, _ in kept] == [("Preparing CQL3 query", text)]


def test_a_trace_is_kept_for_a_day(session, table):
    trace = trace_of(session, f"SELECT v FROM {table} WHERE k = 1")
    select = SimpleStatement("SELECT TTL(duration) FROM system_traces.sessions WHERE session_id = %s", consistency_level=ConsistencyLevel.ONE)
    ((left,),) = cql.rows(session, select, (trace.trace_id,))
    assert 86_000 < left <= 86_400


def test_what_is_not_traced_leaves_nothing(session, table):
    count = SimpleStatement("SELECT count(*) FROM system_traces.sessions", consistency_level=ConsistencyLevel.ONE)
    before = cql.rows(session, count)
    session.execute(f"SELECT v FROM {table} WHERE k = 1")
    assert cql.rows(session, count) == before


def test_each_of_several_requests_under_way_has_its_own_text(session, table):
    texts = [f"INSERT INTO {table} (k, v) VALUES ({k}, {k})" for k in range(20, 40)]
    futures = [session.execute_async(text, trace=True) for text in texts]
    for text, future in zip(texts, futures, strict=True):
        future.result()
        assert future.get_query_trace(max_wait=WAIT_SECONDS_MAX).parameters["query"] == text


def test_a_refused_query_leaves_its_text_to_no_other(session, table):
    text = f"SELECT v FROM {table} WHERE k = ?"
    select = session.prepare(text)
    with pytest.raises(InvalidRequest):
        session.execute("SELECT nothing FROM nowhere", trace=True)
    assert trace_of(session, select, (1,)).parameters["query"] == text


def test_a_trace_says_where_the_data_came_from(session, table):
    def activities(statement):
        return " / ".join(event.description for event in trace_of(session, statement).events)

    assert f"Appended to the commitlog and the memtable of ks.{table}" in activities(f"INSERT INTO {table} (k, v) VALUES (50, 1)").replace(session.keyspace, "ks")
    assert "The row is in" in activities(f"SELECT v FROM {table} WHERE k = 50")
    assert "sstables and" in activities(f"SELECT * FROM {table}")
    # The node has two shards, each with a part of the table.
    aggregate = f"SELECT count(*) FROM {table}"
    assert "ranges of tokens on" in activities(aggregate)
    decided = f"UPDATE {table} SET v = 1 WHERE k = 50 IF v = 5"
    eventually("the steps of the shard that decides", lambda: "Deciding on this shard alone" in activities(decided))


@pytest.mark.ceto_only("nodetool is ceto's")
def test_requests_are_traced_by_chance_and_their_clients_are_not_told(session, node, table):
    text = f"INSERT INTO {table} (k, v) VALUES (60, 60)"
    node.nodetool("settraceprobability", "1")
    try:
        told = session.execute(text).response_future.get_query_trace()
    finally:
        node.nodetool("settraceprobability", "0")
    assert not told
    sessions = SimpleStatement("SELECT parameters FROM system_traces.sessions", consistency_level=ConsistencyLevel.ONE)
    eventually("a session of the request", lambda: any(parameters and parameters.get("query") == text for (parameters,) in cql.rows(session, sessions)))


@pytest.mark.ceto_only("the option is live")
def test_a_slow_request_is_kept_with_its_text_tables_and_client(new_node):
    node = new_node().start()
    with cql.cluster(node.server) as driver:
        session = driver.connect()
        session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE ks.slow (k int PRIMARY KEY, v int)")
        text = "SELECT v FROM ks.slow"
        select = session.prepare(text)
        session.execute("""INSERT INTO system.config (name, value) VALUES ('slow_query_log_timeout', '"1us"')""")
        session.execute(select)
        session.execute("""INSERT INTO system.config (name, value) VALUES ('slow_query_log_timeout', '"1h"')""")

        def kept():
            return [row for row in read("SELECT * FROM system_traces.node_slow_log") if row.command == text]

        def read(query, *values):
            return session.execute(SimpleStatement(query, consistency_level=ConsistencyLevel.ONE), values)

        (slow,) = eventually("the slow request", kept)
        assert (slow.source_ip, slow.table_names, slow.username) == ("127.0.0.1", {"ks.slow"}, "anonymous")
        assert slow.parameters["query"] == text and slow.parameters["consistency_level"] == "LOCAL_QUORUM"
        assert slow.duration > 0 and slow.shard in (0, 1)
        found = read("SELECT start_time, node_ip, session_id FROM system_traces.node_slow_log_time_idx WHERE minute = %s", minute_of(slow.date))
        assert (slow.start_time, slow.node_ip, slow.session_id) in [tuple(row) for row in found]
        (kept_session,) = read("SELECT request, duration FROM system_traces.sessions WHERE session_id = %s", slow.session_id)
        assert kept_session == ("Execute CQL3 prepared query", slow.duration)
        assert f"slow request of client {slow.source_ip}" in node.log()


def minute_of(date):
    return date.replace(second=0, microsecond=0)
