"""What it costs when nodes come, go and are replaced: data that moves, reads meanwhile, repairs, and decisions of the balancer.

All nodes share this machine, one shard each. The data are rows of 1,000 bytes that no compression makes smaller. Their directories are
under TMPDIR: movement needs 2 times CETO_BENCH_MOVED_BYTES, replacement 4 times CETO_BENCH_REPLACED_BYTES, repair 2 times
CETO_BENCH_REPAIRED_BYTES, and compactions as much again for a moment.
"""

import contextlib
import itertools
import os
import re
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from figures import ROOT, figure, missing, perf
from harness import cql
from harness.cluster import Cluster, eventually
from harness.members import host_of, state_of, tablets_moving

ROW_BYTES = 1_000
TABLE = "elastic.t"
POLL_SECONDS = 0.05

JOINS = 3
JOIN_SECONDS_MAX = 2.0
SMALL_TABLES = 60
SMALL_ROWS = 20
SMALL_JOIN_SECONDS_MAX = 5.0

MOVED_BYTES = int(os.environ.get("CETO_BENCH_MOVED_BYTES", str(4 << 30)))
STREAMED_MB_MIN = 300
# Nothing moves when nothing has moved for so long.
QUIET_SECONDS = 3.0
MOVE_SECONDS = 600
READ_RATE = 3_000
READ_P99_MAX = 2.0
# Of the time that the same movement takes without a load, so that the load ends before the movement does.
MEASURED_PART = 0.7

REPLACED_BYTES = int(os.environ.get("CETO_BENCH_REPLACED_BYTES", "5000000000"))
REPLACED_MB_MIN = 200

REPAIRED_BYTES = int(os.environ.get("CETO_BENCH_REPAIRED_BYTES", "1000000000"))
REPAIRS = 3
REPAIR_SECONDS_MAX = 3.0
DIFFERING_PART = 100
SENT_OF_DIFFERENCE_MAX = 3.0

CONTINUOUS_BYTES = 200_000_000
CONTINUOUS_SECONDS = float(os.environ.get("CETO_BENCH_CONTINUOUS_SECONDS", "15"))
CONTINUOUS_RATE = 4_000  # of reads, and as many writes
CONTINUOUS_PERCENT_MAX = 3.0
# Turns with repairs and turns without follow each other on the same nodes, so that a machine that becomes slower or faster does so for both. What is told is
# the median of the differences of neighbours; how far two neighbours without repairs can be apart says how much of it the machine may have made.
CONTINUOUS_PAIRS = 10

DECISION_SECONDS_MAX = {100: 1.0, 1_000: 10.0}
DECISION_MEMORY_MB_MAX = 300

# Nodes that are compared with themselves repair nothing beside.


def elastic():
    joins()
    small_tables()
    movement()
    replacement()
    repairs()
    continuous_repair()
    decisions()


# --- nodes that come ---


def joins():
    """From the start of the process until it serves and all others show it as a full member; the cluster is empty and idle."""
    seconds = []
    with new_cluster(3) as cluster:
        cluster.sees_itself_whole()
        for _ in range(JOINS):
            began = time.monotonic()
            new = cluster.node(cluster.add())
            others = range(1, len(cluster.nodes))
            eventually("the others show it", lambda new=new, others=others: all(state_of(cluster, new, by) == "UN" for by in others))
            seconds.append(time.monotonic() - began)
    figure(f"an empty node joins an idle cluster, median of {JOINS}", statistics.median(seconds), "s", most=JOIN_SECONDS_MAX)
    figure("and the longest", max(seconds), "s")


def small_tables():
    """What each table costs a node that comes and leaves: many of them on the token ring, with next to no data."""
    with new_cluster(3) as cluster:
        cluster.sees_itself_whole()
        with cql.cluster(cluster.node(1).server) as driver:
            session = driver.connect()
            replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}"
            session.execute(f"CREATE KEYSPACE small WITH replication = {replication} AND tablets = {{'enabled': false}}")
            for table in range(SMALL_TABLES):
                session.execute(f"CREATE TABLE small.t{table} (k int PRIMARY KEY, v int)")
                for key in range(SMALL_ROWS):
                    session.execute(f"INSERT INTO small.t{table} (k, v) VALUES ({key}, {key})")
        what = f"{SMALL_TABLES} tables of {SMALL_ROWS} rows on the token ring"
        began = time.monotonic()
        new = cluster.node(cluster.add())
        others = range(1, len(cluster.nodes))
        eventually("the others show it", lambda: all(state_of(cluster, new, by) == "UN" for by in others), seconds=MOVE_SECONDS)
        figure(f"a node joins, {what}", time.monotonic() - began, "s", most=SMALL_JOIN_SECONDS_MAX)
        began = time.monotonic()
        new.nodetool("decommission", timeout=MOVE_SECONDS)
        figure(f"it leaves, {what}", time.monotonic() - began, "s")


