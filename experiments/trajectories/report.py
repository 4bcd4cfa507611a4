"""Builds the tables, figures and checks of a run."""

from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report, largest
from experiments.trajectories.config import Config
from experiments.trajectories.drawing import (
    norms_along_depth,
    ratio_heat_maps,
    terms_along_depth,
)
from experiments.trajectories.measure import KINDS, Effect, Norms, geometric_mean
from icltheory.statistics import Estimate

Cases = dict[tuple[str, str, int], Norms]
Effects = dict[tuple[str, str, int, int], Effect]


def report(
    config: Config,
    cases: Cases,
    plain: dict[str, Effect],
    effects: Effects,
) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    tables = []
    for name in plain:
        tables.append(_plain_table(name, cases, plain[name]))
        tables.append(_ratio_table(name, config, cases, plain[name], effects))
    numbers = {
        "unpruned": {name: _plain(cases, name, plain[name]) for name in plain},
        "pruned": [_row(case, table, effects) for case, table in cases.items()],
        "precision": "float64 on float32 training",
    }
    return Report(
        numbers,
        checks=checks(config, cases),
        tables=tables,
        claims=claims(config, cases, plain, effects),
        claims_title="the paper's claims on these stacks",
        figures=_figures(config, cases, plain, effects),
        interval_level=0.95,
        axes={
            "unpruned.*.*": ["layer t"],
            "pruned.*.delta_W ratio [k][t]": ["pruned layer k", "layer t"],
            "pruned.*.G ratio [k][t]": ["pruned layer k", "layer t"],
        },
    )


def _of(cases: Cases, stack: str, kind: str | None = None) -> list[tuple[int, Norms]]:
    return [
        (rank, table)
        for (name, which, rank), table in cases.items()
        if name == stack and kind in (None, which)
    ]


def checks(config: Config, cases: Cases) -> list[Check]:
    """Checks consequences of Theorem 1, for these or for almost all weights."""
    L = config.linear.num_layers
    k, t = np.indices((L, L))
    before = largest(
        float(np.abs(after - unpruned[:, None])[:, t < k].max())
        for table in cases.values()
        for after, unpruned in (
            (table.delta_W, table.delta_W_unpruned),
            (table.G, table.G_unpruned),
        )
    )
    touched = -largest(
        -float(table.changed[:, t >= k].mean())
        for name in ("random", "trained")
        for _, table in _of(cases, name)
    )
    values = largest(
        float(np.abs(table.G - table.G_unpruned[:, None]).max() / table.G.max())
        for _, table in _of(cases, "gradient descent", "W_V")
    )
    later = largest(
        float((1 / table.ratios()[0][t > k]).max())
        for _, table in _of(cases, "gradient descent", "W_K")
    )
    first = largest(
        float(np.diag(table.ratios()[0]).max())
        for _, table in _of(cases, "gradient descent", "W_K")
    )
    return [
        Check("layers t < k: largest change of a norm", before, 0.0, "<="),
        Check(
            "random and trained: share of (prompt, k, t >= k) that changed",
            touched,
            1.0,
            "within",
            0.01,
        ),
        Check("gradient descent, W_V pruned: relative change", values, 1e-10, "<="),
        Check(
            "gradient descent, W_K pruned: 1 over the least ratio of later ||G_t||",
            later,
            1.0,
            "<=",
        ),
        Check(
            "gradient descent, W_K pruned: largest ratio of ||G_k||", first, 1.0, "<="
        ),
    ]


