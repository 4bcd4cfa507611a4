"""The limit of depth: trained linear attention beside exact bounds of L layers.

Trains 1 to 6 layers in three classes: descent with learned steps, GD++ (which also
moves the inputs), all weights free (L = 2 and 3). Beside their risks / d stand the best
L gradient steps and a lower bound, which holds for the first two classes. Then, without
training, how many steps an error takes as N / d varies.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import frame
from experiments.frame import Check, Report, check_at_least, expect
from icltheory import constructions
from icltheory import regression as reg
from icltheory.plotting import COLOURS, METHODS
from icltheory.regression.depth import depth_floor
from icltheory.statistics import Estimate

STEPS, PLUS = "gradient steps", "GD++"
RANDOM, CONTINUED = "free, random start", "free, from GD++"
KINDS = (STEPS, PLUS, RANDOM, CONTINUED)
LINES = {"steps": "best gradient steps", "floor": "lower bound for linear layers"}
# Floors of more layers are too small to resolve with these prompts, and their moments
# are slow to compute.
FLOOR_LAYERS = 3
PART = 4096  # prompts that are evaluated together


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the stacks, and how they are trained."""

    dims: tuple[int, ...] = (5, 5, 10)  # dimension d of each setting
    lengths: tuple[int, ...] = (20, 10, 20)  # examples N of each setting
    max_layers: int = 6  # layers L of gradient steps and GD++, from 1 on
    free_layers: tuple[int, ...] = (2, 3)  # layers L of stacks of free weights
    draws: int = 1024  # random draws of the steps of both, for each depth
    starts: int = 16  # those of least risk, from which training starts
    steps: int = 3000  # training steps of gradient steps and GD++
    batch_size: int = 512  # inputs of a step
    rate: float = 0.02  # largest learning rate of Adam; it falls like a cosine
    free_starts: int = 3  # random starts of free weights, and as many from GD++
    free_steps: int = 2000  # their training steps
    free_batch: int = 256  # prompts of a step
    free_rate: float = 4e-3  # their largest learning rate
    free_scale: float = 0.2  # standard deviation of the entries of a random start
    eval_prompts: int = 65_536  # other prompts on which all are compared
    phase_dim: int = 20  # dimension d of the figure of depth against examples
    phase_layers: int = 16  # its largest number of layers
    phase_errors: tuple[float, ...] = (0.3, 0.1, 0.03, 0.01)  # its errors
    seed: int = 0  # seed of all draws

    def __post_init__(self):
        dims, lengths = len(self.dims), len(self.lengths)
        each = f"one for each of {dims} dims"
        expect(dims == lengths, "lengths", each, lengths)
        counts = ("max_layers", "starts", "steps", "batch_size", "phase_dim")
        counts += ("free_starts", "free_steps", "free_batch", "phase_layers")
        check_at_least(self, 1, *counts, "free_layers")
        check_at_least(self, 2, "eval_prompts")
        check_at_least(self, self.starts, "draws")
        free, most = self.free_layers, self.max_layers
        wanted = f"at most max_layers = {most}, whose GD++ they start from"
        expect(max(free) <= most, "free_layers", wanted, free)


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "8 to 13 min, 2 cores"}


def descend(loss, draw, start, optimizer, steps: int, key) -> Any:
    """Minimises the mean of ``loss(parameters, draw(key))``, a sum over the runs."""

    def step(state, i):
        now, memory = state
        gradient = jax.grad(loss)(now, draw(jax.random.fold_in(key, i)))
        updates, memory = optimizer.update(gradient, memory)
        return (optax.apply_updates(now, updates), memory), None

    @jax.jit
    def run(start):
        state = (start, optimizer.init(start))
        return jax.lax.scan(step, state, jnp.arange(steps))[0][0]

    return run(start)


def spectra(key, batch: int, dim: int, N: int) -> jax.Array:
    """Eigenvalues of X^T X / N for a batch of inputs, (batch, d)."""
    X = jax.random.normal(key, (batch, N, dim))
    return jnp.linalg.eigvalsh(jnp.einsum("bni,bnj->bij", X, X) / N)


