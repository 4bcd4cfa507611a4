"""How many prompts and tasks pretraining takes: exact lines, and fitted attention.

Least squares fits of one linear step to n prompts of k tasks. Dots: exact risks of fits
at d = 20, 40 and at some ratios 80; lines: their limit as d grows with N / d, k / d and
n / d^2 fixed. Then small fits of a step, GD-beta and LTB beside their leading term C /
T. A label has variance 1 + noise_var; everything is float64.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax.flatten_util import ravel_pytree

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect, largest
from icltheory import regression as reg
from icltheory.plotting import COLOURS, METHODS
from icltheory.regression.pretraining import leading_excess, shifted_tasks_limit
from icltheory.statistics import Estimate

ROWS = 400  # prompts that are drawn together
FAMILIES = {"linear step": reg.LinearStep, "GD-beta": reg.GDBeta, "LTB": reg.LTB}
# Title, x axis, and the ticks of both axes of each panel, by what varies.
TICKS, SHIFTS = (0.1, 0.3, 1, 3, 10), (0.8, 0.9, 1, 1.2, 1.4)
PANELS = {
    "tau": ("More prompts", "prompts / d²", (0.5, 1, 2, 4, 8), TICKS),
    "kappa": ("More tasks", "tasks / d", (0.2, 0.5, 1, 2, 3), TICKS),
    "spread": ("Shift", "max / min variance of training tasks", SHIFTS, (1, 10, 100)),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings, and how often each is fitted."""

    context_ratio: float = 2.0  # alpha = N / d, examples of a prompt
    kappa: float = 2.0  # k / d, tasks, where it does not vary
    tau: float = 4.0  # n / d^2, prompts, where it does not vary
    noise_var: float = 0.25  # noise variance
    # dimensions d; those after the second have fits at some ratios, without ridge
    dims: tuple[int, ...] = (20, 40, 80)
    fits: tuple[int, ...] = (24, 4, 3)  # fits of each setting, by dimension
    ratios: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # tau and kappa with fits
    large_ratios: tuple[float, ...] = (0.25, 0.5, 2.0)  # tau with fits of all d
    ridge: float = 0.3  # ridge penalty of the second curve over tau
    spreads: tuple[float, ...] = (1.0, 10.0, 100.0)  # max / min variance of weights
    test_spread: float = 10.0  # that of the test tasks
    few_tasks: float = 0.5  # value of kappa of the second curve over spreads
    pools: int = 12  # pools of which the dMMSE is measured, at each kappa
    small_examples: int = 16  # examples N of the small fits, at d = 2
    small_prompts: tuple[int, ...] = (500, 4000, 16_000)  # their T
    small_fits: int = 160  # fits for each T
    seed: int = 0  # seed of all draws

    def __post_init__(self):
        each = f"one for each of {len(self.dims)} dims"
        expect(len(self.dims) == len(self.fits) > 1, "fits", each, self.fits)
        expect(min(self.fits) >= 2, "fits", "at least 2 each", self.fits)
        check_at_least(self, 2, "small_fits", "pools")
        check_at_least(self, 1, "small_examples")
        for name in ("ratios", "spreads", "small_prompts"):
            least = min(getattr(self, name), default=0)
            expect(least > 0, name, "values above 0", getattr(self, name))


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "5 to 8 min, 2 cores"}


def settings(config: Config) -> list[dict]:
    """The settings with fits: two curves over prompts, one over tasks, two shifts."""
    base: dict[str, Any] = {"kappa": config.kappa, "tau": config.tau, "spread": 1.0}
    base |= {"test": 1.0, "ridge": 0.0}
    wide: dict[str, Any] = {"test": config.test_spread}
    rows: list[tuple[str, float, dict[str, Any]]] = []
    for ridge in (0.0, config.ridge):
        rows += [("tau", tau, {"ridge": ridge}) for tau in config.ratios]
    rows += [("kappa", kappa, {}) for kappa in config.ratios]
    for kappa in (config.kappa, config.few_tasks):
        rows += [("spread", c, {"kappa": kappa, **wide}) for c in config.spreads]
    made = [base | more | {"panel": name, name: x} for name, x, more in rows]
    # Without ridge the error is infinite at tau = 1.
    return [row for row in made if row["tau"] != 1 or row["ridge"] > 0]


