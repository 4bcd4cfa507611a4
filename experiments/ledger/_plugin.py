"""A pytest plugin that writes outcomes and measured numbers to a file.

It imports nothing of the package: its modules must not be loaded before the tests'
type checker is.
"""

import json
from pathlib import Path

import pytest


def pytest_addoption(parser):
    """Adds the pytest option for the output file."""
    parser.addoption("--ledger-json", type=Path, required=False)


def pytest_configure(config):
    """Registers the collector in the main process of pytest, not in its workers."""
    path = config.getoption("--ledger-json")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(path))


class _Collector:
    def __init__(self, path: Path):
        self.path = path
        self.tests: dict[str, dict] = {}
        self.broken: list[str] = []

    def pytest_runtest_logreport(self, report):
        test = self.tests.setdefault(
            report.nodeid, {"outcome": "passed", "measured": []}
        )
        if report.outcome != "passed" and test["outcome"] != "failed":
            test["outcome"] = report.outcome
        if report.when == "teardown":
            test["measured"] = report.user_properties

    def pytest_collectreport(self, report):
        if report.failed:
            self.broken.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        record = {"tests": self.tests, "broken": self.broken}
        self.path.write_text(json.dumps(record))
