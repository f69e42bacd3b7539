"""The pages for operators about nodes that come and go, tablets that move and repairs: every command, option and statement that they name is
tried, in their order, and refusals say what their tables say.
"""

import uuid

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import Cluster, NodeFailed, cql
from harness.cluster import eventually
from harness.members import copies_on_ring, host_of, is_still, replicas_of, state_of, tablets_of
from harness.page import Page

ROWS = 100
SEEDS = "10.0.0.1,10.0.0.2"


@pytest.fixture
def form(request):
    formed = []

    def make(size, *options):
        formed.append(Cluster(size, smp=2, runtime=request.config.getoption("--runtime"), options=options))
        return formed[-1].form().known_to_clients()

    yield make
    for cluster in formed:
        cluster.remove()


def table(session, copies, tablets="{'enabled': true}"):
    """A table with some rows; its keyspace."""
    name = cql.unique("ks")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"
        f" AND tablets = {tablets}"
    )
    session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY, v int)")
    for k in range(ROWS):
        session.execute(f"INSERT INTO {name}.t (k, v) VALUES (%s, %s)", (k, k))
    return name


def has_all(session, *keyspaces):
    for name in keyspaces:
        scan = SimpleStatement(f"SELECT k FROM {name}.t", consistency_level=ConsistencyLevel.ALL)
        assert sorted(k for (k,) in cql.rows(session, scan)) == list(range(ROWS))


def seeds(cluster):
    return {SEEDS: f"{cluster.node(1).host},{cluster.node(2).host}"}


def test_a_node_is_added_as_the_page_says(form):
    cluster = form(2)
    with cluster.driver(only=1) as driver, Page("add-node") as page:
        page.tried_in("cluster/test_topology_operations.py", {"--replace-node-first-boot": "--replace-node-first-boot"})
        session = driver.connect()
        tablets, ring = table(session, 1), table(session, 2, "{'enabled': false}")
        new = page.start(cluster, 3, f"ceto --workdir DIR --seeds {SEEDS} …", seeds(cluster))
        cluster.nodes.append(new)
        eventually("it is a full member", lambda: f"UN  {new.host}" in page.nodetool(cluster.node(1), "status"))
        # The copies of the ring's ranges are remembered after their end.
        copied = page.nodetool(new, "tasks list streaming", more=["--internal"])
        assert ring in copied, copied
        page.nodetool(new, "setstreamthroughput", more=["0"])
        eventually("it has its share", lambda: tablets_of(session, tablets).get(host_of(new), 0) > 0)
        eventually("nothing moves", lambda: is_still(cluster))
        assert "on" in page.nodetool(new, "tabletbalancing")
        assert ring in page.nodetool(cluster.node(1), "cleanup"), "nothing was left to remove, before the delay was over"
        has_all(session, tablets, ring)


def test_nodes_are_removed_as_the_page_says(form):
    cluster = form(5)
    with cluster.driver(only=1) as driver, Page("remove-node") as page:
        page.tried_in(
            "cluster/test_topology_operations.py",
            {
                "ceto nodetool excludenode HOST_ID…": "excludenode",
                "ceto nodetool removenode --ignore-dead-nodes HOST_ID,HOST_ID HOST_ID": "ignore",
            },
        )
        session = driver.connect()
        tablets, ring = table(session, 3), table(session, 3, "{'enabled': false}")
        leaving = cluster.nodes.pop()
        with pytest.raises(NodeFailed, match="does not leave"):
            page.nodetool(leaving, "decommission --abort")
        page.nodetool(leaving, "decommission")
        assert state_of(cluster, leaving) is None
        eventually("it has stopped", lambda: not leaving.alive)
        leaving.remove()

        node, lost = cluster.node(1), cluster.node(4)
        host = host_of(lost)
        with pytest.raises(NodeFailed, match=page.row("is alive at") + "|" + page.row("answered a moment ago")):
            page.nodetool(node, "removenode HOST_ID", {"HOST_ID": host})
        lost.kill9()
        eventually("the others miss it", lambda: f"DN  {lost.host}" in page.nodetool(node, "status"))
        page.nodetool(node, "removenode HOST_ID", {"HOST_ID": host})
        assert host not in page.nodetool(node, "status")
        with pytest.raises(NodeFailed):
            lost.start()
        cluster.nodes.pop().remove()

        # Three nodes and three copies: none can leave.
        with pytest.raises(NodeFailed):
            page.nodetool(cluster.node(3), "decommission")
        assert state_of(cluster, cluster.node(3)) == "UN"
        has_all(session, tablets, ring)


