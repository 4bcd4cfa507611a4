"""SVD pruning of models that learned regression in context (Yao et al. 2024).

Every module and matrix of a GPT-2 and a stack of linear attention is clipped to every
rank, and compared prompt by prompt with the unpruned model, on prompts like those of
training, with label noise, and with skewed inputs. Layers and rates are chosen on
validation prompts, by Algorithm 1 and exhaustively, and judged on others. Two controls:
all answers times one number, and magnitude pruning at equal storage.
"""

import itertools
from collections.abc import Mapping
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
from icltheory.layered import Batched, LayeredModel, forward, get_matrix
from icltheory.plotting import COLOURS, heat_map
from icltheory.plotting.style import plain_log_axis
from icltheory.regression import Bayes, estimate_risk, shifts
from icltheory.statistics import Estimate, adjust_holm

SEEDS = (0, 1, 2)
CONDITIONS = ("standard", "label noise", "skewed inputs")
MATRICES = {  # their looks and names
    "W_Q": (COLOURS[0], "o", "$W_Q$"),
    "W_K": (COLOURS[1], "s", "$W_K$"),
    "W_V": (COLOURS[2], "D", "$W_V$"),
    "W_O": (COLOURS[3], "^", "$W_O$"),
    "W_in": (COLOURS[4], "v", r"$W_\mathrm{in}$"),
    "W_out": (COLOURS[5], "P", r"$W_\mathrm{out}$"),
}
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
    params: list[Any]  # by seed
    modules: tuple[str, ...]  # groups that are pruned, the paper's
    ranks: tuple[int, ...]  # that are kept, the full one first
    shots: tuple[int, ...]  # numbers of demonstrations; the last one is the main one

    @property
    def rates(self) -> list[float]:
        """Clipping rates: one minus rank over full rank."""
        return [1 - r / self.ranks[0] for r in self.ranks]


