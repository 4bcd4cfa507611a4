"""Training on pattern tasks predicted by reduced dynamics, and the exponent in alpha.

Beside each training of the one-layer model, for several shares alpha at two norms beta,
stands what ``patterns.reduced_training`` predicts from the start. Then reduced dynamics
alone: are steps a power of alpha (Theorem 1: alpha^(-2/3)), or A / alpha + B?
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from icltheory import patterns
from icltheory.plotting import COLOURS, panel_grid
from icltheory.statistics import Estimate

KINDS = ("", "predicted ")  # prefixes of what is measured and of its prediction


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of a run."""

    # norms beta of the patterns, each with its step size eta
    scales: tuple[tuple[float, float], ...] = ((2.0, 2.0), (3.0, 1.0))
    # shares alpha of relevant examples in training, descending
    shares: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.25)
    # shares for the reduced dynamics alone, descending
    small_shares: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
    num_relevant: int = 6  # number M1 of relevant patterns
    num_irrelevant: int = 24  # number M2 of irrelevant ones
    num_neurons: int = 64  # number m of neurons
    num_examples: int = 20  # examples l of a prompt
    steps: int = 500  # training steps
    batch_size: int = 512  # prompts per step; the prediction is for infinitely many
    prompts: int = 8192  # prompts on which attention is measured
    every: int = 20  # steps between two measurements of attention
    seeds: tuple[int, ...] = (0, 1, 2)  # trained models of each setting
    goal: float = 0.1  # hinge loss that ends a training
    window: int = 5  # steps over which the losses of batches are averaged; odd

    def __post_init__(self):
        # JSON stores tuples as lists.
        object.__setattr__(self, "scales", tuple(map(tuple, self.scales)))
        counts = ("steps", "batch_size", "prompts", "every", "num_examples", "window")
        check_at_least(self, 1, *counts)
        check_at_least(self, 3, "num_relevant")
        steps, every = self.steps, self.every
        expect(not steps % every, "every", f"a divisor of steps {steps}", every)
        expect(self.window % 2 == 1, "window", "an odd number", self.window)
        right = self.scales != () and all(b > 0 and eta > 0 for b, eta in self.scales)
        expect(right, "scales", "pairs of positive numbers", self.scales)
        for name in ("shares", "small_shares"):
            values = getattr(self, name)
            right = list(values) == sorted(set(values), reverse=True)
            right = right and len(values) > 2 and 0 < values[-1] <= values[0] <= 1
            expect(right, name, "three or more shares in (0, 1], descending", values)
        frame.check_seeds("seeds", self.seeds)
        frame.check_each(self, "in (0, 1)", "goal")


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "2 to 3 min, 2 cores"}


# --- training, its prediction, and the reduced dynamics at small alpha


def measure(config, scale, step_size, share):
    """Losses, attention (seeds, steps) and steps to the goal, trained and predicted."""
    seeds = jnp.asarray(config.seeds, jnp.uint32)
    given = (jnp.float32(x) for x in (scale, step_size, share))
    losses, masses, predicted = _measure(config, seeds, *given)
    window, half = np.ones(config.window) / config.window, config.window // 2
    padded = np.pad(np.asarray(losses, float), [(0, 0), (half, half)], mode="edge")
    found = {
        "losses": np.stack([np.convolve(row, window, "valid") for row in padded]),
        "predicted losses": np.asarray(predicted.losses),
        "masses": np.asarray(masses),
        "predicted masses": np.asarray(predicted.masses),
    }
    for kind in KINDS:
        found[f"{kind}steps"] = first_below(found[f"{kind}losses"], config.goal)
    return found | {"name": f"beta {scale:g}, alpha {share:g}"}


@functools.partial(jax.jit, static_argnums=0)
def _measure(config, seeds, scale, step_size, share):
    setting = {"step_size": step_size, "num_examples": config.num_examples}

    def one(seed):
        task, model, start, keys = setup(config, seed, scale, share)
        sizes = {"batch_size": config.batch_size, "record_every": config.every}
        known = model, task, start, config.steps
        path = patterns.train(*known, key=keys[0], **sizes, **setting)
        prompt = task.sample(keys[1], config.num_examples, config.prompts)

        def mass(params):
            return jnp.mean(patterns.scores(model, params, prompt).masses)

        predicted = patterns.reduced_training(start, task, config.steps, **setting)
        return path.losses, jax.lax.map(mass, path.params), predicted

    return jax.lax.map(one, seeds)