def exact(config: Config, row: dict) -> np.ndarray:
    """The limit of a setting on new tasks and on training tasks."""
    size = 64 if row["test"] > 1 else 1  # values that stand for the spectrum
    covs = (np.diag(spectrum(row[name], size)) for name in ("spread", "test"))
    given = config.context_ratio, float(row["kappa"]), float(row["tau"])
    ridge = float(row["ridge"])
    found = shifted_tasks_limit(*given, config.noise_var, *covs, ridge=ridge)
    return np.array([found.icl, found.in_distribution])


def spectrum(spread: float, d: int) -> np.ndarray:
    """Variances of the weights of a task: geometric, with mean 1."""
    values = spread ** -np.linspace(0, 1, d)
    return values / values.mean()


def drawn(rng, d: int, N: int, n: int, tasks: np.ndarray, noise_var: float) -> tuple:
    """Queries, X'y / N and labels of n prompts of these tasks, x ~ N(0, I / d)."""
    w, h = tasks[np.arange(n) % len(tasks)], np.empty((n, d))
    for start in range(0, n, ROWS):
        part = w[start : start + ROWS]
        X = rng.normal(size=(len(part), N, d)) / math.sqrt(d)
        y = (X @ part[:, :, None])[..., 0]
        y += math.sqrt(noise_var) * rng.normal(size=y.shape)
        h[start : start + ROWS] = (y[:, None] @ X)[:, 0] / N
    x = rng.normal(size=(n, d)) / math.sqrt(d)
    return x, h, np.sum(x * w, axis=1) + math.sqrt(noise_var) * rng.normal(size=n)


