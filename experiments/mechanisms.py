"""Mechanisms of attention: learning phases, kernel gradient descent, induction heads.

Huang et al.: softmax attention on orthonormal features by descent, beside the closed
form. Cheng et al.: the error of deep attention with a kernel on Gaussian processes.
Olsson et al.: prefix-matching and copying scores of heads built by hand and trained.
What trained models do stands under claims, not checks.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared import language as v
from experiments.shared.language import Language, documents, load, logits
from experiments.shared.training import GPT2_CPU, GPT2_GPU, Recipe, train
from icltheory import constructions, induction
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

# Mean squared errors of an independent simulation, 60 draws: rbf attention on rbf data.
REFERENCE = {1: 0.755, 3: 0.682, 10: 0.647, 100: 0.6357, 1000: 0.6355}
REFERENCE_DRAWS = 60
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
        K, p = self.imbalanced, self.dominant
        expect(1 / K < p < 1, "features.dominant", f"a number in (1/{K}, 1)", p)


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
    layers: int = 30  # layers of the stack in the comparison of the three forms

    def __post_init__(self):
        check_at_least(self, 1, "num_examples", "dim", "layers")
        check_at_least(self, 2, "draws")
        each = self.depths
        fine = each and sorted(set(each)) == list(each) and each[0] >= 0
        expect(bool(fine), "kernels.depths", "ascending numbers >= 0", each)


@dataclasses.dataclass(frozen=True)
class Heads:
    """Sizes for induction scores of heads (Olsson et al.)."""

    vocab_size: int = 50  # vocabulary of the circuit that is built by hand
    block: int = 25  # distinct tokens of a block
    repeats: int = 4  # how often the block comes
    sequences: int = 64  # sequences for the models that were trained
    documents: int = 256  # documents of the small language model
    demonstrations: int = 16  # demonstrations of a document
    checkpoint: str = "experiments/small_lm/checkpoint"  # a small LM of this project

    def __post_init__(self):
        check_at_least(self, 2, "block", "repeats", "demonstrations")
        check_at_least(self, 1, "sequences", "documents")
        check_at_least(self, self.block, "vocab_size")


@dataclasses.dataclass(frozen=True)
class Config:
    """The computations of a run."""

    gpt2: Recipe  # recipe of the GPT-2 on regression whose heads are read
    features: Features = Features()  # attention on orthonormal features
    kernels: Kernels = Kernels()  # descent with a kernel
    heads: Heads = Heads()  # induction scores
    seed: int = 0  # seed of all draws

    def __post_init__(self):
        model, layout = self.gpt2.model, self.gpt2.token_layout
        fine, got = (model, layout) == ("gpt2", "interleaved"), f"{model} on {layout}"
        expect(fine, "gpt2", "a gpt2 on interleaved tokens", got)
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
    found = {"balanced": {K: balanced(config, K) for K in config.balanced}}
    return found | jax.device_get({"finite": finite, "path": path, "phases": phases})


def balanced(config, K):
    """Descent until the loss reaches its level, beside the flow in closed form."""
    eta = config.step_size / 2
    target = 1 - math.sqrt(2 * config.loss_level * (K - 1) / K)
    ends = [float(flow.balanced_time(jnp.asarray(a), K, eta)) for a in (0.5, target)]

    @jax.jit
    def measured():
        population = theory.FeaturePopulation.infinite(jnp.full(K, 1 / K))
        steps = math.ceil(1.02 * ends[1]) + 10
        path = theory.feature_descent(population, eta, steps)
        phases = theory.feature_phases(path, 2 * config.loss_level)
        times = flow.balanced_time(path.own_attention[1:, 0], K, eta)
        losses, at = path.losses[:, 0] / 2, flow.balanced_attention(path.steps, K, eta)
        predicted, limit = flow.balanced_loss(at, K) / 2, flow.loss_asymptote(K, eta)
        A, B = path.logits[:, 0, 0], path.logits[:, 0, 1]
        return {
            "half": [phases.half[0], ends[0]],  # when attention is 1/2: descent, flow
            "learned": [phases.learned[0], ends[1]],
            # Largest over the path, at the same attention and at the same time.
            "time_error": jnp.max(jnp.abs(times / path.steps[1:] - 1)),
            "loss_error": jnp.max(jnp.abs(predicted / losses - 1)),
            "asymptote": path.losses[-1, 0] * path.steps[-1] / limit,
            "drift": jnp.max(jnp.abs(A + (K - 1) * B)),
            "path": [path.steps, losses, predicted],
        }

    return jax.device_get(measured())


# --- descent with a kernel on Gaussian processes


def kernels(config, seed):
    """Largest difference of the three forms, and errors by process and attention."""
    keys = jax.random.split(stream_key(seed, "data"), 2)
    X = jax.random.normal(keys[0], (config.num_examples + 1, config.dim))
    X, y = X / np.sqrt(config.dim), jax.random.normal(keys[1], (config.num_examples,))
    forms = {name: difference(config, name, X, y) for name in config.attention}
    return {"forms": forms, "errors": {k: errors(config, seed, k) for k in config.data}}


def difference(config, kernel, X, y):
    """Largest difference between stack, recursion and closed form."""
    system = descent.KernelSystem.of(kernel, X[:-1], X[-1])
    r, depths = system.largest_step / 2, jnp.arange(config.layers + 1)
    rates = jnp.broadcast_to(r, config.layers)
    stack = descent.kernel_descent_stack(rates, config.dim, kernel)
    out = stack.apply(*constructions.join_tokens(X[:-1], y[:, None], X[-1])).h_query
    by_layers = constructions.read_prediction(out, config.dim)[:, 0]
    by_steps = descent.functional_descent(system, y, r, config.layers)
    closed = descent.kernel_descent(system, y, r, depths).prediction
    gaps = jnp.stack([by_layers - by_steps, by_steps - closed])
    return float(jnp.max(jnp.abs(gaps)) / jnp.max(jnp.abs(closed)))


def errors(config, seed, data):
    """Mean squared errors by depth over that of answering 0, and that of kriging."""
    shape = (config.draws, config.num_examples + 1, config.dim)
    X = jax.random.normal(stream_key(seed, "evaluation"), shape)
    eye = config.nugget * jnp.eye(config.num_examples + 1)
    C = jax.jit(jax.vmap(lambda x: kernel_matrix(data, x, x) + eye))(X)
    size, found = float(jnp.mean(C[:, -1, -1])), {}
    for kernel in config.attention:

        @jax.jit
        @jax.vmap
        def run(x, C, kernel=kernel):
            system = descent.KernelSystem.of(kernel, x[:-1], x[-1])
            half, depths = system.largest_step / 2, jnp.asarray(config.depths)
            weights = descent.descent_weights(system, half, depths)
            risks = descent.gaussian_process_risk(weights, C)
            return risks, system.positive_semidefinite

        risks, psd = run(X, C)
        mean, error = Estimate.of(np.asarray(risks) / size)
        # The share of prompts whose kernel matrix has a negative eigenvalue.
        bad = 1 - float(jnp.mean(psd))
        found[kernel] = {"mean": mean, "error": error, "bad": bad}
    best = np.asarray(jax.jit(jax.vmap(descent.kriging_risk))(C)) / size
    return {"kriging": float(best.mean()), "rows": found}


# --- scores of heads


def blocks(key, choices, config, sequences):
    """Draws blocks of distinct tokens, each block repeated, (sequences, T)."""
    shape = (config.block,)
    draw = jax.vmap(lambda k: jax.random.choice(k, choices, shape, replace=False))
    return jnp.tile(draw(jax.random.split(key, sequences)), (1, config.repeats))


def on_cpu():
    """Context that computes general eigenvalues on the CPU, which has a solver."""
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def circuit(config, seed):
    """Scores of the hand-built circuit on one sequence of repeated blocks."""
    V, n, T = config.vocab_size, config.block, config.block * config.repeats
    keys, strength = jax.random.split(stream_key(seed, "data")), 30.0
    tokens = blocks(keys[0], jnp.arange(V), config, 1)[0]
    place = np.arange(n, T)

    @jax.jit
    def run(tokens):
        built = induction.induction_circuit(V, T, strength)
        hidden, outputs = built.embed(tokens), built.logits(tokens)
        scores = induction.head_scores(built.model, built.stack, hidden, tokens)
        patterns = attention_patterns(built.model, built.stack, hidden)
        W_O, W_V = built.model.ov_factors(1, built.stack)
        M = built.unembedding @ W_O[0] @ W_V[0] @ built.embedding.T
        right = jnp.argmax(outputs[:-1], axis=1) == tokens[1:]
        losses = losses_of(strength * outputs[:-1], tokens[1:])
        repeats = jnp.arange(T) >= n
        return M, {
            "scores": scores,
            "expected uniform": (place // n / (place + 1)).mean(),
            "accuracy": jnp.mean(right[n:]),
            "ratio": induction.copying_ratio(patterns[1][0], M, tokens, repeats),
            "in_context": induction.in_context_score(losses, (0, n - 1), (n, T - 1)),
        }

    M, found = jax.device_get(run(tokens))
    random = np.asarray(jax.random.normal(keys[1], (20, V, V)))
    with on_cpu():
        chance = np.asarray(jax.jit(jax.vmap(induction.copying_score))(random))
        own, minus = (float(induction.copying_score(A)) for A in (M, -np.eye(V)))
    # Of the induction head, of -I, and of the random matrix with the largest in size.
    return found | {"copying": (own, minus, chance[np.abs(chance).argmax()])}


def language(config, seed, model):
    """Scores of the small LM's heads on repeated random words and on documents.

    ``paired`` is the last label's loss minus the second's.
    """
    keys = jax.random.split(stream_key(seed, "evaluation"))
    words = jnp.arange(v.FIRST_WORD, len(v.VOCABULARY))
    ids = blocks(keys[0], words, config, config.sequences)
    ids = jnp.pad(ids, ((0, 0), (1, 0)), constant_values=v.START)
    every, n, last = jnp.ones(ids.shape, bool), config.block, config.repeats - 1
    losses = next_losses(model, ids, every).mean(axis=0)
    sizes = config.documents, config.demonstrations, LENGTH
    drawn = jax.jit(lambda key: documents(key, Language(), *sizes))(keys[1])
    labels = label_losses(model, drawn, config.demonstrations)

    @jax.jit
    def heads(params, ids, mask, rows):
        tokens = Tokens(ids, mask)
        return induction.head_scores(model.decoder, params, tokens, ids, rows & mask)

    @jax.jit
    def copying(params):
        maps = model.decoder.token_maps(params)
        return induction.head_copying(model.decoder, params, *maps)

    with on_cpu():
        copied = copying(jax.tree.map(np.asarray, model.params))
    spans = (0, n), (last * n, last * n + n)
    repeated = heads(model.params, ids, every, ids != v.START)
    colons = heads(model.params, drawn.ids, drawn.mask, drawn.ids == v.COLON)
    right, by_count = right_share(model, drawn)
    by_label, error = mean_and_error(labels)
    numbers = {
        "prefix, repeated words": repeated.prefix_matching,
        "prefix, colons": colons.prefix_matching,
        "share of the right label": right,
        "copying": copied,
        "label losses": by_label,
        "label losses, standard error": error,
        "in-context score, repeated words": induction.in_context_score(losses, *spans),
    }
    paired = mean_and_error(labels[:, -1] - labels[:, 1])
    found = {"repeated": repeated, "colons": colons, "paired": paired}
    return jax.device_get(found | {"numbers": numbers, "by count": by_count})


def right_share(model, drawn):
    """Share of colons' attention to label words on the right one, and its count's."""
    label, answer = drawn.is_label & drawn.mask, jnp.roll(drawn.ids, -1, axis=1)
    before = jnp.tril(jnp.ones((LENGTH, LENGTH), bool), -1)[None] & label[:, None]
    same = before & (drawn.ids[:, None] == answer[:, :, None])
    rows = (drawn.ids == v.COLON) & jnp.any(same, axis=-1)
    rows = rows & jnp.any(before & ~same, axis=-1)

    @jax.jit
    def run(params):
        tokens = Tokens(drawn.ids, drawn.mask)
        weights = jnp.stack(attention_patterns(model.decoder, params, tokens))
        on = [jnp.sum(weights * m[None, :, None], axis=-1) for m in (same, before)]
        share = on[0] / jnp.maximum(on[1], jnp.finfo(weights.dtype).tiny)
        return jnp.mean(share, axis=(1, 3), where=rows[None, :, None])

    by_count = np.asarray(same.sum(-1) / np.maximum(before.sum(-1), 1))
    return run(model.params), float(by_count[np.asarray(rows)].mean())


def losses_of(outputs, tokens):
    """Cross-entropy of logits, with the tokens on the last axis of the result."""
    each = jax.nn.log_softmax(outputs)
    return -jnp.take_along_axis(each, tokens[..., None], axis=-1)[..., 0]


def next_losses(model, ids, mask):
    """Loss of every token except the first, (sequences, T - 1)."""

    @jax.jit
    def run(params, ids, mask):
        outputs = logits(model.decoder, params, ids[:, :-1], mask[:, :-1])
        return losses_of(outputs, ids[:, 1:])

    return np.asarray(run(model.params, ids, mask))


def label_losses(model, drawn, most):
    """Loss of each label, NaN beyond a document's end; up to those most contain."""
    losses = next_losses(model, drawn.ids, drawn.mask)
    is_label = np.asarray(drawn.is_label & drawn.mask)[:, 1:]
    found = np.full((len(losses), most), np.nan)
    row, place = np.nonzero(is_label)
    found[row, is_label.cumsum(axis=1)[row, place] - 1] = losses[row, place]
    held = np.isfinite(found).mean(axis=0) > 0.5
    return found[:, : np.flatnonzero(held)[-1] + 1]


