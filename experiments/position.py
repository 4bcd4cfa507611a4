"""Does the place of an example matter? Linear stacks and GPT-2 on regression.

Moves one example through the prompt: the only relevant one (the query with its label),
or the only wrong one. Two paired contrasts, first and last third against the middle,
say whether the curve of the error is a U.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared.training import GPT2_CPU, Recipe, train
from icltheory import constructions
from icltheory.plotting import Curve, error_curves, panel_grid
from icltheory.regression import position
from icltheory.statistics import Estimate, adjust_holm
from icltheory.training import stream_key

KINDS: tuple = ("relevant", "wrong")  # what the special example alone is
PARTS = 20  # of a long prompt, over each of which label weights are averaged
MIDDLES = (np.arange(PARTS) + 0.5) / PARTS  # of the parts, relative to the prompt
ROUNDING = 1e-5  # a contrast below this share of a prompt's error is rounding
SHAPES = {  # by the signs of (first - middle, last - middle) of the influence
    (1, 1): "U",
    (-1, -1): "inverted U",
    **dict.fromkeys([(-1, 1), (-1, 0), (0, 1)], "recency"),
    **dict.fromkeys([(1, -1), (1, 0), (0, -1)], "primacy"),
    (0, 0): "no effect found",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The models, and how many prompts they are evaluated on."""

    gpt2: Recipe  # the trained transformer; the stacks read prompts of its size
    layers: tuple[int, ...] = (1, 2, 4, 8)  # numbers of layers of the linear stacks
    step_size: float = 0.5  # step size of each of their layers
    prompts: int = 4_096  # prompts of regression
    long_prompt: int = 1_000  # examples where label weights meet their limit
    seed: int = 0  # seed of the evaluation
    level: float = 0.95  # level of the intervals, and 1 minus that of the tests

    def __post_init__(self):
        N, points = self.long_prompt, self.gpt2.num_points
        expect(self.gpt2.model == "gpt2", "gpt2.model", "gpt2", self.gpt2.model)
        expect(points >= 4, "gpt2.num_points", "at least 4", points)
        check_at_least(self, 2, "prompts")
        expect(N > 0 and N % PARTS == 0, "long_prompt", f"a multiple of {PARTS}", N)
        check_at_least(self, 1, "layers")
        step = self.step_size
        expect(0 < step < 2, "step_size", "a number in (0, 2)", step)
        frame.check_each(self, "in (0, 1)", "level")


PRESETS = {"cpu": Config(gpt2=dataclasses.replace(GPT2_CPU, seeds=(0, 1, 2)))}
TIMES = {"cpu": "3 to 4 min, 2 cores"}


def measure(config, trained):
    """Squared errors / d, (prompts, places): one row a model and kind of example."""
    task, d, N = config.gpt2.task(), config.gpt2.dim, config.gpt2.num_points - 1
    key, rows = stream_key(config.seed, "evaluation"), []
    prompt, models = task.sample(key, N, config.prompts), {}
    for L in config.layers:
        steps = jnp.full(L, config.step_size)
        models[f"{L} layer{'s' * (L > 1)}"] = functools.partial(_descend, steps), steps
    for index, seed in enumerate(config.gpt2.seeds):
        answer = functools.partial(_answer, trained.module)
        answer = functools.partial(answer, {"params": trained.of_seed(index)})
        models[f"GPT-2, seed {seed}"] = answer, None
    for (model, (one, steps)), kind in itertools.product(models.items(), KINDS):
        drawn = {"key": key, "num_prompts": config.prompts, "special": kind}
        errors = position.errors_by_position(one, task, N, **drawn)
        row = {"model": model, "kind": kind, "errors": np.asarray(errors, float) / d}
        if steps is not None:
            row["exact"] = np.asarray(expected_errors(steps, prompt, kind=kind)) / d
        rows.append(row)
    return rows


def _descend(steps, X, y, x_query):
    stack = constructions.gradient_descent(steps, X.shape[1])
    tokens = constructions.join_tokens(X, y[:, None], x_query)
    out = stack.apply(*tokens, "causal", scale=1 / X.shape[0])
    return constructions.read_prediction(out.h_query[-1], X.shape[1])[0]


def _answer(module, params, X, y, x_query):
    return module.apply(params, X[None], y[None], x_query[None], method="predict")[0]


