"""Runs tests and seeds, without a mutant or with one."""

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

# The same seeds for every mutant and every run.
FIRST_SEED = 10_000
SEED_SECONDS = 120
PLAYER = "sim:run"
# A test binary with a mutant may take so many times as long as without, and so many seconds more.
SLOWER_MAX = 5
SECONDS_MORE = 30
# Without a mutant nothing takes as long as this.
SECONDS_MAX = 600
FAILED_TEST = re.compile(r"^test (.+) \.\.\. FAILED$")
FAILED_SEED = re.compile(r"--seeds 1 --first (\d+)")


@dataclass(frozen=True)
class Run:
    """How a program ended."""

    # What failed, in a few words; empty: nothing.
    failure: str
    seconds: float
    output: str


def run(program, arguments, directory, seconds_max, mutant=None, reached=None):
    """Run a program until it ends, a line says that something failed, or the time is over."""
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(directory), "RUST_BACKTRACE": "0"}
    environment.pop("CETO_MUTANT", None)
    if mutant:
        environment |= {"CETO_MUTANT": str(mutant.number), "CETO_MUTANT_REACHED": str(reached)}
    began = time.monotonic()
    process = subprocess.Popen(
        [program, *arguments],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    over = threading.Timer(seconds_max, end, [process])
    over.start()
    failure, lines = "", []
    for line in process.stdout:
        lines.append(line)
        if failure := failure_in(line.strip()):
            end(process)
            break
    process.stdout.close()
    code = process.wait()
    is_over = not over.is_alive()
    over.cancel()
    seconds = time.monotonic() - began
    if not failure and is_over:
        failure = f"no end after {seconds_max:.0f} s"
    elif not failure and code != 0:
        failure = f"ended with {code}"
    return Run(failure, seconds, "".join(lines))


def failure_in(line):
    if match := FAILED_TEST.match(line):
        return match[1]
    if match := FAILED_SEED.search(line):
        return f"seed {match[1]}"
    return ""


def end(process):
    """Kill a process, and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_test(binary, seconds_max, mutant=None, reached=None):
    return run(binary.program, [binary.only] if binary.only else [], binary.directory, seconds_max, mutant, reached)


def play_seeds(binary, mutant=None, reached=None):
    arguments = ["--only", "cluster", "--first", str(FIRST_SEED), "--seconds", str(SEED_SECONDS)]
    return run(binary.program, arguments, binary.directory, SECONDS_MAX, mutant, reached)
