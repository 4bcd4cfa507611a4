"""A transformer learns linear regression in context (Garg et al. 2022).

Command
    python -m experiments.garg_linear [--preset cpu|gpu|paper] [--eval-shifts]
        [--resume RUN] [any field of Config, e.g. --steps 1000 --optimizer.name adam]

What it does
    Trains GPT-2 on prompts (x_1, y_1, ..., x_k, y_k, x) with x ~ N(0, I_d), w ~ N(0, I_d)
    and y = <w, x>, and compares its squared error (divided by d) at every k with the
    predictors it should be compared with: least squares, ridge, averaging, 3 nearest
    neighbours, and the exact risk of the best one-layer linear attention.

Expect
    cpu     d = 5, about a minute on two cores: error below 0.05 at k = 2d.
    gpu     d = 20, 12 layers, Muon in bfloat16, 24,000 steps of 256 prompts: about
            0.02 at k = 20 and below 0.001 at k = 40.
    paper   the published recipe, 500,001 steps of 64 prompts: 0.02 and 0.0006.
"""

import argparse
import dataclasses
import functools
import json
import math
import time
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from experiments import _launch, _run
from icltheory import plotting, training
from icltheory.models import GPT2
from icltheory.plotting import Curve
from icltheory.regression import predictors, risks, shifts
from icltheory.regression.prompts import PrefixPrompt
from icltheory.regression.tasks import LinearRegression
from icltheory.training import Curriculum, OptimizerConfig, Ramp

NAME = "garg_linear"
TRANSFORMER, OPTIMUM = "Transformer", "one-layer optimum"
PAPER_ERRORS = {20: 0.02, 40: 0.0006}  # Garg et al. 2022, Section 3, d = 20


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and recipe; together with the seeds it decides every number.

    Attributes:
        dim: Input dimension d.
        num_points: Points of a prompt; the last k is one less.
        width: Width of the residual stream.
        num_layers: Blocks.
        num_heads: Attention heads.
        mlp: Whether the blocks have their MLP.
        init_std: Standard deviation of the initial weights.
        steps: Training steps.
        batch_size: Prompts a step.
        accumulation: Parts of a batch, to save memory.
        seeds: One run for each, all in one program.
        precision: Of the matrix products; parameters and sums stay float32.
        optimizer: Update rule and its schedule.
        curriculum: Which coordinates and points count when.
        chunk_steps: Steps a dispatch, and a line of metrics.jsonl.
        checkpoint_every: Steps between checkpoints.
        snapshots: Parts of the run after which the error curve is measured.
        eval_prompts: Fresh prompts of an evaluation.
        ridge_penalty: Penalty of the ridge predictor in the table.
    """

    dim: int
    num_points: int
    width: int
    num_layers: int
    num_heads: int
    steps: int
    batch_size: int
    optimizer: OptimizerConfig
    curriculum: Curriculum
    mlp: bool = True
    init_std: float = 0.02
    accumulation: int = 1
    seeds: tuple[int, ...] = (0,)
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    chunk_steps: int = 100
    checkpoint_every: int = 1000
    snapshots: tuple[float, ...] = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
    eval_prompts: int = 1280
    ridge_penalty: float = 1.0

    def __post_init__(self):
        if self.num_points < 2 * self.dim + 1:
            raise ValueError(
                f"num_points: expected at least 2 dim + 1 = {2 * self.dim + 1}, "
                f"got {self.num_points}"
            )
        ramps = (("dims", self.dim), ("points", self.num_points))
        for name, full in ramps:
            end = getattr(self.curriculum, name).end
            if end != full:
                raise ValueError(
                    f"curriculum.{name}.end: expected the full {full}, got {end}"
                )
        if not self.seeds:
            raise ValueError("seeds: expected at least one, got none")
        if not all(0 < part <= 1 for part in self.snapshots):
            raise ValueError(
                f"snapshots: expected parts in (0, 1], got {self.snapshots}"
            )


PRESETS = {
    "cpu": Config(
        dim=5,
        num_points=11,
        width=64,
        num_layers=3,
        num_heads=4,
        # 0.02 is Garg's at width 256; narrow models start faster from larger weights.
        init_std=0.1,
        steps=3500,
        batch_size=64,
        optimizer=OptimizerConfig(
            "muon",
            5e-3,
            adam_learning_rate=3e-3,
            schedule="cosine",
            warmup_steps=200,
            clip_norm=1.0,
        ),
        curriculum=Curriculum.none(5, 11),
    ),
    "gpu": Config(
        dim=20,
        num_points=41,
        width=256,
        num_layers=12,
        num_heads=8,
        steps=24_000,
        batch_size=256,
        optimizer=OptimizerConfig(
            "muon", 2e-3, schedule="cosine", warmup_steps=1000, clip_norm=1.0
        ),
        curriculum=Curriculum(Ramp(5, 20, 1, 200), Ramp(11, 41, 2, 200)),
        precision="bfloat16",
        chunk_steps=250,
        checkpoint_every=6000,
    ),
    "paper": Config(
        dim=20,
        num_points=41,
        width=256,
        num_layers=12,
        num_heads=8,
        steps=500_001,
        batch_size=64,
        optimizer=OptimizerConfig("adam", 1e-4),
        curriculum=Curriculum(Ramp(5, 20, 1, 2000), Ramp(11, 41, 2, 2000)),
        precision="tf32",
        chunk_steps=1000,
        checkpoint_every=10_000,
    ),
}


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a config stands for."""

    config: Config
    model: GPT2
    task: LinearRegression
    optimizer: Any
    mesh: Any


