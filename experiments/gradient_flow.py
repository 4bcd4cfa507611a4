"""Gradient flow on exact risks: its limits, its rates, and the local minima it meets.

Theorem 6.3 of Zhang, Wu and Bartlett (2024): the flow of GD-beta from a random start,
for a regular and a singular H, beside its limit and its proved bounds. Then gradient
descent on the exact risk at several step sizes, and on fresh prompts at several batch
sizes, beside the flow. Then what the theorem does not cover: the flow of all weights of
an LTB, and of an LSA at beta* = 0, from many random starts; the share that reaches the
least risk, and whether the rest lies at the spurious minimum of
``regression.landscape.spurious_minimum``. Everything is float64.
"""

import dataclasses
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from experiments.frame import (
    Check,
    Report,
    check_at_least,
    experiment,
    program,
    table,
)
from icltheory import regression as reg
from icltheory.plotting import COLOURS, STYLE, Curve, error_curves, heat_map, name_ends
from icltheory.plotting.grid import axes_in_rows
from icltheory.plotting.style import colours
from icltheory.statistics import Estimate, proportion_interval

MODELS = {"LTB": reg.LTB, "LSA, beta* = 0": reg.LSA}
# How a start can end, and the colour of those that do.
BEST, CAUGHT, ELSEWHERE = "least risk", "spurious minimum", "at rest elsewhere"
FATES = {
    BEST: COLOURS[3],
    CAUGHT: COLOURS[2],
    "another stationary point known": COLOURS[5],
    ELSEWHERE: COLOURS[4],
    "still moving": "#888888",
}
ARRIVED = 1e-6  # excess relative to the least risk
AT = 1e-3  # distance relative to the excess of a stationary point
MOVING = 1e-3  # relative fall of the excess between the last two records
DISTANCE = "distance_from_limit"
RECORDS = 100  # records of a descent on the exact risk


@dataclasses.dataclass(frozen=True)
class Config:
    """Problems of the gradient flows, and how much is measured."""

    dim: int = 5  # input dimension d of the flow of GD-beta
    num_examples: int = 10  # its examples M
    condition: float = 8.0  # largest over smallest positive eigenvalue of H
    null_dim: int = 2  # directions without inputs in the singular case
    noise_var: float = 0.25  # variance of the label noise, here and below
    points: int = 121  # times at which a path is recorded
    descent_dim: int = 3  # dimension d for descent in steps and on samples
    # step sizes of gradient descent over the largest stable one
    step_shares: tuple[float, ...] = (0.05, 0.25, 0.9)
    batch_sizes: tuple[int, ...] = (8, 32, 128)  # prompts per step of it on samples
    sgd_share: float = 0.2  # its step size over the largest stable one
    seeds: int = 16  # runs of descent on samples at each batch size
    sgd_steps: int = 1600  # steps of each run
    dims: tuple[int, ...] = (2, 2, 3, 3)  # d of the settings with random starts
    lengths: tuple[int, ...] = (2, 16, 3, 24)  # examples M of those settings
    num_starts: int = 200  # random starts in each setting
    start_scale: float = 0.3  # standard deviation of the weights at the start
    end_time: float = 300.0  # time at which those flows end
    max_steps: int = 10_000  # steps of the solver after which a flow is unfinished
    seed: int = 0  # seed of all draws

    def __post_init__(self):
        if not 0 < self.null_dim < self.dim:
            raise ValueError(
                f"null_dim: expected 1 to dim - 1 = {self.dim - 1}, got {self.null_dim}"
            )
        if len(self.dims) != len(self.lengths):
            raise ValueError(
                f"lengths: expected one for each of {len(self.dims)} dims, "
                f"got {len(self.lengths)}"
            )
        if min(self.dims) < 2:
            raise ValueError(f"dims: expected at least 2, got {self.dims}")
        check_at_least(self, 2, "seeds", "num_starts")
        check_at_least(self, 3, "points")
        counts = ("num_examples", "descent_dim", "sgd_steps", "max_steps")
        check_at_least(self, 1, *counts, "condition")
        check_at_least(self, 0, "noise_var", "end_time")
        for name in ("step_shares", "batch_sizes"):
            if not getattr(self, name):
                raise ValueError(f"{name}: expected at least one value, got none")
        if self.sgd_steps % 40:
            raise ValueError(
                f"sgd_steps: expected a multiple of 40, got {self.sgd_steps}"
            )