# --- data that moves ---


def movement():
    """Half of one node's data goes to a new one, back, and again to a new one while it is read."""
    with new_cluster(1) as cluster:
        fill(cluster, MOVED_BYTES, copies=1)
        size = f"{MOVED_BYTES / 1e9:.1f} GB"
        with Movement(cluster) as there:
            cluster.add()
            there.wait()
        figure(f"a second node takes its half of {size}", there.rate(), "MB/s", least=STREAMED_MB_MIN)
        with Movement(cluster) as back:
            leaving = cluster.nodes[-1]
            leaving.nodetool("decommission", timeout=MOVE_SECONDS)
            back.wait()
        figure("the same, of the time in which streams run", there.bytes / there.streaming / 1e6, "MB/s")
        figure(f"it leaves, and gives back {back.bytes / 1e9:.1f} GB", back.rate(), "MB/s")
        settle(cluster)

        seconds = round(there.seconds * MEASURED_PART, 1)
        reads(cluster, 2.0)  # caches are warm
        idle = reads(cluster, seconds)
        figure(f"reads at {READ_RATE:,}/s, p99, nothing moves", idle["p99_us"], "us")
        with Movement(cluster) as there:
            cluster.nodes.pop()
            cluster.nodes.append(cluster._node(3))
            cluster.nodes[-1].start()
            there.wait_for_first_byte()
            with there.unwatched():
                during = reads(cluster, seconds)
            until_then = there.bytes
            there.wait()
        figure(f"a second node takes its half of {size}, beside the reads", there.rate(), "MB/s")
        if there.bytes == until_then:
            missing("read p99 during a movement", "the movement ended before the reads")
        figure(f"reads at {READ_RATE:,}/s, p99, a movement", during["p99_us"], "us")
        figure("read p99 during a movement against none", during["p99_us"] / idle["p99_us"], "times", most=READ_P99_MAX)
        after = reads(cluster, seconds)
        figure(f"reads at {READ_RATE:,}/s, p99, half of it is elsewhere", after["p99_us"], "us")
        figure("read p99 during a movement against the same nodes at rest", during["p99_us"] / after["p99_us"], "times")
        leaving.remove()


def reads(cluster, seconds):
    """Latencies of reads of random rows at a fixed rate, by the first node."""
    rows = MOVED_BYTES // ROW_BYTES
    load = ["--workload", "read", "--no-populate", "--connections", "8", "--depth", "64", "--rate", str(READ_RATE)]
    result = cql_load(cluster, rows, *load, "--consistency", "ONE", "--warm-up", "0", "--duration", str(seconds), nodes=(1,))
    if result["errors"] or result["unsent"] or result["reads_empty"]:
        missing(f"reads at {READ_RATE:,}/s", f"{result['errors']}, {result['unsent']} unsent, {result['reads_empty']} empty")
    return result["latency"]


