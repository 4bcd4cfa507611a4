"""Builds the tables, figures and checks of a run."""

from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments.pattern_dynamics.config import Config
from experiments.pattern_dynamics.drawing import paths, steps_against_shares
from experiments.pattern_dynamics.measure import Trained
from icltheory.statistics import Estimate

Found = dict[tuple[float, float], Trained]


class Laws(NamedTuple):
    """Two laws with two parameters each, fitted to the same steps by least squares.

    Attributes:
        power: C and exponent of C alpha^exponent.
        power_error: Its largest relative error.
        sum: A and B of A / alpha + B.
        sum_error: Its largest relative error.
    """

    power: tuple[float, float]
    power_error: float
    sum: tuple[float, float]
    sum_error: float


def fitted(shares: Any, steps: Any) -> Laws:
    """Fits both laws by relative least squares; NaN for fewer than three steps."""
    shares, steps = np.asarray(shares, float), np.asarray(steps, float)
    known = np.isfinite(steps)
    shares, steps = shares[known], steps[known]
    if len(steps) < 3:
        return Laws((np.nan, np.nan), np.nan, (np.nan, np.nan), np.nan)
    exponent, log_C = np.polyfit(np.log(shares), np.log(steps), 1)
    columns = np.stack([1 / shares, np.ones_like(shares)], axis=1) / steps[:, None]
    A, B = np.linalg.lstsq(columns, np.ones_like(steps), rcond=None)[0]

    def error(law):
        return float(np.abs(law / steps - 1).max())

    return Laws(
        (float(np.exp(log_C)), float(exponent)),
        error(np.exp(log_C) * shares**exponent),
        (float(A), float(B)),
        error(A / shares + B),
    )


def slopes(shares: Any, steps: Any) -> np.ndarray:
    """Slopes between neighbouring points on log-log axes."""
    return np.diff(np.log(steps)) / np.diff(np.log(shares))


def report(config: Config, found: Found, jumps: np.ndarray) -> Report:
    """Builds the report of a run."""
    laws = {
        scale: fitted(config.shares, _mean_steps(config, found, scale))
        for scale, _ in config.scales
    }
    limit = fitted(config.small_shares, jumps)
    numbers = {
        "settings": {_name(*key): _numbers(config, one) for key, one in found.items()},
        "laws": {f"beta {scale:g}": law._asdict() for scale, law in laws.items()},
        "jump": {
            "steps": jumps.tolist(),
            "slopes": slopes(config.small_shares, jumps).tolist(),
            "laws": limit._asdict(),
        },
    }
    return Report(
        numbers,
        checks=checks(config, found),
        tables=[steps_table(config, found), jump_table(config, jumps)],
        claims=claims(config, found, laws, jumps),
        findings=[
            f"beta = {scale:g}: steps = {law.sum[0]:.1f} / alpha + {law.sum[1]:.1f} to "
            f"{law.sum_error:.1%}, {law.power[0]:.0f} alpha^{law.power[1]:.3f} to "
            f"{law.power_error:.1%}"
            for scale, law in laws.items()
        ],
        figures=_figures(config, found, laws),
        axes={
            "settings.*.steps": ["seed"],
            "settings.*.predicted steps": ["seed"],
            "jump.steps": ["share"],
            "jump.slopes": ["pair of neighbouring shares"],
        },
    )


def _name(scale: float, share: float) -> str:
    return f"beta {scale:g}, alpha {share:g}"


def _mean_steps(config: Config, found: Found, scale: float) -> list[float]:
    return [found[scale, x].steps(config.goal).mean() for x in config.shares]


def _numbers(config: Config, one: Trained) -> dict[str, Any]:
    return {
        "steps": one.steps(config.goal).tolist(),
        "predicted steps": one.predicted_steps(config.goal).tolist(),
        "attention at the end": float(one.masses[:, -1].mean()),
        "predicted attention at the end": float(one.predicted.masses[:, -1].mean()),
        "loss at the end": float(one.losses[:, -20:].mean()),
        "predicted loss at the end": float(one.predicted.losses[:, -1].mean()),
    }


def checks(config: Config, found: Found) -> list[Check]:
    """Checks the prediction against training at the setting of largest difference."""

    def farthest(distance):
        values = {_name(*key): float(distance(one)) for key, one in found.items()}
        # NaN means that a training did not reach the goal, and counts as the largest
        # distance.
        name = max(values, key=lambda k: np.nan_to_num(values[k], nan=np.inf))
        return name, values[name]

    def steps(one):
        ratio = one.predicted_steps(config.goal) / one.steps(config.goal)
        return np.abs(ratio - 1).max()

    def attention(one):
        return np.abs(one.masses[:, -1] - one.predicted.masses[:, -1]).max()

    parts = (
        ("steps, predicted over trained less 1", steps, 0.05),
        ("attention at the end, predicted less trained", attention, 0.015),
    )
    made = []
    for name, distance, limit in parts:
        where, value = farthest(distance)
        made.append(Check(f"{name}, largest over seeds ({where})", value, limit, "<="))
    return made


