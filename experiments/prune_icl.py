"""SVD pruning of models that learned regression in context (Yao et al. 2024).

Every module and matrix of a GPT-2 and a stack of linear attention is clipped to every
rank, and compared prompt by prompt with the unpruned model, on prompts like those of
training, with label noise, and with skewed inputs. Layers and rates are chosen on
validation prompts, by Algorithm 1 and exhaustively, and judged on others. The control
multiplies all answers by one number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared.descent import gradient_descent_errors
from experiments.shared.training import GPT2_CPU, GPT2_GPU, Recipe, linear_recipe, train
from icltheory import pruning, training
from icltheory.layered import Batched, LayeredModel
from icltheory.plotting import COLOURS, heat_map
from icltheory.regression import shifts
from icltheory.statistics import Estimate, adjust_holm

SEEDS = (0, 1, 2)
CONDITIONS = ("standard", "label noise", "skewed inputs")
RULES = ("Algorithm 1", "exhaustive", "scaled answer", "beyond scaling")
FACTORS = np.linspace(0, 1.2, 61)  # of the control that multiplies all answers


@dataclass(frozen=True)
class Config:
    """The models, how they are pruned, and how much is measured."""

    gpt2: Recipe  # recipe of the GPT-2
    linear: Recipe  # recipe of the linear stack
    gpt2_ranks: tuple[int, ...]  # ranks kept of GPT-2's matrices, the width first
    linear_ranks: tuple[int, ...]  # ranks kept of the stack's matrices, dim + 1 first
    validation_prompts: int  # prompts of each condition on which a rate is chosen
    test_prompts: int  # other prompts of each condition, for all that is reported
    label_noise: float = 1.0  # noise variance of the condition with label noise
    # largest error / d that a prompt counts with; predicting 0 has mean 1
    error_cap: float = 10.0
    top_k: int = 2  # Algorithm 1's k: layers of largest condition number
    # how the condition numbers of a module's matrices become one
    aggregate: Literal["max", "mean", "geometric_mean", "min"] = "max"
    level: float = 0.95  # level of all intervals, and one minus that of all tests

    def __post_init__(self):
        check_at_least(self, 2, "validation_prompts", "test_prompts")
        check_at_least(self, 0, "label_noise")
        frame.check_each(self, "in (0, 1)", "level")
        frame.check_each(self, "above 0", "error_cap")
        points, least, k = self.gpt2.num_points, 2 * self.gpt2.dim + 1, self.top_k
        expected = f"at least 2 dim + 1 = {least}"
        expect(points >= least, "gpt2.num_points", expected, points)
        for kind, full in (("gpt2", self.gpt2.width), ("linear", self.linear.dim + 1)):
            recipe, ranks = getattr(self, kind), getattr(self, f"{kind}_ranks")
            frame.check_seeds(f"{kind}.seeds", recipe.seeds)
            expect(recipe.model == kind, f"{kind}.model", kind, recipe.model)
            layers = recipe.num_layers
            expect(1 <= k <= layers, "top_k", f"1 to {layers} layers", k)
            right = len(ranks) > 1 and ranks[0] == full and min(ranks) > 0
            expected = f"at least two ranks >= 1, first the full {full}"
            expect(right, f"{kind}_ranks", expected, ranks)


PRESETS = {
    "cpu": Config(
        gpt2=replace(GPT2_CPU, seeds=SEEDS),
        linear=replace(linear_recipe(4), seeds=SEEDS),
        # At width 64 these are the rates 0, .1, .25, .5, .75, .9, .95 and .98.
        gpt2_ranks=(64, 57, 48, 32, 16, 6, 3, 1),
        linear_ranks=(6, 5, 4, 3, 2, 1),
        validation_prompts=256,
        test_prompts=1024,
    ),
    "gpu": Config(
        gpt2=replace(GPT2_GPU, seeds=SEEDS),
        linear=replace(linear_recipe(6, dim=10, steps=4000), seeds=SEEDS),
        # At width 128 these are the paper's rates 0, .1, .5, .75, .9, .95 and .99.
        gpt2_ranks=(128, 115, 64, 32, 12, 6, 1),
        linear_ranks=(11, 10, 9, 7, 5, 3, 2, 1),
        validation_prompts=2048,
        test_prompts=8192,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "5 min, 2 cores"}


class Subject(NamedTuple):
    """A trained model, and what is pruned of it."""

    name: str
    recipe: Recipe
    model: LayeredModel  # of a batch of prompts
    score: Callable  # makes predictions of its outputs, given the shots
    params: list[Any]  # by seed
    modules: tuple[str, ...]  # groups that are pruned, the paper's
    ranks: tuple[int, ...]  # that are kept, the full one first
    shots: tuple[int, ...]  # numbers of demonstrations; the last one is the main one

    @property
    def rates(self) -> list[float]:
        """Clipping rates: one minus rank over full rank."""
        return [1 - r / self.ranks[0] for r in self.ranks]


def subject(trained: Any, config: Config) -> Subject:
    recipe, model = trained.recipe, trained.layered()[0]
    d, seeds = recipe.dim, range(len(recipe.seeds))
    shots = tuple(sorted({0, max(d // 2, 1), d, 2 * d, recipe.num_points - 1}))
    if recipe.model == "gpt2":
        params = [trained.of_seed(s) for s in seeds]
        modules = ("attn", "mlp", "all") if recipe.mlp else ("attn",)
        more = _of_gpt2, params, modules, config.gpt2_ranks, shots
        return Subject("GPT-2", recipe, model, *more)
    params = [trained.stack(s) for s in seeds]
    more = _of_stack, params, ("attn",), config.linear_ranks, shots
    return Subject("linear stack", recipe, Batched(model), *more)


def _of_gpt2(outputs, shots):
    return outputs[:, shots]


def _of_stack(outputs, shots):
    return -outputs[:, -1].reshape(-1, len(shots))  # minus the label slot of the query


def questions(subject: Subject, count: int, config: Config) -> tuple:
    """Inputs and targets without noise, (conditions * count, shots or 1)."""
    drawn = [_draw(subject.recipe, config, name, count) for name in CONDITIONS]
    X, y, w = (jnp.concatenate(part) for part in zip(*drawn, strict=True))
    shots = np.asarray(subject.shots)
    if subject.recipe.model == "gpt2":
        return (X, y), jnp.einsum("bkd,bd->bk", X[:, shots], w)
    target = jnp.einsum("bd,bd->b", X[:, -1], w)
    # Demonstrations beyond a prompt's shots are zero tokens, which have no effect.
    # Prompts with the same points and different shots follow each other.
    H = jnp.concatenate([X, y[:, :, None]], axis=2)[:, :-1]
    shown = jnp.asarray(np.arange(H.shape[1])[None] < shots[:, None], H.dtype)
    H = (H[:, None] * shown[None, :, :, None]).reshape(-1, *H.shape[1:])
    query = jnp.pad(X[:, -1], ((0, 0), (0, 1)))
    return (H, jnp.repeat(query, len(shots), axis=0)), target[:, None]


def _draw(recipe, config, condition, count):
    """Points, labels and weights of one condition."""
    key = training.stream_key(recipe.seeds[0], "evaluation")
    key = jax.random.fold_in(key, CONDITIONS.index(condition))
    if condition == "skewed inputs":
        shift = shifts.Shift("skewed", recipe.dim, jnp.float32)
        prompt = shift(key, recipe.num_points, count)
        return prompt.X, prompt.y, prompt.w
    noise = config.label_noise if condition == "label noise" else recipe.noise_var
    prompt = recipe.task(noise).sample(key, recipe.num_points - 1, count)
    return *prompt.points(), prompt.w


def answers(subject: Subject, inputs: Any, seed: int, modules, progress: Any = None):
    """Predictions after pruning, (layers, modules, rates, prompts, shots)."""
    given = subject.model, subject.params[seed], inputs, subject.score
    scored = pruning.Scored(*given, (jnp.asarray(subject.shots),))
    where = range(subject.model.num_layers), modules, subject.rates
    return np.asarray(pruning.sweep_grid(scored, *where, progress=progress))


def errors_of(answers: Any, targets: Any, dim: int, cap: float) -> np.ndarray:
    """Squared errors / d up to the cap, as a few prompts would decide their mean."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.square(np.asarray(answers) - np.asarray(targets)) / dim
    return np.fmin(np.where(np.isnan(errors), cap, errors), cap)


