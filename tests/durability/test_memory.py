"""--memory holds: while several times as much is written, the process does not outgrow it.

CETO_TEST_MEMORY and CETO_TEST_WRITTEN (bytes, as 1G) set other sizes; ./dev bench uses 1G and 20G.
"""

import itertools
import os

from harness import cql
from harness.load import Load

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MEMORY = os.environ.get("CETO_TEST_MEMORY", "256M")
WRITTEN = os.environ.get("CETO_TEST_WRITTEN", "1G")
# What is not data: program text, stacks, the allocator's own, buffers of files being written.
SLACK_BYTES = 64 << 20
IDLE_BYTES = 100 << 20
VALUE_BYTES = 16 << 10
SAMPLES = 500


def size(text):
    return int(text[:-1]) * UNITS[text[-1]]


def test_memory_holds_while_more_is_written(new_node, connect):
    node = new_node(smp=2, memory=MEMORY).start()
    session = connect(node)
    session.execute("CREATE TABLE t (k bigint PRIMARY KEY, v blob)")
    insert = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
    numbers = itertools.count()
    # No two values alike, and no value that compresses: the disk gets what is written.
    noise = os.urandom(VALUE_BYTES * 2)

    def next_write():
        k = next(numbers)
        return k, (k, value(noise, k))

    # Refused writes are told to slow down; the load goes on with the next.
    load = Load(session, insert, next_write, concurrency=64, retry_refused=True).start()
    load.wait_for(size(WRITTEN) // VALUE_BYTES, seconds=3600)
    load.stop()
    peak = node.resident_bytes_peak()
    print(
        f"{WRITTEN} written with --memory {MEMORY}: {peak >> 20} MB resident at most, {len(load.refused)} writes refused"
    )
    assert peak <= size(MEMORY) + SLACK_BYTES, f"{peak >> 20} MB resident with --memory {MEMORY}"
    select = session.prepare("SELECT v FROM t WHERE k = ?")
    keys = list(load.acknowledged)
    for k in keys[:: max(1, len(keys) // SAMPLES)]:
        assert cql.rows(session, select, (k,)) == [(value(noise, k),)]
    assert node.resident_bytes_peak() <= size(MEMORY) + SLACK_BYTES, "reading outgrew it"


def value(noise, k):
    at = k * 7919 % VALUE_BYTES
    return k.to_bytes(8, "big") + noise[at : at + VALUE_BYTES - 8]


def test_an_idle_node_is_small(new_node):
    node = new_node(smp=2, memory="1G").start()
    assert node.resident_bytes() < IDLE_BYTES, f"{node.resident_bytes() >> 20} MB resident when idle"