def fitted(x: np.ndarray, h: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """Gamma of the least squares fit with a ridge, in the units of the limit."""
    n, d = x.shape
    # The limit penalises Gamma / d, since its features are those of d X'y / N.
    penalty = ridge * n / d**3
    if n > d * d:
        features = (x[:, :, None] * h[:, None]).reshape(n, -1)
        gram = features.T @ features + penalty * np.eye(d * d)
        return np.linalg.solve(gram, features.T @ y).reshape(d, d)
    gram = (x @ x.T) * (h @ h.T) + penalty * np.eye(n)
    return np.einsum("t,ti,tj->ij", np.linalg.solve(gram, y), x, h)


def isotropic(d: int, noise_var: Any, second: Any = None) -> reg.LinearPopulation:
    """Inputs x ~ N(0, I / d), and tasks of a second moment."""
    return reg.LinearPopulation(jnp.eye(d) / d, None, second, noise_var)


@jax.jit
def exact_risk(Gamma, second, N, noise_var):
    """Exact risk of a fit on tasks of a second moment."""
    tasks = isotropic(len(second), noise_var, second)
    return reg.risk(reg.LinearStep(Gamma), tasks, N)


def simulate(config: Config, row: dict, seed: tuple) -> dict[int, Estimate]:
    """Risks of fits on new tasks and on their own, by dimension."""
    found, all_dims = {}, row["panel"] == "tau" and not row["ridge"]
    all_dims = all_dims and row["tau"] in config.large_ratios
    sizes = list(zip(config.dims, config.fits, strict=True))
    for d, fits in sizes if all_dims else sizes[:2]:
        n, N = round(row["tau"] * d * d), round(config.context_ratio * d)
        rng, risks = np.random.default_rng((*seed, d)), []
        train, test = (spectrum(row[name], d) for name in ("spread", "test"))
        for _ in range(fits):
            tasks = rng.normal(size=(round(row["kappa"] * d), d)) * np.sqrt(train)
            x, h, y = drawn(rng, d, N, n, tasks, config.noise_var)
            Gamma = fitted(x, h, y, row["ridge"])
            seconds = np.diag(test), tasks.T @ tasks / len(tasks)
            both = [exact_risk(Gamma, M, N, config.noise_var) for M in seconds]
            risks.append(np.array(both))
        found[d] = Estimate.of(np.stack(risks))
    return found


def dmmse(config: Config, kappa: float, key: Any) -> Estimate:
    """Risks of the dMMSE of a pool on new tasks and on its own, over pools."""
    d, N = config.dims[0], round(config.context_ratio * config.dims[0])
    population, size = isotropic(d, config.noise_var), 1024

    @jax.jit
    def risks(key):
        own, *keys = jax.random.split(key, 3)
        pool = reg.TaskPool(population, round(kappa * d), own)
        rule, both = reg.DiscreteMMSE(pool.pool, config.noise_var), []
        for source, key in zip((population, pool), keys, strict=True):
            errors = reg.squared_errors(rule, source, N, key=key, num_prompts=size)
            both.append(jnp.mean(errors))
        return jnp.stack(both)

    keys = jax.random.split(key, config.pools)
    return Estimate.of(np.stack([np.asarray(risks(key)) for key in keys]))


def small_population(config: Config) -> reg.LinearPopulation:
    """Tasks with a mean in two dimensions, for fits of all weights of a block."""
    H, mean = np.array([[1.0, 0.3], [0.3, 0.5]]), np.array([1.0, -2.0])
    return reg.LinearPopulation(H, mean, np.eye(2), config.noise_var)


def small_excess(config: Config, name: str, T: int, key: Any) -> Estimate:
    """T times the excess of fits of all weights, by Gauss-Newton from the optimum."""
    population, N = small_population(config), config.small_examples
    best = reg.optimum(FAMILIES[name], population, N)
    start, back = ravel_pytree(best.model.effective() if name == "LTB" else best.model)
    slope = jax.value_and_grad(lambda theta, *given: back(theta).predict(*given))

    def fit(key):
        prompt = population.sample(key, N, T)
        given = prompt.X, prompt.y, prompt.x_query

        def step(theta, _):
            found, J = jax.vmap(slope, (None, 0, 0, 0))(theta, *given)
            missed = J.T @ (prompt.y_query - found)
            # The scale of an LTB is free: the least step leaves it.
            return theta + jnp.linalg.pinv(J.T @ J, rtol=1e-9) @ missed, None

        theta = jax.lax.scan(step, start, length=4)[0]
        return reg.risk(back(theta), population, N) - best.risk

    keys = jax.random.split(key, config.small_fits)
    return Estimate.of(T * np.asarray(jax.jit(lambda k: jax.lax.map(fit, k))(keys)))


def measure(config: Config, run: Any) -> dict[str, Any]:
    """Fits of all settings, the dMMSE and Bayes beside them, and the small fits."""
    rows, key = settings(config), jax.random.key(config.seed)
    for i, row in enumerate(run.track(rows, "fits", unit="settings")):
        row["fits"] = simulate(config, row, (config.seed, i))
        row["exact"] = exact(config, row)
        if row["panel"] == "kappa":
            row["dmmse"] = dmmse(config, row["kappa"], jax.random.fold_in(key, i))
    d, cost = config.dims[0], []
    task, N = isotropic(d, config.noise_var), round(config.context_ratio * d)
    best = reg.estimate_risk(reg.Bayes(task), task, N, key=key)
    task, N = small_population(config), config.small_examples
    for i, name in enumerate(run.track(FAMILIES, "small fits", unit="families")):
        C = float(leading_excess(FAMILIES[name], task, N).constant)
        for j, T in enumerate(config.small_prompts):
            own = jax.random.fold_in(key, 1000 + 100 * i + j)
            found = small_excess(config, name, T, own)
            cost.append({"family": name, "C": C, "T": T, "found": found})
    return {"rows": rows, "bayes": float(best.mean), "cost": cost}


def spread_of_fits(row: dict) -> tuple[np.ndarray, int]:
    """The c of a setting's standard deviations c / d over fits, and its degrees.

    All dimensions together: that of 4 fits alone is within a factor of 4 at best.
    """
    fits = row["fits"].items()
    squares = [e.dof * (e.dof + 1) * (d * e.standard_error) ** 2 for d, e in fits]
    dof = sum(e.dof for _, e in fits)
    return np.sqrt(sum(squares) / dof), dof


def p_values(row: dict) -> np.ndarray:
    """Tests a setting's errors, extrapolated to 1 / d = 0, against the limit."""
    c, dof = spread_of_fits(row)
    inverse = np.array([[1, 1 / d] for d in row["fits"]])
    weights = np.array([d**2 * (e.dof + 1) for d, e in row["fits"].items()])
    means = np.stack([e.mean for e in row["fits"].values()])
    covariance = np.linalg.inv(inverse.T @ (weights[:, None] * inverse))
    limit = (covariance @ inverse.T @ (weights[:, None] * means))[0]
    t = np.abs(limit - row["exact"]) / (c * np.sqrt(covariance[0, 0]))
    return 2 * scipy.stats.t.sf(t, dof)


def deviations(rows: list[dict], d: int) -> tuple[float, float]:
    """Mean of errors over their limits, less 1, and its standard error."""
    means = [row["fits"][d].mean / row["exact"] - 1 for row in rows]
    # The two errors of a setting have the same fits.
    each = [
        np.mean(spread_of_fits(row)[0] / row["exact"])
        / (d * math.sqrt(row["fits"][d].dof + 1))
        for row in rows
    ]
    return float(np.mean(means)), float(np.linalg.norm(each) / len(each))


def approach(config: Config, rows: list[dict]) -> Check:
    """Checks that the mean deviation falls like 1 / d, from the first d to the second.

    Its limits are those of four standard errors.
    """
    (small, a), (large, b) = [(d, deviations(rows, d)) for d in config.dims[:2]]
    ratio = b[0] / a[0]
    error = abs(ratio) * math.hypot(a[1] / a[0], b[1] / b[0])
    name = f"mean deviation from the limit at d = {large} over that at {small}"
    return Check(name, ratio, small / large, "within", 4 * error)


def curve(config: Config, row: dict, xs: np.ndarray, side: int) -> list[float]:
    """The limit along the axis of a row's panel."""
    return [exact(config, row | {row["panel"]: x})[side] for x in xs]


def draw_panel(config: Config, axes: Any, rows: list[dict], side: int) -> None:
    """Lines and dots of one panel, on new tasks or on training tasks."""
    name = rows[0]["panel"]
    title, xlabel, marks, ticks = PANELS[name]
    xs = np.geomspace(ticks[0], ticks[-1], 90 if name != "spread" else 30)
    kinds = {(r["ridge"], r["kappa"] if name != "kappa" else 0): r for r in rows}
    for ((ridge, kappa), row), colour in zip(kinds.items(), COLOURS[1:], strict=False):
        label = {"tau": f"ridge {ridge:g}", "spread": f"tasks / d = {kappa:g}"}
        line, label = curve(config, row, xs, side), label.get(name, "fits")
        axes.plot(xs, line, color=colour, label=label)
        own = [r for r in rows if r["ridge"] == ridge and kappa in (0, r["kappa"])]
        for d, marker in zip(config.dims, "osD", strict=False):
            points = [(r[name], r["fits"][d]) for r in own if d in r["fits"]]
            if points:
                errorbars(axes, points, side, color=colour, marker=marker)
    if name == "kappa":
        rich, free = dataclasses.replace(config, context_ratio=1e6), {"tau": math.inf}
        for given, label, look in ((config, "prompts", "--"), (rich, "both", ":")):
            line = curve(given, rows[0] | free, xs, side)
            axes.plot(xs, line, look, color=COLOURS[1], label=f"unlimited {label}")
        points = [(row["kappa"], row["dmmse"]) for row in rows]
        errorbars(axes, points, side, color=METHODS["dMMSE"], marker="X", label="dMMSE")
    mark = config.test_spread if name == "spread" else 1
    axes.axvline(mark, color="grey", lw=0.8, ls=":", zorder=0)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylim=(marks[0], marks[-1]))
    axes.set_title(title + (", training tasks" if side else ", new tasks"), fontsize=9)
    axes.set_yticks(marks, [f"{y:g}" for y in marks])
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.minorticks_off()