def mean_and_error(values):
    """Mean and standard error of what is known."""
    count = np.isfinite(values).sum(axis=0)
    error = np.nanstd(values, axis=0, ddof=1) / np.sqrt(count)
    return np.nanmean(values, axis=0), error


def regression(recipe, trained, sequences, seed):
    """Scores of a GPT-2's heads where all inputs come again with their labels."""
    # Prefix matching is then attention on the label of the same input; the errors / d
    # are those at an input that comes again, and at a fresh one behind as many pairs.
    n, model = recipe.num_points // 2, LayeredGPT2(trained.module)
    drawn = recipe.task(0.0).sample(stream_key(seed, "evaluation"), n + 1, sequences)
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

    start, several = recipe.start().params, len(recipe.seeds) > 1
    untrained, _ = read(jax.tree.map(lambda a: a[0], start) if several else start)
    scores, errors = read(trained.of_seed(0))
    found = {"trained": scores, "untrained": untrained, "errors": errors}
    return jax.device_get(found)


# --- what is reported


def numbers(config, found):
    gpt2, errors, bad = found["regression"], {}, {}
    kept = ("half", "learned", "time_error", "loss_error", "asymptote")
    times = ("overtaken", "half", "learned", "shed")
    balanced = {K: {k: one[k] for k in kept} for K, one in found["balanced"].items()}
    losses = {N: path.losses[-1, 0] / 2 for N, path in found["finite"].items()}
    prefix = {"prefix": gpt2["trained"].prefix_matching}
    prefix["prefix, untrained"] = gpt2["untrained"].prefix_matching
    for data, one in found["errors"].items():
        errors[data] = {k: finite(row["mean"]) for k, row in one["rows"].items()}
        errors[data]["kriging"] = one["kriging"]
        bad[data] = {k: row["bad"] for k, row in one["rows"].items()}
    return {
        "balanced": balanced,
        "finite, last loss": losses,
        "imbalanced": {k: finite(getattr(found["phases"], k)) for k in times},
        "depths": config.kernels.depths,
        "errors": errors,
        "not positive semi-definite": bad,
        "circuit, in-context score": found["circuit"]["in_context"],
        "language": found["language"]["numbers"],
        "regression": prefix,
    }


