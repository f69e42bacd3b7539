"""Conditional statements get the same answers, and the same words when refused, as from Apache Cassandra.

`conditional.cql` has the statements, one a line; `recorded/conditional.txt` has Cassandra's answers.

pytest tests/differential/test_conditional.py                                  against the recorded answers
pytest tests/differential/test_conditional.py --cassandra HOST:PORT --record   write them down again
"""

import contextlib
from pathlib import Path

import pytest
from cassandra.query import SimpleStatement

from differential import answers
from differential.generate import KEYSPACE
from harness import cql

HERE = Path(__file__).parent
STATEMENTS = HERE / "conditional.cql"
RECORDED = HERE / "recorded" / "conditional.txt"
FLUSH_EVERY = 7
KILL_EVERY = 61


def answer(session, statement):
    """The rows, `ok`, or `error CODE` and the words of it; those of a syntax error are each server's own."""
    try:
        found = session.execute(SimpleStatement(statement, fetch_size=None))
    except Exception as failure:
        code, words = cql.error_of(failure)
        return [f"error {code:04x}" + ("" if code == cql.SYNTAX else f" {words}")]
    if not found.column_names:
        return ["ok"]
    return [" | ".join(found.column_names)] + [" | ".join(answers.text(value) for value in row) for row in found]


def compare(session, disturb=lambda number, session: session):
    different = []
    for number, (statement, expected) in enumerate(answers.read(RECORDED)):
        session = disturb(number, session)
        got = answer(session, statement)
        if got != expected:
            different.append(f"{statement}\n  expected {expected}\n  got      {got}")
    assert not different, f"{len(different)} answers differ\n" + "\n".join(different[:10])


def test_recorded_answers(request):
    if request.config.getoption("--record"):
        cassandra = request.getfixturevalue("cassandra")
        lines = STATEMENTS.read_text().splitlines()
        statements = [line for line in lines if not line.startswith("--")]
        answers.write(RECORDED, [(statement, answer(cassandra, statement)) for statement in statements])
        return
    recorded = [statement for statement, _ in answers.read(RECORDED)]
    asked = [line for line in STATEMENTS.read_text().splitlines() if not line.startswith("--")]
    assert recorded == asked, "the recorded answers are those of other statements"
    session = request.getfixturevalue("session")
    for table in ("t", "other", "counts", "col", "ty", "de", "wide", "gone"):
        session.execute(f"DROP TABLE IF EXISTS {table}")
    compare(session)


@pytest.mark.ceto_only("the harness flushes its own node")
def test_recorded_answers_with_flushes_between(own_node):
    """The same decisions, whether the rows stand in memory, in sstables, or in both."""

    def flush(number, session):
        if number % FLUSH_EVERY == FLUSH_EVERY - 1:
            own_node.nodetool("flush")
        return session

    with cql.cluster(own_node.server) as cluster:
        compare(answers.fresh_session(cluster), flush)


@pytest.mark.ceto_only("the harness kills its own node")
def test_recorded_answers_with_kills_between(own_node):
    """What was applied stays applied, though the node is killed with -9 and restarted between the statements."""
    with contextlib.ExitStack() as clusters:

        def kill(number, session):
            if number % KILL_EVERY != KILL_EVERY - 1:
                return session
            own_node.kill9()
            own_node.start()
            return clusters.enter_context(cql.cluster(own_node.server)).connect(KEYSPACE)

        compare(answers.fresh_session(clusters.enter_context(cql.cluster(own_node.server))), kill)
