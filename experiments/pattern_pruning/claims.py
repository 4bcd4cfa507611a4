"""Claims of the papers about pruning, and what was measured here."""

import numpy as np

from experiments._frame.report import Claim
from experiments.pattern_pruning.bridge import (
    AXES,
    ENTRIES,
    MODULES,
    NEURONS,
    SVD,
    Bridge,
)
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.gpt2 import GptCurves
from experiments.pattern_pruning.gpt2_report import gpt_claims, nearest
from experiments.pattern_pruning.neurons import NeuronCurves
from experiments.pattern_pruning.prompts import OUTSIDE
from experiments.pattern_pruning.summary import interval, least_kept


def claims(
    config: Config, found: NeuronCurves, gpt: GptCurves, bridge: Bridge
) -> list[Claim]:
    """Returns the claims of both papers; they do not affect the run's status."""
    stated = [_zero_one(config, found), *_alphas(config, found)]
    stated += [*gpt_claims(config, gpt), _gain(config, bridge)]
    stated += [_fewer(config, bridge, module, SVD, ENTRIES) for module in MODULES]
    stated.append(_fewer(config, bridge, "W_O", SVD, NEURONS))
    stated += [_fewer(config, bridge, module, SVD, AXES) for module in MODULES]
    return stated


def _zero_one(config: Config, found: NeuronCurves) -> Claim:
    """Claim of Figure 14, shown there for GPT-2, on one layer."""
    curve = found.curves["magnitude"]
    place = nearest(config.rates, 0.4)
    rise = interval(curve.error[:, place, OUTSIDE] - curve.error[:, 0, OUTSIDE])
    hinge = interval(curve.hinge[:, place, OUTSIDE] - curve.hinge[:, 0, OUTSIDE])
    return Claim(
        claim="one layer: the 0-1 error rises with the pruned fraction (Figure 14)",
        expected="GPT-2 from .007 to .030 at R = .4; the lower end of the rise above 0",
        measured=f"R = {config.rates[place]:g}: 0-1 error rises by {rise}, hinge by "
        f"{hinge}",
        held=rise.low > 0,
    )


def _alphas(config: Config, found: NeuronCurves) -> list[Claim]:
    """Claims of Figure 15 about alpha', in the hinge error."""
    if len(config.alphas) < 2:
        return []
    place = nearest(config.rates, 0.4)
    order = np.argsort(config.alphas)
    hinge = found.curves["magnitude"].hinge[:, place, 1:][:, order]
    drop = interval(hinge[:, 0] - hinge[:, -1])
    shown = ", ".join(
        f"{config.alphas[i]:g}: {x:.4f}"
        for i, x in zip(order, hinge.mean(0), strict=True)
    )
    return [
        Claim(
            claim="one layer: pruning costs more where alpha' is small (Figure 15), "
            "hinge",
            expected="lower end of the paired difference above 0",
            measured=f"alpha' {shown}; largest minus smallest {drop}",
            held=drop.low > 0,
        )
    ]


def _gain(config: Config, bridge: Bridge) -> Claim:
    """Claim of Yao et al. that pruning can improve in-context learning."""
    gains = {
        (curve.module, rank): interval(
            bridge.hinge[:, OUTSIDE] - curve.hinge[:, place, OUTSIDE]
        )
        for curve in bridge.curves
        if curve.method == SVD
        for place, rank in enumerate(config.ranks)
    }
    (module, rank), best = max(gains.items(), key=lambda item: item[1].low)
    return Claim(
        claim="some clip lowers the error out of domain (Yao et al.)",
        expected=f"lower end of the best of {len(gains)} above 0",
        measured=f"unpruned hinge {bridge.hinge[:, OUTSIDE].mean():.1e}; best {module} "
        "to rank "
        f"{rank}, lower by {best.mean:.1e} [{best.low:.1e}, {best.high:.1e}]",
        held=best.low > 1e-6,  # float32 rounding
    )


def _fewer(config: Config, bridge: Bridge, module: str, one: str, other: str) -> Claim:
    """Claim that one of two methods needs fewer parameters in every seed."""
    a, b = (
        least_kept(config, bridge, bridge.of(module, method), OUTSIDE)
        for method in (one, other)
    )
    total = bridge.of(module, one).total
    return Claim(
        claim=f"{module}: {one} need fewer parameters than {other}",
        expected=f"hinge out of domain within {config.tolerance:g} of the unpruned, "
        "every seed",
        measured=f"{_shown(a)} against {_shown(b)} of {total}",
        held=(a < b).all(),
    )


def _shown(counts: np.ndarray) -> str:
    low, high = counts.min(), counts.max()
    return f"{low}" if low == high else f"{low} to {high}"
