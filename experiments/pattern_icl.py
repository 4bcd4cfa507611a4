"""In-context classification of patterns: attention, neurons, S_1, prompts (Li et al.).

In the manner of Figures 8 to 13, 27 and 28. One-layer models of equation (7) along
training, against S_1, number of contexts and alpha; GPT-2 and classifiers of
scikit-learn on the same prompts. M1 = 6, m = 64, beta = 2 were read off figures, the
rest was chosen.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared import patterns as shared
from experiments.shared.pattern_gpt2 import GPT_GPU, GPT_PAPER, Gpt, pairs, train_gpt
from experiments.shared.patterns import PatternEnsemble, over_seeds, train_ensemble
from icltheory import patterns, training
from icltheory.plotting import Line, LinePanel, line_panels
from icltheory.plotting.style import COLOURS
from icltheory.statistics import Estimate, proportion_interval

# Purposes of keys (see ``PatternEnsemble.keys``).
MECHANISM, LENGTHS, SPEED, BASELINES = 10, 11, 12, 13
SUMS = (1.4, 1.3, 1.1, 1.0, 0.9, 0.7, 0.5, 0.0, -0.5, -1.0, -1.4)
ONE_LAYER, GPT, NEAREST_3 = "ICL, one layer", "ICL, GPT-2", "3-NN"


@dataclasses.dataclass(frozen=True)
class Config:
    """The trained models, and how much is measured."""

    # one-layer models of the mechanism and of the error against length
    figures: PatternEnsemble = PatternEnsemble()
    # those of the sweep of S_1, at a beta where its closed form has a kink near 1
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
        frame.check_ascending(self, "lengths", "baseline_lengths")
        frame.check_each(self, "in (0, 1]", "fractions", "alphas", "baseline_fractions")
        frame.check_each(self, "in (0, 1)", "target")
        sums = *self.sums, *self.gpt_sums, self.reference_sum
        for ensemble in (self.figures, self.shifted):
            shared.check_sums(ensemble, sums)
        every = self.alpha_every
        whole = f"a multiple of alpha_every {every}"
        expect(not self.alpha_steps % every, "alpha_steps", whole, self.alpha_steps)
        most = self.figures.num_examples
        longest = max(*self.lengths, *self.baseline_lengths)
        known = f"at most the {most} contexts of training"
        expect(longest <= most, "lengths, baseline_lengths", known, longest)
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
            inside = shared.means_of(patterns.scores(model, params, prompt))
            outside = shared.means_of(patterns.scores(model, params, asked))
            tokens = patterns.projections(params, unseen, prompt)
            return patterns.neuron_parts(params, task), {
                "attention": inside["attention"],
                "attention out of domain": outside["attention"],
                "hinge": inside["hinge"],
                "W_Q p": tokens.query,
                "W_Q p along the pattern": tokens.query_component,
                "W_K p": tokens.keys,
                "W_K p along the pattern": tokens.keys_component,
            }

        return jax.lax.map(look, snapshots)

    keys = trained.ensemble.keys(MECHANISM)
    parts, curves = over_seeds(one, trained, keys, trained.path.params)
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
    found = shared.scores_at_sums(trained, *sizes, num_examples=length)
    found = {name: np.asarray(values) for name, values in found.items()}
    seen = over_seeds(lambda task, p: patterns.gain_ratio(p, task), trained)
    gain = np.asarray(seen.gain)[:, None] * found["attention"].mean(axis=-1)
    sums, ratio = np.asarray(config.sums), np.asarray(seen.ratio)
    closed = patterns.hinge(patterns.margin(sums[None], gain, ratio[:, None]))
    return found | {"ratio": ratio, "closed": np.asarray(closed)}


def prefix(prompt, length):
    """The prompts with only their first ``length`` contexts."""
    cut = {name: getattr(prompt, name)[:, :length] for name in ("P", "y", "pattern")}
    return dataclasses.replace(prompt, **cut)


def error_by_length(config, trained):
    """Shares of prompts: wrong, without the query's pattern, and only wrong."""

    def one(task, params, key):
        own = jax.random.split(key, 3)[1]  # the key of the stored numbers

        def at(alpha):
            unseen = task.held_out().with_(relevant_fraction=alpha)
            prompt = unseen.sample(own, config.lengths[-1], config.prompts)
            shorter = [prefix(prompt, length) for length in config.lengths]
            found = [patterns.scores(trained.model, params, p) for p in shorter]
            wrong = jnp.stack([~(scores.margins > 0) for scores in found])
            missed = jnp.stack([scores.missed for scores in found])
            rates = {"error": wrong, "missed": missed}
            rates |= {"wrong without a miss": wrong & ~missed}
            return {name: jnp.mean(rate, axis=-1) for name, rate in rates.items()}

        return jax.lax.map(at, jnp.asarray(config.fractions, jnp.float32))

    found = over_seeds(one, trained, trained.ensemble.keys(LENGTHS))
    found = {name: np.asarray(rate).mean(axis=0) for name, rate in found.items()}
    return found | {"miss law": miss_law(config)}


