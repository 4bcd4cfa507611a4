"""True generalisation errors against every variant of Theorem 2 (Yao et al. 2024).

Linear regression, y = beta.x + 0.5 eps, |beta| = 1; one step of descent per layer, or
dense weights; the noise of Assumption 1; the squared error cut at 2, so R = 1. By row
(d, N, b, L) the error beside the bound with a valid numerator (F), |G_t| (G), the
population's centre (opt) or Gaussian (aniso), a held-out prior, and beside the
smoothing and supersample bounds; then slopes in N, and how large N would have to be.
"""

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Report, expect, largest
from icltheory import bounds, noise
from icltheory.attention import LinearAttentionStack
from icltheory.batching import in_turns
from icltheory.constructions import gradient_descent
from icltheory.plotting import Curve, error_curves, panel_grid
from icltheory.trajectory import implicit_gd

CLIP, NOISE_STD, STEP_SIZE = 2.0, 0.5, 0.5
R = CLIP / 2  # a loss in [0, 2] is 1-sub-Gaussian
SMOOTHING = (0.01, 0.1, 1.0, 10.0)  # variances of the perturbation, times N
PAIRS = 64  # demonstrations of a prompt that are paired with others
KINDS = {"with noise": "", "without noise": "det_"}  # prefixes of their numbers
SEEN = 0.02  # supersample bounds are compared with errors above this value
GENERIC = (20, 10), (100, 50), (1000, 500), (1000, 20), (6, 3)
VARIANTS = {  # of Theorem 2, with their names in figures
    "frobenius": "paper's norm",
    "exact": r"$\|G_t\|$",
    "centred": "centred",
    "anisotropic": "anisotropic",
    "held_out_half": "held out, N/2",
}


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


@dataclasses.dataclass(frozen=True)
class Config:
    """The rows of the experiment and their numbers of replicates."""

    # rows (d_in, N, b, L) with the weights of gradient descent
    rows: tuple[tuple[int, int, int, int], ...] = (
        (1, 50, 25, 1),
        (1, 50, 5, 1),
        (1, 1000, 10, 1),
        (2, 100, 50, 2),
        (5, 10, 5, 2),
        (5, 50, 25, 2),
        (5, 200, 100, 2),
        (5, 1000, 500, 2),
        (5, 1000, 100, 2),
        (5, 1000, 20, 2),
        (5, 1000, 990, 2),
        (5, 1000, 20, 8),
        (20, 60, 30, 4),
        (20, 400, 200, 4),
        (20, 1000, 40, 4),
    )
    # rows (N, b) with generic weights of width 3 and one layer
    generic: tuple[tuple[int, int], ...] = GENERIC
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
        arguments = 0.5, np.array((5, 5)), R
        sizes = {x: bounds.required_samples(x, *arguments) for x in self.targets}
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


def learner_of(row: Row, seed: int) -> Learner:
    """Gradient descent, or dense weights of one layer, alike for all generic rows."""
    d, n, L = row.dim, row.dim + 1, row.num_layers
    if not row.generic:
        basis = jnp.zeros((n, n, d)).at[-1, :d].set(jnp.eye(d))
        stack = gradient_descent(jnp.full(L, STEP_SIZE), d)
        return Learner(stack, basis, jnp.full(d, 1 / math.sqrt(d)))
    V, K, Q = jax.random.normal(jax.random.key(seed), (3, L, n, n)) / math.sqrt(n)
    i, j = np.triu_indices(n)
    units = np.eye(n * n).reshape(n, n, n, n)
    images = 0.8 * V[0] @ (units[i, j] + units[j, i]) @ K[0].T @ Q[0]
    # Gradients fill {A X B : X symmetric}.
    basis = jnp.linalg.qr(images.reshape(-1, n * n).T)[0].reshape(n, n, -1)
    return Learner(LinearAttentionStack(0.8 * V, K, Q), basis, jnp.array([0.8, -0.6]))


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


def simulate(config: Config, row: Row) -> dict[str, np.ndarray]:
    """What :func:`replicate` returns, of all replicates of a row."""
    count, start = config.replicates_of(row), jax.random.key(config.seed)
    key = functools.reduce(jax.random.fold_in, row, start)
    keys = tuple(jax.random.split(k, count) for k in jax.random.split(key, 3))
    chunk = 1  # the fastest on a CPU
    if jax.default_backend() != "cpu":
        chunk = 2**25 // (row.num_demos * (row.dim + 1) * row.num_layers)
        chunk = min(1 << max(chunk.bit_length() - 1, 0), count)
    learner = learner_of(row, config.seed)
    return jax.device_get(replicates(keys, row.shots, learner, row.num_demos, chunk))


