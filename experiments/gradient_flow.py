"""Gradient flow on exact risks: its limits, its rates, and the local minima it meets.

Theorem 6.3 of Zhang, Wu and Bartlett (2024): the flow of GD-beta for a regular and a
singular H, beside limit and bounds; descent at several step and batch sizes; then the
flow of all weights of an LTB and an LSA from many random starts, and which of them end
at ``regression.landscape.spurious_minimum``. Everything is float64.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, check_at_least, expect
from icltheory import regression as reg
from icltheory.plotting import COLOURS, STYLE, Curve, error_curves, heat_map, name_ends
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
        null, most, sizes = self.null_dim, self.dim - 1, len(self.dims)
        expect(0 < null <= most, "null_dim", f"1 to dim - 1 = {most}", null)
        each, lengths = f"one for each of {sizes} dims", len(self.lengths)
        expect(lengths == sizes, "lengths", each, lengths)
        check_at_least(self, 2, "dims", "seeds", "num_starts")
        check_at_least(self, 3, "points")
        counts = ("num_examples", "descent_dim", "sgd_steps", "max_steps")
        check_at_least(self, 1, *counts, "condition")
        check_at_least(self, 0, "noise_var", "end_time")
        frame.check_each(self, "above 0", "step_shares", "batch_sizes")
        steps = self.sgd_steps
        expect(steps % 40 == 0, "sgd_steps", "a multiple of 40", steps)


_SIX: Any = {"dims": (2, 2, 2, 4, 4, 4), "lengths": (2, 8, 32, 4, 16, 64)}
_EIGHT: Any = {"dims": (*_SIX["dims"], 8, 8), "lengths": (*_SIX["lengths"], 8, 64)}
PRESETS = {
    "cpu": Config(),
    "gpu": Config(20, 40, null_dim=5, seeds=64, num_starts=4096, **_EIGHT),
    "paper": Config(20, 40, null_dim=5, seeds=32, num_starts=1000, **_SIX),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1.5 to 3 min, 2 cores"}


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
        curves: dict[str, Any] = {"start": (to_beta, rates)}
        curves["preconditioner"] = to_Gamma, {"Lemma G.6": bounds.Gamma}
        curves["excess"] = path.excess, {"from both bounds": bounds.excess}
        # Below these sizes the curves are rounding.
        rounding = {"start": 1e-12, "preconditioner": 1e-11, "excess": 1e-22}
        far = jax.tree.map(lambda x, end: abs(x[-1] - end).max(), path.model, limit)
        numbers: Any = {"succeeded": path.succeeded, "steps": path.num_steps}
        numbers |= {"excess": path.excess[-1], "risk": path.risk[-1]}
        numbers[DISTANCE] = max(jax.tree.leaves(far))
        numbers["frozen_part_moved"] = frozen(path.model, np.asarray(best.projector))
        for part, (values, proved) in curves.items():
            seen, bound = values > rounding[part], next(iter(proved.values()))
            numbers[f"share_{part}"] = (values[seen] / bound[seen]).max()
        arrays = {"times": times, "beta": path.model.beta, "Gamma": path.model.Gamma}
        found[name] = {**arrays, "limit": limit, "curves": curves}
        found[name] |= {key: float(x) for key, x in numbers.items()}
    return found


def frozen(model: reg.GDBeta, P: np.ndarray) -> float:
    """The largest change of what the inputs do not span."""
    beta, Gamma = np.asarray(model.beta), np.asarray(model.Gamma)
    in_beta = (beta - beta[:1]) @ (np.eye(len(P)) - P)
    change = Gamma - Gamma[:1]
    return float(max(np.abs(in_beta).max(), np.abs(change - P @ change @ P).max()))


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
    flow = times, np.asarray(reg.flow(start, population, M, times).excess)
    # ``distances``: of Gamma from the flow's, the largest; ``settled``: mean and
    # standard error over the last quarter.
    found: Any = {"largest_step": largest, "flow": flow, "sampled": {}, "settled": {}}
    found |= {"sampled_times": eta * np.arange(0, config.sgd_steps + 1, every)}
    found |= {"steps": {}, "distances": {}}
    for share in config.step_shares:
        size = share * largest
        apart = int(np.ceil(end / size / RECORDS))
        made = {"steps": apart * RECORDS, "record_every": apart}
        path = reg.descend(start, population, M, size, **made)
        far = path.model.Gamma - reg.flow(start, population, M, path.times).model.Gamma
        found["steps"][share] = np.asarray(path.times), np.asarray(path.excess)
        found["distances"][share] = float(abs(far).max())
    keys = jax.random.split(jax.random.key(config.seed), config.seeds)
    for batch in config.batch_sizes:

        def excess(key, batch=batch):
            drawn = {"key": key, "batch_size": batch, "record_every": every}
            sizes = eta, config.sgd_steps
            return reg.descend(start, population, M, *sizes, **drawn).excess

        values = found["sampled"][batch] = np.asarray(jax.lax.map(excess, keys))
        last = Estimate.of(values[:, -(41 // 4) :].mean(axis=1))
        found["settled"][batch] = [float(x) for x in last]
    return found


def largest_step(population: reg.LinearPopulation, M: int, start: reg.GDBeta) -> float:
    """Largest stable step: 2 over the largest curvature at start and optimum."""
    best = reg.optimum(reg.GDBeta, population, M).model

    @jax.jit
    def hessian(model):
        flat, back = jax.flatten_util.ravel_pytree(model)
        return jax.hessian(lambda z: reg.risk(back(z), population, M))(flat)

    curvatures = [np.linalg.eigvalsh(hessian(model))[-1] for model in (start, best)]
    return float(2 / max(curvatures))


def measure_starts(config: Config, name: str, dim: int, M: int) -> dict[str, Any]:
    """The flow from every random start of a setting, and how it ends."""
    # H = I, prior variances from 1 to 0.3, and beta* of ones or zero.
    mean = np.ones(dim) if name == "LTB" else np.zeros(dim)
    prior = np.diag(np.linspace(1, 0.3, dim))
    population = reg.LinearPopulation(np.eye(dim), mean, prior, config.noise_var)
    times = np.append(0, np.geomspace(0.1, config.end_time, 40))
    settings: Any = {"solver": "explicit", "rtol": 1e-6, "atol": 1e-9}
    settings["max_steps"] = config.max_steps
    models = draw_weights(config, name, dim)
    path = jax.vmap(lambda one: reg.flow(one, population, M, times, **settings))(models)
    # Where the solver gave up the excess is NaN.
    excess = np.where(np.isfinite(path.excess), path.excess, np.nan)
    levels = stationary_levels(population, M)
    last, moving = last_finite(excess)
    least = float(reg.optimum(reg.LTB, population, M).risk)
    fate, starts = fates(last, moving, levels, least), config.num_starts
    counts = {fate: int(own.sum()) for fate, own in fate.items()}
    margin = float(reg.landscape.spurious_minimum(population, M).margin)
    row: Any = {"times": times, "path": excess, "fates": fate, "model": name}
    row |= {"dim": dim, "num_examples": M, "starts": starts, "counts": counts}
    row["least_risk_interval"] = proportion_interval(counts[BEST], starts)
    row |= {"spurious_excess": float(levels[0]), "spurious_is_minimum": margin > 0}
    row["unfinished"] = int(np.sum(~np.asarray(path.succeeded)))
    return row | {"rest": commonest(last[fate[ELSEWHERE]])}


def draw_weights(config: Config, name: str, dim: int) -> Any:
    """Stacked models with normal entries: d_k = d, d_v = 1 and d_f = 1."""
    kind, place = MODELS[name], list(MODELS).index(name)
    rng = np.random.default_rng([config.seed, dim, place])
    rows = [dim, dim] + [1] * (len(dataclasses.fields(kind)) - 2)
    size = (config.num_starts, sum(rows), dim + 1)
    drawn = jnp.asarray(config.start_scale * rng.normal(size=size))
    return jax.vmap(kind)(*jnp.split(drawn, np.cumsum(rows)[:-1], axis=1))


def stationary_levels(population: reg.LinearPopulation, M: int) -> np.ndarray:
    """Excess of the stationary points that keep direction i alone, for H = I."""
    phi = np.sort(np.linalg.eigvalsh(population.task_cov))[::-1]
    omega = ((M + 1) * phi + phi.sum() + np.asarray(population.noise_var)) / M
    lost = phi**2 / omega
    return lost.sum() - lost  # sum_{j != i} phi_j^2 / omega_j


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
    return f"{row['model']}{between}d = {row['dim']}, M = {row['num_examples']}"


def only(row: dict, *others: str) -> dict:
    """A row without what is too large for ``result.json``."""
    return {name: value for name, value in row.items() if name not in others}


def checks(paths: dict, descents: dict, rows: list[dict]) -> list[Check]:
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
    far, settled = descents["distances"], descents["settled"]
    small, large = far[min(far)], far[max(far)]
    quiet, noisy = settled[max(settled)][0], settled[min(settled)][0]
    found.append(Check("smallest step nearer to the flow", small, large, "<="))
    found.append(Check("noise of the largest batch", quiet, noisy, "<="))
    for row in rows:
        below = -float(np.nanmin(row["path"]))
        found.append(Check(f"{label(row)}: excess never below 0", below, 1e-12, "<="))
        if row["spurious_is_minimum"]:
            free, most = row["starts"] - row["counts"][CAUGHT], row["starts"] - 1
            found.append(Check(f"{label(row)}: starts not caught", free, most, "<="))
    return found


def findings(paths: dict, descents: dict, rows: list[dict]) -> list[str]:
    words = "{name}: excess {excess:.1g} after {steps:.0f} steps of the solver; "
    words += "largest share of the bounds: start {share_start:.3f}, preconditioner "
    words += "{share_preconditioner:.3f}, excess {share_excess:.3f}"
    said = [words.format(name=name, **at) for name, at in paths.items()]
    settled = [(*ends, batch) for batch, ends in descents["settled"].items()]
    settled = ", ".join("{:.2g} +- {:.1g} (batch {})".format(*at) for at in settled)
    said.append(f"descent on samples settles at excess {settled}; the flow goes to 0")
    words = "{}: {} of {} random starts reach the least risk, {} rest at the spurious "
    words += "point, {} end elsewhere or still move"
    for model in MODELS:
        own = [row["counts"] for row in rows if row["model"] == model]
        total = sum(sum(counts.values()) for counts in own)
        best, caught = (sum(counts[fate] for counts in own) for fate in (BEST, CAUGHT))
        said.append(words.format(model, best, total, caught, total - best - caught))
    return said


def fates_table(config: Config, rows: list[dict]) -> Any:
    """How many starts of each setting end in which way."""
    first, *others = FATES
    lines = []
    for row in rows:
        low, high = row["least_risk_interval"]
        proved = "" if row["spurious_is_minimum"] else " (not proved)"
        lines.append(row | row["counts"] | {"low": low, "high": high, "proved": proved})
    columns = {"model": "{model}", "d": "{dim}", "M": "{num_examples}"}
    columns |= {first: f"{{{first}}}", "95 % interval": "{low:.2f} to {high:.2f}"}
    columns |= {fate: f"{{{fate}}}" for fate in others}
    columns["spurious excess"] = "{spurious_excess:.4g}{proved}"
    title = f"{config.num_starts} random starts a setting"
    return frame.table(lines, columns, title)


def draw_paths(config: Config, paths: dict[str, dict]) -> Any:
    """The entries of beta over time, and Gamma at some times as images."""
    most = max(np.abs(at["Gamma"]).max() for at in paths.values())
    most = max(most, *(np.abs(at["limit"].Gamma).max() for at in paths.values()))
    look = {"limit": float(most), "xlabel": "", "ylabel": "", "write": None}
    sizes: Any = {"figsize": (9.2, 2.3 * len(paths) + 0.4), "squeeze": False}
    sizes |= {"small": True, "width_ratios": [2.2, 1, 1, 1, 1, 1]}
    title = f"Gradient flow of GD-beta, d = {config.dim}, M = {config.num_examples}"
    with frame.panels(len(paths), 6, title, **sizes) as (figure, grid):
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
        words = r"entry of $\Gamma_t$"
        figure.colorbar(image, ax=grid[:, 1:], shrink=0.7, label=words)
    return figure


def draw_rates(config: Config, paths: dict[str, dict]) -> Any:
    """Distances and excess risk over time with their proved bounds."""
    names = {
        "start": r"$|P(\beta_t - \beta^*)|$",
        "preconditioner": r"$\|P(\Gamma_t - \Gamma^*)P\|_F$",
        "excess": "excess risk",
    }
    title = "Gradient flow of GD-beta stays below its proved bounds, "
    title += f"d = {config.dim}, M = {config.num_examples}"
    panels = [(name, at, part) for name, at in paths.items() for part in names]
    look: Any = {"small": True, "figsize": (10.5, 2.7 * len(paths)), "squeeze": False}
    with frame.panels(len(paths), len(names), title, **look) as (figure, grid):
        for axes, (name, at, part) in zip(grid.flat, panels, strict=True):
            values, bounds = at["curves"][part]
            t, values = at["times"][1:], np.asarray(values)[1:]
            axes.plot(t, values, color=COLOURS[0], label="the flow")
            for colour, (words, bound) in zip(colours(2), bounds.items(), strict=False):
                look = {"color": colour, "label": words, "linewidth": 1.4}
                axes.plot(t, bound[1:], "--", **look)
            low = values.max() * (1e-24 if part == "excess" else 1e-12)
            top = max(np.max(line.get_ydata()) for line in axes.get_lines())
            axes.set(xscale="log", yscale="log", ylim=(low, 3 * top), title=name)
            axes.set_ylabel(names[part])
            axes.legend(fontsize=8, loc="lower left")
        for axes in grid[-1]:
            axes.set_xlabel("time t")
    return figure


def draw_descents(config: Config, descents: dict[str, Any]) -> Any:
    """The excess risk of descents in steps and on samples, and of the flow."""
    (times, flow), name = descents["flow"], "gradient flow"
    time, x = "time t = step size x steps", descents["sampled_times"]
    curves, tints = {name: Curve(flow, exact=True, x=times)}, {name: COLOURS[0]}
    for (batch, v), tint in zip(descents["sampled"].items(), colours(1), strict=False):
        label = f"batches of {batch}"
        tints[label], curves[label] = tint, Curve(v.mean(0), v.min(0), v.max(0), x=x)
    look: Any = {"ylim": (max(np.min(flow), 1e-6) / 2, 2 * np.max(flow))}
    with frame.panels(1, 2, figsize=(10.5, 4.2), sharey=True) as (figure, axes):
        left, right = axes
        left.plot(times, flow, "--", color=COLOURS[0], label=name)
        paths = descents["steps"].items()
        for colour, (share, path) in zip(colours(1), paths, strict=False):
            words = f"step {share:g} of the largest stable"
            left.plot(*path, ".-", color=colour, label=words, ms=4, linewidth=0.8)
        left.set(xlabel=time, ylabel="excess risk", yscale="log")
        error_curves(curves, ax=right, xlabel=time, ylabel="", colours=tints, **look)
        left.set(title="steps on the exact risk", **look)
        right.set_title("steps on fresh prompts (mean and range of seeds)")
        left.legend(fontsize=8)
        sizes = f"d = {config.descent_dim}, M = {config.num_examples}"
        title = f"GD-beta, H = Psi = I, {sizes}: descent beside the flow "
        figure.suptitle(f"{title}({config.seeds} seeds)")
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
        plt.setp(grid.flat[len(rows) :], visible=False)
        plt.setp(grid[-1], xlabel="time t")
        plt.setp(grid[:, 0], ylabel="excess risk")
        draw_shares(bottom.subplots(), rows)
        title = f"Gradient flow of all weights from {config.num_starts} random starts "
        title += f"(entries of standard deviation {config.start_scale:g})\n"
        title += "lines: median of the starts that end alike; bands: 5 to 95 % of them"
        figure.suptitle(title, fontsize=10)
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
    drawn = ("times", "beta", "Gamma", "limit", "curves")
    of_descents = {"distance_from_flow": descents["distances"]}
    of_descents |= {name: descents[name] for name in ("largest_step", "settled")}
    numbers = {
        "paths": {name: only(at, *drawn) for name, at in paths.items()},
        "descents": of_descents,
        "starts": [only(row, "times", "path", "fates") for row in rows],
    }
    return Report(
        numbers,
        checks=checks(paths, descents, rows),
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


@frame.experiment(PRESETS)
def main(config, run):
    run.reset_metrics([])
    with jax.enable_x64(True):
        with run.phase("paths"):
            paths = measure_paths(config)
        with run.phase("descents"):
            descents = measure_descents(config)
        rows, sizes = [], list(zip(config.dims, config.lengths, strict=True))
        for model, (dim, M) in itertools.product(MODELS, sizes):
            name = f"{model}, d = {dim}, M = {M}"
            with run.phase(name):
                rows.append(measure_starts(config, model, dim, M))
            counts = rows[-1]["counts"]
            run.log({"name": name, "counts": counts})
            arrived = f"{counts[BEST]} of {config.num_starts} arrive"
            run.console.print(f"{name}: {arrived}")
        return report(config, paths, descents, rows)


frame.program(__name__, main)
