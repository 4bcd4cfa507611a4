"""The weight implied by a model's predictions, and the parts of its error."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.regression.prompts import PrefixPrompt


class ErrorSplit(NamedTuple):
    """Squared error / d of each prompt and number of examples, and its parts.

    ``total = shots + training + curvature + cross`` holds for every entry. The cross
    term has mean 0 for any model: given the demonstrations, the expected weight is that
    of least squares. A fit over Q queries counts about d/Q of the curvature as
    training; both are what training leaves.

    Attributes:
        total: Of the answers against the true weight.
        shots: Of the least squares weight against the true one: what no model avoids.
        training: Of the implied weight against that of least squares.
        curvature: Of the answers against those of the implied weight.
        cross: Twice the scalar product of the two differences of weights.
    """

    total: np.ndarray
    shots: np.ndarray
    training: np.ndarray
    curvature: np.ndarray
    cross: np.ndarray


def query_design(key: Any, num_prompts: int, num_queries: int, dim: int) -> jax.Array:
    """Draws queries x, -x with sum x x^T = Q I, for which linear fits are sums."""
    half = num_queries // 2
    normal = jax.random.normal(key, (num_prompts, half, dim), jnp.float32)
    orthonormal, _ = jnp.linalg.qr(normal)
    X = jnp.sqrt(jnp.float32(half)) * orthonormal
    return jnp.concatenate([X, -X], axis=1)


@functools.partial(jax.jit, static_argnames="module")
def answers(module: Any, params: Any, prompt: PrefixPrompt, queries: Any) -> Any:
    """Predictions at every prefix for every query, (prompts, prefixes, queries)."""

    def ask(query):
        asked = jnp.broadcast_to(query[:, None], prompt.X.shape)
        return module.apply({"params": params}, prompt.X, prompt.y, asked)

    return jnp.moveaxis(jax.lax.map(ask, jnp.moveaxis(queries, 1, 0)), 0, 2)


def least_squares_weights(prompt: PrefixPrompt) -> np.ndarray:
    """Minimum-norm least squares after every prefix, (prompts, prefixes, d), float64.

    Without label noise it is the mean of w given the examples. Labels are computed
    anew in float64, so that it ends at w itself.
    """
    X, w = np.asarray(prompt.X, np.float64), np.asarray(prompt.w, np.float64)
    y = np.einsum("bnd,bd->bn", X, w)
    prefixes = [
        np.einsum("bdk,bk->bd", np.linalg.pinv(X[:, :k]), y[:, :k])
        for k in range(X.shape[1])
    ]
    return np.stack(prefixes, axis=1)


def split(values: Any, queries: Any, w_ls: np.ndarray, w: Any) -> ErrorSplit:
    """Splits the error of ``answers`` on ``queries`` into its parts."""
    values, X, w = (np.asarray(a, np.float64) for a in (values, queries, w))
    d = X.shape[2]
    w_hat = np.einsum("bpq,bqd->bpd", values, X) / X.shape[1]
    truth = np.einsum("bqd,bd->bq", X, w)[:, None]
    linear = np.einsum("bpd,bqd->bpq", w_hat, X)
    missed, off = w_ls - w[:, None], w_hat - w_ls
    return ErrorSplit(
        total=((values - truth) ** 2).mean(axis=2) / d,
        shots=(missed**2).sum(axis=2) / d,
        training=(off**2).sum(axis=2) / d,
        curvature=((values - linear) ** 2).mean(axis=2) / d,
        cross=2 * (missed * off).sum(axis=2) / d,
    )
