"""Conditional statements, counters and keys that are numbers get the same answers, and the same words when refused, as from Apache Cassandra.

`NAME.cql` has the statements, one a line; `recorded/NAME.txt` has Cassandra's answers. When the first line of NAME.cql says so, the answers are
compared byte for byte, with types and pages, and errors by their code or their words; a comment behind a statement then says what CQL cannot: `-- bound 0x01,
null, unset`, `-- pages of 2`, `-- as frame`, `-- protocol 3`. `fuzz.py` writes such scripts.

pytest tests/differential/test_scripts.py                                  against the recorded answers
pytest tests/differential/test_scripts.py --cassandra HOST:PORT --record   write them down again
"""

from pathlib import Path

import pytest

from differential import answers
from differential.fuzzing.answers import Client
from differential.fuzzing.scripts import BYTE_FOR_BYTE, WORD_FOR_WORD, statement_of
from differential.generate import KEYSPACE
from harness import Server, cql

HERE = Path(__file__).parent
JAVA = "org.apache.cassandra.serializers.MarshalException: "
FLUSH_EVERY = 7
KILL_EVERY = 61
SCRIPTS = [
    "changes",
    "collections",
    "compact",
    "conditional",
    "conditions",
    "counters",
    "ddl",
    "edges",
    "elements",
    "empty",
    "functions",
    "groups",
    "increments",
    "json",
    "masks",
    "math",
    "mended",
    "numbers",
    "refusals",
    "relations",
    "restrictions",
    "spellings",
    "tables",
    "terms",
    "tokens",
    "user_types",
    "values",
    "seed53",
    "seed62",
    "seed63",
]
# Made by crossing types, literals and functions. What is stored matters little, so they are not asked again around flushes and kills.
CROSSED = [
    "bound_bytes",
    "casts",
    "json_of_types",
    "literals",
    "literals_of_collections",
    "moments",
    "operators",
    "pages",
    "selects",
    "writes",
]


def statements_of(script):
    lines = (HERE / f"{script}.cql").read_text().splitlines()
    return [line for line in lines if not line.startswith("--")]


def recorded(script):
    return HERE / "recorded" / f"{script}.txt"


def refusal(failure):
    """`error CODE` and the words of it; those of a syntax error are each server's own, and so is the list of a function's signatures."""
    return refused(*cql.error_of(failure))


def refused(code, words):
    words = words.partition(" (known type signatures")[0].replace(JAVA, "")
    return [f"error {code:04x}" + ("" if code == cql.SYNTAX else f" {words}")]


def asker(session, script):
    """What asks the server of this session and writes the answer down."""
    head = (HERE / f"{script}.cql").read_text()
    if not head.startswith((BYTE_FOR_BYTE, WORD_FOR_WORD)):
        return lambda statement: answers.answer(session, statement, refusal)
    client = Client(Server(session.cluster.contact_points[0], session.cluster.port), KEYSPACE)

    def ask(line):
        answer = client.ask(statement_of(line))
        if answer.error and head.startswith(WORD_FOR_WORD):
            return refused(*answer.error)
        return answer.recorded(line)

    return ask


def compare(session, script, disturb=None):
    different, asked, ask = [], None, None
    known = answers.read(recorded(script))
    answers.count(len(known), is_first_time=disturb is None)
    for number, (statement, expected) in enumerate(known):
        session = disturb(number, session) if disturb else session
        if asked is not session:
            asked, ask = session, asker(session, script)
        got = ask(statement)
        if got != expected:
            different.append(f"{statement}\n  expected {expected}\n  got      {got}")
    assert not different, f"{len(different)} answers differ\n" + "\n".join(different[:10])


@pytest.mark.parametrize("script", SCRIPTS + CROSSED)
def test_recorded_answers(request, script):
    asked = statements_of(script)
    if request.config.getoption("--record"):
        ask = asker(answers.fresh_session(request.getfixturevalue("cassandra").cluster), script)
        answers.write(recorded(script), [(statement, ask(statement)) for statement in asked])
        return
    known = [statement for statement, _ in answers.read(recorded(script))]
    assert known == asked, "the recorded answers are those of other statements"
    compare(answers.fresh_session(request.getfixturevalue("session").cluster), script)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.ceto_only("the harness flushes its own node")
def test_recorded_answers_with_flushes_between(own_node, script):
    """The same answers, whether the rows stand in memory, in sstables, or in both."""
    with answers.with_flushes(own_node, FLUSH_EVERY) as (session, flush):
        compare(session, script, flush)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.ceto_only("the harness kills its own node")
def test_recorded_answers_with_kills_between(own_node, script):
    """What was acknowledged stays, though the node is killed with -9 and restarted between the statements."""
    with answers.with_kills(own_node, KILL_EVERY) as (session, kill):
        compare(session, script, kill)
