"""docs/limits.md and the node say the same: at the figure of a row a statement is taken, and beyond it refused with the row's error.

Figures and errors are read from the page. A row that a client cannot reach cheaply names the test that does, or why none does.
"""

import re

import pytest

from harness import Node, NodeFailed, cql, wire
from harness.tables import ROOT, rows

pytestmark = pytest.mark.ceto_only("the page of ceto")

PAGE = "docs/limits.md"
MEBIBYTE = 1 << 20
REPLICATION = "WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': %d}"
LIMITS = {next(iter(row.values())): row for row in rows(PAGE)}

# Rows that tests of this file reach, by test.
TRIED = {
    "test_the_longest_request": "one request (a frame, with all its values)",
    "test_the_largest_write": "what a statement writes in one partition, or a logged batch on one shard",
    "test_the_most_values": "values of a statement",
    "test_keys_of_one_in": "keys named by one IN",
    "test_ranges_of_a_read": "ranges of rows that a SELECT names by IN in all its partitions",
    "test_rows_of_a_write": "rows that a write names by IN in several partitions",
    "test_bytes_of_a_write": "bytes that a write packs for the rows that its IN relations name, all statements of a batch together",
    "test_nesting_of_expressions": "nesting of a statement's expressions",
    "test_types_in_a_type": "types in a type",
    "test_names_of_columns_and_types": "name of a column, type, field or function",
    "test_copies": "copies in a datacenter",
    "test_combinations": "combinations of the values of several `IN`, or of one and values of other columns",
    "test_patterns": "pattern of `LIKE`",
    "test_names_of_keyspaces": "name of a keyspace",
    "test_names_of_tables": "name of a table",
    "test_columns": "columns of a table, dropped ones included",
    "test_dimensions": "dimensions of a vector",
    "test_partition_keys": "partition key, serialised",
    "test_clustering_columns": "clustering columns of a row, together",
    "test_ttl": "TTL",
    "test_the_largest_batch": "bytes of a batch over several partitions, counted as Cassandra counts them",
    "test_the_longest_page": "a page",
    "test_time_of_functions": "time of one call of a user-defined function",
    "test_memory_of_functions": "memory of one call of a user-defined function",
    "test_sources_of_functions": "bytes of the source of a user-defined function",
    "test_connections": "CQL connections",
    "test_counted_partitions": "partitions that `toppartitions` counts",
}

# Rows that other tests reach, by words of theirs.
ELSEWHERE = {
    "tablets of a table": ("server/test_impossible_options.py", "TABLETS_PER_SHARD_MAX = 1_024"),
    "tombstones that a page meets": ("durability/test_tombstone_limits.py", "query_tombstone_page_limit"),
    "tombstones that a read without pages meets, or one that has not found a row for its page": (
        "durability/test_tombstone_limits.py", "tombstone_failure_threshold",
    ),
    "a result without pages": ("server/test_guardrails.py", "larger than the"),
    "answers that all clients of a shard have not read": ("server/test_storms.py", "SO_RCVBUF"),
    "connections of a shard that are not ready yet": ("server/test_storms.py", "UNINITIALIZED_MAX = 4096"),
    "shards": ("binary/test_pages.py", '"smp"'),
    "memory": ("binary/test_pages.py", '"memory"'),
    "data directories": ("binary/test_pages.py", '"data_file_directories"'),
    "metadata voters": ("cluster/test_cluster_tables.py", "voters"),
    "hints": ("cluster/test_hints.py", "setmaxhintwindow"),
    "memtables": ("durability/test_memory.py", "test_memory_holds_while_more_is_written"),
    "compactions that are remembered": ("server/test_operator_tools.py", "compactionhistory"),
    "elements of a collection": ("server/test_large.py", "test_large_collections"),
    "digits of a varint or decimal in arithmetic, aggregates, functions of numbers and CAST to another number": (
        "server/test_impossible_options.py", "LONGEST_NUMBER = 10_000",
    ),
    "one value": ("server/test_large.py", "test_a_request_of_many_megabytes"),
    "a partition": ("server/test_large.py", "large_partition"),
}  # fmt: skip