@functools.partial(jax.jit, static_argnames="kind")
def expected_errors(steps, prompt, kind):
    """Expected squared errors of a stack given the inputs, by prompt and place."""

    # The label weights a are exact, and tasks are N(0, I): with the query as relevant
    # example the error is (1 - a_p)^2 |x|^2 + sum over the others a_i^2 |x_i|^2, and
    # with a wrong one |x - sum over the others a_i x_i|^2 + a_p^2 |x_p|^2.
    def at(place, X, x):
        X = jnp.insert(X[:-1], place, x if kind == "relevant" else X[-1], axis=0)
        shares = position.label_weights(steps, X, x)[:, None] * X
        own, others = shares[place], shares.at[place].set(0)
        if kind == "relevant":
            return jnp.sum((x - own) ** 2) + jnp.sum(others**2)
        return jnp.sum((x - others.sum(axis=0)) ** 2) + jnp.sum(own**2)

    places = jnp.arange(prompt.X.shape[1])
    by_place = jax.vmap(at, (0, None, None))
    return jax.vmap(by_place, (None, 0, 0))(places, prompt.X, prompt.x_query)


def label_weights(config):
    """Mean weight of a label by part of long prompts, with its limit, by layers."""
    # The least-squares slope of N a_i against eta <x_i, x>, over all examples of a part
    # of the prompt and over several prompts.
    N, found = config.long_prompt, {}
    inputs, queries = jax.random.split(stream_key(config.seed, "data"))
    X = jax.random.normal(inputs, (64, N, config.gpt2.dim))
    x = jax.random.normal(queries, (64, config.gpt2.dim))
    for layers in config.layers:

        def sums(prompt, layers=layers):
            steps = jnp.full(layers, config.step_size)
            a, k = position.label_weights(steps, *prompt), prompt[0] @ prompt[1]
            return jnp.stack([a * k, k * k]).reshape(2, PARTS, -1).sum(axis=2)

        product, square = np.asarray(jax.lax.map(sums, (X, x))).sum(axis=0)
        limit = position.limit_profile(config.step_size, layers, MIDDLES)
        measured = N / config.step_size * product / square
        found[layers] = {"measured": measured, "limit": np.asarray(limit)}
    return found


def shapes(rows, level):
    """The rows with two contrasts, tested with Holm's correction over all curves."""
    contrasts, found = [], []
    for row in rows:
        influence = -row["errors"] if row["kind"] == "relevant" else row["errors"]
        first, middle, last = (x.mean(axis=1) for x in thirds(influence))
        both = np.stack([first - middle, last - middle])
        rounding = ROUNDING * np.abs(influence).max(axis=1)
        both = np.where(np.abs(both) > rounding, both, 0)
        contrasts.append([Estimate.of(contrast) for contrast in both])
    p_values = adjust_holm([[c.p_value() for c in pair] for pair in contrasts])
    for row, pair, p in zip(rows, contrasts, p_values, strict=True):
        signs = np.sign([c.mean for c in pair]) * (p <= 1 - level)
        new = {"first": pair[0], "last": pair[1], "p": p, "shape": SHAPES[*signs]}
        new["holm"] = ", ".join(f"{x:.2g}" if x >= 1e-16 else "<1e-16" for x in p)
        new["by_place"] = mean = Estimate.of(row["errors"])
        found.append(row | new | {"thirds": [x.mean() for x in thirds(mean.mean)]})
    return found


def thirds(values):
    """First, middle and last third of the places."""
    third = values.shape[-1] // 3
    return np.split(values, [third, values.shape[-1] - third], axis=-1)


def of(rows, kind):
    """The rows of a kind of special example."""
    return [row for row in rows if row["kind"] == kind]


def numbers(row):
    mean, error = row["by_place"]
    found = {"error": mean, "standard error": error, "p_values": row["p"]}
    found |= {f"{end} minus middle": [*row[end]] for end in ("first", "last")}
    return found | {"shape": row["shape"]}


def checks(rows, weights):
    """Simulated errors against exact ones, and weights against their limit."""
    z = []
    for row in (row for row in rows if "exact" in row):
        (a, a_error), (b, b_error) = row["by_place"], Estimate.of(row["exact"])
        z.append(np.abs(a - b) / np.hypot(a_error, b_error))
    name = f"largest z of {np.size(z)} errors against those of the exact weights"
    far = [np.abs(w["measured"] - w["limit"]).max() / L for L, w in weights.items()]
    limit = "weights / L: largest distance to the Laguerre limit"
    # The maximum of this many standard normal numbers is below 4.5 with a probability
    # of 99.9 %.
    z_check = Check(f"stacks: {name}", np.max(z), 4.5, "<=")
    return [z_check, Check(limit, max(far), 0.05, "<=")]


