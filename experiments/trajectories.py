r"""Implicit gradient trajectories before and after pruning (Yao et al., Remark 5).

||dW_t|| and ||G_t|| of Theorem 1 in random, gradient-descent and trained linear stacks,
and with one matrix of one layer cut to a low rank; m_t, the terms of the corrected
Theorem 2 (without noise: a diagnostic) and the error. Training is float32, the rest
float64. Layers count from 0.
"""

import dataclasses
import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import frame
from experiments.frame import Check, Claim, Report, check_at_least, expect, largest
from experiments.shared.training import Recipe, linear_recipe, train
from icltheory import bounds, constructions, linalg, pruning, training
from icltheory.attention import LinearAttentionStack
from icltheory.plotting import Curve, error_curves, heat_map, panel_grid
from icltheory.plotting.panels import axes_in_rows
from icltheory.plotting.style import STYLE
from icltheory.statistics import Estimate

KINDS, NORMS = ("W_V", "W_K", "W_Q"), ("delta_W", "G")


@dataclasses.dataclass(frozen=True)
class Config:
    """The stacks, how they are pruned, and how much is measured."""

    linear: Recipe  # recipe of the trained stack; the others have its shape
    ranks: tuple[int, ...]  # ranks to which a matrix is cut
    prompts: int  # prompts over which everything is averaged
    shots: int  # demonstrations b of the noisy learner, of N = num_points - 1
    label_noise: float = 0.09  # variance of the noise of their labels
    random_scale: float = 0.35  # standard deviation of random weights, times sqrt(n)
    error_cap: float = 10.0  # largest error / d of a prompt; predicting 0 has mean 1

    def __post_init__(self):
        linear, ranks = self.linear, self.ranks
        expect(linear.model == "linear", "linear.model", "linear", linear.model)
        L, d, N = linear.num_layers, linear.dim, linear.num_points - 1
        expect(L >= 2, "linear.num_layers", "at least 2", L)
        inside = min(ranks, default=0) >= 1 and max(ranks) <= d
        expect(inside, "ranks", f"at least one rank, each from 1 to {d}", ranks)
        check_at_least(self, 2, "prompts")
        expect(1 <= self.shots <= N, "shots", f"1 to {N}", self.shots)
        check_at_least(self, 0, "label_noise", "random_scale")


# N - 1 = 31 exceeds the 21 dimensions of the gradients, so the bound is finite.
_SMALL = dataclasses.replace(linear_recipe(6, 5, 1500), num_points=33)
_LARGE = dataclasses.replace(linear_recipe(12, 10, 6000), num_points=101)
PRESETS = {
    "cpu": Config(_SMALL, ranks=(1, 3), prompts=256, shots=16),
    "gpu": Config(_LARGE, ranks=(1, 3, 6), prompts=2048, shots=50),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "40 s, 2 cores"}


def stacks(config: Config, trained: Any) -> dict[str, LinearAttentionStack]:
    """Random, gradient-descent and trained stacks in the current precision."""
    L, d = config.linear.num_layers, config.linear.dim
    keys = jax.random.split(training.stream_key(config.linear.seeds[0], "init"), 3)
    scale = config.random_scale / math.sqrt(d + 1)
    random = (scale * jax.random.normal(k, (L, d + 1, d + 1)) for k in keys)
    steps = constructions.gradient_descent(jnp.full(L, 0.5), d)
    found = {"random": LinearAttentionStack(*random), "gradient descent": steps}
    found["trained"] = trained.stack()
    return {name: _widened(stack) for name, stack in found.items()}


def prompts(config: Config) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Demonstrations (B, N, n), query tokens (B, n) and labels without noise (B,)."""
    key = training.stream_key(config.linear.seeds[0], "evaluation")
    task = config.linear.task(config.label_noise)
    drawn = _widened(task.sample(key, config.linear.num_points - 1, config.prompts))
    return *drawn.tokens(), jnp.sum(drawn.x_query * drawn.w, axis=1)


def _widened(tree: Any) -> Any:
    dtype = jnp.result_type(float)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype), tree)


def judge_of(config: Config, H: Any, h_query: Any, answers: Any) -> Any:
    """A function from a stack to its m_t, its terms T_t and its errors / d."""
    N, d = H.shape[1], config.linear.dim

    @jax.jit
    def judge(stack):
        steps = bounds.noisy_steps(stack, H, config.shots, scale=1.0 / N)
        terms = bounds.isotropic_bound(steps, 1.0).terms

        def answer(H, h_query):
            return -stack.apply(H, h_query, scale=1.0 / N).h_query[-1, -1]

        errors = jnp.square(jax.vmap(answer)(H, h_query) - answers) / d
        return steps.dim, terms, jnp.fmin(errors, config.error_cap)

    return lambda stack: [np.asarray(x) for x in judge(stack)]


def cut(stack: Any, layer: int, kind: str, rank: int) -> LinearAttentionStack:
    """The stack with one matrix of one layer clipped to a rank."""
    W = getattr(stack, kind)
    new = W.at[layer].set(linalg.low_rank_approximation(W[layer], rank))
    return dataclasses.replace(stack, **{kind: new})


def geometric_mean(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Geometric mean over prompts, with its standard error."""
    # The norms are polynomials of the demonstrations, of degree up to 3^L; arithmetic
    # means would be those of a few prompts.
    mean, error = Estimate.of(np.log(np.asarray(values, float)))
    return np.exp(mean), np.exp(mean) * error


