"""The predictors as functions of a prompt or a batch, until their callers move."""

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_nonnegative_int
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.least_squares import Bayes, LeastSquares, Ridge
from icltheory.regression.predictors.others import DiscreteMMSE, NearestNeighbors
from icltheory.regression.predictors.sparse import Lasso
from icltheory.regression.predictors.steps import Averaging, Newton, Steps, Zero


def _one(rule, *prompt):
    many = np.ndim(prompt[0]) == 3
    return (jax.vmap(rule.predict) if many else rule.predict)(*map(jnp.asarray, prompt))


def _all(rule, X, y, X_query):
    X_query = X if X_query is None else X_query
    many, run = np.ndim(X) == 3, rule.predict_prefixes
    return (jax.vmap(run) if many else run)(*map(jnp.asarray, (X, y, X_query)))


def ols(X, y, x_query):
    """The predictor of this name, for one prompt or a batch."""
    return _one(LeastSquares(), X, y, x_query)


def ols_prefixes(X, y, X_query=None):
    """The predictor of this name, for one prompt or a batch."""
    return _all(LeastSquares(), X, y, X_query)


def ridge(X, y, x_query, penalty):
    """The predictor of this name, for one prompt or a batch."""
    return _one(Ridge(penalty), X, y, x_query)


def ridge_prefixes(X, y, X_query=None, *, penalty):
    """The predictor of this name, for one prompt or a batch."""
    return _all(Ridge(penalty), X, y, X_query)


def _prior(task_mean, task_cov, noise_var):
    eye = np.eye(*2 * np.shape(task_mean)[:1])
    return LinearPopulation(eye, task_mean, task_cov, noise_var)


def bayes(X, y, x_query, *, task_mean, task_cov, noise_var):
    """The predictor of this name, for one prompt or a batch."""
    return _one(Bayes(_prior(task_mean, task_cov, noise_var)), X, y, x_query)


def bayes_prefixes(X, y, X_query=None, *, task_mean, task_cov, noise_var):
    """The predictor of this name, for one prompt or a batch."""
    return _all(Bayes(_prior(task_mean, task_cov, noise_var)), X, y, X_query)


def zero(X, y, x_query):
    """The predictor of this name, for one prompt or a batch."""
    return _one(Zero(), X, y, x_query)


def zero_prefixes(X, y, X_query=None):
    """The predictor of this name, for one prompt or a batch."""
    return _all(Zero(), X, y, X_query)


def averaging(X, y, x_query):
    """The predictor of this name, for one prompt or a batch."""
    return _one(Averaging(), X, y, x_query)


def averaging_prefixes(X, y, X_query=None):
    """The predictor of this name, for one prompt or a batch."""
    return _all(Averaging(), X, y, X_query)


def _steps(steps, step_size, preconditioner):
    check_nonnegative_int("steps", steps)
    sizes = jnp.asarray(step_size)
    last = sizes.shape[-1:] if sizes.ndim else ()
    sizes = (
        jnp.broadcast_to(sizes, (*sizes.shape[:-1], steps))
        if last != (steps,)
        else sizes
    )
    return Steps(sizes, preconditioner)


def gradient_descent(X, y, x_query, steps, step_size, *, preconditioner=None):
    """The predictor of this name, for one prompt or a batch."""
    return _one(_steps(steps, step_size, preconditioner), X, y, x_query)


def gradient_descent_prefixes(
    X, y, X_query=None, *, steps, step_size, preconditioner=None
):
    """The predictor of this name, for one prompt or a batch."""
    return _all(_steps(steps, step_size, preconditioner), X, y, X_query)


def newton(X, y, x_query, steps, *, initial_scale=1.0):
    """The predictor of this name, for one prompt or a batch."""
    return _one(Newton(steps, initial_scale), X, y, x_query)


def newton_prefixes(X, y, X_query=None, *, steps, initial_scale=1.0):
    """The predictor of this name, for one prompt or a batch."""
    return _all(Newton(steps, initial_scale), X, y, X_query)


def nearest_neighbors(X, y, x_query, k=3):
    """The predictor of this name, for one prompt or a batch."""
    return _one(NearestNeighbors(k), X, y, x_query)


def nearest_neighbors_prefixes(X, y, X_query=None, *, k=3):
    """The predictor of this name, for one prompt or a batch."""
    return _all(NearestNeighbors(k), X, y, X_query)


def lasso(X, y, x_query, penalty, *, max_steps=None):
    """The predictor of this name, for one prompt or a batch."""
    return _one(Lasso(penalty, max_steps), X, y, x_query)


def lasso_prefixes(X, y, X_query=None, *, penalty, max_steps=None):
    """The predictor of this name, for one prompt or a batch."""
    return _all(Lasso(penalty, max_steps), X, y, X_query)


def lasso_weights(X, y, penalty, *, max_steps=None):
    """The predictor of this name, for one prompt or a batch."""
    rule = Lasso(penalty, max_steps)
    return (jax.vmap(rule.fit) if np.ndim(X) == 3 else rule.fit)(
        jnp.asarray(X), jnp.asarray(y)
    )


def discrete_mmse(X, y, x_query, *, pool, noise_var, chunk_size=512):
    """The predictor of this name, for one prompt or a batch."""
    return _one(DiscreteMMSE(pool, noise_var, chunk_size), X, y, x_query)


def discrete_mmse_prefixes(X, y, X_query=None, *, pool, noise_var, chunk_size=512):
    """The predictor of this name, for one prompt or a batch."""
    return _all(DiscreteMMSE(pool, noise_var, chunk_size), X, y, X_query)