def setup(config, seed, scale, share=None):
    """Task with all pairs of patterns, model, its start, and two more keys."""
    keys = jax.random.split(jax.random.key(seed), 4)
    sizes = config.num_relevant, config.num_irrelevant, scale
    look = {"relevant_fraction": share, "key": keys[0], "dtype": jnp.float32}
    task = patterns.PatternTask(*sizes, **look)
    model = patterns.PatternTransformer(config.num_neurons)
    return task, model, model.init(task, key=keys[1]), keys[2:]


def first_below(losses, goal):
    """Number of the first loss below the goal along the last axis, or NaN."""
    below = np.asarray(losses) < goal
    return np.where(below.any(axis=-1), below.argmax(axis=-1), np.nan)


def jump_times(config):
    """Steps until one context of the query's pattern outweighs all others, by alpha."""
    scale, step_size = config.scales[0]
    task, _, start, _ = setup(config, config.seeds[0], scale)
    setting = {"step_size": step_size, "num_examples": config.num_examples}
    times = []
    for share in config.small_shares:
        # This is more than twice the number of steps expected until the jump.
        steps = round(config.steps * (0.1 + 0.4 / share))
        own = task.with_(relevant_fraction=share)
        path = patterns.reduced_training(start, own, steps, **setting)
        reached = np.asarray(path.logits) > np.log(config.num_examples)
        times.append(reached.argmax() if reached.any() else np.nan)
    return np.array(times, float)


# --- laws of the number of steps


def fitted(shares, steps) -> dict[str, Any]:
    """C and exponent of C alpha^exponent, A and B of A / alpha + B, with errors.

    Least squares of relative errors, and the largest of them; NaN for fewer than three.
    """
    shares, steps = np.asarray(shares, float), np.asarray(steps, float)
    known, none = np.isfinite(steps), (np.nan, np.nan)
    shares, steps = shares[known], steps[known]
    if len(steps) < 3:
        return {"power": none, "power_error": np.nan, "sum": none, "sum_error": np.nan}
    exponent, log_C = np.polyfit(np.log(shares), np.log(steps), 1)
    columns = np.stack([1 / shares, np.ones_like(shares)], axis=1) / steps[:, None]
    A, B = np.linalg.lstsq(columns, np.ones_like(steps), rcond=None)[0]
    power, total = np.exp(log_C) * shares**exponent, A / shares + B
    return {
        "power": (float(np.exp(log_C)), float(exponent)),
        "power_error": float(np.abs(power / steps - 1).max()),
        "sum": (float(A), float(B)),
        "sum_error": float(np.abs(total / steps - 1).max()),
    }


def slopes(shares, steps):
    """Slopes between neighbouring points on log-log axes."""
    return np.diff(np.log(steps)) / np.diff(np.log(shares))


def mean_steps(config, found, scale):
    """Mean steps of training over the seeds, by share."""
    return [found[scale, x]["steps"].mean() for x in config.shares]


# --- what is reported


def numbers(config, found, laws, jumps):
    settings, shares = {}, config.small_shares
    for one in found.values():
        row = {f"{kind}steps": one[f"{kind}steps"] for kind in KINDS}
        for kind in KINDS:
            row[f"{kind}attention at the end"] = one[f"{kind}masses"][:, -1].mean()
        row["loss at the end"] = one["losses"][:, -20:].mean()
        row["predicted loss at the end"] = one["predicted losses"][:, -1].mean()
        settings[one["name"]] = row
    made = {"settings": settings, "laws": {f"beta {b:g}": x for b, x in laws.items()}}
    jump = {"steps": jumps, "slopes": slopes(shares, jumps)}
    return made | {"jump": jump | {"laws": fitted(shares, jumps)}}


