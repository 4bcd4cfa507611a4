"""The optimum of one layer in the convention of Ahn, Cheng, Daneshmand and Sra."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Scalar
from icltheory.attention import linear_attention
from icltheory.constructions import join_tokens, read_prediction
from icltheory.regression._linalg import as_floats
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors._inputs import (
    Inputs,
    Labels,
    Prediction,
    Query,
    one_or_batch,
    read_prompt,
)
from icltheory.regression.rates._spectrum import check_zero_mean, read_length
from icltheory.regression.risks._population import Count
from icltheory.regression.risks.linear_attention import linear_attention_optimum

__all__ = [
    "PreconditionedOptimum",
    "preconditioned_optimum",
    "preconditioned_prediction",
]


@pytree
class PreconditionedOptimum:
    r"""The best P and Q of one layer (Theorem 1).

    .. math:: P = e_{d+1} e_{d+1}^\top, \qquad
        Q = -\begin{pmatrix} A^\top & 0 \\ 0 & 0 \end{pmatrix},

    up to P -> s P, Q -> Q / s.

    Args:
        P: Value matrix.
        Q: Key-query matrix.
        A: The preconditioner of the gradient step that both make.
        risk: Its risk, which counts the query's noise.

    Returns:
        A frozen pytree.

    Example:
        >>> best = preconditioned_optimum(LinearPopulation.isotropic(1), 4)
        >>> round(float(best.Q[0, 0]), 6), float(best.P[1, 1])
        (-0.666667, 1.0)

    Source: Ahn, Cheng, Daneshmand and Sra (2023), Theorem 1.
    """

    P: Float[Array, "n n"]
    Q: Float[Array, "n n"]
    A: Float[Array, "d d"]
    risk: Scalar


@calculator
def preconditioned_optimum(
    problem: LinearPopulation, num_examples: Count
) -> PreconditionedOptimum:
    r"""The global optimum of one layer of linear attention (Theorem 1).

    .. math:: A = V\, \mathrm{diag}\Bigl(\frac{1}{\tfrac{n+1}{n} \lambda_i
        + \tfrac1n \sum_k \lambda_k}\Bigr) V^\top, \qquad
        \Sigma = V \mathrm{diag}(\lambda) V^\top,

    for the paper's x ~ N(0, Sigma), w ~ N(0, I) and no noise: n / (n + d + 1) I for
    Sigma = I. For other priors of mean 0, and noise, A is the Gamma* of
    ``risks.linear_attention_optimum``: n / (n + d + 1) Sigma^{-1} for
    w ~ N(0, Sigma^{-1}). That no other weights do better is Theorem 5.2 of Zhang, Wu
    and Bartlett (2024) for mean 0; gradient descent from random weights often ends in
    local minima that do worse.

    Args:
        problem: The population (H, 0, Psi, sigma^2).
        num_examples: Examples n >= 1; may be traced.

    Returns:
        The matrices P and Q, (d + 1, d + 1), A and the risk.

    Example:
        >>> best = preconditioned_optimum(LinearPopulation.isotropic(3), 4)
        >>> best.A.round(4).tolist()
        [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]

    Source: Ahn et al. (2023), Theorem 1.
    """
    check_zero_mean(problem)
    read_length("num_examples", num_examples, problem.dtype)
    best = linear_attention_optimum(problem, num_examples)
    label = jnp.zeros(problem.dim + 1, best.Gamma.dtype).at[-1].set(1)
    return PreconditionedOptimum(
        P=jnp.diag(label),
        Q=-jnp.pad(best.Gamma.T, ((0, 1), (0, 1))),
        A=best.Gamma,
        risk=best.risk,
    )


@calculator
def preconditioned_prediction(
    P: Float[ArrayLike, "_n _n"],
    Q: Float[ArrayLike, "_n _n"],
    X: Inputs,
    y: Labels,
    x_query: Query,
) -> Prediction:
    r"""Prediction of one layer in the paper's convention.

    .. math:: Z_1 = Z + \frac1n P Z M Z^\top Q Z, \qquad
        \hat y = -[Z_1]_{d+1, n+1}, \qquad
        Z = \begin{pmatrix} x_1 & \cdots & x_n & x \\ y_1 & \cdots & y_n & 0
        \end{pmatrix},

    with the mask M = diag(1, ..., 1, 0). No examples predict 0.

    Args:
        P: Value matrix, (d + 1, d + 1).
        Q: Key-query matrix, (d + 1, d + 1).
        X: Example inputs, (N, d) or (B, N, d).
        y: Example labels, (N,) or (B, N).
        x_query: Query input, (d,) or (B, d).

    Returns:
        The prediction, () or (B,).

    Example:
        >>> best = preconditioned_optimum(LinearPopulation.isotropic(1), 4)
        >>> X, y = jnp.ones((4, 1)), jnp.ones(4)
        >>> answer = preconditioned_prediction(best.P, best.Q, X, y, jnp.ones(1))
        >>> round(float(answer), 6)
        0.666667

    Source: Ahn, Cheng, Daneshmand and Sra (2023), Section 2.
    """
    arrays = read_prompt(X, y, x_query)
    width, count = arrays[0].shape[-1] + 1, max(arrays[0].shape[-2], 1)
    check_shape("P", P, (width, width))
    check_shape("Q", Q, (width, width))
    P, Q = as_floats(P, Q)
    eye = jnp.eye(width, dtype=Q.dtype)

    def core(X, y, x):
        tokens = join_tokens(X, y[:, None], x)
        out = linear_attention(P, eye, Q, *tokens, mask="demos", scale=1 / count)
        return read_prediction(out.h_query, width - 1)[0]

    return one_or_batch(core, *arrays)