def claims(
    config: Config, cases: Cases, plain: dict[str, Effect], effects: Effects
) -> list[Claim]:
    """Claims of Remark 5 and the examples, and what was measured."""
    L = config.linear.num_layers
    k, t = np.indices((L, L))
    stated = []
    for name in plain:
        tables = [table for _, table in _of(cases, name)]
        moved = np.mean([np.abs(np.log(x.ratios()[0])) for x in tables], axis=0)
        by_layer = [float(moved[i][t[i] >= i].sum()) for i in range(L)]
        stated.append(
            Claim(
                claim=f"pruning a shallow layer moves more of the path ({name})",
                expected="sum over t of |log ratio of ||G_t||| falls with k",
                measured=", ".join(f"k={i}: {x:.2f}" for i, x in enumerate(by_layer)),
                held=bool(by_layer[0] > by_layer[-1]),
            )
        )
        harm, low, high = _harm(name, config, plain, effects)
        stated.append(
            Claim(
                claim=f"pruning a shallow layer harms more ({name})",
                expected="error over the unpruned error larger for the first layer "
                "than for the last, 95 % interval of the paired difference above 0",
                measured=f"{_by_layer(harm)}; first minus last {low:.2g} to {high:.2g}",
                held=bool(low > 0),
            )
        )
        for kind in KINDS:
            own = max(
                float(np.diag(x.ratios("delta_W")[0]).max())
                for _, x in _of(cases, name, kind)
            )
            stated.append(
                Claim(
                    claim=f"pruning {kind} lowers ||dW_k|| of its layer ({name})",
                    expected="ratio at t = k at most 1 for every k and rank",
                    measured=f"largest ratio {own:.3f}",
                    held=bool(own <= 1 + 1e-9),
                )
            )
        rises = float(np.mean([(x.ratios()[0][t > k] > 1).mean() for x in tables]))
        stated.append(
            Claim(
                claim=f"pruning lowers the later ||G_t|| ({name})",
                expected="ratios at t > k below 1",
                measured=f"{rises:.0%} of the ratios at t > k are above 1",
                held=bool(rises < 0.5),
            )
        )
    return stated


def _by_layer(values: list[float]) -> str:
    return ", ".join(f"k={k}: {value:.3g}" for k, value in enumerate(values))


def _harm(name, config, plain, effects) -> tuple[list[float], float, float]:
    """Relative error by pruned layer, averaged over kinds and ranks.

    The last two results are the ends of the 95 % interval, over prompts, of the first
    layer's error minus the last's.
    """
    cases = [(name, kind, rank) for kind in KINDS for rank in config.ranks]
    errors = np.array(
        [
            np.mean([effects[(*case, k)].errors for case in cases], axis=0)
            for k in range(config.linear.num_layers)
        ]
    )
    relative = errors / plain[name].errors.mean()
    difference = relative[0] - relative[-1]
    low, high = Estimate.of(difference).interval()
    return relative.mean(axis=1).tolist(), low, high


def _plain(cases: Cases, name: str, effect: Effect) -> dict[str, Any]:
    _, table = _of(cases, name)[0]
    numbers = {}
    for which in ("delta_W", "G"):
        mean, error = geometric_mean(getattr(table, f"{which}_unpruned"))
        numbers[which] = mean.tolist()
        numbers[f"{which} standard error"] = error.tolist()
    return numbers | {
        "support_dim": effect.support_dim.tolist(),
        "terms": effect.terms,
        "error": float(effect.errors.mean()),
    }


def _row(case, table: Norms, effects: Effects) -> dict[str, Any]:
    name, kind, rank = case
    row: dict[str, Any] = {"stack": name, "matrix": kind, "rank": rank}
    for which in ("delta_W", "G"):
        ratio, error = table.ratios(which)
        row[f"{which} ratio [k][t]"] = ratio.tolist()
        row[f"{which} standard error [k][t]"] = error.tolist()
    judged = [effects[(*case, k)] for k in range(table.G.shape[1])]
    row["support_dim [k][t]"] = [e.support_dim.tolist() for e in judged]
    row["sum of terms [k]"] = [e.terms.sum() for e in judged]
    row["error [k]"] = [float(e.errors.mean()) for e in judged]
    return row


