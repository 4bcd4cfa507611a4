"""Gradient descent on the least-squares loss, from zero."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._checks import (
    check_integer,
    check_nonnegative_int,
    check_positive_int,
    check_shape,
)
from icltheory._noted import check_finite
from icltheory._typing import Array, Scalar
from icltheory.regression._linalg import Matrix, Number, dot, einsum
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    before,
    one_or_batch,
    read_prefixes,
    read_prompt,
)

__all__ = ["gradient_descent", "gradient_descent_prefixes", "tune_step_size"]

StepSize = Number | Float[ArrayLike, "..."]


@calculator
def gradient_descent(
    X: Inputs,
    y: Labels,
    x_query: Query,
    steps: int,
    step_size: StepSize,
    *,
    preconditioner: Matrix | None = None,
) -> Prediction:
    r"""Prediction after some steps of (preconditioned) gradient descent from zero.

    .. math:: w_0 = 0, \qquad
        w_{t+1} = w_t - \eta_t\, A\, \frac1N X^\top (X w_t - y), \qquad
        \hat y = \langle w_T, x_{query}\rangle,

    descent on |X w - y|^2 / (2N). No examples predict 0. Cost O(T N d).

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).
        steps: Steps T >= 0.
        step_size: eta, one for all steps, or (T,) with one a step.
        preconditioner: A, (d, d); the identity if None.

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.eye(2), jnp.array([1.0, 4.0])
        >>> float(gradient_descent(X, y, jnp.array([0.0, 1.0]), steps=1, step_size=1.0))
        2.0

    Source: von Oswald et al. (2023), eq. 3.
    """
    X, y, x_query = read_prompt(X, y, x_query)
    sizes = _step_sizes(step_size, steps, (), X.dtype)
    A = _preconditioner(preconditioner, X)

    def core(X, y, x_query):
        def step(w, eta):
            residual = einsum("nd,d->n", X, w) - y
            gradient = einsum("nd,n->d", X, residual) / max(X.shape[0], 1)
            return w - eta * _apply(A, gradient), None

        w, _ = jax.lax.scan(step, jnp.zeros_like(x_query), sizes)
        return dot(w, x_query)

    return one_or_batch(core, X, y, x_query)


@calculator
def gradient_descent_prefixes(
    X: Inputs,
    y: Labels,
    X_query: Inputs | None = None,
    *,
    steps: int,
    step_size: StepSize,
    preconditioner: Matrix | None = None,
) -> Predictions:
    r"""Predictions of gradient descent on every prefix of a prompt.

    .. math:: w^{(k)}_{t+1} = w^{(k)}_t - \eta_{k,t}\, A\, \frac1k X_{:k}^\top
        (X_{:k} w^{(k)}_t - y_{:k}), \qquad
        \hat y_k = \langle w^{(k)}_T, x^{query}_k\rangle.

    All prefixes step together as two masked matrix products, O(T P^2 d).

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.
        steps: Steps T >= 0.
        step_size: eta, one for all; (T,) with one a step; or (P, T), (P, 1) with its
            own for each prefix.
        preconditioner: A, (d, d); the identity if None.

    Returns:
        The predictions, (P,) or (B, P); entry 0 is 0.

    Example:
        >>> X, y = jnp.ones((3, 1)), jnp.ones(3)
        >>> gradient_descent_prefixes(X, y, steps=2, step_size=0.5).tolist()
        [0.0, 0.75, 0.75]

    Source: von Oswald et al. (2023), eq. 3.
    """
    X, y, X_query = read_prefixes(X, y, X_query)
    num_points = X.shape[-2]
    sizes = _step_sizes(step_size, steps, (num_points,), X.dtype)
    A = _preconditioner(preconditioner, X)
    counts = jnp.maximum(jnp.arange(num_points), 1).astype(X.dtype)
    mean = before(num_points) / counts[:, None]

    def core(X, y, X_query):
        def step(W, eta):
            residuals = (einsum("kd,nd->kn", W, X) - y[None]) * mean
            gradients = einsum("kn,nd->kd", residuals, X)
            return W - eta[:, None] * _apply(A, gradients), None

        W, _ = jax.lax.scan(step, jnp.zeros_like(X_query), sizes)
        return dot(W, X_query)

    return one_or_batch(core, X, y, X_query)


@calculator
def tune_step_size(
    X: Inputs,
    y: Labels,
    x_query: Query,
    y_query: Labels,
    steps: int,
    *,
    preconditioner: Matrix | None = None,
    rounds: int = 4,
    candidates: int = 33,
) -> Scalar:
    r"""Step size, the same in all steps, with the least error on a batch of prompts.

    .. math:: \hat\eta = \arg\min_\eta\ \frac1B \sum_b
        \bigl(\hat y_b(\eta) - y^{query}_b\bigr)^2.

    For one step the loss is a parabola in eta, solved exactly. Otherwise a grid on
    [0, 4 sqrt(d) / mean Frobenius norm of A X'X/N] is refined around its best point;
    each of the rounds costs ``candidates`` runs. Uses the labels of the queries: judge
    the result on other prompts. Where no step size moves an answer it is 0.

    Args:
        X: Example inputs.
        y: Example labels.
        x_query: Query inputs.
        y_query: Query labels.
        steps: Steps T >= 1.
        preconditioner: A, symmetric positive definite; the identity if None.
        rounds: Refinements of the grid; each makes the interval (candidates - 1) / 4
            times smaller.
        candidates: Points of a grid, 6 or more.

    Returns:
        The step size.

    Example:
        >>> X, y = jnp.ones((1, 2, 1)), jnp.ones((1, 2))
        >>> args = X, y, jnp.ones((1, 1)), jnp.ones(1)
        >>> [round(float(tune_step_size(*args, steps)), 3) for steps in (1, 2)]
        [1.0, 1.0]

    Source: von Oswald et al. (2023), Appendix A.
    """
    check_shape("X", X, ("B", "N", "d"))
    X, y, x_query = read_prompt(X, y, x_query)
    check_shape("y_query", y_query, X.shape[:1])
    target = jnp.asarray(y_query, X.dtype)
    check_positive_int("steps", steps)
    check_positive_int("rounds", rounds)
    check_integer("candidates", candidates, 6)

    def predict(eta):
        return gradient_descent(
            X, y, x_query, steps, eta, preconditioner=preconditioner
        )

    if steps == 1:
        slope = predict(jnp.ones((), X.dtype))
        square = jnp.sum(slope**2)
        return jnp.sum(slope * target) / jnp.where(square > 0, square, 1)
    A = _preconditioner(preconditioner, X)
    gram = einsum("bni,bnj->bij", X, X) / max(X.shape[1], 1)
    bounded = gram if A is None else einsum("ij,bjk->bik", A, gram)
    largest = jnp.mean(jnp.linalg.norm(bounded, axis=(1, 2)))

    def refine(interval, _):
        low, high = interval
        grid = jnp.linspace(low, high, candidates)
        errors = jax.lax.map(lambda eta: jnp.mean((predict(eta) - target) ** 2), grid)
        best = grid[jnp.nanargmin(errors)]
        width = 2 * (high - low) / (candidates - 1)
        return (jnp.maximum(best - width, 0), best + width), best

    largest = jnp.where(largest > 0, largest, 1)
    start = (jnp.zeros_like(largest), 4 * np.sqrt(X.shape[2]) / largest)
    return jax.lax.scan(refine, start, length=rounds)[1][-1]


def _step_sizes(
    step_size: StepSize, steps: int, prefix: tuple[int, ...], dtype: np.dtype
) -> Array:
    """Returns step sizes with a leading axis of steps: (T,) or (T, P)."""
    check_nonnegative_int("steps", steps)
    check_finite("step_size", step_size)
    shape = tuple(np.shape(step_size))
    full = (*prefix, steps)
    allowed = {(), (steps,), full, (*prefix, 1) if prefix else ()}
    if shape not in allowed:
        names = " or ".join(map(str, sorted(allowed, key=len)))
        raise ValueError(f"step_size: expected shape {names}, got {shape}")
    sizes = jnp.asarray(step_size, dtype)
    sizes = sizes.reshape((1,) * (len(full) - sizes.ndim) + shape)
    return jnp.moveaxis(jnp.broadcast_to(sizes, full), -1, 0)


def _preconditioner(preconditioner: Matrix | None, X: Array) -> Array | None:
    if preconditioner is None:
        return None
    check_shape("preconditioner", preconditioner, (X.shape[-1],) * 2)
    return jnp.asarray(preconditioner, X.dtype)


def _apply(A: Array | None, rows: Array) -> Array:
    return rows if A is None else einsum("...j,ij->...i", rows, A)
