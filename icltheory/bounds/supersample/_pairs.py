"""Counts of the losses of each pair, from which all bounds are computed."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from icltheory._checks import check_open_unit, check_positive_int, check_shape
from icltheory._noted import check_unit, check_values
from icltheory._precision import widened
from icltheory._typing import Array
from icltheory.bounds.supersample._estimates import information_limit
from icltheory.bounds.supersample.records import SupersampleBound

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
        confidence: Confidence level.
    """

    law: Array
    values: Array
    difference: Array
    confidence: float

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

    def square_root(self, information) -> SupersampleBound:
        """Mean over positions of sqrt(2 I), with an upper limit from the mean of I."""
        weight = tail_weight(self.confidence)
        limit = information_limit(jnp.mean(information), self.num_prompts, weight)
        value = jnp.mean(jnp.sqrt(2 * information))
        return self.record(value, jnp.sqrt(2 * limit), information)

    def record(self, value, upper, information) -> SupersampleBound:
        """Builds the result, with the measured error."""
        B = self.num_prompts
        spread = jnp.std(self.difference, ddof=1) if B > 1 else jnp.nan
        upper = jnp.minimum(upper, 1)
        return SupersampleBound(
            value=value,
            upper=upper,
            information=information,
            error=jnp.mean(self.difference),
            standard_error=jnp.asarray(spread / B**0.5, value.dtype),
            vacuous=upper >= 1,
            confidence=self.confidence,
        )


def read_pairs(losses: Any, chosen: Any, levels: int | None, confidence) -> Pairs:
    """Checks, quantises and counts the losses."""
    losses = widened(losses)
    check_shape("losses", losses, ("B", "N", 2))
    check_shape("chosen", chosen, losses.shape[:2])
    if not losses.size:
        raise ValueError(f"losses: expected at least one, got shape {losses.shape}")
    check_unit("losses", losses)
    check_coins(chosen)
    check_open_unit("confidence", confidence)
    index, values = _quantised(losses, levels)
    taken, other = in_and_out(index, chosen)
    difference = jnp.mean(values[other] - values[taken], axis=1)
    law = _law(taken * len(values) + other, len(values) ** 2)
    law = law.reshape(-1, len(values), len(values)).astype(losses.dtype)
    return Pairs(law, values, difference, confidence)


def check_coins(chosen: Any) -> None:
    """Raises unless all entries are 0 or 1."""
    check_values("chosen", chosen, lambda one: (one == 0) | (one == 1), "0 or 1")


def in_and_out(pairs: Array, chosen: Any) -> tuple[Array, Array]:
    """Chosen entry of each pair, and the other one, (B, N)."""
    first, second = pairs[..., 0], pairs[..., 1]
    coin = jnp.asarray(chosen) == 1
    return jnp.where(coin, second, first), jnp.where(coin, first, second)


def shares(cells: Array, num_cells: int) -> Array:
    """Relative frequency of each cell by position, (N, cells), from indices (B, N)."""
    return _law(cells, num_cells).astype(jnp.result_type(float))


def _law(cells: Array, num_cells: int) -> Array:
    B, N = cells.shape
    flat = (cells + num_cells * jnp.arange(N)[None]).reshape(-1)
    counts = jnp.bincount(flat, length=N * num_cells).reshape(N, num_cells)
    return counts / B


def _quantised(losses: Array, levels: int | None) -> tuple[Array, Array]:
    """Index of each loss among the values, and the values."""
    if levels is not None:
        check_positive_int("levels", levels)
        if levels < 2:
            raise ValueError(f"levels: expected at least 2, got {levels}")
        grid = jnp.arange(levels) / (levels - 1)
        index = jnp.clip(jnp.round(losses * (levels - 1)), 0, levels - 1)
        return index.astype(int), grid.astype(losses.dtype)
    fill = 2.0  # not a valid loss, so that its cells stay empty
    values = jnp.unique(losses, size=MOST_VALUES + 1, fill_value=fill)
    check_values(
        "losses",
        values[-1],
        lambda last: last == fill,
        f"at most {MOST_VALUES} distinct values unless levels is given",
        "more values",
    )
    return jnp.searchsorted(values, losses), values


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
