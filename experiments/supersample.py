"""Supersample bounds of trained models beside their errors on new points of a task.

The square-root and the optimal bound with confidence limits, of gradient descent, ridge
regression, linear stacks, GPT-2 along training, shots, noise and rank, a pattern
transformer and the small language model. Kendall's tau says whether bounds, norms and
condition numbers order the models as their errors do. Theorem 2 stands beside them.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared import language as v
from experiments.shared.language import (
    Language,
    answer_logits,
    load,
    meant_labels,
    nonce_labels,
    sentences,
)
from experiments.shared.patterns import PatternEnsemble, train_ensemble
from experiments.shared.training import GPT2_CPU, Recipe, linear_recipe, train
from icltheory import bounds, constructions
from icltheory.models import LayeredGPT2
from icltheory.patterns import PatternLearner
from icltheory.plotting import COLOURS
from icltheory.pruning import module_spectra, prune_model
from icltheory.regression import LinearPopulation, predictors
from icltheory.statistics import Estimate
from icltheory.training import stream_key

# Subject of a task's sentences, and whether its label words have a meaning.
TASKS = {
    "topic": ("topic", True),
    "nonce_topic": ("topic", False),
    "sentiment": ("sentiment", True),
    "nonce": ("sentiment", False),
}
LARGE = 0.02  # bounds are compared with errors above this value
BATCH = 64  # prompts of the language model at once
DRAWS = 2000  # resamples of the models for the interval of tau
BOUNDS = {"square-root bound": "square root", "optimal bound": "optimal"}
ORDERS = BOUNDS | {  # what is compared with the error, by its name in tables
    "limit of the optimal bound": "optimal, limit",
    "norm of the weights": "norm",
    "condition number": "condition number",
}
AXES = {  # what is varied in a family, and the scale of its axis
    "gradient descent": ("steps", "log"),
    "GPT-2, training": ("training step", "symlog"),
    "GPT-2, shots": ("demonstrations N", "linear"),
    "GPT-2, label noise": ("variance of label noise", "linear"),
    "GPT-2, rank kept": ("rank kept of all matrices", "log"),
    "pattern transformer": ("training step", "linear"),
    "language model, topic, meaningful labels": ("demonstrations N", "linear"),
    "language model, topic, nonce labels": ("demonstrations N", "linear"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """The learners, and how many prompts they are evaluated on."""

    gpt2: Recipe  # recipe of the GPT-2; its snapshots are the points along training
    linear: Recipe  # recipe of the linear attention stack
    linear_layers: tuple[int, ...] = (1, 2)  # numbers of layers of the linear stacks
    # recipe of the pattern transformer, of which the first seed is used
    patterns: PatternEnsemble = PatternEnsemble(seeds=(0,))
    noise_var: float = 0.25  # label noise of descent, ridge regression and the stacks
    descent_steps: tuple[int, ...] = (1, 2, 4, 8, 16)  # steps of gradient descent
    shots: tuple[int, ...] = (2, 4, 6, 8, 10)  # pairs N for the GPT-2, ascending
    noises: tuple[float, ...] = (0.0, 0.25, 1.0, 4.0)  # label noise for the GPT-2
    # ranks kept of all matrices of the GPT-2, the width first
    ranks: tuple[int, ...] = (64, 48, 32, 24, 16, 8, 4)
    # training steps after which the pattern transformer is evaluated
    pattern_steps: tuple[int, ...] = (0, 80, 160, 240, 320)
    pattern_shots: int = 20  # number of pairs of its prompts
    # tasks of the small language model
    language_tasks: tuple[str, ...] = ("topic", "nonce_topic")
    language_shots: tuple[int, ...] = (2, 4, 8)  # numbers of pairs of its prompts
    checkpoint: str = "experiments/small_lm/checkpoint"  # of the language model
    clip: float = 4.0  # the squared error at which the loss is 1
    levels: int = 16  # values to which losses are rounded
    prompts: int = 16_384  # prompts for the bounds, and as many others for the error
    language_prompts: int = 512  # the same for the language model
    theorem2_prompts: int = 256  # prompts for Theorem 2
    seed: int = 0  # seed of the evaluation
    confidence: float = 0.95  # confidence of the limits, and level of the intervals

    def __post_init__(self):
        check_at_least(self, 2, "prompts", "language_prompts", "levels")
        check_at_least(self, 2, "theorem2_prompts", "pattern_shots")
        for kind in ("gpt2", "linear"):
            recipe = getattr(self, kind)
            expect(recipe.model == kind, f"{kind}.model", kind, recipe.model)
            one = len(recipe.seeds) == 1
            expect(one, f"{kind}.seeds", "one seed", recipe.seeds)
        lists = ("shots", "language_shots", "descent_steps", "linear_layers")
        frame.check_ascending(self, *lists)
        for task in self.language_tasks:
            expected = f"some of {', '.join(TASKS)}"
            expect(task in TASKS, "language_tasks", expected, task)
        most, last = self.gpt2.num_points - 1, self.shots[-1]
        expect(last <= most, "shots", f"at most {most} examples of training", last)
        ranks, width = self.ranks, self.gpt2.width
        right = ranks and ranks[0] == width and min(ranks) > 0
        expect(bool(right), "ranks", f"ranks >= 1, first the width {width}", ranks)
        every, last = self.patterns.record_every, self.patterns.steps
        steps, expected = self.pattern_steps, f"multiples of {every} up to {last}"
        right = all(step % every == 0 and 0 <= step <= last for step in steps)
        expect(right, "pattern_steps", expected, steps)
        check_at_least(self, 0, "noises", "noise_var")
        frame.check_each(self, "above 0", "clip")
        frame.check_each(self, "in (0, 1)", "confidence")


_STEPS = (0, 100, 300, 600, 1000, 2000, 3500)
_LINEAR = dataclasses.replace(linear_recipe(1, steps=1000), noise_var=0.25, seeds=(0,))
PRESETS = {
    "cpu": Config(dataclasses.replace(GPT2_CPU, snapshots=_STEPS, seeds=(0,)), _LINEAR)
}
# Measured beside other programs; ten minutes of processor time.
TIMES = {"cpu": "8 to 10 min, 2 cores"}


# --- bounds on one sample of prompts, and the error on another: one row per learner


def judge(
    config: Config,
    family: str,
    name: str,
    x: float,
    losses_of: Callable[[Any], tuple[Any, Any]],
    levels: int | None,
    **more: float,
) -> dict[str, Any]:
    """The row of a learner, from two samples by ``losses_of(key)``; NaN: no such."""
    key, level = stream_key(config.seed, "evaluation"), config.confidence
    first, second = (losses_of(jax.random.fold_in(key, part)) for part in range(2))
    own, other = in_and_out(*second, levels)
    error = Estimate.of(np.mean(other - own, axis=1))
    found = bounds.supersample_bounds(*first, levels=levels, confidence=level)
    square_root, optimal = found.difference, found.optimal
    row = {
        "error": float(error.mean),
        "standard error": float(error.standard_error),
        "loss on the prompt": float(np.mean(own)),
        "square root": float(square_root.value),
        "square root, limit": float(square_root.upper),
        "optimal": float(optimal.value),
        "optimal, limit": float(optimal.upper),
        "information": float(np.mean(np.asarray(square_root.information))),
        **dict.fromkeys(("norm", "condition number", "theorem 2"), np.nan),
    }
    about = {"family": family, "name": name, "x": x, "vacuous": bool(optimal.vacuous)}
    return about | row | more | {"ends": error.interval(level)}


def in_and_out(losses, chosen, levels: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Quantised losses on the demonstrations of the prompt and on the others."""
    losses, place = np.asarray(losses, float), np.asarray(chosen)[..., None]
    if levels is not None:
        losses = np.round(losses * (levels - 1)) / (levels - 1)
    own = np.take_along_axis(losses, place, axis=2)[..., 0]
    return own, np.take_along_axis(losses, 1 - place, axis=2)[..., 0]