def test_the_only_copy_of_data_is_not_removed_with_its_node(form):
    cluster = form(3)
    page = Page("remove-node")
    with cluster.driver(only=1) as driver:
        session = driver.connect()
        node, lost = cluster.node(1), cluster.node(3)
        host = host_of(lost)
        once = table(session, 1)
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        with pytest.raises(NodeFailed, match=page.row("tablets of table")):
            page.nodetool(node, "removenode HOST_ID", {"HOST_ID": host})
        lost.start()
        cluster.sees_itself_whole()
        session.execute(f"DROP KEYSPACE {once}")
        table(session, 1, "{'enabled': false}")
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        with pytest.raises(NodeFailed, match=page.row("the node alone owns a part of keyspace")):
            page.nodetool(node, "removenode HOST_ID", {"HOST_ID": host})


def test_a_lost_node_is_replaced_as_the_page_says(form):
    cluster = form(3)
    line = f"ceto --workdir DIR --seeds {SEEDS} --replace-node-first-boot HOST_ID …"
    with cluster.driver(only=1) as driver, Page("replace-node") as page:
        page.tried_in("cluster/test_topology_operations.py", {"--ignore-dead-nodes-for-replace HOST_ID,ADDRESS,…": "--ignore-dead-nodes-for-replace"})
        session = driver.connect()
        tablets, ring = table(session, 3), table(session, 3, "{'enabled': false}")

        def refused(host, words, *options):
            with pytest.raises(NodeFailed, match=page.row(words)):
                page.start(cluster, 5, line, seeds(cluster) | {"HOST_ID": host}, options)

        lost = cluster.node(3)
        host = host_of(lost)
        refused(str(uuid.uuid4()), "is no member of this cluster")
        refused(host, "is alive: stop it first")
        lost.kill9()
        eventually("the others miss it", lambda: f"DN  {lost.host}" in page.nodetool(cluster.node(1), "status"))
        assert host in page.nodetool(cluster.node(1), "status")
        refused(host, "is in another datacenter", "--data-center", "elsewhere", "--rack", "rack1")
        cluster.nodes[2] = page.start(cluster, 4, line, seeds(cluster) | {"HOST_ID": host})
        replaced(cluster, host)
        lost.remove()
        has_all(session, tablets, ring)

        # By its address.
        lost = cluster.node(3)
        host = host_of(lost)
        lost.kill9()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        heir = cluster._node(4)
        heir.options = [*heir.options, *page.option("--replace-address-first-boot ADDRESS", {"ADDRESS": lost.host})]
        cluster.nodes[2] = heir.start()
        replaced(cluster, host)
        lost.remove()
        has_all(session, tablets, ring)


def replaced(cluster, host):
    eventually("the lost node has left", lambda: host not in cluster.node(1).nodetool("status"))
    eventually("nothing moves", lambda: is_still(cluster))


