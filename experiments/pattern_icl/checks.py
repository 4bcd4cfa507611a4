"""Checks of measured numbers against theory."""

import math

import numpy as np

from experiments._frame.report import Check
from experiments.pattern_icl.config import Config
from experiments.pattern_icl.results import PatternResults
from icltheory.patterns import miss_probability
from icltheory.statistics import proportion_interval

# The closed form ignores the noise of the features and differences between neurons.
HINGE_TOLERANCE = 0.03
# At this level a cell is outside by chance once in ten thousand.
LEVEL = 0.9999


def checks(config: Config, found: PatternResults) -> list[Check]:
    """Returns all checks of a run."""
    return [
        *_mechanism(config, found),
        *_sums(found),
        *_lengths(config, found),
        *_coverage(config, found),
        Check("slope of iterations, log-log", found.speed.slope, -0.7, "within", 0.2),
        Check("GPT-2: hinge loss at the end of training", found.gpt.loss, 0.05, "<="),
    ]


def _mechanism(config: Config, found: PatternResults) -> list[Check]:
    ensemble, probes = config.figures, found.mechanism
    attention = np.asarray(probes.in_domain.attention)
    away = np.asarray(probes.shifted.attention)
    start = start_attention(config)
    key = np.asarray(probes.tokens.query_component)
    product = ensemble.attention_scale * ensemble.scale
    angles = {name: a[:, -1] for name, a in found.large_angles().items()}
    hinge = np.asarray(probes.in_domain.hinge)[:, -1]
    return [
        Check("attention mass before", attention[:, 0].mean(), start, "within", 0.01),
        Check("1 - attention mass, worst seed", 1 - attention[:, -1].min(), 0.05, "<="),
        Check("the same out of domain", 1 - away[:, -1].min(), 0.05, "<="),
        Check(
            "W_Q along the pattern before", key[:, 0].mean(), product, "within", 1e-3
        ),
        Check("feature angle / pi, worst seed", angles["feature"].max(), 0.05, "<="),
        Check("label angle / pi, a > 0", angles["label, a > 0"].max(), 0.03, "<="),
        Check("1 - angle / pi, a < 0", 1 - angles["label, a < 0"].min(), 0.03, "<="),
        Check("hinge on unseen tasks", hinge.mean(), 1e-3, "<="),
    ]


def start_attention(config: Config) -> float:
    """Attention mass at initialisation, for many contexts and no noise."""
    ensemble = config.figures
    half = ensemble.relevant_fraction / 2
    pull = half * math.exp((ensemble.attention_scale * ensemble.scale) ** 2)
    return pull / (pull + 1 - half)


def _sums(found: PatternResults) -> list[Check]:
    made = []
    for name, sweep in found.sweeps.items():
        hinge = np.asarray(sweep.found.hinge).mean(axis=(0, 2))
        error = np.asarray(sweep.found.error).mean(axis=(0, 2))
        gap = np.abs(sweep.hinge_gap.mean(axis=0))
        far = sweep.sums >= 1
        clear = sweep.margins.min(axis=0) >= 0.1
        least = sweep.sums[clear].min() if clear.any() else np.nan
        made += [
            Check(f"{name}: hinge where S_1 >= 1", _most(hinge[far]), 1e-3, "<="),
            Check(
                f"{name}: hinge against [1 - F(S_1)]_+, largest distance",
                gap.max(),
                HINGE_TOLERANCE,
                "<=",
            ),
            Check(
                f"{name}: one-layer 0-1 error down to S_1 = {least:g}",
                _most(error[clear]),
                1e-3,
                "<=",
            ),
        ]
    return made


def _most(values: np.ndarray) -> float:
    return float(values.max()) if values.size else 0.0


def _lengths(config: Config, found: PatternResults) -> list[Check]:
    domains = {"in domain": found.inside, "out of domain": found.outside}
    total = config.prompts * len(config.figures.seeds)
    law = miss_law(config)
    sure = np.asarray(config.fractions) == 1
    made = []
    for name, shares in domains.items():
        error, missed, wrong_hits = (
            np.asarray(part).mean(axis=0)
            for part in (shares.error, shares.missed, shares.wrong_hits)
        )
        made.append(
            Check(
                f"{name}: cells whose interval leaves out the miss law",
                _outside(missed, law, total),
                0,
                "<=",
            )
        )
        if sure.any():
            made.append(
                Check(
                    f"{name}: the same of the error, alpha' = 1",
                    _outside(error[sure], law[sure], total),
                    0,
                    "<=",
                )
            )
        made.append(
            Check(f"{name}: errors without a miss", wrong_hits.max(), 1e-3, "<=")
        )
        if not sure.all():
            ratio = error[~sure].sum() / missed[~sure].sum()
            made.append(
                Check(
                    f"{name}: errors per miss, alpha' < 1", ratio, 0.85, "within", 0.15
                )
            )
    return made


def miss_law(config: Config) -> np.ndarray:
    """Chance of a miss (1 - alpha'/2)^l, (fractions, lengths)."""
    alphas, lengths = np.asarray(config.fractions), np.asarray(config.lengths)
    return np.asarray(miss_probability(alphas[:, None], lengths[None]), np.float64)


def _outside(shares: np.ndarray, law: np.ndarray, total: int) -> int:
    counts = np.rint(np.asarray(shares) * total).astype(int)
    low, high = proportion_interval(
        counts, total, level=LEVEL, method="clopper_pearson"
    )
    return int(np.sum((law < low) | (law > high)))


def _coverage(config: Config, found: PatternResults) -> list[Check]:
    enough = (config.shifted.num_relevant - 1) ** -0.5
    covers = found.covers
    unseen = max(cover.hinge.mean() for cover in covers)
    made = [Check("any cover: hinge on unseen tasks", unseen, 2e-3, "<=")]
    kept = [cover for cover in covers if cover.ratio >= enough]
    if kept:
        worst = max(cover.shifted.mean() for cover in kept)
        made.append(
            Check(f"covers of {enough:.2f} or more: shifted hinge", worst, 1e-3, "<=")
        )
    if len(covers) > 1:
        ratio = covers[-1].spread.mean() / covers[0].spread.mean()
        made.append(Check("spread of logits, most tasks over fewest", ratio, 0.5, "<="))
    return made
