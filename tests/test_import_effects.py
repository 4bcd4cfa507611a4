"""On two cores a program of several batched decompositions ends, and is right."""

import os
import subprocess
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import _import_effects

# Eight independent solves of a batch: more than the threads of two cores.
SEVERAL = """
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-2:])
import icltheory.linalg
import jax, jax.numpy as jnp
x = jax.random.normal(jax.random.key(0), (200, 8, 20, 20))
x = x @ x.mT + jnp.eye(20)
several = lambda x: [jnp.linalg.solve(a, a[0]).sum() for a in x]
several = jax.jit(jax.vmap(several))
for _ in range(20):
    jax.block_until_ready(several(x))
print("ended")
os._exit(0)
"""


@pytest.fixture(autouse=True, scope="module")
def _as_on_two_cores():
    """The tests' own process has one thread, on which the import changes nothing."""
    if _import_effects.hangs(version("jaxlib")):
        _import_effects._replace_rules()


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores and the means to choose them",
)
@pytest.mark.slow
def test_several_batches_at_once_end_on_two_cores():
    unset = ("NPROC", "PJRT_NPROC", "XLA_FLAGS")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    environment["JAX_PLATFORMS"] = "cpu"
    run = [sys.executable, "-c", SEVERAL]
    done = subprocess.run(
        run, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ended\n", done.stderr


@pytest.mark.parametrize(
    ("jaxlib", "found"),
    [
        ("0.9.2", False),
        ("0.10.0", True),
        ("0.10.2", True),
        ("0.11.0", True),
        ("0.11.1", False),
        ("0.12.0.1", False),
        ("0.10.3.dev20260101", True),
    ],
)
def test_versions_that_hang(jaxlib, found):
    assert _import_effects.hangs(jaxlib) is found


def test_a_version_with_wrong_sums_is_named(monkeypatch):
    monkeypatch.setattr(_import_effects, "version", lambda name: "0.10.2")
    with pytest.warns(UserWarning, match=r"jaxlib 0\.10\.2 makes wrong sums"):
        _import_effects.warn_of_wrong_sums()


def test_sums_of_products_over_long_axes_are_those_of_numpy():
    x = np.random.default_rng(0).normal(size=(6, 20, 8192)).astype(np.float32)
    found = jax.jit(lambda x: jnp.sum(x[:, None] * x[None], axis=2))(x)
    np.testing.assert_allclose(found, np.einsum("anB,bnB->abB", x, x), atol=1e-4)


def test_threads_are_counted_as_xla_does(monkeypatch):
    monkeypatch.setenv("NPROC", "3")
    assert _import_effects._threads() == 3
    monkeypatch.setenv("PJRT_NPROC", "5")
    assert _import_effects._threads() == 5


@pytest.mark.slow
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 2)])
def test_answers_are_those_of_numpy(batch):
    x = np.random.default_rng(0).normal(size=(*batch, 3, 3))
    x = x @ np.swapaxes(x, -1, -2) + np.eye(3)
    y = np.ones((*batch, 3, 2))

    @jax.jit
    def decompose(x, y):
        return jnp.linalg.solve(x, y), jnp.linalg.eigvalsh(x), jnp.linalg.cholesky(x)

    linalg = np.linalg
    want = linalg.solve(x, y), linalg.eigvalsh(x), linalg.cholesky(x)
    for got, right in zip(decompose(x, y), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-10, atol=1e-12)


def test_empty_matrices_are_decomposed():
    for shape in ((3, 0, 0), (0, 2, 2)):
        values, vectors = jax.jit(jnp.linalg.eigh)(jnp.zeros(shape))
        assert (values.shape, vectors.shape) == (shape[:2], shape)


HEAVY = ("matplotlib", "orbax", "tensorstore", "scipy.stats", "diffrax", "safetensors")


def test_heavy_libraries_are_imported_when_they_are_needed():
    code = (
        "import sys, icltheory\n"
        "for name in icltheory._PACKAGES: getattr(icltheory, name)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
