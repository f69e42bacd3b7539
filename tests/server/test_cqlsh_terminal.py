"""cqlsh in a terminal, with a person before it: prompts, pages, completion, and the commands of cqlsh itself."""

import os
import re
import sys
from pathlib import Path

import pytest

from harness import cql
from harness.terminal import Terminal

PROMPT = r"cqlsh(?::\w+)?> "
MORE = r"---MORE---"


@pytest.fixture
def shell(server, keyspace, tmp_path):
    """A cqlsh in the keyspace of the tests, at its prompt: shell("statement;") is what it prints."""
    command = [Path(sys.executable).parent / "cqlsh", "--no-color", server.host, str(server.port), "-k", keyspace]
    env = os.environ | {"HOME": str(tmp_path), "PYTHONWARNINGS": "ignore", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    with Terminal(command, env) as terminal:
        terminal.until(PROMPT)

        def run(line, until=PROMPT):
            terminal.type(line + "\n")
            printed, _ = terminal.until(until)
            return printed.partition("\n")[2].strip("\n")

        def table(columns):
            """Made here: cqlsh hears of what others make two seconds later."""
            name = cql.unique("made")
            assert run(f"CREATE TABLE {name} ({columns});") == ""
            made.append(name)
            return name

        made = []
        run.terminal, run.table = terminal, table
        yield run
        for name in made:
            run(f"DROP TABLE {name};")
        terminal.type("exit\n")
        assert terminal.ended() == 0


def test_help_and_version(shell, session):
    release = session.execute("SELECT release_version FROM system.local").one()[0]
    shown = shell("SHOW VERSION")
    assert f"| Cassandra {release} |" in shown and "CQL spec 3.4" in shown and "Native protocol v" in shown
    assert "DESCRIBE" in shell("HELP")


def test_describe_everything(shell, keyspace):
    udt, name = cql.unique("pair"), shell.table("k int PRIMARY KEY, v text")
    shell(f"CREATE TYPE {udt} (a int, b text);")
    everything = shell("DESCRIBE SCHEMA;")
    assert f"CREATE KEYSPACE {keyspace} WITH replication" in everything
    assert f"CREATE TYPE {keyspace}.{udt} (\n    a int,\n    b text\n);" in everything
    assert f"CREATE TABLE {keyspace}.{name} (" in everything
    whole = shell("DESCRIBE FULL SCHEMA;")
    assert "CREATE KEYSPACE system_schema" in whole and f"CREATE TABLE {keyspace}.{name} (" in whole
    assert name in shell("DESCRIBE TABLES;").split()
    assert udt in shell("DESCRIBE TYPES;").split()
    assert keyspace in shell("DESCRIBE KEYSPACES;").split()
    assert shell(f"DESCRIBE {name};") == shell(f"DESCRIBE TABLE {name};")
    assert shell(f"DESCRIBE TYPE {udt};").startswith(f"CREATE TYPE {keyspace}.{udt}")
    assert "Partitioner: " in shell("DESCRIBE CLUSTER;")
    for nothing in ("FUNCTIONS", "AGGREGATES"):
        assert "Error" not in shell(f"DESCRIBE {nothing};")
    assert "'nothing' not found" in shell("DESCRIBE nothing;")
    shell(f"DROP TYPE {udt};")


def test_statements_over_several_lines(shell):
    shell("SELECT release_version", until=r" +\.\.\. ")
    assert "(1 rows)" in shell("FROM system.local;")


def test_pages_are_turned_by_a_person(shell, session):
    name = shell.table("k int, c int, PRIMARY KEY (k, c)")
    for c in range(25):
        session.execute(f"INSERT INTO {name} (k, c) VALUES (1, {c})")
    assert "Page size: 10" in shell("PAGING 10")
    shown = shell(f"SELECT c FROM {name} WHERE k = 1;", until=MORE)
    for _ in range(2):
        shell.terminal.type("\n")
        before, _ = shell.terminal.until(rf"{MORE}|{PROMPT}")
        shown += before
    assert [int(cell) for cell in re.findall(r"^ +(\d+)$", shown, re.M)] == list(range(25))
    assert "(25 rows)" in shown
    assert "PAGING set to OFF" in shell("PAGING OFF")
    assert "(25 rows)" in shell(f"SELECT c FROM {name} WHERE k = 1;")


def test_tracing_shows_what_a_statement_did(shell):
    name = shell.table("k int PRIMARY KEY, v int")
    assert "TRACING set to ON" in shell("TRACING ON")
    shown = shell(f"INSERT INTO {name} (k, v) VALUES (1, 1);")
    session_id = re.search(r"Tracing session: ([0-9a-f-]{36})", shown)[1]
    assert "Execute CQL3 query" in shown and "Request complete" in shown
    assert "TRACING set to OFF" in shell("TRACING OFF")
    assert f"Tracing session: {session_id}" in shell(f"SHOW SESSION {session_id}")


def test_expanded_rows(shell, session):
    name = shell.table("k int PRIMARY KEY, v text")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (7, 'seven')")
    assert "EXPAND set to ON" in shell("EXPAND ON")
    shown = shell(f"SELECT k, v FROM {name};")
    assert "@ Row 1" in shown and re.search(r"^ k +\| 7$", shown, re.M) and re.search(r"^ v +\| seven$", shown, re.M)


def test_consistency_levels(shell):
    name = shell.table("k int PRIMARY KEY")
    assert "Current consistency level is ONE." in shell("CONSISTENCY")
    assert "Consistency level set to LOCAL_QUORUM." in shell("CONSISTENCY LOCAL_QUORUM")
    assert "Serial consistency level set to LOCAL_SERIAL." in shell("SERIAL CONSISTENCY LOCAL_SERIAL")
    assert "True" in shell(f"INSERT INTO {name} (k) VALUES (1) IF NOT EXISTS;")
    assert "(1 rows)" in shell(f"SELECT * FROM {name};")


def test_statements_of_a_file_and_answers_into_one(shell, tmp_path):
    name = shell.table("k int PRIMARY KEY, v text")
    script, captured = tmp_path / "script.cql", tmp_path / "captured.txt"
    script.write_text(f"INSERT INTO {name} (k, v) VALUES (1, 'from a file');\n-- a comment\nSELECT v FROM {name};\n")
    assert "from a file" in shell(f"SOURCE '{script}'")
    assert "Now capturing query output" in shell(f"CAPTURE '{captured}'")
    assert "from a file" not in shell(f"SELECT v FROM {name};")
    shell("CAPTURE OFF")
    assert "from a file" in captured.read_text()


def test_rows_are_copied_out_and_in(shell, session, tmp_path):
    columns = "k int PRIMARY KEY, v text, m map<text, frozen<set<int>>>, t timestamp"
    name, other = shell.table(columns), shell.table(columns)
    for k in range(50):
        session.execute(f"INSERT INTO {name} (k, v, m, t) VALUES ({k}, 'text, {k} \"quoted\"', {{'a': {{{k}, 1}}}}, {k})")
    file = tmp_path / "rows.csv"
    assert "50 rows exported to 1 files" in shell(f"COPY {name} TO '{file}' WITH HEADER = TRUE AND NUMPROCESSES = 1;")
    assert "50 rows imported from 1 files" in shell(f"COPY {other} FROM '{file}' WITH HEADER = TRUE AND NUMPROCESSES = 1;")
    assert sorted(cql.rows(session, f"SELECT * FROM {name}")) == sorted(cql.rows(session, f"SELECT * FROM {other}"))


@pytest.mark.ceto_only("it has no authentication")
def test_a_login_goes_on_without_one(shell):
    shell.terminal.type("LOGIN someone\n")
    shell.terminal.until("Password: ")
    shell.terminal.type("secret\n")
    shell.terminal.until(PROMPT)
    assert "(1 rows)" in shell("SELECT key FROM system.local;")


def test_words_and_names_are_completed(shell):
    name = shell.table("key_of_it int PRIMARY KEY, value_of_it text")

    def completed(typed, wanted):
        """Type it and the tabulator; the line is then as wanted, and given up."""
        shell.terminal.type(typed + "\t")
        shell.terminal.until(re.escape(wanted))
        shell.terminal.type("\x15\n")  # Ctrl-U
        shell.terminal.until(PROMPT)

    completed("SELECT * FRO", "SELECT * FROM ")
    completed(f"SELECT * FROM {name[:-1]}", f"SELECT * FROM {name}")
    completed(f"UPDATE {name} SET val", f"UPDATE {name} SET value_of_it")
    completed(f"INSERT INTO {name} (key_", f"INSERT INTO {name} (key_of_it")
    completed("USE system_sch", "USE system_schema")
    completed("CONSISTENCY LOCAL_Q", "CONSISTENCY LOCAL_QUORUM")
    completed("DESCRIBE KEYSPACE syste", "DESCRIBE KEYSPACE system")
    completed(f"ALTER TABLE {name} WITH gc_gr", f"ALTER TABLE {name} WITH gc_grace_seconds")
    completed("CREATE TABLE fresh (k in", "CREATE TABLE fresh (k in")