_LARGE = Config(dim=20, num_examples=40, null_dim=5)
PRESETS = {
    "cpu": Config(),
    "gpu": dataclasses.replace(
        _LARGE,
        seeds=64,
        num_starts=4096,
        dims=(2, 2, 2, 4, 4, 4, 8, 8),
        lengths=(2, 8, 32, 4, 16, 64, 8, 64),
    ),
    "paper": dataclasses.replace(
        _LARGE,
        seeds=32,
        num_starts=1000,
        dims=(2, 2, 2, 4, 4, 4),
        lengths=(2, 8, 32, 4, 16, 64),
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1.5 to 3 min, 2 cores"}


# --- the flow of GD-beta beside its bounds


def draw_population(config: Config, null: int) -> reg.LinearPopulation:
    """A population with random axes whose last ``null`` eigenvalues of H are 0."""
    dim = config.dim
    rng = np.random.default_rng([config.seed, dim, null])
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    seen = np.geomspace(1, 1 / config.condition, dim - null)
    H = (axes * np.append(seen, np.zeros(null))) @ axes.T
    A, mean = rng.normal(size=(dim, dim)), rng.normal(size=dim)
    return reg.LinearPopulation((H + H.T) / 2, mean, A @ A.T / dim, config.noise_var)


def draw_start(config: Config, dim: int) -> reg.GDBeta:
    """A start that is far from every optimum."""
    rng = np.random.default_rng([config.seed, dim, 99])
    beta, Gamma = rng.normal(size=dim), rng.normal(size=(dim, dim)) / dim**0.5
    return reg.GDBeta(jnp.asarray(beta), jnp.asarray(Gamma))


def measure_paths(config: Config) -> dict[str, dict]:
    """For each kind of H the flow, its limit, and distances beside their bounds."""
    found, M = {}, config.num_examples
    for name, null in (("regular H", 0), ("singular H", config.null_dim)):
        population = draw_population(config, null)
        start = draw_start(config, config.dim)
        first = reg.flow_bounds(start, population, M, np.zeros(1))
        end = 30 / min(float(first.alpha), float(first.gamma) / 2)
        times = np.append(0, np.geomspace(1e-2, end, config.points - 1))
        path = reg.flow(start, population, M, times, rtol=1e-9, atol=1e-14)
        limit = reg.flow_limit(start, population, M)
        best = reg.landscape.minimizers(population, M)
        bounds = reg.flow_bounds(start, population, M, times)
        to_beta, to_Gamma = jax.jit(jax.vmap(best.distance))(path.model)
        rates = {"sharp rate, 4/(M+2)": bounds.beta, "rate 2/(M+1)": bounds.beta_text}
        curves = {
            "start": (to_beta, rates),
            "preconditioner": (to_Gamma, {"Lemma G.6": bounds.Gamma}),
            "excess": (path.excess, {"from both bounds": bounds.excess}),
        }
        # Below these sizes the curves are rounding.
        rounding = {"start": 1e-12, "preconditioner": 1e-11, "excess": 1e-22}
        far = jax.tree.map(lambda x, end: abs(x[-1] - end).max(), path.model, limit)
        numbers = {
            "succeeded": float(path.succeeded),
            "steps": float(path.num_steps),
            "excess": float(path.excess[-1]),
            "risk": float(path.risk[-1]),
            DISTANCE: float(max(jax.tree.leaves(far))),
            "frozen_part_moved": frozen(path.model, np.asarray(best.projector)),
        }
        for part, (values, proved) in curves.items():
            seen, bound = values > rounding[part], next(iter(proved.values()))
            numbers[f"share_{part}"] = float((values[seen] / bound[seen]).max())
        arrays = {"times": times, "beta": path.model.beta, "Gamma": path.model.Gamma}
        found[name] = {**arrays, "limit": limit, "curves": curves, **numbers}
    return found


def frozen(model: reg.GDBeta, P: np.ndarray) -> float:
    """The largest change of what the inputs do not span."""
    beta, Gamma = np.asarray(model.beta), np.asarray(model.Gamma)
    in_beta = (beta - beta[:1]) @ (np.eye(len(P)) - P)
    change = Gamma - Gamma[:1]
    return float(max(np.abs(in_beta).max(), np.abs(change - P @ change @ P).max()))


# --- descents beside the flow


def measure_descents(config: Config) -> dict[str, Any]:
    """Excess of the flow, of descent in steps and of descent on samples over time."""
    d, M = config.descent_dim, config.num_examples
    start = draw_start(config, d)
    mean = np.random.default_rng([config.seed, d]).normal(size=d)
    population = reg.LinearPopulation.isotropic(d, config.noise_var, mean=mean)
    largest = largest_step(population, M, start)
    eta, every = config.sgd_share * largest, config.sgd_steps // 40
    end = eta * config.sgd_steps
    times = np.append(0, np.geomspace(end / 1e4, end, config.points - 1))
    smooth = reg.flow(start, population, M, times)
    steps, distances, sampled = {}, {}, {}
    for share in config.step_shares:
        size = share * largest
        apart = int(np.ceil(end / size / RECORDS))
        made = {"steps": apart * RECORDS, "record_every": apart}
        path = reg.descend(start, population, M, size, **made)
        exact = reg.flow(start, population, M, path.times)
        steps[share] = np.asarray(path.times), np.asarray(path.excess)
        distances[share] = float(abs(path.model.Gamma - exact.model.Gamma).max())
    keys = jax.random.split(jax.random.key(config.seed), config.seeds)
    for batch in config.batch_sizes:

        def excess(key, batch=batch):
            drawn = {"key": key, "batch_size": batch, "record_every": every}
            sizes = eta, config.sgd_steps
            return reg.descend(start, population, M, *sizes, **drawn).excess

        sampled[batch] = np.asarray(jax.lax.map(excess, keys))
    return {
        "largest_step": largest,  # 2 over the largest curvature
        "flow": (times, np.asarray(smooth.excess)),
        "steps": steps,
        "distances": distances,  # of Gamma from the flow's, the largest
        "sampled_times": eta * np.arange(0, config.sgd_steps + 1, every),
        "sampled": sampled,
        # mean and standard error over the last quarter
        "settled": {
            batch: [float(x) for x in Estimate.of(values[:, -(41 // 4) :].mean(axis=1))]
            for batch, values in sampled.items()
        },
    }


def largest_step(population: reg.LinearPopulation, M: int, start: reg.GDBeta) -> float:
    """Largest stable step: 2 over the largest curvature at start and optimum."""
    best = reg.optimum(reg.GDBeta, population, M).model

    @jax.jit
    def hessian(model):
        flat, back = jax.flatten_util.ravel_pytree(model)
        return jax.hessian(lambda z: reg.risk(back(z), population, M))(flat)

    curvatures = [np.linalg.eigvalsh(hessian(model))[-1] for model in (start, best)]
    return float(2 / max(curvatures))


# --- the flow of all weights from random starts: one row a setting


def measure_starts(config: Config, name: str, dim: int, M: int) -> dict[str, Any]:
    """The flow from every random start of a setting, and how it ends."""
    # H = I, prior variances from 1 to 0.3, and beta* of ones or zero.
    mean = np.ones(dim) if name == "LTB" else np.zeros(dim)
    prior = np.diag(np.linspace(1, 0.3, dim))
    population = reg.LinearPopulation(np.eye(dim), mean, prior, config.noise_var)
    times = np.append(0, np.geomspace(0.1, config.end_time, 40))
    settings = {"solver": "explicit", "rtol": 1e-6, "atol": 1e-9}

    def run(model):
        most = config.max_steps
        return reg.flow(model, population, M, times, max_steps=most, **settings)

    path = jax.vmap(run)(draw_weights(config, name, dim))
    # Where the solver gave up the excess is NaN.
    excess = np.where(np.isfinite(path.excess), path.excess, np.nan)
    levels = stationary_levels(population, M)
    last, moving = last_finite(excess)
    least = float(reg.optimum(reg.LTB, population, M).risk)
    fate = fates(last, moving, levels, least)
    counts = {fate: int(own.sum()) for fate, own in fate.items()}
    margin = float(reg.landscape.spurious_minimum(population, M).margin)
    return {
        "times": times,
        "path": excess,
        "fates": fate,
        "model": name,
        "dim": dim,
        "num_examples": M,
        "starts": config.num_starts,
        "counts": counts,
        "least_risk_interval": proportion_interval(counts[BEST], config.num_starts),
        "spurious_excess": float(levels[0]),
        "spurious_is_minimum": margin > 0,
        "rest": commonest(last[fate[ELSEWHERE]]),
        "unfinished": int(np.sum(~np.asarray(path.succeeded))),
    }


def draw_weights(config: Config, name: str, dim: int) -> Any:
    """Stacked models with normal entries: d_k = d, d_v = 1 and d_f = 1."""
    kind, place = MODELS[name], list(MODELS).index(name)
    rng = np.random.default_rng([config.seed, dim, place])
    rows = [dim, dim] + [1] * (len(dataclasses.fields(kind)) - 2)
    size = (config.num_starts, sum(rows), dim + 1)
    drawn = jnp.asarray(config.start_scale * rng.normal(size=size))
    return jax.vmap(kind)(*jnp.split(drawn, np.cumsum(rows)[:-1], axis=1))


def stationary_levels(population: reg.LinearPopulation, M: int) -> np.ndarray:
    """Excess of the stationary points that keep direction i alone, for H = I.

    It is sum_{j != i} phi_j^2 / omega_j.
    """
    phi = np.sort(np.linalg.eigvalsh(population.task_cov))[::-1]
    omega = ((M + 1) * phi + phi.sum() + np.asarray(population.noise_var)) / M
    lost = phi**2 / omega
    return lost.sum() - lost


def last_finite(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last finite excess of each row, and whether it still decreases."""
    index = np.isfinite(excess).sum(axis=1) - 1
    rows = np.arange(len(excess))
    last, before = excess[rows, index], excess[rows, np.maximum(index - 1, 0)]
    return last, last < before * (1 - MOVING)


def fates(last: Any, moving: Any, levels: Any, least: float) -> dict[str, np.ndarray]:
    """Whether each start met each fate; ``levels`` has the spurious minimum first."""
    near = np.abs(last[:, None] / levels[None] - 1) < AT
    conditions = [last < ARRIVED * least, moving, near[:, 0], near.any(axis=1)]
    chosen = np.select(conditions, [0, 4, 1, 2], 3)
    return {name: chosen == i for i, name in enumerate(FATES)}


def commonest(values: np.ndarray) -> dict[str, Any]:
    """The most frequent value to three digits, and its count."""
    if not len(values):
        return {"excess": None, "count": 0}
    rounded = [float(f"{value:.3g}") for value in values]
    found, counts = np.unique(rounded, return_counts=True)
    return {"excess": float(found[counts.argmax()]), "count": int(counts.max())}


def label(row: dict, between: str = ", ") -> str:
    """Model and sizes of a setting."""
    return f"{row['model']}{between}d = {row['dim']}, M = {row['num_examples']}"


# --- what is reported


def only(row: dict, *others: str) -> dict:
    """A row without what is too large for ``result.json``."""
    return {name: value for name, value in row.items() if name not in others}


def checks(
    config: Config, paths: dict, descents: dict, rows: list[dict]
) -> list[Check]:
    """Theorem 6.3, small steps and large batches, and the proved spurious minima."""
    found = []
    for name, at in paths.items():
        found += [
            Check(f"{name}: all times reached", at["succeeded"], 1.0, "within"),
            Check(f"{name}: excess at the end", at["excess"], 1e-12, "<="),
            Check(f"{name}: distance from limit", at[DISTANCE], 1e-9, "<="),
            Check(f"{name}: frozen part moved", at["frozen_part_moved"], 1e-12, "<="),
        ]
        for part in at["curves"]:
            of_bound = f"{name}: share of bound, {part}"
            found.append(Check(of_bound, at[f"share_{part}"], 1.0, "<=", 1e-6))
    shares, batches = sorted(config.step_shares), sorted(config.batch_sizes)
    small, large = (descents["distances"][shares[i]] for i in (0, -1))
    quiet, noisy = (descents["settled"][batches[i]][0] for i in (-1, 0))
    found += [
        Check("smallest step nearer to the flow", small, large, "<="),
        Check("noise of the largest batch", quiet, noisy, "<="),
    ]
    for row in rows:
        below = -float(np.nanmin(row["path"]))
        found.append(Check(f"{label(row)}: excess never below 0", below, 1e-12, "<="))
        if row["spurious_is_minimum"]:
            free, most = row["starts"] - row["counts"][CAUGHT], row["starts"] - 1
            found.append(Check(f"{label(row)}: starts not caught", free, most, "<="))
    return found


def findings(paths: dict, descents: dict, rows: list[dict]) -> list[str]:
    """The results in sentences."""
    said = [
        f"{name}: excess {at['excess']:.1g} after {at['steps']:.0f} steps of the "
        f"solver; largest share of the bounds: start {at['share_start']:.3f}, "
        f"preconditioner {at['share_preconditioner']:.3f}, excess "
        f"{at['share_excess']:.3f}"
        for name, at in paths.items()
    ]
    settled = ", ".join(
        f"{mean:.2g} +- {error:.1g} (batch {batch})"
        for batch, (mean, error) in descents["settled"].items()
    )
    said.append(f"descent on samples settles at excess {settled}; the flow goes to 0")
    for model in MODELS:
        own = [row for row in rows if row["model"] == model]
        total = sum(row["starts"] for row in own)
        arrived, caught = (
            sum(row["counts"][fate] for row in own) for fate in (BEST, CAUGHT)
        )
        said.append(
            f"{model}: {arrived} of {total} random starts reach the least risk, "
            f"{caught} rest at the spurious point, {total - arrived - caught} end "
            "elsewhere or still move"
        )
    return said


def fates_table(config: Config, rows: list[dict]) -> Any:
    """How many starts of each setting end in which way."""
    first, *others = FATES
    lines = []
    for row in rows:
        low, high = row["least_risk_interval"]
        proved = "" if row["spurious_is_minimum"] else " (not proved)"
        lines.append(row | row["counts"] | {"low": low, "high": high, "proved": proved})
    return table(
        lines,
        {
            "model": "{model}",
            "d": "{dim}",
            "M": "{num_examples}",
            first: f"{{{first}}}",
            "95 % interval": "{low:.2f} to {high:.2f}",
            **{fate: f"{{{fate}}}" for fate in others},
            "spurious excess": "{spurious_excess:.4g}{proved}",
        },
        f"{config.num_starts} random starts a setting",
    )


# --- what is drawn


def draw_paths(config: Config, paths: dict[str, dict]) -> Any:
    """The entries of beta over time, and Gamma at some times as images."""
    import matplotlib.pyplot as plt

    most = max(np.abs(at["Gamma"]).max() for at in paths.values())
    most = max(most, *(np.abs(at["limit"].Gamma).max() for at in paths.values()))
    look = {"limit": float(most), "xlabel": "", "ylabel": "", "write": None}
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure, grid = plt.subplots(
            len(paths),
            6,
            figsize=(9.2, 2.3 * len(paths) + 0.4),
            width_ratios=[2.2, 1, 1, 1, 1, 1],
            squeeze=False,
        )
        for (left, *others), (name, at) in zip(grid, paths.items(), strict=True):
            t, ends = at["times"], []
            for i, limit in enumerate(np.asarray(at["limit"].beta).tolist()):
                colour = COLOURS[1 + i % (len(COLOURS) - 1)]
                left.plot(t[1:], at["beta"][1:, i], color=colour)
                left.plot(t[-1], limit, "o", color=colour, ms=4, clip_on=False)
                ends.append((limit, rf"$\beta_{i + 1}$", colour))
            left.set_xscale("log")
            name_ends(left, ends)
            left.set_title(rf"{name}: entries of $\beta_t$", fontsize=9)
            later = np.linspace(0, len(t) - 1, 7)[[3, 5, 6]].round().astype(int)
            shown = [(f"t = {t[i]:,.0f}", at["Gamma"][i]) for i in later]
            shown = [("start", at["Gamma"][0]), *shown, ("limit", at["limit"].Gamma)]
            for axes, (title, Gamma) in zip(others, shown, strict=True):
                heat_map(Gamma, ax=axes, title=title, **look)
                axes.set(aspect="equal", xticks=[], yticks=[])
        grid[-1][0].set_xlabel("time t (dots: limit of Theorem 6.3)")
        (image,) = grid[0][1].get_images()
        bar = figure.colorbar(image, ax=grid[:, 1:], shrink=0.7)
        bar.set_label(r"entry of $\Gamma_t$")
        of = f"d = {config.dim}, M = {config.num_examples}"
        figure.suptitle(f"Gradient flow of GD-beta, {of}")
    return figure


def draw_rates(config: Config, paths: dict[str, dict]) -> Any:
    """Distances and excess risk over time with their proved bounds."""
    import matplotlib.pyplot as plt

    names = {
        "start": r"$|P(\beta_t - \beta^*)|$",
        "preconditioner": r"$\|P(\Gamma_t - \Gamma^*)P\|_F$",
        "excess": "excess risk",
    }
    with plt.rc_context({**STYLE, "font.size": 9}):
        figure, grid = axes_in_rows(len(paths) * len(names), len(names), (3.5, 2.7))
        panels = [(name, at, part) for name, at in paths.items() for part in names]
        for axes, (name, at, part) in zip(grid.flat, panels, strict=True):
            values, bounds = at["curves"][part]
            t, values, top = (
                at["times"][1:],
                np.asarray(values)[1:],
                [np.max(values[1:])],
            )
            axes.plot(t, values, color=COLOURS[0], label="the flow")
            for colour, (words, bound) in zip(colours(2), bounds.items(), strict=False):
                look = {"color": colour, "label": words, "linewidth": 1.4}
                axes.plot(t, bound[1:], "--", **look)
                top.append(np.max(bound[1:]))
            low = values.max() * (1e-24 if part == "excess" else 1e-12)
            axes.set(xscale="log", yscale="log", ylim=(low, 3 * max(top)), title=name)
            axes.set_ylabel(names[part])
            axes.legend(fontsize=8, loc="lower left")
        for axes in grid[-1]:
            axes.set_xlabel("time t")
        of = f"d = {config.dim}, M = {config.num_examples}"
        figure.suptitle(f"Gradient flow of GD-beta stays below its proved bounds, {of}")
    return figure


def draw_descents(config: Config, descents: dict[str, Any]) -> Any:
    """The excess risk of descents in steps and on samples, and of the flow."""
    import matplotlib.pyplot as plt

    (times, flow), at = descents["flow"], descents["sampled_times"]
    limits, time = (
        (max(np.min(flow), 1e-6) / 2, 2 * np.max(flow)),
        "time t = step size x steps",
    )
    averages = {
        f"batches of {batch}": Curve(v.mean(axis=0), v.min(axis=0), v.max(axis=0), x=at)
        for batch, v in descents["sampled"].items()
    }
    shades = dict(zip(averages, colours(1), strict=False))
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), sharey=True)
        left.plot(times, flow, "--", color=COLOURS[0], label="gradient flow")
        for colour, (share, path) in zip(
            colours(1), descents["steps"].items(), strict=False
        ):
            words = f"step {share:g} of the largest stable"
            left.plot(*path, ".-", color=colour, label=words, ms=4, linewidth=0.8)
        left.set(xlabel=time, ylabel="excess risk", yscale="log")
        error_curves(
            {"gradient flow": Curve(flow, exact=True, x=times), **averages},
            ax=right,
            xlabel=time,
            ylabel="",
            ylim=limits,
            colours={"gradient flow": COLOURS[0], **shades},
        )
        left.set(ylim=limits, title="steps on the exact risk")
        right.set_title("steps on fresh prompts (mean and range of seeds)")
        left.legend(fontsize=8)
        figure.suptitle(
            f"GD-beta, H = Psi = I, d = {config.descent_dim}, M = "
            f"{config.num_examples}: descent beside the flow ({config.seeds} seeds)"
        )
    return figure


def draw_starts(config: Config, rows: list[dict]) -> Any:
    """The excess risk of random starts by their fate, a panel a setting, and shares."""
    import matplotlib.pyplot as plt

    columns = -(-len(rows) // 2)
    with plt.rc_context({**STYLE, "font.size": 9, "lines.linewidth": 1.5}):
        figure = plt.figure(figsize=(max(2.2 * columns + 0.4, 6.5), 7.6))
        top, bottom = figure.subfigures(2, 1, height_ratios=(1.5, 1))  # pyrefly: ignore
        grid = top.subplots(2, columns, sharex=True, sharey=True, squeeze=False)
        for axes, row in zip(grid.flat, rows, strict=False):
            for fate, own in row["fates"].items():
                if own.any():
                    t, x = row["times"][1:], row["path"][own, 1:]
                    low, middle, high = np.nanquantile(x, (0.05, 0.5, 0.95), axis=0)
                    look = {"color": FATES[fate], "alpha": 0.25, "linewidth": 0}
                    axes.fill_between(t, low, high, **look)
                    axes.plot(t, middle, color=FATES[fate])
            look = {"ls": "--" if row["spurious_is_minimum"] else ":", "zorder": 0}
            axes.axhline(row["spurious_excess"], color="black", linewidth=0.9, **look)
            axes.set(xscale="log", yscale="log", ylim=(1e-8, 30))
            axes.set_title(label(row, "\n"), fontsize=9)
        for axes in grid.flat[len(rows) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel("time t")
        for axes in grid[:, 0]:
            axes.set_ylabel("excess risk")
        draw_shares(bottom.subplots(), rows)
        figure.suptitle(
            f"Gradient flow of all weights from {config.num_starts} random starts "
            f"(entries of standard deviation {config.start_scale:g})\n"
            "lines: median of the starts that end alike; bands: 5 to 95 % of them",
            fontsize=10,
        )
    return figure


def draw_shares(axes: Any, rows: list[dict]) -> None:
    """Bars of the shares of the fates, with the legend of the whole figure."""
    places, left = np.arange(len(rows))[::-1], np.zeros(len(rows))
    for fate, colour in FATES.items():
        share = np.array([row["fates"][fate].mean() for row in rows])
        if share.any():
            axes.barh(places, share, left=left, color=colour, label=fate, height=0.7)
        left += share
    for place, row in zip(places, rows, strict=True):
        axes.plot(row["least_risk_interval"], [place] * 2, color="black", linewidth=1.6)
    axes.plot([], [], color="black", label="95 % interval of the first share")
    for proved in sorted({row["spurious_is_minimum"] for row in rows}, reverse=True):
        kind, style = ("a local minimum", "--") if proved else ("stationary", ":")
        words = f"excess of the spurious point ({kind})"
        axes.plot([], [], style, color="black", linewidth=0.9, label=words)
    axes.set_yticks(places, [label(row) for row in rows])
    axes.set(xlim=(0, 1), xlabel="share of the random starts")
    axes.grid(axis="y", visible=False)
    handles = axes.get_legend_handles_labels()
    axes.figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8)


def report(config: Config, paths: dict, descents: dict, rows: list[dict]) -> Report:
    """Numbers, checks, findings, table and figures of the run."""
    drawn = ("times", "beta", "Gamma", "limit", "curves")
    numbers = {
        "paths": {name: only(at, *drawn) for name, at in paths.items()},
        "descents": {
            "largest_step": descents["largest_step"],
            "distance_from_flow": {str(k): v for k, v in descents["distances"].items()},
            "settled": {str(k): v for k, v in descents["settled"].items()},
        },
        "starts": [only(row, "times", "path", "fates") for row in rows],
    }
    return Report(
        numbers,
        checks=checks(config, paths, descents, rows),
        tables=[fates_table(config, rows)],
        findings=findings(paths, descents, rows),
        figures={
            "paths.png": draw_paths(config, paths),
            "rates.png": draw_rates(config, paths),
            "descents.png": draw_descents(config, descents),
            "starts.png": draw_starts(config, rows),
        },
        interval_level=0.95,
    )


@experiment(PRESETS)
def main(config, run):
    """Measures paths, descents and random starts, and reports."""
    run.reset_metrics([])
    with jax.enable_x64(True):
        with run.phase("paths"):
            paths = measure_paths(config)
        with run.phase("descents"):
            descents = measure_descents(config)
        rows = []
        for model in MODELS:
            for dim, M in zip(config.dims, config.lengths, strict=True):
                name = f"{model}, d = {dim}, M = {M}"
                with run.phase(name):
                    rows.append(measure_starts(config, model, dim, M))
                counts = rows[-1]["counts"]
                run.log({"name": name, "counts": counts})
                arrived = f"{counts[BEST]} of {config.num_starts} arrive"
                run.console.print(f"{name}: {arrived}")
        return report(config, paths, descents, rows)


program(__name__, main)
