"""Drivers read whole results, by each of their ways: after more tombstones than a page reads over, over pages that a filter empties, and when a table
or a type is altered between the preparation of a statement and its execution.

Each program reads commands from stdin, one a line, and answers each with a line of JSON, or with `failed` and the error:

    read ROWS STATEMENT     the rows of a statement in pages of ROWS, by each way: {"whole": {way: rows}, "page": {way: rows}, "first": {way: row}}
    prepare STATEMENT
    execute ROWS            as `read`, of the prepared statement
    insert KEY FIELD…       execute the prepared INSERT of a key and a value of a user-defined type, whose fields have their own names as values;
                            fields that the driver does not know of are left out

A way of `whole` reads all pages, one of `page` the first page alone, one of `first` the first row alone. A row is an object of its columns.

CI runs the Python driver; `./dev drivers results` runs all of them.
"""

import json
import subprocess
from pathlib import Path

import pytest

from drivers.python.results import Python
from harness import Node, cql
from harness.cluster import eventually

HERE = Path(__file__).parent
BUILD_SECONDS = 1200
KEYSPACE = "whole"
TOMBSTONES = 25_000
# Keys begin at 1: the Go driver reads null as 0.
FIRST, LAST = 1, TOMBSTONES + 2
BATCH_ROWS = 100
FILTERED = 1_000
# The keys of the rows that the filter lets through.
FOUND = [FILTERED // 2, FILTERED]
MAVEN = ["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"]
JAVA = ["sh", "-c", 'exec java -cp "target/classes:$(cat target/classpath)" Results "$@"', "java"]
# Where each is, and how it is built and run.
PROGRAMS = {
    "java": ("java", MAVEN, JAVA),
    "java3": ("java3", MAVEN, JAVA),
    "node": ("node", ["npm", "install", "--silent", "--no-audit", "--no-package-lock"], ["node", "results.js"]),
    "go1": ("go", ["go", "build", "-tags", "gocql1", "-o", "target/results1", "./results"], ["target/results1"]),
    "go2": ("go", ["go", "build", "-o", "target/results2", "./results"], ["target/results2"]),
    "rust": ("rust", ["cargo", "build", "--quiet", "--release", "--bin", "results"], ["target/release/results"]),
}
# Each driver with the versions of the protocol that it has.
DRIVERS = [("python", 4), ("python", 5), ("java", 4), ("java", 5), ("java3", 4), ("node", 4), ("go1", 4), ("go2", 4), ("go2", 5), ("rust", 4)]
# They encode values again when a node makes them prepare again; the others keep the types that a statement was first prepared with.
ENCODE_AGAIN = {"node", "go1", "go2"}


class Program:
    """A driver in a process of its own."""

    def __init__(self, name, server, version):
        directory, build, run = PROGRAMS[name]
        built = subprocess.run(build, cwd=HERE / directory, capture_output=True, text=True, timeout=BUILD_SECONDS)
        assert built.returncode == 0, f"{name}: {built.stdout[-3000:]}\n{built.stderr[-3000:]}"
        self._process = subprocess.Popen(
            [*run, server.host, str(server.port), str(version)], cwd=HERE / directory, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, *words):
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = next((line for line in self._process.stdout if line.startswith(("{", "failed"))), None)
        assert line is not None, "the driver ended"
        assert not line.startswith("failed"), line
        return json.loads(line)

    def end(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def server(pytestconfig):
    """A node that ends pages early at rows that a filter leaves out; the limit of tombstones is the default."""
    with Node(smp=2, runtime=pytestconfig.getoption("--runtime"), options=["--query-rejected-rows-page-limit", "100"]) as node:
        yield node.server


@pytest.fixture(scope="module")
def session(server):
    """The Python driver apart from the one that is tested: it writes and alters."""
    driver = cql.cluster(server)
    session = driver.connect()
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}")
    session.set_keyspace(KEYSPACE)
    yield session
    driver.shutdown()


@pytest.fixture(scope="module", params=DRIVERS, ids=lambda driver: "{}-{}".format(*driver))
def driver(request, session, server):
    name, version = request.param
    driver = Python(server, version) if name == "python" else Program(name, server, version)
    driver.name = name
    yield driver
    driver.end()


def comparable(row):
    """The row without null fields of its values: some drivers leave out the fields that a value was written without."""
    return row and {name: without_nulls(value) if isinstance(value, dict) else value for name, value in row.items()}


def without_nulls(fields):
    return {name: value for name, value in fields.items() if value is not None}


def reads(answer, rows):
    """Check that each way has read these rows, or as much of them as it promises."""
    whole, page = ({way: [*map(comparable, read)] for way, read in answer.get(part, {}).items()} for part in ("whole", "page"))
    first = {way: comparable(row) for way, row in answer.get("first", {}).items()}
    assert whole
    assert whole == dict.fromkeys(whole, rows)
    assert first == dict.fromkeys(first, rows[0] if rows else None)
    for way, read in page.items():
        assert read == rows[: len(read)] and bool(read) == bool(rows), (way, read)


@pytest.fixture(scope="module")
def tables(session):
    """Partitions of `deleted`: row tombstones and then a row; a row, row tombstones and a row; row tombstones alone."""
    session.execute("CREATE TABLE deleted (p int, c int, PRIMARY KEY (p, c))")
    delete = session.prepare(f"BEGIN UNLOGGED BATCH {'DELETE FROM deleted WHERE p = ? AND c = ?;' * BATCH_ROWS} APPLY BATCH")
    for p in (1, 2, 3):
        for first in range(FIRST + 1, LAST, BATCH_ROWS):
            session.execute(delete, [value for c in range(first, first + BATCH_ROWS) for value in (p, c)])
    for p, c in [(1, LAST), (2, FIRST), (2, LAST)]:
        session.execute(f"INSERT INTO deleted (p, c) VALUES ({p}, {c})")
    session.execute("CREATE TABLE filtered (p int, c int, v int, PRIMARY KEY (p, c))")
    for c in range(1, FILTERED + 1):
        session.execute(f"INSERT INTO filtered (p, c, v) VALUES (1, {c}, {1 if c in FOUND else 2})")


BETWEEN = [{"p": 2, "c": FIRST}, {"p": 2, "c": LAST}]
# What is read: a statement, the rows of a page, and the rows of the result.
READS = {
    "tombstones and a row": ("SELECT * FROM deleted WHERE p = 1", 5000, [{"p": 1, "c": LAST}]),
    "tombstones and a row, by small pages": ("SELECT * FROM deleted WHERE p = 1", 1, [{"p": 1, "c": LAST}]),
    "tombstones between rows": ("SELECT * FROM deleted WHERE p = 2", 5000, BETWEEN),
    "tombstones between pages": ("SELECT * FROM deleted WHERE p = 2", 1, BETWEEN),
    "tombstones alone": ("SELECT * FROM deleted WHERE p = 3", 5000, []),
    "tombstones of the whole table": ("SELECT * FROM deleted", 5000, [{"p": 1, "c": LAST}, *BETWEEN]),
    "pages that a filter empties": (
        "SELECT c FROM filtered WHERE v = 1 ALLOW FILTERING",
        50,
        [{"c": c} for c in FOUND],
    ),
    "an end at the end of a page": ("SELECT c FROM filtered WHERE p = 1 AND c <= 10", 5, [{"c": c} for c in range(1, 11)]),
    "nothing": ("SELECT * FROM filtered WHERE p = 2", 5, []),
}


@pytest.mark.parametrize("what", READS)
def test_a_driver_reads_all_rows(driver, tables, what):
    statement, page_rows, rows = READS[what]
    statement = statement.replace("FROM ", f"FROM {KEYSPACE}.")
    reads(driver.ask("read", page_rows, statement), rows)
    driver.ask("prepare", statement)
    reads(driver.ask("execute", page_rows), rows)


PAGES = [1, 5000]


@pytest.mark.parametrize("page_rows", PAGES)
def test_a_driver_reads_a_column_that_was_added(driver, session, page_rows):
    name = cql.unique("added")
    session.execute(f"CREATE TABLE {name} (p int, c int, v text, PRIMARY KEY (p, c))")
    for c in (1, 2, 3):
        session.execute(f"INSERT INTO {name} (p, c, v) VALUES (1, {c}, 'v')")
    driver.ask("prepare", f"SELECT * FROM {KEYSPACE}.{name}")
    # Before other columns of the result, so that old metadata would give it to another column.
    session.execute(f"ALTER TABLE {name} ADD a int")
    session.execute(f"UPDATE {name} SET a = 7 WHERE p = 1 AND c = 2")
    reads(driver.ask("execute", page_rows), [{"p": 1, "c": c, "a": 7 if c == 2 else None, "v": "v"} for c in (1, 2, 3)])


@pytest.mark.parametrize("page_rows", PAGES)
def test_a_driver_reads_what_is_left_by_a_column_that_was_dropped(driver, session, page_rows):
    name = cql.unique("dropped")
    session.execute(f"CREATE TABLE {name} (p int, c int, a int, v text, PRIMARY KEY (p, c))")
    for c in (1, 2, 3):
        session.execute(f"INSERT INTO {name} (p, c, a, v) VALUES (1, {c}, 7, 'v')")
    driver.ask("prepare", f"SELECT * FROM {KEYSPACE}.{name}")
    session.execute(f"ALTER TABLE {name} DROP a")
    reads(driver.ask("execute", page_rows), [{"p": 1, "c": c, "v": "v"} for c in (1, 2, 3)])


@pytest.fixture
def altered_type(session):
    """A type of one field, and a table whose column v has it."""
    udt, name = cql.unique("address"), cql.unique("typed")
    session.execute(f"CREATE TYPE {udt} (street text)")
    session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v frozen<{udt}>)")
    return udt, name


