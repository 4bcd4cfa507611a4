"""Lemmas 2, 3 and 6: from mutual information to a bound on the generalisation error."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._noted import check_at_least, check_count, check_positive, check_values
from icltheory._typing import Array, Float, Scalar

__all__ = [
    "bound_from_expectations",
    "optimal_prior_variance",
    "trajectory_information",
    "xu_raginsky",
]


@calculator
def xu_raginsky(
    mutual_information: Real[ArrayLike, "..."],
    num_samples: Real[ArrayLike, ""],
    subgaussian_scale: Real[ArrayLike, ""],
) -> Float[Array, "*batch"]:
    r"""Bound on the absolute generalisation error, Lemma 2 (Xu and Raginsky).

    .. math::
        |\overline{error}| \le \sqrt{\frac{2 R^2}{N} I(W; H_s)} .

    The demonstrations are independent and identically distributed given the task, and
    the loss :math:`\ell(w, \cdot)` is R-sub-Gaussian under their law for every w: a
    loss in [0, 2R] is, the squared error of Gaussian data is not; clip it.

    Args:
        mutual_information: :math:`I(W; H_s)` or an upper bound, in nats; may be inf.
        num_samples: Number N of demonstrations.
        subgaussian_scale: R.

    Returns:
        The bound, in units of the loss.

    Example:
        >>> round(float(xu_raginsky(0.5, 100, 2.0)), 6)
        0.2

    Source: Yao et al. (2024), Lemma 2; Xu and Raginsky (2017), theorem 1.
    """
    check_at_least("mutual_information", mutual_information, 0)
    check_count("num_samples", num_samples, 1)
    check_positive("subgaussian_scale", subgaussian_scale)
    information = jnp.asarray(mutual_information, jnp.result_type(float))
    return jnp.asarray(subgaussian_scale) * jnp.sqrt(2 * information / num_samples)


@calculator
def trajectory_information(terms: Float[ArrayLike, "*batch L"]) -> Float[Array, "..."]:
    r"""Information of the final weights from one term per layer (Lemma 3).

    .. math::
        I(W_L; H_s) \le \sum_{t=1}^L I(\mathcal G_t; H_s \mid W_{t-1})
        \le \tfrac12 \sum_{t=1}^L T_t , \qquad
        \mathcal G_t = - G_t + C_t^{1/2} N_t .

    :math:`T_t` is twice a bound on the information of step t, as
    :func:`~icltheory.bounds.isotropic_term` and its kin return it. Needs :math:`W_0`
    independent of the demonstrations and fresh noise in each step, nothing else.

    Args:
        terms: :math:`T_1, \dots, T_L`, ``(..., L)``.

    Returns:
        The information in nats, ``(...,)``.

    Example:
        >>> import jax.numpy as jnp
        >>> float(trajectory_information(jnp.array([1.0, 3.0])))
        2.0

    Source: Yao et al. (2024), Lemma 3.
    """
    check_at_least("terms", terms, 0)
    return jnp.sum(jnp.asarray(terms, jnp.result_type(float)), axis=-1) / 2


@calculator
def optimal_prior_variance(
    A_1: Real[ArrayLike, "..."], dim: Real[ArrayLike, ""]
) -> Float[Array, "*batch"]:
    r"""The variance of the best isotropic prior, :math:`\sigma_*^2 = A_1 / d`.

    It minimises :math:`A_1 / \sigma^2 + d \log \sigma^2 - d - A_2` over
    :math:`\sigma^2`, equation (17); the minimum is :math:`d \log(A_1 / d) - A_2`.

    Args:
        A_1: :math:`E [\|G_t - \tilde g_t\|^2 + \operatorname{tr} C_t \mid W_{t-1}]`.
        dim: Dimension d, or m_t on the support.

    Returns:
        :math:`\sigma_*^2`.

    Example:
        >>> float(optimal_prior_variance(6.0, 3))
        2.0

    Source: Yao et al. (2024), equations (16) and (17).
    """
    check_positive("A_1", A_1)
    check_positive("dim", dim)
    return jnp.asarray(A_1, jnp.result_type(float)) / dim


@calculator
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
        \left[ d_t \log \frac{A_1(t)}{d_t} - A_2(t) \right]} .

    The logarithm stands outside the expectation in :math:`A_1`. The second line of the
    paper, with the logarithm inside, is smaller by Jensen's inequality and is no bound.
    Where the expectations are over :math:`W_{t-1}` too, the value only grows, so it
    stays valid.

    Args:
        A_1: :math:`E [\|G_t - \tilde g_t\|^2 + \operatorname{tr} C_t]`, ``(L,)``.
        A_2: :math:`E [\log \det C_t]` on the support, ``(L,)``; may be -inf.
        dim: Dimension of the support in each layer, ``(L,)`` or one number.
        num_samples: Number N of demonstrations.
        subgaussian_scale: R.

    Returns:
        The bound, in units of the loss.

    Example:
        >>> import jax.numpy as jnp
        >>> A_1, A_2 = jnp.array([2.0, 2.0]), jnp.zeros(2)
        >>> bound = bound_from_expectations(A_1, A_2, 1, 100, 1.0)
        >>> round(float(bound) ** 2, 6)  # 2 log 2 / 100
        0.013863

    Source: Yao et al. (2024), Lemma 6.
    """
    check_positive("A_1", A_1)
    check_values("A_2", A_2, lambda entry: entry == entry, "numbers")  # noqa: PLR0124
    check_positive("dim", dim)
    dims = jnp.asarray(dim)
    A_1, A_2 = (jnp.asarray(a, jnp.result_type(float)) for a in (A_1, A_2))
    terms = jnp.maximum(dims * jnp.log(A_1 / dims) - A_2, 0)
    return xu_raginsky(trajectory_information(terms), num_samples, subgaussian_scale)
