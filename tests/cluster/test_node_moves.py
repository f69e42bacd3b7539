"""Tablets move between nodes while they are written and read, and while nodes are killed."""

import threading

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from harness import Cluster, cql
from harness.cluster import eventually
from harness.members import host_of
from harness.repairs import repaired

SHARDS = 2
# Stages of a move flush and sync: on a machine that does much else that may take longer than a request usually waits.
PATIENT = [
    option
    for name in ("write-request-timeout", "read-request-timeout", "cas-contention-timeout")
    for option in (f"--{name}", "20s")
]
# What a client may see while a node dies; none of it acknowledges anything.
OF_A_DYING_NODE = (NoHostAvailable, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout)


@pytest.fixture(scope="module")
def cluster(request):
    cluster = Cluster(4, smp=SHARDS, runtime=request.config.getoption("--runtime"), options=PATIENT)
    try:
        cluster.form().known_to_clients()
        # Tablets stay where these tests put them.
        cluster.node(1).nodetool("tabletbalancing", "off")
        yield cluster
    finally:
        cluster.remove()


def keyspace(session, replicas):
    """A table of one tablet."""
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
        " AND tablets = {'initial': 1}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    return name


def replicas_of(session, name):
    """By host id, the shard that has the tablet."""
    return replicas_of_table(session, name, "t")


def replicas_of_table(session, name, table):
    rows = cql.rows(session, "SELECT keyspace_name, table_name, replicas FROM system.tablets")
    [found] = [replicas for keyspace, of, replicas in rows if (keyspace, of) == (name, table)]
    return {str(host): shard for host, shard in found}


def hosts(cluster):
    """The nodes by host id."""
    return {host_of(node): node for node in cluster}


class Load:
    """A client that writes, reads back and counts up by conditional statements until it is told to end."""

    def __init__(self, cluster, name, expected=()):
        self.name, self.expected = name, expected
        self.driver = cluster.driver(only=1)
        self.done, self.written, self.failures = threading.Event(), set(), []
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.session = self.driver.__enter__().connect()
        first = f"INSERT INTO {self.name}.t (k, v) VALUES (-1, 0)"
        self.session.execute(SimpleStatement(first, consistency_level=ConsistencyLevel.ALL))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.driver.__exit__(None, None, None)
        assert not self.failures, self.failures[:3]

    def run(self):
        insert = self.session.prepare(f"INSERT INTO {self.name}.t (k, v) VALUES (?, ?)")
        select = self.session.prepare(f"SELECT v FROM {self.name}.t WHERE k = ?")
        count = self.session.prepare(f"UPDATE {self.name}.t SET v = ? WHERE k = -1 IF v = ?")
        for statement in (insert, select):
            statement.consistency_level = ConsistencyLevel.QUORUM
        counted, k = 0, 0
        while not self.done.is_set():
            k += 1
            try:
                self.session.execute(insert, (k, k))
                self.written.add(k)
                if cql.rows(self.session, select, (k,)) != [(k,)]:
                    self.failures.append(f"{k} was written and is not there")
                applied = self.session.execute(count, (counted + 1, counted)).one()
                if applied[0]:
                    counted += 1
                elif not self.expected or applied[1] != counted + 1:
                    # After an error without an answer the addition may be there already.
                    self.failures.append(f"addition {counted + 1} was not applied: {applied}")
                else:
                    counted += 1
            except self.expected:
                pass
            except Exception as error:
                self.failures.append(repr(error))


def is_moved(session, name, source, target):
    where = replicas_of(session, name)
    return target in where and source not in where


