"""IF: what a driver sees of conditional statements beside their answers, and many clients that meet on one row."""

import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from harness import cql, wire
from harness.wire import Connection

CLIENTS = 16
INCREMENTS = 25
LWT_MARK = 1 << 31
UNAVAILABLE = 0x1000


@pytest.fixture
def name(table):
    return table("k int, c int, s int static, v int, PRIMARY KEY (k, c)")


def at(statement, level, serial=None):
    return SimpleStatement(statement, consistency_level=level, serial_consistency_level=serial)


def answer(result):
    return result.column_names, [tuple(row) for row in result]


@pytest.mark.parametrize("version", [4, 5])
def test_a_prepared_statement_answers_with_the_columns_of_each_execution(server, keyspace, name, version):
    with cql.cluster(server, protocol_version=version) as cluster:
        session = cluster.connect(keyspace)
        insert = session.prepare(f"INSERT INTO {name} (k, c, v) VALUES (?, ?, ?) IF NOT EXISTS")
        update = session.prepare(f"UPDATE {name} SET v = ? WHERE k = ? AND c = ? IF v = ?")
        assert not insert.result_metadata, "the columns are not known before it runs"
        for _ in range(2):
            session.execute(f"DELETE FROM {name} WHERE k = 1")
            assert answer(session.execute(insert, (1, 1, 1))) == (["[applied]"], [(True,)])
            assert answer(session.execute(insert, (1, 1, 1)))[1] == [(False, 1, 1, None, 1)]
            assert answer(session.execute(update, (2, 1, 1, 9))) == (["[applied]", "v"], [(False, 1)])
            assert answer(session.execute(update, (2, 1, 1, 1))) == (["[applied]"], [(True,)])


def test_a_batch_message_with_conditions_is_all_or_nothing(session, name):
    update = session.prepare(f"UPDATE {name} SET v = ? WHERE k = ? AND c = ? IF v = ?")
    for c in (1, 2):
        session.execute(f"INSERT INTO {name} (k, c, v) VALUES (1, {c}, {c})")

    def batch(*parameters, kind=BatchType.LOGGED):
        statement = BatchStatement(kind)
        for bound in parameters:
            statement.add(update, bound)
        statement.add(f"INSERT INTO {name} (k, c, v) VALUES (1, 3, 3)")
        return answer(session.execute(statement))

    columns = ["[applied]", "k", "c", "v"]
    assert batch((7, 1, 1, 1), (8, 1, 2, 9)) == (columns, [(False, 1, 1, 1), (False, 1, 2, 2)])
    assert cql.rows(session, f"SELECT c, v FROM {name}") == [(1, 1), (2, 2)], "a batch that does not apply wrote"
    assert batch((7, 1, 1, 1), (8, 1, 2, 2), kind=BatchType.UNLOGGED) == (["[applied]"], [(True,)])
    assert cql.rows(session, f"SELECT c, v FROM {name}") == [(1, 7), (2, 8), (3, 3)]
    two = BatchStatement()
    two.add(update, (1, 1, 1, 1))
    two.add(update, (1, 2, 1, 1))
    cql.refused(session, two, cql.INVALID, "Batch with conditions cannot span multiple partitions")


def test_levels_of_conditional_statements_are_those_of_cassandra(session, name):
    insert = f"INSERT INTO {name} (k, c, v) VALUES (1, 1, 1)"
    conditional = insert + " IF NOT EXISTS"
    for level in (ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL):
        words = "You must use conditional updates for serializable writes"
        cql.refused(session, at(insert, level), cql.INVALID, words)
        words = "not supported as conditional update commit consistency"
        cql.refused(session, at(conditional, level), cql.INVALID, words)
        session.execute(f"DELETE FROM {name} WHERE k = 1")
        assert session.execute(at(conditional, ConsistencyLevel.ANY, level)).one()[0]
        assert cql.rows(session, at(f"SELECT v FROM {name} WHERE k = 1 AND c = 1", level)) == [(1,)]
        assert cql.rows(session, at(f"SELECT v FROM {name} WHERE k IN (1)", level)) == [(1,)]
        several = at(f"SELECT v FROM {name} WHERE k IN (1, 2)", level)
        several.fetch_size = None
        cql.refused(session, several, cql.INVALID, "only be requested for one partition at a time")
        session.execute(f"INSERT INTO {name} (k, c, v) VALUES (2, 1, 2)")
        # Pages and aggregates read one partition after the other.
        for fetch_size in (1, 5000):
            several.fetch_size = fetch_size
            assert cql.rows(session, several) == [(1,), (2,)]
        limited = at(f"SELECT v FROM {name} WHERE k IN (1, 2) LIMIT 2", level)
        limited.fetch_size = 1
        assert cql.rows(session, limited) == [(1,), (2,)]
        limited.fetch_size = 2
        cql.refused(session, limited, cql.INVALID, "only be requested for one partition at a time")
        counted = at(f"SELECT count(*) FROM {name} WHERE k IN (1, 2)", level)
        counted.fetch_size = None
        assert cql.rows(session, counted) == [(2,)]
        session.execute(f"DELETE FROM {name} WHERE k = 2")
        assert cql.rows(session, at(f"SELECT v FROM {name}", level)) == [(1,)]


