"""Exact risks of ridge and Bayes given the inputs, and their averages over inputs."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from icltheory._calculators import calculator
from icltheory._checks import check_nonnegative_int, check_positive_int
from icltheory._noted import check_scalar
from icltheory._precision import finite_or_nan
from icltheory._typing import Array, PRNGKey
from icltheory.regression._linalg import (
    Number,
    einsum,
    is_zero,
    symmetric_root,
)
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors._inputs import one_or_batch
from icltheory.regression.predictors._recursive import (
    least_squares_path,
    posterior_path,
)
from icltheory.regression.predictors.least_squares import pseudoinverse
from icltheory.regression.risks._population import Population
from icltheory.statistics import Estimate

__all__ = [
    "bayes_risk",
    "bayes_risk_given",
    "bayes_risk_given_prefixes",
    "ridge_risk",
    "ridge_risk_given",
]

Rows = Float[ArrayLike, "... _N _d"]


@calculator
def ridge_risk_given(
    task: LinearPopulation, X: Rows, penalty: Number, *, query_noise: bool = True
) -> Float[Array, "..."]:
    r"""Exact risk of ridge, or of least squares, given the example inputs.

    .. math:: R(X) - \sigma^2 = \lambda^2\, \mathrm{tr}(H A M A)
        + \sigma^2\, \mathrm{tr}(H A X^\top X A), \quad A = (X^\top X + \lambda I)^{-1}

    with M = Psi + beta* beta*', the expectation over weight, noise and query. Evaluated
    in the singular basis of X; a known lambda = 0 is minimum-norm least squares, with
    the pseudoinverse and the rank of ``ols``. Differentiable in all but X.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        X: Example inputs, (N, d) or (B, N, d).
        penalty: lambda >= 0, not multiplied by N.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk, () or (B,).

    Example:
        >>> task = LinearPopulation.isotropic(1, noise_var=1.0)
        >>> float(ridge_risk_given(task, jnp.ones((1, 1)), 1.0, query_noise=False))
        0.5

    Source: Hastie et al. (2022), Lemma 1.
    """
    check_scalar("penalty", penalty)
    H, M, noise_var, _ = Population.of(task)
    amount = jnp.asarray(penalty, H.dtype)

    def without_penalty(X):
        inverse = pseudoinverse(X)
        lost = jnp.eye(len(H), dtype=H.dtype) - einsum("dn,ne->de", inverse, X)
        bias = einsum("ij,jk,kl,il->", H, lost, M, lost)
        variance = noise_var * einsum("ij,jn,in->", H, inverse, inverse)
        return bias + variance + query_noise * noise_var

    def core(X):
        s, V = _spectrum(X)
        square = s**2 + amount
        seen = square > 0
        shrink = jnp.where(seen, amount / jnp.where(seen, square, 1), 1)
        gain = jnp.where(seen, s / jnp.where(seen, square, 1), 0)
        H_V = einsum("ji,jk,kl->il", V, H, V)
        M_V = einsum("ji,jk,kl->il", V, M, V)
        bias = einsum("ij,j,ji,i->", H_V, shrink, M_V, shrink)
        variance = noise_var * jnp.sum(jnp.diagonal(H_V) * gain**2)
        return bias + variance + query_noise * noise_var

    core = without_penalty if is_zero(penalty) else core
    return one_or_batch(core, _read_rows(X, task))


@calculator
def bayes_risk_given(
    task: LinearPopulation, X: Rows, *, query_noise: bool = True
) -> Float[Array, "..."]:
    r"""Exact risk of the Bayes predictor given the example inputs (Lemma 6.1).

    .. math:: R(X) - \sigma^2 = \mathrm{tr}(H C), \qquad C = \sigma^2\, \Psi^{1/2}
        (\Psi^{1/2} X^\top X \Psi^{1/2} + \sigma^2 I)^{-1} \Psi^{1/2}

    C the posterior covariance of the weight; it depends on neither labels nor beta*.
    For sigma = 0 it is the limit. Differentiable, for sigma > 0 in all arguments.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        X: Example inputs, (N, d) or (B, N, d).
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risk, () or (B,).

    Example:
        >>> H = jnp.array([[2.0, 0.5], [0.5, 1.0]])
        >>> Psi = jnp.array([[1.0, 0.2], [0.2, 0.5]])
        >>> task = LinearPopulation(H, jnp.array([1.0, -2.0]), Psi, 0.25)
        >>> X = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
        >>> round(float(bayes_risk_given(task, X)), 8)
        0.71535245

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    H, _, noise_var, _ = Population.of(task)
    root = symmetric_root(jnp.asarray(task.task_cov))
    whitened = einsum("ij,jk,kl->il", root, H, root)

    def core(X):
        left = _unexplained(einsum("nd,de->ne", X, root), noise_var)
        return jnp.sum(left * whitened) + query_noise * noise_var

    return one_or_batch(core, _read_rows(X, task))


