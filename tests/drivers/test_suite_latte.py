"""The workloads that latte's crate has, on three nodes. Those of `sai/orig` are left out: latte 0.29 cannot bind the integers of
most of them, which so fail on Cassandra too."""

from pathlib import Path

import pytest

from harness import latte, suites

EXPECTED = Path(__file__).parent / "suites" / "latte.txt"


@pytest.mark.parametrize("group", ["basic", "sai/new"])
def test_workloads(apart, tmp_path, group):
    expected = suites.Expected(EXPECTED, group)
    outcomes, said = latte.run(tmp_path, group, expected.skipped())
    expected.compare(outcomes, said)