def errorbars(axes: Any, points: list, side: int, **look: Any) -> None:
    """Means and 95 % intervals of estimates."""
    x, estimates = zip(*points, strict=True)
    mean = [e.mean[side] for e in estimates]
    bars = [np.asarray(e.half_width(0.95))[side] for e in estimates]
    look |= {"ls": "", "ms": 4.5, "mec": "white", "mew": 0.5, "capsize": 2}
    axes.errorbar(x, mean, bars, elinewidth=1, **look)


def draw_errors(config: Config, found: dict) -> Any:
    """Errors of fits and their limits, one panel for each thing that varies."""
    given = f"N / d = {config.context_ratio:g}, noise {config.noise_var:g}; tasks / d "
    given += f"= {config.kappa:g} and prompts / d² = {config.tau:g} where they do not "
    given += "vary"
    places = [("tau", 0), ("spread", 0), ("kappa", 0), ("kappa", 1)]
    with frame.panels(2, 2, given, figsize=(8.4, 7)) as (figure, grid):
        for axes, (name, side) in zip(grid.ravel(), places, strict=True):
            rows = [row for row in found["rows"] if row["panel"] == name]
            draw_panel(config, axes, rows, side)
            if (name, side) == ("kappa", 0):
                axes.axhline(found["bayes"], color=METHODS["Bayes"], label="Bayes")
            keys = axes.get_legend_handles_labels()[0]
            if name == "tau":
                for d, marker in zip(config.dims, "osD", strict=False):
                    keys.append(frame.key(ls="", marker=marker, label=f"d = {d}"))
            axes.legend(handles=keys, fontsize=8)
            axes.set_ylabel("error, noise included")
    return figure


