"""Noise of the implicit gradient: the error due to few shots and due to training.

Yao et al. 2024, Appendix C.4. GPT-2: the error of the weight that its answers imply is
that of least squares (shots) plus the distance from it (training); their product has
mean zero. Linear stack: |G(b) - G(N)|^2 / |G(N)|^2, normalised by 1/b, against tr C_t,
fresh demonstrations in every layer, and eq. (4).
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, check_at_least, expect, largest
from experiments.shared.training import GPT2_CPU, GPT2_GPU, Recipe, linear_recipe, train
from icltheory import regression as reg
from icltheory.noise import noise_spectrum, noisy_trajectory
from icltheory.plotting import Curve, error_curves, panel_grid
from icltheory.plotting.style import colours
from icltheory.statistics import Estimate
from icltheory.training import stream_key
from icltheory.trajectory import implicit_gd

DEVIATIONS = {  # of the implicit gradient of b demonstrations from that of all N
    "shots": "the prompt's b",
    "fresh": "b fresh per layer",
    "gaussian": "Gaussian, eq. (4)",
    "formula": r"$\operatorname{tr} C_t$, exact",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured."""

    gpt2: Recipe  # the transformer
    stack: Recipe  # the linear stack, in which the implicit gradient exists exactly
    shots: tuple[int, ...]  # the numbers b
    parts: tuple[float, ...] = (0.0, 0.03, 0.1, 0.3, 1.0)  # of training, when measured
    eval_prompts: int = 256  # prompts on which the transformer's weights are read off
    queries: int = 32  # queries a prompt, in pairs x, -x
    subset_prompts: int = 128  # pools of N demonstrations for the stack
    subsets: int = 64  # subsets of b demonstrations of each pool
    label_noise: float = 0.25  # variance in the curve of the Bayes predictor

    def __post_init__(self):
        d, Q, shots = self.gpt2.dim, self.queries, self.shots
        models = f"{self.gpt2.model} and {self.stack.model}"
        wanted, both = "gpt2 and linear", "gpt2.model, stack.model"
        expect(models == wanted, both, wanted, models)
        wanted = "one seed, noise_var 0 and no snapshots (parts selects them)"
        for name, r in {"gpt2": self.gpt2, "stack": self.stack}.items():
            plain = len(r.seeds) == 1 and not r.noise_var and not r.snapshots
            got = f"seeds {r.seeds}, noise_var {r.noise_var:g}"
            expect(plain, name, wanted, f"{got} and snapshots {r.snapshots}")
        points, least = self.gpt2.num_points, f"at least 2 dim + 1 = {2 * d + 1}"
        expect(points > 2 * d, "gpt2.num_points", least, points)
        wanted = f"an even number from 2 dim = {2 * d}"
        expect(Q % 2 == 0 and 2 * d <= Q, "queries", wanted, Q)
        inside = min(shots, default=0) >= 1 and max(shots) <= self.pool
        expect(inside, "shots", f"numbers from 1 to {self.pool}", shots)
        frame.check_each(self, "in [0, 1]", "parts")
        check_at_least(self, 2, "eval_prompts", "subset_prompts", "subsets")

    def needs_all_steps(self):
        return "parts names the evaluated steps as shares of all steps"

    @property
    def pool(self):
        """Number of demonstrations N of the linear stack."""
        return self.stack.num_points - 1

    def recipe(self, name):
        """A recipe with snapshots where chunks end at or after ``parts``, and last."""
        recipe = getattr(self, name)
        steps, chunk = recipe.steps, recipe.chunk_steps
        ends = {min(math.ceil(p * steps / chunk) * chunk, steps) for p in self.parts}
        return dataclasses.replace(recipe, snapshots=tuple(sorted(ends | {steps})))


_SHOTS = (1, 2, 3, 5, 7, 10, 14, 17, 19, 20)
_MANY = (1, 2, 4, 7, 10, 14, 20, 28, 36, 39, 40)
_LARGE: Any = {"eval_prompts": 1024, "queries": 64, "subset_prompts": 512}
PRESETS = {
    "cpu": Config(GPT2_CPU, linear_recipe(2), _SHOTS),
    "gpu": Config(GPT2_GPU, linear_recipe(2, 10, 3000), _MANY, **_LARGE),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "80 s, 2 cores"}


