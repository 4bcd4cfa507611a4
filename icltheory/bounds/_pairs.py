"""Counts of the losses of each pair, and estimates of information from them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int
from icltheory._typing import Array

# Largest number of distinct values for losses that are not quantised.
MOST_VALUES = 32
# Differences of losses that are closer than this are equal up to float32 rounding.
SAME = 1e-6


class Pairs(NamedTuple):
    """Quantised losses of B prompts with N pairs each.

    Attributes:
        law: Share of each pair of losses, (chosen, other), at each place, (N, K, K).
        values: The K values of the loss.
        difference: Mean of other minus chosen in each prompt, (B,).
    """

    law: Array
    values: Array
    difference: Array

    @property
    def num_prompts(self) -> int:
        """Number B of prompts."""
        return self.difference.shape[0]

    @property
    def pooled(self) -> Array:
        """Joint distribution of the losses of a random pair, (1, K, K)."""
        return jnp.mean(self.law, axis=0)[None]

    @property
    def differences(self) -> Array:
        """Loss of the other minus loss of the chosen demonstration, by cell, (K, K)."""
        return self.values[None, :] - self.values[:, None]


def read_pairs(losses: Array, chosen: Any, levels: int | None) -> tuple[Pairs, Array]:
    """Quantises and counts the losses; also whether they have few enough values."""
    index, values, few = _quantised(losses, levels)
    taken, other = in_and_out(index, chosen)
    difference = jnp.mean(values[other] - values[taken], axis=1)
    law = shares(taken * len(values) + other, len(values) ** 2)
    law = law.reshape(-1, len(values), len(values)).astype(losses.dtype)
    return Pairs(law, values, difference), few


def in_and_out(pairs: Array, chosen: Any) -> tuple[Array, Array]:
    """Chosen entry of each pair, and the other one, (B, N)."""
    first, second = pairs[..., 0], pairs[..., 1]
    coin = jnp.asarray(chosen) == 1
    return jnp.where(coin, second, first), jnp.where(coin, first, second)


def shares(cells: Array, num_cells: int) -> Array:
    """Relative frequency of each cell by position, (N, cells), from indices (B, N)."""
    B, N = cells.shape
    flat = (cells + num_cells * jnp.arange(N)[None]).reshape(-1)
    counts = jnp.bincount(flat, length=N * num_cells).reshape(N, num_cells)
    return counts / B


def _quantised(losses: Array, levels: int | None) -> tuple[Array, Array, Array]:
    """Index of each loss among the values, the values, and whether they are few."""
    if levels is not None:
        check_positive_int("levels", levels)
        if levels < 2:
            raise ValueError(f"levels: expected at least 2, got {levels}")
        grid = jnp.arange(levels) / (levels - 1)
        index = jnp.clip(jnp.round(losses * (levels - 1)), 0, levels - 1)
        return index.astype(int), grid.astype(losses.dtype), jnp.array(True)
    fill = 2.0  # not a valid loss, so that its cells stay empty
    values = jnp.unique(losses, size=MOST_VALUES + 1, fill_value=fill)
    return jnp.searchsorted(values, losses), values, values[-1] == fill


def merged(law: Array, differences: Array) -> tuple[Array, Array]:
    """Masses of +a and -a for each difference a, (N, cells) each.

    Differences that agree up to rounding are one value.
    """
    flat, values = law.reshape(law.shape[0], -1), differences.reshape(-1)
    order = jnp.argsort(jnp.abs(values))
    steps = jnp.diff(jnp.abs(values)[order], prepend=0) > SAME
    cell = jnp.zeros(values.size, int).at[order].set(jnp.cumsum(steps))

    def masses(sign):
        kept = jnp.where((sign * values > SAME)[None], flat, 0)
        return jnp.zeros_like(flat).at[:, cell].add(kept)

    return masses(1), masses(-1)


def swapped(law: Array) -> tuple[Array, Array]:
    """Masses of each cell above the diagonal and of its mirror image, (N, cells)."""
    K = law.shape[-1]
    upper = jnp.triu(jnp.ones((K, K), bool), 1)[None]
    kept = (jnp.where(upper, one, 0) for one in (law, jnp.swapaxes(law, 1, 2)))
    first, second = (one.reshape(law.shape[0], -1) for one in kept)
    return first, second


def tail_weight(confidence: float) -> Array:
    """Logarithm of one over the error probability."""
    return -jnp.log1p(-jnp.asarray(confidence, float))


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
