"""Clusters of real nodes on this machine."""

import pytest

from harness import Cluster
from harness.cluster import forms_clusters


@pytest.fixture(scope="session", autouse=True)
def binary_forms_clusters():
    if not forms_clusters():
        pytest.skip("this binary does not know --seeds")


@pytest.fixture(scope="module")
def cluster(request):
    """Three nodes that the tests of a file share; each test leaves all of them running."""
    cluster = Cluster(3, runtime=request.config.getoption("--runtime"))
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


@pytest.fixture(scope="module")
def forgetful_cluster(request):
    """Three nodes that keep no hints, and repair nothing by themselves: what a replica misses it never gets."""
    options = ["--hinted-handoff-enabled", "false"]
    cluster = Cluster(3, smp=2, runtime=request.config.getoption("--runtime"), options=options)
    try:
        yield cluster.form().known_to_clients()
    finally:
        cluster.remove()


@pytest.fixture
def session(cluster):
    """A session that asks the first node alone."""
    with cluster.driver(only=1) as driver:
        yield driver.connect()


@pytest.fixture
def sessions(cluster):
    """By node, a session that asks it alone."""
    drivers = {number: cluster.driver(only=number) for number, _ in enumerate(cluster, 1)}
    yield {number: driver.connect() for number, driver in drivers.items()}
    for driver in drivers.values():
        driver.shutdown()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what its nodes printed."""
    report = yield
    cluster = item.funcargs.get("cluster")
    if report.when == "call" and report.failed and cluster:
        report.sections.append(("output of the nodes", cluster.log()))
    return report
