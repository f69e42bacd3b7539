"""What no cluster can do is refused, or done as far as it can be: a statement that one user mistypes must not take the node from the others."""

import pytest
from cassandra import FunctionFailure, InvalidRequest
from cassandra.protocol import ConfigurationException

from harness import cql

SIMPLE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
# A table has about so many tablets for each shard at the most.
TABLETS_PER_SHARD_MAX = 1_024
# Digits of a number with which is reckoned.
LONGEST_NUMBER = 10_000


@pytest.fixture
def impossible(session):
    name = cql.unique("impossible")
    yield name
    session.execute(f"DROP KEYSPACE IF EXISTS {name}")


@pytest.mark.ceto_only("Cassandra takes these, and every request is unavailable")
@pytest.mark.parametrize(
    ("replication", "why"),
    [
        ("{'class': 'SimpleStrategy', 'replication_factor': 0}", "would have no copies"),
        ("{'class': 'SimpleStrategy', 'replication_factor': 2147483647}", "at most 1000"),
        ("{'class': 'NetworkTopologyStrategy', 'datacenter1': 70000}", "at most 1000"),
        ("{'class': 'NetworkTopologyStrategy', 'datacenter1': ['norack']}", "Unknown rack norack"),
    ],
)
def test_a_replication_that_no_cluster_can_have_is_refused(session, impossible, replication, why):
    with pytest.raises(ConfigurationException, match=why):
        session.execute(f"CREATE KEYSPACE {impossible} WITH replication = {replication}")
    session.execute(f"CREATE KEYSPACE {impossible} WITH replication = {SIMPLE}")
    with pytest.raises(ConfigurationException, match=why):
        session.execute(f"ALTER KEYSPACE {impossible} WITH replication = {replication}")


@pytest.mark.ceto_only("tablets")
def test_more_tablets_than_the_shards_have_room_for_are_warned_of(node, session, impossible):
    def warnings_of(statement):
        future = session.execute_async(statement)
        future.result()
        return future.warnings or []

    create = f"CREATE KEYSPACE {impossible} WITH replication = {SIMPLE} AND tablets = {{'initial': 1000000000}}"
    assert any("ask for 4194304 tablets" in warning for warning in warnings_of(create))
    assert not warnings_of(f"CREATE TABLE {impossible}.t (k int PRIMARY KEY)")
    create = f"CREATE TABLE {impossible}.u (k int PRIMARY KEY) WITH tablets = {{'expected_data_size_in_gb': 4000000}}"
    assert any(f"{impossible}.u" in warning for warning in warnings_of(create))
    counts = session.execute("SELECT keyspace_name, table_name, tablet_count FROM system.tablets")
    of_tables = {row.table_name: row.tablet_count for row in counts if row.keyspace_name == impossible}
    room = node.smp * TABLETS_PER_SHARD_MAX
    assert of_tables == {"t": room, "u": room}
    session.execute(f"INSERT INTO {impossible}.t (k) VALUES (1)")
    assert [row.k for row in session.execute(f"SELECT k FROM {impossible}.t")] == [1]


@pytest.mark.ceto_only("Cassandra has no such limit")
def test_a_type_that_is_nested_too_deep_is_refused_and_the_node_lives_on(session, impossible):
    session.execute(f"CREATE KEYSPACE {impossible} WITH replication = {SIMPLE}")
    for deep in ("frozen<list<" * 48 + "int" + ">>" * 48, "tuple<" * 99 + "int" + ">" * 99):
        with pytest.raises(InvalidRequest, match="nested more than"):
            session.execute(f"CREATE TABLE {impossible}.t (k int PRIMARY KEY, v {deep})")
    session.execute(f"CREATE TABLE {impossible}.t (k int PRIMARY KEY)")


@pytest.mark.ceto_only("Cassandra takes all memory")
def test_in_of_several_columns_names_a_bounded_number_of_combinations(session, impossible):
    session.execute(f"CREATE KEYSPACE {impossible} WITH replication = {SIMPLE}")
    session.execute(f"CREATE TABLE {impossible}.t (a int, b int, c int, d int, PRIMARY KEY ((a, b), c, d))")
    session.execute(f"INSERT INTO {impossible}.t (a, b, c, d) VALUES (1, 1, 1, 1)")
    many = ", ".join(map(str, range(500)))
    for where in (f"a IN ({many}) AND b IN ({many})", f"a = 1 AND b = 1 AND c IN ({many}) AND d IN ({many})"):
        with pytest.raises(InvalidRequest, match="250000 combinations of values"):
            session.execute(f"SELECT * FROM {impossible}.t WHERE {where}")
    few = ", ".join(map(str, range(100)))
    rows = session.execute(f"SELECT * FROM {impossible}.t WHERE a = 1 AND b = 1 AND c IN ({few}) AND d IN ({few})")
    assert [tuple(row) for row in rows] == [(1, 1, 1, 1)]


def test_the_logarithm_of_a_long_number_takes_no_shard_from_the_others(session, impossible):
    session.execute(f"CREATE KEYSPACE {impossible} WITH replication = {SIMPLE}")
    session.execute(f"CREATE TABLE {impossible}.t (k int PRIMARY KEY, v decimal)")
    insert = f"INSERT INTO {impossible}.t (k, v) VALUES (1, {{}})"
    session.execute(insert.format("9" * LONGEST_NUMBER))
    (row,) = session.execute(f"SELECT log10(v) AS v FROM {impossible}.t WHERE k = 1")
    assert round(row.v) == LONGEST_NUMBER
    session.execute(insert.format("9" * 6 * LONGEST_NUMBER))
    with pytest.raises(FunctionFailure, match="the number has more than 10000 digits"):
        session.execute(f"SELECT log10(v) AS v FROM {impossible}.t WHERE k = 1")
