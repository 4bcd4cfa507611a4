"""The result of training linear attention (Theorems 4.1 and 4.5)."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import check_nonnegative, check_values
from icltheory._pytree import pytree
from icltheory._typing import Array, Float
from icltheory.regression._linalg import Matrix, as_floats
from icltheory.regression.rates._spectrum import read_length
from icltheory.regression.rates.trained_attention._gain import gain, read_input_cov
from icltheory.regression.risks._population import Count

__all__ = ["FlowLimit", "trained_attention_limit", "random_covariance_optimum"]


@pytree
class FlowLimit:
    r"""Limit of gradient flow on linear attention (Theorem 4.1).

    .. math:: W^{KQ}_* = \mathrm{tr}(G^{-2})^{-1/4}
        \begin{pmatrix} G^{-1} & 0 \\ 0 & 0 \end{pmatrix}, \qquad
        W^{PV}_* = \mathrm{tr}(G^{-2})^{1/4}
        \begin{pmatrix} 0 & 0 \\ 0 & 1 \end{pmatrix}.

    Args:
        W_KQ: Key-query matrix.
        W_PV: Value matrix.
        Gamma: G^{-1}, the preconditioner of the gradient step that both make.

    Returns:
        A frozen pytree.

    Example:
        >>> trained_attention_limit(jnp.eye(1), 2).W_PV.shape
        (2, 2)

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.1.
    """

    W_KQ: Float[Array, "n n"]
    W_PV: Float[Array, "n n"]
    Gamma: Float[Array, "d d"]


@calculator
def trained_attention_limit(input_cov: Matrix, num_examples: Count) -> FlowLimit:
    r"""Limit of gradient flow on linear attention from small weights (Theorem 4.1).

    .. math:: f = \bigl[E + W^{PV} E\, E^\top W^{KQ} E / N\bigr]_{d+1, N+1}, \qquad
        G = \Bigl(1 + \frac1N\Bigr) \Lambda + \frac{\mathrm{tr}\,\Lambda}{N} I,

    for x ~ N(0, Lambda), w ~ N(0, I), no noise, prompts of N examples. G^{-1} is the
    optimum Gamma* of GD-beta for this population, and the split between the matrices
    is the one that the flow conserves, |W^PV| = |W^KQ|.

    Args:
        input_cov: Lambda, not 0; it may be singular.
        num_examples: Examples N >= 1; may be traced.

    Returns:
        The two matrices, (d + 1, d + 1), and G^{-1}.

    Example:
        >>> found = trained_attention_limit(jnp.eye(3), 4)
        >>> round(float(found.Gamma[0, 0]), 6), round(float(found.W_KQ[0, 0]), 6)
        (0.5, 0.537285)

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.1.
    """
    Lam = read_input_cov(input_cov)
    Gamma = jnp.linalg.inv(gain(Lam, num_examples))
    scale = jnp.sum(Gamma**2) ** 0.25
    label = jnp.zeros(Lam.shape[0] + 1, Lam.dtype).at[-1].set(1)
    return FlowLimit(
        W_KQ=jnp.pad(Gamma / scale, ((0, 1), (0, 1))),
        W_PV=scale * jnp.diag(label),
        Gamma=Gamma,
    )


@calculator
def random_covariance_optimum(
    variances: Float[ArrayLike, "_T _d"],
    num_examples: Count,
    probabilities: Float[ArrayLike, "_T"] | None = None,
) -> Float[Array, "d d"]:
    r"""Optimum for prompts with random diagonal input covariances (Theorem 4.5).

    .. math:: \Gamma = \bigl(E\, G_t \Lambda_t^2\bigr)^{-1} E\, \Lambda_t^2, \qquad
        G_t = \Bigl(1 + \frac1N\Bigr) \Lambda_t + \frac{\mathrm{tr}\,\Lambda_t}{N} I,

    which is v U of the limit of the flow. A direction that no covariance has is given
    0. It is no longer the inverse of any covariance: prompts of one task are then not
    learnt however long they are.

    Args:
        variances: Diagonals of Lambda_1, ..., Lambda_T, (T, d).
        num_examples: Examples N >= 1; may be traced.
        probabilities: Of each covariance; equal if None. Their sum does not matter.

    Returns:
        Gamma, diagonal.

    Example:
        >>> Gamma = random_covariance_optimum(jnp.array([[1.0], [3.0]]), 2)
        >>> round(float(Gamma[0, 0]), 6)
        0.178571

    Source: Zhang, Frei and Bartlett (2024), Theorem 4.5.
    """
    check_shape("variances", variances, ("T", "d"))
    check_nonnegative("variances", variances)
    lam = as_floats(variances)[0]
    N = read_length("num_examples", num_examples, lam.dtype)
    weights = jnp.ones_like(lam[:, 0])
    if probabilities is not None:
        check_shape("probabilities", probabilities, (lam.shape[0],))
        check_nonnegative("probabilities", probabilities)
        check_values(
            "probabilities", probabilities, lambda p: p.any(), "a positive entry"
        )
        weights = jnp.asarray(probabilities, lam.dtype)
    G = (1 + 1 / N) * lam + jnp.sum(lam, axis=1, keepdims=True) / N
    target = jnp.sum(weights[:, None] * lam**2, axis=0)
    system = jnp.sum(weights[:, None] * G * lam**2, axis=0)
    return jnp.diag(jnp.where(system > 0, target / jnp.where(system > 0, system, 1), 0))