@pytest.mark.ceto_only("Cassandra writes at the time of its ballot, which a later timestamp hides")
def test_the_clients_own_timestamp_does_not_order_conditional_writes(session, name):
    """A write of the far future does not make an applied statement disappear."""
    session.execute(f"INSERT INTO {name} (k, c, v) VALUES (1, 1, 1) USING TIMESTAMP 9000000000000000")
    assert session.execute(f"UPDATE {name} SET v = 2 WHERE k = 1 AND c = 1 IF v = 1").one()[0]
    assert cql.rows(session, f"SELECT v FROM {name}") == [(2,)]
    assert session.execute(f"DELETE FROM {name} WHERE k = 1 AND c = 1 IF v = 2").one()[0]
    assert session.execute(f"INSERT INTO {name} (k, c, v) VALUES (1, 1, 3) IF NOT EXISTS").one()[0]
    assert cql.rows(session, f"SELECT v FROM {name}") == [(3,)]


@pytest.mark.ceto_only("the mark is an extension of ScyllaDB's drivers")
def test_prepared_conditional_statements_carry_the_mark_that_was_asked_for(server, keyspace, name):
    def flags(statement, *extensions):
        with Connection(server) as connection:
            connection.startup(**{extension: "" for extension in extensions})
            text = statement.format(f"{keyspace}.{name}").encode()
            connection.send(wire.PREPARE, struct.pack(">i", len(text)) + text)
            body = connection.recv().body
            (id_length,) = struct.unpack_from(">H", body, 4)
            return struct.unpack_from(">I", body, 6 + id_length)[0]

    mark = "SCYLLA_LWT_ADD_METADATA_MARK"
    conditional = "INSERT INTO {} (k, c) VALUES (?, ?) IF NOT EXISTS"
    batch = "BEGIN BATCH " + conditional + "; APPLY BATCH"
    assert flags(conditional, mark) & LWT_MARK, "a driver would not go to the primary replica"
    assert flags(batch, mark) & LWT_MARK
    assert not flags(conditional) & LWT_MARK, "a driver that did not ask for the mark gets flags it does not know"
    assert not flags("INSERT INTO {} (k, c) VALUES (?, ?)", mark) & LWT_MARK


def test_clients_that_increment_one_value_lose_no_increment_and_none_starves(server, keyspace, session, name):
    session.execute(f"INSERT INTO {name} (k, c, v) VALUES (1, 1, 0)")
    begin = threading.Barrier(CLIENTS)
    attempts = [0] * CLIENTS

    def client(number):
        with cql.cluster(server) as cluster:
            own = cluster.connect(keyspace)
            update = own.prepare(f"UPDATE {name} SET v = ? WHERE k = 1 AND c = 1 IF v = ?")
            begin.wait(60)
            have = 0
            for _ in range(INCREMENTS):
                applied = False
                while not applied:
                    attempts[number] += 1
                    result = own.execute(update, (have + 1, have)).one()
                    applied, have = result[0], have + 1 if result[0] else result[1]

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    select = at(f"SELECT v FROM {name} WHERE k = 1 AND c = 1", ConsistencyLevel.SERIAL)
    assert cql.rows(session, select) == [(CLIENTS * INCREMENTS,)], f"attempts of each client: {attempts}"


