"""Builds the tables, figures and numbers of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Report
from experiments.mechanisms.config import Config
from experiments.mechanisms.figures import figures
from experiments.mechanisms.found import MechanismFindings
from experiments.mechanisms.verdicts import checks, claims


def report(config: Config, found: MechanismFindings) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    return Report(
        {
            "numbers": numbers(config, found),
            "precision": "float64; float32 for the models that were trained",
        },
        checks=checks(config, found),
        tables=[
            _features_table(config, found),
            *(_kernel_table(config, found, data) for data in found.errors),
            _heads_table(found),
        ],
        claims=claims(config, found),
        claims_title="what the models that were trained do",
        figures=figures(config, found),
        axes={
            "numbers.errors.*.*": ["depth"],
            "numbers.imbalanced.*": ["feature"],
            "numbers.language.copying": ["layer", "head"],
            "numbers.regression.prefix": ["layer", "head"],
        },
    )


def numbers(config: Config, found: MechanismFindings) -> dict[str, Any]:
    """Returns the numbers behind the figures, except the paths."""
    phases = found.imbalanced.phases
    lm, reg = found.language, found.regression
    return {
        "balanced": {
            str(K): {
                name: getattr(one, name)
                for name in ("half", "learned", "time_error", "loss_error", "asymptote")
            }
            for K, one in found.balanced.items()
        },
        "finite, last loss": {
            str(N): float(y[-1]) for N, (_, y) in found.finite.items()
        },
        "imbalanced": {
            name: [_number(x) for x in np.asarray(getattr(phases, name))]
            for name in ("overtaken", "half", "learned", "shed")
        },
        "depths": list(config.kernels.depths),
        "errors": {
            data: {k: [_number(x) for x in d.mean] for k, d in by_kernel.items()}
            | {"kriging": float(best.mean[0])}
            for data, (by_kernel, best) in found.errors.items()
        },
        "not positive semi-definite": {
            data: {k: d.bad for k, d in by_kernel.items()}
            for data, (by_kernel, _) in found.errors.items()
        },
        "circuit, in-context score": found.circuit.in_context,
        "language": {
            "prefix, repeated words": lm.repeated.prefix_matching.tolist(),
            "prefix, colons": lm.colons.prefix_matching.tolist(),
            "share of the right label": lm.right.tolist(),
            "copying": lm.copying.tolist(),
            "label losses": lm.labels.tolist(),
            "label losses, standard error": lm.labels_error.tolist(),
            "in-context score, repeated words": lm.in_context,
        },
        "regression": {
            "prefix": reg.trained.prefix_matching.tolist(),
            "prefix, untrained": reg.untrained.prefix_matching.tolist(),
        },
    }


def _number(value: Any) -> float | None:
    """Converts a number for JSON; ``None`` if it is not finite."""
    return float(value) if np.isfinite(value) else None


def _features_table(config: Config, found: MechanismFindings) -> Table:
    level = config.features.loss_level
    table = Table(title=f"equally likely features, step {config.features.step_size:g}")
    for name in (
        "K",
        "Attn = 1/2: descent",
        "Attn = 1/2: flow",
        f"L < {level:g}: descent",
        f"L < {level:g}: flow",
        "t(u) off by",
        "L(t) off by",
        "L t / limit",
    ):
        table.add_column(name, justify="right")
    for K, one in found.balanced.items():
        cells = (*one.half, *one.learned)
        table.add_row(
            str(K),
            *(f"{x:.1f}" for x in cells),
            f"{one.time_error:.2%}",
            f"{one.loss_error:.2%}",
            f"{one.asymptote:.3f}",
        )
    return table


def _kernel_table(config: Config, found: MechanismFindings, data: str) -> Table:
    by_kernel, best = found.errors[data]
    table = Table(
        title=f"{data} data: error by depth over that of 0, kriging {best.mean[0]:.4f}"
    )
    table.add_column("attention")
    for depth in config.kernels.depths:
        table.add_column(str(depth), justify="right")
    table.add_column("not PSD", justify="right")
    for kernel, one in by_kernel.items():
        cells = (f"{x:.3f}" if abs(x) < 1e3 else f"{x:.0e}" for x in one.mean)
        table.add_row(kernel, *cells, f"{one.bad:.0%}")
    return table


def _heads_table(found: MechanismFindings) -> Table:
    lm, reg = found.language, found.regression
    table = Table(title="heads: the largest scores, and those of uniform attention")
    for name in ("model", "prefix", "uniform", "previous token", "copying"):
        table.add_column(name, justify="right" if name != "model" else "left")
    one = found.circuit
    table.add_row(
        "circuit, layer 2",
        f"{one.prefix[1]:.3f}",
        f"{one.uniform:.3f}",
        f"{one.previous[1]:.3f}",
        f"{one.copying[0]:.3f}",
    )
    for name, scores, copying in (
        ("small LM, repeated words", lm.repeated, f"{lm.copying.max():.3f}"),
        ("small LM, colons", lm.colons, f"{lm.copying.max():.3f}"),
        ("GPT-2 on regression", reg.trained, "no tokens"),
        ("the same, untrained", reg.untrained, "no tokens"),
    ):
        table.add_row(
            name,
            f"{scores.prefix_matching.max():.3f}",
            f"{float(scores.uniform):.3f}",
            f"{scores.previous_token.max():.3f}",
            copying,
        )
    return table
