"""Summarises the results of a study in sentences derived from its numbers."""

from typing import Any

import numpy as np
import scipy.special

from experiments.prune_llm.study import Study
from experiments.prune_llm.tables import TestedChoice, beyond_chance, panel, shots_curve
from experiments.prune_llm.theory import theory_finding
from icltheory.statistics import compare


def findings(
    study: Study,
    rows: list[TestedChoice],
    repeated: list[dict[str, Any]],
    raced: list[dict[str, Any]],
    theory: dict[str, Any] | None,
) -> list[str]:
    """Summarises each question's result in one or two sentences."""
    return [
        _helped(study, rows),
        _optimism(rows),
        *(_grid(study, task) for task in study.config.task_names),
        _depth(study),
        *_left_out(study),
        *_layer(study, rows),
        *_demonstrations(repeated, study.config.level),
        *_race(raced),
        *_shots(study),
        *theory_finding(study, theory),
    ]


def _helped(study: Study, rows: list[TestedChoice]) -> str:
    verdicts = [row.verdict(study.config.level) for row in rows]
    counts = {v: verdicts.count(v) for v in ("better", "worse", "could be chance")}
    pruned = sum(row.result.rate > 0 for row in rows)
    head = (
        "Pruning helped beyond chance"
        if counts["better"]
        else "Pruning did not help beyond chance"
    )
    return (
        f"{head}: Algorithm 1 pruned in {pruned} of {len(rows)} pairs of a task and a "
        f"module; on the test set {counts['better']} of them are better, "
        f"{counts['worse']} worse and {counts['could be chance']} could be chance, "
        f"after Holm's correction over the table."
    )


def _optimism(rows: list[TestedChoice]) -> str:
    chosen = [row.result for row in rows if row.result.rate > 0]
    if not chosen:
        return "No rate improved on the unpruned model on validation."
    promised = np.mean([r.validation_score - r.unpruned_score for r in chosen])
    kept = np.mean([r.comparison.difference for r in chosen])
    halves = [r.selection.corrected - r.unpruned_score for r in chosen if r.selection]
    between = (
        f", {np.mean(halves):+.4f} when chosen and judged on halves of them"
        if halves
        else ""
    )
    return (
        f"Where it pruned, the gain was {promised:+.4f} on the validation examples of "
        f"the choice{between}, and {kept:+.4f} on the test set, on "
        "average."
    )


def _grid(study: Study, task: str) -> str:
    found = beyond_chance(study, study.main_case(task))
    if not found["cells"]:
        return f"{task}: nothing was pruned in the grid."
    best = found["best"]
    return (
        f"{task}, the whole grid on validation: of {found['cells']} (layer, module, "
        f"rate) {found['better']} are better and {found['worse']} worse after Holm; "
        f"the best is {best['module']} of layer {best['layer']} at {best['rate']:g}, "
        f"{best['difference']:+.4f} (p = {best['holm']:.2g} after Holm)."
    )


def _depth(study: Study) -> str:
    """Compares the mean change at high rates between first and last layer."""
    modules = [m for m in study.config.modules if max(study.rates(m)) >= 0.5]
    if not modules or len(study.layers) < 2:
        return "The grid has no two layers at rates of 0.5 and more to compare."
    ends = []
    for task in study.config.task_names:
        for module in modules:
            found = panel(study, study.main_case(task), module)
            high = np.array(study.rates(module)) >= 0.5
            change = (found.accuracy - found.unpruned)[:, high].mean(axis=1)
            ends.append((change[0], change[-1]))
    first, last = np.mean(ends, axis=0)
    deeper = sum(b > a for a, b in ends)
    return (
        f"At rates of 0.5 and more, pruning layer {study.layers[0]} changes the "
        f"accuracy by {first:+.4f} and layer {study.layers[-1]} by {last:+.4f} on "
        f"average; the deep one bears it better in {deeper} of {len(ends)} pairs of a "
        "task and a module."
    )


def _left_out(study: Study) -> list[str]:
    """Lists the modules for which some rates were left out."""
    told = [f"{m}: {study.left_out(m)}" for m in study.config.modules]
    told = [sentence for sentence in told if not sentence.endswith(": ")]
    return [f"Rates that were left out of {'; '.join(told)}."] if told else []


def _layer(study: Study, rows: list[TestedChoice]) -> list[str]:
    """States whether condition numbers select the layer that gains most."""
    best, of = 0, 0
    for row in rows:
        if row.result.layer in study.layers:
            gains = panel(study, row.case, row.module).accuracy.max(axis=1)
            of += 1
            best += gains[study.layers.index(row.result.layer)] == gains.max()
    if not of:
        return []
    return [
        "The layer that Algorithm 1 chose by condition numbers has the best "
        f"validation score of the grid's layers in {best} of {of} pairs of a task and "
        "a module."
    ]


def _demonstrations(repeated: list[dict[str, Any]], level: float) -> list[str]:
    several = [r for r in repeated if r["num"] > 1]
    if not several:
        return []
    num = several[0]["num"]
    wide = float(scipy.special.stdtrit(num - 1, (1 + level) / 2))
    beyond = [
        r
        for r in several
        if abs(r["difference"]) > wide * r["difference standard error"] > 0
    ]
    return [
        f"Over {num} draws and orders of the demonstrations the mean difference on the "
        f"test set is more than {wide:.1f} standard errors from 0 (Student, "
        f"{100 * level:g} %, each pair by itself) in {len(beyond)} of "
        f"{len(several)} pairs"
        + "".join(
            f"; {r['task']}, {r['module']}: {r['difference']:+.4f} +- "
            f"{r['difference standard error']:.4f}"
            for r in beyond
        )
        + "."
    ]


def _race(raced: list[dict[str, Any]]) -> list[str]:
    if not raced:
        return []
    saved = np.mean([r["saved"] for r in raced])
    same = sum(r["same choice"] for r in raced)
    of = sum(r["races"] for r in raced)
    return [
        f"Racing saves {saved:.0%} of the evaluations of the full grid on average and "
        f"makes the same choice in {same} of {of} races."
    ]


def _shots(study: Study) -> list[str]:
    told = []
    for task in study.config.task_names:
        curve = shots_curve(study, task)
        few, many = min(curve), max(curve)
        if few < many:
            found = compare(curve[few], curve[many], level=study.config.level)
            told.append(
                f"{task}: {few} demonstrations give {found.before:.3f}, {many} give "
                f"{found.after:.3f} ({found.verdict}, p = {found.p_value:.2g})."
            )
    return told
