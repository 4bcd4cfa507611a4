"""In-context classification of patterns: attention, neurons, S_1, prompts (Li et al.).

In the manner of Figures 8 to 13, 27 and 28. One-layer models of equation (7) along
training, against S_1, number of contexts, training tasks and alpha; GPT-2 and
classifiers of scikit-learn on the same prompts. M1 = 6, m = 64, beta = 2 were read off
figures, the rest was chosen. A resumed run trains the one-layer models again.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared.pattern_gpt2 import GPT_GPU, GPT_PAPER, Gpt, pairs, train_gpt
from experiments.shared.patterns import (
    IN_DOMAIN,
    PatternEnsemble,
    check_sums,
    means_of,
    over_seeds,
    scores_at_sums,
    train_ensemble,
)
from icltheory import patterns, training
from icltheory.plotting.panels import name_ends
from icltheory.plotting.style import COLOURS, plain_log_axis
from icltheory.statistics import Estimate, proportion_interval

# Purposes of keys (see ``PatternEnsemble.keys``).
MECHANISM, LENGTHS, SPEED, BASELINES = 10, 11, 12, 13
SUMS = (1.4, 1.3, 1.1, 1.0, 0.9, 0.7, 0.5, 0.0, -0.5, -1.0, -1.4)
ONE_LAYER, GPT, LOGISTIC = "ICL, one layer", "ICL, GPT-2", "logistic regression"
NEAREST_3, ORIGIN = "3-NN", "logistic, no intercept"


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured."""

    # one-layer models of the mechanism and of the error against length
    figures: PatternEnsemble = PatternEnsemble()
    # those of the sweep of S_1 and of the coverage, at a beta where the closed form has
    # its kink near S_1 = 1
    shifted: PatternEnsemble = PatternEnsemble(scale=3.0, step_size=1.0)
    gpt: Gpt = Gpt()  # GPT-2 on the patterns of the first seed of ``figures``
    gpt_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # seeds of GPT-2
    prompts: int = 2048  # fresh prompts per seed and setting
    sums: tuple[float, ...] = SUMS  # coefficient sums S_1
    draws: int = 4  # draws of the out-of-domain patterns
    reference_sum: float = 1.1  # S_1 where something else is varied
    gpt_sums: tuple[float, ...] = (1.3, 1.1, 1.0, 0.9, 0.7, 0.5)  # S_1 of GPT-2's tests
    gpt_prompts: int = 256  # prompts per seed, setting and draw of GPT-2's tests
    lengths: tuple[int, ...] = (2, 4, 8, 12, 20)  # numbers of contexts, ascending
    fractions: tuple[float, ...] = (0.6, 0.8, 1.0)  # relevant fractions alpha' of tests
    covers: tuple[int, ...] = (1, 2, 3, 5)  # shifts of training, M1 tasks each
    # relevant fractions of training, against which iterations are counted; all else is
    # as in ``figures``
    alphas: tuple[float, ...] = (1.0, 0.8, 0.6, 0.4, 0.25)
    alpha_length: int = 40  # contexts of a prompt of these trainings
    alpha_steps: int = 480  # steps of these trainings
    alpha_every: int = 10  # steps between two looks at them
    target: float = 0.1  # hinge loss on unseen tasks that counts as learned
    # contexts of classifiers
    baseline_lengths: tuple[int, ...] = (6, 8, 10, 12, 16, 20)
    baseline_fractions: tuple[float, ...] = (0.8, 0.6)  # their alpha'
    baseline_prompts: int = 450  # prompts for each of them

    def __post_init__(self):
        check_at_least(self, 2, "prompts", "draws", "gpt_prompts", "baseline_prompts")
        check_at_least(self, 1, "alpha_length", "alpha_steps", "alpha_every")
        frame.check_ascending(self, "lengths", "baseline_lengths", "covers")
        frame.check_each(self, "in (0, 1]", "fractions", "alphas", "baseline_fractions")
        frame.check_each(self, "in (0, 1)", "target")
        for ensemble in (self.figures, self.shifted):
            check_sums(ensemble, (*self.sums, *self.gpt_sums, self.reference_sum))
        most, every = self.shifted.num_relevant - 1, self.alpha_every
        few = f"at most M1 - 1 = {most} shifts"
        expect(self.covers[-1] <= most, "covers", few, self.covers[-1])
        whole = f"a multiple of alpha_every {every}"
        expect(not self.alpha_steps % every, "alpha_steps", whole, self.alpha_steps)
        longest, own = self.figures.num_examples, self.lengths[-1]
        other, name = self.baseline_lengths[-1], "lengths, baseline_lengths"
        known = f"at most the {longest} contexts of training"
        expect(max(own, other) <= longest, name, known, f"{own} and {other}")
        several = 2 <= len(self.alphas) == len(set(self.alphas))
        expect(several, "alphas", "two or more", self.alphas)
        expect(len(self.gpt_seeds) > 0, "gpt_seeds", "at least one", "none")


