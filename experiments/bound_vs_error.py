"""True generalisation errors against every variant of Theorem 2 (Yao et al. 2024).

Linear regression, y = beta.x + 0.5 eps, |beta| = 1; one step of descent per layer, or
dense weights; the noise of Assumption 1; the squared error cut at 2, so R = 1. By row
(d, N, b, L) the error beside the bound as printed, with a valid numerator (F), |G_t|
(G), the population's centre (opt) or Gaussian (aniso), held-out priors, and beside the
smoothing and supersample bounds; then slopes in N, and how large N would have to be.
"""

import dataclasses
import functools
import itertools
import json
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, expect
from icltheory import bounds, linalg, noise
from icltheory.attention import LinearAttentionStack
from icltheory.batching import in_turns
from icltheory.constructions import gradient_descent
from icltheory.plotting import COLOURS, Curve, error_curves, heat_map, panel_grid
from icltheory.trajectory import implicit_gd

CLIP, NOISE_STD, STEP_SIZE = 2.0, 0.5, 0.5
R = CLIP / 2  # a loss in [0, 2] is 1-sub-Gaussian
SMOOTHING = (0.01, 0.1, 1.0, 10.0)  # variances of the perturbation, times N
PAIRS = 64  # demonstrations of a prompt that are paired with others
LEVELS = 16  # values that losses are rounded to, for the supersample bound
ASYMPTOTIC = 200  # slopes are fitted from this N on
SEEN = 0.02  # supersample bounds are compared with errors above this value
HELD_OUT, POPULATION = "held-out prior", "population's Gaussian"
INVARIANCE = "invariance"  # a record's name, as those of the rows
ORDER = {"frobenius": "F", "exact": "G", "centred": "opt", "anisotropic": "aniso"}
PRIORS = {"half": "N/2", "most": "0.9N", "all_but_one": "N-1"}
NAMES = ORDER | {f"held_out_{name}": head for name, head in PRIORS.items()}
DRAWN = {  # bounds of the noisy learner, in figures
    "frobenius": "paper's norm",
    "exact": r"$\|G_t\|$",
    "centred": "centred",
    "anisotropic": "anisotropic",
    "held_out_half": "held out, N/2",
    "printed": "as printed",
    "supersample": "supersample",
}
QUIET = {"smoothing": "smoothing", "det_supersample": "supersample"}

# An independent simulation in NumPy without closed forms, where fresh demonstrations
# stand for the population. Each row has d_in, N, b, L, then the error and its standard
# error in units of 1e-5, the risk, the bound with the logarithm inside, those of NAMES,
# and without noise the error, its standard error and the smoothing bound.
TABLE = """
1 50 25 1 1205 158 .468 .279 .282 .257 .125 .125 .216 .171 .165 1216 157 .110
1 50 5 1 993 168 .503 .192 .197 .167 .066 .066 .123 .081 .076 1216 157 .110
1 1000 10 1 142 50 .475 .048 .048 .041 .004 .004 .006 .004 .004 147 49 .014
2 100 50 2 1261 64 .323 .419 .422 .365 .178 .174 .262 .228 .220 1245 62 .121
5 10 5 2 19163 440 .563 1.851 2.014 1.559 1.412 1.362 inf 7.086 7.086 23729 375 .896
5 50 25 2 5443 119 .369 .872 .882 .664 .434 .424 .771 .627 .649 5573 110 .350
5 200 100 2 1504 46 .323 .500 .501 .403 .199 .195 .288 .252 .242 1527 45 .137
5 1000 500 2 300 26 .309 .256 .256 .218 .085 .084 .119 .104 .097 298 25 .051
5 1000 100 2 301 27 .317 .209 .210 .163 .038 .034 .049 .037 .034 298 25 .051
5 1000 20 2 290 35 .359 .166 .168 .114 .029 .018 .026 .019 .017 298 25 .051
5 1000 990 2 298 25 .308 .334 .334 .306 .215 .215 .304 .500 .943 298 25 .051
5 1000 20 8 232 16 .270 .265 .275 .165 .046 .035 .051 .038 .036 235 4 .042
20 60 30 4 16464 127 .398 2.362 2.39 1.48 1.364 1.348 5.683 2.733 2.619 17049 118 .746
20 400 200 4 2432 19 .273 .994 .996 .646 .402 .396 .591 .519 .507 2426 18 .206
20 1000 40 4 977 28 .316 .500 .505 .248 .085 .078 .114 .085 .079 966 12 .109
"""
# The generic weights of the simulation came from another generator, so that only what
# does not depend on them can be compared: the anisotropic bound, by (N, b).
GENERIC = {(20, 10): 0.619, (100, 50): 0.221, (1000, 500): 0.065, (1000, 20): 0.014}
GENERIC[6, 3] = math.inf


class Row(NamedTuple):
    """A learner and the size of its pools."""

    dim: int
    num_demos: int
    shots: int
    num_layers: int
    generic: bool = False

    @property
    def label(self) -> str:
        """Name of the row in ``metrics.jsonl``."""
        d, N, b, L, generic = self
        return f"{'generic' if generic else 'GD'} d={d} N={N} b={b} L={L}"


def _reference() -> dict[Row, dict[str, float]]:
    names = ["error", "error_se", "risk", "inside", *NAMES]
    names += ["det_error", "det_error_se", "smoothing"]
    found = {Row(2, *key, 1, True): {"anisotropic": x} for key, x in GENERIC.items()}
    for line in TABLE.strip().split("\n"):
        words = line.split()
        pairs = zip(names, map(float, words[4:]), strict=True)
        own = {name: x * (1e-5 if "error" in name else 1.0) for name, x in pairs}
        d, N, b, L = map(int, words[:4])
        found[Row(d, N, b, L)] = own
    return found