def regression(config, family, name, x, predictor, task, N, **more) -> dict[str, Any]:
    """The row of a learner of regression, with the clipped squared error."""
    loss = bounds.ClippedSquaredError(config.clip)
    given = predictor, task, N, config.prompts, loss

    def losses_of(key):
        return bounds.supersample_losses(*given, key=key)

    return judge(config, family, name, x, losses_of, config.levels, **more)


def theorem2(config: Config, stack: Any, task: Any, num_examples: int) -> float:
    """The corrected Theorem 2 of a linear stack, for losses in [0, 1] and b = N / 2."""
    key = stream_key(config.seed, "evaluation")
    prompts = task.sample(key, num_examples, config.theorem2_prompts)
    H, _ = prompts.tokens()
    steps = bounds.noisy_steps(stack, H, num_examples // 2, scale=1 / num_examples)
    return float(bounds.isotropic_bound(steps, 0.5).value)


def descent(config: Config) -> Iterator[dict]:
    """Tuned gradient descent, ridge regression and least squares."""
    dim, N = config.linear.dim, config.linear.num_points - 1
    task = LinearPopulation.isotropic(dim, config.noise_var)
    key = jax.random.fold_in(stream_key(config.seed, "evaluation"), 2)
    drawn = task.sample(key, N, 4096)
    points = drawn.X, drawn.y, drawn.x_query, drawn.y_query
    for steps in config.descent_steps:
        size = predictors.tune_step_size(*points, steps)
        stack = constructions.gradient_descent(jnp.full(steps, size), dim)
        name = f"gradient descent, {steps} step{'s' * (steps > 1)}"
        given = name, steps, stack, task, N
        bound = theorem2(config, stack, task, N)
        yield regression(config, "gradient descent", *given, **{"theorem 2": bound})
    ridge, least_squares = predictors.Ridge(config.noise_var), predictors.LeastSquares()
    for name, rule in {"ridge (Bayes)": ridge, "least squares": least_squares}.items():
        yield regression(config, "estimators", name, 0, rule, task, N)


def stacks(config: Config, trained: list[Any]) -> Iterator[dict]:
    """Trained stacks of linear attention."""
    for models in trained:
        layers, N = models.recipe.num_layers, models.recipe.num_points - 1
        task = LinearPopulation.isotropic(models.recipe.dim, config.noise_var)
        name = f"trained linear stack, {layers} layer{'s' * (layers > 1)}"
        given = name, layers, (models.module, models.of_seed(0)), task, N
        bound = theorem2(config, models.stack(), task, N)
        yield regression(config, "linear stack", *given, **{"theorem 2": bound})


def gpt2(config: Config, trained: Any) -> Iterator[dict]:
    """GPT-2 over training steps, shots, label noise and kept rank."""
    N, last, model = config.shots[-1], trained.of_seed(0), LayeredGPT2(trained.module)

    def row(params=last, N=N, noise=0.0):
        task = LinearPopulation.isotropic(config.gpt2.dim, noise)
        given = "GPT-2", "GPT-2", 0, (trained.module, params), task, N
        return regression(config, *given, **weights(model, params))

    def pruned(rank):
        every = [f"{layer}:all:rank={rank}" for layer in range(model.num_layers)]
        return prune_model(model, last, every)

    def named(row, family, name, x):
        return row | {"family": f"GPT-2, {family}", "name": f"GPT-2, {name}", "x": x}

    whole = row()
    for step in sorted(trained.snapshots):
        ends = step == config.gpt2.steps
        found = whole if ends else row(trained.of_seed(0, step))
        yield named(found, "training", f"step {step}", step)
    for shots in config.shots:
        found = whole if shots == N else row(N=shots)
        yield named(found, "shots", f"N = {shots}", shots)
    for noise in config.noises:
        found = row(noise=noise) if noise else whole
        yield named(found, "label noise", f"noise {noise:g}", noise)
    for rank in config.ranks:
        found = whole if rank == config.gpt2.width else row(pruned(rank))
        yield named(found, "rank kept", f"rank {rank}", rank)


def weights(model: Any, params: Any) -> dict[str, float]:
    """Norm of all matrices together, and the largest condition number."""
    spectra = module_spectra(model, params)
    squares = sum(float(np.sum(np.square(one.singular_values))) for one in spectra)
    largest = max(float(one.condition_number) for one in spectra)
    return {"norm": squares**0.5, "condition number": largest}


def patterns(config: Config, trained: Any) -> Iterator[dict]:
    """The pattern transformer over training steps, with the 0-1 loss."""
    first = jax.tree.map(lambda leaf: leaf[0], (trained.tasks, trained.path.params))
    (task, path), model, N = first, config.patterns.model(), config.pattern_shots

    def points(key, num_points, num_prompts):
        prompt = task.sample(key, num_points, num_prompts)
        return prompt.X, prompt.y

    for step in config.pattern_steps:
        place = step // config.patterns.record_every
        params = jax.tree.map(lambda leaf, place=place: leaf[place], path)
        learner = PatternLearner(model, params, task.label_embedding)
        given: Any = learner, points, N, config.prompts, bounds.sign_error

        def losses_of(key, given=given):
            return bounds.supersample_losses(*given, key=key)

        family, more = "pattern transformer", weights(model, params)
        name = f"{family}, step {step}"
        yield judge(config, family, name, step, losses_of, None, **more)


def language(config: Config, model: Any) -> Iterator[dict]:
    """Every task of the small language model with every number of pairs, 0-1 loss."""
    for task in config.language_tasks:
        family = f"language model, {frame.plain_words(task)}"
        for shots in config.language_shots:

            def losses_of(key, task=task, shots=shots):
                parts, count = [], config.language_prompts
                for start in range(0, count, BATCH):
                    given = task, shots, min(BATCH, count - start), model.params
                    own = jax.random.fold_in(key, start)
                    parts.append(language_losses(model.decoder, *given, own))
                losses, chosen = zip(*parts, strict=True)
                return np.concatenate(losses), np.concatenate(chosen)

            name = f"{family}, N = {shots}"
            yield judge(config, family, name, shots, losses_of, None)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def language_losses(decoder, task, shots, count, params, key):
    """Losses (count, N, 2) and coins (count, N) for one batch of prompts."""
    subject, meant = TASKS[task]
    place, keys = v.ATTRIBUTES.index(subject), jax.random.split(key, 3)
    asked = np.full((count, 2 * shots), place)
    said = sentences(keys[0], Language(), asked, held_out=True)
    choices = nonce_labels(keys[1], count, held_out=True)
    if meant:
        words = jnp.asarray(meant_labels())[place]
        choices = jnp.broadcast_to(words[None], choices.shape)
    choices = choices[:, : v.NUM_CLASSES[place]]
    answer = said.classes[..., place]
    label = jnp.take_along_axis(choices, answer, axis=1)
    chosen = jax.random.bernoulli(keys[2], shape=(count, shots)).astype(int)
    rows = 2 * jnp.arange(shots)[None] + chosen
    length = 1 + (shots + 1) * Language().demo_length()

    def wrong(query):
        order = jnp.concatenate([rows, jnp.full((count, 1), query)], axis=1)
        words = jnp.take_along_axis(said.words, order[..., None], axis=1)
        counts = jnp.take_along_axis(said.length, order, axis=1)
        labels = jnp.take_along_axis(label, order, axis=1)
        scores = answer_logits(decoder, length, params, words, counts, labels)
        best = jnp.take_along_axis(scores, choices, axis=1).argmax(axis=1)
        return (best != answer[:, query]).astype(jnp.float32)

    losses = jax.lax.map(wrong, jnp.arange(2 * shots)).T
    return losses.reshape(count, shots, 2), chosen


# --- Kendall's tau between a measured number and the error


def tau_of(x: Any, y: Any, level: float) -> dict[str, float]:
    """Kendall's tau-b with a percentile interval over resampled models."""
    x, y, size = np.asarray(x, float), np.asarray(y, float), len(x)
    drawn = np.random.default_rng(0).integers(0, size, (DRAWS, size))
    counts = np.sum(drawn[:, :, None] == np.arange(size), axis=1)
    counts = np.vstack([np.ones(size), counts])  # first every model once
    signs_x, signs_y = ((a[:, None] > a) * 1 - (a[:, None] < a) for a in (x, y))

    def over_pairs(signs):  # 100 times as fast as SciPy's tau of each resample
        return np.einsum("si,ij,sj->s", counts, signs, counts)

    ordered = over_pairs(abs(signs_x)) * over_pairs(abs(signs_y))
    with np.errstate(invalid="ignore"):  # 0 / 0 where all values are equal
        tau, *found = over_pairs(signs_x * signs_y) / np.sqrt(ordered)
    known = np.array(found)[~np.isnan(found)]
    tails = [(1 - level) / 2, (1 + level) / 2]
    ends = np.quantile(known, tails) if known.size else (np.nan, np.nan)
    return {"tau": tau, "low": ends[0], "high": ends[1], "models": size}


def orders(rows: list[dict], level: float) -> dict[str, dict[str, dict]]:
    """Tau between the error and every number that all models of a family have."""
    families, found = {"all learners": rows}, {}
    for row in rows:
        families.setdefault(row["family"], []).append(row)
    for family, own in families.items():
        errors = [row["error"] for row in own]
        values = {name: [row[key] for row in own] for name, key in ORDERS.items()}
        if len(own) > 3:
            found[family] = {
                name: tau_of(x, errors, level)
                for name, x in values.items()
                if not np.isnan(x).any()
            }
    return found


# --- what is reported


def excess(row: dict) -> float:
    """Excess of the error over the optimal bound's limit, in standard errors."""
    above = abs(row["error"]) - row["optimal, limit"]
    return above / max(row["standard error"], 1e-12)


def claims(rows: list[dict]) -> list[Claim]:
    """What was hoped for of both bounds and their limits."""
    below = [row["name"] for row in rows if excess(row) > 0]
    large = [row for row in rows if abs(row["error"]) > LARGE]
    said = ", ".join(below) or f"none of {len(rows)} learners is"
    limit = "no error on other prompts is above the limit"
    stated = [Claim(limit, said, not below)]
    for name, kind in BOUNDS.items():
        for title, key in ((name, kind), (f"limit of the {name}", f"{kind}, limit")):
            ratios, said = [row[key] / abs(row["error"]) for row in large], ""
            if large:
                said = f"{min(ratios):.2f} to {max(ratios):.2f} times, {len(large)} "
            measured = f"{said}learners" if large else "no error is that large"
            claim = f"{title}: at most twice each error above {LARGE:g}"
            held = bool(large) and max(ratios) <= 2
            stated.append(Claim(claim, measured, held))
    return stated


def tables(rows: list[dict], found: dict[str, dict]) -> list[Any]:
    """Errors and bounds, and the order of models."""
    lines = []
    for row in rows:
        bound, large = row["theorem 2"], abs(row["error"]) > LARGE
        ratio = f"{row['optimal, limit'] / abs(row['error']):.2f}" if large else "-"
        shown = "-" if np.isnan(bound) else f"{bound:.3g}"
        lines.append(row | {"ratio": ratio, "shown": shown})
    heads = (
        "learner | error (s.e.) | loss on prompt | square root | limit (square root)"
    )
    heads += " | optimal | limit (optimal) | limit/error | Theorem 2"
    cells = "{name} | {error:.4f} ({standard error:.4f}) | {loss on the prompt:.3f} | "
    cells += "{square root:.3f} | {square root, limit:.3f} | {optimal:.4f} | "
    cells += "{optimal, limit:.4f} | {ratio} | {shown}"
    names = dict.fromkeys(name for own in found.values() for name in own)
    ordered, cell = [], "{tau:+.2f} ({low:+.2f}, {high:+.2f})"
    for family, own in found.items():
        # Where all models have the same value there is no tau.
        known = {name: tau for name, tau in own.items() if not np.isnan(tau["tau"])}
        count = next(iter(own.values()))["models"]
        line = {"models": f"{family} ({count})"} | dict.fromkeys(names, "-")
        ordered.append(line | {name: cell.format(**known[name]) for name in known})
    title = "Kendall's tau with the error on other prompts (interval)"
    first = "errors on new points of a task, and their bounds"
    made = frame.table(lines, (heads, cells), first)
    return [made, frame.table(ordered, None if ordered else {"models": ""}, title)]


def draw_beside(rows: list[dict]) -> Any:
    """The limits of both bounds against the error, one dot per learner."""
    title = "Upper limits of the bounds against the error on new points"
    families = dict.fromkeys(row["family"] for row in rows)
    with frame.figure(BOUNDS, 2, title, 3.4) as (shown, _):
        for axes, kind in zip(shown, BOUNDS.values(), strict=True):
            for place, family in enumerate(families):
                own = [row for row in rows if row["family"] == family]
                x = [max(abs(row["error"]), 1e-4) for row in own]
                y = [row[f"{kind}, limit"] for row in own]
                mark = "osD^vPX<>*"[place % 10]
                look = {"color": COLOURS[place % len(COLOURS)], "label": family}
                axes.plot(x, y, mark, markersize=4, alpha=0.8, **look)
            for factor, style, name in ((1, "-", "equal"), (2, ":", "twice")):
                ends, look = np.array([1e-4, 1.0]), {"color": "0.5", "linewidth": 0.8}
                axes.plot(ends, factor * ends, style, label=name, **look)
            axes.set(xscale="log", yscale="log", xlim=(8e-5, 1.1), ylim=(8e-4, 1.3))
            axes.set_xlabel("|error|")
        shown[0].set_ylabel("upper confidence limit of the bound")
    return shown[0].figure


def draw_along(rows: list[dict]) -> Any:
    """Error, bounds and loss over the varied quantity of each family."""
    panels = {name: [row for row in rows if row["family"] == name] for name in AXES}
    panels = {name: own for name, own in panels.items() if own}
    lines = {
        "square root, limit": ("square-root bound, limit", COLOURS[1], "s-"),
        "optimal, limit": ("optimal bound, limit", COLOURS[2], "D-"),
        "loss on the prompt": ("loss on the prompt", "0.55", "x:"),
    }
    title = "Error on new points of a task, its bounds, and the loss on the prompt"
    with frame.figure(panels, 2, title, 2.5) as (shown, _):
        for axes, (family, own) in zip(shown, panels.items(), strict=True):
            x, (name, scale) = [row["x"] for row in own], AXES[family]
            mean = np.array([row["error"] for row in own])
            bars = np.abs(np.transpose([row["ends"] for row in own]) - mean)
            look = {"fmt": "o-", "color": COLOURS[0], "markersize": 3}
            axes.errorbar(x, mean, bars, label="error", **look)
            for key, (label, colour, style) in lines.items():
                look = {"color": colour, "markersize": 3, "label": label}
                axes.plot(x, [row[key] for row in own], style, **look)
            axes.set_xscale(scale, **({"linthresh": 100} if scale == "symlog" else {}))
            # Long labels that would touch the next are left out.
            pairs = zip(x, [*x[1:], np.inf], strict=True)
            ticks = ["" if a >= 1000 and b < 2 * a else f"{a:g}" for a, b in pairs]
            axes.set_xticks(x, ticks, fontsize=8)
            axes.set_xticks([], minor=True)
            if scale == "symlog":
                axes.set_xlim(min(x) - 10, 1.3 * max(x))
            axes.set_xlabel(name)
            axes.axhline(0, color="0.6", linewidth=0.8)
        for axes in shown[::2]:
            axes.set_ylabel("loss in [0, 1]")
    return shown[0].figure


def report(config: Config, rows: list[dict]) -> Report:
    found, aside = orders(rows, config.confidence), ("name", "ends", "vacuous")
    cases = {
        row["name"]: {key: x for key, x in row.items() if key not in aside}
        for row in rows
    }
    worst, vacuous = max(map(excess, rows)), sum(row["vacuous"] for row in rows)
    return Report(
        {"cases": cases, "orders": found, "precision": "float32"},
        checks=[
            Check("largest z of an error above its limit", worst, 3.0, "<="),
            Check("learners whose limit is vacuous", vacuous, 0, "<="),
        ],
        tables=tables(rows, found),
        claims=claims(rows),
        claims_title="what was hoped for",
        figures={"bounds.png": draw_beside(rows), "along.png": draw_along(rows)},
        interval_level=config.confidence,
    )


@frame.experiment(PRESETS)
def main(config, run):
    model, trained, records = load(config.checkpoint), [], []
    with run.phase("training"):
        recipes = {"gpt2": config.gpt2}
        for layers in config.linear_layers[::-1]:
            recipe = dataclasses.replace(config.linear, num_layers=layers)
            recipes = {f"linear_{layers}": recipe} | recipes
        for name, recipe in recipes.items():
            trained.append(train(recipe, run, name=name, earlier=records))
            records += trained[-1].records
        ensemble, rows = train_ensemble(config.patterns), []
    with run.phase("regression"):
        rows += [*descent(config), *stacks(config, trained[:-1])]
    with run.phase("GPT-2"):
        rows += gpt2(config, trained[-1])
    with run.phase("patterns"):
        rows += patterns(config, ensemble)
    with run.phase("language model"):
        rows += language(config, model)
    return report(config, rows)


frame.program(__name__, main)
