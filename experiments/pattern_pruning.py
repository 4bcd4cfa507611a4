"""Pruning neurons by magnitude (Li et al.) and by SVD (Yao et al.), on the same models.

Neurons of one-layer models, small ones, large ones or random ones first (Figures 14 and
15; Theorem 3), beside [1 - F (1 - g)]_+; the same for a GPT-2. Then singular values,
entries (in two bases) and neurons at equal numbers of parameters. Intervals are 95 % of
Student's t over the seeds. A resumed run trains the one-layer models again.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect
from experiments.shared import patterns as shared
from experiments.shared.pattern_gpt2 import GPT_GPU, GPT_PAPER, Gpt, train_gpt
from experiments.shared.patterns import PatternEnsemble, over_seeds, train_ensemble
from icltheory import patterns, pruning, training
from icltheory.layered import forward
from icltheory.plotting.style import COLOURS
from icltheory.statistics import Estimate

# Purposes of keys (see ``PatternEnsemble.keys``).
PROMPTS, ORDER_KEYS = 6, 7
# Indices of the tests: unseen tasks, and shifted patterns at the first alpha'.
INSIDE, OUTSIDE = 0, 1
ORDERS = {"magnitude": "small first", "reverse": "large first", "random": "random"}
CURVES, EXACT = "curves [seed][rate][test]", "as many as small ones"
MODULES = ("W_O", "W_V", "W_Q", "W_K", "all")
SVD, ENTRIES, NEURONS = "singular values", "entries", "neurons"
AXES = "entries, in the patterns' basis"
METHODS = (SVD, ENTRIES, AXES, NEURONS)
# The slides end at .4, beyond which GPT-2 still works here.
GPT_RATES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98)
# Figure 14: 0-1 error out of domain against R, read off the slide.
PUBLISHED_RATES = (0.0, 0.1, 0.2, 0.3, 0.4)
PUBLISHED = {
    "magnitude": (0.007, 0.0057, 0.0085, 0.0175, 0.030),
    "random": (0.007, 0.0108, 0.0175, 0.029, 0.044),
}
FEW, MANY = 0.1, 0.4  # values of R in the claims


@dataclasses.dataclass(frozen=True)
class Config:
    """The models, how they are pruned, and how much is measured."""

    ensemble: PatternEnsemble  # the one-layer models
    rates: tuple[float, ...]  # pruned fractions R of the neurons, ascending from 0
    # ranks r of the clipped matrices, ascending; other methods keep as many parameters
    # as r (m + n)
    ranks: tuple[int, ...]
    draws: int  # draws of the shifted patterns in a test
    prompts: int  # prompts of a draw
    bridge_prompts: int  # prompts of a draw where methods are compared
    coefficient_sum: float = 1.1  # S_1 of the tests out of domain
    alphas: tuple[float, ...] = (0.8, 0.6, 1.0)  # alpha'; in domain only the first
    num_examples: int = 20  # contexts l of a test prompt
    random_orders: int = 8  # random orders over which that curve is a mean
    tolerance: float = 0.01  # harmless increase of the hinge error
    gpt: Gpt = Gpt(steps=800)  # GPT-2, on the patterns of the first of the models
    gpt_seeds: tuple[int, ...] = (0, 1, 2)  # seeds of GPT-2
    gpt_rates: tuple[float, ...] = GPT_RATES  # pruned fractions R of each block
    gpt_random_orders: int = 4  # random orders of GPT-2's neurons
    gpt_draws: int = 16  # draws of the shifted patterns for each of its seeds
    gpt_prompts: int = 64  # prompts of a draw for GPT-2

    def __post_init__(self):
        models, ranks = self.ensemble, self.ranks
        counts = ("draws", "prompts", "bridge_prompts", "num_examples", "random_orders")
        counts += ("gpt_draws", "gpt_prompts", "gpt_random_orders")
        check_at_least(self, 1, *counts)
        named = {"ensemble.seeds": models.seeds, "gpt_seeds": self.gpt_seeds}
        for name, seeds in named.items():
            expect(len(seeds) > 1, name, "at least two seeds (for intervals)", seeds)
        most = models.num_relevant - 1
        unseen = f"fewer than {most}, so that some tasks are unseen"
        expect(len(models.shifts) < most, "ensemble.shifts", unseen, models.shifts)
        shared.check_sums(models, (self.coefficient_sum,))
        frame.check_each(self, "in (0, 1]", "alphas")
        frame.check_each(self, "above 0", "tolerance")
        frame.check_ascending(self, "ranks")
        for name, rates in {"rates": self.rates, "gpt_rates": self.gpt_rates}.items():
            right = list(rates) == sorted({0, *rates}) and len(rates) > 1
            right = right and rates[0] == 0 and rates[-1] < 1
            expect(right, name, "0 and then ascending rates below 1", rates)
        m, D = models.num_neurons, 2 * (models.num_relevant + models.num_irrelevant)
        most = min(m * D // (m + D), D // 2)
        fits = f"r (m + n) <= m n in every matrix, so 1 to {most}"
        expect(ranks[-1] <= most, "ranks", fits, ranks)

    @property
    def tests(self) -> tuple[str, ...]:
        """Names of the tests: in domain, and out of domain for each alpha'."""
        S, inside = self.coefficient_sum, f"in domain, alpha' = {self.alphas[0]:g}"
        return (inside, *(f"S_1 = {S:g}, alpha' = {a:g}" for a in self.alphas))


