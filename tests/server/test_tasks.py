"""Long work as an operator sees it: the task manager's API, nodetool tasks, aborts and limits."""


import pytest

from harness import cql
from harness.node import NodeFailed

CLASSES = ("flush", "compaction", "reshard", "maintenance", "streaming", "repair")


pytestmark = pytest.mark.ceto_only("the paths are those of a ceto node")


@pytest.fixture
def loaded(node, session):
    """A table of two sstables, in a keyspace of its own."""
    keyspace = cql.unique("tasked")
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}} "
        "AND tablets = {'enabled': false}"
    )
    session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v text)")
    insert = session.prepare(f"INSERT INTO {keyspace}.t (k, v) VALUES (?, ?)")
    for begin in (0, 500):
        for k in range(begin, begin + 500):
            session.execute(insert, (k, "x" * 1000))
        assert node.api(f"/storage_service/keyspace_flush/{keyspace}", "POST")[0] == 200
    yield keyspace
    session.execute(f"DROP KEYSPACE {keyspace}")


def got(answer):
    status, value = answer
    assert status == 200, answer
    return value


def tasks_of(node, module, keyspace, internal="false"):
    return got(node.api(f"/task_manager/list_module_tasks/{module}?keyspace={keyspace}&internal={internal}"))


def test_a_flush_is_listed_with_its_parts(node, loaded):
    listed = tasks_of(node, "flush", loaded)
    assert [task["type"] for task in listed] == ["flush", "flush"], listed
    assert all(task["state"] == "done" and task["kind"] == "node" for task in listed), listed
    tree = got(node.api(f"/task_manager/task_status_recursive/{listed[0]['task_id']}"))
    root, parts = tree[0], tree[1:]
    assert root["parent_id"] == "none" and root["progress_completed"] == root["progress_total"] > 500 * 1000, root
    assert parts and all(part["parent_id"] == root["id"] and part["table"] == "t" for part in parts), tree
    assert [child["task_id"] for child in root["children_ids"]] == [part["id"] for part in parts]
    assert root["start_time"] <= root["end_time"] and root["start_time"].endswith("Z"), root


def test_a_compaction_is_started_and_waited_for(node, loaded):
    task = got(node.api(f"/tasks/compaction/keyspace_compaction/{loaded}", "POST"))
    ended = got(node.api(f"/task_manager/wait_task/{task}?timeout=60"))
    assert (ended["id"], ended["type"], ended["state"], ended["error"]) == (task, "major compaction", "done", "")
    assert tasks_of(node, "compaction", loaded)[0]["task_id"] == task
    (stats,) = [t for t in got(node.api("/column_family/stats")) if (t["ks"], t["cf"]) == (loaded, "t")]
    assert stats["live_ss_table_count"] == 2, "one for each shard"


def test_an_aborted_compaction_changes_nothing(node, session, loaded):
    got(node.api("/ceto/task_classes/compaction?bytes_per_second=1", "POST"))
    try:
        task = got(node.api(f"/tasks/compaction/keyspace_compaction/{loaded}", "POST"))
        status, said = node.api(f"/task_manager/wait_task/{task}?timeout=1")
        assert status == 408, said
        shown = node.nodetool("tasks", "list", "compaction", "-ks", loaded)
        assert task in shown and "running" in shown, shown
        node.nodetool("tasks", "abort", task)
        ended = got(node.api(f"/task_manager/wait_task/{task}?timeout=60"))
        assert (ended["state"], ended["error"]) == ("failed", "aborted"), ended
    finally:
        got(node.api("/ceto/task_classes/compaction?bytes_per_second=0", "POST"))
    assert session.execute(f"SELECT count(*) FROM {loaded}.t").one()[0] == 1000
    node.nodetool("compact", loaded)
    assert session.execute(f"SELECT count(*) FROM {loaded}.t").one()[0] == 1000


def test_stop_ends_all_compactions(node, loaded):
    got(node.api("/ceto/task_classes/compaction?bytes_per_second=1", "POST"))
    try:
        task = got(node.api(f"/tasks/compaction/keyspace_compaction/{loaded}", "POST"))
        node.nodetool("stop", "COMPACTION")
        ended = got(node.api(f"/task_manager/wait_task/{task}?timeout=60"))
        assert (ended["state"], ended["error"]) == ("failed", "aborted"), ended
    finally:
        got(node.api("/ceto/task_classes/compaction?bytes_per_second=0", "POST"))
    with pytest.raises(NodeFailed, match="expected COMPACTION"):
        node.nodetool("stop", "CLEANUP")


