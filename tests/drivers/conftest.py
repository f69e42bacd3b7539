import pytest

from harness import suites


@pytest.fixture
def apart():
    """Suites need ports and processes of their own, which only root can give them. Where that is not so, their tests say why they did not run."""
    if why := suites.why_not_apart():
        pytest.skip(why)
