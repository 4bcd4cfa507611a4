"""Builds the tables, figures and checks of a run."""

import dataclasses
from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments.ltb_gpt2 import course, removal_report
from experiments.ltb_gpt2.config import PAPER_TABLE, Config, ModelSetting
from experiments.ltb_gpt2.drawing import Table1Setting, models_between_lines
from experiments.ltb_gpt2.measure import References, Score, rule_scores
from experiments.ltb_gpt2.possible import LOWEST, SETTINGS, noise_limit
from experiments.ltb_gpt2.removal import Removals

Scores, Columns = dict[ModelSetting, Score], dict[float, References]
_LINES = {
    "attention": "best linear attention layer",
    "prior_mean": r"the answer $\langle\beta^*, x\rangle$",
    "block": "best linear block (attention + MLP)",
    "bayes": "Bayes",
}
_ROWS = {
    "block": "best LTB = GD-beta, exact",
    "attention": "best LSA",
    "attention_bound": "  lower bound, instance",
    "attention_sure": "  lower bound, 1 / (M + 1)",
    "step_from_zero": "best GD-0, exact",
    "prior_mean": "the answer <beta*, x>, exact",
    "least_squares": "least squares, exact",
    "bayes": "Bayes, average over inputs",
}


def report(
    config: Config,
    scores: Scores,
    columns: Columns,
    removed: dict[ModelSetting, Removals] | None = None,
    courses: course.Courses | None = None,
) -> Report:
    """Builds the tables, figures, claims, findings, checks and numbers of a run.

    Joined runs have neither removals nor snapshots, which need the models.
    """
    found = _of_table1(config, scores, columns)
    if removed:
        found = _with_removals(found, config, removed, columns)
    if courses:
        courses = {cell: courses[cell] for cell in config.cells}
        found = _with_course(found, config, courses, columns)
    return found


def _with_removals(
    found: Report,
    config: Config,
    removed: dict[ModelSetting, Removals],
    columns: Columns,
) -> Report:
    parts = config, removed, columns
    return dataclasses.replace(
        found,
        numbers={**found.numbers, "removal": removal_report.numbers(*parts)},
        checks=[*found.checks, *removal_report.checks(*parts)],
        tables=[*found.tables, removal_report.table(*parts)],
        findings=[*found.findings, *removal_report.findings(*parts)],
        figures={**found.figures, "removal.png": removal_report.figure(*parts)},
        axes={**found.axes, **removal_report.AXES},
    )


def _with_course(
    found: Report, config: Config, courses: course.Courses, columns: Columns
) -> Report:
    return dataclasses.replace(
        found,
        numbers={**found.numbers, "course": course.numbers(config, courses)},
        tables=[*found.tables, course.table(config, courses)],
        findings=[*found.findings, *course.findings(config, courses)],
        figures={
            **found.figures,
            "course.png": course.figure(config, courses, columns),
        },
        axes={**found.axes, **course.AXES},
    )


def _of_table1(config: Config, scores: Scores, columns: Columns) -> Report:
    numbers = {
        "cells": {
            cell.name: {
                **dataclasses.asdict(score),
                "interval": score.interval,
                "published": PAPER_TABLE.get(cell),
            }
            for cell, score in scores.items()
        },
        "references": {
            f"mean_{mean:g}": dataclasses.asdict(column)
            for mean, column in columns.items()
        },
        "ratios": {f"mean_{m:g}": ratio(scores, m) for m in config.means},
    }
    return Report(
        numbers,
        checks=checks(config, scores, columns),
        tables=[table(config, scores, columns), possible_settings()],
        findings=findings(config, scores, columns),
        claims=claims(config, scores),
        claims_title=f"the published table ({_published(config)}) says",
        figures={"table1.png": figure(config, scores, columns)},
        interval_level=0.9,
        axes={"cells.*.per_seed": ["seed"], "cells.*.per_seed_error": ["seed"]},
    )


def ratio(scores: Scores, mean: float) -> float:
    """Error without MLP divided by the error with MLP."""
    return (
        scores[ModelSetting(False, mean)].mean / scores[ModelSetting(True, mean)].mean
    )