_SEEDS = tuple(range(10))
_LARGE = {
    "figures": PatternEnsemble(seeds=_SEEDS),
    "shifted": PatternEnsemble(scale=3.0, step_size=1.0, seeds=_SEEDS),
    "prompts": 16_384,
    "draws": 8,
    "gpt_prompts": 4096,
}
PRESETS = {
    "cpu": Config(),
    "gpu": Config(**_LARGE, gpt=GPT_GPU, baseline_prompts=4000),
    "paper": Config(**_LARGE, gpt=GPT_PAPER, baseline_prompts=20_000),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "2 min, 2 cores"}


# --- one-layer models: along training, against S_1, length, tasks and alpha


def mechanism(config, trained):
    """Every snapshot on the same prompts; leaves begin with (seeds, snapshots)."""
    model, size = trained.model, (trained.ensemble.num_examples, config.prompts)

    def one(task, _, key, snapshots):
        keys, unseen = jax.random.split(key, 3), task.held_out()
        prompt = unseen.sample(keys[0], *size)
        away = task.out_of_domain(config.reference_sum, key=keys[1])
        asked = away.sample(keys[2], *size)

        def look(params):
            inside = means_of(patterns.scores(model, params, prompt))
            outside = means_of(patterns.scores(model, params, asked))
            tokens = patterns.projections(params, unseen, prompt)
            return patterns.neuron_parts(params, task), {
                "attention": inside["attention"],
                "attention out of domain": outside["attention"],
                "hinge": inside["hinge"],
                "error": inside["error"],
                "W_Q p": tokens.query,
                "W_Q p along the pattern": tokens.query_component,
                "W_K p": tokens.keys,
                "W_K p along the pattern": tokens.keys_component,
            }

        return jax.lax.map(look, snapshots)

    keys = trained.ensemble.keys(MECHANISM)
    parts, curves = over_seeds(one, trained, keys, trained.path.params)
    for name in ("feature", "label"):
        norms = getattr(parts, f"{name}_norm")
        curves[f"{name} norm"] = parts.mean(norms, parts.large)
    angles = {"feature": parts.mean(parts.feature_angle, parts.large)}
    for name, which in (("a > 0", parts.positive), ("a < 0", ~parts.positive)):
        angles[f"label, {name}"] = parts.mean(parts.label_angle, parts.large & which)
    angles = {name: np.asarray(values) / np.pi for name, values in angles.items()}
    curves = {name: np.asarray(values) for name, values in curves.items()}
    return {"parts": parts, "curves": curves, "angles": angles, "steps": trained.steps}


def sweep(config, trained):
    """Means (seeds, sums, draws) against S_1, and the closed form [1 - F]_+."""
    length = trained.ensemble.num_examples
    sizes = config.sums, config.draws, config.prompts
    found = scores_at_sums(trained, *sizes, num_examples=length)
    found = {name: np.asarray(values) for name, values in found.items()}
    seen = over_seeds(lambda task, p: patterns.gain_ratio(p, task), trained)
    gain, ratio = (np.asarray(part) for part in (seen.gain, seen.ratio))
    gain = gain[:, None] * found["attention"].mean(axis=-1)
    sums = np.asarray(config.sums)
    margins = np.asarray(patterns.margin(sums[None], gain, ratio[:, None]))
    closed = np.asarray(patterns.hinge(margins))
    return found | {"sums": sums, "ratio": ratio, "F": margins, "closed": closed}


def prefix(prompt, length):
    """The prompts with only their first ``length`` contexts."""
    cut = {name: getattr(prompt, name)[:, :length] for name in ("P", "y", "pattern")}
    return dataclasses.replace(prompt, **cut)


def error_by_length(config, trained):
    """Shares of prompts: wrong, without the query's pattern, and only wrong."""

    def shares(params, prompt):
        each = []
        for length in config.lengths:
            found = patterns.scores(trained.model, params, prefix(prompt, length))
            wrong, missed = ~(found.margins > 0), found.missed
            rates = {"error": wrong, "missed": missed, "wrong_hits": wrong & ~missed}
            each.append({x: jnp.mean(r.astype(jnp.float32)) for x, r in rates.items()})
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

    def one(task, params, key):
        keys = jax.random.split(key, 3)
        away = task.out_of_domain(config.reference_sum, key=keys[0])
        domains = {"in domain": task.held_out(), "out of domain": away}

        def at(alpha):
            found, size = {}, (config.lengths[-1], config.prompts)
            for (name, asked), own in zip(domains.items(), keys[1:], strict=True):
                prompt = asked.with_(relevant_fraction=alpha).sample(own, *size)
                found[name] = shares(params, prompt)
            return found

        return jax.lax.map(at, jnp.asarray(config.fractions, jnp.float32))

    found = over_seeds(one, trained, trained.ensemble.keys(LENGTHS))
    return jax.tree.map(lambda leaf: np.asarray(leaf).mean(axis=0), found)