def measure_gpt2(config, trained):
    """Error of the transformer and its parts, by training step."""
    recipe = config.recipe("gpt2")
    keys = jax.random.split(stream_key(recipe.seeds[0], "evaluation"), 2)
    count = config.eval_prompts
    prompt = recipe.task().sample(keys[0], recipe.num_points - 1, count).prefixes()
    queries = query_design(keys[1], count, config.queries, recipe.dim)
    w_ls, parts = least_squares_weights(prompt), {}
    for step in recipe.snapshots:
        values = answers(trained.module, trained.of_seed(0, step), prompt, queries)
        parts[step] = split(values, queries, w_ls, prompt.w)
    return parts


def query_design(key, num_prompts, num_queries, dim):
    """Draws queries x, -x with sum x x^T = Q I, for which linear fits are sums."""
    half = num_queries // 2
    normal = jax.random.normal(key, (num_prompts, half, dim), jnp.float32)
    X = jnp.sqrt(jnp.float32(half)) * jnp.linalg.qr(normal)[0]
    return jnp.concatenate([X, -X], axis=1)


@functools.partial(jax.jit, static_argnames="module")
def answers(module, params, prompt, queries):
    """Predictions at every prefix for every query, (prompts, prefixes, queries)."""

    def ask(query):
        asked = jnp.broadcast_to(query[:, None], prompt.X.shape)
        return module.apply({"params": params}, prompt.X, prompt.y, asked)

    return jnp.moveaxis(jax.lax.map(ask, jnp.moveaxis(queries, 1, 0)), 0, 2)


def least_squares_weights(prompt):
    """Minimum-norm least squares by prefix, (prompts, prefixes, d), in float64."""
    X, w = np.asarray(prompt.X, np.float64), np.asarray(prompt.w, np.float64)
    y = X @ w[:, :, None]  # anew in float64, so that the weights end at w itself
    prefixes = [np.linalg.pinv(X[:, :k]) @ y[:, :k] for k in range(X.shape[1])]
    return np.stack(prefixes, axis=1)[..., 0]


def split(values, queries, w_ls, w):
    """Squared error / d of each prompt and number of examples, and its parts."""
    # ``total = shots + training + curvature + cross`` holds for every entry: shots is
    # the error of least squares, training the distance of the implied weight from it,
    # and curvature that of the answers from a linear function. A fit over Q queries
    # counts about d/Q of the curvature as training; both are what training leaves.
    values, X, w = (np.asarray(a, np.float64) for a in (values, queries, w))
    d = X.shape[2]
    w_hat = np.einsum("bpq,bqd->bpd", values, X) / X.shape[1]
    truth = np.einsum("bqd,bd->bq", X, w)[:, None]
    linear = np.einsum("bpd,bqd->bpq", w_hat, X)
    missed, off = w_ls - w[:, None], w_hat - w_ls
    return {
        "total": ((values - truth) ** 2).mean(axis=2) / d,
        "shots": (missed**2).sum(axis=2) / d,
        "training": (off**2).sum(axis=2) / d,
        "curvature": ((values - linear) ** 2).mean(axis=2) / d,
        "cross": 2 * (missed * off).sum(axis=2) / d,
    }


def left(parts):
    """What training leaves of the error."""
    return parts["training"] + parts["curvature"]


def bayes_with_label_noise(config):
    """Risk / d of the Bayes predictor with noisy labels, by number of examples."""
    recipe = config.gpt2
    key = jax.random.fold_in(stream_key(recipe.seeds[0], "evaluation"), 2)
    task, lengths = recipe.task(config.label_noise), range(recipe.num_points)
    risk = reg.estimate_risk(reg.Bayes(task), task, lengths, key=key, num_prompts=4000)
    return np.asarray(risk.mean - task.noise_var) / recipe.dim


def measure_stack(config, trained):
    """Noise of the stack's implicit gradients, by training step."""
    recipe, count = config.recipe("stack"), config.subset_prompts
    keys = jax.random.split(stream_key(recipe.seeds[0], "evaluation"), 2)
    prompt = recipe.task().sample(keys[0], config.pool, count)
    stacks = {step: trained.stack(0, step) for step in recipe.snapshots}
    sizes = config.shots, config.subsets
    return {n: subset_noise(keys[1], one, prompt, *sizes) for n, one in stacks.items()}


