"""Builds the table, figures, claims and checks of a run."""

import math
from typing import Any

import numpy as np
import scipy.stats
from rich.table import Table

from experiments._frame.looks import checkpoint_name, matrix_look
from experiments._frame.report import Check, Claim, Report
from experiments.condition_numbers.config import Config
from experiments.condition_numbers.drawing import (
    ConditionCurve,
    condition_numbers_along_depth,
    spectra_beside_chance,
)
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.spectra import ConditionNumber
from icltheory.layered import get_matrix
from icltheory.pruning import choose_layers, module_matrices
from icltheory.statistics import adjust_holm

Rows = tuple[ConditionNumber, ...]
MODULES = ("attn", "mlp")
AGGREGATES = ("max", "mean", "geometric_mean", "min")


def report(config: Config, model: LanguageModel, rows: Rows) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    chosen = choices(config, rows)
    return Report(
        {"choices": chosen, "rows": [as_json(row) for row in rows]},
        checks=checks(model, rows),
        tables=[conditions_table(rows), choices_table(config, chosen)],
        claims=claims(rows),
        claims_title="what the paper says of its models, here",
        figures={
            "condition_numbers.png": figure(config, rows),
            "spectra.png": spectra(config, rows),
        },
    )


def as_json(row: ConditionNumber) -> dict[str, Any]:
    """Converts a row for JSON, without singular values; infinity becomes ``None``."""
    fields = row._asdict()
    del fields["singular_values"]
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in fields.items()
    }


def by_matrix(rows: Rows) -> dict[str, list[ConditionNumber]]:
    """Groups the rows by matrix, in the order of the layers."""
    return {
        name: sorted((r for r in rows if r.matrix == name), key=lambda r: r.layer)
        for name in dict.fromkeys(row.matrix for row in rows)
    }


def checks(model: LanguageModel, rows: Rows) -> list[Check]:
    """Checks the decompositions: singular values must have the norm of the matrix."""
    wrong = []
    for row in rows:
        (spec,) = module_matrices(model, row.layer, row.matrix)
        norm = np.linalg.norm(np.asarray(get_matrix(model.params, spec), np.float64))
        wrong.append(abs(np.linalg.norm(row.singular_values) - norm) / (norm or 1.0))
    name = "norm of the singular values against that of the matrix, largest error"
    return [Check(name, float(max(wrong)), 0.0, "<=", 1e-10)]


def claims(rows: Rows) -> list[Claim]:
    """Compares the statements of section 3.4 with this model."""
    said = []
    groups = {m: [r for r in rows if r.module == m] for m in MODULES}
    if all(groups.values()):
        for field, claim in (
            ("condition_number", "condition numbers of the MLP lie below attention's"),
            ("null_ratio", "so they do relative to random matrices of their shapes"),
        ):
            attn, mlp = (
                float(np.median([getattr(r, field) for r in groups[m]]))
                for m in ("attn", "mlp")
            )
            measured = f"medians {mlp:.3g} (MLP) and {attn:.3g} (attention)"
            said.append(Claim(claim=claim, measured=measured, held=mlp < attn))
    said += growth(rows)
    hidden = sum(not row.resolved for row in rows)
    said.append(
        Claim(
            claim="rounded weights still show their smallest singular values",
            measured=f"hidden in {hidden} of {len(rows)} matrices "
            f"({', '.join(sorted({row.dtype for row in rows}))})",
            held=hidden == 0,
        )
    )
    return said


def growth(rows: Rows) -> list[Claim]:
    """Kendall's tau between condition number and depth, for each matrix."""
    depths = {n: r for n, r in by_matrix(rows).items() if len(r) > 1}
    if not depths:
        return []
    taus, p_values = [], []
    for matrix in depths.values():
        values = [row.condition_number for row in matrix]
        test = scipy.stats.kendalltau(range(len(values)), values, alternative="greater")
        taus.append(0.0 if math.isnan(test.statistic) else float(test.statistic))
        p_values.append(1.0 if math.isnan(test.pvalue) else float(test.pvalue))
    adjusted = np.asarray(adjust_holm(p_values))
    grow = int(np.sum(adjusted < 0.05))
    pairs = ", ".join(f"{n} {t:+.2f}" for n, t in zip(depths, taus, strict=True))
    return [
        Claim(
            claim="condition numbers grow with depth",
            measured=f"in {grow} of {len(taus)} matrices (p < 0.05 after Holm); "
            f"Kendall's tau {pairs}",
            held=grow == len(taus),
        )
    ]