def test_a_replication_is_changed_as_the_page_says(form):
    cluster = form(3)
    with cluster.driver(only=1) as driver, Page("change-replication") as page:
        elsewhere = {"ceto nodetool status": 'nodetool("status")', "ceto nodetool tasks abort TASK_ID": '"tasks", "abort"'}
        page.tried_in("cluster/test_topology_operations.py", elsewhere)
        session = driver.connect()
        tablets, ring = table(session, 1), table(session, 1, "{'enabled': false}")
        for name in (tablets, ring):
            # The only names of the statement that are not its words.
            values = {"KEYSPACE ks": f"KEYSPACE {name}", "dc1": "datacenter1"}
            page.statement(session, "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}", values)
        page.nodetool(cluster.node(1), "tabletbalancing")

        def all_are_there():
            found = page.statement(session, "SELECT replicas, new_replicas, stage FROM system.tablets")
            return all(len(replicas) == 3 and not new_replicas for replicas, new_replicas, _ in found)

        eventually("each tablet has three copies", all_are_there)
        eventually("the ring has its owners", lambda: copies_on_ring(cluster, ring) == {3})
        copied = [page.nodetool(node, "tasks list streaming", more=["--internal"]) for node in cluster]
        assert any(tablets in listed for listed in copied), copied
        has_all(session, tablets, ring)

        # Each becomes what the other was.
        page.tried_in("cluster/test_topology_operations.py", {"ceto nodetool excludenode HOST_ID": "excludenode"})
        page.tried_in("cluster/test_keyspace_kinds.py", {"ceto nodetool migrate-to-tablets start ks": '"migrate-to-tablets", "start"'})
        page.statement(session, "ALTER KEYSPACE ks WITH tablets = {'enabled': true}", {"KEYSPACE ks": f"KEYSPACE {ring}"})
        page.statement(session, "ALTER KEYSPACE ks WITH tablets = {'enabled': false}", {"KEYSPACE ks": f"KEYSPACE {tablets}"})

        def have_tablets():
            return {keyspace for (keyspace,) in cql.rows(session, "SELECT keyspace_name FROM system.tablets")}

        def are_as_wanted():
            status = cluster.node(2).nodetool("status")
            is_done = not any(f"replication of {name}" in status for name in (tablets, ring))
            return is_done and ring in have_tablets() and tablets not in have_tablets()

        eventually("each is of the other kind", are_as_wanted)
        has_all(session, tablets, ring)


def test_tablets_are_moved_as_the_page_says(form):
    cluster = form(3)
    with cluster.driver(only=1) as driver, Page("move-tablets") as page:
        session = driver.connect()
        node = cluster.node(1)
        assert "on" in page.nodetool(node, "tabletbalancing")
        page.nodetool(node, "tabletbalancing off")
        assert "off" in page.nodetool(node, "tabletbalancing")
        name = table(session, 1, "{'initial': 1}")
        [(identity,)] = cql.rows(session, f"SELECT id FROM system_schema.tables WHERE keyspace_name = '{name}' AND table_name = 't'")

        def place():
            ask = "SELECT last_token, replicas FROM system.tablets WHERE …"
            [(_, [(host, shard)])] = page.statement(session, ask, {"…": f"table_id = {identity}"})
            return str(host), shard

        hosts = {host_of(node): node for node in cluster}
        host, shard = place()
        words = {"KEYSPACE": name, "TABLE": "t", "TOKEN": "0"}
        command = "movetablet KEYSPACE TABLE TOKEN SHARD"
        page.nodetool(hosts[host], command, words | {"SHARD": str(1 - shard)})
        assert name in page.nodetool(hosts[host], "tasks list tablets")
        eventually("it is on the other shard", lambda: place() == (host, 1 - shard))
        page.nodetool(node, f"{command} HOST_ID", words | {"SHARD": str(shard), " HOST_ID": f" {host}"})
        eventually("it is back", lambda: place() == (host, shard))
        target = next(other for other in hosts if other != host)
        from_and_to = {"SHARD": "1", " HOST_ID": f" {host}", " TO_HOST_ID": f" {target}"}
        page.nodetool(node, f"{command} HOST_ID TO_HOST_ID", words | from_and_to)
        eventually("it is on the other node", lambda: place() == (target, 1))
        assert name in page.nodetool(hosts[target], "tasks list streaming", more=["--internal"])
        page.nodetool(node, "tabletbalancing on")
        assert "on" in page.nodetool(node, "tabletbalancing")
        has_all(session, name)
        page.nodetool(node, "resizetable KEYSPACE TABLE TABLETS", {"TABLETS": "2", "KEYSPACE": name, "TABLE": "t"})
        page.nodetool(node, "tasks list compaction")
        page.statement(session, "ALTER TABLE ks.t WITH tablets = {'expected_data_size_in_gb': 500}", {"ks.t": f"{name}.t"})
        described = session.execute(f"DESCRIBE TABLE {name}.t").one().create_statement
        assert "'expected_data_size_in_gb': '500'" in described, described
        has_all(session, name)


