"""Simulates replicates of a row: the quantities of the bounds, and the true errors."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.bound_vs_error.config import Config, ProblemSize
from experiments.bound_vs_error.learners import (
    CLIP,
    GenericWeights,
    GradientDescent,
    Learner,
    clipped_loss,
    clipped_losses,
    draw_tokens,
    population_loss,
)
from icltheory import bounds
from icltheory.batching import in_turns
from icltheory.bounds import anisotropic_term, held_out_term
from icltheory.noise import (
    demonstration_gradients,
    noisy_trajectory,
    support_dims,
    without_replacement_factor,
)
from icltheory.trajectory import implicit_gd

R = CLIP / 2
SMOOTHING = (0.01, 0.1, 1.0, 10.0)  # variances of the perturbation, times N
PAIRS = 64  # number of demonstrations per prompt that are paired with others
_NUMBERS_AT_ONCE = 2**25


class Replicates(NamedTuple):
    """Quantities measured on each of B prompts.

    Attributes:
        squared_G: ||G_t||^2, ``(B, L)``.
        paper_square: ||dW_t||^2 ||1 + W_{t-1}||_F^2, the paper's numerator.
        squared_distance: ||G_t - g_t||^2 with the population's gradient g_t.
        trace: tr C_t.
        log_det: log det C_t on its support, -inf where N - 1 < m.
        anisotropic: T_t with prior N(g_t, Sigma_mu / b).
        held_out: T_t of the priors that saw part of the demonstrations,
            ``(B, 3, L)``.
        gap: Generalisation error of W_L, ``(B,)``; its mean is the true error.
        risk: Expected loss of W_L.
        det_gap: ``gap`` of the learner without noise.
        det_risk: ``risk`` of the learner without noise.
        det_w: Its predictor, ``(B, d_in)``.
        train_change: Change of its training loss under a perturbation and its opposite,
            ``(B, 4, 2)``.
        population_change: Change of its expected loss, ``(B, 4, 2)``.
        pair_losses: Losses of W_L as shares of the largest possible loss, on P
            demonstrations of the prompt and on as many others, ``(B, P, 2)``.
        det_pair_losses: ``pair_losses`` of the learner without noise.
    """

    squared_G: Any
    paper_square: Any
    squared_distance: Any
    trace: Any
    log_det: Any
    anisotropic: Any
    held_out: Any
    gap: Any
    risk: Any
    det_gap: Any
    det_risk: Any
    det_w: Any
    train_change: Any
    population_change: Any
    pair_losses: Any
    det_pair_losses: Any


def held_out_sizes(num_demos: int) -> tuple[int, int, int]:
    """Sizes of the held-out priors' data: half, nine tenths, and all but one."""
    return num_demos // 2, num_demos - max(1, num_demos // 10), num_demos - 1


def learner_of(row: ProblemSize, seed: int) -> Learner:
    """Returns the learner of a row; generic weights are the same for all rows."""
    if row.generic:
        return GenericWeights(seed)
    return GradientDescent(row.dim, row.num_layers)


def simulate(config: Config, row: ProblemSize) -> Replicates:
    """Simulates all replicates of a row in compiled chunks."""
    count = config.replicates_of(row)
    keys = tuple(jax.random.split(k, count) for k in row_keys(config.seed, row))
    learner = learner_of(row, config.seed)
    out = replicates(
        keys, jnp.asarray(row.shots), learner, row.num_demos, _chunk(row, count)
    )
    return Replicates(*map(np.asarray, out))


def row_keys(seed: int, row: ProblemSize) -> Array:
    """Returns the keys of a row's data, noise and perturbations, unique to the row."""
    key = jax.random.key(seed)
    for number in dataclasses.astuple(row):
        key = jax.random.fold_in(key, number)
    return jax.random.split(key, 3)


def _chunk(row: ProblemSize, count: int) -> int:
    """Returns the chunk size, a power of two; it is 1 on a CPU."""
    if jax.default_backend() == "cpu":
        return 1
    chunk = _NUMBERS_AT_ONCE // (row.num_demos * (row.dim + 1) * row.num_layers)
    return min(1 << max(chunk.bit_length() - 1, 0), count)


@functools.cache
def _support_dims(learner: Learner) -> np.ndarray:
    return np.asarray(jax.jit(support_dims)(learner.stack()))