def claims(config: Config, found: Found, laws: dict[float, Laws], jumps) -> list[Claim]:
    """Compares Theorem 1's exponent with that of the reduced dynamics."""
    local = slopes(config.small_shares, jumps)
    made = []
    for scale, law in laws.items():
        own = slopes(config.shares, _mean_steps(config, found, scale))
        made.append(
            Claim(
                claim=f"beta = {scale:g}: steps grow as alpha^(-2/3) (Theorem 1)",
                expected="slopes between neighbouring alpha are -2/3",
                measured=", ".join(f"{x:.2f}" for x in own),
                held=np.abs(own + 2 / 3).max() < 0.05,
            )
        )
        made.append(
            Claim(
                claim=f"beta = {scale:g}: steps are A / alpha + B",
                expected="a smaller largest error than any power",
                measured=f"{law.sum_error:.1%}, power {law.power_error:.1%}",
                held=law.sum_error < law.power_error,
            )
        )
    made.append(
        Claim(
            claim="as alpha falls the exponent goes to -1 (reduced dynamics)",
            expected="slopes fall, and the last one is below -0.95",
            measured=", ".join(f"{x:.3f}" for x in local),
            held=np.all(np.diff(local) < 0) and local[-1] < -0.95,
        )
    )
    return made


def steps_table(config: Config, found: Found) -> Table:
    """Builds the table of training steps, measured and predicted."""
    table = Table(
        title=f"steps to a hinge loss below {config.goal:g}, {len(config.seeds)} seeds "
        "(standard error)"
    )
    table.add_column("setting")
    for head in ("trained", "predicted", "ratio", "attention", "predicted attention"):
        table.add_column(head, justify="right")
    for key, one in found.items():
        steps, predicted = one.steps(config.goal), one.predicted_steps(config.goal)
        ratio = Estimate.of(predicted / steps)
        table.add_row(
            _name(*key),
            _cell(Estimate.of(steps), 0),
            _cell(Estimate.of(predicted), 0),
            _cell(ratio, 3),
            f"{one.masses[:, -1].mean():.3f}",
            f"{one.predicted.masses[:, -1].mean():.3f}",
        )
    return table


def _cell(estimate: Estimate, digits: int) -> str:
    more = max(digits, 1)
    return f"{estimate.mean:.{digits}f} ({estimate.standard_error:.{more}f})"


def jump_table(config: Config, jumps: np.ndarray) -> Table:
    """Builds the table of steps until attention jumps, for decreasing alpha."""
    table = Table(title="reduced dynamics alone: steps until attention jumps")
    for head in ("alpha", "steps", "alpha steps", "slope from the row above"):
        table.add_column(head, justify="right")
    local = ["", *(f"{x:.3f}" for x in slopes(config.small_shares, jumps))]
    for share, steps, slope in zip(config.small_shares, jumps, local, strict=True):
        table.add_row(f"{share:g}", f"{steps:.0f}", f"{share * steps:.1f}", slope)
    return table


def _figures(config: Config, found: Found, laws: dict[float, Laws]) -> dict[str, Any]:
    scales = [scale for scale, _ in config.scales]
    chosen = [(scales[0], config.shares[0]), (scales[0], config.shares[-2])]
    chosen.append((scales[-1], config.shares[2]))
    seeds = len(config.seeds)
    panels = {
        rf"$\beta$ = {scale:g}, $\alpha$ = {share:g}": found[scale, share]
        for scale, share in chosen
    }
    points = {
        rf"$\beta$ = {scale:g}": (
            np.stack([found[scale, x].steps(config.goal) for x in config.shares]),
            np.stack(
                [found[scale, x].predicted_steps(config.goal) for x in config.shares]
            ),
            laws[scale].sum,
        )
        for scale in scales
    }
    return {
        "paths.png": paths(
            panels,
            config.every,
            f"Training (lines, {seeds} seeds) and its reduced dynamics (dashed)",
        ),
        "steps.png": steps_against_shares(
            config.shares,
            points,
            f"Steps to a hinge loss below {config.goal:g}: trained (dots, {seeds} "
            "seeds) and predicted (crosses)",
        ),
    }