def finite(values):
    """Numbers for JSON; ``None`` for those that are not finite."""
    return [float(x) if np.isfinite(x) else None for x in values]


def checks(config, found):
    """Statements of the theory."""
    rows: list[Any] = []
    for K, one in found["balanced"].items():
        ratio = one["half"][0] / one["half"][1]
        name = f"K={K}: steps to Attn = 1/2, descent over closed form"
        rows += [
            (name, ratio, 1, "within", 0.01),
            (f"K={K}: relative error of t(u), path", one["time_error"], 0.01, "<="),
            (f"K={K}: relative error of L(t), path", one["loss_error"], 0.01, "<="),
            (f"K={K}: largest |A + (K-1) B|", one["drift"], 1e-10, "<="),
        ]
    learned, logits = found["phases"].learned, found["path"].logits[11:50, 1]
    ratio, shed = learned[0] / learned[1:].min(), (logits[:, 0] + logits[:, 1]).max()
    name = "rare query, steps 11 to 49: A_k + B_k1 (it sheds first)"
    rows.append(("dominant over rare: steps to learn", ratio, 0.5, "<="))
    rows.append((name, shed, 0, "<="))
    for kernel, gap in found["forms"].items():
        rows.append((f"three forms, {kernel}: difference", gap, 1e-12, "<="))
    for data, one in found["errors"].items():
        ends = {kernel: row["mean"][-1] for kernel, row in one["rows"].items()}
        if data not in ends:
            continue
        own, name = ends.pop(data), f"{data} data: matched kernel"
        # Overflowed errors are not compared.
        ratio = own / min([x for x in ends.values() if np.isfinite(x)], default=np.inf)
        excess = own - one["kriging"], 0, "within", 2e-3
        rows.append((f"{name} over the best other, deepest", ratio, 1, "<="))
        rows.append((f"{name} minus kriging, deepest", *excess))
    if config.kernels == Kernels(draws=config.kernels.draws, depths=DEPTHS):
        row = found["errors"]["rbf"]["rows"]["rbf"]
        for depth, known in REFERENCE.items():
            # An independent simulation, within three standard errors.
            at, by = DEPTHS.index(depth), 1 + config.kernels.draws / REFERENCE_DRAWS
            both = row["mean"][at], known, "within", 3 * row["error"][at] * by**0.5
            rows.append((f"rbf on rbf data, depth {depth}", *both))
    one, within = found["circuit"], ("within", 1e-6)
    scores, (copying, minus, chance) = one["scores"], one["copying"]
    (first, second), previous = scores.prefix_matching[:, 0], scores.previous_token
    uniform = "uniform causal attention: prefix score"
    rows += [
        ("circuit: prefix score of layer 2", second, 1, *within),
        ("circuit: prefix score of layer 1", first, 0, *within),
        ("circuit: previous token, layer 1", previous[0, 0], 1, *within),
        (uniform, scores.uniform, one["expected uniform"], *within),
        ("copying of I", copying, 1, *within),
        ("copying of -I", minus, -1, *within),
        ("copying at random, of 20", chance, 0, "within", 0.15),
        ("circuit: copying ratio", one["ratio"], 1, *within),
        ("circuit: next-token accuracy", one["accuracy"], 1, "within", 0),
    ]
    return [Check(*row) for row in rows]


