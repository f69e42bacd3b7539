"""A partition that is too large takes no more, whichever node is asked and whoever has it, and a node that is down stops nobody."""

import pytest
from cassandra import ConsistencyLevel, InvalidRequest

from harness import cql

NODES = (1, 2, 3)
LIMITS = {"compaction_rows_count_warning_threshold": "10", "rows_count_fail_threshold": "20"}


@pytest.fixture
def limited(sessions):
    """Three nodes with low limits."""
    option = "SELECT value FROM system.config WHERE name = %s"
    before = {name: sessions[1].execute(option, (name,)).one().value for name in LIMITS}

    def give(options):
        for number in NODES:
            for name, value in options.items():
                sessions[number].execute("UPDATE system.config SET value = %s WHERE name = %s", (value, name))

    give(LIMITS)
    yield sessions
    give(before)


@pytest.mark.parametrize("copies", [1, 3])
def test_every_coordinator_refuses_what_a_replica_says_is_too_large(cluster, limited, copies):
    name = cql.unique("ks")
    limited[1].execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}")
    limited[1].execute(f"CREATE TABLE {name}.t (p int, c int, PRIMARY KEY (p, c)) WITH large_data_guardrails_enabled = true")
    insert = f"INSERT INTO {name}.t (p, c) VALUES (%s, %s)"
    for p in range(4):
        for c in range(25):
            limited[1].execute(insert, (p, c))
    for number in NODES:
        cluster.node(number).nodetool("flush", name)
    for number in NODES:
        for p in range(4):
            with pytest.raises(InvalidRequest, match=f"partition where p = {p} with 25 rows, and rows_count_fail_threshold is 20"):
                limited[number].execute(insert, (p, 1000))
        future = limited[number].execute_async(insert, (100 + number, 1))
        future.result()
        assert not future.warnings


def test_a_node_that_is_down_keeps_nobody_from_writing(cluster, sessions):
    name = cql.unique("ks")
    sessions[1].execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
    sessions[1].execute(f"CREATE TABLE {name}.t (p int, c int, PRIMARY KEY (p, c)) WITH large_data_guardrails_enabled = true")
    insert = sessions[1].prepare(f"INSERT INTO {name}.t (p, c) VALUES (?, ?)")
    insert.consistency_level = ConsistencyLevel.QUORUM
    cluster.kill(3)
    try:
        for p in range(30):
            sessions[1].execute(insert, (p, 1))
    finally:
        cluster.start(3)
        cluster.sees_itself_whole()
