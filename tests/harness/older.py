"""The binary of an older release, for tests of upgrades: built once from a commit of this repository, and kept.

The commit is the last one before nodes moved tablets between each other: its nodes lack features that nodes of today have. `CETO_OLDER_BIN` names another
binary. `python -m harness.older` builds it and prints where it is.
"""

import fcntl
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the first commit that the older release lacks has added.
FIRST_FILE = "crates/topology/src/movement.rs"
BUILD_SECONDS = 3600


class NoOlderRelease(Exception):
    """The repository here does not have the commit."""


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def older_commit():
    added = git("log", "--diff-filter=A", "--format=%H", "--", FIRST_FILE).stdout.split()
    if not added:
        raise NoOlderRelease(f"no commit here adds {FIRST_FILE}: the clone is shallow, or no clone")
    before = git("rev-parse", "--verify", "--quiet", f"{added[-1]}^{{commit}}^")
    if before.returncode != 0:
        raise NoOlderRelease(f"the clone is shallow: it has no parent of {added[-1]}")
    return before.stdout.strip()


def older_binary():
    """Where it is; builds it if nobody has."""
    if given := os.environ.get("CETO_OLDER_BIN"):
        return Path(given).resolve()
    commit = older_commit()
    # Beside builds that are kept between runs, where that can be written.
    kept = os.environ.get("CARGO_TARGET_DIR")
    home = Path(kept).resolve().parent if kept else ROOT / ".dev"
    if not os.access(home, os.W_OK):
        home = ROOT / ".dev"
    directory = home / "older" / commit
    binary = directory / "ceto"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            unpack(commit, directory / "source")
            build(directory / "source", binary)
    return binary


def build(source, binary):
    """Builds among the files of today's builds, whose dependencies are the same, and takes the binary out: what lay in its place stays there."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    built, today = target / "debug" / "ceto", target / "debug" / "ceto.today"
    if built.exists():
        built.replace(today)
    try:
        environment = os.environ | {"CARGO_TARGET_DIR": str(target), "CARGO_INCREMENTAL": "0"}
        subprocess.run(["cargo", "build", "-p", "ceto"], cwd=source, env=environment, check=True, timeout=BUILD_SECONDS)
        built.replace(binary)
    finally:
        if today.exists():
            today.replace(built)


def unpack(commit, source):
    """The files of a commit, without its history."""
    source.mkdir(exist_ok=True)
    archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=archive.stdout, mode="r|") as files:
        files.extractall(source, filter="data")
    if archive.wait() != 0:
        raise NoOlderRelease(f"git cannot write the files of {commit}")


if __name__ == "__main__":
    try:
        print(older_binary())
    except NoOlderRelease as failure:
        print(f"the older release is not built: {failure}", file=sys.stderr)