def test_a_flush_cannot_be_aborted(node, loaded):
    task = tasks_of(node, "flush", loaded)[0]["task_id"]
    status, said = node.api(f"/task_manager/abort_task/{task}", "POST")
    assert status == 403 and "cannot be aborted" in said["message"], said


def test_a_snapshot_is_a_task_of_its_name(node, loaded):
    node.nodetool("snapshot", "-t", "mine", loaded)
    (task,) = tasks_of(node, "snapshot", loaded)
    assert (task["state"], task["entity"], task["scope"]) == ("done", "mine", "keyspace"), task
    node.nodetool("clearsnapshot", "-t", "mine", loaded)


def test_results_are_kept_as_long_as_it_is_said(node, loaded):
    kept = got(node.api("/task_manager/user_ttl"))
    assert node.nodetool("tasks", "user-ttl") == f"Current user_ttl: {kept}\n"
    assert tasks_of(node, "flush", loaded)
    try:
        node.nodetool("tasks", "user-ttl", "--set", "0")
        assert tasks_of(node, "flush", loaded) == []
    finally:
        node.nodetool("tasks", "user-ttl", "--set", str(kept))
    assert got(node.api("/task_manager/user_ttl")) == kept
    status, said = node.api("/task_manager/ttl?ttl=soon", "POST")
    assert status == 400 and "parameter ttl" in said["message"], said


def test_drain_forgets_what_has_ended(node, loaded):
    assert tasks_of(node, "flush", loaded)
    node.nodetool("tasks", "drain", "--module", "flush")
    assert tasks_of(node, "flush", loaded, "true") == []


def test_nodetool_shows_status_and_tree(node, loaded):
    task = tasks_of(node, "flush", loaded)[0]["task_id"]
    status = node.nodetool("tasks", "status", task)
    assert f"id : {task}\n" in status and "state : done\n" in status and "parent_id : none\n" in status, status
    tree = node.nodetool("tasks", "tree", task).splitlines()
    assert tree[0].startswith("id ") and tree[1].startswith(task) and len(tree) >= 3, tree
    assert task in node.nodetool("tasks", "tree")
    assert node.nodetool("tasks", "wait", task, "-q") == ""
    assert "compaction" in node.nodetool("tasks", "modules").splitlines()


def test_workers_and_bandwidth_change_while_the_node_runs(node):
    def limits():
        return {limit["class"]: limit for limit in got(node.api("/ceto/task_classes"))}

    before = limits()
    assert tuple(before) == CLASSES
    node.nodetool("tasks", "limits", "compaction", "--workers", "3", "--throughput", "16")
    try:
        now = limits()["compaction"]
        assert set(now["workers"]) == {3} and now["bytes_per_second"] == 16 << 20, now
        assert node.nodetool("getcompactionthroughput") == "Current compaction throughput: 16 MB/s\n"
        assert "16 MiB/s" in node.nodetool("tasks", "limits")
    finally:
        node.nodetool("tasks", "limits", "compaction", "--workers", "1", "--throughput", "0")
    status, said = node.api("/ceto/task_classes/compaction?workers=0", "POST")
    assert status == 400 and "at least 1" in said["message"], said


@pytest.mark.parametrize(
    "path, message",
    [
        ("/task_manager/task_status/x", "expected the id of a task"),
        ("/task_manager/task_status/00000000-0000-1000-8000-000000000000", "not found"),
        ("/task_manager/list_module_tasks/nothing", "module nothing not found"),
        ("/task_manager/list_module_tasks/flush?internal=maybe", "parameter internal"),
    ],
)
def test_what_does_not_exist_is_refused(node, path, message):
    status, said = node.api(path)
    assert status == 400 and message in said["message"], said


def test_a_task_that_is_not_there_any_more_is_undetermined(node):
    with pytest.raises(NodeFailed):
        node.nodetool("tasks", "wait", "00000000-0000-1000-8000-000000000000")
