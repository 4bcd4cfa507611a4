"""Builds the tables, claims, checks and numbers of a run."""

from typing import Any

import jax
import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments._trained import Fitted
from experiments.headroom.arms import ARMS, CONTROL, NAMES, PRUNING, SCALARS
from experiments.headroom.config import Config
from experiments.headroom.drawing import gains_figure, rates_figure
from experiments.headroom.summary import (
    ALL,
    Found,
    GainRow,
    accuracies,
    beyond,
    by_words,
    counts,
    gain_rows,
    rate_curves,
    searches,
    short_name,
)
from experiments.small_lm import vocabulary as v
from experiments.small_lm.curve import question
from experiments.small_lm.train import initial_state

# Every set of prompts must be this far below the ideal learner, and above chance.
HEADROOM = 0.05


def report(config: Config, fitted: Fitted, found: Found) -> Report:
    """Builds the report of a run: tables, claims, checks and numbers."""
    rows = gain_rows(config, found)
    known = accuracies(config, found)
    other = beyond(config, rows[ALL])
    words = by_words(found)
    curves = rate_curves(config, found)
    single = searches(config, found)
    beyond_chance = counts(config, single)
    numbers = {
        "seeds": list(config.seeds),
        "parameters": _parameters(config),
        "last_losses": fitted.records[-1],
        "training_seconds": fitted.timing.train_seconds,
        "rates": list(config.rates),
        "settings": {arm: row.settings(config) for arm, row in ARMS.items()},
        "accuracy": known,
        "accuracy_by_words": words,
        "gains": {
            prompts: {row.arm: row.numbers(config.level) for row in some}
            for prompts, some in rows.items()
        },
        "beyond": other,
        "change_at_rate": curves,
        "beyond_chance": beyond_chance,
        "searches": single,
    }
    return Report(
        numbers,
        checks=_checks(config, known),
        tables=[
            _accuracy_table(known),
            *(_gain_table(config, prompts, some) for prompts, some in rows.items()),
            _beyond_table(other),
            _search_table(config, single),
        ],
        figures={
            "gains.png": gains_figure(config, rows),
            "rates.png": rates_figure(config, curves),
        },
        claims=[*_helps(config, rows[ALL]), *_beats(config, other)],
        findings=_findings(config, rows[ALL], beyond_chance, words),
        interval_level=config.level,
        axes={
            "gains.*.*.*.values": ["models"],
            "accuracy_by_words.*.values": ["models", "groups of label words"],
            "change_at_rate.*.mean": ["clipping rates"],
            "change_at_rate.*.values": ["models", "clipping rates"],
        },
    )


def _parameters(config: Config) -> int:
    params = jax.eval_shape(lambda: initial_state(config.recipe)).params
    return int(sum(np.size(leaf) for leaf in jax.tree.leaves(params)))


def _checks(config: Config, known: dict[str, Any]) -> list[Check]:
    """Checks that the models learned, and that they are below the ideal learner."""
    stated = []
    for (kind, _), (name, row) in zip(config.conditions, known.items(), strict=True):
        chance = 1 / v.NUM_CLASSES[question(kind).attribute]
        above = min(row["model"]["values"]) - chance
        below = min(
            ideal - own
            for ideal, own in zip(
                row["ideal"]["values"], row["model"]["values"], strict=True
            )
        )
        stated += [
            Check(
                f"{HEADROOM} against {name}: worst model above guessing",
                HEADROOM,
                above,
                "<=",
            ),
            Check(
                f"{HEADROOM} against {name}: least headroom below the ideal learner",
                HEADROOM,
                below,
                "<=",
            ),
        ]
    return stated


def _helps(config: Config, rows: list[GainRow]) -> list[Claim]:
    """Claims that an arm raises the test accuracy on average over models."""
    return [
        Claim(
            claim=f"{NAMES[row.arm]}: higher test accuracy",
            expected="mean gain over the models above 0, p at most "
            f"{1 - config.level:.2g} after Holm",
            measured=f"{_points(row.numbers(config.level)['test'])} points, Holm "
            f"p = {row.holm:.2g}",
            held=row.test.mean() > 0 and row.holm <= 1 - config.level,
        )
        for row in rows
    ]


def _beats(config: Config, other: dict[str, dict[str, Any]]) -> list[Claim]:
    """Claims that pruning gains more than a scalar and than random directions."""
    return [
        Claim(
            claim=f"{NAMES[arm]}: larger gain than {NAMES[name]}",
            expected="mean difference over the models above 0, p at most "
            f"{1 - config.level:.2g} after Holm",
            measured=f"{_points(row)} points, Holm p = {row['holm']:.2g}",
            held=row["mean"] > 0 and row["holm"] <= 1 - config.level,
        )
        for arm, rows in other.items()
        for name, row in rows.items()
    ]


