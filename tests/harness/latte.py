"""latte, a benchmark for Cassandra, from crates.io, with the workloads that its crate has."""

import functools
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from harness import suites

VERSION = "0.29.0"
NODES = 3
CYCLES, ROWS = 2000, 1000
SECONDS = 600
BUILD_SECONDS = 3600
TABLES = {
    # workload: its table, the rows that are in it at the end, the rows that its cycles read
    "basic/read": ("latte.basic", ROWS, CYCLES),
    "basic/write": ("latte.basic", CYCLES, 0),
    "basic/write-blob": ("latte.blob", CYCLES, 0),
}
COUNT = """
import sys
from cassandra.cluster import Cluster
with Cluster(["127.0.0.1"], connect_timeout=30) as cluster:
    print("rows:", cluster.connect().execute(f"SELECT count(*) FROM {sys.argv[1]}", timeout=30).one()[0])
"""


def fetch(directory):
    """Build the program, and copy the workloads from where cargo has unpacked the crate."""
    suites.run(
        "cargo", "install", "--quiet", "--locked", "latte-cli", "--version", VERSION, "--root", directory, cwd=directory, seconds=BUILD_SECONDS,
    )  # fmt: skip
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    (crate,) = cargo.glob(f"registry/src/index.crates.io-*/latte-cli-{VERSION}")
    shutil.copytree(crate / "workloads", directory / "workloads")


@functools.cache
def home():
    return suites.fetched(f"latte-cli-{VERSION}", fetch)


def functions(file):
    return set(re.findall(r"^pub async fn (\w+)\(", file.read_text(), re.M))


def workloads(group):
    """The files of a directory by the names of their workloads. A file without the function `run` is a part of others."""
    files = sorted((home() / "workloads" / group).glob("*.rn"))
    return {f"{group}/{file.stem}": file for file in files if "run" in functions(file)}


def steps(name, file, report):
    """The commands of a workload: make the schema, load the rows, run the cycles, count the rows."""
    program, parameters = home() / "bin" / "latte", ["-P", f"rows={ROWS}", file, "127.0.0.1"]
    found = functions(file)
    if "schema" in found:
        yield [program, "schema", *parameters]
    if "load" in found:
        yield [program, "load", "--quiet", *parameters]
    yield [program, "run", "--quiet", "--threads", 2, "--concurrency", 16, "--duration", CYCLES, "--output", report, *parameters]
    if name in TABLES:
        yield [sys.executable, "-c", COUNT, TABLES[name][0]]


def run(state, group, skipped):
    """Run the workloads of a directory, but for those that are skipped, one after another on new nodes: the outcome of each, and what they printed."""
    found = {name: file for name, file in workloads(group).items() if name not in skipped}
    script = [f"ccm create latte -n {NODES} --vnodes", "ccm start"]
    for number, (name, file) in enumerate(found.items()):
        commands = " && ".join(shlex.join(map(str, command)) for command in steps(name, file, state / f"{number}.json"))
        script.append(f"( {commands} ) > '{state}/{number}.txt' 2>&1")
    said = suites.run_apart(["sh", "-c", "\n".join(script)], state, state, SECONDS)
    outcomes = {}
    for number, name in enumerate(found):
        why = complaint(name, state / f"{number}.json", (state / f"{number}.txt").read_text())
        outcomes[name] = "failed" if why else "passed"
        said += f"== {name}: {why}\n" if why else ""
    return outcomes, said


def complaint(name, report, printed):
    """What is wrong with a workload, or nothing: all of its cycles ran without an error, each read found its row, and the rows are in the table."""
    if not report.exists():
        return printed
    result = json.loads(report.read_text())["result"]
    if result["error_count"] or result["errors"]:
        return f"{result['error_count']} errors: {result['errors']}"
    if result["cycle_count"] != CYCLES:
        return f"{result['cycle_count']} cycles, expected {CYCLES}"
    if name in TABLES:
        _, rows, read = TABLES[name]
        stored = re.search(r"^rows: (\d+)$", printed, re.M)
        found = {"requests": result["request_count"], "rows read": result["row_count"], "rows stored": int(stored[1]) if stored else None}
        expected = {"requests": CYCLES, "rows read": read, "rows stored": rows}
        if found != expected:
            return f"{found}, expected {expected}"
    return None