def measure(subject: Subject, config: Config, progress: Any = None) -> dict[str, Any]:
    """Errors after all pruning sweeps of a subject, and what was chosen on them.

    ``errors`` are (seeds, layers, modules, rates, conditions, prompts, shots), the
    validation prompts first; others of one seed and the standard condition.
    """
    count = config.validation_prompts + config.test_prompts
    inputs, targets = questions(subject, count, config)
    standard = jax.tree.map(lambda x: x[: len(x) // len(CONDITIONS)], inputs)

    def errors_at(answers):
        expected = targets[: answers.shape[-2]]
        found = errors_of(answers, expected, subject.recipe.dim, config.error_cap)
        return found.reshape(*found.shape[:3], -1, count, len(subject.shots))

    errors, chosen = [], []
    for seed in range(len(subject.params)):
        found = answers(subject, inputs, seed, subject.modules, progress)
        errors.append(errors_at(found))
        for place, condition in enumerate(CONDITIONS):
            own = slice(place * count, (place + 1) * count)
            given = found[..., own, -1], np.asarray(targets[own, -1])
            chosen += choices(subject, config, *given, condition, seed)
    matrices = [spec.name for spec in subject.model.matrices(0)]
    seeds = range(len(subject.params))
    return {
        "subject": subject,
        "conditions": np.array([condition_numbers(subject, seed) for seed in seeds]),
        "errors": np.stack(errors),  # by seed
        "test": slice(config.validation_prompts, None),
        "single": errors_at(answers(subject, standard, 0, matrices))[..., 0, :, :],
        "choices": chosen,
    }


def on_test(m: dict[str, Any], condition: str = "standard", shot: int = -1):
    """Errors on test prompts, (seeds, layers, modules, rates, prompts)."""
    return m["errors"][..., CONDITIONS.index(condition), m["test"], shot]


def choices(subject, config, answers, targets, condition, seed) -> list[dict]:
    """Choices by Algorithm 1, by exhaustive search, and two controls.

    ``answers`` are of the main shots, (layers, modules, rates, prompts).
    """
    validation = slice(config.validation_prompts)
    test = slice(config.validation_prompts, None)

    def errors_at(answers, part=slice(None)):
        numbers = subject.recipe.dim, config.error_cap
        return errors_of(answers[..., part], targets[part], *numbers)

    def named(layer, module, rate):
        name = f"{subject.modules[module]} {layer} rank {subject.ranks[rate]}"
        return name if rate else "unpruned"

    search = errors_at(answers, validation).mean(axis=-1)
    unpruned, found = errors_at(answers[0, 0, 0]), {}
    for rule, at in searched(subject, config, search, seed).items():
        found[rule] = named(*at), unpruned, errors_at(answers[at])
    scaled = [errors_at(f * answers, validation).mean(axis=-1) for f in FACTORS]
    factor = FACTORS[int(np.argmin([one[0, 0, 0] for one in scaled]))]
    control = errors_at(factor * answers[0, 0, 0])
    found["scaled answer"] = f"x {factor:.2f}", unpruned, control
    which, *at = map(int, np.unravel_index(np.argmin(scaled), np.shape(scaled)))
    both = errors_at(FACTORS[which] * answers[*at])
    found["beyond scaling"] = f"{named(*at)} x {FACTORS[which]:.2f}", control, both

    rows = []
    for rule, (what, before, after) in found.items():
        promised, changes = (
            np.asarray((after - before)[part] / before[part].mean(dtype=np.float64))
            for part in (validation, test)
        )
        judged = Estimate.of(changes)
        row = {"model": subject.name, "seed": subject.recipe.seeds[seed]}
        row |= {"condition": condition, "rule": rule, "what": what, "changes": changes}
        row |= {"validation": float(np.mean(promised)), "test": float(judged.mean)}
        rows.append(row | {"p_better": float(judged.p_value("less"))})
    return rows


def searched(subject, config, search, seed) -> dict[str, tuple[int, ...]]:
    """Layer, module and rate chosen by validation errors ``search``, for each rule."""
    found, options = {}, {"aggregate": config.aggregate}
    for place, module in enumerate(subject.modules):
        if module == "all" and len(subject.modules) > 1:
            continue  # Algorithm 1 prunes one kind of module
        scores = condition_numbers(subject, seed, module)
        layer = pruning.choose_layers(scores, config.top_k, **options).deepest
        given = search[layer, place], subject.rates, search[0, 0, 0]
        rate = pruning.choose_rate(*given, maximize=False).index or 0
        found[f"Algorithm 1, {module}"] = layer, place, rate
    best = np.unravel_index(np.argmin(search), search.shape)
    return found | {"exhaustive": tuple(map(int, best))}


def condition_numbers(subject: Subject, seed: int, module: str = "all"):
    """Condition numbers of the matrices of a module, one row per layer."""
    params = subject.params[seed]
    spectra = pruning.module_spectra(subject.model, params, module=module)
    return pruning.by_layer(spectra, "condition_number")


def condition_by_depth(conditions: np.ndarray, level: float) -> list[float]:
    """Last layer's condition numbers over the first's, and ends over seeds."""
    # The matrices of one training are not independent.
    logs = np.log(conditions)
    change = Estimate.of((logs[:, -1] - logs[:, 0]).mean(axis=-1))
    return np.exp([change.mean, *change.interval(level)]).tolist()


def inflation(errors: np.ndarray) -> np.ndarray:
    """log10 of the pruned over the unpruned error, (..., layers, modules, rates)."""
    mean = errors.mean(axis=-1, dtype=np.float64)
    return np.log10(mean / mean[..., :1, :1, :1])


def severe(subject: Subject, logs: np.ndarray) -> np.ndarray:
    """Means over rates >= 0.5."""
    return logs[..., np.asarray(subject.rates) >= 0.5].mean(axis=-1)


def improvements(m: dict[str, Any], level: float, condition: str) -> dict[str, Any]:
    """Pruned models that are better than unpruned on test, with Holm's correction."""
    errors, subject = on_test(m, condition), m["subject"]
    changes = (errors - errors[:, :1, :1, :1])[:, :, :, 1:]
    tests = Estimate.of(np.asarray(changes), axis=-1)
    p_better = tests.p_value("less")
    survivors = adjust_holm(p_better) <= 1 - level
    relative = tests.mean / errors[:, 0, 0, 0].mean(axis=-1)[:, None, None, None]
    best = np.unravel_index(np.argmin(relative), relative.shape)
    _, layer, module, rate = map(int, best)
    where = f"{subject.modules[module]} {layer} rank {subject.ranks[rate + 1]}"
    return {
        "name": f"{subject.name}, {condition}",
        "family": int(p_better.size),
        "better on average": int((tests.mean < 0).sum()),
        "p below the level": int((p_better < 1 - level).sum()),
        "after Holm": int(survivors.sum()),
        "best relative change": float(relative[best]),
        "where": where,
    }


def checks(m: dict[str, Any]) -> list[Check]:
    """Whether rate 0 is the same model everywhere, and whether it learned its task."""
    subject, rate0 = m["subject"], m["errors"][0, :, :, 0]
    spread = np.abs(rate0 - rate0[:1, :1]).max() / rate0[0, 0].mean()
    worst = on_test(m)[:, 0, 0, 0].mean(axis=1).max()
    every = f"{subject.name}: rate 0 of all layers and modules, spread over the error"
    learned = f"{subject.name}: error / d at k = {subject.shots[-1]}, worst seed"
    return [
        Check(every, spread, 0, "within", 1e-3),
        Check(learned, worst, 0.05, "<="),
    ]


def against_descent(m: dict[str, Any]) -> Check:
    """The linear stack against as many tuned steps of gradient descent."""
    recipe = m["subject"].recipe
    key = training.stream_key(recipe.seeds[0], "evaluation")
    prompt = recipe.task().sample(key, recipe.num_points - 1, 1024)
    errors, _ = gradient_descent_errors(recipe, prompt, recipe.num_layers)
    name = f"linear stack against {recipe.num_layers} tuned steps of gradient descent"
    return Check(name, on_test(m)[:, 0, 0, 0].mean(), errors.mean(), "<=")


def claims(measured: list[dict], better: dict, level: float) -> Iterator[Claim]:
    """The paper's claims, their predictions here, and what was measured."""
    for m in measured:
        subject, name = m["subject"], m["subject"].name
        for condition, best in better[name].items():
            change, after = best["best relative change"], best["after Holm"]
            claim = f"pruning can lower the error ({name}, {condition})"
            words = "some (layer, module, rate) below the unpruned error after Holm"
            found = f"{after} of {best['family']}; best change {change:+.1%}"
            yield Claim(claim, found, after > 0, words)
        logs = (inflation(on_test(m, shot=i)) for i in range(len(subject.shots)))
        by_shots = [severe(subject, one) for one in logs]
        # Mean |log10 inflation| over rates >= 0.5, (seeds, layers, modules)
        size = severe(subject, np.abs(inflation(on_test(m))))
        for place, module in enumerate(subject.modules):
            shallow, deep = size[:, 0, place], size[:, -1, place]
            claim = f"deep layers tolerate pruning better ({name}, {module})"
            words = "|log10 inflation| of the last layer below the first's, all seeds"
            found = f"last {deep.mean():.2f}, first {shallow.mean():.2f}"
            yield Claim(claim, found, np.all(deep < shallow), words)
            rises = [own[:, 0, place].mean() for own in by_shots]
            pairs = zip(subject.shots, rises, strict=True)
            claim = f"fewer shots slow the collapse ({name}, {module})"
            words = "log10 inflation of the first layer grows with the shots"
            found = ", ".join(f"k={k}: {rise:.2f}" for k, rise in pairs)
            yield Claim(claim, found, np.all(np.diff(rises) >= 0), words)
        ratio, low, high = condition_by_depth(m["conditions"], level)
        claim = f"deep layers are worse conditioned ({name})"
        words = "condition number of the last layer over that of the first above 1"
        found = f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
        yield Claim(claim, found, low > 1, words)
        harm = severe(subject, inflation(m["single"][..., -1])).ravel()
        correlation, p = scipy.stats.spearmanr(m["conditions"][0].ravel(), harm)
        claim = f"a large condition number marks what can be pruned ({name})"
        words = "negative rank correlation with the harm of pruning a matrix"
        found = f"Spearman {correlation:+.2f} (p = {p:.2g})"
        yield Claim(claim, found, correlation < 0 and p < 1 - level, words)
    chosen = [row for m in measured for row in m["choices"]]
    for rule in RULES:
        rows = [row for row in chosen if row["rule"].startswith(rule)]
        sure = adjust_holm([row["p_better"] for row in rows]) <= 1 - level
        changes = np.array([row["test"] for row in rows])
        for condition in CONDITIONS:
            own = np.array([row["condition"] == condition for row in rows])
            lower, count, after = (changes[own] < 0).sum(), own.sum(), sure[own].sum()
            claim = f"{rule} lowers the test error ({condition})"
            words = "better on test in most runs, and some after Holm"
            found = f"{lower} of {count} better, mean change {changes[own].mean():+.1%}"
            held = lower > count / 2 and after > 0
            yield Claim(claim, f"{found}, {after} after Holm", held, words)


def numbers(m: dict[str, Any]) -> dict[str, Any]:
    subject = m["subject"]
    single = m["single"][..., m["test"], :].mean(axis=3, dtype=np.float64)
    names = ("modules", "ranks", "rates", "shots")
    shots = range(len(subject.shots))
    means = {n: [on_test(m, n, k).mean(-1, float) for k in shots] for n in CONDITIONS}
    return {name: getattr(subject, name) for name in names} | {
        "seeds": subject.recipe.seeds,
        "matrices": [spec.name for spec in subject.model.matrices(0)],
        "errors (shots, seeds, layers, modules, rates)": means,
        "single matrices (layers, matrices, rates, shots), first seed": single,
        "condition numbers (seeds, layers, matrices)": m["conditions"],
        "choices": [
            {name: of for name, of in row.items() if name != "changes"}
            for row in m["choices"]
        ],
    }


def draw_maps(measured: list[dict], title: str) -> Any:
    """The ratio to the unpruned error of every layer and rate as colours."""
    logs = [inflation(on_test(m)).mean(axis=0) for m in measured]
    maps = {
        f"{m['subject'].name}, {frame.plain_words(module)}": (m, own[:, place])
        for m, own in zip(measured, logs, strict=True)
        for place, module in enumerate(m["subject"].modules)
    }
    limit = max(float(np.abs(own).max()) for own in logs)

    def factor(log):
        return f"{10**log:,.0f}" if 10**log >= 100 else f"{10**log:.2g}"

    with frame.figure(maps, 2, title, 2.2) as (shown, _):
        for ax, (name, (m, values)) in zip(shown, maps.items(), strict=True):
            columns = [f"{rate:.2g}" for rate in m["subject"].rates]
            look = {"limit": limit, "write": factor, "title": name}
            heat_map(values, ax=ax, columns=columns, **look)
    return shown[0].figure


def draw_gains(chosen: list[dict], level: float, title: str) -> Any:
    """The change of the error by each choice, in percent, by condition.

    The interval is that of the mean over the seeds' models, for other prompts.
    """
    panels: dict[str, dict] = {row["condition"]: {} for row in chosen}
    for row in chosen:
        rule, _, module = row["rule"].partition(", ")
        name = f"{row['model']}, {rule}{module and f', {frame.plain_words(module)}'}"
        panels[row["condition"]].setdefault(name, []).append(row)
    height = 1.0 + 0.26 * max(map(len, panels.values()))
    looks = {
        "test, mean of the seeds": {"marker": "o", "color": COLOURS[1], "ms": 5},
        "test, one seed": {"marker": "|", "color": "0.55", "ms": 6},
        "validation, mean of the seeds": {"marker": "D", "color": COLOURS[2], "ms": 3},
    }
    mean_look, seed_look, chosen_look = looks.values()
    with frame.figure(panels, 3, title, height) as (shown, entries):
        for number, (axes, rows) in enumerate(zip(shown, panels.values(), strict=True)):
            for place, seeds in enumerate(rows.values()):
                found = Estimate.of(np.mean([row["changes"] for row in seeds], axis=0))
                half = 100 * found.half_width(level)
                axes.errorbar(100 * found.mean, -place, None, half, **mean_look)
                each = [100 * row["test"] for row in seeds]
                axes.plot(each, [-place - 0.25] * len(each), ls="", **seed_look)
                on_validation = 100 * np.mean([row["validation"] for row in seeds])
                axes.plot(on_validation, 0.25 - place, **chosen_look)
            axes.axvline(0.0, color="0.35", linestyle=":", linewidth=1.2)
            names = list(rows) if number % 3 == 0 else [""] * len(rows)
            axes.set_yticks(-np.arange(len(rows)), names)
            axes.set(ylim=(-len(rows) + 0.4, 0.6), xlabel="change of the error, %")
        for name, look in looks.items():
            entries[name] = frame.key(linestyle="", **look)
    return shown[0].figure


def report(measured: list[dict], config: Config) -> Report:
    better, subjects, found = {}, {}, []
    for m in measured:
        name, found = m["subject"].name, found + checks(m)
        better[name] = {c: improvements(m, config.level, c) for c in CONDITIONS}
        subjects[name] = numbers(m)
    axes = ["in-context examples", "seed", "layer", "module", "clipping rate"]
    ratio = "Squared error over the unpruned error after clipping one layer\n"
    ratio += f"(geometric mean of {len(config.gpt2.seeds)} seeds)"
    choice = (
        f"Choice made on {config.validation_prompts:,} validation prompts, tested on "
        f"{config.test_prompts:,} others ({100 * config.level:g} % intervals)"
    )
    chosen = [row for m in measured for row in m["choices"]]
    columns = (
        "model, condition | family | better on average | p below the level | "
        "after Holm | best change | where",
        "{name} | {family} | {better on average} | {p below the level} | "
        "{after Holm} | {best relative change:+.1%} | {where}",
    )
    about = "all (seed, layer, module, rate) against the unpruned model, on test"
    rows = [row for own in better.values() for row in own.values()]
    return Report(
        {"improvements": better, "subjects": subjects, "precision": "float32"},
        checks=[*found, against_descent(measured[-1])],
        tables=[frame.table(rows, columns, about)],
        claims=list(claims(measured, better, config.level)),
        claims_title="the paper's claims on these models",
        figures={
            "layers_by_rate.png": draw_maps(measured, ratio),
            "figure4_algorithm1.png": draw_gains(chosen, config.level, choice),
        },
        interval_level=config.level,
        axes={"subjects.*.errors (shots, seeds, layers, modules, rates).*": axes},
    )


@frame.experiment(PRESETS)
def main(config, run):
    trained, records = [], []
    with run.phase("training"):
        for recipe in (config.gpt2, config.linear):
            trained.append(train(recipe, run, earlier=records))
            records += trained[-1].records
    with run.phase("sweeps"), run.progress("rates") as inner:
        subjects = [subject(out, config) for out in trained]
        measured = [measure(one, config, inner.follow) for one in subjects]
    return report(measured, config)


frame.program(__name__, main)
