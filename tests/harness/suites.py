"""Test suites that nobody here wrote: fetched as they are published, run against nodes of ceto, and compared with what is expected of each test.

A suite runs apart: in a network and among processes of its own, so that it has the ports it expects, and so that nothing that it
started outlives it. It starts its nodes by the stand-in for CCM (`drivers/ccm`).

What is expected is a text file. A line that begins with `because` gives a reason, for the lines behind it until the next:

    because ceto has no materialized views
    fails MaterializedViewTest.test_create
    skip MaterializedViewStressTest.*         not run at all; * stands for any text
    either TimingTest.test_slow               may pass or fail

A suite in several parts has one file; the lines behind `part NAME` are of that part. Every other test is expected to pass, or to be skipped by the suite itself. One that passes and is expected to fail is a failure too, as is one in the file that did not run.
"""

import fnmatch
import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from harness.node import ceto_binary

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = ROOT / "tests" / "drivers" / "ccm"
FETCHED = ROOT / ".dev" / "suites"
FETCH_SECONDS = 900
# Ports that suites find free leave room behind them: the stand-in for CCM puts two more of a node's ports 10,000 and 20,000 above its port.
FREE_PORTS = "32768 42767"
PREPARE = f'ip link set lo up && echo {FREE_PORTS} > /proc/sys/net/ipv4/ip_local_port_range && exec "$@"'
APART = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", PREPARE, "sh"]
SHOWN_CHARACTERS = 6000


@functools.cache
def why_not_apart():
    """Why no suite can run here, or nothing."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "unshare and ip are missing"
    done = subprocess.run([*APART, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces of its own: {done.stderr.strip()}" if done.returncode else ""


def fetched(name, fetch):
    """The directory into which `fetch(directory)` has brought a suite; it is called once for each name, which has the version."""
    directory = FETCHED / name
    complete = directory / "complete"
    if not complete.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        fetch(directory)
        complete.touch()
    return directory


def run(*command, cwd, seconds=FETCH_SECONDS, env=None):
    """Run a command to its end; its output."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=os.environ | (env or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-SHOWN_CHARACTERS:]}"
    return done.stdout


def run_apart(command, cwd, state, seconds, env=None):
    """Run a suite apart until it ends; its output. `state` is an empty directory for its clusters."""
    env = {
        "CETO_BIN": str(ceto_binary()),
        "PATH": f"{STAND_IN}:{os.environ['PATH']}",
        "PYTHONPATH": str(STAND_IN),
        "PYTHONDONTWRITEBYTECODE": "1",
        "CCM_CONFIG_DIR": str(state),
    } | (env or {})
    with subprocess.Popen(
        [*APART, *(str(word) for word in command)], cwd=cwd, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as suite:  # fmt: skip
        try:
            said, _ = suite.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            suite.kill()  # and all that it started with it
            said, _ = suite.communicate()
            raise AssertionError(f"not done within {seconds} s; it said\n{said[-SHOWN_CHARACTERS:]}") from None
    return said


class Expected:
    """What a file expects of a suite's tests."""

    def __init__(self, file, part=None):
        self.file = file
        self.lines = []  # (word, test or pattern, reason)
        reason = at = None
        for number, line in enumerate(file.read_text().splitlines(), 1):
            word, _, rest = line.strip().partition(" ")
            match word:
                case "" | "#":
                    pass
                case "part":
                    at, reason = rest, None
                case "because":
                    reason = rest
                case "fails" | "skip" | "either":
                    assert reason, f"{file.name}:{number}: no reason stands above"
                    if at == part:
                        self.lines.append((word, rest.split()[0], reason))
                case _:
                    raise AssertionError(f"{file.name}:{number}: {word!r} is no word of this file")

    def skipped(self):
        """Patterns of what is not to run."""
        return [test for word, test, _ in self.lines if word == "skip"]

    def skipped_expression(self):
        """The same as a regular expression that has to match a whole name."""
        return "|".join(fnmatch.translate(pattern).replace(r"\Z", "").replace("(?s:", "(?:") for pattern in self.skipped()) or "(?!)"

    def compare(self, outcomes, said="", whole=True):
        """Hold the outcomes (`passed`, `failed` or `skipped` by test) of a suite, or of some of its tests, against the file."""
        print(f"{self.file.name}: {dict(Counter(outcomes.values()))}")
        wrong, named = [], set()
        for word, test, reason in self.lines:
            found = [name for name in outcomes if fnmatch.fnmatchcase(name, test)]
            named.update(found)
            if word == "skip":
                wrong += [f"{name} ran: {outcomes[name]}" for name in found if outcomes[name] != "skipped"]
                continue
            if whole and not found:
                wrong.append(f"{test} did not run")
            if word == "fails":
                wrong += [f"{name} passed, it should fail because {reason}" for name in found if outcomes[name] == "passed"]
        wrong += [f"{name} failed" for name, outcome in outcomes.items() if outcome == "failed" and name not in named]
        assert outcomes, f"no test ran:\n{said[-SHOWN_CHARACTERS:]}"
        if wrong:
            wrong = "\n  ".join(sorted(wrong))
            raise AssertionError(f"not as {self.file.name} has it:\n  {wrong}\n{said[-SHOWN_CHARACTERS:]}")


def worst(pairs):
    """One outcome for each test, of (test, outcome): a test that ran for several data has failed when it failed for one."""
    order = ["skipped", "passed", "failed"]
    outcomes = {}
    for test, outcome in pairs:
        outcomes[test] = max(outcome, outcomes.get(test, "skipped"), key=order.index)
    return outcomes


_GO = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)", re.M)
_LIBTEST = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (?:.*?)(ok|FAILED|ignored)\b", re.M)
_WORDS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped", "ok": "passed", "FAILED": "failed", "ignored": "skipped"}


def go_outcomes(said):
    """Of `go test -v`. A test that was running when the program ended has failed."""
    ended = {test: _WORDS[word] for word, test in _GO.findall(said)}
    begun = re.findall(r"^=== RUN   ([^/\s]+)$", said, re.M)
    return {test: "failed" for test in begun} | ended


def libtest_outcomes(said):
    """Of `cargo test`, whose programs may have tests of one name."""
    return worst((test, _WORDS[word]) for test, word in _LIBTEST.findall(said))
