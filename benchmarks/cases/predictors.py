"""Predictors on all prefixes at once, and a loop over prefixes and prompts.

Recurrent learners on long prompts are compared in chunks and one example at a time. Of
the others 1,280 prompts of 41 points, d = 20, as in Garg's evaluation, beside NumPy or
scikit-learn called for each prompt and prefix.
"""

import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import floor
from benchmarks.suite import EXACT, Pair, case, disagreement, nbytes
from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from icltheory.regression import predictors as of

PROMPTS, POINTS, DIM, SAMPLE, POOL, STEPS = 1280, 41, 20, 8, 4096, 50
LOOP = "NumPy, a prefix at a time"


def least_squares(X, y, x):
    return x @ np.linalg.lstsq(X, y, rcond=None)[0]


def ridge(X, y, x, penalty):
    eye = np.eye(DIM, dtype=X.dtype)
    return x @ np.linalg.solve(X.T @ X + penalty * eye, X.T @ y)


def averaging(X, y, x):
    return x @ (X.T @ y) / len(y)


def nearest(X, y, x):
    return y[np.argsort(((X - x) ** 2).sum(1))[:3]].mean()


def lasso(X, y, x):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # With scikit-learn's default tolerance the predictions have errors of up to a
        # seventh; ours are accurate to rounding.
        fitted = Lasso(alpha=0.1, fit_intercept=False, tol=1e-8, max_iter=10_000)
        return x @ fitted.fit(X, y).coef_


def descent(X, y, x):
    w = np.zeros_like(x)
    for _ in range(STEPS):
        w += 0.1 * X.T @ (y - X @ w) / len(y)
    return x @ w


def newton(X, y, x):
    S = X.T @ X
    M = S / np.linalg.norm(S @ S)
    for _ in range(10):
        M = 2 * M - M @ S @ M
    return x @ M @ (X.T @ y)


@functools.cache
def pool() -> jax.Array:
    return jax.random.normal(jax.random.key(1), (POOL, DIM), jnp.float32)


def pooled(X, y, x):
    members = np.asarray(pool())
    miss = np.square(y - members @ X.T).sum(1) / 0.5
    weights = np.exp(miss.min() - miss)
    return x @ (weights @ members) / weights.sum()


def bayes():
    eye, zero = jnp.eye(DIM, dtype=jnp.float32), jnp.zeros(DIM, jnp.float32)
    return of.Bayes(LinearPopulation(eye, zero, eye, 0.25))


# A root of the covariance times a vector, and its update: 2 d^2 each.
_ROOT = POINTS * 4 * DIM**2
# Two products with the k examples of a prefix, P^2 / 2 examples in total: 4 d each.
_GRADIENT = POINTS**2 / 2 * 4 * DIM
_RATES = jnp.full(STEPS, 0.1, jnp.float32)
# The predictor, its rule for one prefix, operations per prompt (none where they depend
# on the data). Newton: one product of d x d per step. Discrete MMSE: a member of the
# pool times an input, 2 d, for the fit and for the prediction.
RULES = {
    "averaging": (of.Averaging, averaging, POINTS * 4 * DIM),
    "least squares": (of.LeastSquares, least_squares, _ROOT),
    "ridge": (lambda: of.Ridge(1.0), functools.partial(ridge, penalty=1.0), _ROOT),
    "Bayes": (bayes, functools.partial(ridge, penalty=0.25), _ROOT),
    "3-NN": (lambda: of.NearestNeighbors(3), nearest, _GRADIENT * 3 / 4),
    f"GD, {STEPS} steps": (lambda: of.Steps(_RATES), descent, STEPS * _GRADIENT),
    "Newton, 10 steps": (lambda: of.Newton(10), newton, POINTS * 10 * 2 * DIM**3),
    f"discrete MMSE, pool {POOL:,}": (
        lambda: of.DiscreteMMSE(pool(), 0.25),
        pooled,
        POINTS * POOL * 2 * DIM,
    ),
    "Lasso": (lambda: of.Lasso(0.1), lasso, None, "scikit-learn, a prefix at a time"),
}


@case(f"Predictors, {PROMPTS:,} prompts of {POINTS} prefixes, d = {DIM}", RULES, EXACT)
def bench_predictor(make, rule, flops, label=LOOP) -> Pair:
    task = LinearPopulation.isotropic(DIM, dtype=jnp.float32)
    prompt = task.sample(jax.random.key(0), POINTS - 1, PROMPTS).prefixes()
    X, y = prompt.X, prompt.y
    compute = jax.jit(jax.vmap(make().predict_prefixes))
    sample = min(SAMPLE, PROMPTS)
    xs, ys = np.asarray(X), np.asarray(y)
    places = itertools.product(range(sample), range(1, POINTS))
    items = [(xs[i, :k], ys[i, :k], xs[i, k]) for i, k in places]
    rule(*items[0])  # the first call imports modules

    def error(got, found):
        return disagreement(got[:sample, 1:], np.reshape(found, (sample, POINTS - 1)))

    return Pair(
        lambda: compute(X, y),
        lambda: [rule(*item) for item in items],
        label,
        (sample, PROMPTS, "prompts"),
        floor=flops and floor(PROMPTS * flops, nbytes(X, y, y)),
        error=error,
        tolerance=1e-3,
    )


LONG = {"prompts": 16, "points": 2048, "dim": 64, "chunk": 64}
LEARNERS = {
    "linear attention": (reg.GatedLinearAttention, 1 / LONG["points"], 1.0),
    "gated delta rule": (reg.DeltaRule, 0.25 / LONG["dim"], 0.99),
}


@case(
    "Chunks of {chunk}, {prompts} prompts of {points:,} points, d = {dim}".format(
        **LONG
    ),
    LEARNERS,
    EXACT,
)
def bench_chunks(kind, step_size, gate) -> Pair:
    """Compares answers after every prefix in chunked and in recurrent form."""
    prompts, points, dim, chunk = LONG.values()
    task = LinearPopulation.isotropic(dim, 0.25, dtype=jnp.float32)
    prompt = task.sample(jax.random.key(0), points - 1, prompts).prefixes()
    rule = kind(step_size, gate)
    chunked = functools.partial(reg.chunked_predictions, rule, chunk_size=chunk)
    ours = jax.jit(jax.vmap(chunked))
    recurrent = jax.jit(jax.vmap(rule.predict_prefixes))
    # In a chunk: products of queries and keys with the chunk's keys and with the state.
    flops = prompts * points * (4 * chunk * dim + 6 * dim)
    return Pair(
        lambda: ours(prompt.X, prompt.y),
        lambda: recurrent(prompt.X, prompt.y),
        "an example at a time, compiled",
        floor=floor(flops, nbytes(prompt.X, prompt.y, prompt.y)),
        error=disagreement,
        # Both sum 2,048 float32 terms, in different orders.
        tolerance=1e-4,
    )