def subset_noise(key, stack, prompt, shots, subsets):
    """Deviations averaged over subsets, with axes of shots, prompts and layers."""
    # Squared distances of the implicit gradient of b shots from that of N, relative to
    # the latter: ``shots`` of a prompt of b, ``fresh`` with others drawn in each layer,
    # ``gaussian`` of eq. (4); ``formula`` is tr C_t at the weights of all N. ``missed``
    # is the error / d of least squares, ``off`` how far the implied weight is from it.
    keys = jax.random.split(key, len(prompt.y))
    found = [_deviations(keys, stack, prompt, jnp.int32(b), subsets) for b in shots]
    return jax.tree.map(lambda *by_shots: np.stack(by_shots), *found)


@functools.partial(jax.jit, static_argnums=4)
def _deviations(keys, stack, prompts, b, subsets):
    def of_prompt(key, prompt):
        X, y, w, (H, _) = prompt.X, prompt.y, prompt.w, prompt.tokens()
        scale = 1.0 / len(y)
        G = implicit_gd(stack, H, scale=scale).G
        size = jnp.sum(G**2, axis=(1, 2))

        def deviation(G_b):
            return jnp.sum((G_b - G) ** 2, axis=(1, 2)) / size

        def simulated(key, noise):
            path = noisy_trajectory(stack, H, b, key=key, noise=noise, scale=scale)
            return deviation(path.G + path.noise)

        def of_subset(key):
            chosen = (jax.random.permutation(key, len(y)) < b).astype(X.dtype)
            path = implicit_gd(stack, H * chosen[:, None], scale=1 / b)
            w_ls = jnp.linalg.pinv(X * chosen[:, None]) @ (y * chosen)
            w_hat = -path.W[-1, -1, :-1]  # label slot: minus the prediction
            return {
                "shots": deviation(path.G),
                "fresh": simulated(key, "fresh_shots"),
                "gaussian": simulated(key, "gaussian"),
                "missed": jnp.mean((w_ls - w) ** 2),
                "off": jnp.mean((w_hat - w_ls) ** 2),
            }

        parts = jax.vmap(of_subset)(jax.random.split(key, subsets))
        formula = noise_spectrum(stack, H, b, scale=scale).trace / size
        return jax.tree.map(lambda x: x.mean(axis=0), parts) | {"formula": formula}

    return jax.vmap(of_prompt)(keys, prompts)


def z_score(sample, axis=0):
    """Largest |mean| over its standard error."""
    mean, error = Estimate.of(np.asarray(sample), axis)
    return np.abs(mean / error).max()


def checks(config, splits, noises):
    """Identities of the parts of the error and of the noise, for any weights."""
    d, below = config.gpt2.dim, np.array(config.shots) < config.pool
    first, last = splits[min(splits)], splits[max(splits)]
    exact, all_steps = 1 - np.arange(d) / d, splits.values()
    sums = [(s["shots"] + left(s) + s["cross"]) / s["total"] for s in all_steps]
    wrong = largest(np.abs(ratio - 1).max() for ratio in sums)
    cross = largest(z_score(s["cross"][:, :d]) for s in all_steps)
    start, end = (left(s)[:, 2 * d].mean() for s in (first, last))
    at_d, at_2d = (last["total"][:, k].mean() for k in (d, 2 * d))
    shots = z_score(last["shots"][:, :d] - exact)
    found = [
        # The queries are orthonormal up to float32 rounding.
        Check("the parts sum to the error", wrong, 0.0, "<=", 1e-4),
        Check("shots against 1 - k/d, largest |z|", shots, 5.0, "<="),
        Check("shots from k = d", last["shots"][:, d:].max(), 0.0, "<=", 1e-9),
        Check("cross term against 0, largest |z|", cross, 5.0, "<="),
        Check("training reduces its part at k = 2d", end, start, "<="),
        Check("error at k = 2d below that at k = d", at_2d, at_d, "<="),
    ]
    if below.any():
        gaps = [(n["shots"] - n["formula"])[below, :, 0] for n in noises.values()]
        z = largest(z_score(gap, axis=1) for gap in gaps)
        found.append(Check("layer 1 against tr C_1, largest |z|", z, 5.0, "<="))
    if not below.all():
        rest = largest(n["shots"][~below].max() for n in noises.values())
        found.append(Check("noise of b = N", rest, 0.0, "<=", 1e-9))
    return found


