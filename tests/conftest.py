"""Strict settings for every test: float64, no silent broadcasting of ranks."""

import os
import resource
import sys

# Compilation is most of the suite's time, and tests run each program a few times only.
# Programs that tests start as processes of their own inherit it.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
)

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")


_ENOUGH = 2 * 2**30


def pytest_runtest_teardown(item, nextitem):
    """Forgets compiled programs between modules, before they fill the memory."""
    if nextitem is None or nextitem.path == item.path:
        return
    # Kilobytes, but for macOS, which counts bytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    if peak > _ENOUGH:
        jax.clear_caches()


@pytest.fixture
def key():
    return jax.random.key(0)