_STEPS = {"record_every": PatternEnsemble().steps}
_THREE, _TEN = (PatternEnsemble(seeds=tuple(range(n)), **_STEPS) for n in (3, 10))
_RATES = tuple(i / 40 for i in range(33))
_FINE = tuple(i / 64 for i in range(58))
_RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30)
_LARGE = {"gpt_draws": 64, "gpt_prompts": 128, "gpt_seeds": tuple(range(5))}
_ALL = tuple(range(1, 31))
PRESETS = {
    "cpu": Config(_THREE, _RATES, _RANKS, 4, 1024, 256),
    "gpu": Config(_TEN, _RATES, _ALL, 16, 2048, 512, gpt=GPT_GPU, **_LARGE),
    "paper": Config(_TEN, _FINE, _ALL, 64, 2048, 512, gpt=GPT_PAPER, **_LARGE),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1 min, 2 cores"}


def prompts_of(config, task, key, alphas, num_prompts, num_draws=None):
    """Prompts (tests, draws, prompts): unseen tasks, and shifted at some alpha'."""
    l, values = config.num_examples, jnp.asarray(config.alphas, task.dtype)
    S = jnp.asarray(config.coefficient_sum, task.dtype)

    def known(draw):
        own = jax.random.fold_in(jax.random.fold_in(key, 0), draw)
        unseen = task.held_out().with_(relevant_fraction=values[0])
        return unseen.sample(own, l, num_prompts)

    def shifted(alpha, draw):
        own = jax.random.fold_in(jax.random.fold_in(key, 1), draw)
        return shared.shifted_prompts(task, own, S, num_prompts, l, alpha)

    # The tests out of domain share the draws of the patterns.
    draws = jnp.arange(config.draws if num_draws is None else num_draws)
    by_draw = jax.vmap(jax.vmap(shifted, (None, 0)), (0, None))
    found = jax.vmap(known)(draws), by_draw(values[:alphas], draws)
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), *found)


def errors(outputs, z):
    """Mean hinge and 0-1 error of outputs F over draws and prompts; NaN is an error."""
    margins = z.reshape((1,) * (outputs.ndim - z.ndim) + z.shape) * outputs
    wrong = (~(margins > 0)).astype(margins.dtype)
    return jnp.mean(patterns.hinge(margins), (-2, -1)), jnp.mean(wrong, (-2, -1))


def prune(config, trained):
    """Norms of the neurons of every seed, and errors (seeds, rates, tests) by order.

    ``counted`` is [1 - F (1 - g)]_+ for the share g of the large neurons that is gone,
    ``weighed`` the same with the share of the gain of neurons of the query's sign.
    """
    model = trained.model

    def one(task, params, key):
        prompt = prompts_of(config, task, key, len(config.alphas), config.prompts)
        parts = patterns.neuron_parts(params, task)
        found = patterns.gain_ratio(params, task)
        # Only the outputs of pruned neurons are removed, so attention is computed once
        # for all orders and rates.
        hidden = model.block(0, params, model.embed(params, prompt))
        few = jnp.mean((~parts.large).astype(task.dtype))[None]
        rates = jnp.concatenate([jnp.asarray(config.rates, task.dtype), few])
        own = jax.random.fold_in(key, ORDER_KEYS)
        kept = masks(params["W_O"], rates, config.random_orders, own)
        errors_of = _errors_of(model, params, task, hidden, prompt.z)
        # Shares of prompts on which any small neuron fires, and on which a large one.
        fires = hidden > 0
        shares = jnp.mean(fires, tuple(range(fires.ndim - 1)))
        large = jnp.mean(shares, where=parts.large)
        some_small = jnp.mean(jnp.any(jnp.where(parts.large, False, fires), axis=-1))
        margins = prompt.z * model.read_out(params, hidden)
        known = {"sizes": jnp.sort(parts.size), "small": parts.num_small}
        known["firing, small and large"] = jnp.stack([some_small, large])
        known["gain, ratio"] = jnp.stack([found.gain, found.ratio])
        known["margin [seed][test]"] = jnp.mean(margins, (-2, -1))
        return known, jax.lax.map(lambda kept: jax.lax.map(errors_of, kept), kept)

    known, found = over_seeds(one, trained, trained.ensemble.keys(PROMPTS))
    found = [_by_order(np.asarray(values)) for values in found]
    split = dict(zip(("hinge", "error", "counted", "weighed"), found, strict=True))

    def part(which):
        return {o: {n: m[o][:, which] for n, m in split.items()} for o in ORDERS}

    known = jax.tree.map(np.asarray, known)
    return known | {CURVES: part(slice(-1)), EXACT: part(slice(-1, None))}


