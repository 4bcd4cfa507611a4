"""Table, figures and verdicts of a run."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Report
from experiments._frame.run import Run
from experiments.garg_linear.config import Config, Setup
from experiments.garg_linear.drawing import (
    error_against_examples,
    errors_by_setting,
    errors_over_training,
)
from experiments.garg_linear.evaluate import (
    OPTIMUM,
    TRANSFORMER,
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


def report(setup: Setup, params: Any, records: list[dict]) -> Report:
    """Measures the final model: table, figures, checks and numbers."""
    config = setup.config
    prompt = evaluation_prompt(setup)
    errors = model_errors(setup, params, prompt)
    baselines = baseline_errors(config, prompt)
    exact = exact_curves(setup)
    curves = {TRANSFORMER: transformer_curve(config, errors)}
    curves |= {name: interval(sample) for name, sample in baselines.items()}
    curves[OPTIMUM] = Curve(exact[OPTIMUM], exact=True)

    seeds = ", ".join(map(str, config.seeds))
    title = f"In-context linear regression, d = {config.dim} (seed {seeds})"
    legend = f"{config.eval_prompts:,} prompts; bands: 90 % intervals; dashed: exact"
    snapshots = {
        record["step"]: Curve(np.mean(record["errors"], axis=0))
        for record in records
        if "errors" in record
    }
    reference = ("least squares (exact)", Curve(exact["least squares"], exact=True))
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
                curves, config.dim, f"{title}\n{legend}"
            ),
            "figure5b.png": errors_over_training(
                snapshots,
                reference,
                config.dim,
                f"{title}: the Transformer as it trains",
            ),
        },
        interval_level=0.9,
    )


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
        panels[shift.name] = curves
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
    title = f"Garg's evaluation settings, d = {config.dim}"
    run.save_figure("shifts.png", errors_by_setting(panels, title))
    return results
