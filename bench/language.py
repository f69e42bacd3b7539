"""What statements cost: preparing them, scans of whole tables, and one more table among thousands."""

import statistics
import time

from figures import figure, perf  # first: it says where the harness is

from harness import Node, cql

ROWS_OF_A_PARTITION = 100  # of `ceto perf simple-query --scan`
TABLES, TABLES_TIMED = 5_000, 50


def language():
    simple_query = ["simple-query", "--smp", "1", "--concurrency", "100", "--duration", "5"]
    rate = perf(*simple_query, "--partitions", "100", "--prepare")[0]["stats"]["median tps"]
    figure("statements parsed and prepared, one shard", rate, "/s", least=300_000)
    for scan, what in (("count", "count(*)"), ("group", "GROUP BY the partition key"), ("filter", "a filter that nothing passes")):
        least = 2_000_000 if scan != "count" else None
        figure(f"{what}, one shard", _scanned(scan, "1", 10_000) / 1e6, "million rows/s", least=least and least / 1e6)
    rows = 10_000_000
    figure("count(*) of 10 million rows, two shards", rows / _scanned("count", "2", rows // ROWS_OF_A_PARTITION), "s", most=3)
    _tables()


def _scanned(scan, shards, partitions):
    """Rows per second that scans go through, over all shards."""
    options = ["--smp", shards, "--memory", "6G", "--concurrency", "1", "--operations", "4" if shards == "1" else "6"]
    result, _ = perf("simple-query", *options, "--partitions", str(partitions), "--scan", scan)
    return result["stats"]["median tps"] * partitions * ROWS_OF_A_PARTITION


def _tables():
    """Clients' CREATE TABLE, and what an idle table takes on its node."""
    with Node(smp=2) as node:
        # A driver that reads the schema anew after each change would be measured with it.
        with cql.cluster(node.server, schema_metadata_enabled=False, token_metadata_enabled=False) as driver:
            session = driver.connect()
            session.execute("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
            seconds, before = [], node.resident_bytes()
            for number in range(TABLES):
                began = time.perf_counter()
                session.execute(f"CREATE TABLE k.t{number} (k int PRIMARY KEY, a int, b text, c text, d text)")
                seconds.append(time.perf_counter() - began)
            figure(f"CREATE TABLE, median of the last {TABLES_TIMED} of {TABLES:,}", statistics.median(seconds[-TABLES_TIMED:]) * 1e3, "ms", most=50)
            figure("an idle table", (node.resident_bytes() - before) / TABLES / 1e3, "kB", most=30)
