"""The result of training linear attention (Theorem 4.1)."""

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._pytree import pytree
from icltheory._typing import Array, Float
from icltheory.regression._linalg import Matrix
from icltheory.regression.rates.trained_attention._gain import gain, read_input_cov
from icltheory.regression.risks._population import Count

__all__ = ["FlowLimit", "trained_attention_limit"]


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
