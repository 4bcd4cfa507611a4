"""Least squares, ridge regression, and the Bayes estimate of a Gaussian prior."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import checked, is_tracer, nonnegative, real, scalar
from icltheory._core import exact_products, where_valid
from icltheory._typing import Array
from icltheory.regression._linalg import (
    dot,
    einsum,
    fitted,
    is_isotropic,
    is_zero,
    least_squares_path,
    posterior_path,
    pseudoinverse,
    quotient,
    ridge_inverse,
    ridge_weights,
    symmetric_root,
    unexplained,
)
from icltheory.regression.drift import DriftingTasks, filter_path
from icltheory.regression.population import LinearPopulation, check_linear
from icltheory.regression.predictors.base import LinearInLabels, NoClosedForm


class LeastSquares(LinearInLabels):
    r"""Least squares with the weight of minimum norm, :math:`\hat w = X^+ y`.

    The rank is that of X with columns (rows if N < d) of equal size: singular values
    below max(N, d) eps times the largest count as zero. No examples predict 0.
    Differentiable where the rank does not change. One prompt costs O(N d min(N, d)),
    all its prefixes O(P d^2) by Greville's recursion, with an error of order eps times
    the largest condition number among the prefixes so far.

    Example:
        >>> X, y = jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.array([1.0, 3.0])
        >>> round(float(LeastSquares().predict(X, y, jnp.array([1.0, 5.0]))), 6)
        2.0
        >>> X = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> LeastSquares().predict_prefixes(X, jnp.ones(3)).round(6).tolist()
        [0.0, 1.0, 1.0]

    Source: Garg et al. (2022), Section 3; Greville (1960).
    """

    def weights(self, X: Array, y: Array) -> Array:
        return einsum("dn,n->d", pseudoinverse(X), y)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """<X^+ y, x>, without the orthogonal factor of X."""
        return fitted(X, y, x_query)

    def prefix_weights(self, X: Array, y: Array) -> Array:
        return least_squares_path(X, y)

    def response(self, X: Array) -> Array:
        return pseudoinverse(X)

    def check_exact(self, population: LinearPopulation, num_examples: Any) -> None:
        """Raises where inputs are known not to be isotropic, and k < d."""
        super().check_exact(population, num_examples)
        fits = self._is_known(population, num_examples)
        if not is_tracer(fits) and not np.all(fits):
            raise NoClosedForm(
                "population: expected isotropic inputs where num_examples < dim, else "
                "use estimate_risk(predictor, source, num_examples, key=...)"
            )

    def _is_known(self, population, num_examples):
        many = jnp.asarray(num_examples) >= population.dim
        return is_isotropic(population.input_cov) | many

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        r"""The risk for Gaussian inputs, which have to be isotropic where k < d.

        .. math:: R = h\,\mathrm{tr}(M) \Bigl(1 - \frac kd\Bigr)_+ + \sigma^2
            \begin{cases} k / (d - k - 1) & k \le d - 2 \\ \infty & |k - d| \le 1 \\
            d / (k - d - 1) & k \ge d + 2, \end{cases}

        with M = Psi + beta* beta*', the rank of H in place of d, and no variance term
        at k = 0 or without noise.
        """
        H, noise_var = population.input_cov, population.noise_var
        sizes = jnp.sqrt(jnp.diagonal(H))
        sizes = jnp.where(sizes > 0, sizes, 1)
        correlation = H / (sizes[:, None] * sizes[None])
        rank = jnp.linalg.matrix_rank(correlation, hermitian=True).astype(k.dtype)
        bias = population.signal * jnp.maximum(1 - k / jnp.maximum(rank, 1), 0)
        few = quotient(k, rank - k - 1, jnp.inf)
        ratio = quotient(rank, k - rank - 1, few)
        noisy = (k > 0) & (rank > 0) & (noise_var > 0)
        variance = jnp.where(noisy, noise_var * jnp.where(noisy, ratio, 0), 0)
        return where_valid(bias + variance, self._is_known(population, k))


class Ridge(LinearInLabels):
    r"""Ridge regression with an absolute penalty.

    .. math:: \hat w = \arg\min_w\ |X w - y|^2 + \lambda |w|^2 ,

    where lambda is not multiplied by N: for noise sigma^2 and prior N(0, I) the Bayes
    choice is lambda = sigma^2. A known 0 is least squares, a traced penalty has to be
    positive. By QR of X stacked on sqrt(lambda) I, O((N + d) d^2); all prefixes by
    Potter's square-root update, O(d^2) each.

    Example:
        >>> X, y = jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0])
        >>> round(float(Ridge(2.0).predict(X, y, jnp.array([1.0]))), 6)
        1.0

    Source: Raventos et al. (2023), eq. 4.
    """

    penalty: Any
    is_least_squares: bool = eqx.field(static=True, init=False, repr=False)

    def __post_init__(self):
        self.is_least_squares = is_zero(self.penalty)
        penalty = real("penalty", self.penalty)
        self.penalty = checked("penalty", penalty, scalar & nonnegative)

    def weights(self, X: Array, y: Array) -> Array:
        if self.is_least_squares:
            return LeastSquares().weights(X, y)
        return ridge_weights(X, y, jnp.asarray(self.penalty, X.dtype))

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        if self.is_least_squares:
            return LeastSquares().answer(X, y, x_query)
        return dot(self.weights(X, y), x_query)

    def prefix_weights(self, X: Array, y: Array) -> Array:
        if self.is_least_squares:
            return least_squares_path(X, y)
        dim, penalty = X.shape[1], jnp.asarray(self.penalty, X.dtype)
        prior = jnp.zeros(dim, X.dtype), jnp.eye(dim, dtype=X.dtype)
        return posterior_path(X, y, *prior, penalty)

    @exact_products
    def risk_given(self, population: Any, X: Array) -> Array:
        r"""The risk given the inputs.

        .. math:: R(X) = \lambda^2\, \mathrm{tr}(H A M A)
            + \sigma^2\, \mathrm{tr}(H A X^\top X A), \quad
            A = (X^\top X + \lambda I)^{-1} , \quad M = \Psi + \beta^* \beta^{*\top} .
        """
        if self.is_least_squares or isinstance(population, DriftingTasks):
            return super().risk_given(population, X)
        amount = jnp.asarray(self.penalty, X.dtype)
        A = ridge_inverse(X, amount)
        gain = A @ X.T
        H, M = population.input_cov, population.second_moment
        spread = amount**2 * A @ M @ A + population.noise_var * gain @ gain.T
        return jnp.sum(H * spread)


class Bayes(LinearInLabels):
    r"""The posterior mean under a population's prior and noise (Lemma 6.1).

    .. math:: \hat w = \beta^* + \Psi^{1/2}
        (\Psi^{1/2} X^\top X \Psi^{1/2} + \sigma^2 I)^{-1}
        \Psi^{1/2} X^\top (y - X \beta^*) ,

    the answer of least squared error. Psi may be singular. With sigma = 0 the inverse
    is the limit, a least-squares fit in coordinates whitened by Psi; a traced sigma
    must be positive. All prefixes by Potter's form of the Kalman filter, O(d^2) each.
    For :class:`DriftingTasks` it is the Kalman filter of the task at the query.

    Example:
        >>> X, y = jnp.array([[1.0, 0], [0, 1], [1, -1]]), jnp.array([1.0, -2, 2.5])
        >>> Psi = jnp.array([[1.0, 0.2], [0.2, 0.5]])
        >>> population = LinearPopulation(jnp.eye(2), jnp.array([1.0, -2.0]), Psi, 0.25)
        >>> round(float(Bayes(population).predict(X, y, jnp.array([0.0, 1.0]))), 6)
        -1.872162

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """

    population: Any  # a LinearPopulation or DriftingTasks

    def __check_init__(self):
        check_linear("population", self.population)

    @property
    def drifts(self) -> bool:
        """Whether it is the Kalman filter of tasks that drift."""
        return isinstance(self.population, DriftingTasks)

    def weights(self, X: Array, y: Array) -> Array:
        if self.drifts:
            query = jnp.pad(X, ((0, 1), (0, 0))), jnp.pad(y, (0, 1))
            return filter_path(self.population, *query)[-1]
        mean, root, rule, seen = self._centred(X, y)
        return mean + einsum("de,e->d", root, rule.weights(*seen))

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        if self.drifts:
            return dot(self.weights(X, y), x_query)
        mean, root, rule, seen = self._centred(X, y)
        moved = rule.answer(*seen, einsum("d,de->e", x_query, root))
        return einsum("d,d->", x_query, mean) + moved

    def _centred(self, X, y):
        """Prior mean and root, and the rule for examples in whitened coordinates."""
        mean, root, amount = self._prior(X)
        known = self.population.noiseless
        rule = LeastSquares() if known else Ridge(amount)
        seen = einsum("nd,de->ne", X, root), y - einsum("nd,d->n", X, mean)
        return mean, root, rule, seen

    def prefix_weights(self, X: Array, y: Array) -> Array:
        if self.drifts:
            return filter_path(self.population, X, y)
        mean, root, amount = self._prior(X)
        if not self.population.noiseless:
            return posterior_path(X, y, mean, root, amount)
        moved = least_squares_path(einsum("nd,de->ne", X, root), y - dot(X, mean[None]))
        return mean[None] + einsum("de,ne->nd", root, moved)

    @exact_products
    def risk_given(self, population: Any, X: Array) -> Array:
        r"""The risk given the inputs; for its own population that of the posterior.

        .. math:: R(X) = \mathrm{tr}(H C), \qquad C = \sigma^2\, \Psi^{1/2}
            (\Psi^{1/2} X^\top X \Psi^{1/2} + \sigma^2 I)^{-1} \Psi^{1/2} ,

        C the posterior covariance of the weight; for sigma = 0 its limit.
        """
        if not self.knows(population):
            return super().risk_given(population, X)
        if self.drifts:
            return self.risks_given(population, jnp.pad(X, ((0, 1), (0, 0))))[-1]
        _, root, amount = self._prior(X)
        if self.population.noiseless:
            left = unexplained(X @ root)
        else:
            left = amount * ridge_inverse(X @ root, amount)
        return jnp.sum(left * (root @ self.population.input_cov @ root))

    @exact_products
    def risks_given(self, population: Any, X: Array) -> Array:
        """The same after every prefix of the inputs, O(d^3) each."""
        if not self.knows(population):
            return super().risks_given(population, X)
        y = jnp.zeros_like(X[:, 0])
        if self.drifts:
            H = self.population.population.input_cov
            return filter_path(self.population, X, y, lambda _, P: jnp.sum(H * P))
        _, root, amount = self._prior(X)
        H = self.population.input_cov

        def spread(_, S):
            return jnp.sum(S * (H @ S))

        def unseen(_, basis):
            return spread(_, root - root @ basis.T @ basis)

        if self.population.noiseless:
            return least_squares_path(X @ root, y, unseen)
        return posterior_path(X, y, 0 * root[0], root, amount, spread)

    def knows(self, population: Any) -> bool:
        """Whether a population is known to be the one it assumes."""
        ours, theirs = map(jax.tree.leaves, (self.population, population))
        pairs = list(zip(ours, theirs, strict=False))
        if len(ours) == len(theirs) and all(a is b for a, b in pairs):
            return True  # also where both are traced
        return not any(map(is_tracer, ours + theirs)) and self.population == population

    def _prior(self, X):
        values = self.population.task_mean, self.population.task_cov
        mean, cov = (jnp.asarray(value, X.dtype) for value in values)
        amount = jnp.asarray(self.population.noise_var, X.dtype)
        return mean, symmetric_root(cov), amount
