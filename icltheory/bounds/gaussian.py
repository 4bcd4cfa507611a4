"""Terms T_t: twice the divergence of one noisy step from a Gaussian prior."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_positive_int,
    check_shape,
    covariance,
    is_tracer,
    wrong,
)
from icltheory._core import calculator, widened
from icltheory._typing import Array, Float, Scalar
from icltheory.noise import without_replacement_factor
from icltheory.noise._routes import singular_values
from icltheory.noise.gradients import up_to


def _definite(name, value, given):
    """Checks a symmetric positive definite matrix."""
    semi = covariance(name, value)
    root = jnp.linalg.cholesky(jax.lax.stop_gradient(widened(value)))
    regular = jnp.isfinite(jnp.sum(jnp.log(jnp.diagonal(root))))
    if is_tracer(regular):
        return regular & semi
    if not regular:
        expected = "a positive definite matrix"
        raise ValueError(f"{name}: expected {expected}, got a singular one")
    return semi


def _num_rows(given):
    check_shape("z", given["z"], ("N", "d"))
    return len(given["z"])


@calculator(cov=covariance, prior_cov=_definite)
def gaussian_kl(
    mean: Float[ArrayLike, "_d"],
    cov: Float[ArrayLike, "_d _d"],
    prior_mean: Float[ArrayLike, "_d"],
    prior_cov: Float[ArrayLike, "_d _d"],
) -> Scalar:
    r"""Divergence of one Gaussian from another in nats, the integrand of equation (16).

    .. math::
        D(N(\mu, C) \,\|\, N(g, \Sigma)) = \tfrac12 \left[ \log\det\Sigma - \log\det C
        - d + \operatorname{tr} \Sigma^{-1} \big( C + (\mu - g)(\mu - g)^\top \big)
        \right] .

    Infinite, not an error, where C is singular. Cost O(d^3).

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.eye(2)
        >>> float(gaussian_kl(jnp.array([1.0, 0.0]), one, jnp.zeros(2), one))
        0.5

    Source: Yao et al. (2024), Lemma 5 and equation (16).
    """
    check_shape("mean", mean, ("d",))
    check_shape("prior_mean", prior_mean, jnp.shape(mean))
    return anisotropic_term(jnp.subtract(mean, prior_mean), cov, prior_cov) / 2


@calculator(integers=("dim",))
def isotropic_term(
    squared_distance: Real[ArrayLike, "..."],
    trace: Real[ArrayLike, "..."],
    log_det: Real[ArrayLike, "..."],
    dim: Real[ArrayLike, "..."],
) -> Float[Array, "*batch"]:
    r"""Twice the divergence from the best isotropic prior in nats, equation (17).

    .. math::
        T = d \log \frac{\|G - \tilde g\|^2 + \operatorname{tr} C}{d} - \log\det C ,

    non-negative, and unchanged by :math:`G \to a G,\ C \to a^2 C`: a smaller gradient
    alone does not make it smaller. Distance, trace and log-determinant (on the support)
    may be expectations; a log-determinant of -inf gives inf, and d = 0 gives 0.

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


@calculator(cov=covariance, prior_cov=_definite)
def anisotropic_term(
    difference: Float[ArrayLike, "_d"],
    cov: Float[ArrayLike, "_d _d"],
    prior_cov: Float[ArrayLike, "_d _d"],
) -> Scalar:
    r"""Twice the divergence from a Gaussian prior with any covariance, in nats.

    .. math::
        T = \log\det\Sigma - \log\det C - d
        + \operatorname{tr} \Sigma^{-1} \big( C + \delta \delta^\top \big) , \qquad
        \delta = G - \tilde g .

    Averaged over :math:`G_t, C_t` given :math:`W_{t-1}`, it is least for
    :math:`\Sigma = E [C_t + \delta_t \delta_t^\top]` and :math:`\tilde g_t = E G_t`.
    Infinite where C is singular up to rounding in coordinates of the prior. Cost
    O(d^3).

    Example:
        >>> import jax.numpy as jnp
        >>> one = jnp.eye(2)
        >>> float(anisotropic_term(jnp.zeros(2), one, one))
        0.0

    Source: Yao et al. (2024), Lemma 5, with the prior left free.
    """
    delta, C, Sigma = map(widened, (difference, cov, prior_cov))
    check_shape("difference", delta, ("d",))
    check_shape("cov", C, (len(delta), len(delta)))
    check_shape("prior_cov", Sigma, C.shape)
    root = jnp.linalg.cholesky(Sigma)
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


@calculator(static=("held_out",), integers=("shots",), shots=up_to(_num_rows))
def held_out_term(
    z: Float[ArrayLike, "_N _d"], shots: Real[ArrayLike, ""], held_out: int
) -> Scalar:
    r"""Twice the divergence from a prior fitted to part of the demonstrations, in nats.

    .. math::
        P_t = N\!\Big( G_J ,\; \Sigma_J \Big[ \frac{N - b}{b N} + \frac1M - \frac1N
        \Big] \Big) ,

    with the mean :math:`G_J` and the unbiased covariance :math:`\Sigma_J` of the first
    M = ``held_out`` of the N gradients :math:`z_i`, in coordinates of the support and
    with mean G, for d < M < N and b = ``shots``. The error is then at most
    :math:`\sqrt{R^2 / (N - M) \cdot \sum_t E\, T_t}`, without population quantities.

    Example:
        >>> import jax
        >>> z = jax.random.normal(jax.random.key(0), (40, 2))
        >>> bool(held_out_term(z, 20, 10) > 0)
        True

    Source: Negrea et al. (2019), data-dependent priors, applied to Lemma 5 of Yao et
    al. (2024).
    """
    z = widened(z)
    check_held_out(held_out, z.shape[0])
    if held_out <= z.shape[1]:
        expected = f"more demonstrations than the dimension, {z.shape[1]}"
        raise wrong("held_out", expected, held_out)
    kappa = without_replacement_factor(z.shape[0], shots)
    return held_out_divergence(z, kappa, held_out, jnp.zeros(z.shape[1], z.dtype))


def check_held_out(held_out, N) -> None:
    """Raises unless M is a whole number below N."""
    check_positive_int("held_out", held_out)
    if held_out >= N:
        expected = f"M < N = {N} demonstrations"
        raise ValueError(f"held_out: expected {expected}, got {held_out}")


def held_out_divergence(z, kappa, held_out, padding):
    """Divergence from a held-out prior; ``padding`` is 1 for unused coordinates."""
    N, kappa = z.shape[0], kappa.astype(z.dtype)
    seen, pad = z[:held_out], jnp.diag(padding)
    excess = kappa * (N - 1) / N + 1 / held_out - 1 / N
    prior = jnp.concatenate([centred_rows(seen, excess / (held_out - 1)), pad])
    delta = jnp.mean(z, axis=0) - jnp.mean(seen, axis=0)
    rows = jnp.concatenate([centred_rows(z, kappa / N), pad])
    return factored_term(delta, rows, jnp.linalg.qr(prior, mode="r"))


def centred_rows(z: Array, factor: Array) -> Array:
    """Rows whose Gram matrix is ``factor`` times the scatter matrix of z."""
    return jnp.sqrt(factor) * (z - jnp.mean(z, axis=-2, keepdims=True))