def check_all(cluster, name, written):
    """Every replica alone has all that was written."""
    for number in range(1, 5):
        with cluster.driver(only=number) as driver:
            scan = SimpleStatement(f"SELECT k FROM {name}.t", consistency_level=ConsistencyLevel.ALL)
            found = {k for (k,) in cql.rows(driver.connect(), scan)}
            assert written <= found, sorted(written - found)[:5]


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_tablet_goes_round_the_nodes_while_it_is_written_and_read(cluster, session, replicas):
    name = keyspace(session, replicas)
    nodes = hosts(cluster)
    with Load(cluster, name) as load:
        for turn in range(6):
            where = replicas_of(session, name)
            source = sorted(where)[turn % len(where)]
            target = next(host for host in sorted(nodes) if host not in where)
            cluster.node(2).nodetool("movetablet", name, "t", "0", str(turn % SHARDS), source, target)
            # The command ends when the node that was asked knows it.
            eventually("the client's node knows it", lambda: is_moved(session, name, source, target))
            assert replicas_of(session, name)[target] == turn % SHARDS
    assert len(load.written) > 10
    check_all(cluster, name, load.written)
    assert not any(node.api(f"/storage_service/keyspace_flush/{name}", method="POST")[0] >= 400 for node in cluster)
    here = set(replicas_of(session, name))
    # A node that lost its tablet may still be removing the files: it learns of the end of the move later than the client's node.
    with_files = lambda: {host for host, node in nodes.items() if list(node.workdir.glob(f"data/{name}/t-*/*-Data.db"))}
    eventually("replicas have files, and no other node has any", lambda: with_files() == here)


def test_the_marks_of_repairs_go_with_a_tablet(cluster, session):
    """A repair behind moves reads what was written since the last one, also behind a restart of the node that got the tablet."""
    name = keyspace(session, 3)

    nodes = hosts(cluster)

    def number_of(host):
        return list(cluster).index(nodes[host]) + 1

    def insert(by, keys):
        with cluster.driver(only=number_of(by), consistency="ALL") as driver:
            client = driver.connect()
            for k in keys:
                client.execute(f"INSERT INTO {name}.t (k, v) VALUES ({k}, {k})")

    def repair(by):
        said = repaired(cluster, number_of(by), name)
        return said["rows"], said["differing"], said["skipped"] > 0

    def where():
        with cluster.driver(only=2) as driver:
            return sorted(replicas_of(driver.connect(), name))

    insert(where()[0], range(200))
    assert repair(where()[0]) == (200, 0, False)
    for turn in range(2):
        before = where()
        source, other = before[turn], before[2]
        target = next(host for host in sorted(nodes) if host not in before)
        cluster.node(2).nodetool("movetablet", name, "t", "0", "0", source, target)
        eventually("the tablet has moved", lambda target=target: target in where())
        if turn == 1:
            nodes[target].kill9()
            nodes[target].start()
            cluster.sees_itself_whole()
            cluster.known_to_clients()
        insert(other, range(200 + 10 * turn, 210 + 10 * turn))
        for by, rows in [(target, 10), (other, 0)]:
            assert repair(by) == (rows, 0, True), f"turn {turn}, by {by}"


def test_a_repair_of_tablets_goes_on_with_the_replicas_that_a_tablet_has_then(cluster, session):
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
        " AND tablets = {'enabled': true}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int) WITH tablets = {{'min_tablet_count': 32}}")
    for k in range(200):
        statement = f"INSERT INTO {name}.t (k, v) VALUES ({k}, {k})"
        session.execute(SimpleStatement(statement, consistency_level=ConsistencyLevel.ALL))
    nodes, last = hosts(cluster), 2**63 - 1

    def replicas_of_last():
        rows = cql.rows(session, "SELECT keyspace_name, table_name, last_token, replicas FROM system.tablets")
        [found] = [replicas for keyspace, table, token, replicas in rows if (keyspace, table, token) == (name, "t", last)]
        return [str(host) for host, _ in found]

    def limit(bytes_per_second):
        for node in cluster:
            status, said = node.api(f"/ceto/task_classes/repair?bytes_per_second={bytes_per_second}", method="POST")
            assert status == 200, said

    def is_repaired():
        where = f"/task_manager/list_module_tasks/repair?keyspace={name}&internal=true"
        return any(task["task_id"] != asked and task["state"] == "running" for node in cluster for task in node.api(where)[1])

    limit(1)
    try:
        where = f"/storage_service/tablets/repair?ks={name}&table=t&await_completion=false"
        status, said = cluster.node(1).api(where, method="POST")
        assert status == 200, said
        asked = said["tablet_task_id"]
        eventually("nodes repair their first ranges", is_repaired)
        # The node that repairs the last tablet keeps it; another replica goes.
        before = replicas_of_last()
        target = next(host for host in sorted(nodes) if host not in before)
        cluster.node(2).nodetool("movetablet", name, "t", str(last), "0", before[1], target)
        eventually("the tablet has moved", lambda: target in replicas_of_last() and before[1] not in replicas_of_last())
        assert replicas_of_last()[0] == before[0]
    finally:
        limit(0)
    status, ended = cluster.node(1).api(f"/task_manager/wait_task/{asked}?timeout=120")
    assert status == 200 and (ended["state"], ended["error"]) == ("done", ""), ended