def masks(W, rates, count, key):
    """Neurons to keep, (orders, rates, ..., m): by size, then in random orders."""

    def kept(order, key=None):
        def at(rate):
            cut = patterns.prune_neurons({"W_O": W}, rate, order=order, key=key)
            return jnp.any(cut["W_O"] != 0, axis=-1)

        return jax.vmap(at)(rates)

    by_size = jnp.stack([kept("magnitude"), kept("reverse")])
    at_random = jax.vmap(functools.partial(kept, "random"))
    return jnp.concatenate([by_size, at_random(jax.random.split(key, count))])


def _by_order(found):
    """Two orders by size and the mean of the random ones, from (seeds, orders, ...)."""
    values = found[:, 0], found[:, 1], found[:, 2:].mean(1)
    return dict(zip(ORDERS, values, strict=True))


def _errors_of(model, params, task, hidden, z):
    """A function from masks of neurons to measured and predicted errors."""
    margins = z * model.read_out(params, hidden)
    parts = patterns.neuron_parts(params, task)
    # What each neuron contributes to the margin of queries of its sign.
    along = parts.feature_norm * jnp.cos(parts.feature_angle)
    along = along * jnp.linalg.norm(jnp.mean(task.relevant, axis=0))
    off = parts.label_norm * jnp.abs(jnp.cos(parts.label_angle))
    gains = jnp.abs(params["a"]) * (along + off)
    gains = jnp.where(parts.lucky(), gains, 0)
    positive = jnp.where(parts.positive, gains, 0)
    negative = jnp.where(parts.positive, 0, gains)

    def share(gone, weights):
        weights = weights.astype(float)
        return jnp.sum(jnp.where(gone, weights, 0)) / jnp.sum(weights)

    def at(kept):
        outputs = model.read_out(params, jnp.where(kept, hidden, 0))
        counted = patterns.pruned_hinge(margins, share(~kept, parts.large))
        of_sign = jnp.where(z > 0, share(~kept, positive), share(~kept, negative))
        weighed = patterns.hinge(margins * (1 - of_sign))
        predicted = (jnp.mean(values, (-2, -1)) for values in (counted, weighed))
        return (*errors(outputs, z), *predicted)

    return at


def prune_gpt(config, trained):
    """Norms (seeds, blocks, m) and errors of GPT-2, pruned in every block."""

    # By order (seeds, rates) out of domain at the first alpha', and in every test with
    # small ones pruned first. Neurons are rows of the matrix into an MLP with biases.
    def one(args):
        params, key = args
        blocks = [params[f"block_{i}"] for i in range(trained.module.num_layers)]
        W = jnp.stack([block["mlp_in"]["kernel"].T for block in blocks])
        rates, own = jnp.asarray(config.gpt_rates, W.dtype), jax.random.fold_in(key, 2)
        kept = masks(W, rates, config.gpt_random_orders, own)
        sizes = len(config.alphas), config.gpt_prompts, config.gpt_draws
        prompt = prompts_of(config, trained.task, key, *sizes)

        def tested(prompt):
            z, leaves = prompt.z, (prompt.X, prompt.y, prompt.x_query)
            flat = [leaf.reshape(-1, *leaf.shape[z.ndim :]) for leaf in leaves]

            def at(kept):
                weights = {"params": without(params, kept)}
                F = trained.module.apply(weights, *flat, method="predict")
                return errors(F.reshape(z.shape), z)

            return at

        shifted = jax.tree.map(lambda leaf: leaf[OUTSIDE], prompt)
        rest = jax.lax.map(tested(shifted), kept[1:].reshape(-1, *kept.shape[2:]))
        sizes = jnp.sort(jnp.linalg.norm(W, axis=-1))
        return sizes, jax.lax.map(tested(prompt), kept[0]), rest

    keys = [training.stream_key(seed, "evaluation") for seed in config.gpt_seeds]
    args = trained.params, jnp.stack(keys)
    found = jax.jit(lambda args: jax.lax.map(one, args))(args)
    sizes, first, rest = jax.tree.map(np.asarray, found)
    found = {"sizes [seed][block]": sizes}
    for name, tests, others in zip(("hinge", "error"), first, rest, strict=True):
        others = others.reshape(len(tests), -1, tests.shape[1])
        found[f"small first, {name} [seed][rate][test]"] = tests
        others = np.concatenate([tests[:, None, :, OUTSIDE], others], axis=1)
        found[f"{name} [seed][rate]"] = _by_order(others)
    return found


def without(params, kept):
    """Parameters of a GPT-2 without the pruned neurons, whose weights become zero."""
    params = dict(params)
    for layer, stays in enumerate(kept):
        block = params[f"block_{layer}"]
        into = {k: jnp.where(stays, leaf, 0) for k, leaf in block["mlp_in"].items()}
        params[f"block_{layer}"] = block | {"mlp_in": into}
    return params


