"""Builds the tables, figures and checks of a run."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments.position.config import Config
from experiments.position.drawing import errors_by_place, weights_by_place
from experiments.position.regression import SPECIAL
from experiments.position.shape import Shape
from icltheory.regression.position import limit_profile
from icltheory.statistics import Estimate

Case = tuple[str, str]


def report(
    config: Config,
    found: dict[Case, Shape],
    exact: dict[Case, np.ndarray],
    weights: dict[int, np.ndarray],
) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    limits = {layers: _limit(config, layers, len(w)) for layers, w in weights.items()}
    numbers = {
        special: {
            name: _numbers(shape)
            for (name, kind), shape in found.items()
            if kind == special
        }
        for special in SPECIAL
    }
    return Report(
        numbers
        | {
            "weights": {
                str(layers): {"measured": w.tolist(), "limit": limits[layers].tolist()}
                for layers, w in weights.items()
            },
            "precision": "float32",
        },
        checks=_checks(found, exact, weights, limits),
        tables=[_table(special, found) for special in SPECIAL],
        claims=[_claim(special, found) for special in SPECIAL],
        claims_title="is the influence of an example a U over its place?",
        figures={
            "errors.png": errors_by_place(config, found, exact),
            "weights.png": weights_by_place(config, weights, limits),
        },
        interval_level=config.level,
        axes={
            "relevant.*.error": ["place, from 1"],
            "wrong.*.error": ["place, from 1"],
            "weights.*.*": ["place, from 1"],
        },
    )


def _limit(config: Config, layers: int, places: int) -> np.ndarray:
    s = (jnp.arange(places) + 0.5) / places
    return np.asarray(limit_profile(config.step_size, layers, s))


def _numbers(shape: Shape) -> dict[str, Any]:
    return {
        "error": np.asarray(shape.by_place.mean).tolist(),
        "standard error": np.asarray(shape.by_place.standard_error).tolist(),
        "first minus middle": [*map(float, shape.first)],
        "last minus middle": [*map(float, shape.last)],
        "p_values": list(shape.p_values),
        "shape": shape.word,
    }


def _checks(found, exact, weights, limits) -> list[Check]:
    """Checks simulated errors against exact ones, and weights against their limit."""
    worst = 0.0
    for case, given_inputs in exact.items():
        expected, simulated = Estimate.of(given_inputs), found[case].by_place
        error = np.hypot(expected.standard_error, simulated.standard_error)
        worst = max(worst, np.max(np.abs(expected.mean - simulated.mean) / error))
    count = sum(e.shape[1] for e in exact.values())
    far = max(
        float(np.abs(weights[layers] - limit).max()) / layers
        for layers, limit in limits.items()
    )
    name = f"stacks: largest z of {count} errors against those of the exact weights"
    # The maximum of this many standard normal numbers is below 4.5 with a probability
    # of 99.9 %.
    return [
        Check(name, float(worst), 4.5, "<="),
        Check("weights / L: largest distance to the Laguerre limit", far, 0.05, "<="),
    ]


def _table(special: str, found: dict[Case, Shape]) -> Table:
    what = {
        "relevant": "the only relevant example",
        "wrong": "the only wrong example",
    }[special]
    table = Table(title=f"error by the place of {what}, and its influence (s.e.)")
    for name in ("model", "first", "middle", "last", "first - middle", "last - middle"):
        table.add_column(name, justify="left" if name == "model" else "right")
    table.add_column("Holm's p")
    table.add_column("shape")
    for (name, kind), shape in found.items():
        if kind != special:
            continue
        mean = np.asarray(shape.by_place.mean)
        third = len(mean) // 3
        parts = mean[:third], mean[third:-third], mean[-third:]
        table.add_row(
            name,
            *(f"{part.mean():.4f}" for part in parts),
            *(f"{c.mean:+.4f} ({c.standard_error:.4f})" for c in shape[1:3]),
            ", ".join(map(_p_value, shape.p_values)),
            shape.word,
        )
    return table


def _p_value(p: float) -> str:
    return f"{p:.2g}" if p >= 1e-16 else "<1e-16"


def _claim(special: str, found: dict[Case, Shape]) -> Claim:
    own = {name: shape.word for (name, kind), shape in found.items() if kind == special}
    words = [*own.values()]
    counts = ", ".join(f"{words.count(w)} {w}" for w in dict.fromkeys(words))
    return Claim(
        claim=f"an example in the middle has the least influence ({special})",
        expected="U for every model",
        measured=counts,
        held=all(word == "U" for word in words),
    )
