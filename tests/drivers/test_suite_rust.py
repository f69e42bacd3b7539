"""The integration tests of the Rust drivers `scylla` and `cdrs-tokio`, as crates.io has them."""

import json
from pathlib import Path

import pytest

from harness import suites

EXPECTED = Path(__file__).parent / "suites"
MANIFEST = """[package]
name = "suite"
version = "0.0.0"
edition = "2024"

[lib]
path = "lib.rs"

[dependencies]
{crate} = "={version}"

[workspace]
"""
URIS = {"SCYLLA_URI": "127.0.0.1:9042", "SCYLLA_URI2": "127.0.0.2:9042", "SCYLLA_URI3": "127.0.0.3:9042"}
CRATES = {
    # crate: version, nodes, what to build
    "scylla": ("1.9.0", 3, ["--test", "integration"]),
    "cdrs-tokio": ("9.0.2", 3, ["--features", "e2e-tests,derive", "--tests"]),
}
# Starts nodes by a crate that is not published, so that it does not compile.
LEFT_OUT = {"scylla": ("tests/integration/main.rs", "pub(crate) mod ccm;\n")}
# Tests for two versions of the protocol share their types and tables.
ONE_BY_ONE = {"cdrs-tokio"}
SECONDS = 900
BUILD_SECONDS = 1800


def fetch(crate):
    """The source of the crate, writable, and its tests built."""

    def into(directory):
        version, _, built = CRATES[crate]
        (directory / "Cargo.toml").write_text(MANIFEST.format(crate=crate, version=version))
        (directory / "lib.rs").touch()
        suites.run("cargo", "fetch", "--quiet", cwd=directory)
        metadata = json.loads(suites.run("cargo", "metadata", "--format-version", "1", "--offline", "--quiet", cwd=directory))
        manifest = next(package["manifest_path"] for package in metadata["packages"] if package["name"] == crate)
        source = directory / "source"
        suites.run("cp", "-r", Path(manifest).parent, source, cwd=directory)
        if crate in LEFT_OUT:
            file, line = LEFT_OUT[crate]
            text = (source / file).read_text()
            assert line in text
            (source / file).write_text(text.replace(line, ""))
        # A workspace of its own, wherever this directory is.
        with (source / "Cargo.toml").open("a") as manifest:
            manifest.write("\n[workspace]\n")
        suites.run("cargo", "test", "--quiet", "--no-run", *built, cwd=source, seconds=BUILD_SECONDS)

    return into


@pytest.mark.parametrize("crate", CRATES)
def test_rust_driver(apart, tmp_path, crate):
    version, nodes, built = CRATES[crate]
    source = suites.fetched(f"{crate}-{version}", fetch(crate)) / "source"
    expected = suites.Expected(EXPECTED / f"{crate}.txt")
    options = " ".join(f"--skip {name}" for name in expected.skipped()) + (" --test-threads=1" if crate in ONE_BY_ONE else "")
    # The name that a test expects of its cluster.
    start = f"ccm create TestCluster -n {nodes} --vnodes && ccm start && "
    test = f"cargo test --offline --no-fail-fast {' '.join(built)} -- {options}"
    said = suites.run_apart(["sh", "-c", start + test], source, tmp_path, SECONDS, URIS)
    expected.compare(suites.libtest_outcomes(said), said)
