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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the statement and the compared numbers to the report of a failure."""
    report = yield
    if report.failed and call.when == "call":
        from tests.identities.failures import describe

        own = [e for e in call.excinfo.traceback if e.path == item.path]
        values = own[-1].frame.f_locals if own else {}
        text = describe(item.nodeid, item.user_properties, values)
        report.sections.append(("the statement and the numbers", text))
    return report


@pytest.fixture(scope="session")
def measured():
    """Records a number beside its name: ``measured("relative error", 3e-16)``.

    Of an array it is the largest in absolute value; with ``below`` the test fails
    unless that is less. A test may record a name many times, once for each drawn
    example, say; the ledger shows the largest. The scope lets property tests use it.
    """

    def record(name, value, below=None):
        value = np.asarray(value)
        number = float(np.abs(value).max() if value.ndim else value)
        _running[-1].user_properties.append((name, number))
        if below is not None:
            assert abs(number) < below, name

    return record
