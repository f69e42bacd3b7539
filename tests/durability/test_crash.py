"""kill -9 and SIGTERM in the middle of a concurrent write load: what was acknowledged is there afterwards."""

import itertools
import random

import pytest

from harness import cql
from harness.load import Load

ROUNDS = 20
OVERWRITTEN_KEYS = 100


def writes(numbers, seed):
    """Fresh keys, and between them newer versions of a few old ones; values from 10 bytes to 4 kB."""
    chance = random.Random(seed)

    def next_write():
        number = next(numbers)
        key = -1 - number % OVERWRITTEN_KEYS if chance.random() < 0.3 else number
        value = bytes([number % 256]) * chance.choice([10, 100, 1000, 4000])
        return key, (key, number, value, number + 1)

    return next_write


INSERT = "INSERT INTO t (k, number, v) VALUES (?, ?, ?) USING TIMESTAMP ?"


def create(session):
    session.execute("CREATE TABLE IF NOT EXISTS t (k bigint PRIMARY KEY, number bigint, v blob)")


def check(session, acknowledged):
    """Every acknowledged write is there, or a newer one of its key (sent, and perhaps applied, but not acknowledged)."""
    found = {k: (number, v) for k, number, v in cql.rows(session, "SELECT k, number, v FROM t")}
    lost = []
    for key, (_, number, value, _) in acknowledged.items():
        got = found.get(key)
        if got is None or got[0] < number or (got[0] == number and got[1] != value):
            lost.append((key, number, got and got[0]))
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged writes are lost, among them {lost[:5]}"
    torn = [key for key, (number, value) in found.items() if set(value) != {number % 256}]
    assert not torn, f"rows that nobody wrote: {torn[:5]}"


@pytest.mark.parametrize("commitlog_sync", ["periodic", "batch"])
def test_kill_9_loses_no_acknowledged_write(new_node, connect, commitlog_sync):
    node = new_node(commitlog_sync=commitlog_sync)
    numbers, chance, acknowledged = itertools.count(), random.Random(9), {}
    for round in range(ROUNDS):
        node.start()
        session = connect(node)
        create(session)
        check(session, acknowledged)
        load = Load(session, session.prepare(INSERT), writes(numbers, round)).start()
        load.wait_for(chance.randrange(100, 3000))
        node.kill9()
        load.stop()
        session.cluster.shutdown()
        acknowledged |= {key: max(row, acknowledged.get(key, row)) for key, row in load.acknowledged.items()}
    node.start()
    check(connect(node), acknowledged)


def test_kill_9_during_replay(new_node, connect):
    node = new_node().start()
    session = connect(node)
    create(session)
    load = Load(session, session.prepare(INSERT), writes(itertools.count(), 1)).start()
    load.wait_for(20_000)
    node.kill9()
    load.stop()
    for _ in range(5):
        node.start_and_kill9()
    node.start()
    check(connect(node), load.acknowledged)


def test_sigterm_drains_and_exits_0(new_node, connect):
    node = new_node().start()
    session = connect(node)
    create(session)
    load = Load(session, session.prepare(INSERT), writes(itertools.count(), 2)).start()
    load.wait_for(2000)
    assert node.stop() == 0
    load.stop()
    node.start()
    check(connect(node), load.acknowledged)


def test_sigterm_of_an_idle_node(new_node):
    node = new_node().start()
    assert node.stop() == 0
    node.start()
    assert node.stop() == 0