def measure(config: Config, compared: dict[str, Any], asked: Any) -> list[dict]:
    """Norms (prompts, k, t) of each pruned stack, and its effects by pruned layer k."""
    judge, scale = judge_of(config, *asked), 1.0 / asked[0].shape[1]
    found, plain = [], {name: judge(stack) for name, stack in compared.items()}
    for name, kind, rank in itertools.product(compared, KINDS, config.ranks):

        @jax.jit
        @functools.partial(jax.vmap, in_axes=(None, 0))
        def norms(stack, H, kind=kind, rank=rank):
            method = pruning.Rank(rank)
            return pruning.depth_table(stack, H, kind, method, scale=scale)

        row: Any = {"stack": name, "matrix": kind, "rank": rank}
        measured = norms(compared[name], asked[0]).to_dict()
        row |= {key: np.asarray(value) for key, value in measured.items()}
        for which in NORMS:
            whole = row[f"{which}_unpruned"][:, None]
            row[f"{which} ratio"] = geometric_mean(row[which] / whole)
        layers = range(config.linear.num_layers)
        row["pruned"] = [judge(cut(compared[name], k, kind, rank)) for k in layers]
        found.append(row | {"plain": plain[name]})
    return found


def of(rows: list[dict], stack: str, kind: str | None = None) -> list[dict]:
    """The rows of a stack, and of a kind of matrix if one is given."""
    own = [row for row in rows if row["stack"] == stack]
    return [row for row in own if kind in (None, row["matrix"])]


def numbers(rows: list[dict]) -> dict[str, Any]:
    unpruned, pruned = {}, []
    for row in rows:
        dim, terms, errors = row["plain"]
        whole = {"support_dim": dim, "terms": terms, "error": errors.mean()}
        own = {name: row[name] for name in ("stack", "matrix", "rank")}
        for which in NORMS:
            mean, error = geometric_mean(row[f"{which}_unpruned"])
            whole |= {which: mean, f"{which} standard error": error}
            mean, error = row[f"{which} ratio"]
            own[f"{which} ratio [k][t]"] = mean
            own[f"{which} standard error [k][t]"] = error
        own["support_dim [k][t]"] = [dim for dim, _, _ in row["pruned"]]
        own["sum of terms [k]"] = [terms.sum() for _, terms, _ in row["pruned"]]
        own["error [k]"] = [errors.mean() for _, _, errors in row["pruned"]]
        unpruned[row["stack"]] = whole
        pruned.append(own)
    precision = "float64 on float32 training"
    return {"unpruned": unpruned, "pruned": pruned, "precision": precision}


def checks(config: Config, rows: list[dict]) -> list[Check]:
    """Consequences of Theorem 1, for these or for almost all weights."""
    k, t = np.indices((config.linear.num_layers,) * 2)
    descent = {kind: of(rows, "gradient descent", kind) for kind in KINDS}
    ratios = [row["G ratio"][0] for row in descent["W_K"]]

    def change(row, which):
        return np.abs(row[which] - row[f"{which}_unpruned"][:, None])

    before = largest(change(row, x)[:, t < k].max() for row in rows for x in NORMS)
    others = of(rows, "random") + of(rows, "trained")
    touched = -largest(-row["changed"][:, t >= k].mean() for row in others)
    values = largest(change(r, "G").max() / r["G"].max() for r in descent["W_V"])
    later = largest((1 / ratio[t > k]).max() for ratio in ratios)
    first = largest(np.diag(ratio).max() for ratio in ratios)
    share = "random and trained: share of (prompt, k, t >= k) that changed"
    cut_keys = "gradient descent, W_K pruned:"
    return [
        Check("layers t < k: largest change of a norm", before, 0.0, "<="),
        Check(share, touched, 1.0, "within", 0.01),
        Check("gradient descent, W_V pruned: relative change", values, 1e-10, "<="),
        Check(f"{cut_keys} 1 over the least ratio of later ||G_t||", later, 1.0, "<="),
        Check(f"{cut_keys} largest ratio of ||G_k||", first, 1.0, "<="),
    ]