def test_nodes_that_are_killed_in_the_middle_lose_nothing(cluster, session):
    name = keyspace(session, 3)
    nodes = hosts(cluster)
    with Load(cluster, name, expected=OF_A_DYING_NODE) as load:
        for turn, victim in enumerate(["target", "source", "target", "source"]):
            where = replicas_of(session, name)
            # The client's own node stays.
            first = host_of(cluster.node(1))
            source = next(host for host in sorted(where, key=lambda host: (host == first, host)))
            target = next(host for host in sorted(nodes) if host not in where)
            cluster.node(1).api(
                f"/ceto/tasks/move_tablet?ks={name}&table=t&token=0&dst_shard=0&host={source}&dst_host={target}", method="POST"
            )
            killed = nodes[target if victim == "target" else source]
            if killed is cluster.node(1):
                continue
            killed.kill9()
            killed.start()
            cluster.sees_itself_whole()
            eventually("the tablet is on the other node", lambda: is_moved(session, name, source, target))
    check_all(cluster, name, load.written)


def test_a_node_that_is_decommissioned_leaves_with_nothing_lost(request):
    leaving = Cluster(4, smp=SHARDS, runtime=request.config.getoption("--runtime"), options=PATIENT)
    try:
        leaving.form().known_to_clients()
        with leaving.driver(only=1) as driver:
            session = driver.connect()
            name = keyspace(session, 3)
            session.execute(f"CREATE TABLE {name}.u (k int PRIMARY KEY, v int)")
            where = replicas_of_table(session, name, "t")
            number, node = next((n, node) for n, node in enumerate(leaving, 1) if n > 1 and host_of(node) in where)
            gone = host_of(node)
            with Load(leaving, name) as load:
                eventually("rows are written", lambda: len(load.written) >= 20)
                node.nodetool("decommission")
            for table in ("t", "u"):
                eventually("the client's node knows it", lambda table=table: gone not in replicas_of_table(session, name, table))
            scan = SimpleStatement(f"SELECT k FROM {name}.t", consistency_level=ConsistencyLevel.ALL)
            assert load.written <= {k for (k,) in cql.rows(session, scan)}
        eventually("the node has stopped by itself", lambda: not node.alive)
        assert "has left the cluster" in node.log()
        shown = leaving.node(1).nodetool("status")
        assert gone not in shown, shown
    finally:
        leaving.remove()


def test_what_a_lost_node_had_is_rebuilt(request):
    losing = Cluster(4, smp=SHARDS, runtime=request.config.getoption("--runtime"), options=PATIENT)
    try:
        losing.form().known_to_clients()
        with losing.driver(only=1) as driver:
            session = driver.connect()
            name = keyspace(session, 3)
            insert = session.prepare(f"INSERT INTO {name}.t (k, v) VALUES (?, ?)")
            insert.consistency_level = ConsistencyLevel.QUORUM
            for k in range(500):
                session.execute(insert, (k, k))
            where = replicas_of_table(session, name, "t")
            node = next(node for n, node in enumerate(losing, 1) if n > 1 and host_of(node) in where)
            lost = host_of(node)
            node.kill9()
            eventually("the others miss it", lambda: f"DN  {node.host}" in losing.node(1).nodetool("status"))
            losing.node(1).nodetool("removenode", lost)
            now = replicas_of_table(session, name, "t")
            assert lost not in now and len(now) == 3
            scan = SimpleStatement(f"SELECT k FROM {name}.t", consistency_level=ConsistencyLevel.ALL)
            assert sorted(k for (k,) in cql.rows(session, scan)) == list(range(500))
    finally:
        losing.remove()
