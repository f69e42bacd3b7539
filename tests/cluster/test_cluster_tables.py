"""Virtual tables about the cluster, as each of three nodes shows them; and system.config, which each node has for itself."""

import pytest
from cassandra import InvalidRequest

from harness import cql
from harness.cluster import eventually

NODES = (1, 2, 3)
ADDRESSES = {f"127.0.0.{number}" for number in NODES}


@pytest.fixture
def table(sessions):
    """The id of a table with a copy on each node, and rows in its sstables."""
    session, name = sessions[1], cql.unique("shown")
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}}")
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")
    for k in range(100):
        session.execute(f"INSERT INTO {name}.t (k, v) VALUES (%s, 'x')", (k,))
    ask = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = 't'"
    yield session.execute(ask, (name,)).one().id
    session.execute(f"DROP KEYSPACE {name}")


def hosts(session):
    return {session.execute("SELECT host_id FROM system.local").one().host_id}


def test_each_node_shows_all_members(sessions, table):
    everyone = set().union(*(hosts(session) for session in sessions.values()))
    for session in sessions.values():
        def voters(session=session):
            members = session.execute("SELECT * FROM system.raft_state WHERE disposition = 'CURRENT' ALLOW FILTERING")
            return {member.server_id for member in members if member.can_vote}

        eventually("all to vote", lambda: voters() == everyone)
        members = list(session.execute("SELECT * FROM system.topology WHERE key = 'topology'"))
        assert {member.host_id for member in members if member.node_state == "normal"} == everyone, members
        assert all(len(member.tokens) == member.num_tokens > 0 for member in members), members
        assert {member.transition_state for member in members} == {None}, members
        assert all(member.tablet_balancing_enabled and member.version > 0 for member in members), members
        loads = list(session.execute("SELECT * FROM system.load_per_node"))
        assert {load.node for load in loads} == everyone
        assert len({load.tablets_allocated for load in loads}) == 1, "three copies on three nodes"
        assert all(load.tablets_allocated > 0 and load.storage_capacity is None for load in loads)
        ring = list(session.execute("SELECT endpoint FROM system.token_ring WHERE keyspace_name = 'system_distributed'"))
        assert {row.endpoint for row in ring} == ADDRESSES


def test_a_node_knows_the_sizes_of_its_own_tablets(cluster, sessions, table):
    for number, session in sessions.items():
        cluster.node(number).nodetool("flush")
        (own,) = hosts(session)
        sizes = list(session.execute("SELECT * FROM system.tablet_sizes WHERE table_id = %s", (table,)))
        assert sizes
        for row in sizes:
            assert set(row.replicas) == {own} and own not in row.missing_replicas and len(row.missing_replicas) == 2
        assert sum(row.replicas[own] for row in sizes) > 0


def test_connections_with_other_nodes_are_counted(sessions, table):
    for number, session in sessions.items():
        others = ADDRESSES - {f"127.0.0.{number}"}
        outbound = {row.address: row for row in session.execute("SELECT * FROM system_views.internode_outbound")}
        inbound = {row.address: row for row in session.execute("SELECT * FROM system_views.internode_inbound")}
        assert set(outbound) == set(inbound) == others
        for row in outbound.values():
            assert row.active_connections > 0 and row.sent_count > 0 and row.sent_bytes > 0, row
            assert (row.dc, row.error_count) == ("datacenter1", None), row
        for row in inbound.values():
            assert row.received_count > 0 and row.received_bytes > 0, row


def test_an_option_changes_on_one_node_alone(sessions, table):
    set_to = "UPDATE system.config SET value = %s WHERE name = 'group_by_enabled'"
    source = "SELECT source FROM system.config WHERE name = 'group_by_enabled'"
    ask = "SELECT keyspace_name FROM system_schema.tables WHERE id = %s ALLOW FILTERING"
    keyspace = sessions[1].execute(ask, (table,)).one().keyspace_name
    group_by = f"SELECT k, count(*) FROM {keyspace}.t GROUP BY k"
    sessions[2].execute(set_to, ("false",))
    try:
        assert {number: session.execute(source).one().source for number, session in sessions.items()} == {
            1: "default", 2: "cql", 3: "default",
        }
        sessions[1].execute(group_by)
        with pytest.raises(InvalidRequest, match="group_by_enabled"):
            sessions[2].execute(group_by)
    finally:
        sessions[2].execute(set_to, ("true",))
    sessions[2].execute(group_by)
