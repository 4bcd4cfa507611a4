"""Builds the tables, figures and checks of a run."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from experiments._frame.report import Report
from experiments._frame.run import Run
from experiments.garg_linear.checks import LOWER_BOUND, OPTIMUM, STEPS, Measured
from experiments.garg_linear.config import Config, Setup
from experiments.garg_linear.drawing import (
    attention_along_depth,
    error_against_examples,
    errors_by_setting,
    errors_over_training,
    loss_of_training,
)
from experiments.garg_linear.evaluate import (
    TRANSFORMER,
    attention_by_layer,
    baseline_errors,
    evaluation_prompt,
    exact_curves,
    interval,
    model_errors,
    transformer_curve,
)
from icltheory import training
from icltheory.plotting import Curve
from icltheory.regression import shifts
from icltheory.regression.prompts import PrefixPrompt


def comparison_table(setup: Setup, curves: dict[str, Curve], fewer: list[str]) -> Table:
    """Builds the table of all predictors by k, with 90 % intervals.

    Args:
        setup: The run.
        curves: Curve of each predictor.
        fewer: Those that were fitted to the first prompts alone.
    """
    config, d = setup.config, setup.config.dim
    last = config.num_points - 1
    rows = sorted({1, max(d // 2, 1), d, 3 * d // 2, 2 * d, (2 * d + last) // 2, last})
    exact = "; without interval: exact" if OPTIMUM in curves else ""
    few = f" ({config.baselines.prompts:,} of {', '.join(fewer)})" if fewer else ""
    table = Table(
        title=f"{error_label(setup)}, d = {d}, {config.eval_prompts:,} prompts{few}, "
        f"90 % intervals{exact}"
    )
    table.add_column("k", justify="right", no_wrap=True)
    for name in curves:
        table.add_column(name, justify="right", no_wrap=True)
    for k in rows:
        table.add_row(str(k), *(_cell(curve, k) for curve in curves.values()))
    return table


def _cell(curve: Curve, k: int) -> str:
    if curve.low is None:
        return f"{curve.mean[k]:.4f}"
    ends = (float(curve.low[k]), float(curve.high[k]))
    low, high = (f"{end:.3f}" if end < 100 else f"{end:.0f}" for end in ends)
    return f"{curve.mean[k]:.4f}\n\\[{low}, {high}]"


def error_label(setup: Setup) -> str:
    """Returns the label of the error with its normaliser, for axes and tables."""
    unit = setup.family.unit
    return "squared error" if unit == "1" else f"squared error / {unit}"


def measure(setup: Setup, params: Any, prompt: PrefixPrompt) -> Measured:
    """Measures the model and its baselines on the same prompts."""
    normalizer = setup.family.normalizer(setup.config)
    return Measured(
        setup.config,
        model_errors(setup, params, prompt),
        np.square(np.asarray(prompt.y_query)) / normalizer,
        baseline_errors(setup, prompt),
        exact_curves(setup),
    )


def curve_title(name: str) -> str:
    """Returns the title of a curve: "ridge (1)" becomes "ridge, penalty 1"."""
    kind, _, number = name.rstrip(")").partition(" (")
    parameters = {"ridge": "penalty", STEPS: "L =", LOWER_BOUND: "L ="}
    return f"{kind}, {parameters[kind]} {number}" if kind in parameters else name


def report(setup: Setup, params: Any, records: list[dict]) -> Report:
    """Evaluates the final model: table, figures, checks and numbers."""
    config, family = setup.config, setup.family
    prompt = evaluation_prompt(setup)
    measured = measure(setup, params, prompt)
    errors, exact = measured.transformer, measured.exact
    curves = {TRANSFORMER: transformer_curve(config, errors)}
    curves |= {name: interval(sample) for name, sample in measured.baselines.items()}
    curves |= {
        name: Curve.of(risk)
        for name, risk in exact.items()
        if name not in measured.baselines
    }
    counts = {name: len(sample) for name, sample in measured.baselines.items()}
    fewer = [name for name, n in counts.items() if n < config.eval_prompts]
    numbers = {
        "task": config.task,
        "normalizer": family.normalizer(config),
        "normalizer_name": family.unit,
        "prompts": {TRANSFORMER: config.eval_prompts, **counts},
        "curves": {
            name: {
                key: np.asarray(value).tolist()
                for key, value in (("mean", c.mean), ("low", c.low), ("high", c.high))
                if value is not None
            }
            for name, c in curves.items()
        },
        "per_seed": dict(
            zip(map(str, config.seeds), errors.mean(axis=1).tolist(), strict=True)
        ),
        "exact": {name: value.tolist() for name, value in exact.items()},
        "precision": config.precision,
    }
    axis = ["examples k, from 0"]
    axes = {"curves.*.*": axis, "per_seed.*": axis}
    return Report(
        numbers,
        checks=family.checks(measured),
        claims=family.claims(measured),
        tables=[comparison_table(setup, curves, fewer)],
        figures=_figures(setup, curves, measured, records)
        | {"attention.png": _attention(setup, params, prompt, _of(config))},
        interval_level=0.9,
        axes=axes | ({"exact.*": axis} if exact else {}),
    )


def _of(config: Config) -> str:
    return f"d = {config.dim}, seed {', '.join(map(str, config.seeds))}"


def _figures(
    setup: Setup,
    curves: dict[str, Curve],
    measured: Measured,
    records: list[dict],
) -> dict[str, Figure]:
    """Draws errors against k and over training steps, and the training loss.

    A model that was not trained here has no records, and the first figure alone.
    """
    config, family = setup.config, setup.family
    title = f"{family.title.format(config=config)}, {_of(config)}"
    exact = measured.exact
    legend = f"{config.eval_prompts:,} prompts"
    if min(map(len, measured.baselines.values())) < config.eval_prompts:
        legend += f", {config.baselines.prompts:,} for networks and trees"
    legend += "; bands: 90 % intervals" + ("; dashed: exact" if exact else "")
    name = family.reference
    reference = (name, curves[name])
    if name in exact:
        reference = (f"{name} (exact)", Curve.of(exact[name]))
    snapshots = {
        record["step"]: Curve(np.mean(record["errors"], axis=0))
        for record in records
        if "errors" in record
    }
    label = error_label(setup)
    mark = config.dim if family.moments is not None else None
    losses = {TRANSFORMER: ([np.mean(r["loss"]) for r in records], False)}
    if exact:
        losses["least squares (exact)"] = (
            [r["least_squares_loss"] for r in records],
            True,
        )
    shown = {curve_title(name): curve for name, curve in curves.items()}
    final = error_against_examples(
        shown, mark, f"{title}\n{legend}", TRANSFORMER, label
    )
    if not records:
        return {"figure5a.png": final}
    return {
        "figure5a.png": final,
        "figure5b.png": errors_over_training(
            snapshots, reference, mark, f"{title}: the transformer as it trains", label
        ),
        "loss.png": loss_of_training(
            [record["step"] for record in records],
            losses,
            f"Training loss, {_of(config)} (mean of {config.chunk_steps} steps)",
        ),
    }


def _attention(setup: Setup, params: Any, prompt: PrefixPrompt, of: str) -> Figure:
    """Draws the attention between the tokens of the first pairs."""
    config = setup.config
    prompts, points = min(64, config.eval_prompts), min(8, config.num_points)
    weights = attention_by_layer(setup, params, prompt, prompts, points)
    pairs = range(1, points + 1)
    names = [f"{letter}{k}" for k in pairs for letter in "xy"]
    title = f"Attention along depth, mean over heads and {prompts} prompts, {of}"
    # These are the interleaved tokens of Garg; the other layout has one token per pair.
    tokens = names if config.token_layout == "interleaved" else None
    return attention_along_depth(weights, tokens, title)


_SETTINGS = {
    "standard": "as in training",
    "random_quadrants": "signs of the examples shared",
    "orthogonal_train_test": "query orthogonal to examples",
    "overlapping_train_test": "query is one of the examples",
    "half_subspace": "inputs in half of the directions",
    "skewed": "skewed input covariance",
    "noisyLR": "noisy labels",
}


def setting_title(name: str) -> str:
    """Describes one of Garg's evaluation settings in plain words."""
    kind, _, factor = name.partition("=")
    scaled = {"scale-x": "inputs", "scale-y": "weights"}
    if kind in scaled:
        return f"{scaled[kind]} times {float(factor):.3g}"
    return _SETTINGS.get(name, name)


