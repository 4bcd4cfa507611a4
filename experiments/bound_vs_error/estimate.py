"""Computes the bounds with their standard errors from replicates."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from experiments.bound_vs_error.config import ProblemSize
from experiments.bound_vs_error.learners import CLIP
from experiments.bound_vs_error.simulate import SMOOTHING, R, Replicates, held_out_sizes
from icltheory.bounds import (
    isotropic_term,
    smoothing_bound,
    supersample_bounds,
    trajectory_information,
    xu_raginsky,
)

ORDER = ("frobenius", "exact", "centred", "anisotropic")
HELD_OUT = ("held_out_half", "held_out_most", "held_out_all_but_one")
VALID = ORDER + HELD_OUT
LEVELS = 16  # number of values that losses are rounded to, for the supersample bound


@dataclasses.dataclass(frozen=True)
class DeltaEstimate:
    """A mean, or a function of means, with the influence of each replicate.

    Attributes:
        value: The estimate.
        influence: What each replicate adds to it, to first order, times B; their
            standard deviation is that of one replicate.
    """

    value: float
    influence: np.ndarray

    @property
    def spread(self) -> float:
        """Standard deviation of one replicate's influence."""
        return float(np.std(self.influence, ddof=1))

    @property
    def standard_error(self) -> float:
        """Standard error of the value; 0 for an infinite one."""
        return self.spread / math.sqrt(len(self.influence))

    def record(self) -> dict[str, float]:
        """Value, standard error and spread."""
        return {
            "value": self.value,
            "se": self.standard_error,
            "spread": self.spread,
        }


def mean(sample: np.ndarray) -> DeltaEstimate:
    """Returns the estimate of the mean of a sample."""
    return DeltaEstimate(float(np.mean(sample)), sample)


def bounds(
    row: ProblemSize, sample: Replicates, support_dim: int
) -> dict[str, DeltaEstimate]:
    """Computes every variant of the bound from the replicates of a row."""
    N, m = row.num_demos, support_dim

    def isotropic(squares):
        A_1, A_2 = squares + sample.trace, sample.log_det
        terms = isotropic_term(A_1.mean(axis=0), 0.0, A_2.mean(axis=0), m)
        return _bound(terms, m * A_1 / A_1.mean(axis=0) - A_2, N)

    def averaged(each, num_samples):
        return _bound(each.mean(axis=0), each, num_samples)

    inside = isotropic_term(sample.paper_square, sample.trace, sample.log_det, m)
    found = {
        "inside": averaged(np.asarray(inside), N),
        "frobenius": isotropic(sample.paper_square),
        "exact": isotropic(sample.squared_G),
        "centred": isotropic(sample.squared_distance),
        "anisotropic": averaged(sample.anisotropic, N),
    }
    for i, (name, M) in enumerate(zip(HELD_OUT, held_out_sizes(N), strict=True)):
        found[name] = averaged(sample.held_out[:, i], N - M)
    return found


def _bound(terms, each, num_samples) -> DeltaEstimate:
    """Computes the bound from its terms (L,) and each replicate's influence (B, L)."""
    information = trajectory_information(np.asarray(terms))
    value = float(xu_raginsky(information, num_samples, R))
    if not math.isfinite(value):
        return DeltaEstimate(math.inf, np.zeros(len(each)))
    slope = R**2 / (2 * num_samples * value)
    return DeltaEstimate(value, slope * each.sum(axis=1))


def smoothing(
    row: ProblemSize, sample: Replicates
) -> tuple[DeltaEstimate, float, float]:
    """Returns the best smoothing bound, its c, and the spread for single draws."""
    found = []
    weights = jnp.asarray(sample.det_w)
    centred = sample.det_w - sample.det_w.mean(axis=0)
    cov = np.atleast_2d(np.cov(sample.det_w.T))
    for i, c in enumerate(SMOOTHING):
        changes = np.stack([sample.train_change[:, i], sample.population_change[:, i]])
        both = changes.mean(axis=2)
        variance = c / row.num_demos
        on_train, on_fresh = both.mean(axis=1)
        bound = smoothing_bound(weights, on_train, on_fresh, variance, row.num_demos, R)
        # Derivatives of half the log-determinant, and of the square root that contains
        # it.
        inverse = np.linalg.inv(cov + variance * np.eye(len(cov)))
        information = np.einsum("bi,ij,bj->b", centred, inverse, centred) / 2
        slope = R**2 / (row.num_demos * float(bound.smoothed))
        signs = np.sign(both.mean(axis=1))
        influence = slope * information + signs @ both
        single = slope * information + signs @ changes[:, :, 0]
        estimate = DeltaEstimate(float(bound.value), influence)
        found.append((estimate, c, float(np.std(single, ddof=1))))
    return min(found, key=lambda entry: entry[0].value)


def supersample(pair_losses: np.ndarray) -> dict[str, float]:
    """Returns the smallest supersample bound, its confidence limit and the error.

    The pairs have one law, so that those of some demonstrations are enough. Error and
    bound are those of the rounded loss.
    """
    in_prompt = np.zeros(pair_losses.shape[:2], int)
    bound = supersample_bounds(pair_losses, in_prompt, levels=LEVELS).optimal
    return {
        "value": CLIP * float(bound.value),
        "upper": CLIP * float(bound.upper),
        "error": CLIP * float(bound.error),
        "error_se": CLIP * float(bound.standard_error),
    }


def ordering(found: dict[str, DeltaEstimate]) -> dict[str, float]:
    """Differences between neighbouring variants of the bound, in standard errors.

    Negative where the order holds, F >= G >= opt >= aniso; both are from the same
    prompts, so the standard error is that of the difference.
    """
    gaps = {}
    for coarse, fine in zip(ORDER, ORDER[1:], strict=False):
        a, b = found[coarse], found[fine]
        if not math.isfinite(a.value + b.value):
            continue
        spread = np.std(b.influence - a.influence, ddof=1)
        error = spread / math.sqrt(len(a.influence))
        gaps[f"{coarse} >= {fine}"] = float((b.value - a.value) / max(error, 1e-12))
    return gaps


def measure(
    row: ProblemSize, sample: Replicates, support_dim: int, printed: float
) -> dict:
    """Returns the record of a row for ``metrics.jsonl``."""
    found = bounds(row, sample, support_dim)
    smooth, c, single = smoothing(row, sample)
    records = {name: estimate.record() for name, estimate in found.items()}
    return {
        **dataclasses.asdict(row),
        "support_dim": support_dim,
        "replicates": len(sample.gap),
        "error": mean(sample.gap).record(),
        "risk": mean(sample.risk).record(),
        "det_error": mean(sample.det_gap).record(),
        "det_risk": mean(sample.det_risk).record(),
        "printed": {"value": printed},
        **records,
        "smoothing": {**smooth.record(), "c": c, "single_spread": single},
        "supersample": supersample(sample.pair_losses),
        "det_supersample": supersample(sample.det_pair_losses),
        "order": ordering(found),
    }
