"""The integration tests of cassandra-driver. Its archive on PyPI has none; Debian's source package is the whole of the release."""

import shutil
import sys
from pathlib import Path

import pytest

from harness import suites

HERE = Path(__file__).parent
PACKAGE, VERSION = "python-cassandra-driver", "3.29.2"
SOURCES = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main\n"
SECONDS = 1500
PARTS = ("standard", "cqlengine")


def fetch(directory):
    """`tests` of the release, without the driver beside it, and an environment for them."""
    # Only ./dev drivers runs this suite. Nobody but Debian publishes its tests, and only Debian's tool fetches them.
    if not shutil.which("apt-get"):
        pytest.skip("apt-get is missing, which fetches the source package")
    (directory / "lists").mkdir()
    (directory / "sources.list").write_text(SOURCES)
    settings = {
        "Dir::Etc::sourcelist": directory / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": directory / "lists",
        "Dir::Cache::srcpkgcache": "",
        "Dir::Cache::pkgcache": "",
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    suites.run(*apt, "update", cwd=directory)
    suites.run(*apt, "--tar-only", "--download-only", "source", PACKAGE, cwd=directory)
    shutil.rmtree(directory / "lists")
    archive = f"{PACKAGE}_{VERSION}.orig.tar.gz"
    suites.run("tar", "xzf", archive, "--strip-components=1", "--wildcards", "*/tests", cwd=directory)
    suites.run(sys.executable, "-m", "venv", "venv", cwd=directory)
    suites.run("venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", HERE / "python" / "requirements.txt", cwd=directory)


@pytest.mark.parametrize("part", PARTS)
def test_cassandra_driver(apart, tmp_path, part):
    directory = suites.fetched(f"{PACKAGE}-{VERSION}", fetch)
    shutil.rmtree(directory / "tests" / "integration" / "ccm", ignore_errors=True)  # where the suite keeps its clusters
    expected = suites.Expected(HERE / "suites" / "cassandra-driver-python.txt", part)
    report = tmp_path / "outcomes"
    command = [
        *("venv/bin/pytest", f"tests/integration/{part}", "-p", "suite_plugin", "-p", "no:cacheprovider"),
        # Python 3.11 fails to take apart the source of some tests' deep tracebacks, which the native form does without.
        *("-q", "--tb=native", "--disable-warnings", "--rootdir", directory),
    ]
    env = {
        "PYTHONPATH": f"{directory}:{suites.STAND_IN}:{HERE / 'python'}",
        "LEAVE_OUT": expected.skipped_expression(),
        "OUTCOMES": str(report),
        "CASSANDRA_VERSION": "4.1.7",
    }
    said = suites.run_apart(command, directory, tmp_path, SECONDS, env)
    assert report.exists(), said[-suites.SHOWN_CHARACTERS :]
    lines = (line.split(" ", 1) for line in report.read_text().splitlines())
    expected.compare({name: outcome for outcome, name in lines}, said)