def claim(rows, kind):
    """Whether every curve is a U."""
    words = [row["shape"] for row in of(rows, kind)]
    said = ", ".join(f"{words.count(x)} {x}" for x in dict.fromkeys(words))
    name = f"an example in the middle has the least influence ({kind})"
    return Claim(name, said, {*words} == {"U"}, "U for every model")


def errors_table(rows, kind):
    """Errors by thirds of the prompt, their contrasts and the shape."""
    columns, places = {"model": "{model}"}, ("first", "middle", "last")
    columns |= {x: f"{{thirds[{i}]:.4f}}" for i, x in enumerate(places)}
    for x in ("first", "last"):
        columns[f"{x} - middle"] = f"{{{x}.mean:+.4f}} ({{{x}.standard_error:.4f}})"
    columns |= {"Holm's p": "{holm}", "shape": "{shape}"}
    title = f"error by the place of the only {kind} example, and its influence (s.e.)"
    return frame.table(of(rows, kind), columns, title)


def draw_errors(config, rows):
    """Errors against the place of the special example; dotted: exact."""
    models = {"layer": "linear stacks (causal)", "GPT": "GPT-2 trained on regression"}
    panels = {
        f"{title}\none {k} example": [r for r in of(rows, k) if name in r["model"]]
        for k in KINDS
        for name, title in models.items()
    }
    title = "Error by the place of one special example (last place: next to the query)"
    with panel_grid(panels, 2, title, (4.2, 2.5), legend=False) as (made, grid, _):
        for axes, (name, own) in zip(grid, panels.items(), strict=True):
            x, curves = np.arange(1, config.gpt2.num_points), {}
            for row in own:
                ends = row["by_place"].interval(config.level)
                label = row["model"].removeprefix("GPT-2, ")
                curves[label] = Curve(row["by_place"].mean, *ends, x=x)
                if "exact" in row:
                    exact = row["exact"].mean(axis=0)
                    axes.plot(x, exact, ":", color="0.2", linewidth=1, zorder=3)
            look = {"xlabel": "place", "ylabel": "squared error / d", "log": False}
            error_curves(curves, ax=axes, **look)
            axes.set_title(name, fontsize=9)
            axes.locator_params(axis="x", integer=True)
    return made


def draw_weights(config, weights):
    """Mean weight of a label by place; dashed: its limit in long prompts."""
    title = "Weight of a label in causal linear attention, and its limit in long "
    title += f"prompts\n(step size {config.step_size:g}; dashed: Laguerre polynomial)"
    with panel_grid([""], 1, title, (5.88, 3.4), legend=False) as (made, (axes,), _):
        curves = {}
        for layers, w in weights.items():
            axes.plot(MIDDLES, w["limit"] / layers, "--", color="0.2", zorder=3)
            curves[f"L = {layers}"] = Curve(w["measured"] / layers, x=MIDDLES)
        ylabel = "weight / weight of the last example"
        error_curves(curves, ax=axes, ylabel=ylabel, log=False)
        axes.set_xlabel("place in the prompt, 1 next to the query")
        axes.axhline(0, color="0.6", linewidth=0.8)
    return made


def report(config, rows, weights):
    rows = shapes(rows, config.level)
    found = {k: {row["model"]: numbers(row) for row in of(rows, k)} for k in KINDS}
    errors, names = draw_errors(config, rows), [f"{kind}.*.error" for kind in KINDS]
    return Report(
        found | {"weights": weights, "precision": "float32"},
        checks=checks(rows, weights),
        tables=[errors_table(rows, kind) for kind in KINDS],
        claims=[claim(rows, kind) for kind in KINDS],
        claims_title="is the influence of an example a U over its place?",
        figures={"errors.png": errors, "weights.png": draw_weights(config, weights)},
        interval_level=config.level,
        axes=dict.fromkeys([*names, "weights.*.*"], ["place, from 1"]),
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training"):
        trained = train(config.gpt2, run)
    with run.phase("regression"):
        rows, weights = measure(config, trained), label_weights(config)
    return report(config, rows, weights)


frame.program(__name__, main)
