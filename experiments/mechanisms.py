"""Mechanisms of attention: learning phases, kernel gradient descent, induction heads.

Huang et al.: softmax attention on orthonormal features by descent, beside the closed
form. Cheng et al.: the error of deep attention with a kernel on Gaussian processes.
Olsson et al.: scores of the heads of trained models, under claims and not checks.
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
from experiments.shared import language as v
from experiments.shared.training import GPT2_CPU, GPT2_GPU, Recipe, train
from icltheory import induction
from icltheory.attention import kernel_matrix
from icltheory.bridge import Tokens
from icltheory.layered import attention_patterns
from icltheory.models import LayeredGPT2
from icltheory.plotting import Line, LinePanel, heat_map, line_panels
from icltheory.regression import balanced_features as flow
from icltheory.regression import features as theory
from icltheory.regression import kernels as descent
from icltheory.statistics import Estimate
from icltheory.training import stream_key

DEPTHS = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
LENGTH = 101  # number of tokens of the longest training documents of the small LM


@dataclasses.dataclass(frozen=True)
class Features:
    """Sizes for attention on orthonormal features (Huang et al.)."""

    balanced: tuple[int, ...] = (5, 10, 20)  # numbers of features, equally likely
    step_size: float = 0.5  # step size for them
    loss_level: float = 1e-3  # loss at which they are learned
    finite: tuple[int, ...] = (5, 10)  # lengths of finite contexts, fewest features
    imbalanced: int = 8  # number of features of which one is dominant
    dominant: float = 0.5  # its probability
    imbalanced_step_size: float = 1.0  # step size for them
    imbalanced_level: float = 1e-2  # loss at which one of these counts as learned
    imbalanced_steps: int = 1000  # steps of descent on them

    def __post_init__(self):
        check_at_least(self, 3, "imbalanced")
        check_at_least(self, 50, "imbalanced_steps")
        check_at_least(self, 2, "balanced")
        fine, wanted = 1 / self.imbalanced < self.dominant < 1, "a number in (1/K, 1)"
        expect(fine, "features.dominant", wanted, self.dominant)


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Sizes for gradient descent with a kernel (Cheng et al.)."""

    num_examples: int = 16  # examples N
    dim: int = 4  # dimension d of the inputs, which are standard normal
    nugget: float = 1e-6  # variance of the noise on the labels of the Gaussian process
    data: tuple[str, ...] = ("rbf", "linear")  # kernels that make the labels
    attention: tuple[str, ...] = ("rbf", "exp", "softmax", "linear", "relu")  # kernels
    depths: tuple[int, ...] = DEPTHS  # numbers of layers
    draws: int = 400  # draws of the inputs

    def __post_init__(self):
        check_at_least(self, 1, "num_examples", "dim")
        check_at_least(self, 2, "draws")
        check_at_least(self, 0, "depths")
        rising = [*self.depths] == sorted({*self.depths})
        expect(rising, "kernels.depths", "ascending numbers", self.depths)


@dataclasses.dataclass(frozen=True)
class Heads:
    """Sizes for induction scores of heads (Olsson et al.)."""

    block: int = 25  # distinct words of a block
    repeats: int = 4  # how often the block comes
    sequences: int = 64  # sequences for the models that were trained
    documents: int = 256  # documents of the small language model
    demonstrations: int = 16  # demonstrations of a document
    checkpoint: str = "experiments/small_lm/checkpoint"  # a small LM of this project

    def __post_init__(self):
        check_at_least(self, 2, "block", "repeats", "demonstrations")
        check_at_least(self, 1, "sequences", "documents")
        words = len(v.VOCABULARY) - v.FIRST_WORD
        expect(self.block <= words, "heads.block", f"at most {words}", self.block)


@dataclasses.dataclass(frozen=True)
class Config:
    """The computations of a run."""

    gpt2: Recipe  # recipe of the GPT-2 on regression whose heads are read
    features: Features = Features()  # attention on orthonormal features
    kernels: Kernels = Kernels()  # descent with a kernel
    heads: Heads = Heads()  # induction scores
    seed: int = 0  # seed of all draws

    def __post_init__(self):
        found = f"{self.gpt2.model} on {self.gpt2.token_layout} tokens"
        wanted = "gpt2 on interleaved tokens"
        expect(found == wanted, "gpt2", f"a {wanted}", found)
        points = self.gpt2.num_points
        expect(points >= 4, "gpt2.num_points", "at least 4", points)


