"""A damaged commitlog: a torn tail is what a power loss leaves and is tolerated; a hole in the middle is not."""

import re

import pytest

from harness import NodeFailed, cql

ROWS = 2000
# One write is in flight at a time, so a torn tail holds the last few at most.
LOST_MAX = 10


@pytest.fixture
def node(new_node, connect):
    """A node with one shard that was killed after ROWS single writes, all of them in its log only."""
    node = new_node(smp=1).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
    insert = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
    for k in range(ROWS):
        session.execute(insert, (k, f"the value of row {k}"))
    node.kill9()
    return node


def segment_of_rows(node):
    """The log file that holds the rows, and where its written part ends (a segment may be allocated ahead, as zeros)."""
    files = [path for path in (node.workdir / "commitlog").rglob("*") if path.is_file()]
    holding = [(path, path.read_bytes()) for path in files]
    holding = [(path, data) for path, data in holding if b"the value of row 0" in data]
    assert len(holding) == 1, f"the rows are in {[path for path, _ in holding]} of {files}"
    path, data = holding[0]
    return path, data.rstrip(b"\0")


def rows_left(connect, node):
    return sorted(k for (k,) in cql.rows(connect(node), "SELECT k FROM t"))


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_garbage_after_the_end_is_a_torn_write(node, connect):
    path, data = segment_of_rows(node)
    overwrite(path, len(data) + 1, b"\x5a" * 300)
    node.start()
    left = rows_left(connect, node)
    assert left == list(range(len(left))) and len(left) >= ROWS - LOST_MAX


def test_a_file_cut_short_loses_its_end_only(node, connect):
    path, data = segment_of_rows(node)
    with path.open("r+b") as file:
        file.truncate(len(data) - 20)
    node.start()
    left = rows_left(connect, node)
    assert left == list(range(len(left))) and len(left) >= ROWS - LOST_MAX


def test_a_damaged_last_entry_is_dropped(node, connect):
    path, data = segment_of_rows(node)
    overwrite(path, len(data) - 8, bytes(byte ^ 0xFF for byte in data[-8:]))
    node.start()
    left = rows_left(connect, node)
    assert left == list(range(len(left))) and len(left) >= ROWS - LOST_MAX


def test_a_tolerated_tail_does_not_hide_later_writes(node, connect):
    path, data = segment_of_rows(node)
    overwrite(path, len(data) + 1, b"\x5a" * 300)
    node.start()
    connect(node).execute("INSERT INTO t (k, v) VALUES (-1, 'later')")
    node.kill9()
    node.start()
    assert rows_left(connect, node)[0] == -1


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_damage_in_the_middle_is_refused_with_file_and_offset(node, place):
    path, data = segment_of_rows(node)
    at = int(len(data) * place)
    overwrite(path, at, bytes(byte ^ 0xFF for byte in data[at : at + 4]))
    damaged = path.read_bytes()
    with pytest.raises(NodeFailed) as caught:
        node.start()
    log = caught.value.log
    assert caught.value.code not in (0, None)
    assert "panicked" not in log
    assert path.name in log, log
    line = next(line for line in log.splitlines() if path.name in line)
    offsets = [int(number) for number in re.findall(r"\b\d+\b", line.replace(str(path), "").replace(path.name, ""))]
    assert any(at - (1 << 16) <= offset <= at + 4 for offset in offsets), f"damaged at {at}, but the node says: {line}"
    assert path.read_bytes() == damaged, "the file is left as it was found, for a person to look at"
