"""Steps of `./dev test`: what failed runs again once by itself, and a report names what took long.

    python -m harness.ci pytest NAME PYTEST ARGUMENT...   a step of pytest
    python -m harness.ci begin NAME PYTEST ARGUMENT...    its tests, beside other steps
    python -m harness.ci end NAME PYTEST ARGUMENT...      when those have ended: its outcome, with failed tests run again
    python -m harness.ci report                           the slowest tests, the times of the steps, the unsteady tests

A test of real processes may fail because the machine was busy. When its step has ended, it runs once more while nothing else does. If it passes then, it is
*unsteady*: the step passes, the report names the test, and more than UNSTEADY_MAX of them fail the run. A node that died is never unsteady.

Everything is kept in `.dev/results`: `NAME.xml` of pytest, `unit-*.txt` of the unit tests (harness/timed.py), `steps.txt` and `unsteady.txt`.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

# What pytest names files from.
TESTS = Path(__file__).resolve().parents[1]
RESULTS = TESTS.parent / ".dev" / "results"
UNSTEADY_MAX = 3
SLOWEST = 20
# Exit codes of pytest: all passed, some failed.
PASSED, FAILED = 0, 1
UNIT_TEST = re.compile(r"^test (?P<name>.+?) \.\.\. ok <(?P<seconds>[0-9.]+)s>$")


def cases(path):
    """The test cases of a report of pytest: node id, seconds, whether it failed, and whether a node died in it."""
    for case in ElementTree.parse(path).iter("testcase"):
        where = case.get("file") or case.get("classname", "").replace(".", "/") + ".py"
        name = f"{where}::{case.get('name')}"
        wrong = [*case.iter("failure"), *case.iter("error")]
        has_died = any("the node died" in f"{part.get('message')}{part.text}" for part in wrong)
        yield name, float(case.get("time", 0)), bool(wrong), has_died


def file_of(name, suffix):
    RESULTS.mkdir(parents=True, exist_ok=True)
    return RESULTS / f"{name.replace(' ', '-')}.{suffix}"


def with_report(name, command):
    """The command of a step, which leaves a report."""
    report = file_of(name, "xml")
    report.unlink(missing_ok=True)
    return [*command, f"--junitxml={report}", "-o", "junit_family=xunit1"]


def begin(name, command):
    """Runs the tests of a step while other steps run; `end` has the outcome. Told to end, it has pytest end its servers."""
    # A shell has what it runs in the background ignore interrupts, and pytest would inherit that.
    signal.signal(signal.SIGINT, lambda *_: None)
    with file_of(name, "txt").open("w") as output:
        tests = subprocess.Popen(with_report(name, command), stdout=output, stderr=subprocess.STDOUT)
        signal.signal(signal.SIGTERM, lambda *_: tests.send_signal(signal.SIGINT))
        file_of(name, "code").write_text(str(tests.wait()))
    return PASSED


def end(name, command):
    """The exit code of a step that has run; each failed test runs again alone."""
    print(file_of(name, "txt").read_text(), end="")
    return outcome(name, command, int(file_of(name, "code").read_text()))


def outcome(name, command, code):
    """Runs each failed test of a step alone; returns the exit code of the step."""
    report = file_of(name, "xml")
    if code != FAILED or not report.exists():
        return code
    found = list(cases(report))
    failed = list(dict.fromkeys(test for test, _, has_failed, _ in found if has_failed))
    if any(has_died for *_, has_died in found) or not failed or len(failed) > UNSTEADY_MAX:
        return code
    for test in failed:
        print(f"== again, alone: {test}", flush=True)
        again = subprocess.run([command[0], "-q", *kept_options(command[1:]), str(TESTS / test)], check=False).returncode
        if again != PASSED:
            return code
        with (RESULTS / "unsteady.txt").open("a") as unsteady:
            unsteady.write(f"{name}: {test}\n")
    return PASSED


def kept_options(arguments):
    """The options that a single test needs as well: those of the suite's own conftest."""
    kept = []
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if option == "--runtime":
            kept += [option, value]
    return kept


def unit_tests():
    for path in RESULTS.glob("unit-*.txt"):
        program = path.stem.removeprefix("unit-")
        for line in path.read_text(errors="replace").splitlines():
            if match := UNIT_TEST.match(line):
                yield f"{program}: {match['name']}", float(match["seconds"])


def report():
    """Prints the report; 1 when too many tests are unsteady."""
    times = [(seconds, f"{path.stem}: {test}") for path in RESULTS.glob("*.xml") for test, seconds, *_ in cases(path)]
    times += [(seconds, test) for test, seconds in unit_tests()]
    print(f"\nthe {SLOWEST} slowest tests")
    for seconds, test in sorted(times, reverse=True)[:SLOWEST]:
        print(f"{seconds:8.1f} s  {test}")
    steps = RESULTS / "steps.txt"
    print("\nthe steps")
    for line in steps.read_text().splitlines() if steps.exists() else []:
        seconds, name = line.split(" ", 1)
        print(f"{int(seconds):8} s  {name}")
    path = RESULTS / "unsteady.txt"
    unsteady = path.read_text().splitlines() if path.exists() else []
    print(f"\nunsteady tests: {len(unsteady)}")
    for line in unsteady:
        print(f"  {line}")
    return int(len(unsteady) > UNSTEADY_MAX)


def main(arguments):
    match arguments:
        case ["pytest", name, *command] if command:
            return outcome(name, command, subprocess.run(with_report(name, command), check=False).returncode)
        case ["begin", name, *command] if command:
            return begin(name, command)
        case ["end", name, *command] if command:
            return end(name, command)
        case ["report"]:
            return report()
    print(__doc__, file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
