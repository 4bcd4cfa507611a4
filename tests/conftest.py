"""Strict settings for every test: float64, no silent broadcasting of ranks."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")


@pytest.fixture
def key():
    return jax.random.key(0)
