"""The Go, Java and Rust drivers, unmodified: each connects, reads the schema, creates, writes, reads and pages.

Each program takes HOST PORT KEYSPACE, makes and drops that keyspace, and ends with 0 when all was as it should be.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness import cql

HERE = Path(__file__).parent
BUILD_AND_RUN_SECONDS = 1200
DRIVERS = {
    "go": ("go", lambda arguments: ["go", "run", ".", *arguments]),
    "java": (
        "mvn",
        lambda arguments: ["mvn", "-q", "-B", "compile", "exec:java", f"-Dexec.args={' '.join(arguments)}"],
    ),
    "rust": ("cargo", lambda arguments: ["cargo", "run", "--quiet", "--release", "--", *arguments]),
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_driver(server, driver):
    tool, command = DRIVERS[driver]
    if not shutil.which(tool):
        pytest.fail(f"{tool} is missing")
    arguments = [server.host, str(server.port), cql.unique(driver)]
    done = subprocess.run(
        command(arguments), cwd=HERE / driver, capture_output=True, text=True, timeout=BUILD_AND_RUN_SECONDS
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"{driver}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "all as it should be" in done.stdout
