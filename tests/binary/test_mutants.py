"""The lists of `./dev mutants` name places that are there. The mutants themselves are run by hand: see docs/dev/mutants.md."""

import dataclasses

import pytest

from mutants.places import ListError, Mutant, check_lists, rewrite

pytestmark = pytest.mark.ceto_only("the lists of mutants")

SOURCE = """\
fn first(n: u32) -> u32 {
    if n < 7 {
        count(n);
    }
    n / 2 + 1
}

fn second(n: u32) -> u32 {
    n / 2 + 1
}
"""
MUTANT = Mutant(
    id="half",
    crate="c",
    file="crates/c/src/lib.rs",
    within="fn first(",
    original="n / 2 + 1",
    mutated="n / 2",
    harm="a quorum of two copies is one",
    tests=(),
    seeds=False,
    survives="",
)


def test_every_place_is_found_once():
    mutants = check_lists()
    assert len(mutants) >= 60
    assert len({mutant.crate for mutant in mutants}) == 13


def test_an_expression_and_a_statement_stand_behind_their_switches():
    statement = dataclasses.replace(MUTANT, id="silent", original="count(n);", mutated="")
    rewritten = rewrite([MUTANT, statement], SOURCE)
    number = statement.number
    assert f"        if stdx::planted::is_mutant({number}) {{  }} else {{ count(n); }}\n" in rewritten
    switched = f"(if stdx::planted::is_mutant({MUTANT.number}) {{ n / 2 }} else {{ n / 2 + 1 }})"
    assert rewritten.count(switched) == 1
    assert rewritten.endswith("fn second(n: u32) -> u32 {\n    n / 2 + 1\n}\n")


def test_mutants_of_one_place_are_tried_one_after_the_other():
    other = dataclasses.replace(MUTANT, id="all", mutated="n")
    rewritten = rewrite([MUTANT, other], SOURCE)
    assert f"({MUTANT.number}) {{ n / 2 }} else if stdx::planted::is_mutant({other.number}) {{ n }} else" in rewritten


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"within": ""}, "mutant half: its original stands 2 times in crates/c/src/lib.rs"),
        ({"original": "n / 3"}, "mutant half: its original stands 0 times within 'fn first('"),
        ({"within": "fn third("}, "mutant half: 'fn third(' stands 0 times in crates/c/src/lib.rs"),
    ],
)
def test_a_place_that_is_not_there_once_names_its_mutant(change, complaint):
    with pytest.raises(ListError, match=complaint.replace("(", r"\(")):
        rewrite([dataclasses.replace(MUTANT, **change)], SOURCE)
