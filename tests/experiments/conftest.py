"""Fixtures of several experiments."""

import json

import jax
import pytest


@pytest.fixture
def float32():
    """The precision of a program of its own, which is not that of the tests."""
    with jax.enable_x64(False):
        yield


@pytest.fixture
def refused(tmp_path):
    """Checks that an experiment refuses options with a message and writes nothing."""

    def check(main, options, message):
        folder = tmp_path / "runs"
        with pytest.raises(ValueError, match="expected") as caught:
            main(["--preset", "cpu", "--output", str(folder), *options])
        assert message in str(caught.value)
        assert not folder.exists()

    return check


@pytest.fixture
def small_run(tmp_path):
    """Runs an experiment: its folder, its result, and the pictures that it drew."""

    def run(experiment, options):
        words = options.split() if isinstance(options, str) else options
        result = experiment.main([*words, "--output", str(tmp_path)])
        (path,) = tmp_path.glob("*/*/result.json")
        assert json.loads(path.read_text(), parse_constant=pytest.fail) == result
        return path.parent, result, {file.stem for file in path.parent.glob("*.png")}

    return run