def class_risks(steps, values) -> jax.Array:
    """Risk / d of each run with steps eta and gamma, ``(runs, L)`` both."""

    # The mean of p^2 over the eigenvalues s, as the error is p(S) w. Layer by layer
    # p <- p (1 - eta s f^2) and f <- f (1 - gamma s f^2), from 1.
    def layer(state, sizes):
        f, p = state
        eta, gamma = (size[:, None, None] for size in sizes)
        a = values[None] * f**2
        return (f * (1 - gamma * a), p * (1 - eta * a)), None

    ones = jnp.ones((len(steps[0]), *values.shape), values.dtype)
    p = jax.lax.scan(layer, (ones, ones), (steps[0].T, steps[1].T))[0][1]
    return jnp.mean(p**2, axis=(1, 2))


def train_classes(config: Config, dim: int, N: int) -> dict[str, jax.Array]:
    """Steps eta and gamma by class, ``(2, max_layers, starts, max_layers)`` each."""
    # The loss is the logarithm of the risk, exact in task and query. A layer that a run
    # does not have has steps of zero.
    key = jax.random.fold_in(jax.random.key(config.seed), dim * 1000 + N)
    L, starts = config.max_layers, config.starts
    shape, has = (L, config.draws, L), jnp.tri(L)[None, :, None]  # depth, draw, layer
    own = jnp.repeat(has[0], starts, axis=1).reshape(-1, L)
    schedule = optax.cosine_decay_schedule(config.rate, config.steps)
    # Clipping limits the effect of steps on rare inputs; runs share no parameters.
    optimizer = optax.chain(optax.clip(1.0), optax.adam(schedule))
    draw, found = partial(spectra, batch=config.batch_size, dim=dim, N=N), {}
    # Inputs that shrink from layer to layer require larger steps for the labels.
    for name, most_eta, most_gamma in ((STEPS, 1.2, 0.0), (PLUS, 4.0, 0.6)):
        kind = jax.random.fold_in(key, len(name))
        eta = jax.random.uniform(kind, shape, minval=0.3, maxval=most_eta)
        gamma = jax.random.uniform(jax.random.fold_in(kind, 1), shape) * most_gamma
        drawn, values = has * jnp.stack([eta, gamma]), draw(jax.random.fold_in(kind, 2))
        # The risk has several local minima, and few random draws are near the best one.
        risks = [class_risks(drawn[:, depth], values) for depth in range(L)]
        best = np.argsort(np.nan_to_num(risks, nan=np.inf), 1, "stable")[:, :starts]
        start = jnp.take_along_axis(drawn, best[None, :, :, None], axis=2)
        start, free = tuple(start.reshape(2, -1, L)), (own, own * (most_gamma > 0))

        def loss(now, values, free=free):
            masked = jax.tree.map(jnp.multiply, now, free)
            return jnp.sum(jnp.log(class_risks(masked, values)))

        end = descend(loss, draw, start, optimizer, config.steps, kind)
        found[name] = jnp.stack(end).reshape(2, L, starts, L)
    return found


def stacks_of(steps, dim: int) -> jax.Array:
    """Weights of GD++ with steps (2, starts, L), (3, starts, L, d + 1, d + 1)."""

    def weights(labels, inputs):
        stack = constructions.gd_plus_plus(labels, inputs, dim)
        return jnp.stack([stack.W_V, stack.W_K, stack.W_Q])

    return jax.vmap(weights, out_axes=1)(*jnp.asarray(steps))


def prompts(key, dim: int, N: int, count: int) -> tuple[jax.Array, ...]:
    """Tokens (d + 1, N, B), queries (d, B) and their labels (B,), without noise."""
    # The batch is the last axis, which vectorises small products.
    inputs, tasks = jax.random.split(key)
    X = jax.random.normal(inputs, (dim, N + 1, count))
    w = jax.random.normal(tasks, (dim, 1, count))
    y = jnp.sum(w * X, axis=0)
    return jnp.concatenate([X, y[None]])[:, :-1], X[:, -1], y[-1]