def _paper_ratio(mean: float) -> float:
    """Error without MLP divided by the error with MLP, in the published table."""
    return (
        PAPER_TABLE[ModelSetting(False, mean)] / PAPER_TABLE[ModelSetting(True, mean)]
    )


def checks(config: Config, scores: Scores, columns: Columns) -> list[Check]:
    """Checks that the models learned and that the errors are measured correctly."""
    found = [_learned(config, scores, mean, columns[mean]) for mean in config.means]
    for mean in config.means:
        found += _sampling_checks(config, scores, mean, columns[mean])
    return found


def _learned(config: Config, scores: Scores, mean: float, column: References) -> Check:
    """Checks that GPT-2 is better than one layer of linear attention.

    Snapshots show a course, whose end may be early: there it must only be as good as
    the answer of the prior mean, whose own error on these prompts is the tolerance.
    """
    score = scores[ModelSetting(True, mean)]
    if not config.recipe.snapshots:
        name = f"GPT-2 at mean {mean:g} against the best one-layer block"
        return Check(name, score.mean, column.block, "<=")
    name = f"GPT-2 at mean {mean:g} against the answer <beta*, x>"
    spread = 5 * rule_scores(config, mean)["<beta*, x>"].prompt_error
    return Check(name, score.mean, column.prior_mean, "<=", spread)


def _rounding(config: Config, mean: float) -> float:
    """Squared error of an exact prediction caused by float32 rounding.

    Without noise Bayes is exact, so that rounding alone is measured: the number of
    labels times dimensions, times the squared unit of rounding of a label.
    """
    d, terms = config.recipe.dim, config.recipe.dim * config.num_examples
    return float(terms * np.finfo(np.float32).eps ** 2 * d * (mean**2 + 1))


def claims(config: Config, scores: Scores) -> list[Claim]:
    """Claims of the published table about both models, and whether they hold here."""
    far = config.mean
    worst = max(scores[ModelSetting(True, far)].per_seed)
    best = min(scores[ModelSetting(False, far)].per_seed)
    near, there = ratio(scores, 0.0), ratio(scores, far)
    # The paper calls an error without MLP at mean 0 nearly zero that is 8 times the
    # error with MLP, so "significantly larger" has to mean more than that.
    times = _paper_ratio(0.0)
    every = Claim(
        claim=f"at mean {far:g} every seed is better with MLP",
        measured=f"worst with {worst:.4f}, best without {best:.4f}",
        held=worst < best,
    )
    return [
        *([every] if len(config.recipe.seeds) > 1 else []),
        Claim(
            claim=f"leaving it out costs more at mean {far:g} than at 0",
            measured=f"{there:.2f} times, and {near:.2f} times",
            held=there > near,
        ),
        Claim(
            claim=f"at mean {far:g} it costs more than {times:.0f} times the error",
            measured=f"{there:.2f} times",
            held=there > times,
        ),
    ]


def _sampling_checks(
    config: Config, scores: Scores, mean: float, column: References
) -> list[Check]:
    """Checks known risks on the evaluation prompts; no error may be below Bayes."""
    exact = {"Bayes": column.bayes, "<beta*, x>": column.prior_mean}
    found = []
    for name, score in rule_scores(config, mean).items():
        error = max(score.prompt_error, column.bayes_error if name == "Bayes" else 0.0)
        found.append(
            Check(
                f"{name} on the prompts of mean {mean:g}",
                score.mean,
                exact[name],
                "within",
                max(5 * error, _rounding(config, mean)),
            )
        )
    lowest = min(scores[ModelSetting(mlp, mean)].mean for mlp in (True, False))
    spread = max(scores[ModelSetting(mlp, mean)].prompt_error for mlp in (True, False))
    found.append(
        Check(
            f"Bayes against the better model at mean {mean:g}",
            column.bayes,
            lowest,
            "<=",
            5 * spread,
        )
    )
    return found


