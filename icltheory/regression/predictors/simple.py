"""The zero predictor and averaging, one gradient step of unit size from zero."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory.regression._linalg import dot, einsum
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Predictions,
    Query,
    read_prefixes,
    read_prompt,
    shift_down,
)

__all__ = ["averaging", "averaging_prefixes", "zero", "zero_prefixes"]


@calculator
def zero(X: Inputs, y: Labels, x_query: Query) -> Prediction:
    r"""Predicts 0 for any examples.

    .. math:: \hat y = 0.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).

    Returns:
        Zeros, () or (B,).

    Example:
        >>> zero(jnp.ones((4, 3, 2)), jnp.ones((4, 3)), jnp.ones((4, 2))).tolist()
        [0.0, 0.0, 0.0, 0.0]

    Source: Garg et al. (2022), Figure 2.
    """
    X, y, x_query = read_prompt(X, y, x_query)
    return jnp.zeros(X.shape[:-2], X.dtype)


@calculator
def zero_prefixes(X: Inputs, y: Labels, X_query: Inputs | None = None) -> Predictions:
    r"""Predicts 0 after every prefix.

    .. math:: \hat y_k = 0.

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.

    Returns:
        Zeros, (P,) or (B, P).

    Example:
        >>> zero_prefixes(jnp.ones((2, 3)), jnp.ones(2)).tolist()
        [0.0, 0.0]

    Source: Garg et al. (2022), Figure 2.
    """
    X, y, X_query = read_prefixes(X, y, X_query)
    return jnp.zeros_like(y)


@calculator
def averaging(X: Inputs, y: Labels, x_query: Query) -> Prediction:
    r"""Prediction by averaging: the weight is the mean of label-weighted inputs.

    .. math:: \hat y = \frac1N \sum_{i=1}^N y_i \langle x_i, x_{query}\rangle.

    No examples predict 0. Its risk is ``icltheory.regression.risks.averaging_risk``.

    Args:
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).

    Returns:
        The prediction, () or (B,).

    Example:
        >>> X, y = jnp.array([[1.0], [2.0]]), jnp.array([1.0, 2.0])
        >>> float(averaging(X, y, jnp.array([2.0])))
        5.0

    Source: Garg et al. (2022), Section 3.
    """
    X, y, x_query = read_prompt(X, y, x_query)
    w = einsum("...nd,...n->...d", X, y) / max(X.shape[-2], 1)
    return dot(w, x_query)


@calculator
def averaging_prefixes(
    X: Inputs, y: Labels, X_query: Inputs | None = None
) -> Predictions:
    r"""Averaging predictions after every prefix, by one cumulative sum, O(P d).

    .. math:: \hat y_k = \frac1k \sum_{i=1}^k y_i \langle x_i, x^{query}_k\rangle,
        \qquad \hat y_0 = 0.

    Args:
        X: Example inputs, (P, d) or (B, P, d).
        y: Example labels, (P,) or (B, P).
        X_query: Query asked after the first k examples; row k of ``X`` if None.

    Returns:
        The predictions, (P,) or (B, P).

    Example:
        >>> averaging_prefixes(jnp.ones((3, 1)), jnp.array([1.0, 3.0, 0.0])).tolist()
        [0.0, 1.0, 2.0]

    Source: Garg et al. (2022), Section 3.
    """
    X, y, X_query = read_prefixes(X, y, X_query)
    sums = shift_down(jnp.cumsum(y[..., None] * X, axis=-2), axis=X.ndim - 2)
    counts = jnp.maximum(jnp.arange(X.shape[-2]), 1).astype(X.dtype)
    dots = dot(sums, X_query)
    return dots / counts.reshape((1,) * (y.ndim - 1) + counts.shape)