def speed(config):
    """Trains all seeds at all alphas in one program, and finds the iterations."""
    ensemble, length = config.figures, config.alpha_length
    model, tasks = ensemble.model(), ensemble.tasks()
    sizes = {name: getattr(ensemble, name) for name in ("step_size", "batch_size")}
    sizes |= {"num_examples": length, "record_every": config.alpha_every}

    def one(alpha, task, params, key, asked):
        task = task.with_(relevant_fraction=alpha)
        path = patterns.train(model, task, params, config.alpha_steps, key=key, **sizes)
        prompt = task.held_out().sample(asked, length, config.prompts // 4)

        def look(params):
            return patterns.scores(model, params, prompt).hinge

        return jax.lax.map(look, path.params)

    seeds = jax.vmap(one, in_axes=(None, 0, 0, 0, 0))
    everything = jax.jit(jax.vmap(seeds, in_axes=(0, None, None, None, None)))
    keys = ensemble.keys(2), ensemble.keys(SPEED)
    alphas = jnp.asarray(config.alphas, jnp.float32)
    hinge = np.asarray(everything(alphas, tasks, ensemble.start(tasks), *keys))
    steps = np.arange(0, config.alpha_steps + 1, config.alpha_every)
    return speed_of(np.asarray(config.alphas), steps, hinge, config.target)


def speed_of(alphas, steps, hinge, target):
    """Iterations (alphas, seeds) to the target, and their slope on log-log axes."""

    def slope(iterations):
        return scipy.stats.linregress(np.log(alphas), np.log(iterations)).slope

    def crossing(values):  # between snapshots, NaN where it is not reached
        least = np.minimum.accumulate(values)
        return np.interp(-target, -least, steps, right=np.nan)

    iterations = np.apply_along_axis(crossing, -1, hinge)
    # The slope is of the means over the seeds, its error over the seeds' own slopes.
    error = Estimate.of([slope(own) for own in iterations.T]).standard_error
    found = {"alpha": alphas, "iterations": iterations, "slope error": error}
    return found | {"slope": slope(iterations.mean(axis=1))}


# --- GPT-2 and classifiers of scikit-learn


def margins_by_length(module, params, prompt):
    """Margins z F of the query after 0, 1, ..., l contexts, in one forward pass."""
    asked, P = pairs(prompt), prompt.num_examples + 1
    question = jnp.repeat(prompt.x_query[:, None], P, axis=1)
    answers = module.apply({"params": params}, asked.X, asked.y, question)
    return answers * prompt.z[:, None]


def gpt_errors(config, trained):
    """0-1 errors (settings, draws, seeds, l + 1) out of domain, by context length."""
    task, length = trained.task, config.figures.num_examples
    key = training.stream_key(config.gpt_seeds[0], "evaluation")

    def row(setting):
        S, alpha = setting

        def draw(own):
            first, second = jax.random.split(own)
            asked = task.out_of_domain(S, key=first).with_(relevant_fraction=alpha)
            prompt = asked.sample(second, length, config.gpt_prompts)

            def one(params):
                margins = margins_by_length(trained.module, params, prompt)
                return jnp.mean((~(margins > 0)).astype(jnp.float32), axis=0)

            return jax.lax.map(one, trained.params)

        return jax.lax.map(draw, jax.random.split(key, config.draws))

    settings = [(S, config.figures.relevant_fraction) for S in config.gpt_sums]
    settings += [(config.reference_sum, alpha) for alpha in config.fractions]
    arrays = tuple(jnp.asarray(x, jnp.float32) for x in zip(*settings, strict=True))
    found = np.asarray(jax.jit(lambda s: jax.lax.map(row, s))(arrays))
    by_sum, by_alpha = np.split(found, [len(config.gpt_sums)])
    return {"by S_1": by_sum, "by alpha'": by_alpha}


def classifiers():
    """Classifiers of scikit-learn by name, with the library's defaults."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    # The slides state neither C nor the width of the Gaussian kernel.
    return {
        "logistic regression": LogisticRegression(C=1.0),
        "logistic, no intercept": LogisticRegression(C=1.0, fit_intercept=False),
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
        return prompt, jnp.stack(margins)

    prompts, margins = over_seeds(one, trained, trained.ensemble.keys(BASELINES))
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
    return {name: np.asarray(values, float) for name, values in wrong.items()}


def measure(config, run):
    """Trains and measures everything."""
    figures, shifted = train_ensemble(config.figures), train_ensemble(config.shifted)
    gpt = train_gpt(config.gpt, config.gpt_seeds, figures, run)
    both, fractions = (shifted, figures), enumerate(config.baseline_fractions)
    return {
        "lengths": error_by_length(config, figures),
        "mechanism": mechanism(config, figures),
        "sweeps": {f"β = {x.ensemble.scale:g}": sweep(config, x) for x in both},
        "speed": speed(config),
        "loss": gpt.loss,
        "gpt": gpt_errors(config, gpt),
        "wrong": {f"{x:g}": compare(config, figures, gpt, i) for i, x in fractions},
    }


# --- what is reported


def pair(values, axis=0):
    """Mean and standard error over the seeds, or over another axis."""
    mean, error = Estimate.of(np.asarray(values), axis)
    return {"mean": mean, "standard error": np.nan_to_num(error)}


def numbers(found):
    probes, speed, gpt = found["mechanism"], found["speed"], found["gpt"]
    reached = np.where(np.isfinite(speed["iterations"]), speed["iterations"], -1)
    return {
        "mechanism": {
            "steps": probes["steps"],
            **{name: pair(values) for name, values in probes["curves"].items()},
            "angles / pi": {name: pair(own) for name, own in probes["angles"].items()},
        },
        "lengths": found["lengths"],
        "speed": speed | {"iterations": reached},  # -1 if not reached
        "gpt2": {name: pair(own.mean(axis=1), 1) for name, own in gpt.items()},
        "precision": "float32",
    }


def miss_law(config):
    """Chance of a miss (1 - alpha'/2)^l, (fractions, lengths)."""
    alphas, lengths = np.asarray(config.fractions), np.asarray(config.lengths)
    return np.asarray(patterns.miss_probability(alphas[:, None], lengths[None]), float)


def checks(config, found):
    """Measured numbers against the theory."""
    probes, loss = found["mechanism"], found["loss"]
    last = {name: curve[:, -1] for name, curve in probes["curves"].items()}
    away = last["attention out of domain"]
    feature, positive, negative = (own[:, -1] for own in probes["angles"].values())
    hits = found["lengths"]["wrong without a miss"]
    rows: list[Any] = [
        ("unseen tasks: errors without a miss", hits.max(), 1e-3, "<="),
        ("1 - attention mass, worst seed", 1 - last["attention"].min(), 0.05, "<="),
        ("the same out of domain", 1 - away.min(), 0.05, "<="),
        ("feature angle / pi, worst seed", feature.max(), 0.05, "<="),
        ("label angle / pi, a > 0", positive.max(), 0.03, "<="),
        ("1 - angle / pi, a < 0", 1 - negative.min(), 0.03, "<="),
        ("hinge on unseen tasks", last["hinge"].mean(), 1e-3, "<="),
        ("slope of iterations, log-log", found["speed"]["slope"], -0.7, "within", 0.2),
        ("GPT-2: hinge loss at the end of training", loss, 0.05, "<="),
    ]
    for name, own in found["sweeps"].items():
        # The closed form ignores noise of features and differences between neurons.
        gap = np.abs((own["hinge"].mean(axis=-1) - own["closed"]).mean(axis=0)).max()
        name = f"{name}: hinge against [1 - F(S_1)]_+, largest distance"
        rows.append((name, gap, 0.03, "<="))
    return [Check(*row) for row in rows]


def claims(config, found):
    """Claims of Figures 8, 12, 13, 27 and 28, and the 0-1 error of Theorem 2."""
    curves, sums = found["mechanism"]["curves"], np.asarray(config.sums)
    kinds = ("", " along the pattern")
    norm, along = (curves[f"W_Q p{kind}"][:, -1].mean() for kind in kinds)
    claim = "Figure 8: W_Q p grows from .40 to 1.75, 1.47 of it along the pattern"
    said = f"to {norm:.2f}, {along:.2f} along it (step size unknown)"
    made = [Claim(claim, said, along > 0.8 * norm)]
    for name, own in found["sweeps"].items():
        below = sums[(sums < 1) & (own["error"].mean(axis=(0, 2)) > 0.01)]
        first = f"first at S_1 = {below.max():g}" if below.size else "at none"
        claim = f"{name}: the one-layer 0-1 error fails once S_1 < 1"
        said = f"above .01 {first}; c = {own['ratio'].mean():.2f}"
        made.append(Claim(claim, said, below.max(initial=-np.inf) >= 0.5))
    made += gpt_claims(config, found["gpt"])
    for alpha, wrong in found["wrong"].items():
        at = f"Figures 27/28, alpha' = {alpha}"
        means = {name: own.mean() for name, own in wrong.items()}
        ours, _ = means.pop(ONE_LAYER), means.pop(GPT)
        best, worst = (end(means, key=means.__getitem__) for end in (min, max))
        apart, error = Estimate.of((wrong[ONE_LAYER] - wrong[best]).mean(axis=0))
        said = f"{ours:.4f}; {best} {means[best]:.4f} (means over n); difference "
        said += f"{apart:+.4f} +- {error:.4f} (paired)"
        claim = f"{at}: the one-layer model errs least of all"
        made.append(Claim(claim, said, ours < means[best]))
        most = worst == NEAREST_3 and means[worst] > ours
        made.append(Claim(f"{at}: 3-NN errs most", f"{worst} {means[worst]:.4f}", most))
    return made


def gpt_claims(config, errors):
    last, order = config.figures.num_examples, np.argsort(config.gpt_sums)
    by_sum = errors["by S_1"][order, ..., last].mean(axis=1)  # (sums, seeds)
    means, lengths = by_sum.mean(axis=1), errors["by S_1"].mean((0, 1, 2))
    ends = zip(by_sum[0], by_sum[-1], strict=True)
    seeds = ", ".join(f"{a:.3f}/{b:.3f}" for a, b in ends)
    half, order = last // 2, np.argsort(config.fractions)
    by_alpha = errors["by alpha'"][order].mean(axis=(1, 2))[:, half]
    return [
        Claim(
            "Figure 12: GPT-2's error never rises with S_1 (mean over seeds)",
            f"{', '.join(f'{v:.4f}' for v in means)}; first/last by seed {seeds}",
            np.all(np.diff(means) <= 0),
        ),
        Claim(
            "Figure 12: its error falls with the prompt",
            f"{lengths[0]:.2f} at 0 and {lengths[-1]:.4f} at {last} contexts",
            lengths[-1] < 0.1 * lengths[0],
        ),
        Claim(
            "Figure 13: GPT-2 errs less for larger alpha', out of domain",
            f"at {half} contexts " + ", ".join(f"{v:.4f}" for v in by_alpha),
            np.all(np.diff(by_alpha) < 0),
        ),
    ]


def tables(config, found):
    """Errors out of domain by S_1, and of every method by the number of contexts."""
    by_sum, methods = [], []
    heads = {"hinge": "hinge", "closed": "closed", "0-1": "error"}
    for place, value in enumerate(config.sums):
        row = {"S_1": f"{value:g}"}
        for name, own in found["sweeps"].items():
            means = {head: own[key][:, place].mean() for head, key in heads.items()}
            row |= {f"{name}: {head}": f"{mean:.4f}" for head, mean in means.items()}
        by_sum.append(row)
    for alpha, by_method in found["wrong"].items():
        for name, wrong in by_method.items():
            row = {"alpha'": alpha, "method": name}
            ends = zip(config.baseline_lengths, *Estimate.of(wrong, 1), strict=True)
            methods.append(row | {f"n = {n}": f"{m:.4f} ({e:.4f})" for n, m, e in ends})
    title = "one layer, out of domain: hinge, its closed form, 0-1 error"
    other = "0-1 error on unseen tasks (standard error)"
    return [frame.table(by_sum, title=title), frame.table(methods, title=other)]


# --- what is drawn


def draw_sums(config, found):
    """The hinge error against S_1; the 0-1 error is in the table."""
    lines, order = {}, np.argsort(config.sums)
    sums = np.asarray(config.sums)[order]
    for place, (label, own) in enumerate(found["sweeps"].items(), 1):
        mean = Estimate.of(own["hinge"].mean(axis=2)[:, order])
        low, high = mean.interval(0.95)
        lines[label] = Line(sums, mean.mean, place, error=(high - low) / 2)
        closed = own["closed"].mean(axis=0)[order]
        lines[f"_{label}"] = Line(sums, closed, place, exact=True)
    panel = LinePanel(lines, "coefficient sum $S_1$", "hinge error", marks={"1": 1.0})
    return line_panels({"One layer out of domain (dashed: $[1 - F(S_1)]_+$)": panel})


def draw_lengths(config, found):
    """The error against the number of contexts, with the chance of a miss."""
    total, own = config.prompts * len(config.figures.seeds), found["lengths"]
    rows = zip(config.fractions, own["error"], own["miss law"], strict=True)
    title = "One layer, unseen tasks (dashed: $(1 - α'/2)^l$)"
    with frame.panels(1, 1, title) as (figure, axes):
        for place, (alpha, error, law) in enumerate(rows, 1):
            low, high = proportion_interval(np.rint(error * total).astype(int), total)
            bars = np.maximum([error - low, high - error], 0)
            look = {"fmt": frame.layer_marker(place), "color": COLOURS[place]}
            look |= {"label": f"α' = {alpha:g}", "capsize": 2}
            axes.errorbar(config.lengths, error, bars, **look)
            axes.plot(config.lengths, law, "--", color=COLOURS[place])
        axes.set(xlabel="contexts $l$", ylabel="0-1 error (95 % intervals)")
        axes.set(yscale="log", ylim=(0.5 / total, 1.0), xticks=config.lengths)
        axes.legend()
    return figure


def draw_neurons(probes):
    """Angles and norms of both parts of every neuron of a seed (Figures 10 and 11)."""
    parts = jax.tree.map(lambda leaf: np.asarray(leaf)[0], probes["parts"])
    colours, steps, panels = np.where(parts.positive[-1], 1, 2), probes["steps"], {}
    for name, to in (("feature", "the mean pattern"), ("label", "q")):
        angle = getattr(parts, f"{name}_angle") / np.pi
        norm = getattr(parts, f"{name}_norm")
        for title, what, values, scale in (
            (f"{name} part: angle to {to}", "angle / π", angle, "linear"),
            (f"{name} part: norm", "norm", norm, "log"),
        ):
            each = zip(values.T, colours.tolist(), strict=True)
            lines = {f"_{i}": Line(steps, *own) for i, own in enumerate(each)}
            panels[title] = LinePanel(lines, "iteration", what, yscale=scale)
    title = "The two parts of each neuron, one seed (blue: a > 0, orange: a < 0)"
    return line_panels(panels, title, columns=2)


def report(config, found):
    return Report(
        numbers(found),
        checks=checks(config, found),
        tables=tables(config, found),
        claims=claims(config, found),
        claims_title="what the slides' figures say",
        figures={
            "neurons.png": draw_neurons(found["mechanism"]),
            "sums.png": draw_sums(config, found),
            "lengths.png": draw_lengths(config, found),
        },
        axes={"mechanism.*.mean": ["training step"]},
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training and measuring"):
        found = measure(config, run)
    return report(config, found)


frame.program(__name__, main)
