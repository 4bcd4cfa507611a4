"""Predictors on every prefix at once against a loop over prefixes and prompts.

Command
    python -m benchmarks.predictors

1,280 prompts of 41 points, d = 20, as in Garg's evaluation; under two minutes on two
cores. The alternative is NumPy or SciPy called for each prompt and prefix; it is timed
on a few prompts and scaled up.
"""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _measure
from icltheory.regression import predictors
from icltheory.regression.tasks import LinearRegression

PROMPTS, POINTS, DIM, SAMPLE, POOL = 1280, 41, 20, 8, 4096


def loop(rule, X, y) -> float:
    """Seconds for all prompts of calling ``rule(X_k, y_k, x)`` a prefix at a time."""
    start = time.perf_counter()
    for prompt, labels in zip(X[:SAMPLE], y[:SAMPLE], strict=True):
        for k in range(1, POINTS):
            rule(prompt[:k], labels[:k], prompt[k])
    return (time.perf_counter() - start) * PROMPTS / SAMPLE


def least_squares(X, y, x):
    return x @ np.linalg.lstsq(X, y, rcond=None)[0]


def ridge(X, y, x):
    return x @ np.linalg.solve(X.T @ X + np.eye(DIM, dtype=X.dtype), X.T @ y)


def averaging(X, y, x):
    return x @ (X.T @ y) / len(y)


def nearest(X, y, x):
    return y[np.argsort(((X - x) ** 2).sum(1))[:3]].mean()


def descent(X, y, x):
    w = np.zeros_like(x)
    for _ in range(50):
        w += 0.1 * X.T @ (y - X @ w) / len(y)
    return x @ w


def main() -> None:
    task = LinearRegression.isotropic(DIM, dtype=jnp.float32)
    prompt = task.sample(jax.random.key(0), POINTS - 1, PROMPTS).prefixes()
    pool = jax.random.normal(jax.random.key(1), (POOL, DIM), jnp.float32)
    eye, zero = jnp.eye(DIM, dtype=jnp.float32), jnp.zeros(DIM, jnp.float32)
    prior = {"task_mean": zero, "task_cov": eye, "noise_var": 0.25}

    def pooled(X, y, x):
        miss = np.square(y - np.asarray(pool) @ X.T).sum(1) / 0.5
        weights = np.exp(miss.min() - miss)
        return x @ (weights @ np.asarray(pool)) / weights.sum()

    cases = {
        "least squares": (predictors.ols_prefixes, {}, least_squares),
        "ridge": (predictors.ridge_prefixes, {"penalty": 1.0}, ridge),
        "Bayes": (predictors.bayes_prefixes, prior, ridge),
        "averaging": (predictors.averaging_prefixes, {}, averaging),
        "3-NN": (predictors.nearest_neighbors_prefixes, {"k": 3}, nearest),
        "Lasso": (predictors.lasso_prefixes, {"penalty": 0.1}, None),
        "GD, 50 steps": (
            predictors.gradient_descent_prefixes,
            {"steps": 50, "step_size": 0.1},
            descent,
        ),
        "Newton, 10 steps": (predictors.newton_prefixes, {"steps": 10}, None),
        f"discrete MMSE, pool {POOL}": (
            predictors.discrete_mmse_prefixes,
            {"pool": pool, "noise_var": 0.25},
            pooled,
        ),
    }
    X, y = np.asarray(prompt.X), np.asarray(prompt.y)
    rows = []
    for name, (rule, options, plain) in cases.items():
        compute = jax.jit(functools.partial(rule, **options))
        ours = _measure.seconds(lambda c=compute: c(prompt.X, prompt.y), repeats=3)
        theirs = loop(plain, X, y) if plain is not None else None
        ratio = theirs / ours if theirs is not None else None
        rows.append([name, ours, theirs, ratio])
    _measure.table(
        f"{PROMPTS:,} prompts x {POINTS} prefixes, d = {DIM}, float32, "
        f"{jax.devices()[0].device_kind}",
        ["", "ours s", "NumPy loop s", "ratio"],
        rows,
    )


if __name__ == "__main__":
    main()
