"""What nodes say of each other, and of where tablets and ranges are."""

import re

from harness import cql


def host_of(node):
    """The host id of a node that runs."""
    return node.api("/storage_service/hostid/local")[1]


def state_of(cluster, node, by=1):
    """UN, UJ and so on, by what another node knows; None when it knows no such node."""
    lines = cluster.node(by).nodetool("status").splitlines()
    return next((line[:2] for line in lines if f"  {node.host} " in line), None)


def states(cluster, by=1):
    """The states of all members, by what a node knows."""
    return re.findall(r"^([UD][NLJM]) ", cluster.node(by).nodetool("status"), re.MULTILINE)


def is_still(cluster, by=1):
    """Whether nothing moves."""
    return tablets_moving(cluster, by) == 0 and set(states(cluster, by)) == {"UN"}


def tablets_moving(cluster, by=1):
    """How many tablets move between nodes."""
    return cluster.node(by).api("/storage_service/tablets/balancing")[1]["moving"]


def tablets_of(session, keyspace):
    """How many replicas each node has, by host id."""
    counts = {}
    for replicas in replicas_of(session, keyspace):
        for host, _ in replicas:
            counts[str(host)] = counts.get(str(host), 0) + 1
    return counts


def replicas_of(session, keyspace):
    """The replicas of each tablet of a keyspace."""
    found = cql.rows(session, "SELECT keyspace_name, replicas FROM system.tablets")
    return [replicas for name, replicas in found if name == keyspace]


def copies_on_ring(cluster, keyspace):
    """How many owners the ranges of a keyspace have."""
    ranges = cluster.node(1).api(f"/storage_service/describe_ring/{keyspace}")[1]
    return {len(each["endpoints"]) for each in ranges}


def tokens_of(session, node):
    rows = cql.rows(session, "SELECT rpc_address, tokens FROM system.peers")
    return next(set(tokens) for peer, tokens in rows if peer == node.host)
