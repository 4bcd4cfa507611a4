"""Arms of Algorithm 1: a random layer, and other methods to clip the same matrices.

Every arm searches the same rates on the same validation examples, and its choice is
judged once on the same test set.
"""

import dataclasses
import zlib
from typing import Any

import numpy as np
from rich.table import Table

from experiments.prune_llm.methods import ARMS, CONDITION, NAMES
from experiments.prune_llm.study import Study
from experiments.prune_llm.subject import TaskDraw
from icltheory.bridge.layer_search import Algorithm1Result, read_algorithm1
from icltheory.statistics import Comparison, Estimate, adjust_holm, compare


@dataclasses.dataclass(frozen=True, eq=False)
class ArmRow:
    """Choice of one arm for a task and a module, with its test result.

    Attributes:
        arm: Its name in the config.
        case: The task and its demonstrations.
        module: The pruned module.
        result: Choice and test against the unpruned model.
        kept: Parameters that the choice leaves of the module, as a share.
        against: The arm against Algorithm 1 on the test set; ``None`` for that itself.
        holm: p-value of the gain after Holm's correction over all arms and pairs.
        against_holm: p-value of the difference, corrected over those of all arms.
    """

    arm: str
    case: TaskDraw
    module: str
    result: Algorithm1Result
    kept: float
    against: Comparison | None
    holm: float = 1.0
    against_holm: float = 1.0


def random_layer(study: Study, case: TaskDraw, module: str) -> int:
    """Draws a layer at random, independently for each case and module."""
    text = f"{case.task} {case.shots} {case.seed} {case.order} {module}"
    rng = np.random.default_rng([study.config.seed, zlib.crc32(text.encode())])
    return int(rng.integers(study.num_layers))


def arm_layer(study: Study, arm: str, case: TaskDraw, module: str) -> int:
    """Returns the layer that an arm prunes."""
    if ARMS[arm].random_layer:
        return random_layer(study, case, module)
    return study.choice(module)[0]


def arm_rows(study: Study, cases: list[TaskDraw]) -> list[ArmRow]:
    """Returns the rows of all arms, cases and modules, with Holm's correction."""
    rows = []
    for case in cases:
        for module in study.config.modules:
            own = _right(study, CONDITION, case, module)
            for arm in (CONDITION, *study.config.arms):
                found, right = _right(study, arm, case, module)
                against = None
                if arm != CONDITION:
                    against = compare(own[1], right, level=study.config.level)
                kept = study.kept_share(found.layer, module, found.rate)
                rows.append(ArmRow(arm, case, module, found, kept, against))
    gains = _corrected([r.result.p_value if r.result.rate else None for r in rows])
    others = _corrected([r.against.p_value if r.against else None for r in rows])
    return [
        dataclasses.replace(row, holm=gain, against_holm=other)
        for row, gain, other in zip(rows, gains, others, strict=True)
    ]


def _right(
    study: Study, arm: str, case: TaskDraw, module: str
) -> tuple[Algorithm1Result, np.ndarray]:
    """Returns an arm's result, and which test answers of its choice are right."""
    layer, answers = arm_layer(study, arm, case, module), study.answers_of(arm, case)
    config = study.config
    options = {"race": config.race, "seed": config.seed, "level": config.level}
    found = read_algorithm1(answers, layer, module, study.rates(module), **options)
    return found, answers.correct("test", layer, module, (found.rate,))[0]


def _corrected(p_values: list[float | None]) -> list[float]:
    """Applies Holm's correction to the p-values that exist; the others become 1."""
    tested = [p for p in p_values if p is not None]
    found = iter(adjust_holm(tested) if tested else [])
    return [1.0 if p is None else float(next(found)) for p in p_values]


def arm_means(study: Study, rows: list[ArmRow]) -> list[dict[str, Any]]:
    """Mean gain of each arm over draws, then over pairs of a task and a module.

    The standard error is that over pairs of a task and a module, whose draws share
    their test examples.
    """
    found = []
    for arm in (CONDITION, *study.config.arms):
        pairs: dict[tuple[str, str], list[Algorithm1Result]] = {}
        for row in rows:
            if row.arm == arm:
                pairs.setdefault((row.case.task, row.module), []).append(row.result)
        every = [result for results in pairs.values() for result in results]
        numbers: dict[str, Any] = {
            "arm": arm,
            "pairs": len(pairs),
            "searches": len(every),
            "pruned": sum(result.rate > 0 for result in every),
            "evaluations": sum(result.evaluations for result in every),
        }
        for name, gain in _GAINS.items():
            per_pair = [np.mean([gain(r) for r in some]) for some in pairs.values()]
            numbers[name] = float(np.mean(per_pair))
            error = Estimate.of(per_pair).standard_error if len(pairs) > 1 else np.nan
            numbers[f"{name} standard error"] = float(error)
        found.append(numbers)
    return found


