"""Fixtures of several experiments."""

import jax
import pytest


@pytest.fixture
def float32():
    """The precision of a program of its own, which is not that of the tests."""
    with jax.enable_x64(False):
        yield
