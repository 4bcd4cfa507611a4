"""Terms T_t: twice the divergence of one noisy step from a Gaussian prior."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int, check_shape, concrete
from icltheory._noted import check_covariance, check_values
from icltheory._precision import widened
from icltheory._typing import Array, Float, Scalar
from icltheory.noise import without_replacement_factor
from icltheory.noise._routes import singular_values

__all__ = ["anisotropic_term", "gaussian_kl", "held_out_term", "isotropic_term"]


@calculator
def gaussian_kl(
    mean: Float[ArrayLike, "_d"],
    cov: Float[ArrayLike, "_d _d"],
    prior_mean: Float[ArrayLike, "_d"],
    prior_cov: Float[ArrayLike, "_d _d"],
) -> Scalar:
    r"""Divergence of one Gaussian from another, the integrand of equation (16).

    .. math::
        D(N(\mu, C) \,\|\, N(g, \Sigma)) = \tfrac12 \left[ \log\det\Sigma - \log\det C
        - d + \operatorname{tr} \Sigma^{-1} \big( C + (\mu - g)(\mu - g)^\top \big)
        \right] .

    Infinite, not an error, where C is singular. Cost O(d^3).

    Args:
        mean: :math:`\mu`, ``(d,)``.
        cov: C, ``(d, d)``.
        prior_mean: g, ``(d,)``.
        prior_cov: :math:`\Sigma`, ``(d, d)``, positive definite.

    Returns:
        The divergence in nats.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.eye(2)
        >>> float(gaussian_kl(jnp.array([1.0, 0.0]), one, jnp.zeros(2), one))
        0.5

    Source: Yao et al. (2024), Lemma 5 and equation (16).
    """
    mean, cov, prior_mean, prior_cov = map(
        jnp.asarray, (mean, cov, prior_mean, prior_cov)
    )
    check_shape("mean", mean, ("d",))
    check_shape("prior_mean", prior_mean, mean.shape)
    return anisotropic_term(mean - prior_mean, cov, prior_cov) / 2


@calculator
def isotropic_term(
    squared_distance: Real[ArrayLike, "..."],
    trace: Real[ArrayLike, "..."],
    log_det: Real[ArrayLike, "..."],
    dim: Real[ArrayLike, "..."],
) -> Float[Array, "*batch"]:
    r"""Twice the divergence from the best isotropic prior, equation (17).

    .. math::
        T = d \log \frac{\|G - \tilde g\|^2 + \operatorname{tr} C}{d} - \log\det C ,

    non-negative, and unchanged by :math:`G \to a G,\ C \to a^2 C`: a smaller gradient
    alone does not make it smaller.

    Args:
        squared_distance: :math:`\|G - \tilde g\|^2`, or its expectation.
        trace: :math:`\operatorname{tr} C`, or its expectation.
        log_det: :math:`\log\det C` on the support, or its expectation; -inf gives inf.
        dim: Dimension d; 0 gives 0.

    Returns:
        T in nats.

    Example:
        >>> float(isotropic_term(0.0, 3.0, 0.0, 3))
        0.0

    Source: Yao et al. (2024), equations (16) and (17) and Lemma 6.
    """
    dim = jnp.asarray(dim)
    A_1 = jnp.asarray(squared_distance) + jnp.asarray(trace)
    ratio = A_1 / jnp.where(dim == 0, 1, dim)
    safe = jnp.where(ratio <= 0, 1, ratio)  # NaN stays NaN
    return jnp.where(dim == 0, 0, dim * jnp.log(safe) - jnp.asarray(log_det))


@calculator
def anisotropic_term(
    difference: Float[ArrayLike, "_d"],
    cov: Float[ArrayLike, "_d _d"],
    prior_cov: Float[ArrayLike, "_d _d"],
) -> Scalar:
    r"""Twice the divergence from a Gaussian prior with any covariance.

    .. math::
        T = \log\det\Sigma - \log\det C - d
        + \operatorname{tr} \Sigma^{-1} \big( C + \delta \delta^\top \big) .

    Averaged over :math:`G_t, C_t` given :math:`W_{t-1}`, it is least for
    :math:`\Sigma = E [C_t + \delta_t \delta_t^\top]` and :math:`\tilde g_t = E G_t`.
    Cost O(d^3).

    Args:
        difference: :math:`\delta = G - \tilde g`, ``(d,)``.
        cov: C, ``(d, d)``.
        prior_cov: :math:`\Sigma`, ``(d, d)``, positive definite.

    Returns:
        T in nats; inf where C is singular up to rounding in coordinates of the prior.

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.eye(2)
        >>> float(anisotropic_term(jnp.zeros(2), one, one))
        0.0

    Source: Yao et al. (2024), Lemma 5, with the prior left free.
    """
    delta, C, Sigma = map(widened, (difference, cov, prior_cov))
    check_shape("difference", delta, ("d",))
    check_covariance("cov", C, len(delta))
    check_covariance("prior_cov", Sigma, len(delta))
    root = jnp.linalg.cholesky(Sigma)
    check_values(
        "prior_cov",
        jnp.sum(jnp.log(jnp.diagonal(root))),
        jnp.isfinite,
        "a positive definite matrix",
        "a singular one",
    )
    whitened = jax.scipy.linalg.solve_triangular(root, C, lower=True)
    both = jax.scipy.linalg.solve_triangular(root, whitened.T, lower=True)
    step = jax.scipy.linalg.solve_triangular(root, delta[:, None], lower=True)
    # The log determinant is that of the whitened covariance, so that scales cancel
    # before the logarithm.
    values = jnp.linalg.eigvalsh((both + both.T) / 2)
    floor = values[-1] * jnp.finfo(values.dtype).eps * delta.shape[0]
    return _term(values, floor, step)


def factored_term(difference: Array, rows: Array, root: Array) -> Array:
    """The anisotropic term for C = rows' rows and Sigma = root' root, root triangular.

    Neither is formed: squares would leave float32 no digit of an eigenvalue that is
    1e-7 of the largest, and the roots leave it half of them.
    """
    both = jnp.concatenate([rows, difference[None]]).T
    whitened = jax.scipy.linalg.solve_triangular(root, both, trans="T")
    s = singular_values(whitened[:, :-1].T)
    floor = s[0] * jnp.finfo(s.dtype).eps * max(rows.shape)
    return _term(s**2, floor**2, whitened[:, -1])


def _term(values: Array, floor: Array, step: Array) -> Array:
    """Computes the term from whitened eigenvalues and the whitened distance."""
    above = values > floor
    logs = jnp.where(above, jnp.log(jnp.where(above, values, 1)), -jnp.inf)
    return jnp.sum(values) - len(values) - jnp.sum(logs) + jnp.sum(step**2)


@calculator
def held_out_term(
    z: Float[ArrayLike, "_N _d"], shots: Real[ArrayLike, ""], held_out: int
) -> Scalar:
    r"""Twice the divergence from a prior fitted to part of the demonstrations.

    .. math::
        P_t = N\!\Big( G_J ,\; \Sigma_J \Big[ \frac{N - b}{b N} + \frac1M - \frac1N
        \Big] \Big) ,

    with the mean :math:`G_J` and the unbiased covariance :math:`\Sigma_J` of the first
    M of the N gradients. No population quantity is needed. The error is then at most
    :math:`\sqrt{R^2 / (N - M) \cdot \sum_t E\, T_t}`.

    Args:
        z: Per-demonstration gradients :math:`z_i` with :math:`\frac1N \sum_i z_i = G`,
            in coordinates of the support, ``(N, d)``.
        shots: Number b of demonstrations in the prompt.
        held_out: Number M that the prior sees, with d < M < N.

    Returns:
        T in nats.

    Example:
        >>> import jax
        >>> z = jax.random.normal(jax.random.key(0), (40, 2))
        >>> bool(held_out_term(z, 20, 10) > 0)
        True

    Source: Negrea et al. (2019), data-dependent priors, applied to Lemma 5 of Yao et
    al. (2024).
    """
    z = widened(z)
    check_shape("z", z, ("N", "d"))
    check_held_out(held_out, *z.shape)
    return held_out_divergence(z, shots, held_out, jnp.zeros(z.shape[1], z.dtype))


def check_held_out(held_out, N, d) -> None:
    """Raises unless d < M < N."""
    check_positive_int("held_out", held_out)
    expected = f"M < N = {N} demonstrations"
    if held_out >= N:
        raise ValueError(f"held_out: expected {expected}, got {held_out}")
    known = concrete(d)
    dim = "" if known is None else f", {int(known)}"
    expected = f"more demonstrations than the dimension{dim}"
    check_values("held_out", d, lambda d: d < held_out, expected, f"{held_out}")


def held_out_divergence(z, shots, held_out, padding):
    """Divergence from a held-out prior; ``padding`` is 1 for unused coordinates."""
    N = z.shape[0]
    kappa = without_replacement_factor(N, shots).astype(z.dtype)
    seen, pad = z[:held_out], jnp.diag(padding)
    excess = kappa * (N - 1) / N + 1 / held_out - 1 / N
    prior = jnp.concatenate([centred_rows(seen, excess / (held_out - 1)), pad])
    delta = jnp.mean(z, axis=0) - jnp.mean(seen, axis=0)
    rows = jnp.concatenate([centred_rows(z, kappa / N), pad])
    return factored_term(delta, rows, jnp.linalg.qr(prior, mode="r"))


def centred_rows(z: Array, factor: Array) -> Array:
    """Rows whose Gram matrix is ``factor`` times the scatter matrix of z."""
    return jnp.sqrt(factor) * (z - jnp.mean(z, axis=-2, keepdims=True))