def compare(config, trained):
    """Errors (seeds, ranks, in or out of domain) by module and method, and spectra."""
    keys, params = trained.ensemble.keys(PROMPTS), trained.params

    def ask(task, key):
        return prompts_of(config, task, key, 1, config.bridge_prompts)

    def turned(task, params, prompt):
        return in_basis(params, prompt, basis_of(task))

    asked = jax.jit(jax.vmap(ask))(trained.tasks, keys)
    along_axes = jax.jit(jax.vmap(turned))(trained.tasks, params, asked)
    given = {SVD: (params, asked), ENTRIES: (params, asked), AXES: along_axes}
    rows, model, ranks = [], trained.model, config.ranks
    count = pruning.kept_parameters

    def add(module, method, parameters, total, found):
        row = {"module": module, "method": method, "total": total}
        row |= dict(zip(("hinge", "error"), map(np.asarray, found), strict=True))
        rows.append(row | {"parameters": np.array(parameters)})

    for module in MODULES:
        names = MODULES[:-1] if module == "all" else (module,)
        shapes = [params[name].shape[1:] for name in names]
        total = sum(m * n for m, n in shapes)
        kept = [sum(count(shape, rank) for shape in shapes) for rank in ranks]
        low_rank = [1 - r / min(shapes[0]) for r in ranks], pruning.LowRank()
        by_size = [1 - own / total for own in kept], pruning.Magnitude()
        for method, models in given.items():
            rates, how = low_rank if method == SVD else by_size

            def swept(params, prompt, module=module, rates=rates, how=how):
                scored = pruning.Scored(model, params, prompt, errors, (prompt.z,))
                return pruning.sweep(scored, 0, module, rates, method=how)

            add(module, method, kept, total, jax.vmap(swept)(*models))
    m, n = params["W_O"].shape[1:]
    counts = [count((m, n), rank) // n for rank in ranks]

    def rows_cut(params, prompt):
        hidden = model.block(0, params, model.embed(params, prompt))

        def at(count):
            cut = pruning.prune_rows(params["W_O"], kept=count)
            left = jnp.where(jnp.any(cut != 0, axis=1), hidden, 0)
            return errors(model.read_out(params, left), prompt.z)

        return jax.lax.map(at, jnp.asarray(counts))

    neurons = jax.jit(jax.vmap(rows_cut))(params, asked)
    add("W_O", NEURONS, [count * n for count in counts], m * n, neurons)

    def whole(params, prompt):
        return errors(forward(model, params, prompt), prompt.z)

    hinge, error = map(np.asarray, jax.jit(jax.vmap(whole))(params, asked))
    across = jnp.swapaxes(params["W_K"], 1, 2) @ params["W_Q"]
    products = {"W_O W_V": params["W_O"] @ params["W_V"], "W_K' W_Q": across}
    spectra = {k: np.linalg.svd(np.asarray(W, float))[1] for k, W in products.items()}
    return {"rows": rows, "spectra": spectra, "hinge": hinge, "error": error}


def basis_of(task):
    """Orthogonal matrix whose columns are the patterns and the label embedding."""
    # R = diag([mu_1 .. mu_M1, nu_1 .. nu_M2] / beta, H), H a reflection with H e_1 = q.
    # It needs d_X = M1 + M2.
    d, e = task.dim, task.label_dim
    features = jnp.concatenate([task.relevant, task.irrelevant]) / task.scale
    v = task.label_embedding - jnp.zeros(e, task.dtype).at[0].set(1)
    square = jnp.sum(v**2)
    H = jnp.eye(e, dtype=task.dtype)
    H = H - 2 / jnp.where(square > 0, square, 1) * jnp.outer(v, v)
    R = jnp.zeros((d + e, d + e), task.dtype)
    return R.at[:d, :d].set(features.T).at[d:, d:].set(H)


def in_basis(params, prompt, R):
    """Transforms weights and tokens to new coordinates; the outputs stay the same."""
    # The law of the start does not depend on the basis, and the descent turns with it:
    # these are the weights of a model that was trained on patterns along the axes.
    turned = {name: R.T @ params[name] @ R for name in ("W_Q", "W_K", "W_V")}
    prompt = dataclasses.replace(prompt, P=prompt.P @ R, P_query=prompt.P_query @ R)
    return params | turned | {"W_O": params["W_O"] @ R}, prompt


def interval(values):
    """Mean over the seeds with the ends of the 95 % interval of Student's t."""
    found = Estimate.of(np.asarray(values))
    return found.mean, *found.interval()


def shown(values, form="{:.4f} [{:.4f}, {:.4f}]"):
    """The mean over the seeds and its interval in words."""
    return form.format(*interval(values))


def nearest(rates, rate):
    """Index of the rate closest to a value."""
    return int(np.abs(np.asarray(rates) - rate).argmin())


def of(bridge, module, method) -> Any:
    """The row of a module and method, or ``None``."""
    own = [r for r in bridge["rows"] if (r["module"], r["method"]) == (module, method)]
    return own[0] if own else None


def least_kept(config, bridge, row, test):
    """Fewest parameters, by seed, beyond which the hinge stays within the tolerance."""
    bad = row["hinge"][:, :, test] > bridge["hinge"][:, test, None] + config.tolerance
    # Index after the last error above the limit; 0 if there is none.
    first = np.where(bad.any(1), bad.shape[1] - np.argmax(bad[:, ::-1], axis=1), 0)
    # All parameters where none of the ranks is enough.
    return np.append(row["parameters"], row["total"])[first]


def slope_ratio(config, found, test):
    """Ratio of the hinge error's slope in R to its expected value, by seed."""
    # d/dR [1 - F (1 - g)]_+ = F m / (m - m_small) once the small neurons and the slack
    # F - 1 are gone, up to R = 1.
    rates, curve = np.asarray(config.rates), found[CURVES]["magnitude"]
    m, ratios = found["sizes"].shape[1], []
    for seed, small in enumerate(found["small"]):
        rising = curve["counted"][seed, :, test] > 0.1
        expected = found["margin [seed][test]"][seed, test] * m / (m - small)
        hinge, seen = curve["hinge"][seed, rising, test], rising.sum() > 1
        slope = np.polyfit(rates[rising], hinge, 1)[0] if seen else np.nan
        ratios.append(slope / expected)
    return np.array(ratios)


def ranks_left(bridge):
    """Number of singular values above a tenth of the largest, by product and seed."""
    spectra = bridge["spectra"].items()
    return {name: (s > 0.1 * s[:, :1]).sum(1).tolist() for name, s in spectra}


def numbers(config, found, gpt, gpt_found, bridge):
    curves = []
    for row in bridge["rows"]:
        own = {x: row[x] for x in ("module", "method", "parameters", "total")}
        own |= {f"{x} [seed][rank][test]": row[x] for x in ("hinge", "error")}
        least = [least_kept(config, bridge, row, test) for test in range(2)]
        curves.append(own | {"least kept [test][seed]": least})
    own = {name: bridge[name] for name in ("hinge", "error", "spectra")}
    own |= {"ranks": ranks_left(bridge), "curves": curves}
    neurons = {"rates": config.rates, "tests": config.tests, **found}
    of_gpt = {"rates": config.gpt_rates, "tests": config.tests, "loss": gpt.loss}
    of_gpt |= {"published rates": PUBLISHED_RATES, "published error": PUBLISHED}
    made = {"neurons": neurons, "gpt2": of_gpt | gpt_found, "bridge": own}
    return made | {"precision": "float32"}


def checks(config, found, gpt, bridge):
    """Theorem 3, the ranks after training, and whether GPT-2 learned."""
    curves, exact = found[CURVES], found[EXACT]
    start, large = curves["magnitude"]["hinge"][:, 0], exact["reverse"]
    change = np.abs(exact["magnitude"]["hinge"][:, 0] - start).max()
    far = np.abs(large["hinge"] - large["counted"]).max()
    by_sign = max(np.abs(c["hinge"] - c["weighed"]).max() for c in curves.values())
    random = curves["random"]
    gap = np.abs((random["hinge"] - random["counted"]).mean(0)).max()
    slopes, ranks = slope_ratio(config, found, OUTSIDE), ranks_left(bridge)
    exact_large = "as many large ones pruned: hinge against 1 - F (1 - g)"
    signs = "any order, R and test: hinge against the formula by sign"
    most = config.ensemble.num_relevant - 1
    by_module = {"W_O": 2, "W_V": 2, "W_Q": most, "W_K": most}
    made = [
        Check("all small neurons pruned: change of the hinge", change, 1e-3, "<="),
        Check(exact_large, far, 0.0, "within", 0.08),
        Check(signs, by_sign, 1e-3, "<="),
        Check("random orders: hinge against 1 - F (1 - g)", gap, 0.02, "<="),
        Check("rank of W_O W_V", np.mean(ranks["W_O W_V"]), 2.0, "within"),
        Check("rank of W_K' W_Q", np.mean(ranks["W_K' W_Q"]), most, "within"),
    ]
    if np.isfinite(slopes).any():
        name = "small first: slope in R over F m / (number of large ones)"
        made.append(Check(name, float(np.nanmean(slopes)), 1.0, "within", 0.1))
    for module, rank in by_module.items():
        if rank in config.ranks:
            clipped = of(bridge, module, SVD)["hinge"][:, config.ranks.index(rank)]
            change = np.abs(clipped - bridge["hinge"]).max()
            name = f"{module} clipped to rank {rank}: change of the hinge"
            made.append(Check(name, change, 1e-3, "<="))
    name = "GPT-2: hinge loss at the end of training"
    return [*made, Check(name, gpt.loss, 0.05, "<=")]


def claims(config, found, gpt, bridge):
    """Claims of both papers, and what was measured."""
    made = [*one_layer_claims(config, found), *gpt_claims(config, gpt)]
    made.append(_gain(config, bridge))
    for other, modules in ((ENTRIES, MODULES), (NEURONS, ["W_O"]), (AXES, MODULES)):
        made += [_fewer(config, bridge, module, other) for module in modules]
    return made


def _beyond(stated):
    """Claims that a paired difference is above 0 beyond its interval."""
    made = []
    for claim, (expected, difference, words) in stated.items():
        said, held = words.replace("{}", shown(difference)), interval(difference)[1] > 0
        made.append(Claim(claim, said, held, expected))
    return made


def one_layer_claims(config, found):
    """Figures 14 and 15, which are GPT-2's there, on one layer."""
    curve, place = found[CURVES]["magnitude"], nearest(config.rates, MANY)
    error, hinges = curve["error"][..., OUTSIDE], curve["hinge"]
    rise = shown(hinges[:, place, OUTSIDE] - hinges[:, 0, OUTSIDE])
    order = np.argsort(config.alphas)
    by_alpha = hinges[:, place, 1 + order]
    pairs = zip(order, by_alpha.mean(0), strict=True)
    said = ", ".join(f"{config.alphas[i]:g}: {x:.4f}" for i, x in pairs)
    stated = {
        "one layer: the 0-1 error rises with the pruned fraction (Figure 14)": (
            "GPT-2 from .007 to .030 at R = .4; the lower end of the rise above 0",
            error[:, place] - error[:, 0],
            f"R = {config.rates[place]:g}: 0-1 error rises by {{}}, hinge by {rise}",
        ),
        "one layer: pruning costs more where alpha' is small (Figure 15), hinge": (
            "lower end of the paired difference above 0",
            by_alpha[:, 0] - by_alpha[:, -1],
            f"alpha' {said}; largest minus smallest {{}}",
        ),
    }
    return _beyond(stated)


def gpt_claims(config, found):
    """Figures 14 and 15 for GPT-2, with paired differences over seeds."""
    few, many = (nearest(config.gpt_rates, rate) for rate in (FEW, MANY))
    by_order, hinges = found["error [seed][rate]"], found["hinge [seed][rate]"]
    at, error = f"R = {config.gpt_rates[many]:g}", by_order["magnitude"]
    other, sizes = by_order["random"], found["sizes [seed][block]"]

    def first_rise(curve):
        low = interval(curve - curve[:, :1])[1]
        beyond = [R for R, rise in zip(config.gpt_rates, low, strict=True) if rise > 0]
        return f"{beyond[0]:g}" if beyond else "none"

    order = np.argsort(config.alphas)
    by_alpha = found["small first, error [seed][rate][test]"][..., 1 + order]
    start, end = by_alpha[:, 0], by_alpha[:, many]
    means = zip(order, start.mean(0), end.mean(0), strict=True)
    said = ", ".join(f"{config.alphas[i]:g}: {a:.4f} to {b:.4f}" for i, a, b in means)
    gaps, rises = (sizes[..., 1:] / sizes[..., :-1]).max(-1), end - start
    stated = {
        "GPT-2: the 0-1 error rises with the pruned fraction (Figure 14)": (
            "from .007 to .030 at R = .4; the lower end of the rise above 0",
            error[:, many] - error[:, 0],
            f"from {error[:, 0].mean():.4f}, at {at} by {{}}; first R with a rise "
            f"beyond its interval: {first_rise(error)} "
            f"(hinge: {first_rise(hinges['magnitude'])})",
        ),
        "GPT-2: small neurons cost less than random ones (Figure 14)": (
            ".030 against .044 at R = .4; the lower end of the difference above 0",
            other[:, many] - error[:, many],
            f"random minus small first at {at}: {{}}",
        ),
        "GPT-2: the first pruning lowers the error (Figure 14)": (
            "from .007 to .0057 at R = .1; the lower end of the drop above 0",
            error[:, 0] - error[:, few],
            f"at R = {config.gpt_rates[few]:g} lower by {{}}",
        ),
        "GPT-2: larger alpha' errs less with neurons pruned (Figure 15)": (
            ".030, .0105 and .0072 at R = .4; lower end of the difference above 0",
            end[:, 0] - end[:, -1],
            f"alpha' {said}; smallest minus largest {{}}",
        ),
        "GPT-2: pruning costs more where alpha' is small (Figure 15)": (
            "lower end of the difference of the rises above 0",
            rises[:, 0] - rises[:, -1],
            "rise at the smallest alpha' minus rise at the largest {}",
        ),
    }
    words = "GPT-2: a gap parts small neurons from large ones (Figure 14)"
    by = "neighbours .175 and .38 in the slides; a ratio above 1.5 in every block"
    said = f"norms {sizes.min():.2f} to {sizes.max():.2f}; largest ratio of "
    said += f"neighbours {gaps.min():.2f} to {gaps.max():.2f}"
    return [*_beyond(stated), Claim(words, said, gaps.min() > 1.5, by)]


def _gain(config, bridge):
    """Claim of Yao et al. that pruning can improve in-context learning."""
    before = bridge["hinge"][:, OUTSIDE]
    gains = {}
    for row in (row for row in bridge["rows"] if row["method"] == SVD):
        for rank, hinge in zip(config.ranks, row["hinge"][..., OUTSIDE].T, strict=True):
            gains[row["module"], rank] = before - hinge
    (module, rank), best = max(gains.items(), key=lambda item: interval(item[1])[1])
    said = f"unpruned hinge {before.mean():.1e}; best {module} to rank {rank}, lower"
    said += f" by {shown(best, '{:.1e} [{:.1e}, {:.1e}]')}"
    claim = "some clip lowers the error out of domain (Yao et al.)"
    held = interval(best)[1] > 1e-6  # float32 rounding
    return Claim(claim, said, held, f"lower end of the best of {len(gains)} above 0")


def _fewer(config, bridge, module, other):
    """Claim that singular values need fewer parameters than another method."""
    rows = [of(bridge, module, method) for method in (SVD, other)]
    a, b = (least_kept(config, bridge, row, OUTSIDE) for row in rows)
    said = [f"{x.min()}" + f" to {x.max()}" * int(x.min() < x.max()) for x in (a, b)]
    words = f"{module}: {SVD} need fewer parameters than {other}"
    by = f"hinge out of domain within {config.tolerance:g} of the unpruned, every seed"
    found = f"{said[0]} against {said[1]} of {rows[0]['total']}"
    return Claim(words, found, (a < b).all(), by)


def tables(config, found, gpt, bridge):
    """Errors by order and rate, of one layer and of GPT-2, and least parameters."""
    one_layer, of_gpt, kept = [], [], []
    for place in range(0, len(config.rates), max(1, len(config.rates) // 8)):
        row = {"R": f"{config.rates[place]:.3g}"}
        for order, head in ORDERS.items():
            curve = found[CURVES][order]
            at = {name: values[:, place, OUTSIDE] for name, values in curve.items()}
            row[head] = shown(at["hinge"])
            row[f"{head}: formula"] = f"{at['counted'].mean():.4f}"
            row[f"{head}: 0-1"] = f"{at['error'].mean():.4f}"
        one_layer.append(row)
    error, hinge = (gpt[f"{x} [seed][rate]"] for x in ("error", "hinge"))
    for place, rate in enumerate(config.gpt_rates):
        row = {"R": f"{rate:.3g}"}
        for order, head in ORDERS.items():
            row[head] = shown(error[order][:, place])
            row[f"{head}: hinge"] = f"{hinge[order][:, place].mean():.4f}"
        of_gpt.append(row)
    for module in MODULES:
        row = {"module": module} | dict.fromkeys(METHODS, "")
        for method in METHODS:
            if own := of(bridge, module, method):
                least = (least_kept(config, bridge, own, test) for test in (0, 1))
                shares = (counts.mean() / own["total"] for counts in least)
                row[method] = " / ".join(f"{share:.3f}" for share in shares)
        kept.append(row)
    over, where = "mean and 95 % interval over the seeds", config.tests[OUTSIDE]
    made = {
        f"hinge error and formula, {where}; {over}": one_layer,
        f"GPT-2, {where}: 0-1 error ({over}), and hinge error": of_gpt,
        "least share of a module's parameters with a hinge error within "
        f"{config.tolerance:g} of the unpruned one: in domain / out of domain (mean "
        "over seeds)": kept,
    }
    return [frame.table(rows, title=title) for title, rows in made.items()]


def draw_pruned(rates, curves, dashed, sizes, title, where, ylabel, norm, law):
    """Sorted norms of the neurons, and errors against the pruned share by order."""
    # ``curves`` are values (seeds, rates) with a band or none by order, ``dashed`` are
    # points beside some of them, and ``law`` says what those are.
    small, m = sizes < sizes.max(-1, keepdims=True) / 2, sizes.shape[-1]
    few, index, ends = small.sum(-1), np.arange(1, m + 1), []
    rings = f"{few.min()} to {few.max()} of {m} neurons are small (rings)"
    mark = {"color": COLOURS[0], "linestyle": "", "alpha": 0.6}
    ring = {"marker": "o", "markersize": 5, "markerfacecolor": "none", **mark}
    with frame.figure([rings, where], 2, title, 2.6) as ((left, right), entries):
        for row, own in zip(sizes.reshape(-1, m), small.reshape(-1, m), strict=True):
            left.plot(index[~own], row[~own], marker=".", markersize=4, **mark)
            left.plot(index[own], row[own], **ring)
        left.set(xlabel="neuron, by norm", ylabel=norm)
        for place, (order, (values, band)) in enumerate(curves.items(), 1):
            mean, colour = values.mean(0), COLOURS[place]
            right.plot(rates, mean, color=colour)
            if band is not None:
                right.fill_between(rates, *band, color=colour, alpha=0.2, linewidth=0)
            if order in dashed:
                right.plot(*dashed[order], "--", color=colour)
            ends.append((float(mean[-1]), ORDERS[order], colour))
        right.set(xlabel="pruned fraction R of the neurons", ylabel=ylabel)
        for axes in (left, right):
            axes.set_ylim(bottom=0)
        frame.name_ends(right, ends)
        entries[law] = frame.key(linestyle="--")
    return left.figure


def draw_kept(bridge, title):
    """Hinge errors out of domain against the kept share of parameters, by matrix."""
    panels, ticks = [], (0.03, 0.1, 0.3, 1.0)
    for module in MODULES:  # those with equal errors share a panel
        name = "all four matrices" if module == "all" else f"${module}$"
        rows = [row for row in bridge["rows"] if row["module"] == module]
        means = [row["hinge"][..., OUTSIDE].mean(0) for row in rows]
        for place, (twin, _, others) in enumerate(panels):
            if len(others) == len(means) and np.allclose(others, means, atol=1e-3):
                panels[place] = f"{twin} and {name}", rows, others
                break
        else:
            panels.append((name, rows, means))
    columns, titles = 2 if len(panels) == 4 else 3, [name for name, *_ in panels]
    with frame.figure(titles, columns, title, 2.5, sharey=True) as (shown, entries):
        for axes, (_, rows, _) in zip(shown, panels, strict=True):
            for row in rows:
                place = METHODS.index(row["method"])
                colour, x = COLOURS[1 + place], row["parameters"] / row["total"]
                look = {"marker": frame.layer_marker(place), "markersize": 4}
                # The dashed line often coincides with another one.
                style = "--" if row["method"] == AXES else "-"
                mean, low, high = interval(row["hinge"][..., OUTSIDE])
                (line,) = axes.plot(x, mean, style, color=colour, **look)
                band = {"color": colour, "alpha": 0.2, "linewidth": 0}
                axes.fill_between(x, np.maximum(low, 0), high, **band)
                entries[row["method"]] = line
            axes.set(xlabel="kept share of parameters (log)", xscale="log")
            axes.set_ylim(-0.02, 1.02)
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
            axes.minorticks_off()
        for axes in shown[::columns]:
            axes.set_ylabel("hinge error")
    return shown[0].figure


def report(config, found, gpt, gpt_found, bridge):
    of_curves = ["seed", "rate", "test"]
    over = f"{len(config.ensemble.seeds)} seeds, 95 % intervals"
    where = f"out of domain, $S_1$ = {config.coefficient_sum:g}, "
    where += f"$\\alpha'$ = {config.alphas[0]:g}"
    one_layer, formula, of_gpt = {}, {}, {}
    for order in ("magnitude", "random", "reverse"):
        curve, error = found[CURVES][order], gpt_found["error [seed][rate]"][order]
        _, low, high = interval(curve["hinge"][..., OUTSIDE])
        one_layer[order] = curve["hinge"][..., OUTSIDE], (np.maximum(low, 0), high)
        formula[order] = config.rates, curve["counted"][..., OUTSIDE].mean(0)
        band = (error.min(0), error.max(0)) if order == "magnitude" else None
        of_gpt[order] = error, band
    published = {order: (PUBLISHED_RATES, own) for order, own in PUBLISHED.items()}
    sizes = gpt_found["sizes [seed][block]"]
    title = f"Pruning neurons of the one-layer model ({over})"
    words = title, where, "hinge error", r"$\|W_O(i, \cdot)\|$"
    law = "neurons counted by sign, $[1 - F(1 - g)]_+$"
    neurons = config.rates, one_layer, formula, found["sizes"], *words, law
    title = f"Pruning MLP neurons of GPT-2: mean of {len(config.gpt_seeds)} seeds\n"
    title += "(band of small first: range of the seeds)"
    words = title, where, "0-1 error", r"$\|W_{in}(i, \cdot)\|$", "published"
    blocks = config.gpt_rates, of_gpt, published, sizes, *words
    title = "Keeping singular values, entries or neurons: error at equal numbers of "
    title += f"parameters\n({where}; bands: {over})"
    return Report(
        numbers(config, found, gpt, gpt_found, bridge),
        checks=checks(config, found, gpt, bridge),
        tables=tables(config, found, gpt_found, bridge),
        claims=claims(config, found, gpt_found, bridge),
        claims_title="what the papers say, on these models",
        figures={
            "neurons.png": draw_pruned(*neurons),
            "gpt2.png": draw_pruned(*blocks),
            "kept.png": draw_kept(bridge, title),
        },
        interval_level=0.95,
        axes={"neurons.sizes": ["seed", "neuron"], f"neurons.{CURVES}.*.*": of_curves},
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training"):
        trained = train_ensemble(config.ensemble)
        jax.block_until_ready(trained.path)
    with run.phase("pruning neurons"):
        neurons = prune(config, trained)
    with run.phase("comparing methods"):
        bridge = compare(config, trained)
    with run.phase("training GPT-2"):
        gpt = train_gpt(config.gpt, config.gpt_seeds, trained, run)
    with run.phase("pruning GPT-2"):
        gpt_neurons = prune_gpt(config, gpt)
    return report(config, neurons, gpt, gpt_neurons, bridge)


frame.program(__name__, main)
