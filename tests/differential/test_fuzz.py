"""The generator of fuzz.py itself, without a server: the same seed makes the same statements, and every kind of them occurs."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from differential.fuzzing.answers import BATCH, Answer, difference, text
from differential.fuzzing.report import Intended
from differential.fuzzing.scripts import script_line, statement_of
from differential.fuzzing.shrink import top_level, without
from differential.fuzzing.statements import Generator, Statement
from differential.fuzzing.terms import UNSET
from differential.fuzzing.values import Type, unsigned_vint, varint

SEEDS = range(40)
KINDS = {
    "create", "insert", "update", "delete", "batch", "conditional", "conditional_batch", "count", "counter_batch", "select",
    "mistake", "damaged",
    "alter", "truncate",
}  # fmt: skip
PHRASES = [
    "static", "DESC)", "frozen<", "tuple<", "vector<", "counter", "USING TIMESTAMP", "TTL", "IF NOT EXISTS", "IF EXISTS", "UNLOGGED",
    "ORDER BY", "GROUP BY", "PER PARTITION LIMIT", "DISTINCT", "ALLOW FILTERING", "CONTAINS KEY", "token(", "writetime(", "ttl(", "cast(",
    "JSON", " IN (", "..", ":m0", "+=", "DROP", "ADD", "RENAME", "NaN", "grüße",
]  # fmt: skip


@pytest.fixture(scope="module")
def made():
    return [s for seed in SEEDS for s in Generator(seed).statements()]


def test_the_same_seed_makes_the_same_statements():
    for seed in SEEDS:
        assert list(Generator(seed).statements()) == list(Generator(seed).statements())


def test_each_kind_of_statement_occurs(made):
    assert {s.kind for s in made} == KINDS


@pytest.mark.parametrize("phrase", PHRASES)
def test_each_part_of_the_grammar_occurs(made, phrase):
    assert any(phrase in s.text for s in made)


def test_each_kind_of_bound_value_and_page_occurs(made):
    values = [v for s in made for v in s.values or []]
    assert (
        None in values
        and UNSET in values
        and b"" in values
        and any(v and v is not UNSET and len(v) > 65535 for v in values)
    )
    assert {s.page for s in made} >= {None, *range(1, 9)}
    assert {s.protocol for s in made} == {3, 4, 5}
    assert {s.kind for s in made if s.frame} == {"batch", "conditional_batch", "counter_batch"}
    assert not any(v is UNSET for s in made if s.protocol == 3 for v in s.values or [])
    assert any(s.values and "LIMIT ?" in s.text for s in made)


def test_distinct_groups_and_limits_meet(made):
    for phrases in (["DISTINCT", "GROUP BY"], ["GROUP BY", "PER PARTITION LIMIT"], ["DISTINCT", "PER PARTITION LIMIT"]):
        assert any(all(phrase in s.text for phrase in phrases) for s in made), phrases


def test_a_batch_frame_is_the_batch_of_its_text(made):
    for s in made:
        if s.frame:
            kind, timestamp, parts = BATCH.fullmatch(s.text).groups()
            assert len(parts.split("; ")) >= 1 and all(p.split()[0] in ("INSERT", "UPDATE", "DELETE") for p in parts.split("; "))


def test_markers_and_values_are_equally_many(made):
    for s in made:
        if s.values is not None:
            assert s.text.count("?") + s.text.count(":m") == len(s.values), s.text


def test_a_script_holds_the_statement(made):
    for s in made:
        read = statement_of(script_line(s))
        assert replace(read, kind=s.kind) == s
        assert len(script_line(s).splitlines()) == 1


def test_a_statement_is_cut_with_its_values():
    tokens = "SELECT a FROM t WHERE p = ? AND q = :m1 AND r = ?".split()
    assert without(tokens, [b"1", b"2", b"3"], 9, 4) == ("SELECT a FROM t WHERE p = ? AND r = ?".split(), [b"1", b"3"])
    assert top_level("a int, b map<int, list<int>>, c int") == ["a int", "b map<int, list<int>>", "c int"]


def test_values_are_encoded_as_drivers_do():
    assert [varint(n).hex() for n in (0, 127, 128, -128, -129)] == ["00", "7f", "0080", "80", "ff7f"]
    assert [unsigned_vint(n).hex() for n in (0, 127, 128, 16384, 2**64 - 1)] == ["00", "7f", "8080", "c04000", "ff" * 9]
    pairs = Type("map", [Type("int"), Type("text")])
    assert text(("map", "int", "text"), bytes.fromhex("00000001 00000004 00000007 00000001 61")) == "{7: 'a'}"
    assert str(pairs) == "map<int, text>"


def test_answers_are_compared_by_what_a_user_sees():
    statement = Statement("select", "SELECT a FROM t")

    def rows(*values, **more):
        return Answer(kind="rows", columns=[("t", "a", "int")], rows=[[v] for v in values], **more)

    assert difference(statement, rows(b"1", b"2"), rows(b"1", b"2")) is None
    assert difference(statement, rows(b"1", b"2"), rows(b"2", b"1")) == "order of rows"
    assert difference(statement, rows(b"1"), rows()) == "number of rows"
    assert difference(statement, rows(b"1"), rows(None)) == "values"
    assert difference(statement, rows(b"1", pages=[1, 0]), rows(b"1", pages=[1])) is None
    assert difference(statement, Answer(error=(0x2200, "x")), rows()) == "accepted, not error 2200"
    assert difference(statement, rows(), Answer(error=(0x2200, "x"))) == "refused with 2200"
    assert difference(statement, Answer(error=(0x2200, "x")), Answer(error=(0x2200, "y"))) is None


def test_intended_differences_have_reasons():
    for found, pattern, reason in Intended(Path(__file__).parent / "intended.txt").lines:
        assert reason and found.pattern and pattern.pattern


def test_seeds_differ():
    assert len({next(islice(Generator(seed, "t").statements(), 1)).text for seed in SEEDS}) == len(SEEDS)