def findings(config, splits, noises, bayes):
    d, last = config.gpt2.dim, splits[max(splits)]
    error, rest = last["total"].mean(axis=0), left(last).mean(axis=0)
    worst = int(rest.argmax())
    said = [
        f"threshold: least squares has error 0 from k = d = {d}; the transformer has "
        f"{error[d]:.3f} there and {error[2 * d]:.3f} at k = 2d",
        f"with label noise of variance {config.label_noise:g} there is no threshold: "
        f"the Bayes error is {bayes[d]:.3f} at k = d, {bayes[2 * d]:.3f} at k = 2d",
        f"sources: what training leaves is {rest[0]:.4f} at k = 0, largest at "
        f"k = {worst} ({rest[worst]:.3f}), {rest[2 * d]:.3f} at k = 2d",
    ]
    middle = int(np.argmin(np.abs(2 * np.array(config.shots) - config.pool)))
    for step in (min(noises), max(noises)):
        of = {name: np.median(x[middle, ..., -1]) for name, x in noises[step].items()}
        said.append(
            f"stack at step {step:,}, last layer, b = {config.shots[middle]} of "
            f"{config.pool}, medians: noise {of['shots']:.3g} of a prompt, "
            f"{of['fresh']:.3g} with fresh demonstrations a layer, "
            f"{of['gaussian']:.3g} by eq. (4), {of['formula']:.3g} = tr C_t"
        )
    return said