REFERENCE = _reference()


@dataclasses.dataclass(frozen=True)
class Config:
    """The rows of the experiment and their numbers of replicates."""

    # rows (d_in, N, b, L) with the weights of gradient descent
    rows: tuple[tuple[int, int, int, int], ...] = tuple(
        row[:4] for row in REFERENCE if not row.generic
    )
    # rows (N, b) with generic weights of width 3 and one layer
    generic: tuple[tuple[int, int], ...] = tuple(GENERIC)
    # pool sizes N of two sweeps, d_in = 5 and L = 2: b = N / 2, and b fixed below N
    pool_sizes: tuple[int, ...] = (20, 50, 100, 200, 500, 1000, 2000)
    sweep_shots: int = 20  # the b that is fixed
    # values of the bound for which the plan says how large N must be
    targets: tuple[float, ...] = (0.5, 0.2, 0.1)
    replicates: int = 4096  # most replicates of a row; a power of two
    # most numbers N (d_in + 1) L per row; an eighth of the replicates are always made
    work: int = 2**24
    seed: int = 0  # of all draws; the streams of the rows differ

    def __post_init__(self):
        for name in ("rows", "generic"):  # JSON stores tuples as lists
            object.__setattr__(self, name, tuple(map(tuple, getattr(self, name))))
        whole = (count := self.replicates) >= 16 and not count & (count - 1)
        expect(whole, "replicates", "a power of two from 16", count)
        frame.check_each(self, "above 0", "work")
        for target in self.targets:
            expect(0 < target < 2, "targets", "values in (0, 2)", target)
        for d, N, b, L, _ in itertools.chain(self.table(), *self.sweeps().values()):
            got, right = f"d_in={d}, N={N}, b={b}, L={L}", 0 < b < N and min(d, L) > 0
            expect(right, "rows", "d_in, b, L >= 1 and N > b", got)

    def table(self) -> list[Row]:
        """Rows of the table: gradient descent, then generic weights."""
        gd = [Row(*row) for row in self.rows]
        return gd + [Row(2, N, b, 1, generic=True) for N, b in self.generic]

    def sweeps(self) -> dict[str, list[Row]]:
        """Rows of the sweeps over N, with b = N / 2 and with b fixed."""
        half, b = [Row(5, N, N // 2, 2) for N in self.pool_sizes], self.sweep_shots
        fixed = [row._replace(shots=b) for row in half if b < row.num_demos]
        return {"b = N/2": half, "b fixed": fixed}

    def planned(self) -> dict[float, Row]:
        """The planned row for each target of the bound."""
        sizes = {target: planned_samples(target) for target in self.targets}
        return {target: Row(5, N, N // 2, 2) for target, N in sizes.items()}

    def all_rows(self) -> list[Row]:
        """All rows without duplicates, those of the table first."""
        rows = itertools.chain(self.table(), *self.sweeps().values())
        return list(dict.fromkeys([*rows, *self.planned().values()]))

    def replicates_of(self, row: Row) -> int:
        """Number of replicates of a row, a power of two."""
        affordable = self.work // (row.num_demos * (row.dim + 1) * row.num_layers)
        count = max(min(affordable, self.replicates), self.replicates // 8, 16)
        return 1 << (count.bit_length() - 1)


_SIZES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_MANY = Config(pool_sizes=_SIZES, replicates=2**15, work=2**29)
PRESETS = {"cpu": Config(), "gpu": _MANY, "paper": _MANY}
# Measured times; the other preset has not been run yet.
TIMES = {"cpu": "1 to 2 min, 2 cores", "paper": "9 min, 2 cores"}


# Learners predict minus the label row of W_L, so that their true error is known.
class Learner(NamedTuple):
    """Weights with a basis of their gradients z_i, (n, n, m), and the true weight."""

    stack: LinearAttentionStack
    basis: jax.Array
    task: jax.Array


def learner_of(row: Row, seed: int, scale: float = 0.8) -> Learner:
    """Gradient descent, or dense weights of one layer, alike for all generic rows."""
    d, n, L = row.dim, row.dim + 1, row.num_layers
    if not row.generic:
        basis = jnp.zeros((n, n, d)).at[-1, :d].set(jnp.eye(d))
        stack = gradient_descent(jnp.full(L, STEP_SIZE), d)
        return Learner(stack, basis, jnp.full(d, 1 / math.sqrt(d)))
    V, K, Q = jax.random.normal(jax.random.key(seed), (3, L, n, n)) / math.sqrt(n)
    i, j = np.triu_indices(n)
    units = np.eye(n * n).reshape(n, n, n, n)
    images = scale * V[0] @ (units[i, j] + units[j, i]) @ K[0].T @ Q[0]
    # Gradients fill {A X B : X symmetric}.
    basis = jnp.linalg.qr(images.reshape(-1, n * n).T)[0].reshape(n, n, -1)
    return Learner(LinearAttentionStack(scale * V, K, Q), basis, jnp.array([0.8, -0.6]))


def population(learner: Learner, W, layer: int = 0):
    """Mean tr S_m M and, by Isserlis, covariance 2 tr S_m M S_k M of z_i = h' S h."""
    stack, basis, task = learner
    P = jnp.eye(len(W)) + W
    A, B = stack.W_V[layer] @ P, P.T @ stack.W_K[layer].T @ stack.W_Q[layer] @ P
    forms = jnp.einsum("pa,pqm,bq->mab", A, basis, B)
    root = jnp.vstack([jnp.eye(len(task)), task])  # of E h h' without noise
    M = (root @ root.T).at[-1, -1].add(NOISE_STD**2)
    SM = (forms + jnp.swapaxes(forms, 1, 2)) @ M / 2
    return jnp.trace(SM, axis1=1, axis2=2), 2 * jnp.einsum("mab,kba->mk", SM, SM)


def anchor(learner: Learner):
    """Predictor after the steps on the population risk."""
    W = jnp.zeros(learner.basis.shape[:2])
    for _ in range(learner.stack.num_layers):
        W = W + learner.basis @ population(learner, W)[0]
    return -W[-1, :-1]


def population_loss(w, task):
    r"""Expected loss :math:`E \min(s^2 z^2, c)`, :math:`s^2 = |w - \beta|^2 + 1/4`."""
    variance = jnp.sum((w - task) ** 2) + NOISE_STD**2
    a = jnp.sqrt(CLIP / variance)
    within = jax.scipy.special.erf(a / math.sqrt(2))
    density = jnp.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    return variance * (within - 2 * a * density) + CLIP * (1 - within)


def clipped_losses(w, H):
    """Clipped squared error of each token [x; y]."""
    return jnp.minimum((H[:, -1] - H[:, :-1] @ w) ** 2, CLIP)


@functools.partial(jax.jit, static_argnames="num_demos")
def draw_tokens(key, task, num_demos):
    """Draws a pool of demonstrations [x; y], (N, n)."""
    draws = jax.random.normal(key, (num_demos, len(task) + 1))
    return draws.at[:, -1].set(draws[:, :-1] @ task + NOISE_STD * draws[:, -1])


def held_out_sizes(N: int) -> tuple[int, int, int]:
    """Sizes of the held-out priors' data: half, nine tenths, and all but one."""
    return N // 2, N - max(1, N // 10), N - 1


def simulate(config: Config, row: Row) -> dict[str, np.ndarray]:
    """What :func:`replicate` returns, of all replicates of a row."""
    key, count = jax.random.key(config.seed), config.replicates_of(row)
    for number in row:
        key = jax.random.fold_in(key, number)
    keys = tuple(jax.random.split(k, count) for k in jax.random.split(key, 3))
    chunk = 1  # the fastest on a CPU
    if jax.default_backend() != "cpu":
        chunk = 2**25 // (row.num_demos * (row.dim + 1) * row.num_layers)
        chunk = min(1 << max(chunk.bit_length() - 1, 0), count)
    learner = learner_of(row, config.seed)
    found = _replicates(keys, row.shots, learner, row.num_demos, chunk)
    return jax.tree.map(np.asarray, found)


@functools.partial(jax.jit, static_argnames=("num_demos", "chunk"))
def _replicates(keys, shots, learner, num_demos, chunk):
    return in_turns(lambda k: replicate(k, shots, learner, num_demos), keys, chunk)


def replicate(keys, shots, learner: Learner, num_demos: int) -> dict[str, Any]:
    """One prompt: the terms of a noisy path, and errors with and without noise."""
    (stack, _, task), N = learner, num_demos
    H, count = draw_tokens(keys[0], task, N), min(N, PAIRS)
    others = draw_tokens(jax.random.fold_in(keys[0], 1), task, count)
    path = noise.noisy_trajectory(stack, H, shots, key=keys[1], scale=1 / N)
    direction = jax.random.normal(keys[2], task.shape)
    steps = jnp.sqrt(jnp.array(SMOOTHING) / N)
    moves = steps[:, None, None] * jnp.stack([direction, -direction])[None]
    fresh = functools.partial(population_loss, task=task)

    def train(w):
        return jnp.mean(clipped_losses(w, H))

    def change(loss):
        return jax.vmap(jax.vmap(loss))(det_w[None, None] + moves) - loss(det_w)

    w, still = -path.W[-1, -1, :-1], anchor(learner)
    det_w = -implicit_gd(stack, H, scale=1 / N).W[-1, -1, :-1]
    control = fresh(still) - train(still)  # of mean zero, and near the gap
    before = jnp.concatenate([jnp.zeros_like(path.W[:1]), path.W[:-1]])
    # Changes if perturbed, (2, 4, 2)
    found = {"det_w": det_w, "changes": jnp.stack([change(train), change(fresh)])}
    for kind, at in {"": w, "det_": det_w}.items():
        found[f"{kind}error"] = fresh(at) - train(at) - control
        found[f"{kind}risk"] = fresh(at)
        # On demonstrations and on as many others, (P, 2), shares of the largest loss
        both = clipped_losses(at, H[:count]), clipped_losses(at, others)
        found[f"{kind}pair_losses"] = jnp.stack(both, axis=-1) / CLIP
    return terms(learner, H, before, shots) | found


def terms(learner: Learner, H, W, shots) -> dict[str, Any]:
    """Quantities of the bounds in each layer, (L,), at given weights."""
    N, m = len(H), learner.basis.shape[-1]
    parts = noise.demonstration_gradients(learner.stack, H, scale=1 / N, W=W)
    z = N * jnp.einsum("lnp,lnq,pqm->lnm", parts.left, parts.right_G, learner.basis)
    G = jnp.mean(z, axis=1)
    centred = z - G[:, None]
    kappa = noise.without_replacement_factor(N, shots)
    C = kappa / N * jnp.swapaxes(centred, 1, 2) @ centred
    mean, cov = jax.vmap(lambda W: population(learner, W))(W)
    delta_W = jnp.swapaxes(parts.left, 1, 2) @ parts.right_delta_W
    P = jnp.eye(H.shape[1])[None] + W
    infinite, covered = jnp.full(len(W), jnp.inf), m <= N - 1

    def held_out(M):
        if not covered or m + 2 >= M:  # the mean is infinite
            return infinite
        return jax.vmap(lambda z: bounds.held_out_term(z, shots, M))(z)

    anisotropic = jax.vmap(bounds.anisotropic_term)(G - mean, C, cov / shots)
    return {
        "exact": jnp.sum(G**2, axis=1),
        # ||dW_t||^2 ||1 + W_{t-1}||_F^2, the paper's numerator
        "frobenius": jnp.sum(delta_W**2, axis=(1, 2)) * jnp.sum(P**2, axis=(1, 2)),
        "centred": jnp.sum((G - mean) ** 2, axis=1),
        "trace": jnp.trace(C, axis1=1, axis2=2),
        "log_det": jnp.linalg.slogdet(C)[1] if covered else -infinite,
        "anisotropic": anisotropic if covered else infinite,
        "held_out": jnp.stack([held_out(M) for M in held_out_sizes(N)]),
    }


# An influence is what each replicate adds, to first order, times B.
def estimate(value: float, influence: np.ndarray) -> dict[str, float]:
    """An estimate with its standard error and the standard deviation of a replicate."""
    spread = float(np.std(influence, ddof=1))
    return {"value": value, "se": spread / math.sqrt(len(influence)), "spread": spread}


def variants(row: Row, sample: dict, m: int) -> dict[str, tuple[float, np.ndarray]]:
    """Every variant of the bound, with its influence."""
    N, trace, A_2 = row.num_demos, sample["trace"], sample["log_det"]

    def bound(means, each, num_samples=N):
        information = bounds.trajectory_information(np.asarray(means))
        value = float(bounds.xu_raginsky(information, num_samples, R))
        if not math.isfinite(value):
            return math.inf, np.zeros(len(each))
        return value, R**2 / (2 * num_samples * value) * each.sum(axis=1)

    def averaged(each, *num_samples):
        return bound(np.mean(each, axis=0), np.asarray(each), *num_samples)

    inside = bounds.isotropic_term(sample["frobenius"], trace, A_2, m)
    found = {"inside": averaged(inside), "anisotropic": averaged(sample["anisotropic"])}
    for name in ("frobenius", "exact", "centred"):
        A_1 = sample[name] + trace
        mean = A_1.mean(axis=0)
        means = bounds.isotropic_term(mean, 0.0, A_2.mean(axis=0), m)
        found[name] = bound(means, m * A_1 / mean - A_2)
    for i, (name, M) in enumerate(zip(PRIORS, held_out_sizes(N), strict=True)):
        found[f"held_out_{name}"] = averaged(sample["held_out"][:, i], N - M)
    return found


def smoothing(row: Row, sample: dict) -> dict[str, float]:
    """The best smoothing bound, its c, and the spread for single draws."""
    found, w, N = [], sample["det_w"], row.num_demos
    centred, cov = w - w.mean(axis=0), np.atleast_2d(np.cov(w.T))
    for i, c in enumerate(SMOOTHING):
        changes = sample["changes"][:, :, i]
        both = changes.mean(axis=2)
        on_train, on_fresh = both.mean(axis=0)
        bound = bounds.smoothing_bound(w, on_train, on_fresh, c / N, N, R)
        # Derivatives of half the log-determinant, and of the square root around it.
        inverse = np.linalg.inv(cov + c / N * np.eye(len(cov)))
        information = np.einsum("bi,ij,bj->b", centred, inverse, centred) / 2
        information *= R**2 / (N * float(bound.smoothed))
        signs = np.sign(both.mean(axis=0))
        single = estimate(0.0, information + changes[:, :, 0] @ signs)["spread"]
        entry = estimate(float(bound.value), information + both @ signs)
        found.append(entry | {"c": c, "single_spread": single})
    return min(found, key=lambda entry: entry["value"])


def supersample(pair_losses: np.ndarray) -> dict[str, float]:
    """The smallest supersample bound, its limit and the error, of the rounded loss."""
    in_prompt = np.zeros(pair_losses.shape[:2], int)
    bound = bounds.supersample_bounds(pair_losses, in_prompt, levels=LEVELS).optimal
    found = {name: getattr(bound, name) for name in ("value", "upper", "error")}
    found["error_se"] = bound.standard_error
    return {name: CLIP * float(value) for name, value in found.items()}


def ordering(found: dict[str, tuple[float, np.ndarray]]) -> dict[str, float]:
    """Violations of F >= G >= opt >= aniso, in standard errors of the differences."""
    gaps = {}
    for coarse, fine in itertools.pairwise(ORDER):
        (a, of_a), (b, of_b) = found[coarse], found[fine]
        if math.isfinite(a + b):
            error = estimate(b - a, of_b - of_a)["se"]
            gaps[f"{coarse} >= {fine}"] = (b - a) / max(error, 1e-12)
    return gaps


def printed_bound(learner: Learner, row: Row) -> float:
    """Theorem 2 as printed: infinite unless the rank of C_t is n^2."""
    N, dims = row.num_demos, np.asarray(jax.jit(noise.support_dims)(learner.stack))
    if np.any(np.minimum(N - 1, dims) < (row.dim + 1) ** 2):
        return math.inf
    H = draw_tokens(jax.random.key(0), learner.task, N)
    steps = bounds.noisy_steps(learner.stack, H, row.shots, scale=1 / N)
    return float(bounds.printed_bound(steps, R).value)


def measure(config: Config, row: Row) -> dict[str, Any]:
    """The record of a row for ``metrics.jsonl``."""
    learner, sample = learner_of(row, config.seed), simulate(config, row)
    m = learner.basis.shape[-1]
    found = variants(row, sample, m)
    means = ("error", "risk", "det_error", "det_risk")
    return {
        **row._asdict(),
        "support_dim": m,
        "replicates": len(sample["error"]),
        **{name: estimate(float(sample[name].mean()), sample[name]) for name in means},
        "printed": {"value": printed_bound(learner, row)},
        **{name: estimate(*one) for name, one in found.items()},
        "smoothing": smoothing(row, sample),
        "supersample": supersample(sample["pair_losses"]),
        "det_supersample": supersample(sample["det_pair_losses"]),
        "order": ordering(found),
    }


def measure_invariance(seed: int) -> dict[str, Any]:
    """Terms of both priors in several layers and stacks, on noisy paths of equal pools.

    z_i = J_t vech(h_i h_i'): with J_t invertible on the support, both are one number.
    """
    row = Row(2, 40, 20, 3, generic=True)
    (n, N, b), L = (row.dim + 1, *row[1:3]), row.num_layers
    first, second = (learner_of(row, seed + i, scale=0.3) for i in range(2))
    cut = jax.vmap(lambda W: linalg.low_rank_approximation(W, 1))(first.stack.W_V)
    stacks = {
        "generic weights 1": first.stack,
        "generic weights 2": second.stack,
        "W_V of rank 1": LinearAttentionStack(cut, first.stack.W_K, first.stack.W_Q),
        "gradient descent": gradient_descent(jnp.full(L, STEP_SIZE), row.dim),
    }
    data, key = jax.random.split(jax.random.key(seed))
    draw = jax.vmap(lambda key: draw_tokens(key, first.task, N))
    pools, whole = draw(jax.random.split(data, 4)), jnp.eye(n * n).reshape(n, n, -1)

    @jax.jit
    def layer_terms(stack):
        dense = Learner(stack, whole, first.task)
        steps = bounds.noisy_steps(stack, pools, b, scale=1 / N, key=key)
        held_out = bounds.held_out_bound(steps, 1.0, held_out_sizes(N)[0])
        given = bounds.anisotropic_bound(
            steps,
            1.0,
            center=lambda layer, W: population(dense, W, layer)[0].reshape(W.shape),
            prior=lambda layer, W: population(dense, W, layer)[1] / b,
        )
        return {HELD_OUT: held_out.terms, POPULATION: given.terms}

    found = jax.tree.map(np.asarray, {k: layer_terms(v) for k, v in stacks.items()})
    *full, cut, descent = stacks
    kinds = {"full support": full, cut: [cut], descent: [descent]}
    spreads: dict[str, Any] = {HELD_OUT: {}, POPULATION: {}}
    for prior, (kind, names) in itertools.product(spreads, kinds.items()):
        values = np.stack([found[name][prior] for name in names])
        spreads[prior][kind] = float(np.ptp(values) / values.mean())
    return {"terms": jax.tree.map(np.ndarray.tolist, found), "relative_spread": spreads}


def measure_all(config: Config, run: Any) -> dict[str, dict]:
    """Measures the rows missing from ``metrics.jsonl``; returns records by name."""

    def infinite(part):
        return {k: math.inf if v == "Infinity" else v for k, v in part.items()}

    rows = config.all_rows()
    jobs = {row.label: functools.partial(measure, config, row) for row in rows}
    jobs[INVARIANCE] = functools.partial(measure_invariance, config.seed)
    path = run.folder / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.is_file() else []  # whole lines
    records = [json.loads(line, object_hook=infinite) for line in lines]
    found = {r["name"]: r for r in records if r["name"] in jobs}
    run.reset_metrics(found.values())
    if found:
        run.console.print(f"resuming after {len(found)} of {len(jobs)} measurements")
    with run.progress("measuring", len(jobs), done=len(found)) as activity:
        for name in [name for name in jobs if name not in found]:
            activity.enter(name)
            found[name] = {"name": name, **jobs[name]()}
            run.log(found[name])
            activity.advance()
    return found


def planned_samples(target: float) -> int:
    """The N at which the planned bound of the sweep's learner reaches a target."""
    with jax.enable_x64(True):
        return bounds.required_samples(target, 0.5, np.array((5, 5)), R)


def planned_curve(rows: list[Row]) -> np.ndarray:
    """The planned bound of the sweep's learner for each row; may be infinite."""
    _, N, b, *_ = np.transpose(rows)
    return np.asarray(bounds.planned_bound(N, b, np.array((5, 5)), R))


def crossing(num_demos: list[int], values: list[float], target: float) -> float:
    """Interpolates the N at which a decreasing curve reaches a target, on log axes."""
    pairs = zip(num_demos, values, strict=True)
    for (n_0, v_0), (n_1, v_1) in itertools.pairwise(pairs):
        if v_0 > target >= v_1 and math.isfinite(v_0):
            return n_0 * (n_1 / n_0) ** (math.log(v_0 / target) / math.log(v_0 / v_1))
    return math.nan


def language_model(target: float) -> dict[str, Any]:
    """Planned bounds for one layer and for all layers of a LLaMA of 7 billion."""
    width, layers = 4096, 32
    found: dict[str, Any] = {"width": width, "layers": layers, "target": target}
    # Rank 20 is a clipping rate of 0.995.
    supports = {"full": width * (width + 1) // 2, "rank 20": 20 * width - 20 * 19 // 2}
    for name, m in supports.items():
        planned = float(bounds.planned_bound(10, 5, np.array([m]), R))
        found[name] = {"support": m, "bound with 10 demonstrations": planned}
        for which, count in {"one layer": 1, "all layers": layers}.items():
            needed = bounds.required_samples(target, 0.5, np.full(count, m), R)
            found[name][f"demonstrations, {which}"] = needed
    return found


def measure_plan(config: Config, rows: dict[str, dict]) -> dict[str, Any]:
    """Each target's planned N, the simulated bound there, and the needed N."""
    sweep, targets = config.sweeps()["b = N/2"], {}
    curve = [rows[row.label]["anisotropic"]["value"] for row in sweep]
    names = {"bound": "anisotropic", "best": "best", "true error": "error"}
    for target, row in config.planned().items():
        own = {f"{k} there": rows[row.label][name] for k, name in names.items()}
        own |= {"N simulated": crossing([*config.pool_sizes], curve, target)}
        targets[f"{target:g}"] = {"planned N": row.num_demos, **own}
    return {"targets": targets, "language model": language_model(0.5)}


def measure_scaling(config: Config, rows: dict[str, dict]) -> dict[str, Any]:
    """Slopes of error and bounds in N on log axes, from ``ASYMPTOTIC`` on."""
    found: dict[str, dict] = {}
    for sweep, kept in config.sweeps().items():
        kept = [row for row in kept if row.num_demos >= ASYMPTOTIC]
        if len(kept) < 2:
            continue
        x = np.log([row.num_demos for row in kept])
        weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
        found[sweep] = own = {}
        for name in ("error", *ORDER, "held_out_half", "det_error", "smoothing"):
            values, errors = (_numbers(kept, rows, name, k) for k in ("value", "se"))
            own[name] = {"slope": math.nan, "se": 0.0}
            if np.all(values > 0):
                se = float(np.sqrt(np.sum((weights * errors / values) ** 2)))
                own[name] = {"slope": float(weights @ np.log(values)), "se": se}
        planned = float(np.polyfit(x, np.log(planned_curve(kept)), 1)[0])
        own["planned"] = {"slope": planned}
    return found


def z_scores(row: Row, record: dict[str, Any]) -> dict[str, float]:
    """Distances from the reference in standard errors of both, less its rounding."""
    reference, N = REFERENCE.get(row, {}), row.num_demos
    count = 2000 if row.generic else int(min(4000, max(400, 2e6 / N)))
    scores = {}
    for name, expected in reference.items():
        if name.endswith("_se"):
            continue
        ours, value, rounding = record[name], record[name]["value"], 5e-4
        if not math.isfinite(value + expected):
            scores[name] = 0.0 if value == expected else math.inf
            continue
        # Where the reference gives no error, it is that of its number of replicates.
        other = ours.get("single_spread", ours["spread"]) / math.sqrt(count)
        if f"{name}_se" in reference:
            other, rounding = reference[f"{name}_se"], 5e-6
        elif name == "risk":
            # Fresh demonstrations add the variance of N losses in [0, 2].
            other = math.hypot(other, math.sqrt(value * (2 - value) / N / count))
        distance = max(abs(value - expected) - rounding, 0.0)
        z = distance / math.hypot(ours["se"], other)
        scores[name] = math.copysign(z, value - expected)
    return scores


def compared(row: Row, record: dict[str, Any]) -> dict[str, Any]:
    """Adds to a record its best valid bound, ratios to the error, and the reference."""
    valid = {name: record[name]["value"] for name in NAMES}
    # The choice accounts for noise, so that a low estimate does not win by chance.
    best = min(valid, key=lambda name: valid[name] + 2 * record[name]["se"])
    name = best if math.isfinite(valid[best]) else "none"
    error, det = record["error"]["value"], record["det_error"]["value"]
    # A ratio is computed only for an error that exceeds its own noise.
    seen = error > 2 * record["error"]["se"]
    return record | {
        "best": {"name": name, "value": valid[best]},
        "ratios": {name: value / error for name, value in valid.items() if seen},
        "det_ratio": record["smoothing"]["value"] / det if det > 0 else None,
        "reference": REFERENCE.get(row, {}),
        "z": z_scores(row, record),
    }


def limited(row: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """What must not be large for any row, with its limit."""

    def over(error, *names):
        least = min(row[name]["value"] for name in names)
        return (row[error]["value"] - least) / row[error]["se"]

    def over_limit(name):
        error, upper, se = (row[name][k] for k in ("error", "upper", "error_se"))
        return (error - upper) / max(se, 1e-12)

    def far(*names):
        return max(abs(row["z"].get(name, 0.0)) for name in names), 5.0

    order, bound = max(row["order"].values(), default=-math.inf), "supersample"
    pairs = f"error of the pairs less its {bound} limit, in se"
    smooth = over("det_error", "smoothing"), 4.0
    return {
        "true error less the smallest valid bound, in se": (over("error", *NAMES), 4.0),
        "the same without noise, smoothing bound": smooth,
        pairs: (over_limit(bound), 4.0),
        "the same without noise": (over_limit(f"det_{bound}"), 4.0),
        "true errors against the reference, |z|": far("error", "det_error"),
        "risk against the reference, |z|": far("risk"),
        "bounds against the reference, |z|": far("inside", *NAMES, "smoothing"),
        "order F >= G >= opt >= aniso, violation in se": (order, 5.0),
    }


def checks(rows, invariance, scaling, plan) -> list[Check]:
    scores, found = {row["name"]: limited(row) for row in rows}, []
    for name in next(iter(scores.values())):
        worst = max(scores, key=lambda label, name=name: scores[label][name])
        found.append((f"{name} ({worst})", *scores[worst][name], "<="))
    finite = sum(math.isfinite(row["printed"]["value"]) for row in rows)
    found.append(("rows where the printed bound is finite", finite, 0, "<="))
    for prior, spread in invariance["relative_spread"].items():
        name = f"layers and generic weights, relative spread, {prior}"
        found.append((name, spread["full support"], 1e-6, "<="))
    # The powers are for N to infinity; 0.1 is left for what these N are short of it.
    powers = {"b = N/2": (-1.0, -0.5), "b fixed": (-1.0, -1.0)}
    for sweep, series in scaling.items():
        for name, power in zip(("error", "anisotropic"), powers[sweep], strict=True):
            slope, slack = series[name]["slope"], 0.1 + 5 * series[name]["se"]
            found.append(
                (f"power of N, {sweep}, {name}", slope, power, "within", slack)
            )
    # The plan is below the simulated bound by at most a quarter.
    for target, entry in plan["targets"].items():
        there, goal = entry["bound there"], float(target)
        ratio, slack = there["value"] / goal, 0.175 + 5 * there["se"] / goal
        name = f"bound over plan at N = {entry['planned N']}, target {target}"
        found.append((name, ratio, 1.175, "within", slack))
    return [Check(*one) for one in found]


def tables(config: Config, rows: dict[str, dict], plan: dict[str, Any]) -> list[Any]:
    """Bounds, comparison with the independent simulation, plan, and without noise."""

    def cell(value):
        return f"{value:.4f}" if value < 0.01 else f"{value:.3f}"

    def with_error(entry):
        return f"{entry['value']:.3g} ({entry['se']:.1g})"

    errors, noiseless, scores, planned = [], [], [], []
    heads = {"error": "error", "risk": "risk", "inside": "log in", **NAMES}
    heads |= {"det_error": "det err", "smoothing": "smooth"}
    for record in rows.values():
        d, N, b, L, generic = (record[field] for field in Row._fields)
        name = {"d N b L": f"{'generic' if generic else d} {N} {b} {L}"}
        ratio = record["ratios"].get(record["best"]["name"])
        noisy = {"risk": cell(record["risk"]["value"])}
        noisy |= {head: cell(record[bound]["value"]) for bound, head in NAMES.items()}
        noisy |= {"best/err": "-" if ratio is None else f"{ratio:.1f}"}
        quiet = {"smoothing": cell(record["smoothing"]["value"])}
        for made, kind, own in ((errors, "", noisy), (noiseless, "det_", quiet)):
            line = name | {"error (se)": with_error(record[f"{kind}error"])} | own
            pairs = record[f"{kind}supersample"]
            limits = {"pairs": cell(pairs["value"]), "limit": cell(pairs["upper"])}
            made.append(line | limits)
        shown = {k: f"{round(z, 1) + 0.0:.1f}" for k, z in record["z"].items()}
        scores.append(name | {head: shown.get(k, "") for k, head in heads.items()})
    for target, entry in plan["targets"].items():
        there, line = entry["bound there"], {"target": target}
        line["planned N"] = entry["planned N"]
        line["bound there"] = f"{cell(there['value'])} ({there['se']:.3f})"
        line["N simulated"] = f"{entry['N simulated']:.0f}"
        planned.append(line | {"true error": with_error(entry["true error there"])})
    title = "true error (standard error) and bounds; trivial bound 2, printed inf; "
    title += "held-out priors see N/2, 0.9N, N-1; pairs: supersample bound, 95 % limit"
    found = {title: errors}
    found["z-scores against the independent simulation"] = scores[: len(config.table())]
    found["plan for a bound at a target: d = 5, L = 2, b = N/2"] = planned
    found["without noise: true error (standard error) and bounds"] = noiseless
    return [frame.table(rows, title=name) for name, rows in found.items()]


def findings(rows, invariance, scaling, plan) -> list[str]:
    said = []
    for sweep, series in scaling.items():
        slopes = {NAMES.get(name, name): one["slope"] for name, one in series.items()}
        powers = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
        said.append(f"powers of N from N = {ASYMPTOTIC} on, {sweep}: {powers}")
    for prior, spread in invariance["relative_spread"].items():
        parts = ", ".join(f"{name} {value:.1e}" for name, value in spread.items())
        said.append(f"relative spread over layers and weights, {prior}: {parts}")
    model = plan["language model"]
    for name in ("full", "rank 20"):
        entry = model[name]
        said.append(
            f"width {model['width']}, {name}: support {entry['support']:,}; with 10 "
            f"demonstrations {entry['bound with 10 demonstrations']}; a bound of "
            f"{model['target']} needs {entry['demonstrations, one layer']:,} for one "
            f"layer, {entry['demonstrations, all layers']:,} for {model['layers']}"
        )
    for kind, of in {"with noise": "", "without noise": "det_"}.items():
        seen = [row for row in rows if row[f"{of}error"]["value"] > SEEN]
        errors = np.array([row[f"{of}error"]["value"] for row in seen])
        spans = []
        for name, part in {"bound": "value", "limit": "upper"}.items() if seen else ():
            ratios = [row[f"{of}supersample"][part] for row in seen] / errors
            spans.append(f"{name} {min(ratios):.2f} to {max(ratios):.2f}")
        if seen:
            said.append(
                f"supersample, {kind}, times the true error in the {len(seen)} rows "
                f"with an error above {SEEN}: {', '.join(spans)}"
            )
    return said


def _numbers(keys: list[Row], rows: dict, name: str, part: str = "value") -> np.ndarray:
    return np.array([rows[row.label][name][part] for row in keys])


def draw_rows(config: Config, rows: dict[str, dict]) -> Any:
    """Ratios of the bounds to the true error, for every learner."""
    shown = sorted(config.table(), key=lambda row: (row.generic, row))
    names = [
        f"{'generic' if generic else f'd = {d}'}, N = {N}, b = {b}, L = {L}:  "
        for d, N, b, L, generic in shown
    ]
    parts = {"noisy learner of Assumption 1": ("error", DRAWN)}
    parts["without\nnoise"] = "det_error", QUIET
    widths = [len(DRAWN), len(QUIET)]
    size = (0.95 * sum(widths) + 3.0, 0.27 * len(names) + 2.2)
    title = "How many times the true generalisation error a bound is"
    look: dict[str, Any] = {"xlabel": "", "ylabel": "", "limit": 3.0}
    look["write"] = lambda log: f"{10**log:.1f}" if log < 0.99 else f"{10**log:,.0f}"
    with frame.panels(1, 2, title, figsize=size, width_ratios=widths) as (figure, grid):
        for axes, (part, (kind, drawn)) in zip(grid, parts.items(), strict=True):
            error = _numbers(shown, rows, kind)
            # There is no ratio to an error that is not positive.
            divisor = np.where(error > 0, error, np.nan)
            ratios = np.stack([_numbers(shown, rows, name) / divisor for name in drawn])
            lines = [f"{name}{x:.2g}" for name, x in zip(names, error, strict=True)]
            look |= {"rows": lines, "columns": [*drawn.values()], "title": part}
            heat_map(np.log10(ratios).T, ax=axes, **look)
            axes.tick_params(labelsize=9)
            axes.tick_params(axis="x", labelrotation=90)
            names = [""] * len(names)  # only the first panel has them
        grid[0].set_ylabel("learner:  true error", fontsize=9)
    return figure


def draw_scaling(config: Config, rows: dict[str, dict]) -> Any:
    """Error and bounds against the pool size on log-log axes, with powers of N."""
    half, fixed = config.sweeps().values()
    # Guides pass near the last points of the tightest bound and of the error.
    error = {-1.0: "error"}
    sweeps = {"b = N/2": (half, {-0.5: "anisotropic"} | error)}
    sweeps[f"b = {config.sweep_shots}"] = (fixed, error)
    sweeps = {name: given for name, given in sweeps.items() if len(given[0]) > 1}
    title = "Error (band: 2 standard errors) and bounds by demonstrations, d = 5, L = 2"
    names: dict[str, Any] = {"xlabel": "demonstrations N", "ylabel": "loss"}
    grey = {"fontsize": 8, "color": "grey", "va": "center"}
    with panel_grid(sweeps, 2, title, (4.0, 3.9), legend=False) as (figure, shown, _):
        for axes, (sweep, guides) in zip(shown, sweeps.values(), strict=True):
            N = np.array([float(row.num_demos) for row in sweep])
            error, se = (_numbers(sweep, rows, "error", k) for k in ("value", "se"))
            # If the interval contains 0, the band ends slightly below the error.
            low, high = np.maximum(error - 2 * se, error / 30), error + 2 * se
            curves = {"true error": Curve(error, low, high, x=N)}
            for name in [name for name in DRAWN if name != "printed"]:
                curves[DRAWN[name]] = Curve(_numbers(sweep, rows, name), x=N)
            curves["plan (no bound)"] = Curve(planned_curve(sweep), exact=True, x=N)
            colours = dict(zip(curves, itertools.cycle(COLOURS), strict=False))
            colours["trivial bound"] = "0.5"
            curves["trivial bound"] = Curve(np.full(len(N), CLIP), exact=True, x=N)
            values = np.concatenate([curve.mean for curve in curves.values()])
            values = values[np.isfinite(values) & (values > 0)]
            ylim = values.min() / 3, 1.5 * values.max()
            look = names | {"ylim": ylim, "colours": colours}
            error_curves(curves, ax=axes, log_x=True, **look)
            for power, name in guides.items():
                end = _numbers(sweep, rows, name)[-1]
                if math.isfinite(end) and end > 0:
                    guide = 0.7 * end * (N / N[-1]) ** power
                    axes.plot(N, guide, color="grey", lw=0.9, alpha=0.7)
                    place, text = ((N[0], guide[0]), (0, -14)), f"$N^{{{power:g}}}$"
                    axes.annotate(text, *place, textcoords="offset points", **grey)
    return figure


def report(config: Config, records: dict[str, dict]) -> Report:
    rows = {r.label: compared(r, records[r.label]) for r in config.all_rows()}
    scaling, plan = measure_scaling(config, rows), measure_plan(config, rows)
    found = [*rows.values()], records[INVARIANCE], scaling, plan
    numbers = dict(zip(("rows", INVARIANCE, "scaling", "plan"), found, strict=True))
    figures = {"rows.png": draw_rows} if config.table() else {}
    figures |= {"scaling.png": draw_scaling} if len(config.pool_sizes) > 1 else {}
    return Report(
        numbers | {"rows": rows},
        checks=checks(*found),
        tables=tables(config, rows, plan),
        findings=findings(*found),
        figures={name: draw(config, rows) for name, draw in figures.items()},
        axes={"invariance.terms.*.*": ["layer"]},
    )


@frame.experiment(PRESETS)
def main(config, run):
    with jax.enable_x64(True):
        with run.phase("simulation"):
            records = measure_all(config, run)
        return report(config, records)


frame.program(__name__, main)