NOT_TRIED = {
    "statements of a batch": "the protocol has no room for more",
    "requests at work on one connection": "what does not happen cannot be seen from outside",
    "statements prepared on a node": "unit tests have small caches; 10,001 statements take too long here",
    "answers that a client has not read": "what does not happen cannot be seen from outside",
    "results of a shard that are being made": "figures of memory, which unit tests and the simulator have",
    "time of a scan, filter or aggregate": "a time",
    "tables": "none",
    "write timestamp": "none",
    "precision of the clock that orders writes": "none",
    "chunk cache and row cache": "figures of memory",
    "requests that wait or run": "figures of memory",
    "requests that arrive and are longer than a connection's read buffer (2 KiB, 16 KiB once filled)": "figures of memory",
    "time of such a request to arrive": "a time",
    "read buffers of 16 KiB": "figures of memory",
    "HTTP connections of a port": "unit tests of `admin` have it",
    "time of an HTTP request to arrive; bodies of all requests together": "a time",
    "connections of peers that have not identified themselves": "unit tests of `rpc` have it",
    "open files": "the limit of the process",
    "commitlog": "figures of memory",
    "nodes that are new at one time": "takes seventeen nodes",
    "clocks": "takes wrong clocks: the simulator has them",
}


def numbers(count, start=0):
    return ", ".join(map(str, range(start, start + count)))


def figures(row):
    """The figures of a limit, in order: numbers, and sizes in bytes."""
    found = re.findall(r"(\d[\d,]*)(?: (MiB))?", LIMITS[row]["limit"])
    return [int(number.replace(",", "")) * (MEBIBYTE if unit else 1) for number, unit in found]


def error_of_page(row):
    """The code of a row, and the words it has of the message; `…` stands for anything."""
    text = LIMITS[row]["beyond it"]
    words = [".*".join(re.escape(part) for part in quoted.split("…")) for quoted in re.findall(r"\*([^*]+)\*", text)]
    return int(re.search(r"\b([12]\d00)\b", text)[1], 16), words


@pytest.fixture
def limit(session):
    """limit(row): its figures, and `taken`, `beyond`, which try a statement."""
    return lambda row: Limit(session, row)


class Limit:
    def __init__(self, session, row):
        self.session, self.row = session, row
        self.figures = figures(row)

    def taken(self, statement, parameters=None):
        self.session.execute(statement, parameters)

    def beyond(self, statement, parameters=None, words=0):
        """Refused as the row says, with the message of those that it has at this place; the message."""
        code, messages = error_of_page(self.row)
        got, said = cql.refusal(self.session, statement, parameters)
        assert got == code, f"{got:x}, not {code:x}: {said}"
        if messages:
            assert re.search(messages[words], said), f"{said!r} does not say {messages[words]!r}"
        return said


@pytest.fixture(scope="module")
def names(session):
    made = {key: cql.unique("limits") for key in ("one", "two", "blobs", "text")}
    session.execute(f"CREATE TABLE {made['one']} (k int, c int, e int, v blob, PRIMARY KEY (k, c, e))")
    session.execute(f"CREATE TABLE {made['two']} (k int, k2 int, PRIMARY KEY ((k, k2)))")
    session.execute(f"CREATE TABLE {made['blobs']} (k blob, c blob, v int, PRIMARY KEY (k, c))")
    session.execute(f"CREATE TABLE {made['text']} (k int PRIMARY KEY, v text)")
    yield made
    for name in made.values():
        session.execute(f"DROP TABLE {name}")


def test_every_row_is_tried_or_says_where_it_is():
    tried = set(TRIED.values())
    assert not (twice := [row for row in LIMITS if (row in tried) + (row in ELSEWHERE) + (row in NOT_TRIED) != 1]), twice
    assert not (gone := (tried | ELSEWHERE.keys() | NOT_TRIED.keys()) - LIMITS.keys()), gone
    for row, (test, words) in ELSEWHERE.items():
        assert words in (ROOT / "tests" / test).read_text(), f"{row}: {test} has no {words!r}"
    assert TRIED.keys() <= globals().keys()


def row_of(request):
    return TRIED[request.node.originalname]


@pytest.fixture
def here(request, limit):
    """The limit that this test is about."""
    return limit(row_of(request))


