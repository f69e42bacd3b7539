"""Runs a program of unit tests for `cargo test` (its `runner`), and keeps the time of each test in `.dev/results`.

Prints one line when all pass, and the whole output when one fails.
"""

import os
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / ".dev" / "results"


def main(arguments):
    program, *rest = arguments
    RESULTS.mkdir(parents=True, exist_ok=True)
    # The times are an unstable option of the test library, which this variable admits.
    environment = os.environ | {"RUSTC_BOOTSTRAP": "1"}
    command = [program, *(option for option in rest if option != "--quiet"), "-Zunstable-options", "--report-time"]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, errors="replace", check=False)
    (RESULTS / f"unit-{Path(program).name}.txt").write_text(ran.stdout)
    lines = ran.stdout.splitlines()
    summary = [line for line in lines if line.startswith("test result: ")]
    print(ran.stdout if ran.returncode else f"{Path(program).name}: {' '.join(summary)}", flush=True)
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
