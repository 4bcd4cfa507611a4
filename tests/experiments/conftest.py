"""Fixtures of several experiments."""

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