def predict(weights, H, x) -> jax.Array:
    """Minus the label slot of the query after all layers, (B,)."""

    # It is ``LinearAttentionStack(*weights).apply`` with ``scale=1 / N`` by prompt.
    def layer(state, weights):
        (H, h), (W_V, W_K, W_Q) = state, weights
        values, keys = jnp.tensordot(W_V, H, 1), jnp.tensordot(W_K, H, 1)
        A = jnp.sum(values[:, None] * keys[None], axis=2) / H.shape[1]
        queries, query = jnp.tensordot(W_Q, H, 1), jnp.tensordot(W_Q, h, 1)
        moved = jnp.sum(A[:, :, None] * queries[None], axis=1)
        return (H + moved, h + jnp.sum(A * query[None], axis=1)), None

    h = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    return -jax.lax.scan(layer, (H, h), weights)[0][1][-1]


def errors_of(stacks, drawn) -> jax.Array:
    """Squared errors / d of stacks (3, starts, ...) on prompts, (starts, B)."""
    H, x, y = drawn
    return jax.vmap(lambda *W: jnp.square(predict(W, H, x) - y) / len(x))(*stacks)


def train_free(config: Config, dim: int, N: int, plus) -> dict[tuple, jax.Array]:
    """Weights by kind of start and depth, ``(3, starts, L, d + 1, d + 1)`` each."""
    key = jax.random.fold_in(jax.random.key(config.seed + 1), dim * 1000 + N)
    steps, count = config.free_steps, config.free_starts
    rates = 0.0, config.free_rate
    schedule = optax.warmup_cosine_decay_schedule(*rates, steps // 20, steps)
    optimizer = optax.chain(optax.clip(0.5), optax.adam(schedule))

    def loss(stacks, drawn):
        return jnp.sum(jnp.log(jnp.mean(errors_of(stacks, drawn), axis=1)))

    draw, found = partial(prompts, dim=dim, N=N, count=config.free_batch), {}
    for L in config.free_layers:
        own, every = jax.random.fold_in(key, L), plus[:, L - 1, :, :L]
        noise = jax.random.normal(own, (3, count, L, dim + 1, dim + 1))
        # Weights continue the GD++ of this depth that is best on other inputs.
        best = int(np.nanargmin(class_risks(every, spectra(own, 8192, dim, N))))
        near = stacks_of(every[:, best : best + 1], dim) + 0.02 * noise
        start = jnp.concatenate([config.free_scale * noise, near], axis=1)
        end = jnp.stack(descend(loss, draw, tuple(start), optimizer, steps, own))
        found[RANDOM, L], found[CONTINUED, L] = end[:, :count], end[:, count:]
    return found


def measure(config: Config, dim: int, N: int) -> dict[str, Any]:
    """Exact risks / d by layer, and those of trained stacks by class and layers."""
    classes, depths = train_classes(config, dim, N), range(1, config.max_layers + 1)
    stacks = train_free(config, dim, N, classes[PLUS])
    for kind, steps in classes.items():
        stacks |= {(kind, L): stacks_of(steps[:, L - 1, :, :L], dim) for L in depths}
    key = jax.random.fold_in(jax.random.key(config.seed + 2), dim * 1000 + N)

    @jax.jit
    def evaluate(stacks):
        def part(i):
            return errors_of(stacks, prompts(jax.random.fold_in(key, i), dim, N, PART))

        return jax.lax.map(part, jnp.arange(-(-config.eval_prompts // PART)))

    trained: dict = {kind: {} for kind in KINDS}
    for (kind, L), weights in stacks.items():
        errors = np.concatenate(np.asarray(evaluate(weights), np.float64), axis=1)
        choice, rest = np.array_split(errors, 2, axis=1)
        # The start that is best on one half of the prompts is measured on the other.
        risk = Estimate.of(rest[int(np.nanargmin(choice.mean(axis=1)))])
        trained[kind][L] = {"risk": risk, "starts": rest.mean(axis=1).tolist()}
    task = reg.LinearPopulation.isotropic(dim)
    floors = [depth_floor(L, task, N) for L in depths if L <= FLOOR_LAYERS]
    lines = {"steps": [best_steps(dim, N, L) for L in depths]}
    lines["floor"] = [float(floor.risk) / dim for floor in floors]
    return {"title": f"d = {dim}, N = {N}", "trained": trained, **lines}


def best_steps(dim: int, N: int, steps: int) -> float:
    task = reg.LinearPopulation.isotropic(dim)
    return float(reg.optimum(reg.Steps(steps), task, N).risk) / dim


def phase_depths(config: Config) -> dict[float, tuple[list, list]]:
    """By error: N / d, and the fewest best gradient steps L that reach the error."""
    d, found = config.phase_dim, {error: ([], []) for error in config.phase_errors}
    for N in np.unique((np.geomspace(0.5, 20, 40) * d).round().clip(1)).astype(int):
        left = set(found)
        for L in range(1, config.phase_layers + 1):
            risk = best_steps(d, int(N), L)
            for error in [error for error in left if risk <= error]:
                found[error][0].append(float(N / d))
                found[error][1].append(L)
                left.remove(error)
            if not left:
                break
    return found


def limit_depth(error: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """N / d, and the steps L that reach an error for large prompts, with L real."""
    # With c = d / N the risk of L steps is (1 - c) c^L / (1 - c^(L + 1)), which has an
    # error e at c^L = e / (1 - c + e c).
    ratios = np.geomspace(0.5, 20, 400)
    with np.errstate(all="ignore"):
        depths = -np.log(error / (1 - 1 / ratios + error / ratios)) / np.log(ratios)
    fine = (depths <= most) & (depths > 0)  # neither holds of NaN
    return ratios[fine], depths[fine]


def unresolved(risk: Estimate) -> bool:
    """Whether the mean is too uncertain, since rare prompts dominate it."""
    return not 2 * float(risk.half_width(0.95)) < float(risk.mean)


def checks(one: dict) -> list[Check]:
    """Learned steps of up to three layers have the exact optimal risk."""
    made, name = [], "learned gradient steps against the exact risk"
    for L, exact in enumerate(one["steps"][:3], 1):
        mean, error = one["trained"][STEPS][L]["risk"]
        title = f"{one['title']}, L = {L}: {name}"
        made.append(Check(title, mean, exact, "within", 5 * error))
    return made


def findings(one: dict) -> list[str]:
    trained, found = one["trained"], []
    for L, floor in enumerate(one["floor"], 1):
        free = [trained[x][L]["risk"] for x in (RANDOM, CONTINUED) if L in trained[x]]
        if not free:
            continue
        best = min(free, key=lambda risk: risk.mean)
        low, high = best.interval(0.95)
        place = "no farther than chance from"
        if unresolved(best):
            place = "not measured well enough to be compared with"
        elif high < floor or low > floor:
            place = "below" if high < floor else "above"
        found.append(
            f"{one['title']}, L = {L}: the best free weights have {best.mean:.3g} "
            f"[{low:.3g}, {high:.3g}], {place} the lower bound {floor:.3g}; GD++ has "
            f"{trained[PLUS][L]['risk'].mean:.3g}, the best gradient steps "
            f"{one['steps'][L - 1]:.3g}."
        )
    return found


def risk_table(config: Config, one: dict) -> Any:
    rows = []
    for L, steps in enumerate(one["steps"], 1):
        row, floor = {"L": L, LINES["steps"]: f"{steps:.4g}"}, one["floor"][L - 1 : L]
        row[LINES["floor"]] = f"{floor[0]:.3g}" if floor else "-"
        for kind in KINDS:
            own = one["trained"][kind].get(L)
            row[kind] = "{:.3g} +- {:.1g}".format(*own["risk"]) if own else "-"
        rows.append(row)
    title = f"risk / d, {one['title']}; trained: best of {config.starts} starts "
    title += f"(free: {config.free_starts}) +- standard error"
    return frame.table(rows, title=title)


def draw_layers(settings: list[dict], title: str) -> Any:
    """Exact lines and the risks of trained stacks, one panel per setting."""
    lowest, count = [1.0], len(settings)
    look: Any = {"small": True, "figsize": (3.4 * count, 3.9), "squeeze": False}
    with frame.panels(1, count, title, **look) as (figure, (grid,)):
        for axes, one in zip(grid, settings, strict=True):
            layers = range(1, len(one["steps"]) + 1)
            for line, name in LINES.items():
                look = {"color": METHODS[name], "label": f"{name} (exact)"}
                axes.plot(layers[: len(one[line])], one[line], "--", **look)
                lowest += one[line]
            for kind, marker, colour in zip(KINDS, "oDs^", (6, 3, 0, 2), strict=True):
                risks = {L: row["risk"] for L, row in one["trained"][kind].items()}
                risks = {L: risk for L, risk in risks.items() if not unresolved(risk)}
                means = [risk.mean for risk in risks.values()]
                bars = [risk.half_width(0.95) for risk in risks.values()]
                look = {"color": COLOURS[colour], "markersize": 4.5, "linewidth": 1.0}
                look |= {"fmt": marker, "label": f"{kind}, trained"}
                axes.errorbar(list(risks), means, bars, **look)
                lowest += means
            axes.set(yscale="log", xlabel="layers L", title=one["title"], xticks=layers)
        # The range ignores intervals: one that reaches zero has no logarithm.
        for axes in grid:
            axes.set_ylim(min(lowest) / 3, 1.5)
        grid[0].set_ylabel("risk / d")
        handles = grid[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def draw_phase(exact: dict, limit: dict, title: str) -> Any:
    """Gradient steps that an error needs, against examples per dimension."""
    ends, ticks = [], [0.5, 1, 2, 5, 10, 20]
    with frame.panels(figsize=(6.8, 4.2)) as (figure, axes):
        for (error, curve), colour in zip(exact.items(), COLOURS[1:], strict=False):
            axes.plot(*curve, color=colour, drawstyle="steps-post")
            axes.plot(*limit[error], "--", color=colour, linewidth=1.0)
            ends += [(float(L), f"error {error:g}", colour) for L in curve[1][-1:]]
        axes.axvline(1, color="grey", linewidth=0.8, linestyle=":", zorder=0)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate("N = d", (1, 1), (3, -10), color="0.35", fontsize=8, **place)
        axes.set(xscale="log", yscale="log", xlabel="examples per dimension N / d")
        axes.set_ylabel("gradient steps L")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks(ticks[1:], [f"{tick:g}" for tick in ticks[1:]])
        axes.minorticks_off()
        frame.name_ends(axes, ends)
        axes.set_title(title, fontsize=10)
    return figure


def numbers(one: dict) -> dict[str, Any]:
    trained = {}
    for kind, own in one["trained"].items():
        for L, row in own.items():
            mean, error = map(float, row["risk"])
            values = {"risk": mean, "standard error": error, "starts": row["starts"]}
            trained[f"{kind}, L = {L}"] = values
    return {"steps": one["steps"], "floor": one["floor"], "trained": trained}


def report(config: Config, settings: list[dict]) -> Report:
    exact, d, most = phase_depths(config), config.phase_dim, config.phase_layers
    limit = {error: limit_depth(error, most) for error in exact}
    phase = {
        f"{error:g}": {"examples per dimension": ratios, "layers": depths}
        for error, (ratios, depths) in exact.items()
    }
    found = {one["title"]: numbers(one) for one in settings}
    layers = f"Linear attention against depth, best of {config.starts} starts, seed "
    layers += f"{config.seed}\nbars: 95 % intervals; "
    layers += "without points whose interval is wider than their mean"
    steps = f"Gradient steps that an error takes, d = {d}\n"
    steps = draw_phase(exact, limit, steps + "dashed: the limit of large prompts")
    return Report(
        {"draws": config.draws, "settings": found, "phase": phase},
        checks=[check for one in settings for check in checks(one)],
        findings=[line for one in settings for line in findings(one)],
        tables=[risk_table(config, one) for one in settings],
        figures={"layers.png": draw_layers(settings, layers), "phase.png": steps},
        interval_level=0.95,
        axes={"settings.*.steps": ["layers L, from 1"]},
    )


@frame.experiment(PRESETS)
def main(config, run):
    settings = list(zip(config.dims, config.lengths, strict=True))
    with run.phase("training"):
        each = run.track(settings, "training", unit="settings")
        found = [measure(config, dim, N) for dim, N in each]
    with run.phase("exact lines"):
        return report(config, found)


frame.program(__name__, main)
