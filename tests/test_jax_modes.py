"""Calculators and training in the modes of JAX that a user may have switched on."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import noise, patterns, pruning, training, trajectory
from icltheory import regression as reg
from icltheory.bounds import isotropic_bound, noisy_steps
from icltheory.chain_of_thought import vote_error
from icltheory.constructions import gradient_descent
from icltheory.models import GPT2
from icltheory.regression import LinearPopulation, flow
from tests.bad_values import floats

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_for_a_user")]


@contextlib.contextmanager
def strict():
    """All that raises and changes no number, in one mode: each mode compiles anew."""
    ranks = jax.numpy_rank_promotion("raise")
    with jax.numpy_dtype_promotion("strict"), ranks, jax.debug_nans(True):
        yield


MODES = {
    "strict promotion and ranks, no NaN": strict,
    "no jit": lambda: jax.disable_jit(),
    "float64 after import": lambda: jax.enable_x64(True),
    "rbg keys": lambda: jax.default_prng_impl("rbg"),
    "leaks": lambda: jax.checking_leaks(),
}
# Their draws are others.
DRAWN = ("float64 after import", "rbg keys")
RNG = np.random.default_rng(0)
X, H = RNG.normal(size=(6, 2)).astype("f4"), RNG.normal(size=(40, 12, 3)).astype("f4")


def stack():
    return gradient_descent(jnp.full(2, 0.5, jnp.float32), d_in=2)


def task():
    return LinearPopulation.isotropic(2, 0.25)


def flowed():
    start = reg.GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
    return flow(start, task(), 3, jnp.array([0.0, 1.0]), rtol=1e-5)


def pattern_step():
    few, model = patterns.PatternTask(4, 4, 3.0), patterns.PatternTransformer(8)
    start, key = model.init(few, key=jax.random.key(0)), jax.random.key(1)
    settings = {"num_examples": 8, "batch_size": 4}
    return patterns.train(model, few, start, 2, key=key, step_size=1.0, **settings)


def trained():
    """Two steps of a small GPT-2, as garg_linear trains it."""
    model = GPT2(dim=2, num_positions=8, width=8, num_layers=1, num_heads=2)
    easy = LinearPopulation.isotropic(2, 0.0, dtype=jnp.float32)
    optimizer = training.make_optimizer(training.OptimizerConfig("muon", 0.01), 2)
    state = training.init_state(model, easy, optimizer, 0, num_points=4)
    plain = training.Curriculum.none(2, 4)
    sizes = {"batch_size": 4, "num_points": 4}
    step = training.make_step(model, easy, optimizer, plain, **sizes)
    (chunk,) = training.run(step, state, 2, chunk_steps=2)
    return chunk.metrics["loss"]


CALLS = {
    "least squares": lambda: reg.LeastSquares().predict_prefixes(X, X[:, 0]),
    "lasso": lambda: reg.Lasso(0.1).predict(X, X[:, 0], np.ones(2, "f4")),
    "risk": lambda: reg.optimum(reg.LinearStep, task(), 20),
    "best LTB": lambda: reg.optimum(reg.GDBeta, task(), 20),
    "bound": lambda: isotropic_bound(noisy_steps(stack(), H, 6, scale=1 / 12), 1.0),
    "trajectory": lambda: trajectory.implicit_gd(stack(), H[0], scale=1 / 12),
    "noise": lambda: noise.noise_spectrum(stack(), H[0], 6, scale=1 / 12),
    "flow": flowed,
    "patterns": pattern_step,
    "votes": lambda: vote_error(0.6, 11),
    "pruning": lambda: pruning.prune(X, 0.5),
    "training": trained,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_mode_of_jax_changes_nothing(name):
    with jax.enable_x64(False):
        usual = floats(CALLS[name]())
    drawn = name in ("patterns", "training")
    for mode, switch in MODES.items():
        if (name, mode) == ("flow", "leaks"):
            continue  # diffrax itself keeps tracers
        wide = contextlib.nullcontext() if "64" in mode else jax.enable_x64(False)
        jax.clear_caches()  # a program that is there is not traced again
        with wide, switch():
            found = floats(CALLS[name]())
        for one, other in zip(found, usual, strict=True):
            assert one.shape == other.shape, mode
            if drawn and mode in DRAWN:
                assert np.isfinite(one).all(), mode
            else:
                close = {"rtol": 1e-4, "atol": 1e-5, "err_msg": mode}
                np.testing.assert_allclose(one, other, **close)