@pytest.mark.parametrize("page_rows", PAGES)
def test_a_driver_reads_a_field_that_was_added(driver, session, altered_type, page_rows):
    udt, name = altered_type
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, {{street: 'street'}})")
    driver.ask("prepare", f"SELECT k, v FROM {KEYSPACE}.{name}")
    session.execute(f"ALTER TYPE {udt} ADD city text")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (2, {{street: 'street', city: 'city'}})")
    reads(driver.ask("execute", page_rows), [{"k": 1, "v": {"street": "street"}}, {"k": 2, "v": {"street": "street", "city": "city"}}])


def test_a_driver_writes_a_value_of_a_type_that_was_altered(driver, session, altered_type):
    udt, name = altered_type
    insert = f"INSERT INTO {KEYSPACE}.{name} (k, v) VALUES (?, ?)"

    def stored(key):
        return session.execute(f"SELECT v.street, v.city FROM {name} WHERE k = {key}").one()

    driver.ask("prepare", insert)
    driver.ask("insert", 1, "street")
    session.execute(f"ALTER TYPE {udt} ADD city text")
    driver.ask("insert", 2, "street", "city")
    driver.ask("insert", 3, "street")
    assert stored(1) == stored(3) == ("street", None)
    assert stored(2) == ("street", "city" if driver.name in ENCODE_AGAIN else None)

    def writes_the_new_field():
        driver.ask("prepare", insert)
        driver.ask("insert", 4, "street", "city")
        return stored(4) == ("street", "city")

    eventually("the driver knows the new field once it has prepared again", writes_the_new_field)