def draw_cost(cost: list[dict]) -> Any:
    """T times the excess of small fits over C, which tends to 1."""
    with frame.panels(figsize=(6.4, 3.8)) as (figure, axes):
        for name, colour in zip(FAMILIES, COLOURS[1:], strict=False):
            rows = [row for row in cost if row["family"] == name]
            ratios = [(r["T"], r["found"].mean / r["C"]) for r in rows]
            bars = [r["found"].half_width(0.95) / r["C"] for r in rows]
            look = {"fmt": "o-", "ms": 4, "lw": 1, "capsize": 2, "color": colour}
            label = f"{name}, C = {rows[0]['C']:.1f}"
            axes.errorbar(*zip(*ratios, strict=True), bars, label=label, **look)
        axes.axhline(1, color="0.3", ls="--", lw=1)
        axes.set(xscale="log", xlabel="prompts T", ylabel="T (risk - least risk) / C")
        axes.legend(fontsize=8)
    return figure


def numbers(row: dict) -> dict[str, Any]:
    """What is stored of a setting."""
    stored = {name: row[name] for name in row if name not in ("fits", "dmmse")}
    fits = dict(row["fits"]) | ({"dmmse": row["dmmse"]} if "dmmse" in row else {})
    for size, e in fits.items():
        stored[f"{size}"] = {"mean": e.mean, "standard error": e.standard_error}
    return stored


def report(config: Config, found: dict) -> Report:
    """Numbers, checks, claims, tables and figures of the run."""
    rows, cost, last = found["rows"], found["cost"], max(config.small_prompts)
    p = np.concatenate([p_values(row) for row in rows])
    rare = -math.log10(min(1.0, p.size * p.min()))
    ends = [(row["found"], row["C"]) for row in cost if row["T"] == last]
    off = largest(abs(e.mean - C) / e.standard_error for e, C in ends)
    spreads, best, own = np.geomspace(1, 1000, 61), {}, config.test_spread
    for row in (r for r in rows if r["panel"] == "spread"):
        best[row["kappa"]] = spreads[np.argmin(curve(config, row, spreads, 0))]
    said = ", ".join(f"{c:.3g} at {k:g} tasks / d" for k, c in best.items())
    held = all(abs(np.log(c / own)) < 0.3 for c in best.values())
    claim = f"training tasks as unequal as the test tasks ({own:g}) are best"
    columns = {"family": "{family}", "C": "{C:.2f}", "T": "{T}"}
    columns["T x excess"] = "{found.mean:.2f} +- {found.standard_error:.2f}"
    stored = {"settings": [numbers(row) for row in rows], "bayes": found["bayes"]}
    stored |= {"best_spread": {f"{k:g}": c for k, c in best.items()}}
    whole = [row for row in rows if len(row["fits"]) == len(config.dims)]
    away = {d: deviations(whole, d) for d in config.dims if whole}
    stored["deviations"] = {f"{d}": [*values] for d, values in away.items()}
    above = [f"{m:.1%} +- {e:.1%} (d = {d})" for d, (m, e) in away.items()]
    finding = f"where all d have fits these exceed the limit by {', '.join(above)}"
    stored["cost"] = [row | {"found": [*row["found"]]} for row in cost]
    law = f"-log10 of Holm's least p of {p.size} errors, extrapolated, against the "
    names = f"{law}limit", f"largest z of T x excess against C, T = {last}"
    # Each fails a correct run once in a thousand, or less.
    limits = zip(names, (rare, off), (3, 3.5), strict=True)
    made = [Check(name, value, most, "<=") for name, value, most in limits]
    return Report(
        stored,
        checks=[*made, approach(config, rows)],
        claims=[Claim(claim, said, held)],
        tables=[frame.table(cost, columns, "cost of pretraining, d = 2")],
        figures={"errors.png": draw_errors(config, found), "cost.png": draw_cost(cost)},
        findings=[finding],
        interval_level=0.95,
    )


@frame.experiment(PRESETS)
def main(config, run):
    """Fits linear attention to prompts, and compares its risk with the limit."""
    with run.phase("fits"), jax.enable_x64(True):
        found = measure(config, run)
    with run.phase("exact lines"), jax.enable_x64(True):
        return report(config, found)


frame.program(__name__, main)