def test_the_longest_request(here, names):
    (size,) = here.figures
    short = f"SELECT k FROM {names['one']} LIMIT 1 /*%s*/"
    here.taken(short % ("x" * (size - 1000)))
    here.beyond(short % ("x" * size))
    here.taken(short % "the connection stays")


def test_the_largest_write(here, names):
    half, whole = here.figures
    assert whole == 2 * half
    update = f"UPDATE {names['one']} SET v = %s WHERE k = 1 AND e = 1 AND c IN "
    rows = half // MEBIBYTE
    here.taken(f"{update} ({numbers(rows - 1)})", (bytes(MEBIBYTE),))
    assert str(half) in here.beyond(f"{update} ({numbers(rows)})", (bytes(MEBIBYTE),))
    # Each shard of two has more than half of a segment of this, and no partition has.
    several = f"UPDATE {names['one']} SET v = %s WHERE e = 1 AND c = 1 AND k IN ({numbers(4 * rows)})"
    here.taken(several, (bytes(MEBIBYTE),))
    written = here.session.execute(f"SELECT k FROM {names['one']} WHERE e = 1 AND c = 1 ALLOW FILTERING")
    assert {row.k for row in written} >= set(range(4 * rows))


def test_the_largest_batch(here, names):
    (most,) = here.figures
    batch = f"BEGIN BATCH INSERT INTO {names['one']} (k, c, e, v) VALUES (1, 1, 1, %s); DELETE FROM {names['one']} WHERE k = 2; APPLY BATCH"
    here.taken(batch, (bytes(most - 1000),))
    here.beyond(batch, (bytes(most),))


