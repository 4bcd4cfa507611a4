"""The path of Lasso solutions, from the largest penalty to a given one."""

import jax
import jax.numpy as jnp

from icltheory._typing import Array
from icltheory.regression._linalg import dot, einsum


def lasso_path_end(
    gram: Array, moment: Array, penalty: Array, rank: Array | int, max_steps: int
) -> tuple[Array, Array]:
    """Lasso minimiser of w'Gw/2 - m'w + penalty |w|_1, and the steps taken.

    The solution is piecewise linear in the penalty. A step goes to the next penalty at
    which a coordinate joins or leaves the active set, and updates the inverse of the
    active block by a matrix of rank one. At the end the inverse refines the solution of
    the last linear system, which also carries the (first) derivatives. ``rank`` bounds
    the rank of G and so the active set.
    """
    fixed = jax.lax.stop_gradient((gram, moment, penalty))
    path = jax.lax.stop_gradient(_follow(*fixed, rank, max_steps))
    followed, signs, inverse, steps = path

    def correction(w, gram, moment, penalty):
        residual = moment - penalty * signs - einsum("ij,j->i", gram, w)
        return einsum("ij,j->i", inverse, residual)

    refined = followed + correction(followed, *fixed)
    refined = refined + correction(refined, *fixed)
    # The refinement is rejected where the inverse has lost its accuracy.
    wins = violation(*fixed, refined) < violation(*fixed, followed)
    w = jnp.where(wins, refined, followed)
    moved = correction(w, gram, moment, penalty)
    w = w + (moved - jax.lax.stop_gradient(moved))
    return w, steps


def violation(gram: Array, moment: Array, penalty: Array, w: Array) -> Array:
    """Largest distance of the gradient from -penalty times the subdifferential."""
    force = moment - einsum("ij,j->i", gram, w)
    inactive = jnp.maximum(jnp.abs(force) - penalty, 0)
    active = jnp.abs(force - penalty * jnp.sign(w))
    return jnp.max(jnp.where(w != 0, active, inactive), initial=0)


def _follow(
    gram: Array, moment: Array, penalty: Array, rank: Array | int, max_steps: int
) -> tuple[Array, Array, Array, Array]:
    """Follows the path; returns solution, signs, inverse active block, and steps."""
    dim, dtype = moment.shape[0], moment.dtype
    places = jnp.arange(dim)
    floor = dim * jnp.finfo(dtype).eps * jnp.diagonal(gram)

    def unfinished(state):
        level, *_, steps = state
        return (level > penalty) & (steps < max_steps)

    def advance(state):
        level, w, signs, inverse, last, steps = state
        force = moment - einsum("ij,j->i", gram, w)
        move = einsum("ij,j->i", inverse, signs)
        slope = einsum("ij,j->i", gram, move)
        join, leave = _events(level, w, signs, move, force, slope, last)
        join = jnp.where(jnp.count_nonzero(signs) < rank, join, jnp.inf)
        first_join, first_leave = jnp.min(join), jnp.min(leave)
        length = jnp.minimum(jnp.minimum(first_join, first_leave), level - penalty)
        joins = (first_join <= length) & (first_join <= first_leave)
        leaves = (first_leave <= length) & ~joins
        j = jnp.where(joins, jnp.argmin(join), jnp.argmin(leave))
        here = places == j
        moved = jnp.where(leaves & here, 0, w + length * move)
        row = jnp.where(signs != 0, gram[j], 0)
        opened = here - einsum("ij,j->i", inverse, row)
        schur = gram[j, j] - dot(row, einsum("ij,j->i", inverse, row))
        allowed = joins & (schur > floor[j])
        v = jnp.where(allowed, opened, jnp.where(leaves, inverse[j], 0))
        pivot = jnp.where(allowed, schur, jnp.where(leaves, -inverse[j, j], 1))
        updated = inverse + v[:, None] * (v / pivot)[None, :]
        kept = ~(leaves & here)
        updated = jnp.where(kept[:, None] & kept[None, :], updated, 0)
        side = jnp.sign(force - length * slope)
        turned = jnp.where(here & allowed, side, jnp.where(kept, signs, 0))
        last = jnp.where((joins & ~allowed) | leaves, j, -1)
        sound = jnp.isfinite(jnp.sum(updated) + jnp.sum(moved))
        new = (level - length, moved, turned, updated, last, steps + 1)
        stop = (level, w, signs, inverse, last, max_steps)
        return jax.tree.map(lambda a, b: jnp.where(sound, a, b), new, stop)

    zeros = jnp.zeros_like(moment)
    if not moment.size:  # the inputs have dimension 0
        return zeros, zeros, jnp.zeros_like(gram), jnp.asarray(0)
    j = jnp.argmax(jnp.abs(moment))
    level = jnp.abs(moment[j])
    here = (places == j) & (level > penalty)
    inverse = jnp.diag(jnp.where(here, 1 / jnp.where(level > 0, gram[j, j], 1), 0))
    start = (level, zeros, jnp.where(here, jnp.sign(moment), 0), inverse, -1, 0)
    _, w, signs, inverse, _, steps = jax.lax.while_loop(unfinished, advance, start)
    return w, signs, inverse, jnp.asarray(steps)


def _events(level, w, signs, move, force, slope, last):
    """Decrease of the penalty at which each coordinate would become active or leave."""
    active = signs != 0

    def positive(top, bottom):
        ratio = jnp.maximum(top, 0) / jnp.where(bottom > 0, bottom, 1)
        return jnp.where(bottom > 0, ratio, jnp.inf)

    upper = positive(level - force, 1 - slope)
    lower = positive(level + force, 1 + slope)
    # A coordinate that has just left is still on its boundary.
    fresh = jnp.arange(w.shape[0]) == last
    upper = jnp.where(fresh & (force > 0), jnp.inf, upper)
    lower = jnp.where(fresh & (force < 0), jnp.inf, lower)
    join = jnp.where(active, jnp.inf, jnp.minimum(upper, lower))
    shrinking = active & (w * move < 0)
    leave = jnp.where(shrinking, -w / jnp.where(shrinking, move, 1), jnp.inf)
    return join, leave
