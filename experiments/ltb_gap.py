"""What an MLP saves: the best LSA, LTB and Bayes (Zhang, Wu and Bartlett, Theorem 4.1).

x ~ N(0, I), w ~ N(beta*, I), noise sigma^2. Along ||beta*||, M, d and sigma^2: exact
risks of the best LSA, the best LTB (= GD-beta), Bayes and trained layers, and bounds;
then the ratio over ||beta*|| and M, and the hill that keeps a descent in a spurious
minimum of the LTB. Training is float32, the rest float64.
"""

import dataclasses
import functools
import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, check_at_least, largest
from experiments.shared.training import clipped_adam, descended, drawn_states, fit
from icltheory import regression as reg
from icltheory.plotting import COLOURS, METHODS
from icltheory.plotting.style import colours, plain_log_axis
from icltheory.statistics import Estimate

# What varies, one at a time, and how the figures call it.
AXES = {
    "mean_norm": r"length of the prior mean, $\|\beta^*\|$",
    "num_examples": "examples, M",
    "dim": "dimension, d",
    "noise_var": r"noise variance, $\sigma^2$",
}
# Name, colour, line and marker of what is drawn.
LOOKS = {
    "lsa": ("attention alone", METHODS["LSA"], "-", "o"),
    "ltb": ("with an MLP", METHODS["LTB"], "-", "s"),
    "bayes": ("Bayes", METHODS["Bayes"], "--", ""),
}
# Constructions of an LSA, each with an upper bound on the gap.
CONSTRUCTIONS = {
    "labels": "start guessed from the labels' size",
    "values": "start from the values",
    "rank_one": "one direction only",
    "zero_start": "start at zero (GD-0)",
}
ON = ("dots", "line")  # the entries of a row that name the axes on which it is
HILLS = (0.02, 0.1, 0.3, 1.0)  # phi_2 / phi_1, of problems with d = 2


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings, and how the models are trained."""

    dim: int = 5  # input dimension d where it does not vary
    num_examples: int = 20  # examples M where they do not vary
    mean_norm: float = 3.0  # ||beta*|| where it does not vary
    noise_var: float = 0.25  # noise variance sigma^2 where it does not vary
    # values of ||beta*|| with trained models
    mean_norms: tuple[float, ...] = (0.1, 0.5, 1.5, 3.0, 10.0)
    examples: tuple[int, ...] = (5, 10, 20, 40)  # values of M with trained models
    dims: tuple[int, ...] = (1, 2, 5, 8)  # values of d with trained models
    # values of sigma^2 with trained models
    noise_vars: tuple[float, ...] = (0.01, 0.25, 1.0, 5.0)
    seeds: tuple[int, ...] = (0, 1, 2, 3)  # seeds of the trained models
    steps: int = 3000  # training steps
    batch_size: int = 32  # prompts per step; an LSA and an LTB of a seed share them
    learning_rate: float = 0.02  # largest step size of Adam
    init_std: float = 0.3  # standard deviation of the random starts
    bayes_samples: int = 4000  # draws of the inputs for the Bayes risk
    phase_points: int = 50  # side of the grid of the phase picture
    chunk_steps: int = 200  # steps per dispatch, and per line of metrics.jsonl
    checkpoint_every: int = 1000  # steps between checkpoints

    def __post_init__(self):
        counts = ("dim", "num_examples", "steps", "batch_size", "phase_points")
        check_at_least(self, 1, *counts, "chunk_steps", "checkpoint_every")
        check_at_least(self, 2, "bayes_samples")
        check_at_least(self, 0, "mean_norm", "noise_var")
        lists = ("mean_norms", "examples", "dims", "noise_vars")
        frame.check_each(self, "above 0", *lists)
        frame.check_seeds("seeds", self.seeds)


PRESETS = {
    "cpu": Config(),
    "gpu": Config(seeds=tuple(range(16)), steps=20_000, batch_size=256),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "50 s, 2 cores"}


def settings(config: Config) -> list[dict]:
    """Distinct problems, and the axes on whose lines and among whose dots each is."""

    def around(values):
        return np.geomspace(min(values) / 2, 2 * max(values), 33).tolist()

    lengths = config.examples
    spread = np.geomspace(max(1, min(lengths) / 2), 2 * max(lengths), 16).tolist()
    base = {name: getattr(config, name) for name in AXES}
    found: dict[tuple, dict] = {}
    for axis, *both in (
        ("mean_norm", config.mean_norms, around(config.mean_norms)),
        ("num_examples", lengths, {*map(round, spread), *lengths}),
        ("dim", config.dims, range(1, max(config.dims) + 3)),
        ("noise_var", config.noise_vars, around(config.noise_vars)),
    ):
        for where, values in zip(ON, both, strict=True):
            for value in values:
                row = base | {axis: value}
                new = row | {where: set() for where in ON}
                found.setdefault(tuple(row.values()), new)[where].add(axis)
    return list(found.values())


def along(rows: list[dict], where: str, axis: str) -> list[dict]:
    """The rows of an axis's dots or line, in ascending order."""
    return sorted((r for r in rows if axis in r[where]), key=lambda row: row[axis])