@calculator
def bayes_risk_given_prefixes(
    task: LinearPopulation, X: Rows, *, query_noise: bool = True
) -> Float[Array, "... P"]:
    r"""Exact risk of the Bayes predictor after every prefix of the example inputs.

    .. math:: R_k = \mathrm{tr}(H C_k) + \sigma^2, \qquad k = 0, \dots, P - 1

    with C_k the posterior covariance of ``bayes_risk_given`` for the first k rows, by
    the square-root recursion of ``bayes_prefixes``: O(d^3) a prefix.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        X: Example inputs, (P, d) or (B, P, d).
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        The risks, (P,) or (B, P).

    Example:
        >>> task = LinearPopulation.isotropic(1, noise_var=1.0)
        >>> risks = bayes_risk_given_prefixes(task, jnp.ones((3, 1)), query_noise=False)
        >>> risks.round(6).tolist()
        [1.0, 0.5, 0.333333]

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    H, _, noise_var, _ = Population.of(task)
    root = symmetric_root(jnp.asarray(task.task_cov))
    zeros = jnp.zeros(task.dim, H.dtype)

    exact = is_zero(noise_var)

    def spread(_, S):
        return einsum("ji,jk,ki->", S, H, S)

    def unseen(_, basis):
        free = root - einsum("ij,kj,kl->il", root, basis, basis)
        return einsum("ji,jk,ki->", free, H, free)

    def core(X):
        y = jnp.zeros_like(X[:, 0])
        if exact:
            return least_squares_path(einsum("nd,de->ne", X, root), y, unseen)
        return posterior_path(X, y, zeros, root, noise_var, spread)

    return one_or_batch(core, _read_rows(X, task)) + query_noise * noise_var


@calculator
def bayes_risk(
    task: LinearPopulation,
    key: PRNGKey,
    num_prompts: int,
    *,
    num_examples: int,
    query_noise: bool = True,
) -> Estimate:
    r"""Bayes risk after k = 0, ..., N examples, averaged over Gaussian inputs.

    .. math:: R_k \approx \sigma^2 + \frac1S \sum_{s=1}^S \mathrm{tr}(H\, C_k(X_s)).

    There is no elementary closed form; only the inputs are sampled, the rest of the
    expectation is exact, which makes the standard error several times smaller than
    that of squared errors.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        key: Typed key.
        num_prompts: Draws S of the inputs.
        num_examples: Largest number of examples N.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        Mean and standard error, each (N + 1,).

    Example:
        >>> import jax
        >>> task = LinearPopulation.isotropic(1, noise_var=1.0)
        >>> risk = bayes_risk(task, jax.random.key(0), 2000, num_examples=1)
        >>> bool(abs(risk.mean[1] - 1.6557) < 5 * risk.standard_error[1])
        True

    Source: Zhang, Wu and Bartlett (2024), Lemma 6.1.
    """
    check_positive_int("num_prompts", num_prompts)
    check_nonnegative_int("num_examples", num_examples)
    X = task.sample_inputs(key, num_examples + 1, num_prompts)
    risks = bayes_risk_given_prefixes(task, X, query_noise=query_noise)
    return Estimate.of(risks)


@calculator
def ridge_risk(
    task: LinearPopulation,
    key: PRNGKey,
    num_prompts: int,
    penalty: Number,
    *,
    num_examples: int,
    query_noise: bool = True,
) -> Estimate:
    r"""Risk of ridge with N examples, averaged over Gaussian inputs.

    .. math:: R \approx \frac1S \sum_{s=1}^S R(X_s)

    with R(X) of ``ridge_risk_given``: only the inputs are sampled.

    Args:
        task: The population (H, beta*, Psi, sigma^2).
        key: Typed key.
        num_prompts: Draws S of the inputs.
        penalty: lambda >= 0, not multiplied by N.
        num_examples: Examples N.
        query_noise: Whether the risk counts the noise of the query label, sigma^2.

    Returns:
        Mean and standard error, scalars.

    Example:
        >>> import jax
        >>> task = LinearPopulation.isotropic(3)
        >>> float(ridge_risk(task, jax.random.key(0), 9, 0.0, num_examples=0).mean)
        3.0

    Source: Hastie et al. (2022), Lemma 1.
    """
    check_positive_int("num_prompts", num_prompts)
    check_nonnegative_int("num_examples", num_examples)
    X = task.sample_inputs(key, num_examples, num_prompts)
    return Estimate.of(ridge_risk_given(task, X, penalty, query_noise=query_noise))


def _read_rows(X: Rows, task: LinearPopulation) -> Array:
    shape = jnp.shape(X)
    if len(shape) not in (2, 3) or shape[-1] != task.dim:
        raise ValueError(
            f"X: expected shape (N, {task.dim}) or (B, N, {task.dim}), got {shape}"
        )
    return jnp.asarray(X, task.dtype)


@jax.custom_jvp
def _unexplained(A: Array, noise_var: Array) -> Array:
    """Matrix noise (A'A + noise I)^{-1}, or its limit I - A^+ A without noise."""
    return _shrinkage(A, noise_var)[0]


@_unexplained.defjvp
def _unexplained_jvp(primals, tangents):
    (A, _), (dA, dnoise) = primals, tangents
    left, gain = _shrinkage(*primals)
    fit = einsum("nd,de->ne", A, gain)
    turned = einsum("ij,nj,nk->ik", left, dA, fit)
    return left, einsum("ni,nj->ij", fit, fit) * dnoise - turned - turned.T


def _shrinkage(A: Array, noise_var: Array) -> tuple[Array, Array]:
    """Matrix noise (A'A + noise I)^{-1} and the inverse, 0 where there is none."""
    s, V = _spectrum(A)
    square = s**2 + noise_var
    seen = square > 0
    safe = jnp.where(seen, square, 1)
    left, gain = jnp.where(seen, noise_var / safe, 1), jnp.where(seen, 1 / safe, 0)
    return einsum("ij,j,kj->ik", V, left, V), einsum("ij,j,kj->ik", V, gain, V)


def _spectrum(X: Array) -> tuple[Array, Array]:
    """Roots of the d eigenvalues of X'X, tiny ones set to 0, and eigenvectors."""
    dim = X.shape[1]
    if not X.size:
        return jnp.zeros(dim, X.dtype), jnp.eye(dim, dtype=X.dtype)
    if X.shape[0] > dim:  # d rows suffice for X'X
        X = jnp.linalg.qr(X, mode="r")
    _, s, Vt = jnp.linalg.svd(finite_or_nan(X), full_matrices=True)
    s = jnp.where(s > max(X.shape) * jnp.finfo(X.dtype).eps * s[0], s, 0)
    return jnp.pad(s, (0, dim - s.shape[0])), Vt.T