def claims(config: Config, rows: list[dict]) -> list[Claim]:
    """Claims of Remark 5 and the examples, and what was measured."""
    L = config.linear.num_layers
    k, t = np.indices((L, L))
    stated = []
    for name in dict.fromkeys(row["stack"] for row in rows):
        own = of(rows, name)
        ratios = [row["G ratio"][0] for row in own]
        moved = np.mean([np.abs(np.log(ratio)) for ratio in ratios], axis=0)
        by_layer = [float(moved[i][t[i] >= i].sum()) for i in range(L)]
        errors = np.mean([[e for _, _, e in row["pruned"]] for row in own], axis=0)
        relative = errors / own[0]["plain"][2].mean()
        low, high = Estimate.of(relative[0] - relative[-1]).interval()
        harm = ", ".join(f"k={i}: {x:.3g}" for i, x in enumerate(relative.mean(axis=1)))
        words = f"pruning a shallow layer moves more of the path ({name})"
        falls = "sum over t of |log ratio of ||G_t||| falls with k"
        found = ", ".join(f"k={i}: {x:.2f}" for i, x in enumerate(by_layer))
        held = by_layer[0] > by_layer[-1]
        stated += [Claim(words, found, held, falls)]
        words = f"pruning a shallow layer harms more ({name})"
        by = "error over the unpruned error larger for the first layer than for the "
        by += "last, 95 % interval of the paired difference above 0"
        found = f"{harm}; first minus last {low:.2g} to {high:.2g}"
        stated += [Claim(words, found, low > 0, by)]
        for kind in KINDS:
            updates = [row["delta_W ratio"][0] for row in of(rows, name, kind)]
            grown = largest(np.diag(ratio).max() for ratio in updates)
            words = f"pruning {kind} lowers ||dW_k|| of its layer ({name})"
            bound = "ratio at t = k at most 1 for every k and rank"
            found, held = f"largest ratio {grown:.3f}", grown <= 1 + 1e-9
            stated += [Claim(words, found, held, bound)]
        rises = float(np.mean([(ratio[t > k] > 1).mean() for ratio in ratios]))
        words = f"pruning lowers the later ||G_t|| ({name})"
        found, held = f"{rises:.0%} of the ratios at t > k are above 1", rises < 0.5
        stated += [Claim(words, found, held, "ratios at t > k below 1")]
    return stated


