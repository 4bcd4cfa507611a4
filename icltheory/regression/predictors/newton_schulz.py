"""Iterative Newton for least squares: Newton-Schulz inversion of the Gram matrix."""

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_nonnegative_int
from icltheory._noted import check_scalar
from icltheory._typing import Array
from icltheory.regression._linalg import Number, dot, einsum
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    one_or_batch,
    read_prefixes,
    read_prompt,
    shift_down,
)

__all__ = ["newton", "newton_prefixes"]


@calculator
def newton(
    X: Inputs, y: Labels, x_query: Query, steps: int, *, initial_scale: Number = 1.0
) -> Prediction:
    r"""Prediction after some Newton-Schulz steps towards the inverse Gram matrix.

    .. math:: S = X^\top X, \quad M_0 = \frac{c}{\|S S^\top\|_F} S, \quad
        M_{t+1} = 2 M_t - M_t S M_t, \\
        \hat y = \langle M_T X^\top y, x_{query}\rangle.

    Since I - S M_t = (I - S M_0)^{2^t}, the weights obey w_{t+1} = w_t + E_t w_t with
    E_{t+1} = E_t^2, which is what is computed: one product of small matrices a step.
    It converges to ``ols`` for 0 < c < 2. Published code takes c = 2, for which one
    example, or examples of rank one, predict 0 for ever. Where the examples are of
    deficient rank, rounding errors double with every step: use float64 there.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).
        steps: Steps T >= 0.
        initial_scale: c.

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([1.0, 3.0])
        >>> args = X, y, jnp.array([0.0, 1.0])
        >>> [round(float(newton(*args, steps)), 4) for steps in (0, 4, 8)]
        [1.0211, 1.2912, 1.9959]

    Source: Fu et al. (2024), eq. 6.
    """
    check_nonnegative_int("steps", steps)
    check_scalar("initial_scale", initial_scale)

    def core(X, y, x_query):
        num_examples, dim = X.shape
        if num_examples < dim:
            gram = einsum("ni,mi->nm", X, X)
            w = einsum("nd,n->d", X, _iterate(gram, y, steps, initial_scale))
        else:
            gram = einsum("ni,nj->ij", X, X)
            w = _iterate(gram, einsum("nd,n->d", X, y), steps, initial_scale)
        return dot(w, x_query)

    return one_or_batch(core, *read_prompt(X, y, x_query))


@calculator
def newton_prefixes(
    X: Inputs,
    y: Labels,
    X_query: Inputs | None = None,
    *,
    steps: int,
    initial_scale: Number = 1.0,
) -> Predictions:
    r"""Predictions of iterative Newton on every prefix of a prompt.

    .. math:: \hat y_k = \langle M^{(k)}_T X_{:k}^\top y_{:k},\ x^{query}_k\rangle

    with M as in ``newton`` for the first k examples. Prefixes shorter than d work on
    the k x k Gram matrix of the examples, which keeps the iteration of full rank.
    Cost O(T d^3) a prefix, one prefix after the other to bound the memory.

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.
        steps: Steps T >= 0.
        initial_scale: c.

    Returns:
        The predictions, (P,) or (B, P); entry 0 is 0.

    Example:
        >>> X, y = jnp.ones((3, 1)), jnp.ones(3)
        >>> newton_prefixes(X, y, steps=0).tolist()
        [0.0, 1.0, 1.0]

    Source: Fu et al. (2024), eq. 6.
    """
    check_nonnegative_int("steps", steps)
    check_scalar("initial_scale", initial_scale)

    def core(X, y, X_query):
        num_points, dim = X.shape
        head = min(num_points, dim)
        pad = ((0, dim - head), (0, 0))
        first = jnp.pad(X[:head], pad)
        first_y = jnp.pad(y[:head], pad[0])
        K = einsum("ni,mi->nm", first, first)
        moments = shift_down(jnp.cumsum(y[:, None] * X, axis=0))

        def at_prefix(gram, row):
            k, x, moment, query = row
            seen = jnp.arange(dim) < k
            few = k < dim
            A = jnp.where(few, jnp.where(seen[:, None] & seen[None, :], K, 0), gram)
            b = jnp.where(few, jnp.where(seen, first_y, 0), moment)
            v = _iterate(A, b, steps, initial_scale)
            w = jnp.where(few, einsum("nd,n->d", first, v), v)
            return gram + x[:, None] * x[None, :], dot(w, query)

        rows = (jnp.arange(num_points), X, moments, X_query)
        return jax.lax.scan(at_prefix, jnp.zeros((dim, dim), X.dtype), rows)[1]

    return one_or_batch(core, *read_prefixes(X, y, X_query))


def _iterate(gram: Array, b: Array, steps: int, initial_scale: Number) -> Array:
    """M_T b for a symmetric Gram matrix; 0 where the matrix is 0."""
    square = einsum("ij,jk->ik", gram, gram)
    size = jnp.sum(square**2)  # the root of 0 has no derivative
    norm = jnp.sqrt(jnp.where(size > 0, size, 1))
    scale = jnp.asarray(initial_scale, b.dtype) / norm
    error = jnp.eye(b.shape[0], dtype=b.dtype) - scale * square

    def step(_, state):
        v, E = state
        return v + einsum("ij,j->i", E, v), einsum("ij,jk->ik", E, E)

    start = (scale * einsum("ij,j->i", gram, b), error)
    return jax.lax.fori_loop(0, steps, step, start)[0]
