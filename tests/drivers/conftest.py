import pytest

from harness import suites


@pytest.fixture
def apart():
    """Suites need ports and processes of their own."""
    if why := suites.why_not_apart():
        pytest.skip(why)