def set_up(config: Config, devices: int | None) -> Setup:
    """Builds model, task, optimiser and mesh."""
    precision = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "highest"}
    jax.config.update("jax_default_matmul_precision", precision[config.precision])
    model = GPT2(
        dim=config.dim,
        # Garg's table has 101 points whatever the prompt; a small run needs no more.
        num_positions=202 if config.dim == 20 else 2 * config.num_points,
        width=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        mlp=config.mlp,
        init_std=config.init_std,
        dtype=jnp.bfloat16 if config.precision == "bfloat16" else jnp.float32,
    )
    task = LinearRegression.isotropic(config.dim, dtype=jnp.float32)
    optimizer = training.make_optimizer(config.optimizer, config.steps)
    mesh = training.data_mesh(devices)
    return Setup(config, model, task, optimizer, mesh if mesh.size > 1 else None)


def train(setup: Setup, run: _run.Run, console: Console) -> tuple[Any, list[dict], dict]:
    """Trains to the last step, from the newest checkpoint if there is one.

    Returns:
        The final parameters with a leading axis of seeds, the metrics, the timings.
    """
    config = setup.config
    state = training.init_state(
        setup.model,
        setup.task,
        setup.optimizer,
        config.seeds,
        num_points=config.num_points,
        mesh=setup.mesh,
    )
    store = training.Checkpoints(run.folder / "checkpoints")
    restored = store.restore(state)
    for line in restored.damaged:
        console.print(f"[yellow]warning:[/] {line}; the one before it is used")
    records: list[dict] = []
    if restored.state is not None:
        state, records = restored.state, restored.extra["metrics"]
        console.print(f"resuming at step {int(state.step[0]):,}")
    run.reset_metrics(records)

    step = training.make_step(
        setup.model,
        setup.task,
        setup.optimizer,
        config.curriculum,
        batch_size=config.batch_size,
        num_points=config.num_points,
        accumulation=config.accumulation,
        mesh=setup.mesh,
    )
    prompt = evaluation_prompt(setup)
    wanted = {_chunk_end(config, part * config.steps) for part in config.snapshots}
    rate = training.learning_rate(config.optimizer, config.steps)
    seconds = compile_seconds = 0.0
    begun = done = int(state.step[0])
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TextColumn("{task.fields[speed]:.0f} steps/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not run.writes) as progress:
        bar = progress.add_task(
            "training", total=config.steps, completed=done, loss=math.nan, speed=0.0
        )
        chunks = training.run(
            jax.vmap(step), state, config.steps, chunk_steps=config.chunk_steps
        )
        for chunk in chunks:
            done += len(chunk.metrics["loss"])
            state = chunk.state
            seconds += chunk.seconds
            compile_seconds += chunk.compile_seconds
            record = _record(config, rate, done, chunk.metrics)
            if done in wanted:
                errors = model_errors(setup, state.params, prompt)
                record["errors"] = errors.mean(axis=1).tolist()
            records.append(record)
            run.log(record)
            if done == config.steps or done % config.checkpoint_every < config.chunk_steps:
                store.save(done, state, {"metrics": records})
            progress.update(
                bar,
                completed=done,
                loss=float(np.mean(record["loss"])),
                speed=(done - begun) / seconds,
            )
    timing = {
        "steps": done - begun,
        "train_seconds": seconds,
        "compile_seconds": compile_seconds,
        "steps_per_second": (done - begun) / seconds if seconds else None,
        "model_steps_per_second": (done - begun) * len(config.seeds) / seconds
        if seconds
        else None,
    }
    return state.params, records, timing


def _chunk_end(config: Config, step: float) -> int:
    """First end of a chunk at or after ``step``."""
    return min(math.ceil(step / config.chunk_steps) * config.chunk_steps, config.steps)


def _record(config: Config, rate, done: int, metrics) -> dict:
    """One line of metrics: means over the chunk, a value a seed."""
    last = done - 1
    dims, points = int(config.curriculum.dims(last)), int(config.curriculum.points(last))
    means = {
        name: np.asarray(value, dtype=np.float64).mean(axis=0).tolist()
        for name, value in metrics.items()
    }
    bayes = sum(max(dims - k, 0) for k in range(points)) / points
    return {
        "step": done,
        **means,
        "least_squares_loss": bayes,
        "learning_rate": float(rate(last)),
        "active_dims": dims,
        "active_points": points,
    }


def evaluation_prompt(setup: Setup) -> PrefixPrompt:
    """Fresh prompts, the same for every model, predictor and step."""
    key = training.stream_key(setup.config.seeds[0], "evaluation")
    count = setup.config.eval_prompts
    return setup.task.sample(key, setup.config.num_points - 1, count).prefixes()


def model_errors(setup: Setup, params: Any, prompt: PrefixPrompt) -> np.ndarray:
    """Normalised squared errors of every seed's model, (seeds, prompts, points)."""
    per_seed = [
        training.prefix_errors(
            setup.model, jax.tree.map(lambda leaf, s=seed: leaf[s], params), prompt
        )
        for seed in range(len(setup.config.seeds))
    ]
    return np.asarray(jnp.stack(per_seed)) / setup.config.dim


def baseline_errors(config: Config, prompt: PrefixPrompt) -> dict[str, np.ndarray]:
    """Normalised squared errors of the predictors, (prompts, points) each."""
    penalty = config.ridge_penalty
    rules = {
        "least squares": predictors.ols_prefixes,
        f"ridge ({penalty:g})": lambda *a: predictors.ridge_prefixes(*a, penalty=penalty),
        "averaging": predictors.averaging_prefixes,
        "3-NN": lambda *a: predictors.nearest_neighbors_prefixes(*a, k=3),
    }

    def errors(rule):
        predictions = jax.jit(rule)(prompt.X, prompt.y, prompt.X_query)
        return np.asarray(jnp.square(predictions - prompt.y_query)) / config.dim

    return {name: errors(rule) for name, rule in rules.items()}


def interval(errors: np.ndarray) -> Curve:
    """Mean over prompts with its 90 % bootstrap interval."""
    limits = risks.bootstrap_interval(jnp.asarray(errors), jax.random.key(0))
    return Curve(errors.mean(axis=0), np.asarray(limits.low), np.asarray(limits.high))


def transformer_curve(config: Config, errors: np.ndarray) -> Curve:
    """Mean over seeds and prompts; over one seed the interval is that of the prompts.

    With several seeds the interval also carries the spread between them: 1.645 standard
    errors of the seeds' means are added to that of the prompts in quadrature.
    """
    pooled = interval(errors.mean(axis=0))
    seeds = errors.shape[0]
    if seeds == 1:
        return pooled
    spread = 1.645 * errors.mean(axis=1).std(axis=0, ddof=1) / math.sqrt(seeds)
    below, above = pooled.mean - pooled.low, pooled.high - pooled.mean
    return Curve(
        pooled.mean,
        pooled.mean - np.hypot(below, spread),
        pooled.mean + np.hypot(above, spread),
    )


def exact_curves(setup: Setup) -> dict[str, np.ndarray]:
    """Risks that are known in closed form, normalised by d."""
    rules = {
        OPTIMUM: lambda k: risks.linear_attention_optimum(setup.task, k).risk,
        "least squares": functools.partial(risks.least_squares_risk, setup.task),
        "averaging": functools.partial(risks.averaging_risk, setup.task),
    }
    ks = jnp.arange(setup.config.num_points)
    return {
        name: np.asarray(jax.vmap(rule)(ks)) / setup.config.dim
        for name, rule in rules.items()
    }


def checks(
    config: Config, errors: np.ndarray, baselines: dict, exact: dict
) -> list[_run.Check]:
    """What the run should show, each number beside what it is compared with."""
    d, mean = config.dim, errors.mean(axis=(0, 1))
    at = 2 * d
    found = [
        _run.Check(
            f"Transformer against least squares at k = {at}",
            float(mean[at]),
            float(baselines["least squares"][:, at].mean()),
            "<=",
            0.05,
        ),
        _run.Check(
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
            _run.Check(
                f"{name}, Monte Carlo against exact at k = {k}",
                float(sample.mean()),
                float(exact[name][k]),
                "within",
                5 * float(sample.std(ddof=1)) / math.sqrt(len(sample)),
            )
        )
    if d == 20:
        for k, reference in PAPER_ERRORS.items():
            name = f"Transformer against the published error at k = {k}"
            found.append(_run.Check(name, float(mean[k]), reference, "<="))
    return found


def comparison_table(config: Config, curves: dict[str, Curve]) -> Table:
    """k against every predictor, each with its 90 % interval."""
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


def report(
    setup: Setup, run: _run.Run, params: Any, records: list[dict], timing: dict, console
) -> dict:
    """Measures the final model, draws the figures, writes and prints the results."""
    config = setup.config
    prompt = evaluation_prompt(setup)
    errors = model_errors(setup, params, prompt)
    baselines = baseline_errors(config, prompt)
    exact = exact_curves(setup)
    curves = {TRANSFORMER: transformer_curve(config, errors)}
    curves |= {name: interval(sample) for name, sample in baselines.items()}
    curves[OPTIMUM] = Curve(exact[OPTIMUM], exact=True)

    title = f"In-context linear regression, d = {config.dim}"
    run.save_figure(
        "figure5a.png", plotting.error_against_examples(curves, config.dim, title)
    )
    snapshots = {
        record["step"]: Curve(np.mean(record["errors"], axis=0))
        for record in records
        if "errors" in record
    }
    reference = ("least squares (exact)", Curve(exact["least squares"], exact=True))
    run.save_figure(
        "figure5b.png",
        plotting.errors_over_training(
            snapshots, reference, config.dim, f"{title}: the Transformer as it trains"
        ),
    )

    found = checks(config, errors, baselines, exact)
    result = {
        "checks": [check.as_dict() for check in found],
        "passed": all(check.passed for check in found),
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
        "timing": timing,
        "precision": config.precision,
    }
    console.print(comparison_table(config, curves))
    for check in found:
        verdict = "[green]pass[/]" if check.passed else "[red]FAIL[/]"
        console.print(
            f"{verdict}  {check.name}: {check.measured:.4f} {check.relation} "
            f"{check.reference:.4f} (+- {check.tolerance:.4f})"
        )
    return result


def report_shifts(setup: Setup, run: _run.Run, params: Any, console: Console) -> dict:
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
    console.print(table)
    title = f"Garg's evaluation settings, d = {config.dim}"
    run.save_figure("shifts.png", plotting.errors_by_setting(panels, title))
    return results


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--eval-shifts", action="store_true")
    parser.add_argument("--devices", type=int)
    parser.add_argument("--coordinator")
    parser.add_argument("--num-processes", type=int, default=1)
    parser.add_argument("--process-id", type=int, default=0)


def default_preset() -> str:
    """``gpu`` where there is one, else ``cpu``; asking touches the device."""
    return "gpu" if jax.default_backend() == "gpu" else "cpu"


def console_of(run: _run.Run) -> Console:
    """A console wide enough for the table also where the output is no terminal."""
    console = Console(quiet=not run.writes)
    return console if console.is_terminal else Console(quiet=not run.writes, width=120)


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="A transformer learns linear regression in context.",
        add_flags=_flags,
    )
    flags = launch.flags
    if flags.num_processes > 1:
        training.initialize_distributed(
            flags.coordinator, flags.num_processes, flags.process_id
        )
    config = launch.config
    setup = set_up(config, flags.devices)
    if launch.resume is None:
        run = _run.Run.create(launch.output, NAME, launch.preset, config)
    else:
        run = _run.Run(launch.resume)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: d = {config.dim}, {config.num_layers} layers, "
        f"{config.steps:,} steps of {config.batch_size} prompts, {config.precision} on "
        f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start = time.perf_counter()
    params, records, timing = train(setup, run, console)
    if setup.mesh is not None:
        params = jax.device_get(params)
    result = report(setup, run, params, records, timing, console)
    if flags.eval_shifts:
        result["shifts"] = report_shifts(setup, run, params, console)
    timing["total_seconds"] = time.perf_counter() - start
    run.write_json("result.json", result)
    console.print(
        f"{timing['total_seconds']:.0f} s in all, {timing['train_seconds']:.0f} s of "
        f"steps, {timing['compile_seconds']:.0f} s of compiling; results, figures and "
        f"checkpoints in {run.folder}"
    )
    return json.loads(json.dumps(result))


if __name__ == "__main__":
    _run.main(main)
