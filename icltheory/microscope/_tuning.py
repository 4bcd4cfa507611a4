"""The best member of a family on the first half of the prompts, in one program."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._core import Record, exact_products
from icltheory._typing import Array, Float, Int
from icltheory.microscope.families import Family, Scale

_REFINEMENTS = 30
_LARGEST_MOVE = 1.0  # of the logarithm of a parameter in one refinement
# Members whose largest answer is more than so many times the model's are left out:
# gradient descent beyond its largest stable step explodes on a prompt in a thousand.
_LARGEST_ANSWER = 3.0
# Of two counts whose losses differ by less than this share, the smaller is taken.
_EQUAL = 0.01


class Tuned(Record):
    """The best member of a family, and its answers to all prompts."""

    values: Float[Array, " p"]
    index: Int[Array, ""]
    answers: Float[Array, " S"]
    query_weights: Float[Array, "S d"]


@functools.partial(jax.jit, static_argnames="size")
@exact_products
def tune(family: Family, answers: Any, X: Any, y: Any, x_query: Any, size: int):
    r"""Minimises the mean of (f - g)^2 over the parameters on the first prompts.

    Every count begins at its best point of the grid and is refined in the logarithm of
    the parameters by the Levenberg-Marquardt iteration. Members that explode on some
    prompt of either half, by their answers alone, are left out.

    Args:
        answers: What the model answers, f, ``(S,)``.
        size: Prompts that are used for tuning.

    Source: Levenberg (1944); Marquardt (1963).
    """
    states = jax.vmap(family.prepare)(X, y)
    first = jax.tree.map(lambda leaf: leaf[:size], states)
    scale = _scale(X, y)
    most = jnp.array([p.most for p in family.parameters], X.dtype)

    def path(theta, state, x):
        return family.path(jnp.minimum(jnp.exp(theta), most), state, x)

    def residuals(theta, index):
        found = jax.vmap(lambda s, x: path(theta, s, x)[index])(first, x_query[:size])
        return found - answers[:size]

    most_answer = _LARGEST_ANSWER * jnp.max(jnp.abs(answers))

    def losses(theta):
        found = jax.vmap(lambda s, x: path(theta, s, x))(states, x_query)
        loss = jnp.mean((found[:size] - answers[:size, None]) ** 2, axis=0)
        usable = jnp.max(jnp.abs(found), axis=0) <= most_answer
        return jnp.where(usable & jnp.isfinite(loss), loss, jnp.inf)

    theta, loss = _begin(family, scale, losses, X.dtype)
    if family.parameters:
        theta, loss = _refined(residuals, losses, theta, loss)
    enough = (1 + _EQUAL) * jnp.min(loss) + 10 * jnp.finfo(X.dtype).eps * jnp.mean(
        answers[:size] ** 2
    )
    index = jnp.argmax(loss <= enough)

    def one(state, x):
        return path(theta[index], state, x)[index]

    values, grads = jax.vmap(jax.value_and_grad(one, 1))(states, x_query)
    return Tuned(jnp.minimum(jnp.exp(theta[index]), most), index, values, grads)


def _scale(X, y):
    count = max(X.shape[1], 1)
    if not X.shape[1]:
        return Scale(1.0, 1.0, 1.0, count)
    gram = jnp.einsum("sni,snj->sij", X, X) / count
    top = jnp.mean(jnp.linalg.eigvalsh(gram)[:, -1])
    size = jnp.mean(jnp.sum(X**2, axis=-1))
    return Scale(top, size, jnp.mean(y**2), count)


def _begin(family, scale, losses, dtype):
    """The best point of the grid for each count, (K, p), with its loss."""
    grids = [parameter.grid(scale) for parameter in family.parameters]
    mesh = jnp.meshgrid(*grids, indexing="ij") if grids else []
    starts = jnp.stack([m.ravel() for m in mesh], 1) if grids else jnp.zeros((1, 0))
    starts = starts.astype(dtype)
    table = jax.lax.map(losses, starts)
    return starts[jnp.argmin(table, axis=0)], jnp.min(table, axis=0)


def _refined(residuals, losses, theta, loss):
    counts, width = theta.shape
    eye, indices = jnp.eye(width, dtype=theta.dtype), jnp.arange(counts)

    def linearised(theta, index):
        r, push = jax.linearize(lambda at: residuals(at, index), theta)
        J = jax.vmap(push)(eye).T
        return jnp.mean(r**2), J.T @ J / len(r), J.T @ r / len(r)

    def step(_, state):
        theta, (loss, A, g), damping = state
        D = jnp.diag(jnp.maximum(jnp.diagonal(A), jnp.finfo(A.dtype).tiny))
        move = -jnp.linalg.solve(A + damping * D + jnp.finfo(A.dtype).tiny * eye, g)
        move = jnp.nan_to_num(jnp.clip(move, -_LARGEST_MOVE, _LARGEST_MOVE))
        return theta + move, damping

    def one(theta, index):
        def body(i, state):
            new, damping = step(i, state)
            found = linearised(new, index)
            better = _finite(found[0]) < _finite(state[1][0])
            kept = jax.tree.map(
                lambda a, b: jnp.where(better, a, b), (new, found), state[:2]
            )
            return *kept, jnp.where(better, damping * 0.1, damping * 8)

        # The first pass moves nothing: it evaluates the start.
        unknown = (
            jnp.full((), jnp.inf, theta.dtype),
            0 * jnp.outer(theta, theta),
            0 * theta,
        )
        start = theta, unknown, jnp.asarray(1e-2, theta.dtype)
        return jax.lax.fori_loop(0, _REFINEMENTS + 1, body, start)[0]

    found = jax.vmap(one)(theta, indices)
    new = jax.lax.map(lambda at: losses(at[0])[at[1]], (found, indices))
    better = new < loss
    return jnp.where(better[:, None], found, theta), jnp.where(better, new, loss)


def _finite(loss):
    return jnp.where(jnp.isfinite(loss), loss, jnp.inf)
