"""Tests whether smaller implicit updates of the surrogate mean better accuracy.

Both fall with the clipping rate whatever the theory says, so layers are compared within
each rate. And the surrogate has to be near what attention does: else its norms are not
those of the model.
"""

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import scipy.stats

from experiments.prune_llm.study import Study
from experiments.prune_llm.subject import TaskDraw
from experiments.prune_llm.tables import panel
from icltheory.strict_json import number

# The square of the cosine is the share of the squared length of attention's
# contribution that the surrogate explains; at least half is required.
LEAST_COSINE = 0.5**0.5
# The jackknife over layers needs at least a few layers.
LEAST_LAYERS = 4


class WithinRates(NamedTuple):
    """The correlation over layers within each rate, and what it depends on.

    Attributes:
        layers: How many layers there are.
        rates: How many rates above 0.
        least_cosine: The smallest cosine of the surrogate to attention among them.
        most_cosine: The largest.
        smaller: Share of layers and rates at which clipping makes the update smaller.
        correlation: Rank correlation within the rates; ``None`` if not applicable.
        low: Lower end of its interval, likewise.
        high: Upper end.
        reason: Why it is not applicable; empty if it is.
    """

    layers: int
    rates: int
    least_cosine: float
    most_cosine: float
    smaller: float
    correlation: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def within_rates(study: Study, theory: dict[str, Any]) -> WithinRates:
    """Correlates the update's size with the change of accuracy within each rate."""
    rates = study.rates(theory["module"])[1:]
    found = panel(study, TaskDraw(**theory["case"]), theory["module"])
    rows = {(row["layer"], row["rate"]): row for row in theory["rows"]}
    sizes = np.array(
        [
            [rows[layer, rate]["G_norm"] / rows[layer, 0.0]["G_norm"] for rate in rates]
            for layer in study.layers
        ]
    )
    used = [
        number(rows[place]["cosine"]) for place in product(study.layers, (0.0, *rates))
    ]
    about = WithinRates(
        len(study.layers),
        len(rates),
        float(np.min(used)),
        float(np.max(used)),
        float(np.mean(sizes < 1)) if sizes.size else 0.0,
    )
    if not about.least_cosine >= LEAST_COSINE:  # also true for NaN
        return about._replace(
            reason=f"cosine of the surrogate to attention {about.least_cosine:+.2f} to "
            f"{about.most_cosine:+.2f}, at least {LEAST_COSINE:.2f} needed everywhere"
        )
    if len(study.layers) < LEAST_LAYERS or not rates:
        return about._replace(
            reason=f"{len(study.layers)} layers at {len(rates)} rates, at least "
            f"{LEAST_LAYERS} layers at one rate needed"
        )
    changes = found.accuracy[:, 1:] - found.unpruned
    correlation, low, high = rank_correlation(sizes, changes, study.config.level)
    if np.isnan(correlation):
        return about._replace(reason="all layers are equal at every rate")
    return about._replace(correlation=correlation, low=low, high=high)


def rank_correlation(
    sizes: np.ndarray, changes: np.ndarray, level: float
) -> tuple[float, float, float]:
    r"""Rank correlation of two tables (layers, rates) within the rates, with interval.

    .. math:: r = \frac{\sum_{\xi, l} a_{l \xi}\, b_{l \xi}}
        {\sqrt{\sum a_{l \xi}^2 \sum b_{l \xi}^2}}

    with a and b the ranks over the layers at each rate, centred there. The rates of one
    layer are not independent: the interval is a jackknife over whole layers, of the
    inverse hyperbolic tangent, with Student's quantile.

    Returns:
        The correlation and the ends; NaN where all layers are equal at every rate.
    """
    layers, found = len(sizes), _within(sizes, changes)
    kept = [np.arange(layers) != layer for layer in range(layers)]
    left_out = np.array([_arctanh(_within(sizes[k], changes[k])) for k in kept])
    spread = np.sum((left_out - left_out.mean()) ** 2)
    half = scipy.special.stdtrit(layers - 1, (1 + level) / 2)
    half = half * np.sqrt((layers - 1) / layers * spread)
    ends = np.tanh([_arctanh(found) - half, _arctanh(found) + half])
    return found, float(ends[0]), float(ends[1])


def _within(sizes: np.ndarray, changes: np.ndarray) -> float:
    a, b = (
        ranks - ranks.mean(axis=0)
        for ranks in (scipy.stats.rankdata(table, axis=0) for table in (sizes, changes))
    )
    scale = np.sqrt(np.sum(a**2) * np.sum(b**2))
    return float(np.sum(a * b) / scale) if scale > 0 else np.nan


def _arctanh(correlation: float) -> float:
    # With few layers the ranks may agree completely.
    return float(np.arctanh(np.clip(correlation, -0.999, 0.999)))


def theory_finding(study: Study, theory: dict[str, Any] | None) -> list[str]:
    """States what the surrogate predicts about accuracy, or why it predicts nothing."""
    if theory is None:
        return []
    found = within_rates(study, theory)
    head = f"Linear surrogate of {theory['module']} ({theory['case']['task']}): "
    if found.reason:
        return [
            f"{head}whether a smaller implicit update goes with a better accuracy is "
            f"not applicable: {found.reason}."
        ]
    return [
        f"{head}clipping makes the implicit update G smaller at {found.smaller:.0%} of "
        f"{found.layers * found.rates} (layer, rate); the rank correlation of its "
        f"relative size with the change of accuracy, over {found.layers} layers within "
        f"each of {found.rates} rates, is {found.correlation:+.2f} "
        f"({100 * study.config.level:g} % interval {found.low:+.2f} to "
        f"{found.high:+.2f}), where the theory's reading, that smaller is better, asks "
        "for a negative one."
    ]