def tables(config: Config, rows: list[dict]) -> list[Any]:
    """For each stack its norms, and the ratios for a first, middle and last layer."""
    L, found = config.linear.num_layers, []
    for name in dict.fromkeys(row["stack"] for row in rows):
        own = of(rows, name)
        dim, terms, errors = own[0]["plain"]
        lines = [{"": f"||{which}||"} for which in NORMS] + [{"": "m_t"}, {"": "T_t"}]
        norms = [geometric_mean(own[0][f"{which}_unpruned"]) for which in NORMS]
        for t in range(L):
            cells = [f"{mean[t]:.3g} ({error[t]:.1g})" for mean, error in norms]
            cells += [dim[t], f"{terms[t]:.1f}"]
            for line, cell in zip(lines, cells, strict=True):
                line[f"t = {t}"] = cell
        title = f"{name}, unpruned: error / d = {errors.mean():.3g}, sum of T_t = "
        found.append(frame.table(lines, title=title + f"{terms.sum():.1f}"))
        lines = []
        for row, k in itertools.product(own, sorted({0, L // 2, L - 1})):
            line = {"pruned": f"{row['matrix']} {k}, r={row['rank']}"}
            for t, ratio in enumerate(row["G ratio"][0][k]):
                line[f"t = {t}"] = "1" if t < k else f"{ratio:.2f}"
            m, cut_terms, cut_errors = row["pruned"][k]
            line |= {"m_k": m[k], "sum T": f"{cut_terms.sum():.0f}"}
            line["error ratio"] = f"{cut_errors.mean() / errors.mean():.3g}"
            lines.append(line)
        uncertain = max(row["G ratio"][1].max() for row in own)
        title = f"{name}: ||G_t|| over the unpruned, one matrix of layer k cut to rank "
        title += f"r (geometric means, standard errors up to {uncertain:.1g})"
        found.append(frame.table(lines, title=title))
    return found


def draw_lines(panels: dict[str, dict], title: str, ylabel: str) -> Any:
    """Curves against depth; a curve without a finite entry is left out."""
    with panel_grid(panels, 3, title, (3.6, 2.7), legend=False) as (made, shown, _):
        for axes, lines in zip(shown, panels.values(), strict=True):
            # A term is infinite if N is too small to estimate the prior's covariance.
            finite = {k: v for k, v in lines.items() if np.isfinite(v[0]).any()}
            if finite:
                error_curves(finite, ax=axes, xlabel="layer t", ylabel=ylabel)
    return made


def geometric(values: Any) -> Curve:
    """The geometric mean over prompts with one standard error."""
    logs = Estimate.of(np.log(np.asarray(values, float)))
    mean, error = np.exp(logs.mean), np.exp(logs.standard_error)
    return Curve(mean, mean / error, mean * error)


def draw_ratios(panels: dict[str, np.ndarray], title: str) -> Any:
    """Heat maps of the ratio at layer t when layer k is pruned, on a log scale."""
    import matplotlib.pyplot as plt

    def short(log):
        if log == 0:  # unchanged to the bit
            return ""
        value = np.exp(log)
        if 0.01 <= value < 9.995:
            return f"{value:.2f}"
        text = f"{value:.0f}" if 1 < value < 999.5 else f"{value:.0e}"
        return text.replace("e+0", "e")

    with plt.rc_context({**STYLE, "font.size": 9, "axes.grid": False}):
        made, grid = axes_in_rows(len(panels), 3, (2.8, 2.5), (0.6, 0.4))
        look = {"xlabel": "", "ylabel": "", "limit": float(np.log(4.0)), "write": short}
        images = [
            heat_map(np.log(ratios), ax=axes, title=name, **look)
            for axes, (name, ratios) in zip(grid.flat, panels.items(), strict=False)
        ]
        for axes, ratios in zip(grid.flat, panels.values(), strict=False):
            if np.all(ratios == 1.0):
                middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
                axes.text(0.5, 0.5, "unchanged", **middle)
        plt.setp(grid[-1], xlabel="layer t")
        plt.setp(grid[:, 0], ylabel="pruned layer k")
        bar = made.colorbar(images[0], ax=grid, shrink=0.6, extend="both")
        ticks = (0.25, 0.5, 1.0, 2.0, 4.0)
        bar.set_ticks(np.log(ticks).tolist(), labels=[f"{tick:g}" for tick in ticks])
        made.suptitle(title)
    return made


def report(config: Config, rows: list[dict]) -> Report:
    L, rank = config.linear.num_layers, min(config.ranks)
    count = f"{config.prompts:,} prompts"
    maps, updates, terms = {}, {}, {}
    symbols = {"delta_W": r"$\|\Delta W_t\|$", "G": r"$\|G_t\|$"}
    for row in (row for row in rows if row["rank"] == rank):
        name, panel = row["stack"], f"{row['stack']}, ${row['matrix']}$ to rank {rank}"
        maps[panel] = row["G ratio"][0]
        updates[name] = {}
        for which, symbol in symbols.items():
            updates[name][symbol] = geometric(row[f"{which}_unpruned"])
        if row["matrix"] == "W_K":
            terms[name] = {"unpruned": Curve(row["plain"][1])}
            for k in sorted({0, L - 1}):
                terms[name][f"layer {k} pruned"] = Curve(row["pruned"][k][1])
    average = f"(geometric mean and standard error, {count})"
    norms = f"Norms of the implicit updates along depth {average}"
    theorem = "Theorem 2 by layer, whole and with $W_K$ of one layer cut to rank "
    theorem += f"{rank}\nbound: $R\\,(\\Sigma_t T_t / N)^{{1/2}}$ "
    theorem += f"(N = {config.linear.num_points - 1}, b = {config.shots}, {count})"
    ratios = r"$\|G_t\|$ with layer k pruned, over the unpruned "
    ratio = [f"pruned.*.{which} ratio [k][t]" for which in NORMS]
    both = ["pruned layer k", "layer t"]
    return Report(
        numbers(rows),
        checks=checks(config, rows),
        tables=tables(config, rows),
        claims=claims(config, rows),
        claims_title="the paper's claims on these stacks",
        figures={
            "norms.png": draw_lines(updates, norms, "Frobenius norm"),
            "terms.png": draw_lines(terms, theorem, "term $T_t$ of the layer"),
            "ratios.png": draw_ratios(maps, f"{ratios}(geometric mean, {count})"),
        },
        interval_level=0.95,
        axes={"unpruned.*.*": ["layer t"]} | dict.fromkeys(ratio, both),
    )


@frame.experiment(PRESETS)
def main(config, run):
    with run.phase("training"):
        trained = train(config.linear, run)
    # Norms that cancel along the path need float64; training does not.
    with run.phase("trajectories"), jax.enable_x64(True):
        rows = measure(config, stacks(config, trained), prompts(config))
    return report(config, rows)


frame.program(__name__, main)