_GAINS = {
    "validation gain": lambda r: r.validation_score - r.unpruned_score,
    "corrected gain": lambda r: (
        0.0 if r.selection is None else r.selection.corrected - r.selection.unpruned
    ),
    "test gain": lambda r: r.comparison.difference,
}


def arm_table(rows: list[ArmRow]) -> Table:
    """Builds the table of every arm's first choice with its test result."""
    table = Table(
        title="Arms of Algorithm 1: gain on the test set of the choice made on "
        "validation, and its difference from the choice of plain SVD\n(score "
        "intervals, exact paired tests with Holm over all arms and rows; kept: "
        "parameters of the module, min(r (m + n), m n) for each matrix)"
    )
    for name in ("task", "module", "arm", "layer", "rate", "kept", "gain", "Holm"):
        table.add_column(name)
    for name in ("against plain SVD", "Holm against plain SVD"):
        table.add_column(name)
    for row in rows:
        r = row.result
        table.add_row(
            row.case.task,
            row.module,
            NAMES[row.arm],
            f"{r.layer}",
            f"{r.rate:g}",
            f"{row.kept:.0%}",
            _with_interval(r.comparison) if r.rate else "-",
            f"{row.holm:.2g}" if r.rate else "-",
            _with_interval(row.against) if row.against else "-",
            f"{row.against_holm:.2g}" if row.against else "-",
        )
    return table


def _with_interval(found: Comparison) -> str:
    ends = f"\\[{found.interval.low:+.3f}, {found.interval.high:+.3f}]"
    return f"{found.difference:+.4f} {ends}"


def means_table(means: list[dict[str, Any]]) -> Table:
    """Builds the table of the arms' mean gains over all pairs and draws."""
    table = Table(
        title=f"Arms over {means[0]['pairs']} pairs of a task and a module and all "
        "draws: mean gain +- standard error over pairs"
    )
    for name in ("arm", "searches", "pruned", "evaluations", *_GAINS):
        table.add_column(name)
    for m in means:
        gains = [f"{m[g]:+.4f} +- {m[f'{g} standard error']:.4f}" for g in _GAINS]
        counts = [f"{m[name]:,}" for name in ("searches", "pruned", "evaluations")]
        table.add_row(NAMES[m["arm"]], *counts, *gains)
    return table


def arm_findings(
    study: Study, rows: list[ArmRow], means: list[dict[str, Any]]
) -> list[str]:
    """Compares each arm with Algorithm 1 by plain SVD, in sentences."""
    at = {m["arm"]: m for m in means}
    sure = 1 - study.config.level
    told = []
    for arm in study.config.arms:
        own = [row for row in rows if row.arm == arm]
        tested = [(row.against, row.against_holm) for row in own if row.against]
        better = sum(p <= sure and c.difference > 0 for c, p in tested)
        worse = sum(p <= sure and c.difference < 0 for c, p in tested)
        told.append(
            f"Arm {NAMES[arm]}: test gain {_pm(at[arm])}, that of plain SVD "
            f"{_pm(at[CONDITION])} (mean over {at[arm]['pairs']} pairs, draws "
            f"averaged); of {len(own)} paired comparisons {better} are better than "
            f"plain SVD and {worse} worse after Holm."
        )
    return told


def _pm(means: dict[str, Any]) -> str:
    return f"{means['test gain']:+.4f} +- {means['test gain standard error']:.4f}"


def as_numbers(row: ArmRow) -> dict[str, Any]:
    """Converts a row for ``result.json``."""
    r = row.result
    return {
        **row.case._asdict(),
        "arm": row.arm,
        "module": row.module,
        "layer": r.layer,
        "rate": r.rate,
        "kept": row.kept,
        "evaluations": r.evaluations,
        **{name: float(gain(r)) for name, gain in _GAINS.items()},
        "p_value": r.p_value,
        "holm": row.holm,
        "against": None if row.against is None else dataclasses.asdict(row.against),
        "against_holm": row.against_holm,
    }