PRESETS = {
    "cpu": Config(gpt2=dataclasses.replace(GPT2_CPU, steps=1500)),
    "gpu": Config(
        GPT2_GPU,
        Features(balanced=(5, 10, 20, 40), finite=(5, 10, 20)),
        Kernels(draws=4000),
        Heads(sequences=512, documents=2048),
    ),
    # The papers state no sizes: more features, deeper stacks and more draws.
    "paper": Config(
        GPT2_GPU,
        Features(balanced=(5, 10, 20, 40, 80), finite=(5, 10, 20)),
        Kernels(num_examples=32, draws=20_000, depths=(*DEPTHS, 3000, 10_000)),
        Heads(sequences=4096, documents=8192),
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1 min, 2 cores"}


# --- orthonormal features. Losses are those of the paper, half the squared error; the
# --- library takes the whole: its step sizes are half of those here, its losses twice.


def features(config):
    """Descent on equally likely features, in finite contexts, and on a dominant one."""
    K, n, p = config.balanced[0], config.imbalanced, config.dominant
    eta, finite = config.step_size / 2, {}
    for N in config.finite:
        population = theory.FeaturePopulation.finite(jnp.full(K, 1 / K), N)
        finite[N] = theory.feature_descent(population, eta, 3000, record_every=5)
    shares = jnp.full(n, (1 - p) / (n - 1)).at[0].set(p)  # feature 0 is dominant
    population = theory.FeaturePopulation.infinite(shares)
    step, steps = config.imbalanced_step_size / 2, config.imbalanced_steps
    path = theory.feature_descent(population, step, steps)
    phases = theory.feature_phases(path, 2 * config.imbalanced_level)
    # The dominant feature's loss falls below the level, a rare one's own attention
    # overtakes, and its loss falls below the level.
    times = phases.learned[0], phases.overtaken[1], phases.learned[1]
    times = {name: float(t) for name, t in zip("abc", times, strict=True) if t < np.inf}
    found = {"balanced": {K: balanced(config, K) for K in config.balanced}}
    return jax.device_get(found | {"finite": finite, "path": path, "times": times})


def balanced(config, K):
    """Descent until the loss reaches its level, beside the flow in closed form."""
    eta = config.step_size / 2
    target = 1 - math.sqrt(2 * config.loss_level * (K - 1) / K)
    half, learned = (flow.balanced_time(jnp.asarray(a), K, eta) for a in (0.5, target))
    population = theory.FeaturePopulation.infinite(jnp.full(K, 1 / K))
    num_steps = math.ceil(1.02 * float(learned)) + 10
    path = theory.feature_descent(population, eta, num_steps)
    phases = theory.feature_phases(path, 2 * config.loss_level)
    attention = flow.balanced_attention(path.steps, K, eta)
    lines = path.steps, path.losses[:, 0] / 2, flow.balanced_loss(attention, K) / 2
    steps, losses, predicted = (np.asarray(line)[1:] for line in lines)
    return [steps, losses, predicted], {
        "half": [phases.half[0], half],  # when attention is 1/2: descent, flow
        "learned": [phases.learned[0], learned],
        "loss_error": np.abs(predicted / losses - 1).max(),
    }


# --- descent with a kernel on Gaussian processes


def kernels(config, seed):
    """Errors by depth over that of predicting 0, by process and attention; kriging."""
    shape = (config.draws, config.num_examples + 1, config.dim)
    X = jax.random.normal(stream_key(seed, "evaluation"), shape)
    nugget = config.nugget * jnp.eye(config.num_examples + 1)
    depths, found = jnp.asarray(config.depths), {}

    def process(data, x):
        C = kernel_matrix(data, x, x) + nugget
        return C, descent.kriging_risk(C)

    def risks(attention, x, C):
        system = descent.KernelSystem.of(attention, x[:-1], x[-1])
        weights = descent.descent_weights(system, system.largest_step / 2, depths)
        errors = descent.gaussian_process_risk(weights, C)
        return errors, system.positive_semidefinite

    for data in config.data:
        C, best = jax.jit(jax.vmap(functools.partial(process, data)))(X)
        rows, size = {}, float(jnp.mean(C[:, -1, -1]))
        for attention in config.attention:
            run = jax.jit(jax.vmap(functools.partial(risks, attention)))
            errors, psd = map(np.asarray, run(X, C))
            mean, error = Estimate.of(errors / size)
            # The share of prompts whose kernel matrix has a negative eigenvalue.
            rows[attention] = {"mean": mean, "error": error, "bad": 1 - psd.mean()}
        found[data] = {"rows": rows, "kriging": float(jnp.mean(best)) / size}
    return found


# --- scores of heads


def language(config, seed, model):
    """Scores of the small LM's heads on repeated random words and on documents."""
    keys = jax.random.split(stream_key(seed, "evaluation"))
    words, shape = jnp.arange(v.FIRST_WORD, len(v.VOCABULARY)), (config.block,)
    draw = jax.vmap(lambda key: jax.random.choice(key, words, shape, replace=False))
    blocks = draw(jax.random.split(keys[0], config.sequences))
    repeated = jnp.tile(blocks, (1, config.repeats))
    repeated = jnp.pad(repeated, ((0, 0), (1, 0)), constant_values=v.START)
    sizes = config.documents, config.demonstrations, LENGTH
    drawn = jax.jit(lambda key: v.documents(key, v.Language(), *sizes))(keys[1])

    @jax.jit
    def scores(params, ids, mask, rows):
        tokens = Tokens(ids, mask)
        return induction.head_scores(model.decoder, params, tokens, ids, rows & mask)

    # Only the CPU computes eigenvalues of general matrices.
    params = jax.device_put(model.params, jax.local_devices(backend="cpu")[0])
    maps = model.decoder.token_maps(params)
    copying = induction.head_copying(model.decoder, params, *maps)
    every, colons = jnp.ones(repeated.shape, bool), drawn.ids == v.COLON
    found = {
        "repeated": scores(model.params, repeated, every, repeated != v.START),
        "colons": scores(model.params, drawn.ids, drawn.mask, colons),
        "right": jax.jit(lambda drawn: right_share(model, drawn))(drawn),
        "copying": copying,
    }
    return jax.device_get(found)


def right_share(model, drawn):
    """Share of colons' attention to label words on the right one, and its count's."""
    label, answer = drawn.is_label & drawn.mask, jnp.roll(drawn.ids, -1, axis=1)
    before = jnp.tril(jnp.ones((LENGTH, LENGTH), bool), -1)[None] & label[:, None]
    same = before & (drawn.ids[:, None] == answer[:, :, None])
    mixed = jnp.any(same, axis=-1) & jnp.any(before & ~same, axis=-1)
    rows, tokens = (drawn.ids == v.COLON) & mixed, Tokens(drawn.ids, drawn.mask)
    weights = jnp.stack(attention_patterns(model.decoder, model.params, tokens))
    right, all = (jnp.sum(weights * at[None, :, None], -1) for at in (same, before))
    share = right / jnp.maximum(all, jnp.finfo(weights.dtype).tiny)
    by_count = same.sum(axis=-1) / jnp.maximum(before.sum(axis=-1), 1)
    by_head = jnp.mean(share, axis=(1, 3), where=rows[None, :, None])
    return by_head, jnp.mean(by_count, where=rows)


def regression(config, trained):
    """Scores of a GPT-2's heads where all inputs come again with their labels."""
    # Prefix matching is then attention on the label of the same input; the errors / d
    # are those at an input that comes again, and at a fresh one behind as many pairs.
    recipe, model = config.gpt2, LayeredGPT2(trained.module)
    n, sequences = recipe.num_points // 2, config.heads.sequences
    key = stream_key(config.seed, "evaluation")
    drawn = recipe.task(0.0).sample(key, n + 1, sequences)
    X, y = jnp.tile(drawn.X[:, :n], (1, 2, 1)), jnp.tile(drawn.y[:, :n], (1, 2))
    # Inputs and labels have distinct numbers, so the first block contains no match.
    tokens = jnp.tile(jnp.arange(2 * n), (sequences, 2))

    @jax.jit
    def read(params):
        scores = induction.head_scores(model, params, (X, y), tokens, tokens % 2 == 0)
        again = trained.module.apply({"params": params}, X, y)[:, n:] - y[:, n:]
        fresh = trained.module.apply({"params": params}, drawn.X, y[:, : n + 1])[:, n]
        gaps = again, fresh - drawn.y[:, n]
        return scores, [jnp.mean(gap**2) / recipe.dim for gap in gaps]

    return jax.device_get(read(trained.of_seed(0)))


# --- what is reported


def checks(found):
    """Statements of the theory."""
    rows: list[Any] = []
    for K, (_, one) in found["balanced"].items():
        ratio = one["half"][0] / one["half"][1]
        name = f"K={K}: steps to Attn = 1/2, descent over closed form"
        rows += [
            (name, ratio, 1, "within", 0.01),
            (f"K={K}: relative error of L(t), path", one["loss_error"], 0.01, "<="),
        ]
    dominant, rare = (found["times"].get(name, np.inf) for name in "ac")
    rows.append(("dominant over rare: steps to learn", dominant / rare, 0.5, "<="))
    for data, one in found["errors"].items():
        if data in one["rows"]:
            excess = one["rows"][data]["mean"][-1] - one["kriging"]
            name = f"{data} data: matched kernel minus kriging, deepest"
            rows.append((name, excess, 0, "within", 2e-3))
    return [Check(*row) for row in rows]


def claims(found):
    """Claims about trained models, and whether they hold."""
    lm, (gpt2, (again, fresh)) = found["language"], found["regression"]

    def of_heads(claim, scores, score="prefix-matching score"):
        best, uniform = scores.prefix_matching.max(), scores.uniform
        expected = f"largest {score} above three times uniform"
        measured = f"{best:.3f}; uniform {uniform:.3f}"
        return Claim(claim, measured, best > 3 * uniform, expected)

    shares, count = lm["right"]
    repeated = "small LM: an induction head on random repeated words"
    colons = "small LM: heads that look from a colon to the label words before"
    seen = "GPT-2 on regression: a head looks up the label of an input seen before"
    return [
        of_heads(repeated, lm["repeated"]),
        of_heads(colons, lm["colons"], "score at colons"),
        Claim(
            "small LM: of these label words the right one gets more",
            f"{shares.max():.3f}; by count {count:.3f}",
            shares.max() > count + 0.1,
            "largest share above the share by count by 0.1",
        ),
        of_heads(seen, gpt2),
        Claim(
            "GPT-2 on regression: an input seen before is answered better",
            f"{again:.4f} against {fresh:.4f}",
            again < fresh,
            "error / d at the inputs that come again below that of a fresh input",
        ),
    ]


def tables(config, found):
    """Times of equally likely features, and errors by depth."""
    level, step = config.features.loss_level, config.features.step_size
    columns = {
        "K": "{K}",
        "Attn = 1/2: descent": "{half[0]:.1f}",
        "Attn = 1/2: flow": "{half[1]:.1f}",
        f"L < {level:g}: descent": "{learned[0]:.1f}",
        f"L < {level:g}: flow": "{learned[1]:.1f}",
        "L(t) off by": "{loss_error:.2%}",
    }
    rows = [{"K": K, **one} for K, (_, one) in found["balanced"].items()]
    made = [frame.table(rows, columns, f"equally likely features, step {step:g}")]
    columns = ["attention", *map(str, config.kernels.depths), "not PSD"]
    for data, one in found["errors"].items():
        lines = [
            [name, *map(short, row["mean"]), f"{row['bad']:.0%}"]
            for name, row in one["rows"].items()
        ]
        kriging = f"kriging {one['kriging']:.4f}"
        title = f"{data} data: error by depth over that of 0, {kriging}"
        made.append(frame.table(lines, columns, title))
    return made


def short(number):
    return f"{number:.3f}" if abs(number) < 1e3 else f"{number:.0e}"


# --- figures


def draw_features(config, found):
    """Losses and attention along descent, beside the closed form."""
    K, path = config.features.balanced[0], found["path"]
    equal, finite, absent = {}, {}, {}
    for order, (k, (lines, _)) in enumerate(found["balanced"].items()):
        steps, losses, predicted = lines
        equal[f"K = {k}"] = Line(steps, losses, order)
        equal[f"_closed form, K = {k}"] = Line(steps, predicted, order, exact=True)
    for order, (N, one) in enumerate(found["finite"].items(), start=1):
        finite[f"N = {N}"] = Line(one.steps[1:], one.losses[1:, 0] / 2, order)
        # Attention is then elsewhere; spread alike on all K - 1 it costs least.
        least = (1 - 1 / K) ** N * 0.5 * (1 + 1 / (K - 1))
        absent[f"feature absent, N = {N}"] = least
    finite["infinite"] = equal[f"K = {K}"]
    steps, weights = path.steps[1:], path.attention[1:]
    attention = {
        "dominant query, own": Line(steps, weights[:, 0, 0], 0),
        "rare query, own": Line(steps, weights[:, 1, 1], 1),
        "rare query, on the dominant": Line(steps, weights[:, 1, 0], 2),
    }
    log, part = ("log", "log"), ("log", "linear")
    alike = "equally likely features (dashed: closed form)"
    panels = {
        alike: LinePanel(equal, "steps", "loss", *log),
        "finite contexts": LinePanel(finite, f"steps (K = {K})", "loss", *log, absent),
        "one dominant feature": LinePanel(
            attention, "steps", "attention", *part, marks=found["times"]
        ),
    }
    title = "Softmax attention on orthonormal features, gradient descent from Q = 0"
    return line_panels(panels, title, columns=2)


def draw_kernels(config, found):
    """Errors by depth of every kernel, beside kriging."""
    panels, depths = {}, config.kernels.depths
    names = "layers", "error / error of predicting 0", "symlog", "log"
    for data, one in found["errors"].items():
        lines, kriging = {}, one["kriging"]
        for order, (name, row) in enumerate(one["rows"].items(), start=1):
            label = f"{name} (not PSD)" if row["bad"] > 0.5 else name
            lines[label] = Line(depths, row["mean"], order, error=row["error"])
        look = {"levels": {"kriging": kriging}, "ylim": (max(kriging, 1e-7) / 2, 4.0)}
        panels[f"{data} data"] = LinePanel(lines, *names, **look)
    title = "Attention with a kernel on Gaussian processes: error by depth"
    return line_panels(panels, title)


def draw_heads(panels, title):
    """One map per panel, with each head's score as colour and number."""
    tall = max(np.shape(scores)[0] for scores in panels.values())
    size = (2.6 * len(panels) + 0.6, 0.55 * tall + 1.5)
    with frame.panels(1, len(panels), title, True, figsize=size) as (figure, grid):
        image: Any = None
        for axes, (name, scores) in zip(grid, panels.items(), strict=True):
            names = {"xlabel": "head", "ylabel": "", "title": name.replace(": ", "\n")}
            image = heat_map(scores, ax=axes, limit=1.0, **names)
        grid[0].set_ylabel("layer")
        figure.colorbar(image, ax=grid, shrink=0.9)
    return figure


def report(config, found):
    lm, (gpt2, _), errors = found["language"], found["regression"], {}
    for data, one in found["errors"].items():
        errors[data] = {"kriging": one["kriging"]}
        for name, row in one["rows"].items():
            means = row["mean"].tolist()  # JSON has no infinity
            errors[data][name] = [x if np.isfinite(x) else None for x in means]
    heads = {
        "small LM: prefix, random repeats": lm["repeated"].prefix_matching,
        "small LM: prefix, at colons": lm["colons"].prefix_matching,
        "small LM: copying": lm["copying"],
        "GPT-2, regression: prefix, same input": gpt2.prefix_matching,
    }
    numbers = {
        "balanced": {K: one for K, (_, one) in found["balanced"].items()},
        "imbalanced": found["times"],
        "depths": config.kernels.depths,
        "errors": errors,
        "heads": heads,
    }
    return Report(
        {"numbers": numbers, "precision": "float64; trained models in float32"},
        checks=checks(found),
        tables=tables(config, found),
        claims=claims(found),
        claims_title="what the models that were trained do",
        figures={
            "features.png": draw_features(config, found),
            "kernels.png": draw_kernels(config, found),
            "heads.png": draw_heads(heads, "Induction scores of heads"),
        },
        axes={"numbers.errors.*.*": ["depth"], "numbers.heads.*": ["layer", "head"]},
    )


@frame.experiment(PRESETS)
def main(config, run):
    model = v.load(config.heads.checkpoint, "heads.checkpoint")
    with run.phase("training"):
        trained = train(config.gpt2, run)
    with jax.enable_x64(True):
        with run.phase("features"):
            found = features(config.features)
        with run.phase("kernels"):
            found["errors"] = kernels(config.kernels, config.seed)
    with run.phase("heads"):
        found["language"] = language(config.heads, config.seed, model)
        found["regression"] = regression(config, trained)
    return report(config, found)


frame.program(__name__, main)