def claims(config, found):
    """Claims about trained models, and whether they hold."""
    lm, gpt2 = found["language"], found["regression"]

    def of_heads(claim, scores, score="prefix-matching score", beside=""):
        best, uniform = scores.prefix_matching.max(), scores.uniform
        expected = f"largest {score} above three times uniform"
        measured = f"{best:.3f}; {beside}uniform {uniform:.3f}"
        return claim, measured, best > 3 * uniform, expected

    share, count = lm["numbers"]["share of the right label"].max(), lm["by count"]
    last, (loss, error) = len(lm["numbers"]["label losses"]), lm["paired"]
    inputs, (again, fresh) = config.gpt2.num_points // 2, gpt2["errors"]
    untrained = f"untrained {gpt2['untrained'].prefix_matching.max():.3f}, "
    repeated = "small LM: an induction head on random repeated words"
    colons = "small LM: heads that look from a colon to the label words before"
    seen = "GPT-2 on regression: a head looks up the label of an input seen before"
    rows: list[Any] = [
        of_heads(repeated, lm["repeated"]),
        of_heads(colons, lm["colons"], "score at colons"),
        (
            "small LM: of these label words the right one gets more",
            f"{share:.3f}; by count {count:.3f}",
            share > count + 0.1,
            "largest share above the share by count by 0.1",
        ),
        (
            "small LM: context lowers the loss of labels",
            f"{loss:.3f} ({error:.3f})",
            loss < -3 * error,
            f"label {last} minus label 2 below 0 by three standard errors",
        ),
        of_heads(seen, gpt2["trained"], beside=untrained),
        (
            "GPT-2 on regression: an input seen before is answered better",
            f"{again:.4f} against {fresh:.4f}",
            again < fresh,
            f"error / d at inputs 1 to {inputs} again below that of a fresh input",
        ),
    ]
    return [Claim(*row) for row in rows]