def choices(config: Config, rows: Rows) -> list[dict[str, Any]]:
    """Chooses the deepest of the top-k layers by module, score and aggregate."""
    found = []
    for module in dict.fromkeys(row.module for row in rows):
        layers = sorted({row.layer for row in rows})
        for score in ("condition_number", "null_ratio"):
            scores = [
                [getattr(r, score) for r in rows if (r.layer, r.module) == (n, module)]
                for n in layers
            ]
            k = min(config.top_k, len(layers))
            deepest = {
                name: layers[choose_layers(scores, k, aggregate=name).deepest]
                for name in AGGREGATES
            }
            found.append({"module": module, "score": score, **deepest})
    return found


def conditions_table(rows: Rows) -> Table:
    """Builds the table of condition numbers and their ratios to random matrices."""
    table = Table(title="condition number (over that of a random matrix); * rounding")
    table.add_column("layer", justify="right")
    matrices = by_matrix(rows)
    for name, (first, *_) in matrices.items():
        title = f"{name}\n{first.shape[0]} x {first.shape[1]}"
        table.add_column(title, justify="right", no_wrap=True)
    for layer in dict.fromkeys(row.layer for row in rows):
        cells = [r for m in matrices.values() for r in m if r.layer == layer]
        shown = (
            f"{c.condition_number:.3g} ({c.null_ratio:.2g}){'' if c.resolved else '*'}"
            for c in cells
        )
        table.add_row(str(layer), *shown)
    nulls = (f"{first.null:.3g}" for first, *_ in matrices.values())
    table.add_row("random", *nulls, style="dim")
    return table


def choices_table(config: Config, chosen: list[dict[str, Any]]) -> Table:
    """Builds the table of the layers that Algorithm 1 would choose."""
    table = Table(title=f"deepest of the {config.top_k} layers that score highest")
    for name in ("module", "score", *AGGREGATES):
        table.add_column(name.replace("_", " "), justify="right")
    for row in chosen:
        table.add_row(*(str(row[n]).replace("_", " ") for n in row))
    return table


def figure(config: Config, rows: Rows) -> Any:
    """Draws Figure 3 for this model."""
    curves = {}
    for name, matrix in by_matrix(rows).items():
        m, n = matrix[0].shape
        curves[name] = ConditionCurve(
            layers=[row.layer for row in matrix],
            values=[row.condition_number for row in matrix],
            null=matrix[0].null,
            null_label=f"{max(m, n)} x {min(m, n)}",
            ceiling=[row.ceiling for row in matrix],
            resolved=[row.resolved for row in matrix],
            spread=spread_of_squares() if m == n else None,
        )
    dtypes = ", ".join(sorted({row.dtype for row in rows}))
    return condition_numbers_along_depth(
        {"": curves},
        f"Condition numbers of {checkpoint_name(config.checkpoint)} ({dtypes}), and "
        "their ratios to random matrices",
    )


def spectra(config: Config, rows: Rows) -> Any:
    """Draws singular values in the first and last layer, for one matrix per module."""
    shown = {}
    for matrix in {row.module: row.matrix for row in reversed(rows)}.values():
        layers = by_matrix(rows)[matrix]
        for row in (layers[0], layers[-1]):
            m, n = row.shape
            title = f"layer {row.layer}, {matrix_look(matrix)[0]} ({m} x {n})"
            shown[title] = row.singular_values, row.shape
    return spectra_beside_chance(
        shown,
        f"Singular values of {checkpoint_name(config.checkpoint)}; dashed: random "
        "matrices with the same mean square",
    )


def spread_of_squares() -> tuple[float, float]:
    """Quantiles of large square Gaussian matrices' condition numbers over the median.

    They are the 5 % and 95 % quantiles, by Edelman (1988):
    P(kappa / n < x) = exp(-2 / x - 2 / x^2).
    """

    def quantile(p):
        return 2 / (math.sqrt(1 - 2 * math.log(p)) - 1)

    return quantile(0.05) / quantile(0.5), quantile(0.95) / quantile(0.5)