def test_of_clients_that_insert_one_row_one_wins(server, keyspace, session, name):
    rounds = 20
    begin = threading.Barrier(CLIENTS)

    def client(number):
        with cql.cluster(server) as cluster:
            own = cluster.connect(keyspace)
            insert = own.prepare(f"INSERT INTO {name} (k, c, v) VALUES (?, 1, ?) IF NOT EXISTS")
            begin.wait(60)
            return [own.execute(insert, (k, number)).one()[0] for k in range(rounds)]

    with ThreadPoolExecutor(CLIENTS) as pool:
        applied = list(pool.map(client, range(CLIENTS)))
    for k in range(rounds):
        winners = [number for number in range(CLIENTS) if applied[number][k]]
        assert [(winner,) for winner in winners] == cql.rows(session, f"SELECT v FROM {name} WHERE k = {k}")


def applied(session, statement, parameters=None):
    return cql.rows(session, statement, parameters)[0][0]


def test_a_conditional_update_computes_a_column_from_its_value(session, table):
    name = table("k int PRIMARY KEY, n int, t text")
    session.execute(f"INSERT INTO {name} (k, n, t) VALUES (1, 5, 'a')")
    assert applied(session, f"UPDATE {name} SET n = n + 2, t += 'b' WHERE k = 1 IF EXISTS")
    assert not applied(session, f"UPDATE {name} SET n += 2 WHERE k = 1 IF n = 5")
    increment = session.prepare(f"UPDATE {name} SET n += ? WHERE k = ? IF n = ?")
    assert applied(session, increment, (10, 1, 7))
    assert cql.rows(session, f"SELECT n, t FROM {name}") == [(17, "ab")]
    assert cql.refusal(session, f"UPDATE {name} SET n = n + 1 WHERE k = 1")[0] == cql.INVALID


@pytest.mark.ceto_only("Cassandra only adds, and fails with an error of its own where a number is null")
def test_a_conditional_update_subtracts_and_takes_no_null(session, table):
    name = table("k int PRIMARY KEY, n int, t text")
    session.execute(f"INSERT INTO {name} (k, n, t) VALUES (1, 5, 'a')")
    assert applied(session, f"UPDATE {name} SET n -= 7 WHERE k = 1 IF EXISTS")
    assert cql.rows(session, f"SELECT n FROM {name}") == [(-2,)]
    for assignment in ("n = n - null", "n += null", "t = t - 'a'"):
        assert cql.refusal(session, f"UPDATE {name} SET {assignment} WHERE k = 1 IF EXISTS")[0] == cql.INVALID
    assert cql.refusal(session, f"UPDATE {name} SET n += 1, n += 1 WHERE k = 1 IF EXISTS")[0] == cql.SYNTAX
    assert cql.rows(session, f"SELECT n, t FROM {name}") == [(-2, "a")]


def test_what_too_few_replicas_can_learn_is_not_decided(session, table):
    """There is one copy of each row."""
    name = table("k int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 1)")
    two = ConsistencyLevel.TWO
    # What changes nothing is learned by nobody.
    assert answer(session.execute(at(f"UPDATE {name} SET v = 2 WHERE k = 1 IF v = 5", two)))[1] == [(False, 1)]
    for statement in (
        f"UPDATE {name} SET v = 2 WHERE k = 1 IF v = 1",
        f"DELETE FROM {name} WHERE k = 1 IF EXISTS",
        f"INSERT INTO {name} (k) VALUES (2) IF NOT EXISTS",
    ):
        cql.refused(session, at(statement, two), UNAVAILABLE, "Cannot achieve consistency level TWO")
    assert cql.rows(session, f"SELECT k, v FROM {name}") == [(1, 1)]


def test_one_node_does_not_decide_for_three_copies(session):
    """A keyspace may want more copies than there are nodes; a majority of them is never there."""
    keyspace = cql.unique("copies")
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int)")
    for level in (ConsistencyLevel.ONE, ConsistencyLevel.QUORUM):
        conditional = at(f"INSERT INTO {keyspace}.t (k) VALUES (1) IF NOT EXISTS", level)
        cql.refused(session, conditional, UNAVAILABLE, "Cannot achieve consistency level SERIAL")
    assert cql.rows(session, at(f"SELECT k FROM {keyspace}.t", ConsistencyLevel.ONE)) == []
    session.execute(f"DROP KEYSPACE {keyspace}")