def subject(trained: Any, config: Config) -> Subject:
    recipe, seeds = trained.recipe, range(len(trained.recipe.seeds))
    model, d = trained.layered()[0], recipe.dim
    shots = {0, max(d // 2, 1), d, 2 * d}
    if recipe.model == "gpt2":
        modules = ("attn", "mlp", "all") if recipe.mlp else ("attn",)
        params = [trained.of_seed(s) for s in seeds]
        more = modules, config.gpt2_ranks, tuple(sorted(shots))
        return Subject("GPT-2", recipe, model, params, *more)
    params = [trained.stack(s) for s in seeds]
    more = ("attn",), config.linear_ranks, (*sorted({*shots, recipe.num_points - 1}),)
    return Subject("linear stack", recipe, Batched(model), params, *more)


def questions(subject: Subject, config: Config, conditions=CONDITIONS) -> tuple:
    """Inputs, targets without noise (prompts, shots), slices of (condition, part)."""
    first, count = config.validation_prompts, config.test_prompts
    count += first
    drawn = [_draw(subject.recipe, config, name, count) for name in conditions]
    X, y, w = (jnp.concatenate(part) for part in zip(*drawn, strict=True))
    parts, shots = {}, np.asarray(subject.shots)
    for place, name in enumerate(conditions):
        start = place * count
        parts[name, "validation"] = slice(start, start + first)
        parts[name, "test"] = slice(start + first, start + count)
    if subject.recipe.model == "gpt2":
        return (X, y), jnp.einsum("bkd,bd->bk", X[:, shots], w), parts
    target = jnp.einsum("bd,bd->b", X[:, -1], w)
    targets = jnp.broadcast_to(target[:, None], (len(target), len(shots)))
    # Demonstrations beyond a prompt's shots are zero tokens, which have no effect.
    # Prompts with the same points and different shots follow each other.
    H = jnp.concatenate([X, y[:, :, None]], axis=2)[:, :-1]
    shown = jnp.asarray(np.arange(H.shape[1])[None] < shots[:, None], H.dtype)
    H = (H[:, None] * shown[None, :, :, None]).reshape(-1, *H.shape[1:])
    query = jnp.pad(X[:, -1], ((0, 0), (0, 1)))
    return (H, jnp.repeat(query, len(shots), axis=0)), targets, parts


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


def _of_gpt2(outputs, shots):
    return outputs[:, shots]


def _of_stack(outputs, shots):
    return -outputs[:, -1].reshape(-1, len(shots))  # minus the label slot of the query


def _score(subject):
    score = _of_gpt2 if subject.recipe.model == "gpt2" else _of_stack
    return score, (jnp.asarray(subject.shots),)


def plain_answers(subject: Subject, inputs: Any, seed: int) -> np.ndarray:
    """Predictions of the unpruned model by a forward pass, (prompts, shots)."""
    score, args = _score(subject)
    run = jax.jit(lambda *given: score(forward(subject.model, *given), *args))
    return np.asarray(run(subject.params[seed], inputs))


def answers(subject: Subject, inputs: Any, seed: int, modules, rates=None, **options):
    """Predictions after pruning, (layers, modules, rates, prompts, shots)."""
    score, args = _score(subject)
    model, params = subject.model, subject.params[seed]
    scored = pruning.Scored(model, params, inputs, score, args)
    where = range(model.num_layers), modules, rates or subject.rates
    return np.asarray(pruning.sweep_grid(scored, *where, **options))


def kept_shares(subject: Subject, module: str) -> list[float]:
    """Share of a module's parameters that each rank stores as two thin factors."""
    specs = pruning.module_matrices(subject.model, 0, module)
    shapes = [get_matrix(subject.params[0], spec).shape for spec in specs]
    found, size = [], sum(m * n for m, n in shapes)
    for rate in subject.rates:
        ranks = [pruning.rank_for_rate(shape, rate) for shape in shapes]
        kept = map(pruning.kept_parameters, shapes, ranks)
        found.append(sum(kept) / size)
    return found


def errors_of(answers: Any, targets: Any, dim: int, cap: float) -> np.ndarray:
    """Squared errors / d up to the cap, as a few prompts would decide their mean."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.square(np.asarray(answers) - np.asarray(targets)) / dim
    return np.fmin(np.where(np.isnan(errors), cap, errors), cap)


def measure(subject: Subject, config: Config, progress: Any = None) -> dict[str, Any]:
    """Errors after all pruning sweeps of a subject, and what was chosen on them.

    ``errors`` are (seeds, layers, modules, rates, prompts, shots); others of one seed.
    """
    inputs, targets, parts = questions(subject, config)
    standard, their_targets, _ = questions(subject, config, CONDITIONS[:1])

    def errors_at(answers, targets=their_targets):
        return errors_of(answers, targets, subject.recipe.dim, config.error_cap)

    errors, chosen, magnitude = [], [], {}
    for seed in range(len(subject.params)):
        found = answers(subject, inputs, seed, subject.modules, progress=progress)
        errors.append(errors_at(found, targets))
        given = found[..., -1], np.asarray(targets[:, -1])
        for condition in CONDITIONS:
            chosen += choices(subject, config, *given, parts, condition, seed)
    for module in (name for name in subject.modules if name != "all"):
        where = [module], [1 - share for share in kept_shares(subject, module)]
        found = answers(subject, standard, 0, *where, method=pruning.Magnitude())
        magnitude[module] = errors_at(found)
    matrices = [spec.name for spec in subject.model.matrices(0)]
    return {
        "subject": subject,
        "parts": parts,
        "errors": np.stack(errors),
        "single": errors_at(answers(subject, standard, 0, matrices)),
        "magnitude": magnitude,
        "plain": errors_at(plain_answers(subject, inputs, 0), targets),
        "choices": chosen,
    }


def on_test(m: dict[str, Any], condition: str = "standard", shot: int = -1):
    """Errors on test prompts, (seeds, layers, modules, rates, prompts)."""
    return m["errors"][..., m["parts"][condition, "test"], shot]


def choices(subject, config, answers, targets, parts, condition, seed) -> list[dict]:
    """Choices by Algorithm 1, by exhaustive search, and two controls.

    ``answers`` are of the main shots, (layers, modules, rates, prompts).
    """
    validation, test = (parts[condition, part] for part in ("validation", "test"))

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

    def change(before, after, part):
        scale = before[part].mean(dtype=np.float64)
        return Estimate.of(np.asarray((after[part] - before[part]) / scale))

    rows, about = [], {"model": subject.name, "seed": subject.recipe.seeds[seed]}
    for rule, (what, before, after) in found.items():
        judged = change(before, after, test)
        low, high = map(float, judged.interval(config.level))
        row = about | {"condition": condition, "rule": rule, "what": what}
        row |= {"validation": float(change(before, after, validation).mean)}
        row |= {"test": float(judged.mean), "low": low, "high": high}
        row |= {"p_better": float(judged.p_value("less"))}
        each = (after - before)[test] / before[test].mean(dtype=np.float64)
        rows.append(row | {"changes": np.asarray(each)})
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


def after_holm(chosen: list[dict], level: float) -> list[dict]:
    """The choices that are better on test, with Holm's correction for each rule."""
    better = []
    for rule in RULES:
        own = [row for row in chosen if row["rule"].startswith(rule)]
        sure = adjust_holm([row["p_better"] for row in own]) <= 1 - level
        better += [row for row, holds in zip(own, sure, strict=True) if holds]
    return better


def condition_numbers(subject: Subject, seed: int, module: str = "all"):
    """Condition numbers of the matrices of a module, one row per layer."""
    params = subject.params[seed]
    spectra = pruning.module_spectra(subject.model, params, module=module)
    return pruning.by_layer(spectra, "condition_number")


def condition_by_depth(subject: Subject, level: float) -> list[float]:
    """Last layer's condition numbers over the first's, and ends over seeds."""
    # The matrices of one training are not independent.
    logs = np.log([condition_numbers(subject, s) for s in range(len(subject.params))])
    change = Estimate.of((logs[:, -1] - logs[:, 0]).mean(axis=-1))
    return np.exp([change.mean, *change.interval(level)]).tolist()


def inflation(errors: np.ndarray) -> np.ndarray:
    """log10 of the pruned over the unpruned error, (..., layers, modules, rates)."""
    mean = errors.mean(axis=-1, dtype=np.float64)
    return np.log10(mean / mean[..., :1, :1, :1])


def severe(subject: Subject, logs: np.ndarray) -> np.ndarray:
    """Means over rates >= 0.5."""
    return logs[..., np.asarray(subject.rates) >= 0.5].mean(axis=-1)


def depth_effect(m: dict[str, Any]) -> dict[str, dict[str, list]]:
    """Mean |log10 inflation| over rates >= 0.5 of layers, by module."""
    found, size = {}, severe(m["subject"], np.abs(inflation(on_test(m))))
    for place, module in enumerate(m["subject"].modules):
        own = size[:, :, place]
        ends = {"shallow": own[:, 0].tolist(), "deep": own[:, -1].tolist()}
        found[module] = ends | {"by layer": own.mean(axis=0).tolist()}
    return found


def improvements(m: dict[str, Any], level: float, condition: str) -> dict[str, Any]:
    """Pruned models that are better than unpruned on test, with Holm's correction."""
    errors, subject = on_test(m, condition), m["subject"]
    changes = (errors - errors[:, :1, :1, :1])[:, :, :, 1:]
    tests = Estimate.of(np.asarray(changes), axis=-1)
    p_better = tests.p_value("less")
    survivors = adjust_holm(p_better) <= 1 - level
    scale = errors[:, 0, 0, 0].mean(axis=-1)[:, None, None, None]
    relative = tests.mean / scale
    best = np.unravel_index(np.argmin(relative), relative.shape)
    seed, layer, module, rate = map(int, best)
    place = {"seed": subject.recipe.seeds[seed], "layer": layer}
    place |= {"module": subject.modules[module], "rank": subject.ranks[rate + 1]}
    ends = [float((limit / scale)[best]) for limit in tests.interval(level)]
    least = float(relative[survivors].min()) if survivors.any() else None
    return {
        "family": int(p_better.size),
        "better on average": int((tests.mean < 0).sum()),
        "p below the level": int((p_better < 1 - level).sum()),
        "after Holm": int(survivors.sum()),
        "best relative change": float(relative[best]),
        "best relative interval": ends,
        "best after Holm": bool(survivors[best]),
        "best": place,
        "best relative change after Holm": least,
    }


def spectra(subject: Subject) -> list[dict[str, Any]]:
    """Condition number, its ratio to noise, and ranks of every matrix and seed."""
    names = ("condition_number", "null_ratio", "effective_rank", "stable_rank")
    found = []
    for seed, params in zip(subject.recipe.seeds, subject.params, strict=True):
        for record in pruning.module_spectra(subject.model, params):
            about = {"seed": seed, "layer": record.layer, "matrix": record.name}
            own = {name: getattr(record, name) for name in names}
            found.append(about | {"shape": list(record.shape)} | own)
    return found


def checks(m: dict[str, Any]) -> list[Check]:
    """Identities that hold for any pruning, and whether the model learned its task."""
    subject, plain, rate0 = m["subject"], m["plain"], m["errors"][0, :, :, 0]

    @jax.jit
    def unchanged(params):
        layers = range(subject.model.num_layers)
        where = [pruning.Intervention(layer, "all", 0.0) for layer in layers]
        new = (pruning.prune_model(subject.model, params, one) for one in where)
        changes = (jax.tree.map(lambda a, b: abs(a - b).max(), params, x) for x in new)
        return jnp.max(jnp.stack(jax.tree.leaves([*changes])))

    name, spread = f"{subject.name}: rate 0", np.abs(rate0 - rate0[:1, :1]).max()
    bulk = np.abs(rate0[0, 0] - plain).mean() / plain.mean()
    gpt2, shots = subject.recipe.model == "gpt2", subject.shots
    at = shots.index(2 * subject.recipe.dim) if gpt2 else len(shots) - 1
    worst = on_test(m, shot=at)[:, 0, 0, 0].mean(axis=1).max()
    learned = f"{subject.name}: error / d at k = {shots[at]}, worst seed"
    passes = f"{name} against a plain forward pass, relative"
    every = f"{name} of all layers and modules, spread over the error"
    change = float(unchanged(subject.params[0]))
    return [
        Check(f"{name} changes no weight", change, 0, "<="),
        Check(passes, bulk, 0, "within", 1e-4),
        Check(every, spread / plain.mean(), 0, "within", 1e-3),
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


def claims(measured: list[dict], config: Config) -> list[Claim]:
    """The paper's claims, their predictions here, and what was measured."""
    stated = []
    for m in measured:
        subject, name = m["subject"], m["subject"].name
        for condition in CONDITIONS:
            best = improvements(m, config.level, condition)
            change, after = best["best relative change"], best["after Holm"]
            claim = f"pruning can lower the error ({name}, {condition})"
            words = "some (layer, module, rate) below the unpruned error after Holm"
            found = f"{after} of {best['family']}; best change {change:+.1%}"
            stated.append((claim, found, after > 0, words))
        logs = (inflation(on_test(m, shot=i)) for i in range(len(subject.shots)))
        by_shots = [severe(subject, one) for one in logs]
        for place, (module, depth) in enumerate(depth_effect(m).items()):
            deep, shallow = (np.array(depth[end]) for end in ("deep", "shallow"))
            claim = f"deep layers tolerate pruning better ({name}, {module})"
            words = "|log10 inflation| of the last layer below the first's, all seeds"
            found = f"last {deep.mean():.2f}, first {shallow.mean():.2f}"
            stated.append((claim, found, np.all(deep < shallow), words))
            rises = [size[:, 0, place].mean() for size in by_shots]
            pairs = zip(subject.shots, rises, strict=True)
            claim = f"fewer shots slow the collapse ({name}, {module})"
            words = "log10 inflation of the first layer grows with the shots"
            found = ", ".join(f"k={k}: {rise:.2f}" for k, rise in pairs)
            stated.append((claim, found, np.all(np.diff(rises) >= 0), words))
        ratio, low, high = condition_by_depth(subject, config.level)
        claim = f"deep layers are worse conditioned ({name})"
        words = "condition number of the last layer over that of the first above 1"
        found = f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
        stated.append((claim, found, low > 1, words))
        harm = severe(subject, inflation(m["single"][..., -1])).ravel()
        condition = np.ravel(condition_numbers(subject, 0))
        correlation, p = scipy.stats.spearmanr(condition, harm)
        claim = f"a large condition number marks what can be pruned ({name})"
        words = "negative rank correlation with the harm of pruning a matrix"
        found = f"Spearman {correlation:+.2f} (p = {p:.2g})"
        held = correlation < 0 and p < 1 - config.level
        stated.append((claim, found, held, words))
        for module, errors in m["magnitude"].items():
            first, *_, last = severe(subject, inflation(errors[..., -1]))[:, 0]
            claim = f"control: the same of magnitude pruning ({name}, {module})"
            words = "log10 inflation of the last layer below that of the first"
            found = f"last {last:.2f}, first {first:.2f}"
            stated.append((claim, found, last < first, words))
    chosen = [row for m in measured for row in m["choices"]]
    sure = after_holm(chosen, config.level)
    for rule, condition in itertools.product(RULES, CONDITIONS):
        rows = [row for row in chosen if row["condition"] == condition]
        rows = [row for row in rows if row["rule"].startswith(rule)]
        changes, after = [row["test"] for row in rows], sum(r in sure for r in rows)
        better = sum(change < 0 for change in changes)
        claim = f"{rule} lowers the test error ({condition})"
        words = "better on test in most runs, and some after Holm"
        found = f"{better} of {len(rows)} better, mean change {np.mean(changes):+.1%}"
        held = better > len(rows) / 2 and after > 0
        stated.append((claim, f"{found}, {after} after Holm", held, words))
    return [Claim(*one) for one in stated]


def numbers(m: dict[str, Any]) -> dict[str, Any]:
    subject, test = m["subject"], m["parts"]["standard", "test"]
    single = m["single"][..., test, :].mean(axis=3, dtype=np.float64)
    names = ("modules", "ranks", "rates", "shots")
    shots = range(len(subject.shots))
    means = {n: [on_test(m, n, k).mean(-1, float) for k in shots] for n in CONDITIONS}
    return {name: getattr(subject, name) for name in names} | {
        "seeds": subject.recipe.seeds,
        "matrices": [spec.name for spec in subject.model.matrices(0)],
        "errors (shots, seeds, layers, modules, rates)": means,
        "single matrices (layers, matrices, rates, shots), first seed": single,
        "depth": depth_effect(m),
        "spectra": spectra(subject),
        "choices": [
            {name: of for name, of in row.items() if name != "changes"}
            for row in m["choices"]
        ],
    }


def unpruned_table(m: dict[str, Any], label_noise: float) -> Any:
    """Errors of the unpruned models, and the best possible ones."""
    rows, subject = [], m["subject"]
    for condition in CONDITIONS:
        row = {"condition": condition}
        for shot, k in enumerate(subject.shots):
            means = on_test(m, condition, shot)[:, 0, 0, 0].mean(axis=1)
            ends = f"({means.min():.3g}-{means.max():.3g})"
            row[f"k = {k}"] = f"{means.mean():.3g} {ends}"
        rows.append(row)
    for condition, noise in (("standard", 0.0), ("label noise", label_noise)):
        task, lengths = subject.recipe.task(noise), range(subject.shots[-1] + 1)
        key = training.stream_key(0, "evaluation")
        risk = estimate_risk(Bayes(task), task, lengths, key=key, num_prompts=2048)
        best = np.asarray(risk.mean - task.noise_var) / task.dim
        cells = {f"k = {k}": f"{round(float(best[k]), 6):.3g}" for k in subject.shots}
        rows.append({"condition": f"best possible, {condition}"} | cells)
    title = f"{subject.name}, unpruned: error / d, mean over seeds (range)"
    return frame.table(rows, title=title)


def tables(measured: list[dict], config: Config, better: Mapping) -> list[Any]:
    """Errors of unpruned and pruned models, and tests of all."""
    found, every = [], []
    for m in measured:
        lines, (name, *_, ranks, shots) = [], m["subject"]
        factor = 10 ** inflation(on_test(m)).mean(axis=0)
        for place, module in enumerate(m["subject"].modules):
            for layer, row in enumerate(factor[:, place]):
                cells = {f"{r}": f"{x:.3g}" for r, x in zip(ranks, row, strict=True)}
                lines.append({"module": module, "layer": layer} | cells)
        title = f"{name}: error over the unpruned error at k = {shots[-1]} (geometric "
        title += "mean over seeds), by rank kept"
        plain = unpruned_table(m, config.label_noise)
        found += [plain, frame.table(lines, title=title)]
        for condition, row in better[name].items():
            names = ("family", "better on average", "p below the level", "after Holm")
            line = {"model, condition": f"{name}, {condition}"}
            line |= {name: row[name] for name in names}
            line["best change"] = f"{row['best relative change']:+.1%}"
            line["where"] = "{module} {layer} rank {rank}".format(**row["best"])
            every.append(line)
    about = "all (seed, layer, module, rate) against the unpruned model, on test"
    return [*found, frame.table(every, title=about)]


def rate_panel(m, config, module):
    """Rates, unpruned error, and ratios to it: mean, ends and significance by layer."""
    errors = on_test(m)[:, :, module].mean(axis=0, dtype=np.float64)
    start = float(errors[0, 0].mean())
    # Of the paired difference over prompts; Holm's family is the panel.
    found = Estimate.of(errors - errors[:1, :1], axis=-1)
    sure = np.zeros(found.mean.shape, bool)
    # The first rate is the unpruned model itself, so it is not tested.
    p_values = np.asarray(found.p_value("two-sided"))[:, 1:]
    sure[:, 1:] = adjust_holm(p_values) <= 1 - config.level
    ends = (found.mean, *found.interval(config.level))
    ratios = (1 + np.asarray(end) / start for end in ends)
    return m["subject"].rates, start, list(zip(*ratios, sure, strict=True))


def draw_rates(panels: Mapping, title: str) -> Any:
    """Ratios to the unpruned error by rate and layer; filled where beyond chance."""
    with frame.figure(panels, 2, title, 2.2) as (shown, entries):
        for axes, (rates, _, curves) in zip(shown, panels.values(), strict=True):
            axes.axhline(1.0, color="0.35", linestyle=":", linewidth=1.0)
            x = np.asarray(rates)
            for layer, curve in enumerate(curves):
                mean, low, high, sure = map(np.asarray, curve)
                colour = COLOURS[1 + layer % (len(COLOURS) - 1)]
                name, marker = f"layer {layer}", frame.layer_marker(layer)
                axes.plot(x, mean, color=colour, linewidth=1.2)
                low = np.maximum(low, mean / 1e3)
                axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
                look = {"color": colour, "marker": marker, "linestyle": ""}
                for which, face in ((sure, colour), (~sure, "white")):
                    mark = look | {"markersize": 4, "markerfacecolor": face}
                    axes.plot(x[which], mean[which], **mark)
                entries[name] = frame.key(color=colour, marker=marker, markersize=5)
            means = [curve[0] for curve in curves]
            plain_log_axis(axes.yaxis, max(float(np.max(means) / np.min(means)), 10.0))
            axes.set(xlim=(-0.02, 1.02), xlabel="clipping rate")
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
        mark = {"linestyle": "", "marker": "o"}
        faces = {"beyond chance after Holm": "0.35", "not beyond chance": "white"}
        for name, face in faces.items():
            entries[name] = frame.key(**mark, markerfacecolor=face)
        for axes in shown[::2]:
            axes.set_ylabel("error over\nunpruned error")
    return shown[0].figure


def draw_maps(measured: list[dict], title: str) -> Any:
    """The ratio to the unpruned error of every layer and rate as colours."""
    maps = {}
    for m in measured:
        values, subject = inflation(on_test(m)).mean(axis=0), m["subject"]
        for place, module in enumerate(subject.modules):
            name = f"{subject.name}, {frame.plain_words(module)}"
            maps[name] = [f"{rate:.2g}" for rate in subject.rates], values[:, place]
    limit = max(float(np.abs(values).max()) for _, values in maps.values())

    def factor(log):
        return f"{10**log:,.0f}" if 10**log >= 100 else f"{10**log:.2g}"

    look = {"limit": limit, "write": factor}
    with frame.figure(maps, 2, title, 2.2) as (shown, _):
        for ax, (name, (columns, values)) in zip(shown, maps.items(), strict=True):
            heat_map(values, ax=ax, columns=columns, title=name, **look)
    return shown[0].figure


def draw_conditions(panels: Mapping[str, Mapping[str, tuple]], title: str) -> Any:
    """Condition numbers (seeds, layers) of each matrix, and over those of noise."""
    titles = [name for name in panels for _ in range(2)]
    dotted = {"linestyle": ":", "linewidth": 1.2}
    with frame.figure(titles, 2, title, 3.2) as (axes, _):
        pairs = zip(axes[::2], axes[1::2], panels.values(), strict=True)
        for left, right, curves in pairs:
            ends, nulls = [], {}
            for matrix, (values, null, shape) in curves.items():
                colour, marker, name = MATRICES[matrix]
                values = np.where(np.isfinite(values), values, np.nan)
                middle = np.exp(np.log(values).mean(axis=0))
                layers, look = np.arange(len(middle)), {"color": colour}
                mark = look | {"linestyle": "", "marker": marker, "markersize": 4}
                for ax, scale in ((left, 1.0), (right, null)):
                    ax.plot(layers, middle / scale, **look)
                    for row in values / scale:
                        ax.plot(layers, row, alpha=0.6, **mark)
                known = middle[np.isfinite(middle)]
                ends += [(float(known[-1]), name, colour)] if len(known) else []
                nulls[shape] = null
            for shape, null in nulls.items():
                left.axhline(null, color="grey", **dotted)
                ends.append((float(null), f"random {shape}", "0.4"))
            frame.name_ends(left, ends)
            right.axhline(1.0, color="grey", **dotted)
            left.set_ylabel("condition number")
            right.set_ylabel("ratio to the median of\nrandom matrices of the shape")
            for ax in (left, right):
                ax.set(yscale="log", xlabel="layer")
                ax.xaxis.get_major_locator().set_params(integer=True)
    return axes[0].figure


def matrices(subject: Subject) -> dict[str, tuple]:
    """Condition numbers of each matrix, beside those of random ones."""
    seeds = range(len(subject.params))
    values = np.array([condition_numbers(subject, seed) for seed in seeds])
    found = {}
    for place, spec in enumerate(subject.model.matrices(0)):
        shape = get_matrix(subject.params[0], spec).shape
        name = f"{max(shape)} x {min(shape)}"
        null = pruning.random_condition_number(shape)
        found[spec.name] = values[:, :, place], null, name
    return found


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
                below = np.full(len(each), -place - 0.25)
                axes.plot(each, below, linestyle="", **seed_look)
                on_validation = 100 * np.mean([row["validation"] for row in seeds])
                axes.plot(on_validation, 0.25 - place, **chosen_look)
            axes.axvline(0.0, color="0.35", linestyle=":", linewidth=1.2)
            names = list(rows) if number % 3 == 0 else [""] * len(rows)
            axes.set_yticks(-np.arange(len(rows)), names)
            axes.set(ylim=(-len(rows) + 0.4, 0.6), xlabel="change of the error, %")
        for name, look in looks.items():
            entries[name] = frame.key(linestyle="", **look)
    return shown[0].figure


def figures(measured: list[dict], config: Config) -> dict[str, Any]:
    count, percent = len(config.gpt2.seeds), f"{100 * config.level:g} %"
    prompts = f"mean of {count} seeds, {config.test_prompts:,} test prompts"
    note = f"{prompts}; bands: paired {percent} intervals; Holm over a panel"
    by_layer = {}
    for m in measured:
        for place, module in enumerate(m["subject"].modules):
            about = f"{m['subject'].name}, {frame.plain_words(module)}\n"
            panel = rate_panel(m, config, place)
            about += f"{m['subject'].shots[-1]} examples, unpruned {panel[1]:.2g}"
            by_layer[about] = panel
    chosen = [row for m in measured for row in m["choices"]]
    layers = f"Squared error / d after clipping one module of one layer\n({note})"
    over = "Squared error over the unpruned error after clipping one layer"
    choice = (
        f"Choice made on {config.validation_prompts:,} validation prompts, tested on "
        f"{config.test_prompts:,} others ({percent} intervals)"
    )
    curves = {m["subject"].name: matrices(m["subject"]) for m in measured}
    condition = "Condition numbers after training "
    condition += f"(points: {count} seeds; lines: geometric means)"
    return {
        "figure1_layers.png": draw_rates(by_layer, layers),
        "layers_by_rate.png": draw_maps(measured, f"{over}\n(geometric {prompts})"),
        "figure3_condition_numbers.png": draw_conditions(curves, condition),
        "figure4_algorithm1.png": draw_gains(chosen, config.level, choice),
    }


def report(measured: list[dict], config: Config) -> Report:
    better, subjects, found = {}, {}, []
    for m in measured:
        name, found = m["subject"].name, found + checks(m)
        better[name] = {c: improvements(m, config.level, c) for c in CONDITIONS}
        subjects[name] = numbers(m)
    axes = ["in-context examples", "seed", "layer", "module", "clipping rate"]
    return Report(
        {"improvements": better, "subjects": subjects, "precision": "float32"},
        checks=[*found, against_descent(measured[-1])],
        tables=tables(measured, config, better),
        claims=claims(measured, config),
        claims_title="the paper's claims on these models",
        figures=figures(measured, config),
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