def coverage(config, known):
    """One row a set of training tasks; ``known`` is trained already."""
    rows = []
    for size in config.covers:
        ensemble = dataclasses.replace(known.ensemble, shifts=tuple(range(1, size + 1)))
        same = ensemble == known.ensemble
        trained = known if same else train_ensemble(ensemble)
        M, tasks = ensemble.num_relevant, trained.tasks.tasks
        inside, unseen = scores_on_all(trained, 2 * config.prompts)
        hinge, unseen = np.asarray(patterns.hinge(inside.margins)), np.asarray(unseen)
        sizes = (config.reference_sum,), 2 * config.draws, config.prompts // 2
        outside = scores_at_sums(trained, *sizes)
        outside = {name: np.asarray(x)[:, 0] for name, x in outside.items()}
        logits = over_seeds(lambda task, p: patterns.pattern_logits(p, task), trained)
        logits = np.asarray(logits)
        off = logits[:, ~np.eye(M, dtype=bool)]
        some = unseen if unseen.any() else ~unseen
        row = {
            "tasks": len(tasks),
            "ratio": float(patterns.task_ratio(tasks, M)),
            "hinge": np.mean(hinge, axis=1, where=some),
            "shifted": outside["hinge"],
            "attention": outside["attention"].mean(),
            "diagonal": np.diagonal(logits, axis1=1, axis2=2).mean(axis=1).mean(),
            "off": off.mean(axis=1).mean(),
            "spread": off.std(axis=1),
        }
        rows.append(row)
    return rows


def scores_on_all(trained, num_prompts, *, num_examples=20):
    """Scores on prompts of all tasks at alpha' = .8, and which tasks are unseen."""
    M, keys = trained.ensemble.num_relevant, trained.ensemble.keys(IN_DOMAIN)
    sizes = trained.model, num_prompts, num_examples
    found, pair = _on_all(*sizes, trained.with_all_tasks(), trained.params, keys, 0.8)
    seen = jnp.asarray([a * M + b for a, b in trained.tasks.tasks])
    return found, ~jnp.isin(pair[..., 0] * M + pair[..., 1], seen)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _on_all(model, num_prompts, num_examples, *arrays):
    *stacked, relevant_fraction = arrays

    def one(task, params, key):
        asked = task.with_(relevant_fraction=relevant_fraction)
        prompt = asked.sample(key, num_examples, num_prompts)
        return patterns.scores(model, params, prompt), prompt.pair

    return jax.vmap(one)(*stacked)


def speed(config):
    """Trains all seeds at all alphas in one program, and finds the iterations."""
    steps, hinge = _hinge_along(config)
    steps, hinge = np.asarray(steps[0, 0]), np.asarray(hinge)
    return speed_of(np.asarray(config.alphas), steps, hinge, config.target)


@functools.partial(jax.jit, static_argnums=0)
def _hinge_along(config):
    ensemble = config.figures
    model, tasks = ensemble.model(), ensemble.tasks()
    sizes = {name: getattr(ensemble, name) for name in ("step_size", "batch_size")}
    sizes |= {"num_examples": config.alpha_length, "record_every": config.alpha_every}

    def one(alpha, task, params, key, asked):
        task = task.with_(relevant_fraction=alpha)
        path = patterns.train(model, task, params, config.alpha_steps, key=key, **sizes)
        size = config.alpha_length, config.prompts // 4
        prompt = task.held_out().sample(asked, *size)
        look = lambda params: patterns.scores(model, params, prompt).hinge  # noqa: E731
        return path.steps, jax.lax.map(look, path.params)

    seeds = jax.vmap(one, in_axes=(None, 0, 0, 0, 0))
    everything = jax.vmap(seeds, in_axes=(0, None, None, None, None))
    alphas, start = jnp.asarray(config.alphas, jnp.float32), ensemble.start(tasks)
    return everything(alphas, tasks, start, ensemble.keys(2), ensemble.keys(SPEED))


def speed_of(alphas, steps, hinge, target):
    """Iterations (alphas, seeds) to the target, and their slope on log-log axes."""

    def slope(iterations):
        if not np.all(np.isfinite(iterations)):
            return math.nan
        return float(np.polyfit(np.log(alphas), np.log(iterations), 1)[0])

    iterations = np.array([[crossing(steps, one, target) for one in x] for x in hinge])
    # The slope is of the means over the seeds, its error over the seeds' own slopes.
    error = Estimate.of(np.array([slope(own) for own in iterations.T])).standard_error
    found = {"alpha": alphas, "iterations": iterations, "slope error": float(error)}
    return found | {"slope": slope(iterations.mean(axis=1))}


def crossing(steps, values, target):
    """Step at which values first fall below the target, between snapshots, or NaN."""
    i = int(np.argmax(values < target))
    if not values[i] < target:
        return math.nan
    if i == 0:
        return float(steps[0])
    share = (values[i - 1] - target) / (values[i - 1] - values[i])
    return float(steps[i - 1] + share * (steps[i] - steps[i - 1]))


# --- GPT-2 and classifiers of scikit-learn


def margins_by_length(module, params, prompt):
    """Margins z F of the query after 0, 1, ..., l contexts, in one forward pass."""
    asked, P = pairs(prompt), prompt.num_examples + 1
    question = jnp.repeat(prompt.x_query[:, None], P, axis=1)
    answers = module.apply({"params": params}, asked.X, asked.y, question)
    return answers * prompt.z[:, None]