def columns(rows: list[dict]) -> dict[str, jax.Array]:
    """The values of the problems as one array for each of the axes."""
    return {name: jnp.asarray([row[name] for row in rows]) for name in AXES}


def problem(at: Any, width: int) -> reg.LinearPopulation:
    """The problem of a row in ``width`` dimensions, of which ``dim`` have inputs."""
    # H is singular beyond them, so that one program serves every d.
    there = (jnp.arange(width) < at["dim"]).astype(jnp.result_type(float))
    mean, cov = at["mean_norm"] * there / jnp.sqrt(at["dim"]), jnp.diag(there)
    return reg.LinearPopulation(cov, mean, cov, at["noise_var"])


def train(config: Config, rows: list[dict], run: Any) -> None:
    """Adds to each row with dots the exact risks of trained models, one per seed."""
    rows = [row for row in rows if row["dots"]]
    cases = list(itertools.product(rows, config.seeds))
    width, length = (max(row[n] for row in rows) for n in ("dim", "num_examples"))
    optimizer = clipped_adam(config.learning_rate, config.steps)

    def draw(key):
        shape = 6, width + 1, width + 1
        weights = config.init_std * jax.random.normal(key, shape, jnp.float32)
        return {"lsa": reg.LSA(*weights[:4]), "ltb": reg.LTB(*weights)}

    def loss(models, key, task, M):
        prompt = task.sample(key, length, config.batch_size)
        # Answers are quadratic in the examples and divide by all rows, not by M.
        seen = jnp.where(jnp.arange(length) < M, jnp.sqrt(length / M), 0)[None]
        X, y = prompt.X * seen[..., None], prompt.y * seen
        prompt = dataclasses.replace(prompt, X=X, y=y)
        errors = [reg.squared_errors(m.effective(), prompt) for m in models.values()]
        return sum(map(jnp.mean, errors)) / jnp.mean(prompt.y_query**2)

    def problems():
        at = columns([row for row, _ in cases])
        make = jax.jit(jax.vmap(lambda at: problem(at, width)))
        return make(at), at["num_examples"]

    drawn = problems()
    begun = drawn_states(draw, optimizer, [seed for _, seed in cases])
    step = jax.vmap(functools.partial(descended, loss, optimizer))
    label = f"training {2 * len(cases)} models"
    fitted = fit(lambda s: step(s, *drawn), begun, run, config, label=label)
    with jax.enable_x64(True):
        exact = jax.jit(jax.vmap(reg.risk))
        for name, model in fitted.state.params.items():
            wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), model)
            risks = np.asarray(exact(wide, *problems())).reshape(len(rows), -1)
            for row, own in zip(rows, risks, strict=True):
                row[f"trained_{name}"] = own


def theory(config: Config, rows: list[dict]) -> None:
    """Adds the best risks, bounds on the best LSA and the Bayes risk to the rows."""
    width = max(row["dim"] for row in rows)

    @jax.jit
    @jax.vmap
    def best(at):
        task, M = problem(at, width), at["num_examples"]
        lsa, ltb = best_risks(task, M)
        gap, bounds = reg.gap(task, M), ("lower", "lower_instance", "upper")
        return {"lsa": lsa, "ltb": ltb} | {n: ltb + getattr(gap, n) for n in bounds}

    found = best(columns(rows))
    for i, row in enumerate(rows):
        row |= {name: float(values[i]) for name, values in found.items()}

    def bayes(task, lengths, seed):
        drawn = {"key": jax.random.key(seed), "num_prompts": config.bayes_samples}
        return tuple(reg.estimate_risk(reg.Bayes(task), task, lengths, **drawn))

    # Either M is that of the config, or all but M is, and M takes all values at once.
    usual = [row for row in rows if row["num_examples"] == config.num_examples]
    others = [row for row in rows if row["num_examples"] != config.num_examples]
    fixed = jax.vmap(lambda at: bayes(problem(at, width), config.num_examples, 1))
    pairs = list(zip(usual, *jax.jit(fixed)(columns(usual)), strict=True))
    if others:
        lengths = [row["num_examples"] for row in others]
        task = reg.LinearPopulation.isotropic(config.dim, config.noise_var)
        mean, error = bayes(task, range(max(lengths) + 1), 2)
        pairs += [(r, mean[M], error[M]) for r, M in zip(others, lengths, strict=True)]
    for row, mean, error in pairs:
        row |= {"bayes": float(mean), "bayes_error": float(error)}


