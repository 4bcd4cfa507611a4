"""Builds the table, figures and checks of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments.garg_recipe.config import Config
from experiments.garg_recipe.drawing import Ratio, recipes_beside_baseline
from experiments.garg_recipe.noise import gradient_noise
from experiments.garg_recipe.summary import ChangeSummary, rows
from experiments.garg_recipe.train import TrainedWithChange
from icltheory.plotting import Curve
from icltheory.regression import LinearStep, optimum
from icltheory.statistics import Estimate

# Descriptions of the changes for the figure and for the page.
WORDS = {
    "adam": "Adam",
    "muon": "Muon",
    "rate-half": "half the learning rate",
    "rate-double": "twice the learning rate",
    "linear": "linear decay",
    "trapezoid": "constant, then linear decay",
    "constant": "constant learning rate",
    "constant-mean": "constant rate, averaged weights",
    "mean": "averaged weights",
    "batch-half": "half the batch",
    "batch-double": "twice the batch",
    "init-half": "half the initial scale",
    "init-double": "twice the initial scale",
    "curriculum": "curriculum",
    "bfloat16": "bfloat16",
    "float32-last": "bfloat16, end in float32",
    "posterior": "posterior means as targets",
    "recipe": "recipe (united changes)",
    "recipe, half": "recipe, half the steps",
}
_SHOWN = ("baseline", "recipe", "recipe, half")


def report(config: Config, trained: dict[str, TrainedWithChange]) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    found = rows(config, trained)
    noise = {
        "at the start": gradient_noise(config, config.start(config.baseline).params),
        "at the baseline's end": gradient_noise(config, trained["baseline"].params),
    }
    numbers = {
        "settings": {row.name: row.as_dict() for row in found},
        "gradient_noise": {
            when: {name: values.tolist() for name, values in traces.items()}
            for when, traces in noise.items()
        },
    }
    return Report(
        numbers,
        checks=checks(config, found),
        tables=[table(config, found), noise_table(config, noise)],
        claims=claims(config, found),
        claims_title="what each change is for",
        figures={"recipe.png": draw(config, trained, found)},
    )


def checks(config: Config, found: list[ChangeSummary]) -> list[Check]:
    """Checks that the baseline and the recipe learned."""
    task, k = config.task(), 2 * config.dim
    least = optimum(LinearStep, task, k).risk - task.noise_var
    one_layer = float(least) / config.dim
    return [
        Check(
            f"{row.name}: error at k = {k} against one layer of linear attention",
            # A diverged model counts with the error of predicting 0.
            float(np.nan_to_num(row.high[0], nan=1.0)),
            one_layer,
            "<=",
        )
        for row in found
        if row.name in _SHOWN
    ]


def claims(config: Config, found: list[ChangeSummary]) -> list[Claim]:
    """Claims about each change, judged at two standard errors of the paired ratio."""
    stated = []
    for row in found[1:]:
        low, high = row.interval
        if row.name == "recipe, half":
            words, held = "no worse than the baseline in full", high <= 1
        else:
            words, held = "a smaller excess than the baseline", high < 1
        shown = f"{row.ratio[0]:.2f} times ({low:.2f} to {high:.2f})"
        stated.append(
            Claim(claim=row.name, expected=words, measured=shown, held=bool(held))
        )
    return stated


def table(config: Config, found: list[ChangeSummary]) -> Table:
    """Builds the table that compares all settings with the baseline."""
    d = config.dim
    out = Table(
        title=f"GPT-2 on Garg's regression, d = {d}: squared error / d, mean over "
        f"{len(config.seeds)} seeds (s.e.)"
    )
    heads = (
        *("setting", "steps", f"k = {d}", f"k = {2 * d}", "excess"),
        *("ratio", "2 s.e.", "ms"),
    )
    for head in heads:
        out.add_column(head, justify="right", no_wrap=True)
    for row in found:
        pairs = [f"{m:.4f} ({e:.4f})" for m, e in (row.low, row.high, row.excess)]
        low, high = row.interval
        out.add_row(
            row.name,
            f"{row.steps} x {row.batch_size}",
            *pairs,
            f"{row.ratio[0]:.2f}",
            f"{low:.2f}-{high:.2f}",
            f"{row.ms:.0f}",
            style="bold" if row.name in _SHOWN else "",
        )
    return out


def noise_table(config: Config, noise: dict[str, dict[str, np.ndarray]]) -> Table:
    """Builds the table of gradient noise by targets."""
    out = Table(
        title="trace of the covariance of a prompt's gradient: mean over "
        f"{len(config.seeds)} seeds"
    )
    for head in ("weights", "labels", "posterior means", "ratio (s.e.)"):
        out.add_column(head, justify="right")
    for when, traces in noise.items():
        ratio, error = Estimate.of(traces["labels"] / traces["posterior"])
        shown = [f"{values.mean():.3g}" for values in traces.values()]
        out.add_row(when, *shown, f"{ratio:.2f} ({error:.2f})")
    return out


def draw(
    config: Config, trained: dict[str, TrainedWithChange], found: list[ChangeSummary]
) -> Any:
    """Draws the excess risk over training steps, and the ratio for each change."""
    curves = {}
    for name in _SHOWN:
        own = trained[name]
        mean, error = Estimate.of(own.excess, axis=1)
        curves[name] = own.prompts, Curve(mean, mean - error, mean + error)
    ratios = {
        WORDS.get(row.name, row.name): Ratio(
            row.ratio[0], *row.interval, row.name in _SHOWN
        )
        for row in found[1:]
    }
    return recipes_beside_baseline(
        curves,
        ratios,
        f"GPT-2 of {config.num_layers} layers, d = {config.dim}: distance to the "
        f"posterior mean, {len(config.seeds)} seeds (left: bands of 1 standard error)",
    )