@functools.partial(jax.jit, static_argnames=("num_demos", "chunk"))
def replicates(keys, shots, learner, num_demos, chunk):
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
    # Changes if perturbed, (2, 4, 2)
    changes = jnp.stack([change(train), change(fresh)])
    found = {"risk": fresh(w), "det_w": det_w, "changes": changes}
    for kind, at in {"": w, "det_": det_w}.items():
        found[f"{kind}error"] = fresh(at) - train(at) - control
        # On demonstrations and on as many others, (P, 2), shares of the largest loss
        both = clipped_losses(at, H[:count]), clipped_losses(at, others)
        found[f"{kind}pair_losses"] = jnp.stack(both, axis=-1) / CLIP
    before = jnp.concatenate([jnp.zeros_like(path.W[:1]), path.W[:-1]])
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
    found = {
        "exact": jnp.sum(G**2, axis=1),
        # ||dW_t||^2 ||1 + W_{t-1}||_F^2, the paper's numerator
        "frobenius": jnp.sum(delta_W**2, axis=(1, 2)) * jnp.sum(P**2, axis=(1, 2)),
        "centred": jnp.sum((G - mean) ** 2, axis=1),
        "trace": jnp.trace(C, axis1=1, axis2=2),
        "log_det": jnp.full(len(W), -jnp.inf),
        "anisotropic": jnp.full(len(W), jnp.inf),
        "held_out_half": jnp.full(len(W), jnp.inf),
    }
    if m <= N - 1:
        prior = G - mean, C, cov / shots
        found["log_det"] = jnp.linalg.slogdet(C)[1]
        found["anisotropic"] = jax.vmap(bounds.anisotropic_term)(*prior)
    if m + 2 < N // 2:  # the mean is infinite otherwise
        held_out = jax.vmap(lambda z: bounds.held_out_term(z, shots, N // 2))
        found["held_out_half"] = held_out(z)
    return found


def estimate(value: float, influence: np.ndarray) -> dict[str, float]:
    """An estimate and its standard error, from what each replicate adds to it."""
    se = float(np.std(influence, ddof=1)) / math.sqrt(len(influence))
    return {"value": value, "se": se}


def variants(row: Row, sample: dict, m: int) -> dict[str, dict[str, float]]:
    """Every variant of the bound, with its standard error."""
    N, trace, log_det = row.num_demos, sample["trace"], sample["log_det"]

    def bound(terms, influence, num_samples=N):
        information = bounds.trajectory_information(np.asarray(terms))
        value = float(bounds.xu_raginsky(information, num_samples, R))
        if not math.isfinite(value):
            return {"value": math.inf, "se": 0.0}
        slope = R**2 / (2 * num_samples * value)  # of the square root
        return estimate(value, slope * influence.sum(axis=1))

    found = {}
    for name in ("frobenius", "exact", "centred"):
        A_1 = sample[name] + trace
        mean = A_1.mean(axis=0)
        logs = bounds.isotropic_term(mean, 0.0, log_det.mean(axis=0), m)
        found[name] = bound(logs, m * A_1 / mean - log_det)
    for name, used in {"anisotropic": N, "held_out_half": N - N // 2}.items():
        found[name] = bound(sample[name].mean(axis=0), sample[name], used)
    return found


def smoothing(row: Row, sample: dict) -> float:
    """The best smoothing bound of the learner without noise."""
    w, N = sample["det_w"], row.num_demos
    changes, found = sample["changes"].mean(axis=(0, 3)).T, []
    for c, (on_train, on_fresh) in zip(SMOOTHING, changes, strict=True):
        bound = bounds.smoothing_bound(w, on_train, on_fresh, c / N, N, R)
        found.append(float(bound.value))
    return min(found)


def supersample(pair_losses: np.ndarray) -> dict[str, float]:
    """The smallest supersample bound, its limit and the error, of the rounded loss."""
    in_prompt = np.zeros(pair_losses.shape[:2], int)
    bound = bounds.supersample_bounds(pair_losses, in_prompt, levels=16).optimal
    found = {name: getattr(bound, name) for name in ("value", "upper", "error")}
    found["error_se"] = bound.standard_error
    return {name: CLIP * float(value) for name, value in found.items()}


def measure(config: Config, row: Row) -> dict[str, Any]:
    """The record of a row for ``metrics.jsonl``."""
    learner, sample = learner_of(row, config.seed), simulate(config, row)
    m = learner.basis.shape[-1]
    found = variants(row, sample, m)
    for name in ("error", "risk", "det_error"):
        found[name] = estimate(float(sample[name].mean()), sample[name])
    # The choice accounts for noise, so that a low estimate does not win by chance.
    best = min(VARIANTS, key=lambda name: found[name]["value"] + 2 * found[name]["se"])
    return {
        "name": row.label,
        **row._asdict(),
        "support_dim": m,
        "replicates": len(sample["error"]),
        **found,
        "best": found[best],
        "smoothing": {"value": smoothing(row, sample)},
        "supersample": supersample(sample["pair_losses"]),
        "det_supersample": supersample(sample["det_pair_losses"]),
    }


def measure_all(config: Config, run: Any) -> dict[str, dict]:
    """Measures the rows missing from ``metrics.jsonl``; returns records by name."""
    path, rows = run.folder / "metrics.jsonl", config.all_rows()
    text = path.read_text() if path.is_file() else ""
    lines = text.replace('"Infinity"', "Infinity").split("\n")[:-1]  # whole lines
    found = {one["name"]: one for one in map(json.loads, lines)}
    run.reset_metrics(found.values())
    missing = [row for row in rows if row.label not in found]
    for row in run.track(missing, "measuring", unit="rows"):
        found[row.label] = measure(config, row)
        run.log(found[row.label])
    return {row.label: found[row.label] for row in rows}


def planned_curve(rows: list[Row]) -> np.ndarray:
    """The planned bound of the sweep's learner for each row; may be infinite."""
    _, N, b, *_ = np.transpose(rows)
    return np.asarray(bounds.planned_bound(N, b, np.array((5, 5)), R))


def measure_plan(config: Config, rows: dict[str, dict]) -> dict[str, Any]:
    """Each target's planned N, with the simulated bound and error there."""
    return {
        f"{target:g}": {
            "planned N": row.num_demos,
            "bound there": rows[row.label]["anisotropic"],
            "true error there": rows[row.label]["error"],
        }
        for target, row in config.planned().items()
    }


def values(keys: list[Row], rows: dict, name: str, part: str = "value") -> np.ndarray:
    return np.array([rows[row.label][name][part] for row in keys])


def measure_scaling(config: Config, rows: dict[str, dict]) -> dict[str, Any]:
    """Slopes of the error and of the best bound in N on log axes, from N = 200 on."""
    found: dict[str, dict] = {}
    for sweep, kept in config.sweeps().items():
        kept = [row for row in kept if row.num_demos >= 200]
        if len(kept) < 2:
            continue
        x = np.log([row.num_demos for row in kept])
        weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
        for name in ("error", "anisotropic"):
            y, se = (values(kept, rows, name, part) for part in ("value", "se"))
            slope, error = weights @ np.log(y), np.linalg.norm(weights * se / y)
            found.setdefault(sweep, {})[name] = {"slope": slope, "se": error}
    return found


def checks(rows, scaling, plan) -> Iterator[Check]:
    for kind, of in KINDS.items():
        names = ["smoothing"] if of else VARIANTS
        errors = [(row, *row[f"{of}error"].values()) for row in rows]
        over = [(x - min(row[k]["value"] for k in names)) / se for row, x, se in errors]
        name = f"true error less the smallest valid bound, {kind}, in se"
        yield Check(name, largest(over), 4.0, "<=")
        pairs = [row[f"{of}supersample"] for row in rows]
        over = [(p["error"] - p["upper"]) / max(p["error_se"], 1e-12) for p in pairs]
        name = f"error of the pairs less its supersample limit, {kind}, in se"
        yield Check(name, largest(over), 4.0, "<=")
    # As printed the bound is finite only if C_t has the rank n^2.
    finite = sum(row["support_dim"] >= (row["dim"] + 1) ** 2 for row in rows)
    yield Check("rows where the printed bound is finite", finite, 0, "<=")
    # The powers are for N to infinity; 0.1 is left for what these N are short of it.
    powers = {"b = N/2": (-1.0, -0.5), "b fixed": (-1.0, -1.0)}
    for sweep, series in scaling.items():
        for name, power in zip(("error", "anisotropic"), powers[sweep], strict=True):
            slope, slack = series[name]["slope"], 0.1 + 5 * series[name]["se"]
            yield Check(f"power of N, {sweep}, {name}", slope, power, "within", slack)
    # The plan is below the simulated bound by at most a quarter.
    for target, entry in plan.items():
        there, goal = entry["bound there"], float(target)
        ratio, slack = there["value"] / goal, 0.175 + 5 * there["se"] / goal
        name = f"bound over plan at N = {entry['planned N']}, target {target}"
        yield Check(name, ratio, 1.175, "within", slack)


def tables(rows: list[dict[str, Any]], plan: dict[str, Any]) -> list[Any]:
    """Bounds with noise, the plan, and bounds without noise."""

    def shown(row):
        (error, se), best = row["error"].values(), row["best"]["value"]
        # A ratio is computed only for an error that exceeds its own noise.
        times = f"{best / error:.1f}" if error > 2 * se and best < math.inf else "-"
        first = "generic" if row["generic"] else row["dim"]
        return row | {"first": first, "times": times}

    setting = "{first} {num_demos} {shots} {num_layers} | "
    noisy = (
        "d N b L | error (se) | F | G | opt | aniso | N/2 | best/err | pairs | limit",
        setting + "{error[value]:.3g} ({error[se]:.1g}) | {frobenius[value]:.3g} | "
        "{exact[value]:.3g} | {centred[value]:.3g} | {anisotropic[value]:.3g} | "
        "{held_out_half[value]:.3g} | {times} | {supersample[value]:.3g} | "
        "{supersample[upper]:.3g}",
    )
    noiseless = (
        "d N b L | error (se) | smoothing | pairs | limit",
        setting + "{det_error[value]:.3g} ({det_error[se]:.1g}) | "
        "{smoothing[value]:.3g} | {det_supersample[value]:.3g} | "
        "{det_supersample[upper]:.3g}",
    )
    planned = (
        "target | planned N | bound there | true error",
        "{target} | {planned N} | {bound there[value]:.3f} ({bound there[se]:.3f}) | "
        "{true error there[value]:.3g} ({true error there[se]:.1g})",
    )
    lines = [shown(row) for row in rows]
    targets = [own | {"target": target} for target, own in plan.items()]
    title = "true error (standard error) and bounds; trivial bound 2, printed inf; "
    title += "held-out prior sees N/2; pairs: supersample bound, 95 % limit"
    about = "plan for a bound at a target: d = 5, L = 2, b = N/2"
    return [
        frame.table(lines, noisy, title),
        frame.table(targets, planned, about),
        frame.table(lines, noiseless, "the same without noise"),
    ]


def findings(rows) -> Iterator[str]:
    parts = {"bound": "value", "limit": "upper"}
    for (kind, of), name in itertools.product(KINDS.items(), parts):
        pairs = [(row[f"{of}supersample"], row[f"{of}error"]["value"]) for row in rows]
        ratios = [bound[parts[name]] / error for bound, error in pairs if error > SEEN]
        if ratios:
            yield (
                f"supersample {name}, {kind}: {min(ratios):.2f} to {max(ratios):.2f} "
                f"times the true error, in {len(ratios)} rows with errors above {SEEN}"
            )


def draw_scaling(config: Config, rows: dict[str, dict]) -> Any:
    """Error and bounds against the pool size on log-log axes."""
    half, fixed = config.sweeps().values()
    sweeps = {"b = N/2": half, f"b = {config.sweep_shots}": fixed}
    sweeps = {name: sweep for name, sweep in sweeps.items() if len(sweep) > 1}
    title = "Error (band: 2 standard errors) and bounds by demonstrations, d = 5, L = 2"
    with panel_grid(sweeps, 2, title, (4.0, 3.9), legend=False) as (figure, shown, _):
        for axes, sweep in zip(shown, sweeps.values(), strict=True):
            N = np.array([float(row.num_demos) for row in sweep])
            error, se = (values(sweep, rows, "error", k) for k in ("value", "se"))
            # If the interval contains 0, the band ends slightly below the error.
            low, high = np.maximum(error - 2 * se, error / 30), error + 2 * se
            curves = {"true error": Curve(error, low, high, x=N)}
            for name, label in (VARIANTS | {"supersample": "supersample"}).items():
                curves[label] = Curve(values(sweep, rows, name), x=N)
            curves["plan (no bound)"] = Curve(planned_curve(sweep), exact=True, x=N)
            curves["trivial bound"] = Curve(np.full(len(N), CLIP), exact=True, x=N)
            look = {"xlabel": "demonstrations N", "ylabel": "loss", "log_x": True}
            error_curves(curves, ax=axes, colours={"trivial bound": "0.5"}, **look)
    return figure


def report(config: Config, rows: dict[str, dict]) -> Report:
    scaling, plan = measure_scaling(config, rows), measure_plan(config, rows)
    found, several = [*rows.values()], len(config.pool_sizes) > 1
    return Report(
        {"rows": rows, "scaling": scaling, "plan": plan},
        checks=list(checks(found, scaling, plan)),
        tables=tables(found, plan),
        findings=list(findings(found)),
        figures={"scaling.png": draw_scaling(config, rows)} if several else {},
    )


@frame.experiment(PRESETS)
def main(config, run):
    with jax.enable_x64(True):
        with run.phase("simulation"):
            rows = measure_all(config, run)
        return report(config, rows)


frame.program(__name__, main)
