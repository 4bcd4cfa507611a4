"""Builds the tables, checks and numbers of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Report
from experiments.pattern_icl.checks import checks, miss_law
from experiments.pattern_icl.claims import claims
from experiments.pattern_icl.config import Config
from experiments.pattern_icl.figures import figures
from experiments.pattern_icl.results import PatternResults
from icltheory.statistics import Estimate


def report(config: Config, found: PatternResults) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    numbers = {
        "mechanism": _mechanism(found),
        "sums": {name: _sweep(sweep) for name, sweep in found.sweeps.items()},
        "lengths": _lengths(config, found),
        "coverage": [_cover(cover) for cover in found.covers],
        "speed": _speed(found.speed),
        "gpt2": _gpt(config, found),
        "baselines": [_comparison(config, one) for one in found.comparisons],
        "precision": "float32",
    }
    return Report(
        numbers,
        checks=checks(config, found),
        tables=[_sums_table(found), _methods_table(config, found)],
        claims=claims(config, found),
        claims_title="what the slides' figures say",
        figures=figures(config, found),
        axes={
            "mechanism.*.mean": ["training step"],
            "sums.*.hinge.mean": ["sum S_1"],
            "sums.*.error.mean": ["sum S_1"],
        },
    )


def _list(values: Any) -> list:
    return np.asarray(values, np.float64).round(6).tolist()


def _pair(values: Any, axis: int = 0) -> dict[str, list]:
    mean, error = Estimate.of(np.asarray(values), axis)
    return {"mean": _list(mean), "standard error": _list(np.nan_to_num(error))}


def _mechanism(found: PatternResults) -> dict[str, Any]:
    probes = found.mechanism
    parts = probes.parts
    return {
        "steps": found.figures.steps,
        "attention": _pair(probes.in_domain.attention),
        "attention out of domain": _pair(probes.shifted.attention),
        "hinge": _pair(probes.in_domain.hinge),
        "error": _pair(probes.in_domain.error),
        "W_Q p": _pair(probes.tokens.query),
        "W_Q p along the pattern": _pair(probes.tokens.query_component),
        "W_K p": _pair(probes.tokens.keys),
        "W_K p along the pattern": _pair(probes.tokens.keys_component),
        "angles / pi": {k: _pair(v) for k, v in found.large_angles().items()},
        "feature norm": _pair(parts.mean(parts.feature_norm, parts.large)),
        "label norm": _pair(parts.mean(parts.label_norm, parts.large)),
        "small neurons": _list(parts.num_small[:, -1]),
    }


def _sweep(sweep) -> dict[str, Any]:
    return {
        "S_1": sweep.sums.tolist(),
        "ratio c": _list(sweep.ratio),
        "hinge": _pair(np.asarray(sweep.found.hinge).mean(axis=2)),
        "closed form": _list(sweep.hinge.mean(axis=0)),
        "error": _pair(np.asarray(sweep.found.error).mean(axis=2)),
        "margin": _pair(np.asarray(sweep.found.margin).mean(axis=2)),
        "F": _list(sweep.margins.mean(axis=0)),
        "attention": _pair(np.asarray(sweep.found.attention).mean(axis=2)),
    }


def _lengths(config: Config, found: PatternResults) -> dict[str, Any]:
    domains = {"in domain": found.inside, "out of domain": found.outside}
    rows = {
        name: {
            "error": _list(np.asarray(shares.error).mean(axis=0)),
            "missed": _list(np.asarray(shares.missed).mean(axis=0)),
        }
        for name, shares in domains.items()
    }
    return {
        "fractions": config.fractions,
        "lengths": config.lengths,
        "prompts": config.prompts * len(config.figures.seeds),
        "miss law": _list(miss_law(config)),
        **rows,
    }


def _cover(cover) -> dict[str, Any]:
    return {
        "tasks": cover.num_tasks,
        "ratio": cover.ratio,
        "hinge": _pair(cover.hinge),
        "shifted hinge": _pair(cover.shifted.mean(axis=1)),
        "shifted hinge, worst draw": float(cover.shifted.max()),
        "attention": float(cover.attention.mean()),
        "logits": {
            "diagonal": float(cover.diagonal.mean()),
            "off": float(cover.off.mean()),
            "spread": _pair(cover.spread),
        },
    }


def _speed(speed) -> dict[str, Any]:
    reached = np.where(np.isfinite(speed.iterations), speed.iterations, -1)
    return {
        "alpha": speed.alphas.tolist(),
        "iterations (-1: not reached)": _list(reached),
        "slope": speed.slope if np.isfinite(speed.slope) else None,
        "slope error": speed.slope_error if np.isfinite(speed.slope_error) else None,
    }


def _gpt(config: Config, found: PatternResults) -> dict[str, Any]:
    errors = found.gpt_errors
    by_seed = {
        "by S_1": errors.sums,
        "by alpha', unseen tasks": errors.inside,
        "by alpha', out of domain": errors.outside,
    }
    return {
        "S_1": config.gpt_sums,
        "alpha'": config.fractions,
        "loss": found.gpt.loss,
        **{name: _pair(table.mean(axis=1), 1) for name, table in by_seed.items()},
        "by S_1 and seed, longest": _list(errors.sums[..., -1].mean(axis=1)),
    }


def _comparison(config: Config, one) -> dict[str, Any]:
    return {
        "alpha'": one.fraction,
        "n": config.baseline_lengths,
        "error": {name: _pair(wrong, 1) for name, wrong in one.wrong.items()},
        "prompts": {name: wrong.shape[1] for name, wrong in one.wrong.items()},
        "missed": _list(one.missed.mean(axis=1)),
    }


def _sums_table(found: PatternResults) -> Table:
    table = Table(title="one layer, out of domain: hinge, its closed form, 0-1 error")
    table.add_column("S_1", justify="right")
    for name in found.sweeps:
        for column in ("hinge", "closed", "0-1"):
            table.add_column(f"{name}: {column}", justify="right")
    first = next(iter(found.sweeps.values()))
    for i, value in enumerate(first.sums):
        cells = []
        for sweep in found.sweeps.values():
            hinge, error = (
                np.asarray(part).mean(axis=(0, 2))[i]
                for part in (sweep.found.hinge, sweep.found.error)
            )
            cells += [hinge, sweep.hinge.mean(axis=0)[i], error]
        table.add_row(f"{value:g}", *(f"{cell:.4f}" for cell in cells))
    return table


def _methods_table(config: Config, found: PatternResults) -> Table:
    table = Table(title="0-1 error on unseen tasks (standard error)")
    table.add_column("alpha'")
    table.add_column("method", no_wrap=True)
    for n in config.baseline_lengths:
        table.add_column(f"n = {n}", justify="right")
    for one in found.comparisons:
        for name, wrong in one.wrong.items():
            mean, error = Estimate.of(np.asarray(wrong), 1)
            cells = [f"{m:.4f} ({e:.4f})" for m, e in zip(mean, error, strict=True)]
            table.add_row(f"{one.fraction:g}", name, *cells)
    return table
