"""Table, figures and verdicts of a run."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments._frame.run import Run
from experiments.garg_linear.config import Config, Setup
from experiments.garg_linear.drawing import (
    attention_along_depth,
    error_against_examples,
    errors_by_setting,
    errors_over_training,
    loss_of_training,
)
from experiments.garg_linear.evaluate import (
    OPTIMUM,
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
from icltheory.statistics import Estimate

PAPER_ERRORS = {20: 0.02, 40: 0.0006}  # Garg et al. 2022, Section 3, d = 20


def checks(
    config: Config, errors: np.ndarray, baselines: dict, exact: dict
) -> list[Check]:
    """What the run should show, each number beside what it is compared with."""
    d, mean = config.dim, errors.mean(axis=(0, 1))
    at = 2 * d
    found = [
        Check(
            f"Transformer against least squares at k = {at}",
            float(mean[at]),
            float(baselines["least squares"][:, at].mean()),
            "<=",
            0.05,
        ),
        Check(
            f"Transformer below the one-layer optimum at k = {at}",
            float(mean[at]),
            float(exact[OPTIMUM][at]),
            "<=",
        ),
    ]
    for name in ("least squares", "averaging"):
        k = max(d // 2, 1)
        sample = baselines[name][:, k]
        found.append(
            Check(
                f"{name}, Monte Carlo against exact at k = {k}",
                float(sample.mean()),
                float(exact[name][k]),
                "within",
                5 * float(Estimate.of(np.asarray(sample)).standard_error),
            )
        )
    if d == 20:
        for k, reference in PAPER_ERRORS.items():
            name = f"Transformer against the published error at k = {k}"
            found.append(Check(name, float(mean[k]), reference, "<="))
    return found


def comparison_table(config: Config, curves: dict[str, Curve]) -> Table:
    """K against every predictor, each with its 90 % interval."""
    d = config.dim
    rows = sorted({1, max(d // 2, 1), d, 3 * d // 2, 2 * d})
    table = Table(
        title=f"squared error / d, d = {d}, {config.eval_prompts:,} prompts, "
        "90 % intervals; the one-layer optimum is exact"
    )
    table.add_column("k", justify="right")
    for name in curves:
        table.add_column(name, justify="right", no_wrap=True)
    for k in rows:
        table.add_row(str(k), *(_cell(curve, k) for curve in curves.values()))
    return table


def _cell(curve: Curve, k: int) -> str:
    if curve.low is None:
        return f"{curve.mean[k]:.4f}"
    return f"{curve.mean[k]:.4f}\n\\[{curve.low[k]:.3f}, {curve.high[k]:.3f}]"


def _in_words(name: str) -> str:
    """The name of a curve in a figure: "ridge (1)" is ridge with penalty 1."""
    return name.replace("ridge (", "ridge, penalty ").rstrip(")")


def report(setup: Setup, params: Any, records: list[dict]) -> Report:
    """Measures the final model: table, figures, checks and numbers."""
    config = setup.config
    prompt = evaluation_prompt(setup)
    errors = model_errors(setup, params, prompt)
    baselines = baseline_errors(config, prompt)
    exact = exact_curves(setup)
    curves = {TRANSFORMER: transformer_curve(config, errors)}
    curves |= {name: interval(sample) for name, sample in baselines.items()}
    curves[OPTIMUM] = Curve.of(exact[OPTIMUM])

    seeds = ", ".join(map(str, config.seeds))
    of = f"d = {config.dim}, seed {seeds}"
    title = f"In-context linear regression, {of}"
    legend = f"{config.eval_prompts:,} prompts; bands: 90 % intervals; dashed: exact"
    snapshots = {
        record["step"]: Curve(np.mean(record["errors"], axis=0))
        for record in records
        if "errors" in record
    }
    reference = ("least squares (exact)", Curve.of(exact["least squares"]))
    numbers = {
        "normalizer": config.dim,
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
    return Report(
        numbers,
        checks=checks(config, errors, baselines, exact),
        tables=[comparison_table(config, curves)],
        figures={
            "figure5a.png": error_against_examples(
                {_in_words(name): curve for name, curve in curves.items()},
                config.dim,
                f"{title}\n{legend}",
                TRANSFORMER,
            ),
            "figure5b.png": errors_over_training(
                snapshots,
                reference,
                config.dim,
                f"{title}: the transformer as it trains",
            ),
            "loss.png": loss_of_training(
                [record["step"] for record in records],
                {
                    TRANSFORMER: ([np.mean(r["loss"]) for r in records], False),
                    "least squares (exact)": (
                        [r["least_squares_loss"] for r in records],
                        True,
                    ),
                },
                f"Training loss, {of} (mean of {config.chunk_steps} steps)",
            ),
            "attention.png": _attention(setup, params, prompt, of),
        },
        interval_level=0.9,
        axes={
            "curves.*.*": ["examples k, from 0"],
            "exact.*": ["examples k, from 0"],
            "per_seed.*": ["examples k, from 0"],
        },
    )


def _attention(setup: Setup, params: Any, prompt: PrefixPrompt, of: str) -> Figure:
    """Attention between the tokens of the first pairs, few enough to be named."""
    config = setup.config
    prompts, points = min(64, config.eval_prompts), min(8, config.num_points)
    weights = attention_by_layer(setup, params, prompt, prompts, points)
    pairs = range(1, points + 1)
    names = [f"{letter}{k}" for k in pairs for letter in "xy"]
    title = f"Attention along depth, mean over heads and {prompts} prompts, {of}"
    # Garg's tokens; the other layout has one for each pair.
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
    """One of Garg's evaluation settings in plain words."""
    kind, _, factor = name.partition("=")
    scaled = {"scale-x": "inputs", "scale-y": "weights"}
    if kind in scaled:
        return f"{scaled[kind]} times {float(factor):.3g}"
    return _SETTINGS.get(name, name)


def report_shifts(setup: Setup, run: Run, params: Any) -> dict:
    """Measures the model and the predictors on Garg's fifteen evaluation settings."""
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
        errors |= baseline_errors(config, prompt)
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
