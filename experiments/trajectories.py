r"""Implicit gradient trajectories before and after pruning (Yao et al., Remark 5).

Measures ||dW_t|| and ||G_t|| of Theorem 1 along the depth of three stacks of linear
attention, random, gradient descent and trained, and again with one matrix of one layer
cut to a low rank, for every layer k, kind of matrix and rank. Beside them the dimension
m_t of the gradients, the terms of the corrected Theorem 2 (on the path without noise: a
diagnostic) and the error. Training is float32, the rest float64. Layers count from 0.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import (
    Check,
    Claim,
    Report,
    check_at_least,
    experiment,
    largest,
    program,
    table,
)
from experiments.shared.training import Recipe, linear_recipe, train
from icltheory import bounds, constructions, linalg, pruning, training
from icltheory.attention import LinearAttentionStack
from icltheory.plotting import Curve, error_curves, heat_map, panel_grid
from icltheory.plotting.grid import axes_in_rows
from icltheory.plotting.style import STYLE
from icltheory.statistics import Estimate

KINDS = ("W_V", "W_K", "W_Q")


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
        if self.linear.model != "linear":
            raise ValueError(f"linear.model: expected linear, got {self.linear.model}")
        if self.linear.num_layers < 2:
            layers = self.linear.num_layers
            raise ValueError(f"linear.num_layers: expected at least 2, got {layers}")
        n, N = self.linear.dim + 1, self.linear.num_points - 1
        if not self.ranks or not all(1 <= r < n for r in self.ranks):
            raise ValueError(
                f"ranks: expected at least one rank, each from 1 to {n - 1}, got "
                f"{self.ranks}"
            )
        check_at_least(self, 2, "prompts")
        if not 1 <= self.shots <= N:
            raise ValueError(f"shots: expected 1 to {N}, got {self.shots}")
        check_at_least(self, 0, "label_noise", "random_scale")


def _recipe(num_layers: int, dim: int, num_points: int, steps: int) -> Recipe:
    recipe = linear_recipe(num_layers, dim, steps)
    return dataclasses.replace(recipe, num_points=num_points)


PRESETS = {
    # N - 1 = 31 exceeds the 21 dimensions of the gradients, so the bound is finite.
    "cpu": Config(_recipe(6, 5, 33, 1500), ranks=(1, 3), prompts=256, shots=16),
    "gpu": Config(_recipe(12, 10, 101, 6000), ranks=(1, 3, 6), prompts=2048, shots=50),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "40 s, 2 cores"}


# --- what is compared


def stacks(config: Config, trained: Any) -> dict[str, LinearAttentionStack]:
    """Random, gradient-descent and trained stacks in the current precision."""
    L, d = config.linear.num_layers, config.linear.dim
    keys = jax.random.split(training.stream_key(config.linear.seeds[0], "init"), 3)
    scale = config.random_scale / math.sqrt(d + 1)
    random = (scale * jax.random.normal(k, (L, d + 1, d + 1)) for k in keys)
    found = {
        "random": LinearAttentionStack(*random),
        "gradient descent": constructions.gradient_descent(jnp.full(L, 0.5), d),
        "trained": trained.stack(),
    }
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


# --- what is measured: one row a stack, kind of matrix and rank


def geometric_mean(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Geometric mean over prompts, with its standard error.

    The norms are polynomials of the demonstrations, of degree up to 3^L; arithmetic
    means would be those of a few prompts.
    """
    mean, error = Estimate.of(np.log(np.asarray(values, float)))
    return np.exp(mean), np.exp(mean) * error


def measure(config: Config, compared: dict[str, Any], asked: Any) -> list[dict]:
    """Norms (prompts, k, t) of each pruned stack, and its effects by pruned layer k."""
    judge, scale = judge_of(config, *asked), 1.0 / asked[0].shape[1]
    found = []
    for name, stack in compared.items():
        plain = judge(stack)
        for kind in KINDS:
            for rank in config.ranks:

                @jax.jit
                def norms(stack, H, kind=kind, rank=rank):
                    def one(H):
                        return pruning.depth_table(
                            stack, H, kind, pruning.Rank(rank), scale=scale
                        )

                    return jax.vmap(one)(H)

                row: dict[str, Any] = {"stack": name, "matrix": kind, "rank": rank}
                row["plain"] = plain
                measured = norms(stack, asked[0]).to_dict()
                row |= {key: np.asarray(value) for key, value in measured.items()}
                for which in ("delta_W", "G"):
                    whole = row[f"{which}_unpruned"][:, None]
                    row[f"{which} ratio"] = geometric_mean(row[which] / whole)
                layers = range(config.linear.num_layers)
                row["pruned"] = [judge(cut(stack, k, kind, rank)) for k in layers]
                found.append(row)
    return found


def of(rows: list[dict], stack: str, kind: str | None = None) -> list[dict]:
    """The rows of a stack, and of a kind of matrix if one is given."""
    own = [row for row in rows if row["stack"] == stack]
    return [row for row in own if kind in (None, row["matrix"])]


