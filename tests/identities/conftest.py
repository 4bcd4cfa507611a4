"""What an identity test measured, kept for the ledger."""

import numpy as np
import pytest

_running: list[pytest.Item] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Remembers which test records."""
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


@pytest.fixture(scope="session")
def measured():
    """Records a number beside its name: ``measured("relative error", 3e-16)``.

    A test may record a name many times, once for each drawn example, say; the ledger
    shows the largest in absolute value. The scope lets property tests use it.
    """

    def record(name, value):
        _running[-1].user_properties.append((name, float(np.asarray(value))))

    return record