def sources_table(config, splits):
    """Error, shot noise and training error by k and step."""
    d, last, end = config.gpt2.dim, splits[max(splits)], f"step {max(splits):,}"
    columns = {"shots": last["shots"]}
    columns |= {f"training\nstep {step:,}": left(s) for step, s in splits.items()}
    columns[f"of it not linear\n{end}"] = last["curvature"]
    columns[f"error\n{end}"] = last["total"]
    rows = [
        {"k": k, "1 - k/d": f"{max(1 - k / d, 0):.4f}"}
        | {head: f"{values[:, k].mean():.4f}" for head, values in columns.items()}
        for k in sorted({0, 1, d // 2, d - 1, d, d + 1, 3 * d // 2, 2 * d})
    ]
    title = "GPT-2: squared error / d and its sources (no label noise)"
    return frame.table(rows, title=title)


def noise_table(config, noises):
    """Noise by b at the stack's first and last layer."""
    step, L, rows = max(noises), config.stack.num_layers, []
    heads = {"shots": f"layer {L}", "fresh": "fresh", "gaussian": "eq. (4)"}
    heads |= {"formula": f"tr C_{L}"}
    for i, b in enumerate(config.shots):
        own = {name: values[i] for name, values in noises[step].items()}
        row = {"layer 1, mean": own["shots"][:, 0].mean()}
        row["tr C_1"] = own["formula"][:, 0].mean()
        for name, head in heads.items() if L > 1 else ():
            row[head] = np.median(own[name][..., -1])
        row["shots: error/d"] = own["missed"].mean()
        row["training: median/d"] = np.median(own["off"])
        rows.append({"b": b} | {head: f"{value:.3g}" for head, value in row.items()})
    title = f"linear stack, step {step:,}: |G(b) - G(N)|^2 / |G(N)|^2, "
    title += f"N = {config.pool}; medians over prompts beyond layer 1"
    return frame.table(rows, title=title)


def draw_sources(config, splits, bayes):
    """The error at several steps and its two sources, over the number of examples."""
    import matplotlib.pyplot as plt

    d, last = config.gpt2.dim, splits[max(splits)]

    def interval(sample):
        return Curve.of(Estimate.of(sample), 0.95)

    steps = {f"step {step:,}": parts for step, parts in splits.items()}
    panels = {
        "error of the model": {n: interval(s["total"]) for n, s in steps.items()},
        "= what the examples leave open": {
            "least squares": interval(last["shots"]),
            "1 - k/d": Curve.of(np.maximum(1 - np.arange(len(bayes)) / d, 0)),
            f"Bayes, label noise {config.label_noise:g}": Curve.of(bayes),
        },
        "+ what training leaves": {n: interval(left(s)) for n, s in steps.items()},
    }
    title = f"GPT-2 on noiseless linear regression, d = {d}: two sources of error "
    title += "(bands: 95 % intervals)"
    tints = plt.get_cmap("viridis_r")(np.linspace(0.1, 0.95, len(steps)))
    shades = dict(zip(steps, tints, strict=True))
    look: Any = {"ylabel": "squared error / d", "ylim": (2e-4, 2.5)}
    look["xlabel"] = f"in-context examples k (d = {d})"
    with panel_grid(panels, 3, title, (3.9, 3.3), legend=False) as (made, grid, _):
        for axes, curves in zip(grid, panels.values(), strict=True):
            own = {k: shades[k] for k in curves if k in shades}
            error_curves(curves, ax=axes, colours=own, **look)
            axes.axvline(d, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    return made


def draw_noise(config, noises):
    """Noise of the implicit gradient against the shots, one panel per layer.

    Layer 1 is left out beside others: there the definitions agree.
    """
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    step, below = max(noises), np.array(config.shots) < config.pool
    shots = np.array(config.shots)[below]
    quartiles = {
        label: np.quantile(noises[step][name][below], (0.25, 0.5, 0.75), axis=1)
        for name, label in DEVIATIONS.items()
    }
    medians = np.concatenate([middle.ravel() for _, middle, _ in quartiles.values()])
    title = f"Implicit noise of a linear stack trained for {step:,} steps, "
    title += f"N = {config.pool}\nmedian and middle half of the prompts"
    layers = range(config.stack.num_layers)[config.stack.num_layers > 1 :]
    titles = [f"layer {t + 1}" for t in layers]
    look: Any = {"ylim": (0.5 * medians[medians > 0].min(), 4.0 * medians.max())}
    look |= {"xlabel": "shots b", "log_x": True}
    look["ylabel"] = r"$\|\tilde G_t - G_t\|^2 / \|G_t\|^2$"
    look["colours"] = dict(zip(quartiles, colours(), strict=False))
    with panel_grid(titles, 2, title, (4.2, 3.5), legend=False) as (made, grid, _):
        for t, axes in zip(layers, grid, strict=True):
            curves = {}
            for label, values in quartiles.items():
                low, middle, high = values[..., t]
                exact = label == DEVIATIONS["formula"]
                curve = Curve.of(middle) if exact else Curve(middle, low, high)
                curves[label] = curve._replace(x=shots)
            error_curves(curves, ax=axes, **look)
            axes.set_xticks([b for b in (1, 2, 5, 10, 20, 40) if b <= shots.max()])
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
    return made


def report(config, splits, noises, timing):
    bayes = bayes_with_label_noise(config)
    figures = {"sources.png": draw_sources(config, splits, bayes)}
    if min(config.shots) < config.pool:
        figures["subsets.png"] = draw_noise(config, noises)

    def both(x):
        return {"mean": x.mean(axis=1), "median": np.median(x, axis=1)}

    means = {n: {k: x.mean(axis=0) for k, x in s.items()} for n, s in splits.items()}
    noise = {n: {k: both(x) for k, x in s.items()} for n, s in noises.items()}
    numbers = {"gpt2": means, "stack": noise, "bayes_with_label_noise": bayes}
    axes = dict.fromkeys(("gpt2.*.*", "bayes_with_label_noise"), ["examples k, from 0"])
    by_shots = (f"stack.*.{name}.*" for name in DEVIATIONS)
    return Report(
        numbers | {"shots": config.shots, "timing": timing},
        checks=checks(config, splits, noises),
        tables=[sources_table(config, splits), noise_table(config, noises)],
        findings=findings(config, splits, noises, bayes),
        figures=figures,
        interval_level=0.95,
        axes=axes | dict.fromkeys(by_shots, ["number of shots b", "layer"]),
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training GPT-2"):
        gpt2 = train(config.recipe("gpt2"), run)
    with run.phase("training the stack"):
        stack = train(config.recipe("stack"), run, earlier=gpt2.records)
    with run.phase("noise"):
        splits, noises = measure_gpt2(config, gpt2), measure_stack(config, stack)
    timing = {one.name: dataclasses.asdict(one.timing) for one in (gpt2, stack)}
    return report(config, splits, noises, timing)


frame.program(__name__, main)
