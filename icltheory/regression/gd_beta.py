"""GD-beta: the gradient step from a learned start that a block makes."""

from typing import Any

import jax.numpy as jnp

from icltheory._checks import (
    check_integer,
    check_positive_int,
    check_shape,
    checked,
    finite,
    real,
)
from icltheory._typing import Array
from icltheory.regression._block_moments import check_dim
from icltheory.regression._linalg import as_floats, einsum
from icltheory.regression._moments import label_moment
from icltheory.regression.blocks import LTB, EffectiveParameters, label_row
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearInLabels

__all__ = ["GDBeta"]


class GDBeta(LinearInLabels):
    r"""One step of preconditioned gradient descent from a learned start beta.

    .. math:: \hat w = \beta - \frac{\Gamma}{N} X^\top (X \beta - y) .

    Every GD-beta is an LTB (Lemma 5.1), and the best one is a best LTB (Theorem 5.3).

    Args:
        beta: Start, ``(d,)``.
        Gamma: Preconditioner, ``(d, d)``; it need not be symmetric.

    Example:
        >>> model = GDBeta(jnp.ones(2), 2 * jnp.eye(2))
        >>> X, y = jnp.eye(2), jnp.array([1.0, 4.0])
        >>> float(model.predict(X, y, jnp.ones(2)))
        5.0

    Source: Zhang, Wu and Bartlett (2024), Section 5.
    """

    beta: Any
    Gamma: Any

    def __post_init__(self):
        beta, Gamma = real("beta", self.beta), real("Gamma", self.Gamma)
        check_shape("beta", beta, ("d",))
        dim = jnp.shape(beta)[0]
        check_positive_int("dim", dim)
        check_shape("Gamma", Gamma, (dim, dim))
        beta, Gamma = as_floats(beta, Gamma)
        self.beta = checked("beta", beta, finite)
        self.Gamma = checked("Gamma", Gamma, finite)

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return jnp.shape(self.beta)[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Dtype of the parameters."""
        return jnp.result_type(self.beta)

    def weights(self, X: Array, y: Array) -> Array:
        """The step from beta."""
        residual = einsum("nd,d->n", X, self.beta) - y
        gradient = einsum("nd,n->d", X, residual) / max(X.shape[0], 1)
        return self.beta - einsum("ij,j->i", self.Gamma, gradient)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        r"""The risk for any beta and Gamma (proof of Theorem 5.2).

        .. math:: R - \sigma^2 = \mathrm{tr}(H \Delta)
            - 2\,\mathrm{tr}(H \Gamma H \Delta)
            + \mathrm{tr}\Bigl( \Gamma^\top H \Gamma \Bigl[ \tfrac{N+1}{N} H \Delta H
            + \tfrac{\mathrm{tr}(H \Delta) + \sigma^2}{N} H \Bigr] \Bigr), \qquad
            \Delta = \Psi + (\beta - \beta^*)(\beta - \beta^*)^\top .
        """
        check_dim(population, self.dim)
        H, b = population.input_cov, self.beta - population.task_mean
        second = population.task_cov + b[:, None] * b[None]
        H_second = einsum("ij,jk->ik", H, second)
        moment = label_moment(population, second, k) / jnp.maximum(k, 1)
        cross = einsum("ij,jk,ki->", H, self.Gamma, H_second)
        square = einsum("ji,jk,kl,li->", self.Gamma, H, self.Gamma, moment)
        return jnp.trace(H_second) + jnp.where(k > 0, square - 2 * cross, 0)

    def effective(self) -> EffectiveParameters:
        """The parameters of its LTB: c = beta, p = -beta, v = 1, U = Gamma', u = 0."""
        one, zero = jnp.ones((), self.dtype), jnp.zeros_like(self.beta)
        return EffectiveParameters(self.beta, -self.beta, one, self.Gamma.T, zero)

    @classmethod
    def of(cls, block: Any) -> "GDBeta":
        r"""The GD-beta of :math:`\beta = c`, :math:`\Gamma = v U^\top` for a block.

        It is the same function where u = 0 and p = -v c, as for every best LTB on the
        inputs that come. Other blocks are no GD-beta; then it is another function, the
        step that their scores and values make from their own read-out.

        Example:
            >>> model = GDBeta(jnp.ones(2), jnp.array([[1.0, 2.0], [3.0, 4.0]]))
            >>> GDBeta.of(model.to_ltb()).Gamma.tolist()
            [[1.0, 2.0], [3.0, 4.0]]

        Source: Zhang, Wu and Bartlett (2024), Theorem 5.3.
        """
        parts = block.effective()
        return cls(parts.c, parts.v * parts.U.T)

    def to_ltb(
        self, *, key_dim: int | None = None, value_dim: int = 1, hidden_dim: int = 1
    ) -> LTB:
        r"""The LTB that is the same function of every prompt (Lemma 5.1).

        .. math:: W_K = [I \; 0], \quad W_Q = [\Gamma^\top \; 0], \quad
            W_P = e^\top, \quad W_V = [-\beta^\top \; 1], \quad
            W_1 = [\beta^\top \; 1], \quad W_2 = e^\top,

        with e = e_{d+1}. Note the transpose of Gamma. Larger widths (rows of W_K, W_Q;
        of W_P, W_V; of W_1, W_2) get rows of zeros; ``key_dim`` is d when left out.

        Example:
            >>> block = GDBeta(jnp.ones(2), 2 * jnp.eye(2)).to_ltb()
            >>> float(block.predict(jnp.eye(2), jnp.array([1.0, 4.0]), jnp.ones(2)))
            5.0

        Source: Zhang, Wu and Bartlett (2024), Lemma 5.1.
        """
        d, dtype = self.dim, self.dtype
        key_dim = d if key_dim is None else key_dim
        check_integer("key_dim", key_dim, d)
        check_positive_int("value_dim", value_dim)
        check_positive_int("hidden_dim", hidden_dim)
        label = label_row(d, dtype)
        return LTB(
            W_K=_rows(jnp.eye(d, d + 1, dtype=dtype), key_dim),
            W_Q=_rows(jnp.pad(self.Gamma.T, ((0, 0), (0, 1))), key_dim),
            W_P=_rows(label, value_dim),
            W_V=_rows(jnp.append(-self.beta, 1)[None], value_dim),
            W_1=_rows(jnp.append(self.beta, 1)[None], hidden_dim),
            W_2=_rows(label, hidden_dim),
        )


def _rows(W: Array, count: int) -> Array:
    """Appends rows of zeros to a matrix up to ``count`` rows."""
    return jnp.pad(W, ((0, count - W.shape[0]), (0, 0)))
