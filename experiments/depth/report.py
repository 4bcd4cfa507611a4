"""Builds the table, figures, checks and findings of a run."""

from rich.table import Table

from experiments._frame.report import Check, Report
from experiments.depth.classes import PLUS, STEPS
from experiments.depth.config import Config
from experiments.depth.drawing import layers_against_examples, risk_against_layers
from experiments.depth.free import CONTINUED, RANDOM
from experiments.depth.measure import Setting, Trained, limit_depths, phase_depths
from icltheory.statistics import Estimate

KINDS = (STEPS, PLUS, RANDOM, CONTINUED)
LINES = ("best gradient steps", "lower bound for linear layers")


def report(config: Config, settings: list[Setting]) -> Report:
    """Builds the report of a run."""
    exact, limit = phase_depths(config), limit_depths(config)
    of = f"{config.starts} starts, seed {config.seed}"
    return Report(
        {
            "draws": config.draws,
            "settings": {one.title: _numbers(one) for one in settings},
            "phase": {
                f"{error:g}": {"examples per dimension": x, "layers": y}
                for error, (x, y) in exact.items()
            },
        },
        checks=[check for one in settings for check in _checks(one)],
        findings=[line for one in settings for line in _findings(one)],
        tables=[_table(config, one) for one in settings],
        figures={
            "layers.png": risk_against_layers(
                {one.title: (_lines(one), _dots(one)) for one in settings},
                f"Linear attention against depth, best of {of}\nbars: 95 % intervals; "
                "without points whose interval is wider than their mean",
            ),
            "phase.png": layers_against_examples(
                exact,
                limit,
                f"Gradient steps that an error takes, d = {config.phase_dim}\n"
                "dashed: the limit of large prompts",
            ),
        },
        interval_level=0.95,
        axes={"settings.*.steps": ["layers L, from 1"]},
    )


def _numbers(one: Setting) -> dict:
    return {
        "steps": one.steps,
        "floor": one.floor,
        "trained": {
            f"{part.kind}, L = {part.layers}": {
                "risk": float(part.best.mean),
                "standard error": float(part.best.standard_error),
                "starts": part.starts.tolist(),
            }
            for part in one.trained
        },
    }


def _checks(one: Setting) -> list[Check]:
    """Checks that learned steps of up to three layers have the exact optimal risk."""
    return [
        Check(
            f"{one.title}, L = {part.layers}: learned gradient steps against the exact "
            "risk",
            float(part.best.mean),
            one.steps[part.layers - 1],
            "within",
            5 * float(part.best.standard_error),
        )
        for part in one.trained
        if part.kind == STEPS and part.layers <= 3
    ]


def _findings(one: Setting) -> list[str]:
    """States whether free weights fall below the lower bound."""
    found = []
    for L in sorted({part.layers for part in one.trained if part.kind == RANDOM}):
        if len(one.floor) < L:
            continue
        best = min(
            (
                part
                for part in one.trained
                if part.layers == L and part.kind in KINDS[2:]
            ),
            key=lambda part: float(part.best.mean),
        )
        low, high = (float(end) for end in best.best.interval(0.95))
        floor = one.floor[L - 1]
        place = "no farther than chance from"
        if _unresolved(best.best):
            place = "not measured well enough to be compared with"
        elif high < floor or low > floor:
            place = "below" if high < floor else "above"
        plus = next(p for p in one.trained if p.layers == L and p.kind == PLUS)
        found.append(
            f"{one.title}, L = {L}: the best free weights have "
            f"{float(best.best.mean):.3g} [{low:.3g}, {high:.3g}], {place} the lower "
            f"bound {floor:.3g}; GD++ has {float(plus.best.mean):.3g}, the best "
            f"gradient steps {one.steps[L - 1]:.3g}."
        )
    return found


def _unresolved(found: Estimate) -> bool:
    """Whether the mean is too uncertain, since rare prompts dominate it."""
    return not 2 * float(found.half_width(0.95)) < float(found.mean)


def _table(config: Config, one: Setting) -> Table:
    table = Table(
        title=f"risk / d, {one.title}; trained: best of {config.starts} starts "
        f"(free: {config.free_starts}) +- standard error"
    )
    table.add_column("L", justify="right", no_wrap=True)
    for name in (*LINES, *KINDS):
        table.add_column(name, justify="right")
    for L, steps in enumerate(one.steps, 1):
        floor = f"{one.floor[L - 1]:.3g}" if len(one.floor) >= L else "-"
        cells = (_cell(one.trained, kind, L) for kind in KINDS)
        table.add_row(str(L), f"{steps:.4g}", floor, *cells)
    return table


def _cell(trained: list[Trained], kind: str, layers: int) -> str:
    for part in trained:
        if (part.kind, part.layers) == (kind, layers):
            mean, error = (float(value) for value in part.best)
            return f"{mean:.3g} +- {error:.1g}"
    return "-"


def _lines(one: Setting) -> dict:
    values = dict(zip(LINES, (one.steps, one.floor), strict=True))
    return {name: (range(1, len(v) + 1), v) for name, v in values.items()}


def _dots(one: Setting) -> dict:
    found = {}
    for kind in KINDS:
        parts = [p for p in one.trained if p.kind == kind and not _unresolved(p.best)]
        found[kind] = (
            [part.layers for part in parts],
            [float(part.best.mean) for part in parts],
            [float(part.best.half_width(0.95)) for part in parts],
        )
    return found
