"""Heads of linear attention learn one direction after another, at predicted times.

Gradient flow of several heads from small weights (after Zhang, Singh, Latham and Saxe,
2025): the plateaus of the risk beside their predicted levels and ends, for separate
keys and queries of rank 1 and 2 and for merged ones; the same by SGD on fresh prompts;
and what each head and singular direction is worth when it is removed, on each plateau
and at other prompt lengths. Everything is float64.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, check_at_least, expect, largest
from icltheory import regression as reg
from icltheory.plotting import COLOURS
from icltheory.plotting.style import colours

KINDS = {"rank 1": 1, "rank 2": 2, "merged": None}
HALF_WIDTH = 60.0  # of the window in time around each predicted end
ERRORS = ("median", "largest")
LONG = 3.0  # a plateau is long if it ends after this many times its begin


@dataclasses.dataclass(frozen=True)
class Config:
    """The problem, the heads, and how they are trained."""

    eigenvalues: tuple[float, ...] = (2.0, 1.2, 0.7, 0.4)  # of H, decreasing
    num_examples: int = 16  # examples N of a prompt in training
    noise_var: float = 0.25  # variance of the label noise
    heads: int = 5  # heads of the layer
    scales: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003)  # deviations of the starts
    seeds: tuple[int, ...] = tuple(range(8))  # starts of the flow, per scale
    points: int = 300  # times at which a path is recorded, beside those of the ends
    max_steps: int = 400_000  # steps of the solver
    sgd_scale: float = 0.1  # standard deviation at the start of SGD
    sgd_seeds: tuple[int, ...] = (0, 1, 2, 3)  # runs of SGD
    step_size: float = 0.01  # its step size
    batch_size: int = 128  # fresh prompts per step
    sgd_steps: int = 20_000  # its steps
    record_every: int = 20  # steps between two records of it
    lengths: tuple[int, ...] = (1, 2, 4, 8, 16, 32)  # prompt lengths after training

    def __post_init__(self):
        counts = ("num_examples", "heads", "max_steps", "batch_size", "sgd_steps")
        check_at_least(self, 1, *counts, "record_every")
        check_at_least(self, 10, "points")
        check_at_least(self, 0, "noise_var")
        values = self.eigenvalues
        falls = all(a > b for a, b in zip(values, values[1:], strict=False))
        right = len(values) > 1 and falls and min(values, default=0) > 0
        expect(right, "eigenvalues", "at least two, decreasing, above 0", values)
        frame.check_each(self, "above 0", "scales", "lengths")
        steps, every = self.sgd_steps, self.record_every
        expect(steps % every == 0, "sgd_steps", f"a multiple of {every}", steps)
        frame.check_seeds("seeds", self.seeds)
        frame.check_seeds("sgd_seeds", self.sgd_seeds)


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "2 to 5 min, 2 cores"}


def problem(config: Config) -> reg.LinearPopulation:
    cov = jnp.diag(jnp.asarray(config.eigenvalues, float))
    return reg.LinearPopulation(cov, noise_var=config.noise_var)


def starts(config: Config, rank: int | None, scale: float, seeds: Any) -> reg.Heads:
    """Random heads, one layer per seed; the same but for the scale."""
    sizes = len(config.eigenvalues), config.heads, scale
    keys = map(jax.random.key, seeds)
    drawn = [reg.Heads.random(*sizes, rank=rank, key=key) for key in keys]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)


def recorded(config: Config, ends: np.ndarray) -> np.ndarray:
    """Times of a path: evenly spaced on a log scale, and dense around each end."""
    first, last = 0.05 * float(ends.min()), 1.3 * float(ends.max()) + 200
    spread = np.geomspace(first, last, config.points)
    near = np.sinh(np.linspace(-1, 1, 81) * np.arcsinh(HALF_WIDTH / 0.1)) * 0.1
    around = (ends[:, None] + near[None]).ravel()
    return np.sort(np.concatenate([[0.0], spread, np.maximum(around, 0)]))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _paths(max_steps, num_examples, models, population, times):
    def one(model, times):
        path = reg.flow(model, population, num_examples, times, max_steps=max_steps)
        return path, reg.head_removals(path.model, population, num_examples)

    return jax.vmap(one)(models, times)


def measure(config: Config, kind: str, scale: float) -> dict[str, Any]:
    """Paths of all seeds, with predicted and measured ends of the plateaus."""
    population, N, rank = problem(config), config.num_examples, KINDS[kind]
    models = starts(config, rank, scale, config.seeds)
    found = jax.jit(jax.vmap(lambda m: reg.head_times(m, population, N)))(models)
    predicted = np.asarray(found.times)
    times = np.stack([recorded(config, ends) for ends in predicted])
    path, removed = _paths(config.max_steps, N, models, population, jnp.asarray(times))
    levels = np.asarray(reg.head_plateaus(population, N))
    learned = np.asarray(found.learned[0])
    # Merged heads learn all directions at once.
    after = learned + 1 if rank else np.full(1, len(levels) - 1)
    halves = (levels[learned] + levels[after]) / 2
    risks = np.asarray(path.risk)
    pairs = zip(risks, times, strict=True)
    measured = np.stack([np.interp(-halves, -r, t, right=np.nan) for r, t in pairs])
    at = {"kind": kind, "scale": scale, "levels": levels, "learned": learned}
    at |= {"times": times, "risks": risks, "predicted": predicted, "measured": measured}
    at |= {"heads": np.asarray(found.heads), "removed": np.asarray(removed.heads)}
    return at | {"models": path.model, "succeeded": bool(path.succeeded.all())}


def rests(at: dict[str, Any]) -> list[dict[str, float]]:
    """Risk in the middle of each long plateau beside its level, and heads removed.

    ``worth`` is the change of the risk without the head that grew last, ``others`` the
    largest change without a head that has not grown.
    """
    rows, levels = [], at["levels"]
    gains = levels[:-1] - levels[1:]
    for seed, ends in enumerate(at["measured"]):
        for m in range(1, len(ends)):
            begin, end = ends[m - 1], ends[m]
            if not end > LONG * begin:
                continue
            place = np.searchsorted(at["times"][seed], np.sqrt(begin * end))
            changes, order = at["removed"][seed, place], at["heads"][seed]
            still = np.delete(changes, order[:m])
            row = {"learned": m, "level": levels[m], "gain": gains[m - 1]}
            row |= {"risk": at["risks"][seed, place], "worth": changes[order[m - 1]]}
            rows.append(row | {"others": np.abs(still).max(initial=0)})
    return [{name: float(value) for name, value in row.items()} for row in rows]


def errors(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Predicted and measured ends of the plateaus, for each kind and scale."""
    rows = []
    for at in found:
        for place, m in enumerate(at["learned"]):
            predicted, seen = at["predicted"][:, place], at["measured"][:, place]
            off = np.abs(seen / predicted - 1)
            row = {"predicted": np.median(predicted), "measured": np.median(seen)}
            row |= {"median_error": np.median(off), "largest_error": off.max()}
            row = {"scale": at["scale"], **{n: float(x) for n, x in row.items()}}
            rows.append({"kind": at["kind"], "learned": int(m)} | row)
    return rows


