"""One layer of linear attention, as a predictor and as weights."""

from typing import Any

import jax.numpy as jnp

from icltheory._checks import check_shape, checked, finite, real
from icltheory._typing import Array, Float
from icltheory.regression._linalg import as_floats, einsum
from icltheory.regression._moments import step_risk
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import LinearInLabels

__all__ = ["LinearStep"]


class LinearStep(LinearInLabels):
    r"""One layer of linear attention: a preconditioned gradient step from zero.

    .. math:: \hat w = \Gamma X^\top y / N .

    Without examples it predicts 0. From another start it is
    :class:`~icltheory.regression.GDBeta`. Its risk is exact for inputs of any known
    fourth moments, ``population.with_(fourth_moment=...)``.

    Args:
        Gamma: The matrix, ``(d, d)``; it need not be symmetric.

    Example:
        >>> from icltheory.regression import measures
        >>> population = LinearPopulation.isotropic(5)
        >>> step = LinearStep(20 / 26 * jnp.eye(5))
        >>> print(f"{measures.risk(step, population, 20):.4f}")
        1.1538
        >>> signs = population.with_(fourth_moment=1.0)  # inputs 1 and -1
        >>> print(f"{measures.risk(step, signs, 20):.4f}")
        0.8580

    Source: Ahn et al. (2023), Theorem 1; Wu et al. (2024), Section 3.
    """

    Gamma: Any

    of_any_inputs = True

    def __post_init__(self):
        (Gamma,) = as_floats(real("Gamma", self.Gamma))
        check_shape("Gamma", Gamma, ("d", "d"))
        self.Gamma = checked("Gamma", Gamma, finite)

    def weights(self, X: Array, y: Array) -> Array:
        """Gamma X'y / N."""
        mean = einsum("nd,n->d", X, y) / max(X.shape[0], 1)
        return einsum("ij,j->i", self.Gamma.astype(X.dtype), mean)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """tr(H M) - 2 tr(H Gamma H M) + tr(Gamma' H Gamma S)."""
        return step_risk(population, self.Gamma, k)

    def masked_weights(self) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        r"""P and Q of a layer :math:`-[Z + P Z M Z^\top Q Z / N]_{d+1, N+1}`.

        .. math:: P = e_{d+1} e_{d+1}^\top, \qquad
            Q = -\begin{pmatrix} \Gamma^\top & 0 \\ 0 & 0 \end{pmatrix},

        with the mask M = diag(1, ..., 1, 0).

        Source: Ahn, Cheng, Daneshmand and Sra (2023), Theorem 1.
        """
        P = jnp.zeros((len(self.Gamma) + 1,) * 2, self.Gamma.dtype).at[-1, -1].set(1)
        return P, -jnp.pad(self.Gamma.T, ((0, 1), (0, 1)))

    def balanced_weights(self) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        r"""W_KQ and W_PV of one norm, :math:`[E + W_{PV} E E^\top W_{KQ} E / N]`.

        .. math:: W_{KQ} = |\Gamma|_F^{-1/2}
            \begin{pmatrix} \Gamma^\top & 0 \\ 0 & 0 \end{pmatrix}, \qquad
            W_{PV} = |\Gamma|_F^{1/2}
            \begin{pmatrix} 0 & 0 \\ 0 & 1 \end{pmatrix} .

        Source: Zhang, Frei and Bartlett (2024), Theorem 4.1.
        """
        P, Q = self.masked_weights()
        scale = jnp.sum(self.Gamma**2) ** 0.25
        return -Q / scale, scale * P
