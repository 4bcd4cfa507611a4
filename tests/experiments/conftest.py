"""Fixtures of several experiments."""

import json

import jax
import pytest


@pytest.fixture
def float32():
    """The precision of a program of its own, which is not that of the tests."""
    with jax.enable_x64(False):
        yield


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """Runs an experiment: its folder, its result, and the pictures that it drew."""

    def run(experiment, options):
        output = tmp_path_factory.mktemp("runs")
        result = experiment.main([*options.split(), "--output", str(output)])
        (path,) = output.glob("*/*/result.json")
        assert json.loads(path.read_text(), parse_constant=pytest.fail) == result
        return path.parent, result, {file.stem for file in path.parent.glob("*.png")}

    return run
