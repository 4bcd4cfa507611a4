"""Claims of the slides' figures, and whether they hold here."""

import numpy as np

from experiments._frame.report import Claim
from experiments.pattern_icl.baselines import (
    CLASSIFIERS,
    LOGISTIC,
    NEAREST_3,
    ONE_LAYER,
    ORIGIN,
    MethodComparison,
)
from experiments.pattern_icl.config import Config
from experiments.pattern_icl.results import PatternResults


def claims(config: Config, found: PatternResults) -> list[Claim]:
    """Claims of Figures 8, 12, 13, 27 and 28, and the 0-1 error of Theorem 2."""
    stated = [
        _component(found),
        *(_zero_one(name, sweep) for name, sweep in found.sweeps.items()),
        *_gpt(config, found),
    ]
    for comparison in found.comparisons:
        stated += _methods(comparison)
    return stated


def _component(found: PatternResults) -> Claim:
    tokens = found.mechanism.tokens
    ends = [
        np.asarray(part)[:, -1].mean()
        for part in (tokens.query, tokens.query_component)
    ]
    return Claim(
        claim="Figure 8: W_Q p grows from .40 to 1.75, 1.47 of it along the pattern",
        measured=f"to {ends[0]:.2f}, {ends[1]:.2f} along it (step size unknown)",
        held=ends[1] > 0.8 * ends[0],
    )


def _zero_one(name: str, sweep) -> Claim:
    error = np.asarray(sweep.found.error).mean(axis=(0, 2))
    below = sweep.sums[(sweep.sums < 1) & (error > 0.01)]
    first = f"first at S_1 = {below.max():g}" if below.size else "at none"
    return Claim(
        claim=f"{name}: the one-layer 0-1 error fails once S_1 < 1",
        measured=f"above .01 {first}; c = {sweep.ratio.mean():.2f}",
        held=below.size and below.max() >= 0.5,
    )


def _gpt(config: Config, found: PatternResults) -> list[Claim]:
    errors, last = found.gpt_errors, config.figures.num_examples
    order = np.argsort(config.gpt_sums)
    by_sum = errors.sums[order, ..., last].mean(axis=1)  # (sums, seeds)
    low, high = by_sum[0], by_sum[-1]
    sums = np.asarray(config.gpt_sums)[order]
    lengths = errors.sums.mean(axis=(0, 1, 2))
    stated = [
        Claim(
            claim=f"Figure 12: GPT-2 errs more at S_1 = {sums[0]:g} than at "
            f"{sums[-1]:g}",
            measured=f"{low.mean():.4f} and {high.mean():.4f}; by seed "
            + ", ".join(f"{a:.3f}/{b:.3f}" for a, b in zip(low, high, strict=True)),
            held=low.mean() > high.mean(),
        ),
        Claim(
            claim="Figure 12: its error never rises with S_1 (mean over seeds)",
            measured=", ".join(f"{v:.4f}" for v in by_sum.mean(axis=1)),
            held=np.all(np.diff(by_sum.mean(axis=1)) <= 0),
        ),
        Claim(
            claim="Figure 12: its error falls with the prompt",
            measured=f"{lengths[0]:.2f} at 0 and {lengths[-1]:.4f} at {last} contexts",
            held=lengths[-1] < 0.1 * lengths[0],
        ),
    ]
    for name, table in (("in", errors.inside), ("out of", errors.outside)):
        by_alpha = table[np.argsort(config.fractions)].mean(axis=(1, 2))
        half = last // 2
        stated.append(
            Claim(
                claim=f"Figure 13: GPT-2 errs less for larger alpha', {name} domain",
                measured=f"at {half} contexts "
                + ", ".join(f"{v:.4f}" for v in by_alpha[:, half]),
                held=np.all(np.diff(by_alpha[:, half]) < 0),
            )
        )
    return stated


def _methods(comparison: MethodComparison) -> list[Claim]:
    at = f"Figures 27/28, alpha' = {comparison.fraction:g}"
    means = {name: comparison.error(name).mean() for name in CLASSIFIERS}
    best = min(means, key=lambda name: means[name])
    ours = comparison.error(ONE_LAYER).mean()
    worst = max(means, key=lambda name: means[name])
    return [
        Claim(
            claim=f"{at}: the one-layer model errs least of all",
            measured=f"{ours:.4f}; {best} {means[best]:.4f} (means over n)",
            held=ours < means[best],
        ),
        *(_against(at, comparison, name) for name in (LOGISTIC, ORIGIN)),
        Claim(
            claim=f"{at}: 3-NN errs most",
            measured=f"{worst} {means[worst]:.4f}",
            held=worst == NEAREST_3 and means[worst] > ours,
        ),
    ]


def _against(at: str, comparison: MethodComparison, name: str) -> Claim:
    apart, error = comparison.difference(ONE_LAYER, name)
    return Claim(
        claim=f"{at}: it errs less than {name}",
        measured=f"difference {apart:+.4f} +- {error:.4f} (paired, mean over n)",
        held=apart < -2 * error,
    )
