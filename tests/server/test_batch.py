"""BATCH, as a statement and as a protocol message."""

import pytest
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from harness import cql


@pytest.fixture
def rows_table(table):
    return table("k int, c int, v text, s text static, PRIMARY KEY (k, c)")


@pytest.mark.parametrize("begin", ["BEGIN BATCH", "BEGIN UNLOGGED BATCH"])
def test_a_batch_statement_applies_all_its_parts(session, rows_table, begin):
    session.execute(
        f"{begin} INSERT INTO {rows_table} (k, c, v) VALUES (1, 1, 'a');"
        f" UPDATE {rows_table} SET v = 'b', s = 'static' WHERE k = 1 AND c = 2;"
        f" INSERT INTO {rows_table} (k, c, v) VALUES (2, 1, 'c')"
        f" DELETE FROM {rows_table} WHERE k = 3 AND c = 1; APPLY BATCH"
    )
    assert sorted(cql.rows(session, f"SELECT k, c, s, v FROM {rows_table}")) == [
        (1, 1, "static", "a"),
        (1, 2, "static", "b"),
        (2, 1, None, "c"),
    ]


def test_a_write_of_thousands_of_partitions_writes_all_of_them(session, rows_table):
    keys = range(3000)
    inserts = " ".join(f"INSERT INTO {rows_table} (k, c, v) VALUES ({k}, 1, 'a');" for k in keys)
    session.execute(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
    assert sorted(cql.rows(session, f"SELECT k, c, v FROM {rows_table}")) == [(k, 1, "a") for k in keys]
    most = ",".join(map(str, keys[:-1]))
    session.execute(f"DELETE FROM {rows_table} WHERE k IN ({most})")
    assert cql.rows(session, f"SELECT k FROM {rows_table}") == [(keys[-1],)]


@pytest.mark.parametrize("kind", [BatchType.LOGGED, BatchType.UNLOGGED], ids=["logged", "unlogged"])
def test_a_batch_message_mixes_prepared_and_simple(session, rows_table, kind):
    insert = session.prepare(f"INSERT INTO {rows_table} (k, c, v) VALUES (?, ?, ?)")
    batch = BatchStatement(batch_type=kind)
    for c in range(5):
        batch.add(insert, (1, c, f"prepared {c}"))
    batch.add(SimpleStatement(f"UPDATE {rows_table} SET v = 'simple' WHERE k = 2 AND c = 0"))
    batch.add(f"INSERT INTO {rows_table} (k, c, v) VALUES (%s, %s, %s)", (2, 1, "with values"))
    session.execute(batch)
    expected = [(1, c, f"prepared {c}") for c in range(5)] + [(2, 0, "simple"), (2, 1, "with values")]
    assert sorted(cql.rows(session, f"SELECT k, c, v FROM {rows_table}")) == expected


def test_a_batch_may_touch_several_tables(session, table):
    one, two = table("k int PRIMARY KEY, v int"), table("k int PRIMARY KEY, v int")
    session.execute(
        f"BEGIN BATCH INSERT INTO {one} (k, v) VALUES (1, 1); INSERT INTO {two} (k, v) VALUES (2, 2); APPLY BATCH"
    )
    assert cql.rows(session, f"SELECT * FROM {one}") + cql.rows(session, f"SELECT * FROM {two}") == [(1, 1), (2, 2)]


def test_the_timestamp_of_a_batch_is_that_of_all_parts(session, rows_table):
    session.execute(f"INSERT INTO {rows_table} (k, c, v) VALUES (1, 1, 'kept') USING TIMESTAMP 200")
    session.execute(
        f"BEGIN BATCH USING TIMESTAMP 100 INSERT INTO {rows_table} (k, c, v) VALUES (1, 1, 'older');"
        f" INSERT INTO {rows_table} (k, c, v) VALUES (1, 2, 'new'); APPLY BATCH"
    )
    answer = cql.rows(session, f"SELECT c, v, WRITETIME(v) FROM {rows_table} WHERE k = 1")
    assert answer == [(1, "kept", 200), (2, "new", 100)]


def test_parts_may_have_their_own_timestamps(session, rows_table):
    session.execute(
        f"BEGIN BATCH INSERT INTO {rows_table} (k, c, v) VALUES (1, 1, 'later') USING TIMESTAMP 20;"
        f" INSERT INTO {rows_table} (k, c, v) VALUES (1, 1, 'earlier') USING TIMESTAMP 10; APPLY BATCH"
    )
    assert cql.rows(session, f"SELECT v, WRITETIME(v) FROM {rows_table}") == [("later", 20)]


def test_an_empty_batch_does_nothing(session):
    assert cql.rows(session, "BEGIN BATCH APPLY BATCH") == []
    session.execute(BatchStatement())


def test_a_part_that_is_wrong_refuses_the_whole_batch(session, rows_table):
    cql.refused(
        session,
        f"BEGIN BATCH INSERT INTO {rows_table} (k, c, v) VALUES (1, 1, 'a'); INSERT INTO nothing (k) VALUES (1); APPLY BATCH",
        cql.INVALID,
        "table nothing does not exist",
    )
    batch = BatchStatement()
    batch.add(f"INSERT INTO {rows_table} (k, c, v) VALUES (1, 1, 'a')")
    batch.add(f"INSERT INTO {rows_table} (k, c, v) VALUES (1, null, 'a')")
    cql.refused(session, batch, cql.INVALID, "Invalid null value")
    assert cql.rows(session, f"SELECT * FROM {rows_table}") == []


REFUSED = [
    ("BEGIN BATCH SELECT * FROM {t}; APPLY BATCH", cql.SYNTAX, "SELECT"),
    ("BEGIN BATCH INSERT INTO {t} (k, c) VALUES (1, 1);", cql.SYNTAX, "EOF"),
    (
        "BEGIN BATCH USING TIMESTAMP 1 INSERT INTO {t} (k, c) VALUES (1, 1) USING TIMESTAMP 2; APPLY BATCH",
        cql.INVALID,
        "Timestamp must be set either on BATCH or individual statements",
    ),
    ("BEGIN COUNTER BATCH INSERT INTO {t} (k, c) VALUES (1, 1); APPLY BATCH", cql.INVALID, "counter"),
]


@pytest.mark.parametrize("statement, code, words", REFUSED, ids=[s for s, _, _ in REFUSED])
def test_a_wrong_batch_is_refused(session, rows_table, statement, code, words):
    cql.refused(session, statement.format(t=rows_table), code, words)


def test_a_large_batch_over_several_partitions_is_refused(session, rows_table):
    half = "x" * (600 << 10)
    parts = [f"INSERT INTO {rows_table} (k, c, v) VALUES ({{}}, {c}, '{half}')" for c in (1, 2)]
    for begin in ("BEGIN BATCH", "BEGIN UNLOGGED BATCH"):
        apart = f"{begin} {parts[0].format(1)}; {parts[1].format(2)}; APPLY BATCH"
        cql.refused(session, apart, cql.INVALID, "Batch too large")
    batch = BatchStatement()
    for k, part in enumerate(parts):
        batch.add(SimpleStatement(part.format(k)))
    cql.refused(session, batch, cql.INVALID, "Batch too large")
    assert cql.rows(session, f"SELECT * FROM {rows_table}") == []
    # A batch of one partition is one write.
    session.execute(f"BEGIN BATCH {parts[0].format(1)}; {parts[1].format(1)}; APPLY BATCH")
    assert cql.rows(session, f"SELECT k, c FROM {rows_table}") == [(1, 1), (1, 2)]


def test_a_static_column_is_changed_once_for_each_row(session, table):
    name = table("k int, c int, s list<int> static, v int, PRIMARY KEY (k, c)")
    session.execute(f"UPDATE {name} SET s = [5, 6], v = 1 WHERE k = 1 AND c IN (1, 2)")
    session.execute(f"UPDATE {name} SET s = s + [7], v = 1 WHERE k = 1 AND c IN (1, 2)")
    assert cql.rows(session, f"SELECT c, s FROM {name}") == [(1, [5, 6, 7, 7]), (2, [5, 6, 7, 7])]


def test_a_select_in_a_batch_message_is_refused(session, rows_table):
    batch = BatchStatement()
    batch.add(f"SELECT * FROM {rows_table}")
    cql.refused(
        session,
        batch,
        cql.INVALID,
        "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
    )


def test_large_batches_and_those_of_many_partitions_warn_their_client(session, table):
    name = f"{session.keyspace}.{table('k int PRIMARY KEY, v text')}"
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")

    def warnings(kind, rows, text):
        batch = BatchStatement(batch_type=kind)
        for k in range(rows):
            batch.add(insert, (k, text))
        future = session.execute_async(batch)
        future.result()
        return future.warnings or []

    big = "x" * 66_000
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        assert warnings(kind, 2, big) == [
            f"Batch for [{name}] is of size 132140, exceeding specified threshold of 131072 by 1068."
        ], kind
        assert warnings(kind, 1, 3 * big) == [], "one partition is one write"
    assert warnings(BatchType.UNLOGGED, 10, "") == []
    assert warnings(BatchType.LOGGED, 11, "") == []
    [warning] = warnings(BatchType.UNLOGGED, 11, "")
    assert warning.startswith(f"Unlogged batch covering 11 partitions detected against table [{name}].")
    text = "".join(f"INSERT INTO {name} (k) VALUES ({k});" for k in range(11))
    future = session.execute_async(f"BEGIN UNLOGGED BATCH {text} APPLY BATCH")
    future.result()
    assert future.warnings == [warning]
