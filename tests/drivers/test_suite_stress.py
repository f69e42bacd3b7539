"""cassandra-stress: its workloads, and the profiles that come with it."""

import re

import pytest

from harness import stress

PROFILES = {
    "cqlstress-example.yaml": "ops(insert=3,simple1=1,range1=1)",
    "cqlstress-counter-example.yaml": "ops(insert=1,simple1=1)",
    "cqlstress-lwt-example.yaml": "ops(insert=1,singlepost=1,timeline=1)",
    "cqlstress-insanity-example.yaml": "ops(insert=1,simple1=1)",
}


@pytest.mark.parametrize("workload", stress.PREDEFINED)
def test_predefined_workload(apart, tmp_path, workload):
    stress.run_predefined(tmp_path, workload)


@pytest.mark.parametrize("profile", PROFILES)
def test_profile(apart, tmp_path, profile):
    file = stress.distribution() / "tools" / profile
    # Its replication factor decides how many nodes there are.
    nodes = int(re.search(r"'?replication_factor'?: *'?(\d)", file.read_text())[1])
    for printed in stress.run(tmp_path, [["user", f"profile={file}", PROFILES[profile], "n=500", "no-warmup", "cl=ONE"]], nodes):
        stress.check(printed)