def gpt_errors(config, trained):
    """0-1 errors (settings, draws, seeds, l + 1) after 0 to l contexts."""
    task, length = trained.task, config.figures.num_examples
    key = training.stream_key(config.gpt_seeds[0], "evaluation")

    def of_all(prompt):
        def one(params):
            margins = margins_by_length(trained.module, params, prompt)
            return jnp.mean((~(margins > 0)).astype(jnp.float32), axis=0)

        return jax.lax.map(one, trained.params)

    def found(shifted, settings):
        keys = jax.random.split(key, config.draws)

        def row(setting):
            S, alpha = setting

            def draw(own):
                first, second = jax.random.split(own)
                asked = task.out_of_domain(S, key=first) if shifted else task.held_out()
                asked = asked.with_(relevant_fraction=alpha)
                return of_all(asked.sample(second, length, config.gpt_prompts))

            return jax.lax.map(draw, keys)

        arrays = tuple(jnp.asarray(x, jnp.float32) for x in zip(*settings, strict=True))
        return np.asarray(jax.jit(lambda s: jax.lax.map(row, s))(arrays))

    by_sum = [(S, config.figures.relevant_fraction) for S in config.gpt_sums]
    by_alpha = [(config.reference_sum, alpha) for alpha in config.fractions]
    outside, several = found(True, by_sum + by_alpha), len(by_sum)
    errors = {"by S_1": outside[:several]}
    errors["by alpha', unseen tasks"] = found(False, by_alpha)
    return errors | {"by alpha', out of domain": outside[several:]}


def classifiers():
    """Classifiers of scikit-learn by name, with the library's defaults."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    # The slides state neither C nor the width of the Gaussian kernel.
    return {
        LOGISTIC: LogisticRegression(C=1.0),
        ORIGIN: LogisticRegression(C=1.0, fit_intercept=False),
        "SVM, Gaussian": SVC(C=1.0, kernel="rbf", gamma="scale"),
        "SVM, linear": SVC(C=1.0, kernel="linear"),
        "1-NN": KNeighborsClassifier(1, algorithm="brute"),
        NEAREST_3: KNeighborsClassifier(3, algorithm="brute"),
    }


def classify(classifier, X, y, query):
    """Fits a classifier to the contexts and predicts the query's label."""
    if np.all(y == y[0]):
        return float(y[0])
    return float(classifier.fit(X, y).predict(query[None])[0])


