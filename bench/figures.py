"""Figures that are printed with what is wanted, and the load generator that measures most of them."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness.node import ceto_binary  # noqa: E402

MISSES = []


def figure(what, value, unit, most=None, least=None):
    """Print one figure and whether it is met."""
    met = (most is None or value <= most) and (least is None or value >= least)
    wanted = f"<= {most:,}" if most is not None else f">= {least:,}" if least is not None else ""
    line = f"{what:60} {value:>14,.2f} {unit:16} {wanted:>14} {'pass' if met else 'MISS'}"
    print(line, flush=True)
    if not met:
        MISSES.append(line)


def missing(what, why):
    """A figure that could not be measured is not met."""
    line = f"{what:60} {why}"
    print(line, flush=True)
    MISSES.append(line)


def perf(*arguments, prefix=(), env=None):
    """Run `ceto perf`: its JSON result, and all that it (and its prefix) printed."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        line = [*prefix, str(ceto_binary()), "perf", *arguments, "--json-result", result.name]
        done = subprocess.run(line, capture_output=True, text=True, env=os.environ | (env or {}))
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(line)}\n{done.stdout}{done.stderr}")
        written = Path(result.name).read_text()
        return json.loads(written) if written else {}, done.stdout + done.stderr
