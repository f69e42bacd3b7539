"""A copy of the tree with all mutants in it, and its test binaries."""

import json
import os
import subprocess
from collections import namedtuple
from pathlib import Path

from mutants.places import ROOT, by_file, rewrite

# A program, the directory of its crate, in which cargo runs it, and its tests that count: those whose names contain `only`.
Binary = namedtuple("Binary", "program directory only", defaults=[""])

FLAG_FILE = "crates/stdx/src/planted.rs"
# Reads the environment once. When the selected mutant is reached first, it makes the file of CETO_MUTANT_REACHED.
FLAG = """
/// Whether this mutant is selected.
#[must_use]
pub fn is_mutant(number: u32) -> bool {
    static SELECTED: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    static IS_REACHED: std::sync::Once = std::sync::Once::new();
    let selected = SELECTED.get_or_init(|| {
        let number = std::env::var("CETO_MUTANT").ok();
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    });
    if *selected != number {
        return false;
    }
    IS_REACHED.call_once(|| {
        if let Some(path) = std::env::var_os("CETO_MUTANT_REACHED") {
            let _ = std::fs::write(path, "");
        }
    });
    true
}
"""


class BuildFailed(Exception):
    """The copied tree does not build."""


def copy(mutants, directory):
    """Make the copy in `directory`. A file that does not change keeps its time, so cargo builds only what differs from the last run."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = {name.decode() for name in tracked.split(b"\0") if name}
    files = by_file(mutants)
    needs_stdx = {f"crates/{mutant.crate}/Cargo.toml" for mutant in mutants}
    for name in sorted(names):
        source = ROOT / name
        if not source.is_file():
            continue
        content = source.read_bytes()
        if name in files:
            content = rewrite(files[name], content.decode()).encode()
        elif name == FLAG_FILE:
            content += FLAG.encode()
        elif name in needs_stdx:
            content = with_stdx(content.decode()).encode()
        put(directory / name, content)
    for path in directory.rglob("*"):
        # Cargo writes the lock file anew, because of the added dependencies.
        if path.is_file() and path.relative_to(directory).as_posix() not in names:
            path.unlink()


def with_stdx(manifest):
    """A manifest whose crate depends on stdx, where the switch is."""
    head, _, rest = manifest.partition("[dependencies]\n")
    of_crate, mark, others = rest.partition("\n[")
    if "stdx" not in of_crate:
        of_crate = "stdx.workspace = true\n" + of_crate
    return f"{head}[dependencies]\n{of_crate}{mark}{others}"


def put(path, content):
    if path.name != "Cargo.lock" and path.is_file() and path.read_bytes() == content:
        return
    if path.name == "Cargo.lock" and path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def build(mutants, directory, with_seeds):
    """Build the binaries of all tests that the mutants name, and the player of seeds: by "crate:target"."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    crates = sorted({test.partition(":")[0] for test in tests} | {"sim"})
    packages = [word for crate in crates for word in ("-p", crate)]
    programs = {test: program_of(test, directory) for test in tests}
    targets = sorted({target for _, target, _ in programs.values()})
    names = [word for target in targets for word in (["--lib"] if target == "lib" else ["--test", target])]
    # Several crates may have a test target of one name.
    found = cargo(directory, ["test", "--no-run", *packages, *names]) if tests else {}
    if missing := [test for test, (crate, target, _) in programs.items() if f"{crate}:{target}" not in found]:
        raise BuildFailed(f"no test targets are named {', '.join(missing)}")
    binaries = {test: found[f"{crate}:{target}"]._replace(only=only) for test, (crate, target, only) in programs.items()}
    if with_seeds:
        binaries |= cargo(directory, ["build", "--profile", "test", *packages, "--example", "run"])
    return binaries


def program_of(test, directory):
    """The crate and target of a test file, and the module that it is there: a crate may have all its files in the target `all`."""
    crate, _, name = test.partition(":")
    tests = directory / "crates" / crate / "tests"
    if name != "lib" and (tests / "all.rs").exists():
        if not (tests / f"{name}.rs").exists():
            raise BuildFailed(f"{crate} has no file of tests named {name}")
        return crate, "all", f"{name}::"
    return crate, name, ""


def cargo(directory, arguments):
    command = ["cargo", *arguments, "--message-format=json"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(directory.parent / "target")}
    done = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        # The switches cause warnings, which say nothing of the tree.
        errors = [m["message"] for m in messages if m.get("reason") == "compiler-message"]
        rendered = [error["rendered"] for error in errors if error["level"] == "error"]
        raise BuildFailed("".join(rendered) + f"{' '.join(command)} failed in {directory}")
    found = {}
    for message in messages:
        if message.get("reason") == "compiler-artifact" and message["executable"]:
            manifest = Path(message["manifest_path"])
            target = message["target"]
            name = "lib" if "lib" in target["kind"] else target["name"]
            found[f"{manifest.parent.name}:{name}"] = Binary(message["executable"], manifest.parent)
    return found
