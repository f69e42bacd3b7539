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

RECORDED = Path(__file__).parent / "recorded"
SEEDS = range(1, 13)
# CETO_DIFFERENTIAL_SEEDS=100:200 compares other seeds.
FIRST, LAST = map(int, os.environ.get("CETO_DIFFERENTIAL_SEEDS", "100:120").split(":"))


def compare(session, answered):
    different = []
    for number, (statement, expected) in enumerate(answered):
        got = answers.answer(session, statement)
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


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_answers_side_by_side(cassandra, session, seed):
    compare(session, [(s, answers.answer(cassandra, s)) for s in Generator(seed).statements()])