def findings(config: Config, scores: Scores, columns: Columns) -> list[str]:
    """Summarises the results in sentences."""
    said = []
    for mean in config.means:
        said.append(
            f"mean {mean:g}: without MLP the error is {ratio(scores, mean):.1f} times "
            "that with it"
        )
    far, column = scores[ModelSetting(False, config.mean)].mean, columns[config.mean]
    names = {
        "best one-layer block": column.block,
        "answer <beta*, x>": column.prior_mean,
        "best linear attention layer": column.attention,
    }
    beside = ", ".join(f"{name} {value:.3g}" for name, value in names.items())
    said.append(f"GPT-2 without MLP at mean {config.mean:g}: {far:.3g}; {beside}")
    return said


def table(config: Config, scores: Scores, columns: Columns) -> Table:
    """Builds the table of the four cells, the published values and the exact risks."""
    recipe = config.recipe
    shown = Table(
        title=f"squared error with the query's noise; d = {recipe.dim}, M = "
        f"{config.num_examples}, H = Psi = I, noise {recipe.noise_var:g}; "
        f"{_averaged(len(recipe.seeds))} (standard error over prompts)"
    )
    shown.add_column("")
    for mean in config.means:
        shown.add_column(f"beta* = {mean:g} 1", justify="right", no_wrap=True)
    for mlp in (True, False):
        cells = [ModelSetting(mlp, mean) for mean in config.means]
        shown.add_row(cells[0].model, *(_score(scores[cell]) for cell in cells))
        published = [PAPER_TABLE.get(cell) for cell in cells]
        texts = ["-" if value is None else f"{value:.3f}" for value in published]
        shown.add_row(f"  published ({_published(config)})", *texts)
    shown.add_section()
    for field, label in _ROWS.items():
        values = [getattr(columns[mean], field) for mean in config.means]
        shown.add_row(label, *(f"{value:.4f}" for value in values))
    return shown


def _published(config: Config) -> str:
    """States what is known of the published setting."""
    return "other d, M" if config.recipe.noise_var else "d, M unknown"


def possible_settings() -> Table:
    """Builds the table of the largest noise that allows the published error."""
    shown = Table(
        title=f"settings in which an error of {LOWEST:g} is possible (H = Psi = I): "
        "Bayes' risk is no larger"
    )
    for name in ("d", "M", "largest noise variance (s.e.)", "its standard deviation"):
        shown.add_column(name, justify="right")
    for dim, num_examples in SETTINGS:
        limit = noise_limit(dim, num_examples)
        shown.add_row(
            str(dim),
            str(num_examples),
            f"{limit.noise_var:.5f} ({limit.standard_error:.5f})",
            f"{limit.noise_var**0.5:.3f}",
        )
    return shown


def _averaged(seeds: int) -> str:
    if seeds == 1:
        return "one seed"
    return f"mean over {seeds} seeds +- standard error over seeds"


def _score(score: Score) -> str:
    spread = f" +- {score.seed_error:.4f}" if len(score.per_seed) > 1 else ""
    return f"{score.mean:.4f}{spread} ({score.prompt_error:.4f})"


def figure(config: Config, scores: Scores, columns: Columns) -> Any:
    """Draws the four cells with lines at the theoretical risks."""
    settings = {}
    for mean in config.means:
        cells = [ModelSetting(mlp, mean) for mlp in (True, False)]
        settings[rf"$\beta^* = {mean:g} \cdot (1, \dots, 1)$"] = Table1Setting(
            dots={c.model: scores[c].per_seed for c in cells},
            intervals={c.model: (scores[c].mean, *scores[c].interval) for c in cells},
            lines={
                label: getattr(columns[mean], field) for field, label in _LINES.items()
            },
            published={c.model: PAPER_TABLE[c] for c in cells if c in PAPER_TABLE},
        )
    recipe = config.recipe
    return models_between_lines(
        settings,
        "squared error of the answer",
        f"GPT-2 ({recipe.num_layers} layers, width {recipe.width}) on linear "
        f"regression, d = {recipe.dim}, M = {config.num_examples}, "
        f"noise {recipe.noise_var:g}\n{len(recipe.seeds)} seeds; crosses: mean and "
        "90 % interval",
    )
