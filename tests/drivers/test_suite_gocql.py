"""The integration tests of gocql, as its module of the Go proxy has them.

The tests stand in three groups by build tag; names begin with the tag. Three nodes, as gocql's own CI has.
"""

from pathlib import Path

import pytest

from harness import suites

EXPECTED = Path(__file__).parent / "suites"
MODULES = {
    # suite: module, version, the newest Cassandra that its CI runs
    "gocql-1": ("github.com/gocql/gocql", "v1.7.0", "4.1.7"),
    "gocql-2": ("github.com/apache/cassandra-gocql-driver/v2", "v2.1.2", "5.0.3"),
}
RUNS = [
    # suite, protocol version, compression: of what its CI combines
    ("gocql-1", 4, ""),
    ("gocql-2", 4, "snappy"),
    ("gocql-2", 5, "lz4"),
]
TAGS = ("cassandra", "integration", "ccm")
# What gocql's CI gives to Cassandra, as far as ceto has it.
START = 'ccm create gocql -n 3 --vnodes && ccm updateconf "user_defined_functions_enabled: true" && ccm start && '
RUN = '"$0" -test.v -test.timeout=15m "$@" -gocql.timeout=60s -rf=3 -clusterSize=3 -autowait=2000ms -cluster=$(ccm liveset)'
SECONDS = 1000


def fetch(module, version):
    """The source of the module, writable, with its test programs."""

    def into(directory):
        (directory / "go.mod").write_text("module suites\n")
        suites.run("go", "mod", "download", f"{module}@{version}", cwd=directory)
        cache = suites.run("go", "env", "GOMODCACHE", cwd=directory).strip()
        (directory / "go.mod").unlink()
        source = directory / "source"
        suites.run("cp", "-r", f"{cache}/{module}@{version}", source, cwd=directory)
        suites.run("chmod", "-R", "u+w", source, cwd=directory)
        for tag in TAGS:
            suites.run("go", "test", "-c", "-tags", f"{tag} gocql_debug", "-o", f"{tag}.test", ".", cwd=source)

    return into


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(("suite", "protocol", "compressor"), RUNS)
def test_gocql(apart, tmp_path, suite, protocol, compressor, tag):
    module, version, cassandra = MODULES[suite]
    source = suites.fetched(f"{suite}-{version}", fetch(module, version)) / "source"
    expected = suites.Expected(EXPECTED / f"{suite}.txt", tag)
    skipped = "|".join(f"^{name}$" for name in expected.skipped())
    options = [f"-proto={protocol}", f"-compressor={compressor}", f"-gocql.cversion={cassandra}", *(["-test.skip", skipped] if skipped else [])]
    said = suites.run_apart(["sh", "-c", START + RUN, f"./{tag}.test", *options], source, tmp_path, SECONDS)
    expected.compare(suites.go_outcomes(said), said)