# --- what is reported


def numbers(rows: list[dict]) -> dict[str, Any]:
    """Contents of ``result.json``."""
    unpruned = {}
    for row in rows:
        dim, terms, errors = row["plain"]
        unpruned[row["stack"]] = {
            **{
                f"{which}{end}": value.tolist()
                for which in ("delta_W", "G")
                for end, value in zip(
                    ("", " standard error"),
                    geometric_mean(row[f"{which}_unpruned"]),
                    strict=True,
                )
            },
            "support_dim": dim.tolist(),
            "terms": terms,
            "error": float(errors.mean()),
        }
    pruned = [
        {
            **{name: row[name] for name in ("stack", "matrix", "rank")},
            **{
                f"{which} {end} [k][t]": value.tolist()
                for which in ("delta_W", "G")
                for end, value in zip(
                    ("ratio", "standard error"), row[f"{which} ratio"], strict=True
                )
            },
            "support_dim [k][t]": [dim.tolist() for dim, _, _ in row["pruned"]],
            "sum of terms [k]": [terms.sum() for _, terms, _ in row["pruned"]],
            "error [k]": [float(errors.mean()) for _, _, errors in row["pruned"]],
        }
        for row in rows
    ]
    precision = "float64 on float32 training"
    return {"unpruned": unpruned, "pruned": pruned, "precision": precision}


def checks(config: Config, rows: list[dict]) -> list[Check]:
    """Consequences of Theorem 1, for these or for almost all weights."""
    k, t = np.indices((config.linear.num_layers,) * 2)
    descent = {kind: of(rows, "gradient descent", kind) for kind in KINDS}
    ratios = [row["G ratio"][0] for row in descent["W_K"]]

    def change(row, which):
        return np.abs(row[which] - row[f"{which}_unpruned"][:, None])

    before = largest(
        change(row, which)[:, t < k].max() for row in rows for which in ("delta_W", "G")
    )
    touched = -largest(
        -row["changed"][:, t >= k].mean()
        for name in ("random", "trained")
        for row in of(rows, name)
    )
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
        stated += [
            Claim(
                claim=f"pruning a shallow layer moves more of the path ({name})",
                expected="sum over t of |log ratio of ||G_t||| falls with k",
                measured=", ".join(f"k={i}: {x:.2f}" for i, x in enumerate(by_layer)),
                held=by_layer[0] > by_layer[-1],
            ),
            Claim(
                claim=f"pruning a shallow layer harms more ({name})",
                expected="error over the unpruned error larger for the first layer "
                "than for the last, 95 % interval of the paired difference above 0",
                measured=f"{harm}; first minus last {low:.2g} to {high:.2g}",
                held=low > 0,
            ),
        ]
        for kind in KINDS:
            grown = largest(
                np.diag(row["delta_W ratio"][0]).max() for row in of(rows, name, kind)
            )
            stated.append(
                Claim(
                    claim=f"pruning {kind} lowers ||dW_k|| of its layer ({name})",
                    expected="ratio at t = k at most 1 for every k and rank",
                    measured=f"largest ratio {grown:.3f}",
                    held=grown <= 1 + 1e-9,
                )
            )
        rises = float(np.mean([(ratio[t > k] > 1).mean() for ratio in ratios]))
        stated.append(
            Claim(
                claim=f"pruning lowers the later ||G_t|| ({name})",
                expected="ratios at t > k below 1",
                measured=f"{rises:.0%} of the ratios at t > k are above 1",
                held=rises < 0.5,
            )
        )
    return stated