def test_the_longest_page(here, names, session):
    [most] = here.figures
    update = session.prepare(f"UPDATE {names['one']} SET v = ? WHERE k = 3 AND c = ? AND e = 1")
    for c in range(24):
        session.execute(update, (bytes(most // 16), c))
    page = session.execute(f"SELECT v FROM {names['one']} WHERE k = 3")
    sizes = [len(row.v) for row in page.current_rows]
    assert sum(sizes) <= most + sizes[-1] and sum(sizes) >= most - sizes[-1] and page.has_more_pages, f"{len(sizes)} rows in a page"


def test_the_most_values(here, names, session):
    (most,) = here.figures
    select = f"SELECT k FROM {names['one']} WHERE k IN ("
    assert len(session.prepare(select + ",".join("?" * (most + 1)) + ")").column_metadata) == most + 1, "it is prepared"
    # A short query does with all of them: half of the values are of other columns.
    every = session.prepare(f"SELECT k FROM {names['one']} WHERE k = ? AND c IN (" + ",".join("?" * (most - 1)) + ")")
    assert list(session.execute(every, [0] * most)) == []


def test_keys_of_one_in(here, names, limit):
    assert LIMITS[here.row]["limit"] == "none"
    several = limit(TRIED["test_combinations"]).figures[0]
    here.taken(f"SELECT k FROM {names['one']} WHERE k IN ({', '.join(['1'] * (several + 1))})")


def test_ranges_of_a_read(here, names):
    (most,) = here.figures
    clustering = 50_000
    said = here.beyond(f"SELECT k FROM {names['one']} WHERE k IN ({numbers(most // clustering + 1)}) AND c IN ({numbers(clustering)})")
    assert f"at most {most} are allowed" in said


def test_rows_of_a_write(here, names):
    (most,) = here.figures
    clustering = 50_000
    said = here.beyond(f"DELETE FROM {names['one']} WHERE k IN ({numbers(most // clustering + 1)}) AND c IN ({numbers(clustering)}) AND e = 1")
    assert f"at most {most} are allowed" in said


def test_bytes_of_a_write(here, names):
    (most,) = here.figures
    partitions = 32
    rows = most // MEBIBYTE // partitions + 1
    said = here.beyond(
        f"UPDATE {names['one']} SET v = %s WHERE k IN ({numbers(partitions)}) AND e = 1 AND c IN ({numbers(rows)})", (bytes(MEBIBYTE),)
    )
    assert f"more than {most} bytes" in said


def test_nesting_of_expressions(here):
    (deep,) = here.figures

    # The selector itself is one level.
    def nested(levels):
        return "SELECT " + "(" * (levels - 1) + "1" + ")" * (levels - 1)

    here.taken(nested(deep))
    here.beyond(nested(deep + 1))


def test_types_in_a_type(here):
    deep, many = here.figures
    name = cql.unique("typed")
    table = f"CREATE TABLE {name} (k int PRIMARY KEY, v %s)"

    def nested(levels):
        return "tuple<" * (levels - 1) + "int" + ">" * (levels - 1)

    def wide(types):
        return f"tuple<{', '.join(['int'] * (types - 1))}>"

    for of_figure, kind in ((deep, nested), (many, wide)):
        here.taken(table % kind(of_figure))
        here.taken(f"DROP TABLE {name}")
        here.beyond(table % kind(of_figure + 1))


def test_names_of_columns_and_types(here):
    (longest,) = here.figures
    name = cql.unique("named")
    for long, attempt in ((longest, here.taken), (longest + 1, here.beyond)):
        attempt(f"CREATE TABLE {name} (k int PRIMARY KEY, {'c' * long} int)")
        attempt(f"CREATE TYPE {'t' * long} (a int)")
        attempt(f"CREATE TYPE {name}_f (a int, {'f' * long} int)")
    here.taken(f"DROP TABLE {name}")
    here.taken(f"DROP TYPE {'t' * longest}")
    here.taken(f"DROP TYPE {name}_f")


def test_copies(here):
    (most,) = here.figures
    name = cql.unique("copies")
    here.taken(f"CREATE KEYSPACE {name} {REPLICATION % most}")
    here.taken(f"DROP KEYSPACE {name}")
    here.beyond(f"CREATE KEYSPACE {name} {REPLICATION % (most + 1)}")
    here.beyond(f"CREATE KEYSPACE {name} {REPLICATION % 0}")


def test_combinations(here, names):
    of_partition, of_clustering, _ = here.figures
    for most, where in ((of_partition, f"{names['two']} WHERE k IN (%s) AND k2 IN (%s)"), (of_clustering, f"{names['one']} WHERE k = 1 AND c IN (%s) AND e IN (%s)")):
        select = f"SELECT k FROM {where}"
        # All the same: they are counted, and read once.
        here.taken(select % (numbers(most // 100), numbers(100)))
        assert f"at most {most} are allowed" in here.beyond(select % (numbers(most // 100 + 1), numbers(100)))


def test_patterns(here, names):
    (longest,) = here.figures
    here.taken(f"SELECT k FROM {names['text']} WHERE v LIKE '{'%' * longest}' ALLOW FILTERING")
    here.beyond(f"SELECT k FROM {names['text']} WHERE v LIKE '{'%' * (longest + 1)}' ALLOW FILTERING")


def test_names_of_keyspaces(here):
    (longest,) = here.figures
    name = cql.unique("ks").ljust(longest, "k")
    here.taken(f"CREATE KEYSPACE {name} {REPLICATION % 1}")
    here.taken(f"DROP KEYSPACE {name}")
    here.beyond(f"CREATE KEYSPACE {name}k {REPLICATION % 1}")
    here.beyond(f'CREATE KEYSPACE "{name[:5]}-" {REPLICATION % 1}')


def test_names_of_tables(here):
    (longest,) = here.figures
    name = cql.unique("t").ljust(longest, "t")
    here.taken(f"CREATE TABLE {name} (k int PRIMARY KEY)")
    here.taken(f"DROP TABLE {name}")
    here.beyond(f"CREATE TABLE {name}t (k int PRIMARY KEY)")
    here.beyond(f'CREATE TABLE "{name[:5]}-" (k int PRIMARY KEY)')


def test_columns(here):
    (most,) = here.figures
    name = cql.unique("wide")
    table = f"CREATE TABLE {name} (k int PRIMARY KEY, %s)"
    here.beyond(table % ", ".join(f"c{number} int" for number in range(most)))
    here.taken(table % ", ".join(f"c{number} int" for number in range(most - 2)))
    here.taken(f"ALTER TABLE {name} ADD last int")
    here.beyond(f"ALTER TABLE {name} ADD more int", words=1)
    here.taken(f"ALTER TABLE {name} DROP last")
    here.beyond(f"ALTER TABLE {name} ADD more int", words=1)
    here.taken(f"DROP TABLE {name}")


def test_dimensions(here):
    (most,) = here.figures
    name = cql.unique("vector")
    here.taken(f"CREATE TABLE {name} (k int PRIMARY KEY, v vector<float, {most}>)")
    here.taken(f"DROP TABLE {name}")
    here.beyond(f"CREATE TABLE {name} (k int PRIMARY KEY, v vector<float, {most + 1}>)")


def test_partition_keys(here, names, session):
    least, most = here.figures
    insert = session.prepare(f"INSERT INTO {names['blobs']} (k, c) VALUES (?, 0x00)")
    here.taken(insert, (bytes(least),))
    here.taken(insert, (bytes(most),))
    assert str(most) in here.beyond(insert, (bytes(most + 1),))
    here.beyond(insert, (b"",), words=1)


def test_clustering_columns(here, names, session):
    (most,) = here.figures
    insert = session.prepare(f"INSERT INTO {names['blobs']} (k, c) VALUES (0x00, ?)")
    here.taken(insert, (bytes(most),))
    here.beyond(insert, (bytes(most + 1),))


def test_ttl(here, names):
    seconds, last = here.figures[0], re.search(r"(\d{4}-\d\d-\d\d) ([\d:]{8}) UTC", LIMITS[here.row]["limit"])
    insert = f"INSERT INTO {names['one']} (k, c, e) VALUES (1, 1, 1) USING TTL"
    assert str(seconds) in here.beyond(f"{insert} {seconds + 1}")
    assert f"{last[1]}T{last[2]}" in here.beyond(f"{insert} {seconds}")


def test_counted_partitions(here, node, keyspace, names):
    (most,) = here.figures
    count = ["toppartitions", keyspace, names["one"], "1", "-s"]
    assert f"({most} capacity)" in node.nodetool(*count, str(most))
    with pytest.raises(NodeFailed, match=f"from 1 to {most}"):
        node.nodetool(*count, str(most + 1))
    with pytest.raises(NodeFailed, match="from 1 to 3600000"):
        node.nodetool("toppartitions", keyspace, names["one"], "3600001")


@pytest.fixture(scope="module")
def functions(pytestconfig):
    """A session at a node that takes functions, and few connections besides those of a driver."""
    options = ["--user-defined-functions-enabled", "1"]
    with Node(smp=1, options=options, runtime=pytestconfig.getoption("--runtime")) as node, cql.cluster(node) as cluster:
        session = cluster.connect()
        session.execute(f"CREATE KEYSPACE f {REPLICATION % 1}")
        session.set_keyspace("f")
        yield session


@pytest.fixture
def of_functions(request, functions):
    return Limit(functions, row_of(request))


def function(name, body):
    return f"CREATE FUNCTION {name} (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS '{body}'"


def test_time_of_functions(of_functions):
    of_functions.taken(function("long", "while true do end"))
    of_functions.beyond("SELECT long(1)")


def test_memory_of_functions(of_functions):
    (most, *_) = of_functions.figures
    of_functions.taken(function("large", "return #string.rep(\'\'x\'\', a)"))
    of_functions.taken(f"SELECT large({most // 2})")
    of_functions.beyond(f"SELECT large({most})")


def test_sources_of_functions(of_functions):
    (most,) = of_functions.figures
    body = "return a --"
    of_functions.taken(function("longest", body.ljust(most, "-")))
    of_functions.beyond(function("longer", body.ljust(most + 1, "-")))


def test_connections(new_node, request):
    [option, *_] = re.findall(r"`(\w+)`", LIMITS[row_of(request)]["limit"])
    node = new_node(smp=1, options=[f"--{option.replace('_', '-')}", "2"]).start()
    startup = wire.string_map({"CQL_VERSION": "3.0.0"})
    with wire.Connection(node.server) as first, wire.Connection(node.server) as second:
        assert {each.ask(wire.STARTUP, startup).opcode for each in (first, second)} == {wire.READY}
        with wire.Connection(node.server) as third, pytest.raises(wire.Closed):
            third.recv()
        assert first.ask(wire.OPTIONS).opcode == wire.SUPPORTED
