"""What an operator reads in a node's log at INFO: members by address, once each; who changed the schema; the beginning and the end of a drain."""

from harness import cql
from harness.cluster import address, eventually


def lines(node, *words):
    return [line for line in node.lines if all(word in line for word in words)]


def test_a_node_that_is_down_is_told_once_by_its_address(cluster):
    first, name = cluster.node(1), address(3)
    before = len(first.lines)
    cluster.kill(3)
    eventually("node 3 is noticed", lambda: lines(first, f"node {name} ", "is down"))
    cluster.start(3)
    eventually("node 3 is back", lambda: lines(first, f"node {name}:", "is connected again"))
    told = [line for line in first.lines[before:] if name in line]
    assert len([line for line in told if "no connection" in line]) <= 2, told
    assert len([line for line in told if "is down" in line]) == 1, told
    cluster.known_to_clients()


def test_who_changed_the_schema_and_what_stands_in_the_log(cluster):
    name = cql.unique("ks")
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY)")
        session.execute(f"TRUNCATE {name}.t")
        session.execute(f"DROP KEYSPACE {name}")
    for words in (f"CREATE KEYSPACE {name}", f"CREATE TABLE {name}.t", f"TRUNCATE {name}.t", f"DROP KEYSPACE {name}"):
        (line,) = lines(cluster.node(1), "INFO", "client 127.0.0.", words)


def test_a_drain_is_told_from_its_beginning_to_its_end(cluster):
    node = cluster.node(2)
    before = len(node.lines)
    cluster.stop(2)
    told = [line for line in node.lines[before:] if "drain" in line]
    assert len(told) == 2 and "draining" in told[0] and "drained" in told[1], told
    cluster.start(2)
    cluster.known_to_clients()