def _plain_table(name: str, cases: Cases, effect: Effect) -> Table:
    numbers = _plain(cases, name, effect)
    L = len(effect.support_dim)
    table = Table(
        title=f"{name}, unpruned: error / d = {numbers['error']:.3g}, "
        f"sum of T_t = {effect.terms.sum():.1f}"
    )
    table.add_column("")
    for t in range(L):
        table.add_column(f"t = {t}", justify="right")
    for which in ("delta_W", "G"):
        pairs = zip(numbers[which], numbers[f"{which} standard error"], strict=True)
        table.add_row(f"||{which}||", *(f"{x:.3g} ({se:.1g})" for x, se in pairs))
    table.add_row("m_t", *(str(m) for m in effect.support_dim))
    table.add_row("T_t", *(f"{x:.1f}" for x in effect.terms))
    return table


def _ratio_table(name, config, cases, plain, effects) -> Table:
    """Builds the table of ratios of G_t for the first, a middle and the last layer."""
    L = config.linear.num_layers
    largest = max(norms.ratios()[1].max() for _, norms in _of(cases, name))
    table = Table(
        title=f"{name}: ||G_t|| over the unpruned, one matrix of layer k cut to rank r "
        f"(geometric means, standard errors up to {largest:.1g})"
    )
    table.add_column("pruned", no_wrap=True)
    for t in range(L):
        table.add_column(f"t = {t}", justify="right")
    for heading in ("m_k", "sum T", "error ratio"):
        table.add_column(heading, justify="right")
    for (stack, kind, rank), norms in cases.items():
        if stack != name:
            continue
        ratio, _ = norms.ratios()
        for k in sorted({0, L // 2, L - 1}):
            effect = effects[stack, kind, rank, k]
            cells = ["1" if t < k else f"{ratio[k, t]:.2f}" for t in range(L)]
            table.add_row(
                f"{kind} {k}, r={rank}",
                *cells,
                str(effect.support_dim[k]),
                f"{effect.terms.sum():.0f}",
                f"{effect.errors.mean() / plain.errors.mean():.3g}",
            )
    return table


def _figures(
    config: Config, cases: Cases, plain: dict[str, Effect], effects: Effects
) -> dict[str, Any]:
    names = list(dict.fromkeys(name for name, _, _ in cases))
    rank = min(config.ranks)
    count = f"{config.prompts:,} prompts"
    along, maps = {}, {}
    for name in names:
        for kind in KINDS:
            norms = cases[name, kind, rank]
            lines = {"unpruned": norms.G_unpruned}
            lines |= {
                f"layer {k} pruned": norms.G[:, k]
                for k in sorted({0, norms.G.shape[1] // 2, norms.G.shape[1] - 1})
            }
            panel = f"{name}, ${kind}$ to rank {rank}"
            along[panel], maps[panel] = lines, norms.ratios()[0]
    updates = {
        name: {
            r"$\|\Delta W_t\|$": cases[name, "W_V", rank].delta_W_unpruned,
            r"$\|G_t\|$": cases[name, "W_V", rank].G_unpruned,
        }
        for name in names
    }
    shown = sorted({0, config.linear.num_layers - 1})
    terms = {
        name: {"unpruned": plain[name].terms}
        | {f"layer {k} pruned": effects[name, "W_K", rank, k].terms for k in shown}
        for name in names
    }
    return {
        "norms.png": norms_along_depth(
            updates,
            "Norms of the implicit updates along depth "
            f"(geometric mean and standard error, {count})",
            "Frobenius norm",
        ),
        "terms.png": terms_along_depth(
            terms,
            "Theorem 2 by layer, whole and with $W_K$ of one layer cut to rank "
            f"{rank}\nbound: $R\\,(\\Sigma_t T_t / N)^{{1/2}}$ "
            f"(N = {config.linear.num_points - 1}, b = {config.shots}, {count})",
        ),
        "pruned_norms.png": norms_along_depth(
            along,
            r"$\|G_t\|$ with one matrix of one layer pruned "
            f"(geometric mean and standard error, {count})",
            r"$\|G_t\|$",
        ),
        "ratios.png": ratio_heat_maps(
            maps,
            r"$\|G_t\|$ with layer k pruned, over the unpruned "
            f"(geometric mean, {count})",
        ),
    }