def compare(config, trained, gpt, index):
    """Wrong predictions (lengths, prompts) of every method on the same prompts."""
    import sklearn
    from threadpoolctl import threadpool_limits

    fraction, lengths = config.baseline_fractions[index], config.baseline_lengths
    share = -(-config.baseline_prompts // len(config.figures.seeds))

    def one(task, params, key):
        own = jax.random.fold_in(key, index)
        unseen = task.held_out().with_(relevant_fraction=fraction)
        prompt = unseen.sample(own, lengths[-1], share)
        shorter = [prefix(prompt, length) for length in lengths]
        margins = [patterns.scores(trained.model, params, p).margins for p in shorter]
        missed = jnp.stack([p.missed for p in shorter])
        return prompt, jnp.stack(margins), missed

    keys = trained.ensemble.keys(BASELINES)
    prompts, margins, missed = over_seeds(one, trained, keys)
    wrong = {ONE_LAYER: np.concatenate(~(np.asarray(margins) > 0), axis=1)}
    first, params = jax.tree.map(lambda leaf: leaf[0], (prompts, gpt.params))
    margins = jax.jit(margins_by_length, static_argnums=0)(gpt.module, params, first)
    wrong[GPT] = np.asarray(margins)[:, list(lengths)].T <= 0
    leaves = (prompts.X, prompts.y, prompts.x_query, prompts.z)
    X, y, query, z = (np.concatenate(np.asarray(leaf)) for leaf in leaves)
    quick = {"assume_finite": True, "skip_parameter_validation": True}
    # Such small fits do not benefit from threads.
    with sklearn.config_context(**quick), threadpool_limits(1):
        for name, made in classifiers().items():
            fits = (zip(X[:, :n], y[:, :n], query, strict=True) for n in lengths)
            answers = [[classify(made, *given) for given in each] for each in fits]
            wrong[name] = np.array(answers) != z[None]
    missed = np.concatenate(np.asarray(missed), axis=1).mean(axis=1)
    return {"alpha": fraction, "wrong": wrong, "missed": missed}


def difference(comparison, name, other):
    """Mean paired difference of two errors, with its standard error."""
    wrong = comparison["wrong"]
    return Estimate.of((wrong[name].astype(float) - wrong[other]).mean(axis=0))


def measure(config, run):
    """Trains and measures everything."""
    figures, shifted = train_ensemble(config.figures), train_ensemble(config.shifted)
    gpt = train_gpt(config.gpt, config.gpt_seeds, figures, run)
    both, indices = (shifted, figures), range(len(config.baseline_fractions))
    return {
        "lengths": error_by_length(config, figures),
        "mechanism": mechanism(config, figures),
        "sweeps": {f"β = {x.ensemble.scale:g}": sweep(config, x) for x in both},
        "covers": coverage(config, shifted),
        "speed": speed(config),
        "loss": gpt.loss,
        "gpt": gpt_errors(config, gpt),
        "comparisons": [compare(config, figures, gpt, index) for index in indices],
    }


# --- what is reported


def rounded(values):
    """Numbers with six digits behind the point."""
    return np.asarray(values, np.float64).round(6)


def pair(values, axis=0):
    """Mean and standard error over the seeds, or over another axis."""
    mean, error = Estimate.of(np.asarray(values), axis)
    return {"mean": rounded(mean), "standard error": rounded(np.nan_to_num(error))}


def numbers(config, found):
    probes, speed, gpt = found["mechanism"], found["speed"], found["gpt"]
    reached = np.where(np.isfinite(speed["iterations"]), speed["iterations"], -1)
    sums, covers = {}, []
    for name, own in found["sweeps"].items():
        kinds = ("hinge", "error", "margin", "attention")
        sums[name] = {
            "S_1": own["sums"],
            "ratio c": rounded(own["ratio"]),
            "closed form": rounded(own["closed"].mean(axis=0)),
            "F": rounded(own["F"].mean(axis=0)),
            **{what: pair(own[what].mean(axis=2)) for what in kinds},
        }
    lengths = {"fractions": config.fractions, "lengths": config.lengths}
    lengths |= {"prompts": config.prompts * len(config.figures.seeds)}
    lengths |= {"miss law": rounded(miss_law(config))}
    for name, own in found["lengths"].items():
        lengths[name] = {what: rounded(own[what]) for what in ("error", "missed")}
    for cover in found["covers"]:
        logits = {k: cover[k] for k in ("diagonal", "off")}
        row = {k: cover[k] for k in ("tasks", "ratio", "attention")}
        row |= {"hinge": pair(cover["hinge"])}
        row |= {"shifted hinge": pair(cover["shifted"].mean(axis=1))}
        row |= {"shifted hinge, worst draw": cover["shifted"].max()}
        covers.append(row | {"logits": logits | {"spread": pair(cover["spread"])}})
    baselines = []
    for own in found["comparisons"]:
        row = {"alpha'": own["alpha"], "n": config.baseline_lengths}
        row |= {"error": {name: pair(x, 1) for name, x in own["wrong"].items()}}
        row |= {"prompts": {name: x.shape[1] for name, x in own["wrong"].items()}}
        baselines.append(row | {"missed": rounded(own["missed"])})
    return {
        "mechanism": {
            "steps": probes["steps"],
            **{name: pair(values) for name, values in probes["curves"].items()},
            "angles / pi": {name: pair(own) for name, own in probes["angles"].items()},
            "small neurons": rounded(probes["parts"].num_small[:, -1]),
        },
        "sums": sums,
        "lengths": lengths,
        "coverage": covers,
        "speed": {k: speed[k] for k in ("alpha", "slope", "slope error")}
        | {"iterations (-1: not reached)": rounded(reached)},
        "gpt2": {
            "S_1": config.gpt_sums,
            "alpha'": config.fractions,
            "loss": found["loss"],
            **{name: pair(own.mean(axis=1), 1) for name, own in gpt.items()},
            "by S_1 and seed, longest": rounded(gpt["by S_1"][..., -1].mean(axis=1)),
        },
        "baselines": baselines,
        "precision": "float32",
    }


def miss_law(config):
    """Chance of a miss (1 - alpha'/2)^l, (fractions, lengths)."""
    alphas, lengths = np.asarray(config.fractions), np.asarray(config.lengths)
    law = patterns.miss_probability(alphas[:, None], lengths[None])
    return np.asarray(law, np.float64)


def start_attention(config):
    """Attention mass at initialisation, for many contexts and no noise."""
    ensemble = config.figures
    half = ensemble.relevant_fraction / 2
    pull = half * math.exp((ensemble.attention_scale * ensemble.scale) ** 2)
    return pull / (pull + 1 - half)


def checks(config, found):
    """Measured numbers against the theory."""
    ensemble, probes, loss = config.figures, found["mechanism"], found["loss"]
    start, curves = start_attention(config), probes["curves"]
    mass, away = (curves[f"attention{x}"] for x in ("", " out of domain"))
    along, hinge = curves["W_Q p along the pattern"][:, 0], curves["hinge"][:, -1]
    product = ensemble.attention_scale * ensemble.scale
    feature, positive, negative = (own[:, -1] for own in probes["angles"].values())
    rows: list[Any] = [
        ("attention mass before", mass[:, 0].mean(), start, "within", 0.01),
        ("1 - attention mass, worst seed", 1 - mass[:, -1].min(), 0.05, "<="),
        ("the same out of domain", 1 - away[:, -1].min(), 0.05, "<="),
        ("W_Q along the pattern before", along.mean(), product, "within", 1e-3),
        ("feature angle / pi, worst seed", feature.max(), 0.05, "<="),
        ("label angle / pi, a > 0", positive.max(), 0.03, "<="),
        ("1 - angle / pi, a < 0", 1 - negative.min(), 0.03, "<="),
        ("hinge on unseen tasks", hinge.mean(), 1e-3, "<="),
        *_sum_checks(found["sweeps"]),
        *_length_checks(config, found["lengths"]),
        *_cover_checks(config, found["covers"]),
        ("slope of iterations, log-log", found["speed"]["slope"], -0.7, "within", 0.2),
        ("GPT-2: hinge loss at the end of training", loss, 0.05, "<="),
    ]
    return [Check(*row) for row in rows]


def _sum_checks(sweeps):
    made = []
    for name, own in sweeps.items():
        hinge, error = (own[what].mean(axis=(0, 2)) for what in ("hinge", "error"))
        # The closed form ignores noise of features and differences between neurons.
        gap = np.abs((own["hinge"].mean(axis=-1) - own["closed"]).mean(axis=0)).max()
        sums, clear = own["sums"], own["F"].min(axis=0) >= 0.1
        least = sums[clear].min(initial=np.inf) if clear.any() else np.nan
        known = hinge[sums >= 1].max(initial=0), error[clear].max(initial=0)
        distance = f"{name}: hinge against [1 - F(S_1)]_+, largest distance"
        zero_one = f"{name}: one-layer 0-1 error down to S_1 = {least:g}"
        made.append((f"{name}: hinge where S_1 >= 1", known[0], 1e-3, "<="))
        made += [(distance, gap, 0.03, "<="), (zero_one, known[1], 1e-3, "<=")]
    return made


def _length_checks(config, domains):
    total, law = config.prompts * len(config.figures.seeds), miss_law(config)
    sure, made = np.asarray(config.fractions) == 1, []

    def outside(shares, law):
        # At this level a cell is outside by chance once in ten thousand.
        look: Any = {"level": 0.9999, "method": "clopper_pearson"}
        counts = np.rint(np.asarray(shares) * total).astype(int)
        low, high = proportion_interval(counts, total, **look)
        return np.sum((law < low) | (law > high))

    for name, own in domains.items():
        error, missed = own["error"], own["missed"]
        cells = f"{name}: cells whose interval leaves out the miss law"
        made.append((cells, outside(missed, law), 0, "<="))
        if sure.any():
            same, count = f"{name}: the same of the error, alpha' = 1", error[sure]
            made.append((same, outside(count, law[sure]), 0, "<="))
        hits = f"{name}: errors without a miss"
        made.append((hits, own["wrong_hits"].max(), 1e-3, "<="))
        if not sure.all():
            ratio = error[~sure].sum() / missed[~sure].sum()
            per = f"{name}: errors per miss, alpha' < 1"
            made.append((per, ratio, 0.85, "within", 0.15))
    return made


def _cover_checks(config, covers):
    enough = (config.shifted.num_relevant - 1) ** -0.5
    unseen = max(cover["hinge"].mean() for cover in covers)
    made = [("any cover: hinge on unseen tasks", unseen, 2e-3, "<=")]
    kept = [x["shifted"].mean() for x in covers if x["ratio"] >= enough]
    if kept:
        name = f"covers of {enough:.2f} or more: shifted hinge"
        made.append((name, max(kept), 1e-3, "<="))
    if len(covers) > 1:
        first, last = (covers[i]["spread"].mean() for i in (0, -1))
        name = "spread of logits, most tasks over fewest"
        made.append((name, last / first, 0.5, "<="))
    return made


def claims(config, found):
    """Claims of Figures 8, 12, 13, 27 and 28, and the 0-1 error of Theorem 2."""
    curves, made = found["mechanism"]["curves"], []

    def add(*parts):
        made.append(Claim(*parts))

    ends = ("W_Q p", "W_Q p along the pattern")
    norm, along = (curves[name][:, -1].mean() for name in ends)
    said = "Figure 8: W_Q p grows from .40 to 1.75, 1.47 of it along the pattern"
    end = f"to {norm:.2f}, {along:.2f} along it (step size unknown)"
    add(said, end, along > 0.8 * norm)
    for name, own in found["sweeps"].items():
        error, sums = own["error"].mean(axis=(0, 2)), own["sums"]
        below = sums[(sums < 1) & (error > 0.01)]
        first = f"first at S_1 = {below.max():g}" if below.size else "at none"
        said = f"above .01 {first}; c = {own['ratio'].mean():.2f}"
        fails = below.size and below.max() >= 0.5
        add(f"{name}: the one-layer 0-1 error fails once S_1 < 1", said, fails)
    _gpt_claims(config, found["gpt"], add)
    for comparison in found["comparisons"]:
        at = f"Figures 27/28, alpha' = {comparison['alpha']:g}"
        means = {name: own.mean() for name, own in comparison["wrong"].items()}
        ours = means.pop(ONE_LAYER)
        del means[GPT]
        best, worst = (end(means, key=means.__getitem__) for end in (min, max))
        said = f"{ours:.4f}; {best} {means[best]:.4f} (means over n)"
        add(f"{at}: the one-layer model errs least of all", said, ours < means[best])
        for name in (LOGISTIC, ORIGIN):
            apart, error = difference(comparison, ONE_LAYER, name)
            said = f"difference {apart:+.4f} +- {error:.4f} (paired, mean over n)"
            add(f"{at}: it errs less than {name}", said, apart < -2 * error)
        most = worst == NEAREST_3 and means[worst] > ours
        add(f"{at}: 3-NN errs most", f"{worst} {means[worst]:.4f}", most)
    return made


def _gpt_claims(config, errors, add):
    last, order = config.figures.num_examples, np.argsort(config.gpt_sums)
    by_sum = errors["by S_1"][order, ..., last].mean(axis=1)  # (sums, seeds)
    low, high, means = by_sum[0], by_sum[-1], by_sum.mean(axis=1)
    sums, lengths = np.asarray(config.gpt_sums)[order], errors["by S_1"].mean((0, 1, 2))
    seeds = ", ".join(f"{a:.3f}/{b:.3f}" for a, b in zip(low, high, strict=True))
    claim = f"Figure 12: GPT-2 errs more at S_1 = {sums[0]:g} than at {sums[-1]:g}"
    both = f"{low.mean():.4f} and {high.mean():.4f}; by seed {seeds}"
    add(claim, both, low.mean() > high.mean())
    claim = "Figure 12: its error never rises with S_1 (mean over seeds)"
    add(claim, ", ".join(f"{v:.4f}" for v in means), np.all(np.diff(means) <= 0))
    both = f"{lengths[0]:.2f} at 0 and {lengths[-1]:.4f} at {last} contexts"
    falls = lengths[-1] < 0.1 * lengths[0]
    add("Figure 12: its error falls with the prompt", both, falls)
    half, order = last // 2, np.argsort(config.fractions)
    for name, key in (("in", "unseen tasks"), ("out of", "out of domain")):
        by_alpha = errors[f"by alpha', {key}"][order].mean(axis=(1, 2))[:, half]
        said = ", ".join(f"{v:.4f}" for v in by_alpha)
        larger = f"Figure 13: GPT-2 errs less for larger alpha', {name} domain"
        add(larger, f"at {half} contexts {said}", np.all(np.diff(by_alpha) < 0))


def tables(config, found):
    """Errors out of domain by S_1, and of every method by the number of contexts."""
    by_sum, methods = [{"S_1": value} for value in config.sums], []
    columns = {"S_1": "{S_1:g}"}
    for name, own in found["sweeps"].items():
        both = {"hinge": own["hinge"].mean(2), "0-1": own["error"].mean(2)}
        means = {"hinge": both["hinge"], "closed": own["closed"], "0-1": both["0-1"]}
        for head, values in means.items():
            columns[f"{name}: {head}"] = f"{{{name} {head}:.4f}}"
            for row, value in zip(by_sum, values.mean(axis=0), strict=True):
                row[f"{name} {head}"] = value
    heads = {"alpha'": "{alpha':g}", "method": "{method}"}
    heads |= {f"n = {n}": f"{{n{n}}}" for n in config.baseline_lengths}
    for one in found["comparisons"]:
        for name, wrong in one["wrong"].items():
            row = {"alpha'": one["alpha"], "method": name}
            ends = zip(config.baseline_lengths, *Estimate.of(wrong, 1), strict=True)
            methods.append(row | {f"n{n}": f"{m:.4f} ({e:.4f})" for n, m, e in ends})
    title = "one layer, out of domain: hinge, its closed form, 0-1 error"
    first, title = frame.table(by_sum, columns, title), "0-1 error on unseen tasks "
    return [first, frame.table(methods, heads, f"{title}(standard error)")]


# --- what is drawn


def draw_panels(panels, title):
    """Measured dots with intervals, beside formulas (dashed).

    Lines are label, (mean, low, high), formula; a floor makes the axis logarithmic.
    """
    with frame.figure(panels, 2, title, 3.0) as (shown, entries):
        for axes, panel in zip(shown, panels.values(), strict=True):
            floor, ends, tops = panel["floor"], [], []
            x = np.asarray(panel["x"], float)
            least = -np.inf if floor is None else floor
            for order, (label, measured, *formula) in enumerate(panel["lines"], 1):
                colour = COLOURS[order]
                mean, low, high = (np.asarray(values, float) for values in measured)
                none = (mean <= 0) & (floor is not None)
                dots = np.where(none, np.nan, mean)
                low = np.maximum(low, least)
                bars = np.maximum([dots - low, np.maximum(high, least) - dots], 0)
                # Later markers are smaller, since they may coincide with earlier ones.
                size, look = max(3, 9 - 2 * order), {"color": colour, "label": "_"}
                axes.plot(x[none], np.full(none.sum(), floor), "v", ms=size, **look)
                look |= {"marker": frame.layer_marker(order), "ms": 4, "lw": 1}
                if floor is None:
                    look["label"] = label
                else:
                    ends.append((max(mean[np.argmax(x)], floor), label, colour))
                axes.errorbar(x, dots, bars, ls="", capsize=2, zorder=4, **look)
                for law in formula:
                    axes.plot(x, law, "--", color=colour)
                tops += [np.nanmax(dots), *map(np.max, formula)]
            axes.set(xlabel=panel["xlabel"], ylabel=panel["ylabel"])
            if np.all(x == np.round(x)):
                axes.xaxis.get_major_locator().set_params(integer=True)
            if floor is not None:
                plain_log_axis(axes.yaxis, max(tops) / floor)
                axes.set_ylim(floor / 1.3, max(tops) * 1.6)
            for label, place in panel.get("marks", {}).items():
                axes.axvline(place, color="grey", linestyle=":", lw=1)
                text = {"fontsize": 8, "color": "0.35", "rotation": 90, "va": "top"}
                across = axes.get_xaxis_transform()
                axes.text(place, 0.98, label, ha="right", transform=across, **text)
            name_ends(axes, ends)
            if panel["law"]:
                entries[panel["law"]] = frame.key(linestyle="--")
    return shown[0].figure


def draw_sums(config, found):
    """The hinge error against S_1; the 0-1 error is in the table."""
    lines = []
    for label, own in found["sweeps"].items():
        mean = Estimate.of(own["hinge"].mean(axis=2))
        ends = mean.mean, *mean.interval(0.95)
        lines.append((label, ends, own["closed"].mean(axis=0)))
    panel = {"x": config.sums, "lines": lines, "floor": None, "ylabel": "hinge error"}
    panel |= {"xlabel": "coefficient sum $S_1$", "marks": {"$S_1 = 1$": 1.0}}
    panel |= {"law": "read off the weights: $[1 - F(S_1)]_+$"}
    of = "mean of draws and seeds, 95 % intervals"
    return draw_panels({of: panel}, "One layer's hinge error out of domain")


def draw_lengths(config, found):
    """The error against the number of contexts, with the chance of a miss."""
    ensemble, panels = config.figures, {}
    total, law = config.prompts * len(ensemble.seeds), miss_law(config)
    names = ("unseen tasks", f"out of domain, $S_1$ = {config.reference_sum:g}")
    look = {"x": config.lengths, "xlabel": "contexts $l$", "floor": 0.5 / total}
    look |= {"ylabel": "0-1 error (95 % intervals)"}
    look |= {"law": "no context of the query's pattern: $(1 - α'/2)^l$"}
    for name, own in zip(names, found["lengths"].values(), strict=True):
        counts = np.rint(own["error"] * total).astype(int)
        ends = zip(own["error"], *proportion_interval(counts, total), strict=True)
        labels = (f"α' = {alpha:g}" for alpha in config.fractions)
        panels[name] = look | {"lines": list(zip(labels, ends, law, strict=True))}
    of = f"β = {ensemble.scale:g}, $M_1$ = {ensemble.num_relevant}, α = "
    of += f"{ensemble.relevant_fraction:g}, {len(ensemble.seeds)} seeds"
    return draw_panels(panels, f"Errors of one layer are misses: {of}")


def draw_neurons(clouds, positive, steps):
    """Angles of every neuron over training, below them norms (Figures 10 and 11)."""
    titles, count = [*clouds, *[""] * len(clouds)], len(clouds)
    title = "The two parts of each neuron (row of $W_O W_V$) turn and grow, one seed"
    kinds = {"neurons with a > 0": positive, "neurons with a < 0": ~positive}
    with frame.figure(titles, count, title, 2.0) as (shown, entries):
        for i, both in enumerate(clouds.values()):
            for (kind, which), colour in zip(kinds.items(), COLOURS[1:3], strict=True):
                for axes, values in zip(shown[i::count], both, strict=True):
                    axes.plot(steps, values[:, which], color=colour, linewidth=0.6)
                entries[kind] = frame.key(color=colour)
            places = np.linspace(0, np.pi, 5)
            shown[i].set_yticks(places, ["0", "π/4", "π/2", "3π/4", "π"])
            shown[i].set_ylim(-0.1, np.pi + 0.1)
            # Norms of the start are the hundredth part of those of the end.
            shown[count + i].set(yscale="log", xlabel="iteration")
        shown[0].set_ylabel("angle")
        shown[count].set_ylabel("norm")
    return shown[0].figure


def report(config, found):
    probes = found["mechanism"]
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[0], probes["parts"])
    feature = first.feature_angle, first.feature_norm
    clouds = {"feature part, angle to the mean pattern": feature}
    clouds["label part, angle to q"] = first.label_angle, first.label_norm
    axes = dict.fromkeys(("sums.*.hinge.mean", "sums.*.error.mean"), ["sum S_1"])
    return Report(
        numbers(config, found),
        checks=checks(config, found),
        tables=tables(config, found),
        claims=claims(config, found),
        claims_title="what the slides' figures say",
        figures={
            "neurons.png": draw_neurons(clouds, first.positive[-1], probes["steps"]),
            "sums.png": draw_sums(config, found),
            "lengths.png": draw_lengths(config, found),
        },
        axes={"mechanism.*.mean": ["training step"]} | axes,
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training and measuring"):
        found = measure(config, run)
    return report(config, found)


frame.program(__name__, main)