def train(config: Config) -> dict[str, Any]:
    """SGD on fresh prompts from the starts, and the flow from the same."""
    population, N = problem(config), config.num_examples
    models = starts(config, 1, config.sgd_scale, config.sgd_seeds)

    def one(model, key):
        sizes = config.step_size, config.sgd_steps
        given = {"batch_size": config.batch_size, "record_every": config.record_every}
        return reg.descend(model, population, N, *sizes, key=key, **given)

    keys = jax.random.split(jax.random.key(99), len(config.sgd_seeds))
    path = jax.jit(jax.vmap(one))(models, keys)
    times = jnp.asarray(path.times)
    flow, _ = _paths(config.max_steps, N, models, population, times)
    found: Any = {"times": path.times[0], "risks": path.risk, "flow": flow.risk}
    found["levels"] = reg.head_plateaus(population, N)
    return {name: np.asarray(value) for name, value in found.items()}


def shorter(config: Config, merged: dict[str, Any]) -> list[dict[str, Any]]:
    """What removing a singular direction of the trained layer changes, at each length.

    ``predicted`` is 2 b gamma - a gamma^2, gamma the optimum of the training.
    """
    last = jax.tree.map(lambda leaf: leaf[0, -1], merged["models"])
    layer = reg.Heads(jnp.ones(1), last.Gamma.T[None])
    lam = np.sort(config.eigenvalues)  # the largest singular value has the least
    tau = lam.sum() + config.noise_var
    N, rows = config.num_examples, []
    gamma = N / ((N + 1) * lam + tau)
    for length in config.lengths:
        found = reg.head_removals(layer, problem(config), length)
        curvature = lam**2 * ((length + 1) * lam + tau) / length
        predicted = 2 * lam**2 * gamma - curvature * gamma**2
        values = found.singular_values[0], found.directions[0], predicted
        for value, size, change, wanted in zip(lam, *values, strict=True):
            row = {"length": length, "eigenvalue": value, "singular_value": size}
            row |= {"change": change, "predicted": wanted, "risk": found.risk}
            rows.append({name: float(number) for name, number in row.items()})
    return rows


