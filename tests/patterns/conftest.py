"""What several files look at."""

import pytest

from tests.patterns import drawn


@pytest.fixture(scope="package")
def task():
    return drawn.pattern_task(4, 5, 2.0, 3)