def tables(config, found):
    """Times of equally likely features, errors by depth, and scores of heads."""
    level, depths = f"L < {config.features.loss_level:g}", config.kernels.depths
    columns, half = {"K": "{K}"}, "Attn = 1/2"
    for name, key in ((half, "half"), (level, "learned")):
        columns[f"{name}: descent"] = f"{{{key}[0]:.1f}}"
        columns[f"{name}: flow"] = f"{{{key}[1]:.1f}}"
    columns |= {"t(u) off by": "{time_error:.2%}", "L(t) off by": "{loss_error:.2%}"}
    rows = [{"K": K, **one} for K, one in found["balanced"].items()]
    title = f"equally likely features, step {config.features.step_size:g}"
    made = [frame.table(rows, columns | {"L t / limit": "{asymptote:.3f}"}, title)]
    columns = {"attention": "{kernel}"}
    columns |= {str(depth): f"{{cells[{at}]}}" for at, depth in enumerate(depths)}
    for data, one in found["errors"].items():
        rows = [{"kernel": kernel, **row} for kernel, row in one["rows"].items()]
        for row in rows:
            cells = (f"{x:.3f}" if abs(x) < 1e3 else f"{x:.0e}" for x in row["mean"])
            row["cells"] = list(cells)
        kriging = f"kriging {one['kriging']:.4f}"
        title = f"{data} data: error by depth over that of 0, {kriging}"
        made.append(frame.table(rows, columns | {"not PSD": "{bad:.0%}"}, title))
    lm, gpt2, built = found["language"], found["regression"], found["circuit"]
    second = jax.tree.map(lambda a: a[1:] if a.ndim else a, built["scores"])
    copying, none = f"{lm['numbers']['copying'].max():.3f}", "no tokens"
    rows = []
    for name, scores, copied in (
        ("circuit, layer 2", second, f"{built['copying'][0]:.3f}"),
        ("small LM, repeated words", lm["repeated"], copying),
        ("small LM, colons", lm["colons"], copying),
        ("GPT-2 on regression", gpt2["trained"], none),
        ("the same, untrained", gpt2["untrained"], none),
    ):
        best = scores.prefix_matching.max(), scores.uniform, scores.previous_token.max()
        rows.append([name, *(f"{x:.3f}" for x in best), copied])
    columns = ["model", "prefix", "uniform", "previous token", "copying"]
    title = "heads: the largest scores, and those of uniform attention"
    return [*made, frame.table(rows, columns, title)]