def tables(config: Config, rows: list[dict]) -> list[Any]:
    """For each stack its norms, and the ratios for a first, middle and last layer."""
    L, found = config.linear.num_layers, []
    by_layer = {f"t = {t}": f"{{t{t}}}" for t in range(L)}
    for name in dict.fromkeys(row["stack"] for row in rows):
        own = of(rows, name)
        dim, terms, errors = own[0]["plain"]
        lines = {"m_t": [str(m) for m in dim], "T_t": [f"{x:.1f}" for x in terms]}
        for which in ("G", "delta_W"):
            pairs = zip(*geometric_mean(own[0][f"{which}_unpruned"]), strict=True)
            lines = {f"||{which}||": [f"{x:.3g} ({se:.1g})" for x, se in pairs]} | lines
        found.append(
            table(
                [{"head": head} | _numbered(cells) for head, cells in lines.items()],
                {"": "{head}"} | by_layer,
                f"{name}, unpruned: error / d = {errors.mean():.3g}, sum of T_t = "
                f"{terms.sum():.1f}",
            )
        )
        lines = [
            {
                "pruned": f"{row['matrix']} {k}, r={row['rank']}",
                **_numbered(
                    "1" if t < k else f"{row['G ratio'][0][k, t]:.2f}" for t in range(L)
                ),
                "m_k": row["pruned"][k][0][k],
                "terms": row["pruned"][k][1].sum(),
                "error": row["pruned"][k][2].mean() / errors.mean(),
            }
            for row in own
            for k in sorted({0, L // 2, L - 1})
        ]
        uncertain = max(row["G ratio"][1].max() for row in own)
        found.append(
            table(
                lines,
                {"pruned": "{pruned}"}
                | by_layer
                | {
                    "m_k": "{m_k}",
                    "sum T": "{terms:.0f}",
                    "error ratio": "{error:.3g}",
                },
                f"{name}: ||G_t|| over the unpruned, one matrix of layer k cut to rank "
                f"r (geometric means, standard errors up to {uncertain:.1g})",
            )
        )
    return found


def _numbered(cells: Any) -> dict[str, str]:
    return {f"t{t}": cell for t, cell in enumerate(cells)}


# --- what is drawn


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
    """Heat maps of the ratio at layer t when layer k is pruned.

    Colours are those of the logarithm and stop at a factor of 4; every cell says its
    number. Cells left of the diagonal are layers below the pruned one.
    """
    import matplotlib.pyplot as plt

    def short(log):
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
        for axes in grid[-1]:
            axes.set_xlabel("layer t")
        for axes in grid[:, 0]:
            axes.set_ylabel("pruned layer k")
        bar = made.colorbar(images[0], ax=grid, shrink=0.6, extend="both")
        ticks = (0.25, 0.5, 1.0, 2.0, 4.0)
        bar.set_ticks(np.log(ticks).tolist(), labels=[f"{tick:g}" for tick in ticks])
        made.suptitle(title)
    return made


def figures(config: Config, rows: list[dict]) -> dict[str, Any]:
    """Norms and terms along depth, pruned norms, and their ratios."""
    L, rank = config.linear.num_layers, min(config.ranks)
    some, count = sorted({0, L // 2, L - 1}), f"{config.prompts:,} prompts"
    along, maps, updates, terms = {}, {}, {}, {}
    for row in rows:
        if row["rank"] != rank:
            continue
        name, kind = row["stack"], row["matrix"]
        panel = f"{name}, ${kind}$ to rank {rank}"
        lines = {"unpruned": row["G_unpruned"]}
        lines |= {f"layer {k} pruned": row["G"][:, k] for k in some}
        along[panel] = {label: geometric(values) for label, values in lines.items()}
        maps[panel] = row["G ratio"][0]
        if kind == "W_V":
            updates[name] = {
                r"$\|\Delta W_t\|$": geometric(row["delta_W_unpruned"]),
                r"$\|G_t\|$": geometric(row["G_unpruned"]),
            }
        if kind == "W_K":
            lines = {"unpruned": row["plain"][1]}
            ends = sorted({0, L - 1})
            lines |= {f"layer {k} pruned": row["pruned"][k][1] for k in ends}
            terms[name] = {label: Curve(values) for label, values in lines.items()}
    average = f"(geometric mean and standard error, {count})"
    return {
        "norms.png": draw_lines(
            updates,
            f"Norms of the implicit updates along depth {average}",
            "Frobenius norm",
        ),
        "terms.png": draw_lines(
            terms,
            "Theorem 2 by layer, whole and with $W_K$ of one layer cut to rank "
            f"{rank}\nbound: $R\\,(\\Sigma_t T_t / N)^{{1/2}}$ "
            f"(N = {config.linear.num_points - 1}, b = {config.shots}, {count})",
            "term $T_t$ of the layer",
        ),
        "pruned_norms.png": draw_lines(
            along,
            rf"$\|G_t\|$ with one matrix of one layer pruned {average}",
            r"$\|G_t\|$",
        ),
        "ratios.png": draw_ratios(
            maps,
            r"$\|G_t\|$ with layer k pruned, over the unpruned "
            f"(geometric mean, {count})",
        ),
    }


def report(config: Config, rows: list[dict]) -> Report:
    """Numbers, checks, claims, tables and figures of the run."""
    return Report(
        numbers(rows),
        checks=checks(config, rows),
        tables=tables(config, rows),
        claims=claims(config, rows),
        claims_title="the paper's claims on these stacks",
        figures=figures(config, rows),
        interval_level=0.95,
        axes={
            "unpruned.*.*": ["layer t"],
            "pruned.*.delta_W ratio [k][t]": ["pruned layer k", "layer t"],
            "pruned.*.G ratio [k][t]": ["pruned layer k", "layer t"],
        },
    )


@experiment(PRESETS)
def main(config, run):
    """Trains a stack, prunes it and its companions, and reports."""
    with run.phase("training"):
        trained = train(config.linear, run)
    # Norms that cancel along the path need float64; training does not.
    with run.phase("trajectories"), jax.enable_x64(True):
        rows = measure(config, stacks(config, trained), prompts(config))
    return report(config, rows)


program(__name__, main)
