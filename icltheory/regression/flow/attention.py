"""Gradient flow of linear attention from a balanced start (Zhang et al. 2024)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import check_values
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Int, Scalar
from icltheory.regression._linalg import Matrix, Number, einsum
from icltheory.regression.flow._integrate import (
    integrate,
    read_settings,
    read_times,
)
from icltheory.regression.flow.starts import AttentionWeights
from icltheory.regression.rates._spectrum import read_length
from icltheory.regression.rates.trained_attention._gain import read_input_cov
from icltheory.regression.risks._population import Count

__all__ = ["AttentionTrajectory", "attention_flow"]


@pytree
class AttentionTrajectory:
    r"""Path of the reduced flow of linear attention.

    .. math:: \ell - \min \ell = \tfrac12 \bigl\| (G \Lambda)^{1/2}
        (u U - G^{-1}) \Lambda^{1/2} \bigr\|_F^2.

    Args:
        times: Times t.
        weights: u_t and U_t, stacked.
        excess: Population loss, half the squared error, beyond its minimum.
        squared_gradient: |dU/dt|^2 + |du/dt|^2.
        balance: u^2 - ||U||_F^2, which the flow conserves; 0 for their start.
        succeeded: Whether every time was reached.
        num_steps: Steps made, rejected ones included.

    Returns:
        A frozen pytree.

    Example:
        >>> start = AttentionWeights(jnp.array(1.0), jnp.eye(1))
        >>> path = attention_flow(jnp.eye(1), 1, start, jnp.array([0.0, 50.0]))
        >>> [round(float(u), 3) for u in path.weights.u], float(path.balance)
        ([1.0, 0.577], 0.0)

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.1.
    """

    times: Float[Array, "T"]
    weights: AttentionWeights
    excess: Float[Array, "T"]
    squared_gradient: Float[Array, "T"]
    balance: Scalar
    succeeded: Bool[Array, ""]
    num_steps: Int[Array, ""]


@calculator(compiled=False)
def attention_flow(
    input_cov: Matrix,
    num_examples: Count,
    start: AttentionWeights,
    times: Float[ArrayLike, "_T"],
    *,
    rtol: Number | None = None,
    atol: Number | None = None,
    max_steps: int = 100_000,
) -> AttentionTrajectory:
    r"""Gradient flow of linear attention whose output is its label entry.

    .. math:: \dot U = -u^2 G \Lambda U \Lambda + u \Lambda^2, \qquad
        \dot u = -\mathrm{tr}\bigl( u\, G \Lambda U \Lambda U^\top
        - \Lambda^2 U^\top \bigr), \qquad
        G = \bigl(1 + \tfrac1N\bigr) \Lambda + \tfrac{\mathrm{tr} \Lambda}{N} I,

    which is the gradient flow of the whole unmasked model on half the squared error,
    for w ~ N(0, I), x ~ N(0, Lambda) and no noise, since the other entries of
    W^{PV} = [[., .], [0, u]] and W^{KQ} = [[U, .], [0, .]] stay 0. Integrated in the
    eigenbasis of Lambda, by the method of ``gradient_flow``; u is found from U by the
    invariant u^2 - ||U||_F^2, which is not negative for their starts.

    Args:
        input_cov: Lambda, positive definite.
        num_examples: Examples N >= 1.
        start: Weights at time 0 with u^2 >= ||U||_F^2, as ``attention_start``
            gives.
        times: Increasing times from 0 or later.
        rtol: Relative tolerance of a step; 1e-6 in float64 if None.
        atol: Absolute tolerance of a step; 1.8e-12 in float64 if None.
        max_steps: Steps after which it gives up, and says so in ``succeeded``.

    Returns:
        The path.

    Example:
        >>> start = AttentionWeights(jnp.array(1.0), jnp.eye(1))
        >>> path = attention_flow(jnp.eye(1), 1, start, jnp.array([0.0, 50.0]))
        >>> [round(float(excess), 4) for excess in path.excess]
        [0.6667, 0.0]

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.1.
    """
    cov = read_input_cov(input_cov, definite=True)
    N = read_length("num_examples", num_examples, cov.dtype)
    check_shape("start.u", start.u, ())
    check_shape("start.U", start.U, cov.shape)
    _check_balance(start)
    times = read_times(times, cov.dtype)
    tolerances = read_settings("exponential", rtol, atol, max_steps, cov.dtype)
    return _solve(cov, N, start, times, *tolerances, max_steps)


def _check_balance(start: AttentionWeights) -> None:
    excess = jnp.square(start.u) - jnp.sum(jnp.square(start.U)) * (1 - 1e-5)
    check_values(
        "start",
        excess,
        lambda excess: excess >= 0,
        "u^2 - ||U||_F^2 >= 0",
    )


@functools.partial(jax.jit, static_argnums=6)
def _solve(cov, N, start, times, rtol, atol, max_steps) -> AttentionTrajectory:
    U, u = jnp.asarray(start.U, cov.dtype), jnp.asarray(start.u, cov.dtype)
    at, V = Scales.of(cov, N, U, u)
    state = einsum("ji,jk,kl->il", V, U, V).ravel()
    path = integrate(
        _field,
        state,
        at,
        times,
        solver="exponential",
        rates=_rates,
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
    )

    def weights(state):
        U, u = _split(state, at)
        return AttentionWeights(u, einsum("ij,jk,lk->il", V, U, V))

    def facts(state):
        U, u = _split(state, at)
        error = u * U - jnp.diag(1 / at.g)
        in_u = jnp.sum((jnp.diag(at.values**2) - u * at.pairs * U) * U)
        slope = jnp.sum(_field(state, at) ** 2) + in_u**2
        return jnp.sum(at.pairs * error**2) / 2, slope

    excess, slope = jax.vmap(facts)(path.states)
    stacked = jax.vmap(weights)(path.states)
    return AttentionTrajectory(
        times, stacked, excess, slope, at.balance, path.succeeded, path.num_steps
    )


class Scales(NamedTuple):
    """The problem's quantities in the eigenbasis of Lambda.

    ``values`` those of Lambda, ``g`` of G, ``pairs`` g_i lambda_i lambda_j, ``balance``
    u^2 - |U|_F^2 and ``sign`` of u at the start.
    """

    values: Array
    g: Array
    pairs: Array
    balance: Array
    sign: Array

    @classmethod
    def of(cls, cov: Array, N: Array, U: Array, u: Array) -> tuple["Scales", Array]:
        """Returns the quantities and the eigenbasis."""
        values, V = jnp.linalg.eigh(cov)
        g = (1 + 1 / N) * values + jnp.sum(values) / N
        pairs = (g * values)[:, None] * values[None, :]
        return cls(values, g, pairs, u**2 - jnp.sum(U**2), jnp.sign(u)), V


def _split(state: Array, at: Scales) -> tuple[Array, Array]:
    """Returns U, and u from the conserved balance."""
    d = at.values.shape[0]
    square = jnp.sum(state**2) + at.balance
    return state.reshape(d, d), at.sign * jnp.sqrt(jnp.maximum(square, 0))


def _field(state: Array, at: Scales) -> Array:
    """Time derivative of U."""
    U, u = _split(state, at)
    return (u * jnp.diag(at.values**2) - u**2 * at.pairs * U).ravel()


def _rates(state: Array, at: Scales) -> Array:
    """Decay rates of U, including the change of u near the limit."""
    U, u = _split(state, at)
    return (at.pairs * (u**2 + U**2)).ravel()
