"""From mutual information to a bound on the error, and the samples that it needs."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import Check, check_shape, count, finite, positive
from icltheory._core import Record, calculator, widened
from icltheory._typing import Array, Float, Scalar
from icltheory.linalg.decomposition import finite_or_nan

_at_least_0 = Check(lambda x: x >= 0, "a value >= 0")  # infinity is one
_number = Check(lambda x: x == x, "numbers")  # noqa: PLR0124


@calculator(
    mutual_information=_at_least_0, num_samples=count(1), subgaussian_scale=positive
)
def xu_raginsky(
    mutual_information: Real[ArrayLike, "..."],
    num_samples: Real[ArrayLike, ""],
    subgaussian_scale: Real[ArrayLike, ""],
) -> Float[Array, "*batch"]:
    r"""Bound on the absolute generalisation error, Lemma 2 (Xu and Raginsky).

    .. math:: |\overline{error}| \le \sqrt{2 R^2\, I(W; H_s) / N} ,

    with I in nats. The N demonstrations are independent and identically distributed
    given the task, and the loss is R-sub-Gaussian under their law for every W: a loss
    in [0, 2R] is, the squared error of Gaussian data is not; clip it.

    Example:
        >>> round(float(xu_raginsky(0.5, 100, 2.0)), 6)
        0.2

    Source: Yao et al. (2024), Lemma 2; Xu and Raginsky (2017), theorem 1.
    """
    information = jnp.asarray(mutual_information, jnp.result_type(float))
    return jnp.asarray(subgaussian_scale) * jnp.sqrt(2 * information / num_samples)


@calculator(terms=_at_least_0)
def trajectory_information(terms: Float[ArrayLike, "*batch L"]) -> Float[Array, "..."]:
    r"""Information of the final weights in nats, from one term per layer (Lemma 3).

    .. math::
        I(W_L; H_s) \le \sum_{t=1}^L I(\mathcal G_t; H_s \mid W_{t-1})
        \le \tfrac12 \sum_{t=1}^L T_t , \qquad
        \mathcal G_t = - G_t + C_t^{1/2} N_t ,

    with :math:`T_t` as :func:`isotropic_term` and the related functions return it.
    Needs :math:`W_0` independent of the demonstrations and fresh noise in each step.

    Example:
        >>> import jax.numpy as jnp
        >>> float(trajectory_information(jnp.array([1.0, 3.0])))
        2.0

    Source: Yao et al. (2024), Lemma 3.
    """
    return jnp.sum(jnp.asarray(terms, jnp.result_type(float)), axis=-1) / 2


@calculator(A_1=positive, dim=positive)
def optimal_prior_variance(
    A_1: Real[ArrayLike, "..."], dim: Real[ArrayLike, ""]
) -> Float[Array, "*batch"]:
    r"""The variance of the best isotropic prior, :math:`\sigma_*^2 = A_1 / d`.

    It minimises :math:`A_1 / \sigma^2 + d \log \sigma^2 - d - A_2` over
    :math:`\sigma^2`, equation (17); the minimum is :math:`d \log(A_1 / d) - A_2`.

    Example:
        >>> float(optimal_prior_variance(6.0, 3))
        2.0

    Source: Yao et al. (2024), equations (16) and (17).
    """
    return jnp.asarray(A_1, jnp.result_type(float)) / dim


@calculator(
    A_1=positive,
    A_2=_number,
    dim=positive,
    num_samples=count(1),
    subgaussian_scale=positive,
)
def bound_from_expectations(
    A_1: Real[ArrayLike, "_L"],
    A_2: Real[ArrayLike, "_L"],
    dim: Real[ArrayLike, "..."],
    num_samples: Real[ArrayLike, ""],
    subgaussian_scale: Real[ArrayLike, ""],
) -> Scalar:
    r"""Bound from its conditional expectations (Yao et al., Lemma 6, first line).

    .. math::
        |\overline{error}| \le \sqrt{\frac{R^2}{N} \sum_{t=1}^L
        \left[ d_t \log \frac{A_1(t)}{d_t} - A_2(t) \right]} , \qquad
        A_1(t) = E [\|G_t - \tilde g_t\|^2 + \operatorname{tr} C_t] , \quad
        A_2(t) = E \log \det C_t .

    The second line of the paper, with the logarithm inside the expectation, is smaller
    by Jensen's inequality and is no bound. Where the expectations are over
    :math:`W_{t-1}` too, the value only grows, so it stays valid.

    Example:
        >>> import jax.numpy as jnp
        >>> A_1, A_2 = jnp.array([2.0, 2.0]), jnp.zeros(2)
        >>> bound = bound_from_expectations(A_1, A_2, 1, 100, 1.0)
        >>> round(float(bound) ** 2, 6)  # 2 log 2 / 100
        0.013863

    Source: Yao et al. (2024), Lemma 6.
    """
    dims = jnp.asarray(dim)
    A_1, A_2 = (jnp.asarray(a, jnp.result_type(float)) for a in (A_1, A_2))
    terms = jnp.maximum(dims * jnp.log(A_1 / dims) - A_2, 0)
    return xu_raginsky(trajectory_information(terms), num_samples, subgaussian_scale)


@calculator(
    num_samples=positive,
    shots=positive & Check(lambda b: b >= 1, "at least 1"),
    support_dims=positive,
    subgaussian_scale=positive,
)
def planned_bound(
    num_samples: Real[ArrayLike, "..."],
    shots: Real[ArrayLike, "..."],
    support_dims: Real[ArrayLike, "_L"],
    subgaussian_scale: Real[ArrayLike, ""],
) -> Float[Array, "*batch"]:
    r"""Approximate value of the anisotropic bound for planning; not a proved bound.

    .. math::
        R \sqrt{ \frac1N \sum_{t=1}^L m_t \left[ \log\frac{N}{N - b}
        + \frac{m_t + 1}{2 N} \right] } ,

    the expansion for Gaussian per-demonstration gradients and N well above m_t. Heavier
    tails make the true bound larger, by about a quarter for regression. Infinite where
    N - 1 < m_t for some layer, or b = N.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(planned_bound(1000, 20, jnp.array([5, 5]), 1.0)), 4)
        0.0152

    Source: An expansion of Theorem 2 of Yao et al. (2024) with the best Gaussian prior.
    """
    if not jnp.size(support_dims):
        raise ValueError("support_dims: expected at least one layer, got none")
    N, b, m = (
        jnp.asarray(a, jnp.result_type(float))
        for a in (num_samples, shots, support_dims)
    )
    per_dim = -jnp.log1p(-jnp.where(b < N, b / N, 0))  # accurate for b << N
    total = jnp.sum(m) * per_dim + jnp.sum(m * (m + 1)) / (2 * N)
    enough = (jnp.max(m) <= N - 1) & (b < N)
    return jnp.where(enough, subgaussian_scale * jnp.sqrt(total / N), jnp.inf)


@calculator(
    compiled=False, target=positive, support_dims=positive, subgaussian_scale=positive
)
def required_samples(
    target: float,
    fraction: float,
    support_dims: Real[ArrayLike, "_L"],
    subgaussian_scale: float,
) -> int:
    r"""The smallest pool for which the planned bound reaches a target.

    Solves :func:`planned_bound` <= target for N at a fixed fraction b/N of shots in
    (0, 1), and at least one shot; to leading order

    .. math:: N = (R / \epsilon)^2 \sum_t m_t \log \frac{1}{1 - b/N} .

    Example:
        >>> import jax.numpy as jnp
        >>> required_samples(0.1, 0.5, jnp.array([5, 5]), 1.0)
        698

    Source: An expansion of Theorem 2 of Yao et al. (2024) with the best Gaussian prior.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction: expected a value in (0, 1), got {fraction}")

    def reached(N):
        N = float(N)  # may exceed 64-bit integers
        shots = max(fraction * N, 1.0)
        planned = planned_bound(N, shots, support_dims, subgaussian_scale)
        return bool(planned <= target)

    high = 2
    while not reached(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


class SmoothingBound(Record):
    r"""The smoothing bound and the quantities it is computed from.

    Args:
        value: The bound, in units of the loss.
        information: Bound on :math:`I(W_L + \xi; H_s)` in nats.
        smoothed: Error bound of the learner with perturbed weights.
        residual: What the perturbation changes in the two losses.
        variance: :math:`\sigma^2` of the perturbation.
    """

    value: Float[Array, "*batch"]
    information: Float[Array, "*batch"]
    smoothed: Float[Array, "*batch"]
    residual: Float[Array, "*batch"]
    variance: Float[Array, "*batch"]


@calculator(
    weights=finite, variance=positive, num_samples=count(1), subgaussian_scale=positive
)
def smoothing_bound(
    weights: Float[ArrayLike, "_B _p"],
    train_change: Real[ArrayLike, ""],
    population_change: Real[ArrayLike, ""],
    variance: Real[ArrayLike, ""],
    num_samples: Real[ArrayLike, ""],
    subgaussian_scale: Real[ArrayLike, ""],
) -> SmoothingBound:
    r"""Bound for the transformer without noise, by one perturbation of its result.

    .. math::
        |\overline{error}(W_L)| \le \sqrt{\frac{2 R^2}{N} I(W_L + \xi; H_s)}
        + |D_S| + |D_\mu| , \qquad
        I(W_L + \xi; H_s) \le \tfrac12 \log\det\!\Big( 1 + \frac{\operatorname{Cov}
        (W_L)}{\sigma^2} \Big) ,

    with :math:`\xi \sim N(0, \sigma^2)` and D the mean change of the loss under the
    perturbation, on the demonstrations (``train_change``) and on fresh data. Draws of
    :math:`W_L` over prompts, flattened, are the ``weights``; covariance and D carry
    their error. The bound holds for every :math:`\sigma^2` that is fixed beforehand,
    and so does the smallest of several. Cost O(min(B, p)^2 max(B, p)).

    Example:
        >>> import jax.numpy as jnp
        >>> bound = smoothing_bound(jnp.array([[-1.0], [1.0]]), 0.0, 0.0, 1.0, 10, 1.0)
        >>> round(float(bound.information), 6) == round(0.5 * float(jnp.log(3.0)), 6)
        True

    Source: Xu and Raginsky (2017), theorem 1, applied to the perturbed weights; Neu et
    al. (2021) use the same device for stochastic gradient descent.
    """
    weights = widened(weights)
    check_shape("weights", weights, ("B", "p"))
    if weights.shape[0] < 2:
        raise ValueError(f"weights: expected at least 2 draws, got {weights.shape[0]}")
    centred = weights - jnp.mean(weights, axis=0)[None]
    s = jnp.linalg.svd(finite_or_nan(centred), compute_uv=False)
    spread = s**2 / (weights.shape[0] - 1)
    information = jnp.sum(jnp.log1p(spread / variance)) / 2
    smoothed = xu_raginsky(information, num_samples, subgaussian_scale)
    residual = jnp.abs(train_change) + jnp.abs(population_change)
    return SmoothingBound(
        smoothed + residual,
        information,
        smoothed,
        residual,
        jnp.asarray(variance, information.dtype),
    )
