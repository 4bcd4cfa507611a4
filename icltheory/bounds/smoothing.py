"""A generalisation bound that is finite for the deterministic transformer."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import check_finite, check_positive
from icltheory._precision import finite_or_nan, widened
from icltheory._pytree import pytree
from icltheory._typing import Array, Float
from icltheory.bounds.information import xu_raginsky

__all__ = ["SmoothingBound", "smoothing_bound"]


@pytree
class SmoothingBound:
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


@calculator
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
    perturbation, on the demonstrations (S) and on fresh data (:math:`\mu`). The
    information bound is the maximum entropy of a Gaussian. It holds for every
    :math:`\sigma^2` that is fixed beforehand, so the smallest of several such values is
    a bound too. The covariance and D are expectations; estimates from B draws carry
    the error of those. Cost O(min(B, p)^2 max(B, p)).

    Args:
        weights: Draws of :math:`W_L` over prompts, flattened, ``(B, p)``.
        train_change: :math:`D_S`.
        population_change: :math:`D_\mu`.
        variance: :math:`\sigma^2`.
        num_samples: Number N of demonstrations.
        subgaussian_scale: R.

    Returns:
        The bound and its parts.

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
    check_finite("weights", weights)
    check_positive("variance", variance)
    check_positive("subgaussian_scale", subgaussian_scale)
    centred = weights - jnp.mean(weights, axis=0)[None]
    s = jnp.linalg.svd(finite_or_nan(centred), compute_uv=False)
    spread = s**2 / (weights.shape[0] - 1)
    information = jnp.sum(jnp.log1p(spread / variance)) / 2
    smoothed = xu_raginsky(information, num_samples, subgaussian_scale)
    residual = jnp.abs(jnp.asarray(train_change)) + jnp.abs(
        jnp.asarray(population_change)
    )
    return SmoothingBound(
        smoothed + residual,
        information,
        smoothed,
        residual,
        jnp.asarray(variance, information.dtype),
    )
