"""What pages name is there: system tables, statements about them, options that clients change, and what a driver is offered."""

import re

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness import cql, wire
from harness.tables import ROOT, code, pages, rows

pytestmark = pytest.mark.ceto_only("the pages of ceto")

CONFIGURATION = "docs/operating/configuration.md"
DRIVERS = "docs/drivers.md"
BY_SIGHUP = "or when the node gets SIGHUP"
SYSTEM = r"(?:system|system_views|system_schema|system_traces|system_auth|system_distributed)"


def texts():
    return [(page.name, page.read_text()) for page in pages()]


def test_system_tables_that_pages_name_are_there(session):
    named = {(page, name) for page, text in texts() for name in re.findall(rf"`({SYSTEM}\.\w+)[`\s]", text)}
    # In one sentence the keyspace is written once.
    for line in (ROOT / "docs/operating/nodetool.md").read_text().splitlines():
        if line.startswith("`system_views.caches`"):
            named |= {("nodetool.md", name if "." in name else f"system_views.{name}") for name in code(line)}
    for row in rows("docs/cql.md", "System tables and other statements"):
        cell = next(iter(row.values()))
        keyspace = re.match(rf"`({SYSTEM})\.", cell)
        if row["state"] == "refused":
            named -= {("cql.md", name) for name in code(cell)}
        elif keyspace:
            named |= {("cql.md", name if "." in name else f"{keyspace[1]}.{name}") for name in code(cell) if name != "system_schema"}
    assert len(named) > 70
    missing = []
    for page, name in sorted(named):
        try:
            session.execute(SimpleStatement(f"SELECT * FROM {name} LIMIT 1", consistency_level=ConsistencyLevel.ONE))
        except Exception as failure:  # an answer of the server, or error_of says that it is none
            missing.append((page, name, cql.error_of(failure)))
    assert not missing, missing


def test_statements_of_pages_are_taken(session, keyspace, table):
    tables = {"ks.t": table("p int, c int, PRIMARY KEY (p, c)"), "shop.articles": table("k int PRIMARY KEY"), "shop.orders": table("k int PRIMARY KEY")}
    tried = 0
    for page, text in texts():
        for line in re.findall(r"^ {4,}((?:SELECT|UPDATE|INSERT|DELETE|ALTER TABLE) .*)$", text, re.M):
            statement = re.split(r" {2,}", line)[0].rstrip(";")
            if "KEYSPACE.TABLE" in statement:
                continue
            for named, own in tables.items():
                statement = statement.replace(named, f"{keyspace}.{own}")
            try:
                session.execute(statement)
            except Exception as failure:
                raise AssertionError(f"{page}: {line}: {cql.error_of(failure)}") from failure
            tried += 1
    assert tried > 8
    session.execute("UPDATE system.config SET value = '5s' WHERE name = 'read_request_timeout'")


def of_page():
    return [row for row in rows(CONFIGURATION) if "may change" in row]


def test_the_table_of_options_has_a_row_for_each_name_of_the_page(session):
    page = {name for row in of_page() for name in code(row["option"]) + code(row["old spellings"])}
    found = {row.name for row in session.execute("SELECT name FROM system.config")}
    assert page - {"seed_provider"} <= found, page - found
    # Names of cassandra.yaml and scylla.yaml that the page does not list have no meaning here.
    assert not (more := {name for name in found - page if "." not in name}), more


def test_clients_change_the_options_that_the_page_says_and_no_others(new_node, connect):
    session, wrong, changed = connect(new_node(smp=1, memory="256M").start()), [], 0
    for row in of_page():
        [name] = code(row["option"])
        [shown] = session.execute("SELECT value FROM system.config WHERE name = %s", (name,))
        statement, parameters = "UPDATE system.config SET value = %s WHERE name = %s", (shown.value, name)
        if shown.value is None:  # there is no way back to none
            continue
        if BY_SIGHUP in row["may change"]:
            try:
                session.execute(statement, parameters)
                changed += 1
            except Exception as failure:
                wrong.append((name, shown.value, cql.error_of(failure)))
        elif BY_SIGHUP not in row["may change"]:
            got, said = cql.refusal(session, statement, parameters)
            if got != cql.INVALID:
                wrong.append((name, said))
    assert not wrong, wrong
    assert changed > 80


def test_a_driver_is_offered_what_the_page_says(server):
    page = {row["what"]: row["value"] for row in rows(DRIVERS, "Protocol") if "what" in row}
    with wire.Connection(server) as connection:
        offered = wire.supported(connection.ask(wire.OPTIONS))
    versions = [int(number) for number in re.findall(r"\d", page["versions"].partition(";")[0])]
    assert [version.split("/")[0] for version in offered["PROTOCOL_VERSIONS"]] == [str(version) for version in versions]
    assert sorted(offered["COMPRESSION"]) == sorted(re.findall(r"\b(?:lz4|snappy)\b", page["compression"].partition(";")[0].lower()))
    for version in [*versions, max(versions) + 1]:
        with wire.Connection(server, version=version) as connection:
            answer = connection.ask(wire.OPTIONS)
            if version in versions:
                assert answer.opcode == wire.SUPPORTED, version
            else:
                assert answer.error[0] == cql.PROTOCOL, version
    with wire.Connection(server) as connection:
        assert connection.ask(wire.STARTUP, wire.string_map({"CQL_VERSION": "3.0.0"})).opcode == wire.READY, page["authentication"]


def test_the_page_for_drivers_has_the_figures_of_the_options_and_limits():
    defaults = {code(row["option"])[0]: row["default"].strip("`") for row in of_page()}
    [timeout] = [row["choose"] for row in rows(DRIVERS, "Settings to choose") if row["setting"] == "request timeout"]
    seconds = [int(defaults[f"{kind}_request_timeout"].removesuffix("ms")) // 1000 for kind in ("read", "write")]
    assert [int(number) for number in re.findall(r"(\d+) s\b", timeout)] == seconds
    [request] = [row for row in rows("docs/limits.md") if row["what"].startswith("one request")]
    [sentence] = re.findall(r"^A request of more than .*$", (ROOT / DRIVERS).read_text(), re.M)
    for words in (request["limit"].partition(" (")[0], "error 2200", "the connection stays"):
        assert words in sentence and (words in request["limit"] or words in request["beyond it"]), words
