"""GD-beta: one preconditioned gradient step from a learned start."""

import jax.numpy as jnp

from icltheory._checks import check_positive_int, check_shape, checked, finite, real
from icltheory._typing import Array, Float, Scalar
from icltheory.regression._linalg import as_floats, dot, einsum
from icltheory.regression._moments import label_moment
from icltheory.regression.ltb import _formulas
from icltheory.regression.ltb._fields import MatrixField, VectorField
from icltheory.regression.ltb._moments import Moments, check_dim
from icltheory.regression.ltb._prompts import (
    Examples,
    Labels,
    Queries,
    Tokens,
    read_prompt,
)
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors.base import Predictor
from icltheory.regression.risks._population import Count

__all__ = ["GDBeta"]


class GDBeta(Predictor):
    r"""One step of preconditioned gradient descent from beta (Section 5).

    .. math:: f(X, y, x) = \Bigl\langle \beta - \frac{\Gamma}{M} X^\top (X \beta - y),
        x \Bigr\rangle.

    Every GD-beta is an LTB (Lemma 5.1, ``gd_beta_to_ltb``), and the best GD-beta is a
    best LTB (Theorem 5.3). ``predict`` is for one prompt or any batch, ``risk`` exact.

    Args:
        beta: Start.
        Gamma: Preconditioner; need not be symmetric.

    Returns:
        A frozen pytree.

    Example:
        >>> model = GDBeta(jnp.ones(2), 2 * jnp.eye(2))
        >>> X, y = jnp.eye(2), jnp.array([1.0, 4.0])
        >>> float(model.predict(X, y, jnp.ones(2)))
        5.0

    Source: Zhang, Wu and Bartlett (2024), Section 5.
    """

    beta: VectorField
    Gamma: MatrixField

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

    def effective(self) -> EffectiveParameters:
        """The parameters of its LTB: c = beta, p = -beta, v = 1, U = Gamma', u = 0."""
        one, zero = jnp.ones((), self.dtype), jnp.zeros_like(self.beta)
        return EffectiveParameters(self.beta, -self.beta, one, self.Gamma.T, zero)

    def predict(
        self, X: Examples, y: Labels, x_query: Queries, mask: str = "demos"
    ) -> Float[Array, "*B"]:
        """Predicts for one prompt or a batch of prompts.

        With the mask ``"none"`` it is what the LTB of Lemma 5.1 would predict unmasked,
        which is another function unless beta = 0.
        """
        X, y, x = read_prompt(X, y, x_query, mask, self)
        if mask == "none":
            return self.effective().predict(X, y, x, mask)
        residual = einsum("...md,d->...m", X, self.beta) - y
        gradient = einsum("...md,...m->...d", X, residual) / X.shape[-2]
        step = einsum("ij,...j->...i", self.Gamma, gradient)
        return einsum("...i,i->...", x, self.beta) - dot(step, x)

    def predict_tokens(self, E: Tokens, mask: str = "demos") -> Float[Array, "*B"]:
        """Predicts from tokens as rows, [x_i, y_i] and last [x_query, 0]."""
        return self.effective().predict_tokens(E, mask)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """The step from beta."""
        step = einsum("ij,j->i", self.Gamma, self._gradient(X, y))
        return dot(jnp.asarray(self.beta, X.dtype) - step, x_query)

    def _gradient(self, X, y):
        residual = einsum("nd,d->n", X, self.beta) - y
        return einsum("nd,n->d", X, residual) / max(X.shape[0], 1)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """The risk for any beta and Gamma (proof of Theorem 5.2)."""
        check_dim(population, self.dim)
        H, b = population.input_cov, self.beta - population.task_mean
        second = population.task_cov + b[:, None] * b[None]
        H_second = einsum("ij,jk->ik", H, second)
        moment = label_moment(population, second, k) / jnp.maximum(k, 1)
        cross = einsum("ij,jk,ki->", H, self.Gamma, H_second)
        square = einsum("ji,jk,kl,li->", self.Gamma, H, self.Gamma, moment)
        return jnp.trace(H_second) + jnp.where(k > 0, square - 2 * cross, 0)

    def risk(self, problem: LinearPopulation, num_examples: Count) -> Scalar:
        """Exact risk (see ``ltb.risk``)."""
        check_dim(problem, self.dim)
        moments = Moments.of(problem, num_examples)
        return _formulas.gd_beta_risk(moments, self.beta, self.Gamma)