def shares(merged: dict[str, Any]) -> float:
    """Largest error of the worth of merged heads, share squared times the gain."""
    size = np.asarray(merged["models"].v[:, -1]) ** 2
    share = size / size.sum(axis=1, keepdims=True)
    gain = merged["levels"][0] - merged["levels"][-1]
    return largest(np.abs(merged["removed"][:, -1] / gain - share**2).ravel())


def checks(config: Config, found: list, resting: list, sgd: dict, removed: list):
    """Levels, times and removals beside their predictions."""
    rows = [r for r in errors(found) if r["scale"] == config.scales[-1]]
    medians = (row["median_error"] for row in rows if row["kind"] != "merged")
    first = next(row["largest_error"] for row in rows)
    levels = largest(abs(r["risk"] / r["level"] - 1) for r in resting)
    worth = np.median([abs(r["worth"] / r["gain"] - 1) for r in resting])
    others = largest(r["others"] for r in resting)
    moved = largest(abs(r["change"] - r["predicted"]) for r in removed)
    # What the start had outside of the common direction stays.
    merged = shares(found[-1]) / config.scales[-1]
    done = all(at["succeeded"] for at in found)
    last = largest(sgd["risks"][:, -1] / sgd["flow"][:, -1])
    return [
        Check("all times reached", done, 1.0, "within"),
        Check("long plateaus: relative distance from the level", levels, 0.001, "<="),
        Check("first end, rank 1: largest relative error", first, 0.001, "<="),
        Check("ends: largest median relative error", largest(medians), 0.1, "<="),
        Check("worth of the newest head / gain - 1, median", worth, 0.01, "<="),
        Check("worth of heads that have not grown", others, 0.001, "<="),
        Check("worth of merged heads: largest error / scale", merged, 2.0, "<="),
        Check("removal at other lengths: largest error", moved, 1e-4, "<="),
        Check("risk of SGD / risk of the flow at the end", last, 1.1, "<="),
    ]


def tables(rows: list[dict], resting: list[dict], removed: list[dict]) -> list[Any]:
    """Ends of the plateaus, long plateaus, and removals at other lengths."""
    columns = {"heads": "{kind}", "scale": "{scale:g}", "learned": "{learned}"}
    columns |= {"predicted end": "{predicted:.4g}", "flow": "{measured:.4g}"}
    columns |= {f"{name} error": f"{{{name}_error:.2%}}" for name in ERRORS}
    ends = frame.table(rows, columns, "ends of the plateaus, medians over the seeds")
    summary = []
    for m in sorted({row["learned"] for row in resting}):
        own = [row for row in resting if row["learned"] == m]
        line = {name: float(np.mean([r[name] for r in own])) for name in own[0]}
        summary.append(line | {"learned": m, "count": len(own)})
    columns = {"learned": "{learned}", "long rests": "{count}"}
    columns |= {"level": "{level:.5f}", "risk": "{risk:.5f}", "gain": "{gain:.4f}"}
    columns |= {"newest head's worth": "{worth:.4f}", "others": "{others:.1e}"}
    title = f"plateaus that end after {LONG:g} times their begin, means"
    levels = frame.table(summary, columns, title)
    lines: dict[float, dict] = {}
    for row in removed:
        first = {"singular value": f"{row['singular_value']:.4f}"}
        first["eigenvalue"] = f"{row['eigenvalue']:g}"
        line = lines.setdefault(row["eigenvalue"], first)
        line[f"N = {row['length']:g}"] = f"{row['change']:+.4f}"
    title = "change of the risk at N without one singular direction of the layer"
    return [ends, levels, frame.table(lines.values(), title=title)]


def show_times(axes: Any, at: dict, ends: np.ndarray) -> None:
    """Sets a time axis around these ends, on a log scale for separate heads."""
    merged = at["kind"] == "merged"
    axes.set_xscale("linear" if merged else "log")
    axes.set_xlim(0 if merged else 0.3 * ends.min(), (3 if merged else 2) * ends.max())


def draw_staircases(config: Config, found: list[dict]) -> Any:
    """Risk over time of all seeds, with predicted levels and ends."""
    shown = [at for at in found if at["scale"] == config.scales[-1]]
    title, look = "Circles: predicted ends; dashed: predicted levels", {"sharey": True}
    with frame.panels(1, len(shown), title, figsize=(10, 3.6), **look) as (made, grid):
        for axes, at in zip(grid, shown, strict=True):
            levels = at["levels"]
            for level in levels if at["kind"] != "merged" else levels[[0, -1]]:
                axes.axhline(level, color="0.6", ls="--", lw=0.8)
            pairs = zip(at["times"], at["risks"], at["predicted"], strict=True)
            for seed, (t, risk, ends) in enumerate(pairs):
                colour = COLOURS[1 + seed % (len(COLOURS) - 1)]
                axes.plot(t[1:], risk[1:], color=colour, lw=1.2)
                after = at["learned"] + 1 if at["kind"] != "merged" else [-1]
                halves = (levels[at["learned"]] + levels[after]) / 2
                axes.plot(ends, halves, "o", ms=4, mfc="white", color=colour)
            axes.set(xlabel="time t", title=at["kind"])
            show_times(axes, at, at["predicted"])
        grid[0].set_ylabel("risk, noise included")
    return made