def test_replicas_are_repaired_as_the_page_says(form):
    cluster = form(3, "--hinted-handoff-enabled", "false")
    with cluster.driver(only=1) as driver, Page("repair") as page:
        page.tried_in("cluster/test_repair.py", {"ceto nodetool cluster repair [KEYSPACE [TABLE…]]": '"cluster", "repair"'})
        chosen = {
            "-local": '"repair", "-local"',
            "--in-dc NAME,…": '"--in-dc"',
            "--in-hosts ID,…": '"--in-hosts"',
            "ceto nodetool cluster repair --tablet-tokens TOKEN,… KEYSPACE [TABLE…]": '"--tablet-tokens"',
        }
        page.tried_in("cluster/test_incremental_repair.py", chosen)
        page.tried_in("harness/repairs.py", {"ceto sstable metadata FILE": '"sstable", "metadata"'})
        session = driver.connect()
        third = cluster.node(3)
        name = table(session, 3)
        third.kill9()
        eventually("the others miss it", lambda: state_of(cluster, third) == "DN")
        for k in range(ROWS):
            session.execute(f"INSERT INTO {name}.t (k, v) VALUES (%s, %s)", (k, -k))
        third.start()
        cluster.sees_itself_whole()
        cluster.known_to_clients()

        command, one = "repair KEYSPACE [TABLE…]", {"KEYSPACE": name, "[TABLE…]": "t"}
        node = cluster.node(1)

        def differing(*more, on=node):
            printed = page.nodetool(on, command, one, more)
            # A node may be the first replica of no range.
            return 0 if printed.startswith("There is nothing to repair") else int(printed.splitlines()[-1].split()[4])

        assert differing(*page.option("--preview")) == ROWS
        assert differing(*page.option("-hosts NODE,…", {"NODE,…": cluster.node(2).host})) == 0
        first = differing(*page.option("-st TOKEN", {"TOKEN": "-9223372036854775808"}), *page.option("-et TOKEN", {"TOKEN": "0"}))
        rest = [differing(*page.option("-pr"), on=each) for each in cluster]
        assert 0 < first < ROWS and first + sum(rest) == ROWS, (first, rest)
        assert differing(*page.option("-dc NAME,…", {"NAME,…": "datacenter1"})) == 0
        page.nodetool(node, "repair")
        assert differing() == 0
        assert differing(*page.option("-full")) == 0
        assert differing(*page.option("--incremental-mode MODE", {"MODE": "disabled"})) == 0
        assert name in page.nodetool(node, "tasks list repair")
        page.nodetool(node, "tasks limits repair --throughput 64")
        with cluster.driver(only=3, consistency="ONE") as third_alone:
            assert sorted(cql.rows(third_alone.connect(), f"SELECT k, v FROM {name}.t")) == [(k, -k) for k in range(ROWS)]

        ask = "SELECT keyspace_name, table_name, last_token, repair_time, watermark FROM system.tablets"
        repaired = [row for row in page.statement(session, ask) if row[0] == name]
        assert repaired and all(row[3] is not None for row in repaired), repaired
        assert len(replicas_of(session, name)) == len(repaired)
        assert any(name in row for row in page.statement(session, "SELECT * FROM system.repair_history"))