def best_risks(task: reg.LinearPopulation, M: Any) -> tuple[Any, Any]:
    """The risks of the best LSA and of the best LTB."""
    lsa = reg.optimum(reg.LSA, task, M, key=jax.random.key(0))
    return lsa.risk, reg.optimum(reg.LTB, task, M).risk


def phases(config: Config) -> dict[str, Any]:
    """Both risks and the construction of the least bound over ||beta*|| and M."""
    begun, side = time.perf_counter(), config.phase_points
    norms = np.geomspace(0.03, 100, side)
    # Distinct whole numbers, as many as the side, evenly spaced on a log scale.
    spaced = (np.geomspace(1, 300, n).round() for n in itertools.count(side))
    found = next(x for x in map(np.unique, spaced) if len(x) >= min(side, 300))
    examples = found.astype(int)

    @jax.jit
    @jax.vmap
    def one(norm, M):
        fixed = {"dim": config.dim, "noise_var": config.noise_var}
        task = problem(fixed | {"mean_norm": norm}, config.dim)
        gap = reg.gap(task, M)
        bounds = jnp.stack([getattr(gap, name) for name in CONSTRUCTIONS])
        return *best_risks(task, M), jnp.argmin(bounds)

    grid = np.meshgrid(norms, examples)
    found = one(*(jnp.asarray(values.ravel()) for values in grid))
    found = [np.asarray(values).reshape(grid[0].shape) for values in found]
    named = dict(zip(("lsa", "ltb", "closest"), found, strict=True))
    named |= {"mean_norms": norms, "examples": examples}
    return named | {"seconds": time.perf_counter() - begun}


def hills(config: Config) -> dict[float, np.ndarray]:
    """Excess over that of the spurious minimum on the arc to a best LTB, by phi_2."""
    flat = {"dim": 2, "mean_norm": 0.0, "noise_var": config.noise_var}
    angles, found = jnp.linspace(0, jnp.pi / 2, 181), {}
    for ratio in HILLS:
        task = problem(flat, 2).with_(task_cov=jnp.diag(jnp.asarray([1.0, ratio])))
        # M = 2, as few examples make the spurious point a strict minimum.
        profile = reg.landscape.excess_profile(task, 2, angles)
        found[ratio] = np.asarray(profile / profile[0])
    return found


def checks(rows: list[dict], grid: dict[str, Any]) -> list[Check]:
    """Statements of the theory about best and trained models."""
    dots = [row for row in rows if row["dots"]]
    below = largest(row["lower_instance"] / row["lsa"] for row in rows)
    above = largest(row["lsa"] / row["upper"] for row in rows)
    bayes = largest((row["bayes"] - row["ltb"]) / row["bayes_error"] for row in rows)
    lsa = largest(row["lsa"] / row["trained_lsa"].min() for row in dots)
    ltb = largest(row["ltb"] / row["trained_ltb"].min() for row in dots)
    far = (grid["lsa"] - grid["ltb"])[:, -1] / grid["mean_norms"][-1] ** 2
    limit = (far * (grid["examples"] + 2) / 2).mean()
    name = "gap (M + 2) / (2 ||beta*||^2), ||beta*|| = 100, mean over M"
    return [
        Check("largest (LTB + instance bound) / best LSA", below, 1.0, "<=", 1e-9),
        Check("largest best LSA / (LTB + upper bound)", above, 1.0, "<=", 1e-9),
        Check("(Bayes - LTB) / standard error, largest", bayes, 4.0, "<="),
        Check("best LSA / best trained LSA, largest", lsa, 1.0, "<=", 1e-6),
        Check("best LTB / best trained LTB, largest", ltb, 1.0, "<=", 1e-6),
        Check(name, limit, 1.0, "within", 0.02),
        Check("phase picture: seconds", grid["seconds"], 60.0, "<="),
    ]