def _findings(
    config: Config,
    rows: list[GainRow],
    beyond_chance: dict[str, dict[str, int]],
    words: dict[str, dict[str, Any]],
) -> list[str]:
    own = {row.arm: row for row in rows}
    overstated = np.mean([(row.validation - row.test).mean() for row in rows])
    best = max(PRUNING, key=lambda arm: own[arm].test.mean())
    scalar = max(SCALARS, key=lambda arm: own[arm].test.mean())
    told = "; ".join(
        f"{NAMES[arm]}: {row['better']} better, {row['worse']} worse"
        for arm, row in beyond_chance.items()
    )
    return [
        f"Best way to prune on the test prompts: {NAMES[best]}, "
        f"{100 * own[best].test.mean():+.2f} points; best scalar: {NAMES[scalar]}, "
        f"{100 * own[scalar].test.mean():+.2f}; random matrices: "
        f"{100 * own[CONTROL].test.mean():+.2f}.",
        f"Validation overstates the gains by {100 * overstated:.2f} points, mean over "
        "the arms.",
        f"Of the {len(config.seeds) * len(config.conditions)} searches of each arm, "
        f"beyond chance on the prompts of their own model, after Holm, are ({told}).",
        *(
            f"{short_name(config, prompts)}: by the group of its label words the "
            f"accuracy of an unpruned model is from {row['lowest']:.3f} to "
            f"{row['highest']:.3f}, both means over the models."
            for prompts, row in words.items()
        ),
    ]


def _points(row: dict[str, Any]) -> str:
    """Formats a mean in points of accuracy with its interval."""
    mean, low, high = (100 * row[name] for name in ("mean", "low", "high"))
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _accuracy_table(known: dict[str, Any]) -> Table:
    table = Table(
        title="Test accuracy without any change: mean over the models (standard error)"
    )
    heads = {
        "model": "unpruned model",
        "ideal": "ideal learner, told the label words",
        "informed": "ideal learner that knows the task",
    }
    for name in ("prompts", *heads.values()):
        table.add_column(name)
    for prompts, row in known.items():
        cells = (
            f"{row[name]['mean']:.3f} ({row[name]['standard_error']:.3f})"
            for name in heads
        )
        table.add_row(prompts.replace("_", " "), *cells)
    return table


def _gain_table(config: Config, prompts: str, rows: list[GainRow]) -> Table:
    table = Table(
        title=f"{short_name(config, prompts)}: change of the accuracy in points, mean "
        f"over the models \\[{100 * config.level:g} % interval of Student]; Holm over "
        "the arms"
    )
    heads = ("arm", "settings", "chosen", "validation", "test", "overstated", "Holm p")
    for name in heads:
        table.add_column(name)
    sets = len(config.conditions) if prompts == ALL else 1
    for row in rows:
        numbers = row.numbers(config.level)
        table.add_row(
            NAMES[row.arm],
            str(ARMS[row.arm].settings(config)),
            f"{row.chosen} of {len(config.seeds) * sets}",
            f"{100 * numbers['validation']['mean']:+.2f}",
            _points(numbers["test"]).replace("[", "\\["),
            f"{100 * numbers['overstated']['mean']:+.2f}",
            f"{row.holm:.2g}",
        )
    return table


def _beyond_table(other: dict[str, dict[str, Any]]) -> Table:
    table = Table(
        title="Test gain of each way to prune beyond that of an arm that is no pruning,"
        "\nin points, all prompts \\[interval], and p after Holm over the table"
    )
    names = list(next(iter(other.values())))
    for name in ("arm", *(NAMES[name] for name in names)):
        table.add_column(name)
    for arm, rows in other.items():
        cells = (
            f"{_points(row)}, p {row['holm']:.2g}".replace("[", "\\[")
            for row in rows.values()
        )
        table.add_row(NAMES[arm], *cells)
    return table


def _search_table(config: Config, rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Each model on its own test prompts: gain in points "
        f"\\[{100 * config.level:g} % paired score interval];\n* beyond chance by the "
        f"exact test after Holm over all {len(rows)}"
    )
    for name in ("model", "prompts", *NAMES.values()):
        table.add_column(name)
    cells: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        gain, low, high = (100 * x for x in (row["test_gain"], *row["interval"]))
        star = "*" if row["holm"] <= 1 - config.level else ""
        text = f"{gain:+.1f}{star} \\[{low:+.1f}, {high:+.1f}]"
        shown = text if "layer" in row else "-"
        cells.setdefault((row["seed"], row["prompts"]), []).append(shown)
    for (seed, prompts), some in cells.items():
        table.add_row(str(seed), short_name(config, prompts), *some)
    return table