def draw_removals(config: Config, found: list[dict], removed: list[dict]) -> Any:
    """The risk without each head along the flow, and removals at other lengths."""
    shown = {at["kind"]: at for at in found if at["scale"] == config.scales[-1]}
    with frame.panels(1, 3, figsize=(10, 3.6)) as (figure, (left, middle, right)):
        for axes, kind in ((left, "rank 1"), (middle, "merged")):
            at, ends = shown[kind], shown[kind]["predicted"]
            # The start whose shortest rest is the longest.
            one = np.argmax(np.min(ends[:, 1:] / ends[:, :-1], 1, initial=np.inf))
            t, risk = at["times"][one], at["risks"][one]
            pairs = zip(at["removed"][one].T, colours(1), strict=False)
            for head, (change, colour) in enumerate(pairs):
                look = {"color": colour, "lw": 1.3, "label": f"without head {head + 1}"}
                axes.plot(t[1:], (risk + change)[1:], **look)
            axes.plot(t[1:], risk[1:], color=COLOURS[0], lw=1.8, label="all heads")
            axes.set(xlabel="time t", title=f"{kind}, one start")
            show_times(axes, at, ends[one])
        left.set_ylabel("risk, noise included")
        middle.legend(fontsize=7)
        for value, colour in zip(config.eigenvalues, colours(1), strict=False):
            own = [row for row in removed if row["eigenvalue"] == value]
            N, label = [row["length"] for row in own], rf"$\lambda$ = {value:g}"
            right.plot(N, [row["predicted"] for row in own], color=colour, lw=1.2)
            changes = [row["change"] for row in own]
            right.plot(N, changes, "o", ms=4, color=colour, label=label)
        right.axhline(0, color="0.6", lw=0.8)
        right.set(xscale="log", xlabel="examples N after training")
        right.set(title="without one direction", ylabel="change of the risk")
        right.set_yscale("symlog", linthresh=0.1)
        right.legend(fontsize=7)
    return figure


def draw_sgd(config: Config, sgd: dict[str, Any]) -> Any:
    """SGD on fresh prompts beside the flow from the same starts."""
    with frame.panels(figsize=(7, 4.2)) as (figure, axes):
        for level in sgd["levels"]:
            axes.axhline(level, color="0.6", ls="--", lw=0.8)
        pairs = zip(sgd["risks"], sgd["flow"], strict=True)
        for (noisy, smooth), colour in zip(pairs, colours(1), strict=False):
            axes.plot(sgd["times"][1:], noisy[1:], color=colour, lw=1, alpha=0.7)
            axes.plot(sgd["times"][1:], smooth[1:], color=colour, ls=":", lw=1.8)
        axes.set(xscale="log", xlabel="time = step size x steps")
        axes.set_ylabel("exact risk, noise included")
        title = f"SGD (solid, {config.batch_size} prompts per step) and gradient flow "
        axes.set_title(title + "(dotted)")
    return figure


@frame.experiment(PRESETS)
def main(config, run):
    found = []
    with jax.enable_x64(True):
        with run.phase("flows"):
            for kind in run.track(list(KINDS), "flows", unit="kinds"):
                found += [measure(config, kind, scale) for scale in config.scales]
        with run.phase("SGD"):
            sgd = train(config)
        last = {at["kind"]: at for at in found}  # of the last scale
        resting, removed = rests(last["rank 1"]), shorter(config, last["merged"])
    rows = errors(found)
    numbers: Any = {"ends": rows, "plateaus": resting, "removals": removed}
    numbers["sgd"] = {name: sgd[name][:, -1] for name in ("risks", "flow")}
    numbers["levels"] = sgd["levels"]
    drawn = {"staircases.png": draw_staircases(config, found)}
    drawn["removals.png"] = draw_removals(config, found, removed)
    return Report(
        numbers,
        checks=checks(config, found, resting, sgd, removed),
        tables=tables(rows, resting, removed),
        figures=drawn | {"sgd.png": draw_sgd(config, sgd)},
        axes={"levels": ["directions learned"], "sgd.*": ["seed"]},
    )


frame.program(__name__, main)
