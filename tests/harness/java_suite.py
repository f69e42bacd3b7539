"""The published tests of the Java driver 3, whose jar Maven Central has, and how they are run: `drivers/java3` has the program."""

import re

from harness import suites

PROGRAM = suites.ROOT / "tests" / "drivers" / "java3"
EXPECTED = suites.ROOT / "tests" / "drivers" / "suites" / "java-driver-3.txt"
VERSION = "3.12.1"
# What the driver's tests reach into, and Java has closed since.
OPENED = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio", "java.util", "sun.nio.ch")]
_OUTCOME = re.compile(r"^outcome (passed|failed|skipped) (\S+)", re.M)
CLASSPATH = "classpath"


def fetch(directory):
    suites.run("cp", "-r", PROGRAM / "pom.xml", PROGRAM / "src", directory, cwd=directory)
    suites.run("mvn", "-q", "-B", "compile", "dependency:build-classpath", f"-Dmdep.outputFile={CLASSPATH}", cwd=directory)


def run(state, classes, group, seconds):
    """Run the tests of this group in the classes that match; what is expected of them, their outcomes, and what the suite printed."""
    directory = suites.fetched(f"java-driver-{VERSION}", fetch)
    expected = suites.Expected(EXPECTED, group)
    classpath = f"{directory}/target/classes:{(directory / CLASSPATH).read_text()}"
    command = [
        *("java", "-Xmx1g", *OPENED, f"-Djava.io.tmpdir={state}", "-Dcassandra.version=4.1.7", "-Dccm.maxNumberOfNodes=4"),
        *("-cp", classpath, "Suite", classes, expected.skipped_expression(), group),
    ]
    said = suites.run_apart(command, state, state, seconds)
    assert "\nall ran\n" in said, said[-suites.SHOWN_CHARACTERS :]
    return expected, suites.worst((test, outcome) for outcome, test in _OUTCOME.findall(said)), said