class Movement:
    """Watches the bytes of sstables that nodes have received from others, and when: from the first to the last.

    Each look costs processor time, here and in the nodes, and would be in the latencies of requests: see `unwatched`.
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self._before = {}
        self._done = threading.Event()
        self._began = threading.Event()
        self._looks = threading.Lock()
        self.first = self.last = None
        self.bytes = 0
        self.streaming = 0.0
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._before = {node.host: received(node) for node in self._cluster}
        self._watching.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._watching.join()

    def _watch(self):
        looked = time.monotonic()
        while not self._done.wait(POLL_SECONDS):
            with self._looks:
                looked = self._look(looked)

    def _look(self, before):
        """What has come since a look at `before`; when this one was."""
        seen = [(node, *streamed(node)) for node in list(self._cluster) if node.alive]
        size = sum(count - self._before.get(node.host, 0) for node, count, _ in seen)
        looked = time.monotonic()
        if any(pulling for *_, pulling in seen):
            self.streaming += looked - before
        if size > self.bytes:
            self.first = self.first or before
            self.last, self.bytes = looked, size
            self._began.set()
        return looked

    @contextlib.contextmanager
    def unwatched(self):
        """Nobody asks the nodes for their metrics meanwhile. What has come until the end counts as seen then."""
        with self._looks:
            began = time.monotonic()
            yield
            self._look(began)

    def wait_for_first_byte(self):
        assert self._began.wait(MOVE_SECONDS), "nothing moves"

    def wait(self):
        """Return when nothing has moved for a while."""
        self.wait_for_first_byte()
        deadline = time.monotonic() + MOVE_SECONDS
        while time.monotonic() < self.last + QUIET_SECONDS or tablets_moving(self._cluster):
            assert time.monotonic() < deadline, f"something moves for more than {MOVE_SECONDS} s"
            time.sleep(POLL_SECONDS)

    @property
    def seconds(self):
        return self.last - self.first

    def rate(self):
        return self.bytes / self.seconds / 1e6


def received(node):
    """Bytes of sstables that a node has received."""
    return streamed(node)[0]


def streamed(node):
    """Bytes of sstables that a node has received, and the streams that it receives now; none of one that does not serve yet."""
    try:
        told = node.metrics()
    except (OSError, StopIteration):
        return 0, 0
    return sum_of(told, "ceto_streaming_received_bytes_total"), sum_of(told, "ceto_streaming_pulling")


# --- a node that is lost ---


def replacement():
    """One of three nodes is lost for good, with the given bytes of two copies; a new one takes its place and copies them."""
    with new_cluster(3) as cluster:
        fill(cluster, REPLACED_BYTES * 3 // 2, copies=2)
        lost = cluster.node(3)
        host, size = host_of(lost), data_bytes(lost)
        lost.remove()
        eventually("the others miss it", lambda: state_of(cluster, lost) == "DN")
        cluster.options += ["--replace-node-first-boot", host]
        began = time.monotonic()
        heir = cluster.nodes[2] = cluster._node(4)
        heir.start()
        eventually("the lost node has left", lambda: host not in cluster.node(1).nodetool("status"), MOVE_SECONDS)
        eventually("the new one is a full member", lambda: state_of(cluster, heir) == "UN", MOVE_SECONDS)
        seconds = time.monotonic() - began
        figure(f"a node with {size / 1e9:.2f} GB is replaced, from the start of the new one", seconds, "s")
        figure("that is", size / seconds / 1e6, "MB/s", least=REPLACED_MB_MIN)
        figure("bytes received for it, against what the lost node had", received(heir) / size, "times")


# --- repair ---


def repairs():
    """`nodetool repair` of two replicas on two nodes: equal, and with one row in a hundred newer on one of them."""
    with new_cluster(2, "--hinted-handoff-enabled", "false") as cluster:
        fill(cluster, REPAIRED_BYTES, copies=2)
        what = f"two replicas of {data_bytes(cluster.node(1)) / 1e9:.2f} GB"
        equal = [repair(cluster, "-full") for _ in range(REPAIRS)]
        differed = sum(differing for _, differing, _, _ in equal)
        figure(f"repair of {what} finds them equal", differed, "rows", most=0)
        seconds = statistics.median(seconds for seconds, *_ in equal)
        figure(f"repair of {what}, equal, median of {REPAIRS}", seconds, "s", most=REPAIR_SECONDS_MAX)
        figure("bytes sent and received for it", sum(equal[-1][2:]) / 1e6, "MB")
        repair(cluster)
        seconds, *_ = repair(cluster)
        figure(f"incremental repair of {what}, nothing is new", seconds, "s")

        rows = REPAIRED_BYTES // ROW_BYTES // DIFFERING_PART
        cluster.kill(2)
        eventually("the other misses it", lambda: state_of(cluster, cluster.node(2)) == "DN")
        write(cluster, rows, consistency="ONE", nodes=(1,))
        cluster.start(2)
        cluster.sees_itself_whole()
        settle(cluster)
        seconds, differing, sent, got = repair(cluster, "-full")
        figure(f"repair of {what}, one row in {DIFFERING_PART} newer on one", seconds, "s")
        figure("rows that it finds differing", differing, "rows", most=rows, least=rows)
        difference = rows * ROW_BYTES
        figure("bytes sent for it, against the difference", sent / difference, "times", most=SENT_OF_DIFFERENCE_MAX)
        both = (sent + got) / difference
        figure("bytes sent and received for it, against the difference", both, "times", most=SENT_OF_DIFFERENCE_MAX)
        _, differing, _, _ = repair(cluster, "-full")
        figure("rows that differ afterwards", differing, "rows", most=0)


def repair(cluster, *options):
    """Seconds, rows that differed, bytes sent and received."""
    began = time.monotonic()
    printed = cluster.node(1).nodetool("repair", *options, *TABLE.split("."))
    seconds = time.monotonic() - began
    _, _, differing, sent, got, _ = map(int, printed.strip().splitlines()[-1].split()[2:])
    return seconds, differing, sent, got


def continuous_repair():
    """What repairs take of the CPU of three nodes at a fixed rate of requests, when each range is due again as soon as it is repaired.

    What nodes do beside requests is counted, with repairs and without. All that they take differs by more from turn to turn than repairs can cost.
    """
    with new_cluster(3, "--auto-repair-threshold-default-in-seconds", "1") as cluster:
        fill(cluster, CONTINUOUS_BYTES, copies=3)
        loaded(cluster, 5.0)  # caches are warm
        costs, beside = {False: [], True: []}, {False: [], True: []}
        compared = 0
        for repairing in (turn for pair in range(CONTINUOUS_PAIRS) for turn in ((False, True), (True, False))[pair % 2]):
            switch_repairs(cluster, repairing)
            before, spent = rows_compared(cluster), beside_requests(cluster)
            cost, errors = loaded(cluster, CONTINUOUS_SECONDS)
            rows = rows_compared(cluster) - before
            part = (beside_requests(cluster) - spent) / (cost / 1e6 * 2 * CONTINUOUS_RATE * CONTINUOUS_SECONDS) * 100
            compared += rows
            costs[repairing].append(cost)
            beside[repairing].append(part)
            what = "repairing" if repairing else "no repairs"
            print(f"{what}: {cost:.1f} us/operation, {part:.1f} % beside requests, {rows:,.0f} rows compared, {errors} errors", flush=True)
    parts = [on - off for off, on in zip(beside[False], beside[True], strict=True)]
    same = [abs(one / other - 1) * 100 for one, other in itertools.pairwise(costs[False])]
    usual = statistics.median(costs[False])
    figure(f"CPU of three nodes at {2 * CONTINUOUS_RATE:,}/s, no repairs", usual, "us/operation")
    figure("neighbouring turns without repairs differ by, median", statistics.median(same), "%")
    figure("rows compared by continuous repair", compared, "rows", least=1)
    figure(f"CPU of continuous repair, of what the nodes take, median of {len(parts)}", statistics.median(parts), "%", most=CONTINUOUS_PERCENT_MAX)
    figure("the highest of them", max(parts), "%")
    totals = [(on / off - 1) * 100 for off, on in zip(costs[False], costs[True], strict=True)]
    figure("all CPU with repairs against all without, median", statistics.median(totals), "%")


def beside_requests(cluster):
    """CPU time that the nodes took for what is no request: on shards, and on the threads that flush, compact and sync."""
    groups = (pair for node in cluster for pair in node.metrics().items() if pair[0].startswith("ceto_group_run_seconds_total{"))
    background = sum(seconds for name, seconds in groups if 'group="background"' in name)
    return background + sum(total(node, "ceto_process_cpu_seconds_total") - total(node, "ceto_shard_cpu_seconds_total") for node in cluster)


def switch_repairs(cluster, repairing):
    """Has all nodes repair by themselves, or not, and waits until they do, or have ended."""
    for number in range(1, len(cluster.nodes) + 1):
        cluster.set_option(number, "auto_repair_enabled_default", "true" if repairing else "false")
    before = rows_compared(cluster)
    if repairing:
        eventually("repairs have begun", lambda: rows_compared(cluster) > before, 120)
    else:
        eventually("repairs have ended", lambda: not any(total(node, "ceto_repair_running") for node in cluster), 120)


def rows_compared(cluster):
    return sum(total(node, "ceto_repair_compared_rows_total") for node in cluster)


def loaded(cluster, seconds):
    """CPU time of all nodes for an operation, microseconds, and the errors of a load of a fixed number of operations at a fixed rate."""
    rows = CONTINUOUS_BYTES // ROW_BYTES
    count = str(round(seconds * CONTINUOUS_RATE))
    common = ["--no-populate", "--connections", "6", "--depth", "32", "--rate", str(CONTINUOUS_RATE), "--warm-up", "0"]
    before = sum(node.cpu_seconds() for node in cluster)
    with ThreadPoolExecutor(2) as loads:
        running = [
            loads.submit(cql_load, cluster, rows, "--workload", workload, *common, "--operations", count)
            for workload in ("read", "write")
        ]
        results = [each.result() for each in running]
    taken = sum(node.cpu_seconds() for node in cluster) - before
    operations = sum(result["operations"] for result in results)
    return taken / operations * 1e6, sum(sum(result["errors"].values()) for result in results)


# --- decisions ---


def decisions():
    """What large clusters cost a node, by the examples that make them up: what the balancer decides, and what each version of the metadata takes."""
    printed = example("topology", "balance", "balancing decisions")
    if printed is None:
        return
    slowest, memory = parse_decisions(printed)
    for nodes, most in DECISION_SECONDS_MAX.items():
        if nodes not in slowest:
            missing(f"balancing decisions, {nodes:,} nodes", "not printed")
            continue
        seconds, tablets, what = slowest[nodes]
        figure(f"slowest decision, {nodes:,} nodes, {tablets:,} tablets ({what})", seconds, "s", most=most)
    figure("memory of that process at most, maps included", memory, "MB", most=DECISION_MEMORY_MB_MAX)
    versions = "a version of the metadata behind a step of one tablet"
    if printed := example("coordinator", "versions", versions):
        tablets, ms = re.search(r"(\d+) tablets\n", printed), re.search(r"step of one tablet: ([\d.]+) ms", printed)
        figure(f"{versions}, {int(tablets[1]):,} tablets", float(ms[1]), "ms")


def example(crate, name, what):
    """What an example prints; None where it failed, which is told as the figure that is missing."""
    line = ["cargo", "run", "--quiet", "--profile", "bench-quick", "-p", crate, "--example", name]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    missing(what, f"{' '.join(line)} failed: {done.stderr[-300:]}")
    return None


def parse_decisions(printed):
    """By number of nodes the slowest decision: seconds, tablets, what was decided; and the most memory, MB."""
    slowest, memory = {}, 0
    nodes = tablets = None
    for line in printed.splitlines():
        if size := re.match(r"(\d+) nodes in .*?; \d+ tables, (\d+) tablets", line):
            nodes, tablets = int(size[1]), int(size[2])
        elif decided := re.match(r"  (.+?); all steps: ([\d.]+) s.*; limited: ([\d.]+) s.*memory at most (\d+) MB", line):
            seconds = max(float(decided[2]), float(decided[3]))
            slowest[nodes] = max(slowest.get(nodes, (0.0, 0, "")), (seconds, tablets, decided[1]))
            memory = max(memory, int(decided[4]))
    return slowest, memory


# --- what all need ---


def new_cluster(size, *options, repairs=False):
    return Cluster(size, memory="1G", options=options, repairs=repairs)


def fill(cluster, size, copies):
    """Make the table, write rows of so many bytes to it, and wait until they are in sstables and nothing is compacted."""
    keyspace, _ = TABLE.split(".")
    cluster.sees_itself_whole()
    with cql.cluster(cluster.node(1).server) as driver:
        session = driver.connect()
        replication = f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}"
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication} AND tablets = {{'initial': 32}}")
        # The load generator has the same bytes for all rows: they are stored as they come.
        session.execute(f'CREATE TABLE {TABLE} ("KEY" blob PRIMARY KEY, "C0" blob) WITH compression = {{\'enabled\': false}}')
    began = time.monotonic()
    write(cluster, size // ROW_BYTES, consistency="ALL")
    settle(cluster)
    print(f"{size / 1e9:.2f} GB in {copies} copies written and settled in {time.monotonic() - began:.0f} s", flush=True)


def write(cluster, rows, consistency, nodes=None):
    """Each of so many rows once."""
    load = ["--workload", "read", "--connections", "6", "--depth", "32", "--operations", "1", "--warm-up", "0"]
    cql_load(cluster, rows, *load, "--consistency", consistency, nodes=nodes)


def settle(cluster):
    for node in cluster:
        if node.alive:
            node.nodetool("flush")
    for node in cluster:
        if node.alive:
            eventually("compactions end", lambda node=node: total(node, "ceto_compactions") == 0, MOVE_SECONDS)


def cql_load(cluster, rows, *options, nodes=None):
    """One run of the load generator on the table; its report."""
    asked = [cluster.node(number) for number in nodes] if nodes else [node for node in cluster if node.alive]
    connect = ",".join(f"{node.host}:{node.port}" for node in asked)
    table = ["--table", TABLE, "--partitions", str(rows), "--columns", "1", "--value-bytes", str(ROW_BYTES)]
    result, _ = perf("cql", "--connect", connect, *table, *options)
    return result


def data_bytes(node):
    """Bytes of the sstables of the table."""
    keyspace, table = TABLE.split(".")
    return sum(path.stat().st_size for path in node.workdir.glob(f"data/{keyspace}/{table}-*/*-Data.db"))


def total(node, metric):
    """A metric of all shards of a node."""
    return sum_of(node.metrics(), metric)


def sum_of(told, metric):
    return sum(value for name, value in told.items() if name.partition("{")[0] == metric)
