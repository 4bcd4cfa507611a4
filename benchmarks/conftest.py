"""Options of ``pytest benchmarks``, what is stored, and the table of ratios."""

import pytest

from benchmarks import machine, table
from benchmarks.suite import ENTRIES

_LOAD = pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="the first size of each case")


def pytest_configure(config):
    config.stash[_LOAD] = machine.load()


def pytest_collection_modifyitems(config, items):
    if config.getoption("--quick"):
        first = {(item.path, item.originalname): item for item in reversed(items)}
        kept = [item for item in items if item in first.values()]
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        items[:] = kept


def pytest_benchmark_generate_machine_info(config):
    return machine.describe(config.stash[_LOAD])


def pytest_benchmark_generate_commit_info(config):
    return {}  # the revision is stored with the machine


def pytest_terminal_summary(terminalreporter):
    if ENTRIES:
        terminalreporter.section("ratios")
        terminalreporter.write(table.markdown(ENTRIES))