def numbers(rows: list[dict]) -> list[dict]:
    found = []
    for row in (row for row in rows if row["dots"]):
        own = {name: value for name, value in row.items() if name not in ON}
        for name in ("lsa", "ltb"):
            reached = np.sum(row[f"trained_{name}"] <= 1.1 * row[name])
            own[f"trained_{name}_reached"] = int(reached)
        found.append(own)
    return found


def risk_table(config: Config, rows: list[dict]) -> Any:
    """The risks of :func:`numbers`, and the gap over the lower bound."""
    lines, count = [], len(config.seeds)
    for row in rows:
        gap = (row["lsa"] - row["ltb"]) * (row["num_examples"] + 1)
        line = {"share": gap / row["mean_norm"] ** 2, "count": count}
        for name in ("lsa", "ltb"):
            line[f"median_{name}"] = np.median(row[f"trained_{name}"])
        lines.append(row | line)
    columns = {"d": "{dim}", "M": "{num_examples}", "||beta*||": "{mean_norm:g}"}
    columns |= {"sigma^2": "{noise_var:g}", "Bayes": "{bayes:.4g}"}
    for name in ("ltb", "lsa"):
        trained = f"{{median_{name}:.4g}} ({{trained_{name}_reached}}/{{count}})"
        columns[f"best {name.upper()}"] = f"{{{name}:.4g}}"
        columns[f"trained {name.upper()}"] = trained
    columns["gap (M+1) / ||beta*||^2"] = "{share:.3f}"
    title = f"risks, query noise included; trained: median of {count} seeds (how many "
    return frame.table(lines, columns, title + "within 10 % of the best)")


def draw_risks(config: Config, rows: list[dict]) -> Any:
    """Exact risks as lines and trained models as dots, one panel for each axis."""
    title = f"d = {config.dim}, M = {config.num_examples}, $\\|\\beta^*\\|$ = "
    title += f"{config.mean_norm:g}, $\\sigma^2$ = {config.noise_var:g} unless varied\n"
    title += (
        "lines: exact risk of the best model; shaded: bounds of Theorem 4.1 on the "
    )
    title += "best attention alone (LSA)\ndots: trained, geometric mean and 95 % "
    title += f"interval of {len(config.seeds)} random starts"
    with frame.panels(2, 2, title, figsize=(9.6, 7.0)) as (figure, grid):
        for axes, (axis, label) in zip(grid.flat, AXES.items(), strict=True):
            line, dots = (along(rows, where, axis) for where in ("line", "dots"))
            x, at = ([row[axis] for row in own] for own in (line, dots))
            band = ([row[name] for row in line] for name in ("lower_instance", "upper"))
            axes.fill_between(x, *band, color=METHODS["LSA"], alpha=0.15, lw=0)
            ends, drawn = [], []
            for name, (words, colour, style, marker) in LOOKS.items():
                best = [row[name] for row in line]
                axes.plot(x, best, style, color=colour, label=words)
                ends.append((best[-1], words, colour))
                drawn += best
                if marker:
                    risks = [row[f"trained_{name}"] for row in dots]
                    logs = Estimate.of(np.log(np.stack(risks, axis=1)))
                    mean, *bars = np.exp([logs.mean, *logs.interval(0.95)])
                    look = {"fmt": marker, "ms": 5, "capsize": 3, "mec": "white"}
                    axes.errorbar(at, mean, np.abs(bars - mean), color=colour, **look)
                    drawn += mean.tolist()
            if axis != "dim":
                axes.set_xscale("log")
                axes.set_xticks(at, [f"{value:g}" for value in at])
                axes.set_xticks([], minor=True)
            # Bounds may lie outside.
            plain_log_axis(axes.yaxis, max(drawn) / min(drawn))
            axes.set_ylim(min(drawn) / 1.3, max(drawn) * 1.3)
            frame.name_ends(axes, ends)
            axes.set(xlabel=label, ylabel="risk, noise included")
    return figure


