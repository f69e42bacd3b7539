"""The tests of the Java driver 3 that talk to a server, by their groups: `short`, and `long`, in which nodes are stopped and started."""

import pytest

from harness import java_suite

SECONDS = {"short": 1500, "long": 2400}


@pytest.mark.parametrize("group", SECONDS)
def test_java_driver_3(apart, tmp_path, group):
    expected, outcomes, said = java_suite.run(tmp_path, ".*", group, SECONDS[group])
    expected.compare(outcomes, said)
