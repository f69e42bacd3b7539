"""cqlsh from PyPI, as a person uses it."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cql

SECONDS = 60


@pytest.fixture
def cqlsh(server, keyspace, tmp_path):
    """cqlsh("statement", ...) runs cqlsh -e in the keyspace of the tests and returns what it prints."""

    def run(statement, expect_failure=False):
        done = subprocess.run(
            [Path(sys.executable).parent / "cqlsh", server.host, str(server.port), "-k", keyspace, "-e", statement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=os.environ | {"HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"},
        )
        if expect_failure:
            assert done.returncode != 0, f"cqlsh accepted it: {done.stdout}"
            return done.stderr
        assert done.returncode == 0, f"cqlsh failed: {done.stdout}\n{done.stderr}"
        # cqlsh greets a server of another version than its own with a warning.
        lines = [line for line in done.stdout.splitlines() if not line.startswith("WARNING: cqlsh was built")]
        return "\n".join(lines).strip("\n")

    return run


def test_describe_keyspaces(cqlsh, keyspace):
    described = cqlsh("DESCRIBE KEYSPACES").split()
    assert {keyspace, "system", "system_schema"} <= set(described)


def test_describe_keyspace_and_tables(cqlsh, keyspace, table):
    name = table("k int PRIMARY KEY")
    described = cqlsh(f"DESCRIBE KEYSPACE {keyspace}")
    assert f"CREATE KEYSPACE {keyspace} WITH replication = " in described
    assert f"CREATE TABLE {keyspace}.{name} (" in described
    assert name in cqlsh("DESCRIBE TABLES").split()


def test_describe_table_prints_a_statement_that_makes_it_again(cqlsh, session, keyspace, table):
    name = table(
        "a int, b text, c int, s text static, v map<text, frozen<list<int>>>, PRIMARY KEY ((a, b), c)",
        " WITH CLUSTERING ORDER BY (c DESC) AND comment = 'it''s mine' AND gc_grace_seconds = 99",
    )
    described = cqlsh(f"DESC TABLE {name}")
    words = re.sub(r"\s+", " ", described)
    assert (
        f"CREATE TABLE {keyspace}.{name} ( a int, b text, c int, s text static, v map<text, frozen<list<int>>>" in words
    )
    assert "PRIMARY KEY ((a, b), c)" in words
    assert "CLUSTERING ORDER BY (c DESC)" in words
    assert "comment = 'it''s mine'" in words and "gc_grace_seconds = 99" in words
    session.execute(f"DROP TABLE {name}")
    session.execute(described.rstrip().rstrip(";"))
    assert cqlsh(f"DESC TABLE {name}") == described


def test_describe_cluster(cqlsh, session):
    described = cqlsh("DESCRIBE CLUSTER")
    assert session.execute("SELECT cluster_name FROM system.local").one().cluster_name in described
    assert "Murmur3Partitioner" in described


def test_select_prints_a_table(cqlsh, session, table):
    name = table("k int PRIMARY KEY, v text, l list<int>, m map<text, int>, b blob, d decimal, t timestamp")
    session.execute(f"INSERT INTO {name} (k, v, l, m, b, d, t) VALUES (1, 'one', [1, 2], {{'a': 1}}, 0xcafe, 1.50, 0)")
    printed = cqlsh(f"SELECT k, v, l, m, b, d, t FROM {name}")
    assert [cell.strip() for cell in printed.splitlines()[0].split("|")] == ["k", "v", "l", "m", "b", "d", "t"]
    assert [cell.strip() for cell in printed.splitlines()[2].split("|")] == [
        "1",
        "one",
        "[1, 2]",
        "{'a': 1}",
        "0xcafe",
        "1.50",
        "1970-01-01 00:00:00.000000+0000",
    ]
    assert "(1 rows)" in printed


def test_a_mistake_is_shown(cqlsh):
    assert "SyntaxException" in cqlsh("SELEKT * FROM system.local", expect_failure=True)
    assert "InvalidRequest" in cqlsh("SELECT * FROM nothing", expect_failure=True)


def test_consistency_tracing_and_paging_are_accepted(cqlsh, table):
    name = table("k int PRIMARY KEY")
    printed = cqlsh(f"CONSISTENCY QUORUM; PAGING 10; INSERT INTO {name} (k) VALUES (5); SELECT * FROM {name};")
    assert "(1 rows)" in printed


def test_copy_from_and_copy_to(cqlsh, session, table, tmp_path):
    columns = "k int PRIMARY KEY, t text, u uuid, ts timestamp, d decimal, l list<text>, s set<int>, m map<text, int>"
    name = table(columns)
    given = [
        [
            str(k),
            f"text, with 'quotes' {k}",
            f"00000000-0000-4000-8000-{k:012d}",
            "2024-02-03 04:05:06.789+0000",
            f"{k}.25",
            "['a', 'b']",
            "{1, 2}",
            "{'x': 1}" if k % 3 else "",
        ]
        for k in range(200)
    ]
    source, copied = tmp_path / "in.csv", tmp_path / "out.csv"
    with source.open("w", newline="") as file:
        csv.writer(file).writerows(given)
    names = "k, t, u, ts, d, l, s, m"
    printed = cqlsh(f"COPY {name} ({names}) FROM '{source}' WITH NUMPROCESSES = 1")
    assert "200 rows imported" in printed
    assert session.execute(f"SELECT COUNT(*) FROM {name}").one()[0] == 200
    assert "200 rows exported" in cqlsh(f"COPY {name} ({names}) TO '{copied}' WITH NUMPROCESSES = 1")
    with copied.open(newline="") as file:
        back = sorted(csv.reader(file), key=lambda row: int(row[0]))
    assert [row[:3] + row[4:] for row in back] == [row[:3] + row[4:] for row in given]
    assert {row[3] for row in back} == {"2024-02-03 04:05:06.789+0000"}
    name_again = table(columns)
    cqlsh(f"COPY {name_again} ({names}) FROM '{copied}' WITH NUMPROCESSES = 1")
    assert sorted(cql.rows(session, f"SELECT * FROM {name}")) == sorted(
        cql.rows(session, f"SELECT * FROM {name_again}")
    )