def checks(found):
    """The prediction against training, at the setting of largest difference."""
    steps, attention, made = {}, {}, []
    for x in found.values():
        steps[x["name"]] = x["predicted steps"] / x["steps"] - 1
        attention[x["name"]] = x["masses"][:, -1] - x["predicted masses"][:, -1]
    for name, values, limit in (
        ("steps, predicted over trained less 1", steps, 0.05),
        ("attention at the end, predicted less trained", attention, 0.015),
    ):
        apart = {setting: float(np.abs(x).max()) for setting, x in values.items()}
        # NaN means that a training did not reach the goal, and counts as the largest
        # distance.
        where = max(apart, key=lambda k: np.nan_to_num(apart[k], nan=np.inf))
        title = f"{name}, largest over seeds ({where})"
        made.append(Check(title, apart[where], limit, "<="))
    return made


def claims(config, found, laws, jumps):
    """Theorem 1's exponent against that of training and of the reduced dynamics."""
    made, local = [], slopes(config.small_shares, jumps)
    for scale, law in laws.items():
        own = slopes(config.shares, mean_steps(config, found, scale))
        power, total = law["power_error"], law["sum_error"]
        claim = f"beta = {scale:g}: steps grow as alpha^(-2/3) (Theorem 1)"
        said, held = ", ".join(f"{x:.2f}" for x in own), abs(own + 2 / 3).max() < 0.05
        expected = "slopes between neighbouring alpha are -2/3"
        made.append(Claim(claim, said, held, expected))
        claim, said = f"beta = {scale:g}: steps are A / alpha + B", f"power {power:.1%}"
        expected = "a smaller largest error than any power"
        made.append(Claim(claim, f"{total:.1%}, {said}", total < power, expected))
    claim = "as alpha falls the exponent goes to -1 (reduced dynamics)"
    held, said = np.all(np.diff(local) < 0), ", ".join(f"{x:.3f}" for x in local)
    expected = "slopes fall, and the last one is below -0.95"
    return [*made, Claim(claim, said, held and local[-1] < -0.95, expected)]


def tables(config, found, jumps):
    """Steps of training, measured and predicted, and steps until attention jumps."""
    rows, lines = [], []
    for one in found.values():
        pair = one["steps"], one["predicted steps"]
        ends = (one[f"{kind}masses"][:, -1].mean() for kind in KINDS)
        steps = {"trained": (pair[0], 0, 1), "predicted": (pair[1], 0, 1)}
        steps["ratio"], row = (pair[1] / pair[0], 3, 3), {"setting": one["name"]}
        for name, (values, *digits) in steps.items():
            both = zip(Estimate.of(values), digits, strict=True)
            row[name] = "{} ({})".format(*(f"{x:.{n}f}" for x, n in both))
        row["attention"], row["predicted attention"] = (f"{x:.3f}" for x in ends)
        rows.append(row)
    local = ["", *(f"{x:.3f}" for x in slopes(config.small_shares, jumps))]
    for share, steps, slope in zip(config.small_shares, jumps, local, strict=True):
        row = {"alpha": f"{share:g}", "steps": f"{steps:.0f}"}
        row["alpha steps"] = f"{share * steps:.1f}"
        lines.append(row | {"slope from the row above": slope})
    title = f"steps to a hinge loss below {config.goal:g}, {len(config.seeds)} seeds "
    jump = "reduced dynamics alone: steps until attention jumps"
    first = frame.table(rows, title=f"{title}(standard error)")
    return [first, frame.table(lines, title=jump)]


# --- what is drawn


def draw_paths(shown, every, title):
    """Attention and hinge loss over training steps, one panel per setting."""
    names = {"masses": "attention on the query's pattern", "losses": "hinge loss"}
    with panel_grid(shown, 3, title, (3.0, 3.0)) as (made, grid, entries):
        for axes, one in zip(grid, shown.values(), strict=True):
            for (key, name), colour in zip(names.items(), COLOURS[:2], strict=True):
                style: Any = {"color": colour, "linewidth": 1.2}
                steps = np.arange(one[f"predicted {key}"].shape[1])
                x = (every if key == "masses" else 1) * np.arange(one[key].shape[1])
                drawn = axes.plot(x, one[key].T, alpha=0.8, **style)
                dashed = axes.plot(steps, one[f"predicted {key}"].T, "--", **style)
                entries |= {name: drawn[0], f"{name}, predicted": dashed[0]}
            axes.set(xlabel="step", ylim=(-0.02, 1.05))
        grid[0].set_ylabel("share of attention; hinge loss")
    return made