def draw_phases(config: Config, grid: dict[str, Any]) -> Any:
    """The ratio of the best LSA's risk to the best LTB's, over ||beta*|| and M."""
    from matplotlib.colors import LogNorm

    norms, examples = grid["mean_norms"], grid["examples"]
    ratio, levels = grid["lsa"] / grid["ltb"], [1.01, 1.1, 2, 10, 100]
    look: Any = {"textcoords": "offset points", "va": "center", "fontsize": 8}
    look["bbox"] = {"boxstyle": "round", "fc": "white", "ec": COLOURS[2]}
    with frame.panels(figsize=(8, 5.6)) as (figure, axes):
        axes.grid(visible=False)
        scale = LogNorm(1, max(10.0, float(ratio.max())))
        mesh = axes.pcolormesh(norms, examples, ratio, norm=scale, cmap="viridis")
        bar = figure.colorbar(mesh, label="risk of the best LSA / risk of the best LTB")
        bar.ax.grid(visible=False)
        lines = axes.contour(norms, examples, ratio, levels, colors="white")
        axes.clabel(lines, fmt=lambda x: f"{x:g}", fontsize=8)
        for i, name in enumerate(CONSTRUCTIONS.values()):
            inside, thin = grid["closest"] == i, {"colors": COLOURS[2], "linewidths": 1}
            if inside.mean() < 0.01:
                continue
            axes.contour(norms, examples, inside, [0.5], **thin)
            row, column = (int(np.median(index)) for index in np.nonzero(inside))
            x, shift, ha = norms[column], 0, "center"
            if column < len(norms) // 6:
                x, shift, ha = norms[0], 4, "left"
            axes.annotate(name, (x, examples[row]), (shift, 0), ha=ha, **look)
        axes.set(xscale="log", xlabel=AXES["mean_norm"], ylabel=AXES["num_examples"])
        # There is no prompt without an example, so the axis begins at M = 1.
        axes.set(yscale="log", ylim=(float(examples.min()), float(examples.max())))
        title = f"What an MLP saves (d = {config.dim}, $\\sigma^2$ = "
        title += f"{config.noise_var:g})\nboxes: the construction whose closed-form "
        axes.set_title(title + "bound is the least there")
    return figure


def draw_hills(config: Config, arcs: dict[float, np.ndarray]) -> Any:
    """The excess risk along the arc from a spurious minimum to a best LTB."""
    with frame.panels(figsize=(7, 4.6)) as (figure, axes):
        for (ratio, excess), colour in zip(arcs.items(), colours(1), strict=False):
            angles = np.linspace(0, 90, len(excess))
            label = rf"$\phi_2 / \phi_1$ = {ratio:g}"
            axes.plot(angles, excess, color=colour, label=label)
        axes.axhline(1, color="grey", ls=":", lw=1)
        plain_log_axis(axes.yaxis, 1e2)
        axes.set(xlim=(0, 90), xticks=[0, 30, 60, 90])
        axes.set_ylim(1e-2, 2 * largest(map(np.max, arcs.values())))
        axes.set_xlabel("angle in degrees: 0 is the spurious point, 90 a best LTB")
        axes.set_ylabel("excess risk / excess of the spurious point")
        title = "Least excess risk of an LTB on the way to the best one\n"
        title += f"d = 2, M = 2, $\\phi_1$ = 1, $\\sigma^2$ = {config.noise_var:g}"
        axes.set_title(title)
        axes.legend()
    return figure


def report(config: Config, rows: list[dict], grid: dict, arcs: dict) -> Report:
    trained, kept = numbers(rows), "float32 training; risks and optima in float64"
    seconds, risks = grid["seconds"], draw_risks(config, rows)
    figures = {"risks.png": risks, "phases.png": draw_phases(config, grid)}
    return Report(
        {"settings": trained, "phase_seconds": seconds, "precision": kept},
        checks=checks(rows, grid),
        tables=[risk_table(config, trained)],
        figures=figures | {"hills.png": draw_hills(config, arcs)},
        interval_level=0.95,
        axes={"settings.*.trained_lsa": ["seed"], "settings.*.trained_ltb": ["seed"]},
    )


@frame.experiment(PRESETS)
def main(config, run):
    rows = settings(config)
    with run.phase("training"):
        train(config, rows, run)
    with run.phase("theory"), jax.enable_x64(True):
        theory(config, rows)
        grid, arcs = phases(config), hills(config)
    return report(config, rows, grid, arcs)


frame.program(__name__, main)