def printed_bound(learner: Learner, row: ProblemSize) -> float:
    """Theorem 2 as printed: infinite unless the rank of C_t is n^2."""
    n = learner.dim + 1
    rank = np.minimum(row.num_demos - 1, _support_dims(learner))
    if np.any(rank < n**2):
        return math.inf
    stack = learner.stack()
    H = draw_tokens(jax.random.key(0), learner, row.num_demos)
    steps = bounds.noisy_steps(stack, H, row.shots, scale=1 / row.num_demos)
    return float(bounds.printed_bound(steps, R).value)


@functools.partial(jax.jit, static_argnames=("learner", "num_demos", "chunk"))
def replicates(
    keys: tuple[Array, Array, Array],
    shots: Array,
    learner: Learner,
    num_demos: int,
    chunk: int,
) -> Replicates:
    """Simulates replicates from keys of the data, the noise and the perturbation."""

    def one(keys):
        return replicate(keys, shots, learner, num_demos)

    return in_turns(one, keys, chunk)


def replicate(
    keys: tuple[Array, Array, Array], shots: Array, learner: Learner, num_demos: int
) -> Replicates:
    """Simulates one prompt: a noisy path, its terms, and errors with and without noise.

    The expected loss is exact given W_L, and the gap of a fixed predictor near it,
    whose mean is zero, is subtracted.
    """
    stack, d = learner.stack(), learner.dim
    H = draw_tokens(keys[0], learner, num_demos)
    path = noisy_trajectory(keys[1], stack, H, shots, scale=1 / num_demos)
    W = jnp.concatenate([jnp.zeros_like(path.W[:1]), path.W[:-1]])
    terms = bound_terms(learner, H, W, shots)

    pairs = min(num_demos, PAIRS)
    others = draw_tokens(jax.random.fold_in(keys[0], 1), learner, pairs)

    def gap(w):
        return population_loss(w, learner.task) - clipped_loss(w, H)

    def pair_losses(w):
        both = clipped_losses(w, H[:pairs]), clipped_losses(w, others)
        return jnp.stack(both, axis=-1) / CLIP

    w = -path.W[-1, -1, :d]
    det_w = -implicit_gd(stack, H, scale=1 / num_demos).W[-1, -1, :d]
    control = gap(learner.anchor)
    direction = jax.random.normal(keys[2], (d,))
    steps = jnp.sqrt(jnp.array(SMOOTHING) / num_demos)
    moves = steps[:, None, None] * jnp.stack([direction, -direction])[None]

    def change(loss):
        at = jax.vmap(jax.vmap(loss))(det_w[None, None] + moves)
        return at - loss(det_w)

    return Replicates(
        *terms,
        gap=gap(w) - control,
        risk=population_loss(w, learner.task),
        det_gap=gap(det_w) - control,
        det_risk=population_loss(det_w, learner.task),
        det_w=det_w,
        train_change=change(lambda w: clipped_loss(w, H)),
        population_change=change(lambda w: population_loss(w, learner.task)),
        pair_losses=pair_losses(w),
        det_pair_losses=pair_losses(det_w),
    )


def bound_terms(learner: Learner, H: Array, W: Array, shots: Array) -> tuple:
    """Computes the first seven fields of ``Replicates`` at given weights."""
    N, m = H.shape[0], learner.support_dim
    gradients = demonstration_gradients(learner.stack(), H, scale=1 / N, W=W)
    z = learner.coordinates(gradients)
    G = jnp.mean(z, axis=1)
    centred = z - G[:, None]
    kappa = without_replacement_factor(N, shots)
    C = kappa / N * jnp.swapaxes(centred, 1, 2) @ centred
    mean, cov = jax.vmap(learner.population)(W)
    delta_W = jnp.swapaxes(gradients.left, 1, 2) @ gradients.right_delta_W
    P = jnp.eye(H.shape[1])[None] + W
    covered = m <= N - 1
    log_det = jnp.linalg.slogdet(C)[1]
    nothing = jnp.full(W.shape[0], jnp.inf)
    held_out = [
        jax.vmap(lambda z, M=M: held_out_term(z, shots, M))(z)
        if m + 2 < M and covered  # otherwise the mean is infinite
        else nothing
        for M in held_out_sizes(N)
    ]
    return (
        jnp.sum(G**2, axis=1),
        jnp.sum(delta_W**2, axis=(1, 2)) * jnp.sum(P**2, axis=(1, 2)),
        jnp.sum((G - mean) ** 2, axis=1),
        jnp.trace(C, axis1=1, axis2=2),
        log_det if covered else -nothing,
        jax.vmap(anisotropic_term)(G - mean, C, cov / shots) if covered else nothing,
        jnp.stack(held_out),
    )
