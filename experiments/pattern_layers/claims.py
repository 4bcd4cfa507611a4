"""Claims of the figures about three layers, and what was measured here."""

import numpy as np

from experiments._frame.report import Claim
from experiments.pattern_layers.config import Config
from experiments.pattern_layers.measure import DepthMeasurements
from experiments.pattern_layers.summary import (
    estimate,
    growth,
    low_minus_high,
    turned,
)


def claims(config: Config, measured: dict[str, DepthMeasurements]) -> list[Claim]:
    """Returns the claims of a run; they do not affect its status."""
    many, ring = measured
    stated = []
    for name, found in measured.items():
        stated.append(_attention(name, found))
        stated.append(_labels(name, found))
        stated += [_sums(config, name, found, what) for what in ("error", "hinge")]
    stated.append(_coverage(config, measured[many], measured[ring], many, ring))
    return stated


def _attention(name: str, found: DepthMeasurements) -> Claim:
    start, end = found.attention[:, 0], found.attention[:, -1]
    shown = ", ".join(
        f"{a:.3f} -> {b:.3f}" for a, b in zip(start.mean(0), end.mean(0), strict=True)
    )
    return Claim(
        claim=f"{name}: attention concentrates in every layer (Figures 21-23)",
        expected="rises to .75 or more in all layers and seeds "
        "(figures .52 .43 .43 -> .85 .77 .88; sheet .84 .997 .998)",
        measured=shown,
        held=(end >= 0.75).all(),
    )


def _labels(name: str, found: DepthMeasurements) -> Claim:
    grown, angle = growth(found), turned(found)
    most = np.argmax(angle, axis=1)
    second = np.sort(angle, axis=1)[:, -2]
    shown = ", ".join(
        f"x{g:.2f}, by {a:.3f} pi"
        for g, a in zip(grown.mean(0), angle.mean(0), strict=True)
    )
    return Claim(
        claim=f"{name}: label parts grow in every layer, and turn to q in one only "
        "(Figures 24-26)",
        expected="all norms grow; the largest turn is that of one layer in every seed, "
        "twice "
        "the next",
        measured=shown,
        held=(grown > 1).all()
        and len(set(most)) == 1
        and (angle.max(axis=1) > 2 * second).all(),
    )


def _sums(config: Config, name: str, found: DepthMeasurements, what: str) -> Claim:
    difference = low_minus_high(config, found, what)
    title = {"error": "0-1 error", "hinge": "hinge error"}[what]
    seeds = ", ".join(f"{x:.4f}" for x in difference.by_seed)
    return Claim(
        claim=f"{name}: {title} is larger at S_1 = {config.low:g} than at "
        f"{config.high:g} "
        "(Figure 12)",
        expected="paired difference above two standard errors over draws, and of one "
        "sign",
        measured=f"difference {difference}; by seed {seeds}",
        held=difference.mean > 2 * difference.error and (difference.by_seed > 0).all(),
    )


def _coverage(config, many, ring, name, other) -> Claim:
    place = config.sums.index(config.high)
    a, b = (estimate(found.outside.error[:, place]) for found in (many, ring))
    error = np.hypot(a.error, b.error)
    return Claim(
        claim=f"{other} generalise worse than {name} out of domain (Theorem 1)",
        expected=f"0-1 error at S_1 = {config.high:g}, by two standard errors over "
        "draws",
        measured=f"{b} against {a}",
        held=b.mean - a.mean > 2 * error,
    )
