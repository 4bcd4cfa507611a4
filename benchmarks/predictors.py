"""Predictors on all prefixes at once, compared with a loop over prefixes and prompts.

Command
    python -m benchmarks.predictors

1,280 prompts of 41 points, d = 20, as in Garg's evaluation; half a minute on two cores.
The alternative is NumPy or scikit-learn called for each prompt and prefix; it is timed
on a few prompts, scaled up, and its answers there are compared with ours.
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, each
from icltheory.regression import LinearPopulation, predictors

PROMPTS, POINTS, DIM, SAMPLE, POOL, STEPS = 1280, 41, 20, 8, 4096, 50
GROUP = f"Predictors, {PROMPTS:,} prompts of {POINTS} prefixes, d = {DIM}"


class Pair(NamedTuple):
    """A predictor, the same rule for one prefix, and the cost of both.

    Attributes:
        ours: The predictor, which answers every prefix.
        rule: ``rule(X, y, x)`` for one prefix.
        flops: Operations for one prompt, or none where they depend on the data.
        alternative: What the rule is written in.
        tolerance: For the difference of the answers.
        seconds: What measuring takes.
    """

    ours: predictors.Predictor
    rule: Callable[..., Any]
    flops: float | None
    alternative: str = "NumPy, a prefix at a time"
    tolerance: float = 1e-3
    seconds: float = 2.0


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


def pooled(pool, X, y, x):
    miss = np.square(y - pool @ X.T).sum(1) / 0.5
    weights = np.exp(miss.min() - miss)
    return x @ (weights @ pool) / weights.sum()


def pairs(pool: Array) -> dict[str, Pair]:
    """Returns all predictors with their rules and operation counts."""
    eye, zero = jnp.eye(DIM, dtype=jnp.float32), jnp.zeros(DIM, jnp.float32)
    population = LinearPopulation(eye, zero, eye, 0.25)
    # A root of the covariance times a vector, and its update: 2 d^2 each.
    root = POINTS * 4 * DIM**2
    # Two products with the k examples of a prefix, P^2 / 2 examples in total: 4 d each.
    gradient = POINTS**2 / 2 * 4 * DIM
    of, part = predictors, functools.partial
    return {
        "averaging": Pair(of.Averaging(), averaging, POINTS * 4 * DIM),
        "least squares": Pair(of.LeastSquares(), least_squares, root),
        "ridge": Pair(of.Ridge(1.0), part(ridge, penalty=1.0), root),
        "Bayes": Pair(of.Bayes(population), part(ridge, penalty=0.25), root),
        "3-NN": Pair(of.NearestNeighbors(3), nearest, gradient * 3 / 4),
        f"GD, {STEPS} steps": Pair(
            of.Steps(jnp.full(STEPS, 0.1, jnp.float32)),
            descent,
            STEPS * gradient,
            seconds=4.0,
        ),
        # One product of d x d per step.
        "Newton, 10 steps": Pair(
            of.Newton(10),
            newton,
            POINTS * 10 * 2 * DIM**3,
            seconds=4.0,
        ),
        # A member of the pool times an input: 2 d, for the fit and for the prediction.
        f"discrete MMSE, pool {POOL:,}": Pair(
            of.DiscreteMMSE(pool, 0.25),
            part(pooled, np.asarray(pool)),
            POINTS * POOL * 2 * DIM,
            seconds=8.0,
        ),
        "Lasso": Pair(
            of.Lasso(0.1),
            lasso,
            None,
            "scikit-learn, a prefix at a time",
            seconds=8.0,
        ),
    }


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures every predictor on the same prompts."""
    task = LinearPopulation.isotropic(DIM, dtype=jnp.float32)
    prompt = task.sample(jax.random.key(0), POINTS - 1, PROMPTS).prefixes()
    pool = jax.random.normal(jax.random.key(1), (POOL, DIM), jnp.float32)
    cases = [
        Case(name, pair.seconds, functools.partial(row, pair, prompt.X, prompt.y))
        for name, pair in pairs(pool).items()
    ]
    yield from each(GROUP, budget, cases)


@jax.default_matmul_precision("highest")
def row(pair: Pair, X: Array, y: Array) -> BenchmarkRow:
    """Times the predictor on all prompts and the rule on some of them."""
    compute = jax.jit(jax.vmap(pair.ours.predict_prefixes))
    ours = _measure.seconds(lambda: compute(X, y), repeats=3)
    found, theirs = loop(pair.rule, np.asarray(X), np.asarray(y))
    moved = _measure.nbytes(X, y, y)
    return BenchmarkRow(
        ours_s=ours,
        alternative=pair.alternative,
        alternative_s=theirs,
        floor_s=pair.flops and _measure.floor(X.shape[0] * pair.flops, moved),
        error=_measure.disagreement(compute(X, y)[: len(found), 1:], found),
        tolerance=pair.tolerance,
        note=f"alternative timed on {len(found)} prompts, scaled",
    )


def loop(rule, X, y) -> tuple[np.ndarray, float]:
    """Applies a rule to each prefix of some prompts, and scales its time up to all."""
    sample, points = min(SAMPLE, len(X)), X.shape[1]
    items = [
        (X[prompt, :k], y[prompt, :k], X[prompt, k])
        for prompt in range(sample)
        for k in range(1, points)
    ]
    rule(*items[0])  # the first call imports modules
    found, seconds = _measure.part_of_loop(rule, items, len(X) * (points - 1))
    return np.reshape(found, (sample, points - 1)), seconds


if __name__ == "__main__":
    _alone.main(measure)