def draw_steps(shares, points, title):
    """Steps of training and predicted against alpha, with A / alpha + B."""
    places = np.asarray(shares, float)
    fine = np.geomspace(places.min(), places.max(), 100)
    with frame.panels(figsize=(6.2, 4.2)) as (made, axes):
        for order, (name, (found, predicted, (A, B))) in enumerate(points.items()):
            x, colour = np.broadcast_to(places[:, None], found.shape), COLOURS[order]
            mark: Any = {"color": colour, "markersize": 4.5, "alpha": 0.8}
            axes.plot(x, found, "os^D"[order % 4], **mark)
            axes.plot(x, predicted, "x", color=colour, markersize=6)
            label = rf"{name}: {A:.0f} / $\alpha$ + {B:.0f}"
            axes.plot(fine, A / fine + B, color=colour, label=label)
        start = 0.75 * np.mean(next(iter(points.values()))[0][0])
        label, law = r"slope $-2/3$ (Theorem 1)", (fine / places.max()) ** (-2 / 3)
        axes.plot(fine, start * law, color="grey", linestyle=":", label=label)
        axes.set(xscale="log", yscale="log", ylabel="steps")
        axes.set_xlabel(r"share $\alpha$ of examples of the task's two patterns")
        axes.set_xticks(shares, [f"{x:g}" for x in shares])
        (low, high), numbers = axes.get_ylim(), (50, 100, 150, 200, 300, 400, 600, 1000)
        ticks = [n for n in numbers if low <= n <= high]
        axes.set_yticks(ticks, [f"{n:,}" for n in ticks])
        axes.minorticks_off()
        axes.legend()
        axes.set_title(title, fontsize=9)
    return made


def figures(config, found, laws):
    """Paths of three settings, and the number of steps against alpha."""
    scales, shares, seeds = list(laws), config.shares, len(config.seeds)
    chosen = [(scales[0], shares[0]), (scales[0], shares[-2]), (scales[-1], shares[2])]
    shown = {rf"$\beta$ = {b:g}, $\alpha$ = {x:g}": found[b, x] for b, x in chosen}
    points = {}
    for b, law in laws.items():
        own = (np.stack([found[b, x][f"{k}steps"] for x in shares]) for k in KINDS)
        points[rf"$\beta$ = {b:g}"] = (*own, law["sum"])
    paths = f"Training (lines, {seeds} seeds) and its reduced dynamics (dashed)"
    steps = (
        f"Steps to a hinge loss below {config.goal:g}: trained (dots, {seeds} seeds)"
    )
    steps = draw_steps(shares, points, f"{steps} and predicted (crosses)")
    return {"paths.png": draw_paths(shown, config.every, paths), "steps.png": steps}


def report(config, found, jumps):
    shares, axes = config.shares, dict.fromkeys(("steps", "predicted steps"), ["seed"])
    laws = {b: fitted(shares, mean_steps(config, found, b)) for b, _ in config.scales}
    axes = {f"settings.*.{name}": own for name, own in axes.items()}
    axes |= {"jump.steps": ["share"], "jump.slopes": ["pair of neighbouring shares"]}
    findings = [
        f"beta = {scale:g}: steps = {law['sum'][0]:.1f} / alpha + {law['sum'][1]:.1f} "
        f"to {law['sum_error']:.1%}, {law['power'][0]:.0f} "
        f"alpha^{law['power'][1]:.3f} to {law['power_error']:.1%}"
        for scale, law in laws.items()
    ]
    return Report(
        numbers(config, found, laws, jumps),
        checks=checks(found),
        tables=tables(config, found, jumps),
        claims=claims(config, found, laws, jumps),
        findings=findings,
        figures=figures(config, found, laws),
        axes=axes,
    )


@frame.experiment(PRESETS)
def main(config, run):
    settings = [(*pair, share) for pair in config.scales for share in config.shares]
    found = {}
    with run.phase("training"), run.progress("training", len(settings)) as activity:
        for scale, step_size, share in settings:
            activity.enter(f"beta {scale:g}, alpha {share:g}")
            found[scale, share] = measure(config, scale, step_size, share)
            activity.advance()
    with run.phase("small shares"):
        jumps = jump_times(config)
    return report(config, found, jumps)


frame.program(__name__, main)