# --- figures


def draw_features(config, found):
    """Losses, attention and logits along descent, beside the closed form."""
    K = config.features.balanced[0]
    descents, finite, absent = {}, {}, {}
    for order, (k, one) in enumerate(found["balanced"].items()):
        steps, losses, predicted = (values[1:] for values in one["path"])
        descents[f"K = {k}"] = Line(steps, losses, order)
        descents[f"_closed form, K = {k}"] = Line(steps, predicted, order, exact=True)
    for order, (N, path) in enumerate(found["finite"].items(), start=1):
        finite[f"N = {N}"] = Line(path.steps[1:], path.losses[1:, 0] / 2, order)
        # Attention is then elsewhere; spread alike on all K - 1 it costs least.
        least = (1 - 1 / K) ** N * 0.5 * (1 + 1 / (K - 1))
        absent[f"feature absent, N = {N}"] = least
    finite["infinite"] = descents[f"K = {K}"]
    path, phases = found["path"], found["phases"]
    # The dominant feature's loss falls below the level, a rare one's own attention
    # overtakes, and its loss falls below the level.
    times = phases.learned[0], phases.overtaken[1], phases.learned[1]
    marks = {
        name: float(t) for name, t in zip("abc", times, strict=True) if np.isfinite(t)
    }
    overtakes = {name: t for name, t in marks.items() if name == "b"}

    def lines(values, places):  # of the query and what it attends to
        return {
            name: Line(path.steps[1:], values[1:, *place], colour)
            for name, (*place, colour) in places.items()
        }

    attention = {"dominant query, own": (0, 0, 0), "rare query, own": (1, 1, 1)}
    attention |= {"rare query, on the dominant": (1, 0, 2)}
    rare = {"own feature, A": (1, 1, 1), "dominant feature, $B_1$": (1, 0, 2)}
    rare |= {"another rare one, B": (1, 2, 3)}
    one, log, part = "one dominant feature", ("log", "log"), ("log", "linear")
    shares = lines(path.attention, attention), "steps", "attention", *part
    logits = lines(path.logits, rare), "steps", "logit", *part
    alike = "equally likely features (dashed: closed form)"
    panels = {
        alike: LinePanel(descents, "steps", "loss", *log),
        "finite contexts": LinePanel(finite, f"steps (K = {K})", "loss", *log, absent),
        f"{one}: attention": LinePanel(*shares, marks=marks),
        f"{one}: logits of a rare query": LinePanel(*logits, marks=overtakes),
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
    look: Any = {"figsize": (2.6 * len(panels) + 0.6, 0.55 * tall + 1.5)}
    look |= {"small": True, "squeeze": False}
    with frame.panels(1, len(panels), title, **look) as (figure, (grid,)):
        image: Any = None
        for axes, (name, scores) in zip(grid, panels.items(), strict=True):
            names = {"xlabel": "head", "ylabel": "", "title": name}
            image = heat_map(scores, ax=axes, limit=1.0, **names)
        grid[0].set_ylabel("layer")
        figure.colorbar(image, ax=grid, shrink=0.9)
    return figure


def report(config, found):
    lm, gpt2 = found["language"]["numbers"], found["regression"]
    shown = {
        "small LM\nprefix, random repeats": lm["prefix, repeated words"],
        "small LM\nprefix, at colons": lm["prefix, colons"],
        "small LM\ncopying": lm["copying"],
        "GPT-2, regression\nprefix, same input": gpt2["trained"].prefix_matching,
    }
    of_heads = ("numbers.language.copying", "numbers.regression.prefix")
    axes = {"numbers.errors.*.*": ["depth"], "numbers.imbalanced.*": ["feature"]}
    precision = "float64; float32 for the models that were trained"
    return Report(
        {"numbers": numbers(config, found), "precision": precision},
        checks=checks(config, found),
        tables=tables(config, found),
        claims=claims(config, found),
        claims_title="what the models that were trained do",
        figures={
            "features.png": draw_features(config, found),
            "kernels.png": draw_kernels(config, found),
            "heads.png": draw_heads(shown, "Induction scores of heads"),
        },
        axes=axes | {name: ["layer", "head"] for name in of_heads},
    )


@frame.experiment(PRESETS)
def main(config, run):
    heads, seed = config.heads, config.seed
    model = load(heads.checkpoint, "heads.checkpoint")
    with run.phase("training"):
        trained = train(config.gpt2, run)
    with jax.enable_x64(True):
        with run.phase("features"):
            found = features(config.features)
        with run.phase("kernels"):
            found |= kernels(config.kernels, seed)
        with run.phase("circuit"):
            found["circuit"] = circuit(heads, seed)
    with run.phase("language"):
        found["language"] = language(heads, seed, model)
    with run.phase("regression"):
        sizes = heads.sequences, seed
        found["regression"] = regression(config.gpt2, trained, *sizes)
    return report(config, found)


frame.program(__name__, main)