def report_shifts(setup: Setup, run: Run, params: Any) -> dict:
    """Evaluates the model and the baselines on Garg's fifteen settings."""
    config = setup.config
    names = (TRANSFORMER, "least squares", "averaging", "3-NN")
    k = (config.dim // 2, config.dim, 2 * config.dim)
    table = Table(title="distribution shifts: normalised squared error")
    table.add_column("setting", no_wrap=True)
    for name in names[:2]:
        for value in k:
            table.add_column(f"{name}\nk = {value}", justify="right", no_wrap=True)
    panels, results = {}, {}
    for shift in shifts.garg_shifts(config.dim, jnp.float32).values():
        key = training.stream_key(config.seeds[0], "evaluation")
        prompt = shift(key, config.num_points, config.eval_prompts)
        scale = config.dim / shift.normalizer
        errors = {TRANSFORMER: model_errors(setup, params, prompt).mean(axis=0)}
        errors |= baseline_errors(setup, prompt)
        asked = shift.num_informative or config.num_points
        curves = {name: interval(errors[name][:, :asked] * scale) for name in names}
        panels[setting_title(shift.name)] = curves
        results[shift.name] = {
            name: np.asarray(curve.mean).tolist() for name, curve in curves.items()
        }
        cells = [
            f"{curves[name].mean[value]:.4f}" if value < asked else "-"
            for name in names[:2]
            for value in k
        ]
        table.add_row(shift.name, *cells)
    run.results.print(table)
    title = f"Garg's evaluation settings, d = {config.dim} (bands: 90 % intervals)"
    run.save_figure("shifts.png", errors_by_setting(panels, title))
    return results
