"""Mutual information with a fair coin, and confidence limits for finite samples."""

import jax
import jax.numpy as jnp

from icltheory._typing import Array


def coin_information(plus: Array, minus: Array) -> Array:
    r"""Information of a statistic about the coin, (N,), from masses (N, cells).

    .. math:: I = \sum_a (p_a^+ + p_a^-)\, \kappa(g_a) , \qquad
        g_a = \frac{p_a^+ - p_a^-}{p_a^+ + p_a^-} , \quad
        2 \kappa(g) = (1 + g) \log(1 + g) + (1 - g) \log(1 - g) .
    """
    total = plus + minus
    g = (plus - minus) / jnp.where(total > 0, total, 1)
    one = jnp.asarray(1, g.dtype)
    twice = jax.scipy.special.xlog1py(one + g, g)
    twice = twice + jax.scipy.special.xlog1py(one - g, -g)
    return jnp.maximum(jnp.sum(total * twice, axis=1) / 2, 0)


def information_limit(information: Array, num_prompts: int, weight: Array) -> Array:
    r"""Upper confidence limit of an information, from its plug-in estimate.

    .. math:: U = \min_{0 < \lambda < 1} \frac{1 - \exp(-\lambda \hat I - w / B)}
        {\lambda (1 - \lambda)} , \qquad w = \log \frac1\delta .

    The same for a mean over places of a prompt. See the derivation: the number of
    values does not enter.
    """
    grid = jnp.geomspace(1e-5, 0.5, 400).astype(information.dtype)
    least = jnp.min(
        -jnp.expm1(-grid * information - weight / num_prompts) / (grid * (1 - grid))
    )
    return jnp.minimum(least, jnp.log(2.0)).astype(information.dtype)


def mean_limit(mean: Array, num_prompts: int, weight: Array) -> Array:
    """Upper confidence limit of the mean of B independent numbers in [0, 1].

    Chernoff and Hoeffding: the largest m with kl(mean || m) <= weight / B.
    """
    budget = weight / num_prompts

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        inside = binary_kl(mean, middle) <= budget
        return jnp.where(inside, middle, low), jnp.where(inside, high, middle)

    mean = jnp.clip(mean, 0, 1)
    return jax.lax.fori_loop(0, 60, halve, (mean, jnp.ones_like(mean)))[1]


def binary_kl(p: Array, q: Array) -> Array:
    """KL divergence of Bernoulli(p) from Bernoulli(q); infinite at wrong ends."""
    tiny = jnp.finfo(jnp.result_type(p, q)).tiny
    heads = jax.scipy.special.xlogy(p, p / jnp.maximum(q, tiny))
    tails = jax.scipy.special.xlogy(1 - p, (1 - p) / jnp.maximum(1 - q, tiny))
    return jnp.maximum(heads + tails, 0)
