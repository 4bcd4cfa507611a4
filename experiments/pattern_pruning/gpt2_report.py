"""Results of pruning GPT-2, compared with Figures 14 and 15."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim
from experiments._patterns.gpt2 import TrainedGpt
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.gpt2 import GptCurves
from experiments.pattern_pruning.neurons import ORDERS, TITLES
from experiments.pattern_pruning.prompts import OUTSIDE
from experiments.pattern_pruning.summary import interval

# Figure 14: 0-1 error out of domain against R, read off the slide.
PUBLISHED_RATES = (0.0, 0.1, 0.2, 0.3, 0.4)
PUBLISHED = {
    "magnitude": (0.007, 0.0057, 0.0085, 0.0175, 0.030),
    "random": (0.007, 0.0108, 0.0175, 0.029, 0.044),
}
FEW, MANY = 0.1, 0.4


def nearest(rates: Any, rate: float) -> int:
    """Index of the rate closest to a value."""
    return int(np.abs(np.asarray(rates) - rate).argmin())


def gpt_check(trained: TrainedGpt) -> Check:
    """Checks that GPT-2 learned the tasks."""
    return Check("GPT-2: hinge loss at the end of training", trained.loss, 0.05, "<=")


def gpt_claims(config: Config, found: GptCurves) -> list[Claim]:
    """Claims of Figures 14 and 15 for GPT-2, with paired differences over seeds."""
    few, many = (nearest(config.gpt_rates, rate) for rate in (FEW, MANY))
    error = found.error["magnitude"]
    rise = interval(error[:, many] - error[:, 0])
    drop = interval(error[:, 0] - error[:, few])
    gain = interval(found.error["random"][:, many] - error[:, many])
    first, hinge = (
        _first_rise(config, curve) for curve in (error, found.hinge["magnitude"])
    )
    return [
        Claim(
            claim="GPT-2: the 0-1 error rises with the pruned fraction (Figure 14)",
            expected="from .007 to .030 at R = .4; the lower end of the rise above 0",
            measured=f"from {error[:, 0].mean():.4f}, at R = "
            f"{config.gpt_rates[many]:g} by "
            f"{rise}; first R with a rise beyond its interval: {first} "
            f"(hinge: {hinge})",
            held=rise.low > 0,
        ),
        Claim(
            claim="GPT-2: small neurons cost less than random ones (Figure 14)",
            expected=".030 against .044 at R = .4; the lower end of the difference "
            "above 0",
            measured=f"random minus small first at R = {config.gpt_rates[many]:g}: "
            f"{gain}",
            held=gain.low > 0,
        ),
        Claim(
            claim="GPT-2: the first pruning lowers the error (Figure 14)",
            expected="from .007 to .0057 at R = .1; the lower end of the drop above 0",
            measured=f"at R = {config.gpt_rates[few]:g} lower by {drop}",
            held=drop.low > 0,
        ),
        *_alphas(config, found, many),
        _split(found),
    ]


def _first_rise(config: Config, curve: np.ndarray) -> str:
    """Smallest R whose rise in error has an interval above zero, as text."""
    low = interval(curve - curve[:, :1]).low
    beyond = [R for R, rise in zip(config.gpt_rates, low, strict=True) if rise > 0]
    return f"{beyond[0]:g}" if beyond else "none"


def _alphas(config: Config, found: GptCurves, many: int) -> list[Claim]:
    """Claims of Figure 15 about alpha' for GPT-2."""
    if len(config.alphas) < 2:
        return []
    order = np.argsort(config.alphas)
    error = found.test_error[..., 1:][..., order]
    level = interval(error[:, many, 0] - error[:, many, -1])
    rises = error[:, many] - error[:, 0]
    cost = interval(rises[:, 0] - rises[:, -1])
    shown = ", ".join(
        f"{config.alphas[i]:g}: {before:.4f} to {after:.4f}"
        for i, before, after in zip(
            order, error[:, 0].mean(0), error[:, many].mean(0), strict=True
        )
    )
    return [
        Claim(
            claim="GPT-2: larger alpha' errs less with neurons pruned (Figure 15)",
            expected=".030, .0105 and .0072 at R = .4; lower end of the difference "
            "above 0",
            measured=f"alpha' {shown}; smallest minus largest {level}",
            held=level.low > 0,
        ),
        Claim(
            claim="GPT-2: pruning costs more where alpha' is small (Figure 15)",
            expected="lower end of the difference of the rises above 0",
            measured=f"rise at the smallest alpha' minus rise at the largest {cost}",
            held=cost.low > 0,
        ),
    ]


def gap_ratio(sizes: np.ndarray) -> np.ndarray:
    """Largest ratio of neighbouring sorted norms along the last axis."""
    return (sizes[..., 1:] / sizes[..., :-1]).max(-1)


def _split(found: GptCurves) -> Claim:
    ratios = gap_ratio(found.sizes)
    sizes = found.sizes
    return Claim(
        claim="GPT-2: a gap parts small neurons from large ones (Figure 14)",
        expected="neighbours .175 and .38 in the slides; a ratio above 1.5 in every "
        "block",
        measured=f"norms {sizes.min():.2f} to {sizes.max():.2f}; largest ratio of "
        "neighbours "
        f"{ratios.min():.2f} to {ratios.max():.2f}",
        held=ratios.min() > 1.5,
    )


def gpt_table(config: Config, found: GptCurves) -> Table:
    """Builds the table of 0-1 and hinge errors by order and rate."""
    table = Table(
        title=f"GPT-2, {config.tests[OUTSIDE]}: 0-1 error (mean and 95 % interval over "
        "the seeds), and hinge error"
    )
    table.add_column("R", justify="right")
    for order in ORDERS:
        table.add_column(TITLES[order], justify="right")
        table.add_column(f"{TITLES[order]}: hinge", justify="right")
    for place, rate in enumerate(config.gpt_rates):
        cells = []
        for order in ORDERS:
            cells.append(str(interval(found.error[order][:, place])))
            cells.append(f"{found.hinge[order][:, place].mean():.4f}")
        table.add_row(f"{rate:.3g}", *cells)
    return table


def gpt_result(config: Config, trained: TrainedGpt, found: GptCurves) -> dict[str, Any]:
    """Returns GPT-2's part of ``result.json``."""
    return {
        "loss": trained.loss,
        "rates": list(config.gpt_rates),
        "tests": list(config.tests),
        "sizes [seed][block]": found.sizes.tolist(),
        "error [seed][rate]": {o: e.tolist() for o, e in found.error.items()},
        "hinge [seed][rate]": {o: h.tolist() for o, h in found.hinge.items()},
        "small first, error [seed][rate][test]": found.test_error.tolist(),
        "small first, hinge [seed][rate][test]": found.test_hinge.tolist(),
        "published rates": list(PUBLISHED_RATES),
        "published error": {o: list(e) for o, e in PUBLISHED.items()},
    }
