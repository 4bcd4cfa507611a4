"""Builds the tables, checks and claims of a run."""

import dataclasses
from typing import Any

import numpy as np
from rich.table import Table

from experiments._frame.report import Check, Claim, Report
from experiments._trained import TrainedModels, gradient_descent_errors
from experiments.prune_icl.analysis import (
    PruningMeasurements,
    condition_by_depth,
    depth_effect,
    improvements,
    inflation,
    inflation_against_condition,
    magnitude_depth,
    shot_effect,
    spectra,
    weights_unchanged,
)
from experiments.prune_icl.config import Config
from experiments.prune_icl.figures import draw
from experiments.prune_icl.subjects import CONDITIONS
from icltheory import training
from icltheory.regression import Bayes, estimate_risk
from icltheory.statistics import adjust_holm


def report(
    trained: list[TrainedModels], measured: list[PruningMeasurements], config: Config
) -> Report:
    """Builds the tables, figures, claims, checks and numbers of a run."""
    found = [check for m in measured for check in _checks(m)]
    found.append(_stack_against_descent(trained[-1], measured[-1]))
    tested = {
        m.subject.name: {c: improvements(m, config, c) for c in CONDITIONS}
        for m in measured
    }
    tables = []
    for m in measured:
        tables += [_unpruned_table(m, config.label_noise), _inflation_table(m)]
    tables += [_multiplicity_table(tested), _choice_table(measured, config)]
    numbers = {
        "improvements": tested,
        "subjects": {m.subject.name: _numbers(m) for m in measured},
        "precision": "float32",
    }
    return Report(
        numbers,
        checks=found,
        tables=tables,
        claims=claims(measured, config),
        claims_title="the paper's claims on these models",
        figures=draw(measured, config),
        interval_level=config.level,
        axes={
            "subjects.*.errors (shots, seeds, layers, modules, rates).*": [
                "in-context examples",
                "seed",
                "layer",
                "module",
                "clipping rate",
            ]
        },
    )


def _checks(m: PruningMeasurements) -> list[Check]:
    """Checks identities that hold for any pruning."""
    name, rate0 = m.subject.name, m.errors[0, :, :, 0]
    spread = np.abs(rate0 - rate0[:1, :1]).max()
    plain = m.plain
    bulk = np.abs(rate0[0, 0] - plain).mean() / plain.mean()
    d = m.subject.recipe.dim
    at = m.subject.shots.index(2 * d) if name == "GPT-2" else len(m.subject.shots) - 1
    worst = m.unpruned("standard", at).mean(axis=1).max()
    unchanged = weights_unchanged(m.subject)
    return [
        Check(f"{name}: rate 0 changes no weight", unchanged, 0, "<="),
        Check(
            f"{name}: rate 0 against a plain forward pass, relative",
            float(bulk),
            0,
            "within",
            1e-4,
        ),
        Check(
            f"{name}: rate 0 of all layers and modules, spread over the error",
            float(spread / plain.mean()),
            0,
            "within",
            1e-3,
        ),
        Check(
            f"{name}: error / d at k = {m.subject.shots[at]}, worst seed",
            float(worst),
            0.05,
            "<=",
        ),
    ]


def _stack_against_descent(out: TrainedModels, m: PruningMeasurements) -> Check:
    recipe = out.recipe
    key = training.stream_key(recipe.seeds[0], "evaluation")
    prompt = recipe.task().sample(key, recipe.num_points - 1, 1024)
    errors, _ = gradient_descent_errors(recipe, prompt, recipe.num_layers)
    return Check(
        f"linear stack against {recipe.num_layers} tuned steps of gradient descent",
        float(m.unpruned("standard").mean()),
        float(errors.mean()),
        "<=",
    )


def claims(measured: list[PruningMeasurements], config: Config) -> list[Claim]:
    """The paper's claims, their predictions here, and what was measured."""
    stated = []
    for m in measured:
        name = m.subject.name
        for condition in CONDITIONS:
            best = improvements(m, config, condition)
            change, after = best["best relative change"], best["after Holm"]
            stated.append(
                Claim(
                    claim=f"pruning can lower the error ({name}, {condition})",
                    expected="some (layer, module, rate) below the unpruned error "
                    "after Holm",
                    measured=f"{after} of {best['family']}; best change {change:+.1%}",
                    held=after > 0,
                )
            )
        for place, module in enumerate(m.subject.modules):
            depth = depth_effect(m, place)
            pairs = depth["deep"], depth["shallow"]
            deep, shallow = np.mean(pairs, axis=1)
            stated.append(
                Claim(
                    claim=f"deep layers tolerate pruning better ({name}, {module})",
                    expected="|log10 inflation| of the last layer below the first's, "
                    "all seeds",
                    measured=f"last {deep:.2f}, first {shallow:.2f}",
                    held=all(a < b for a, b in zip(*pairs, strict=True)),
                )
            )
            shots = shot_effect(m, place)
            values = list(shots.values())
            stated.append(
                Claim(
                    claim=f"fewer shots slow the collapse ({name}, {module})",
                    expected="log10 inflation of the first layer grows with the shots",
                    measured=", ".join(f"k={k}: {v:.2f}" for k, v in shots.items()),
                    held=all(a <= b for a, b in zip(values, values[1:], strict=False)),
                )
            )
        stated += _about_condition_numbers(m, config)
        for module in m.magnitude:
            first, last = magnitude_depth(m, module)
            stated.append(
                Claim(
                    claim=f"control: the same of magnitude pruning ({name}, {module})",
                    expected="log10 inflation of the last layer below that of the "
                    "first",
                    measured=f"last {last:.2f}, first {first:.2f}",
                    held=last < first,
                )
            )
    return [*stated, *_about_choices(measured, config)]


def _about_condition_numbers(m: PruningMeasurements, config: Config) -> list[Claim]:
    name = m.subject.name
    ratio, harm = condition_by_depth(m, config.level), inflation_against_condition(m)
    return [
        Claim(
            claim=f"deep layers are worse conditioned ({name})",
            expected="condition number of the last layer over that of the first above "
            "1",
            measured=f"{ratio['ratio']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]",
            held=ratio["low"] > 1,
        ),
        Claim(
            claim=f"a large condition number marks what can be pruned ({name})",
            expected="negative rank correlation with the harm of pruning a matrix",
            measured=f"Spearman {harm['correlation']:+.2f} (p = {harm['p']:.2g})",
            held=harm["correlation"] < 0 and harm["p"] < 1 - config.level,
        ),
    ]


def _about_choices(measured: list[PruningMeasurements], config: Config) -> list[Claim]:
    """Claims about Algorithm 1, exhaustive search and control in each condition."""
    stated = []
    for rule in ("Algorithm 1", "exhaustive", "scaled answer", "beyond scaling"):
        chosen = [c for m in measured for c in m.choices if c.rule.startswith(rule)]
        after = adjust_holm([c.p_better for c in chosen]) <= 1 - config.level
        for condition in CONDITIONS:
            rows = [i for i, c in enumerate(chosen) if c.condition == condition]
            better = sum(chosen[i].test < 0 for i in rows)
            change = np.mean([chosen[i].test for i in rows])
            stated.append(
                Claim(
                    claim=f"{rule} lowers the test error ({condition})",
                    expected="better on test in most runs, and some after Holm",
                    measured=f"{better} of {len(rows)} better, mean change "
                    f"{change:+.1%}, "
                    f"{int(after[rows].sum())} after Holm",
                    held=better > len(rows) / 2 and bool(after[rows].any()),
                )
            )
    return stated


def _numbers(m: PruningMeasurements) -> dict[str, Any]:
    subject = m.subject
    mean = {
        c: np.stack(
            [
                m.at(c, k).mean(axis=-1, dtype=np.float64)
                for k in range(len(subject.shots))
            ]
        )
        for c in CONDITIONS
    }
    return {
        "seeds": list(subject.recipe.seeds),
        "modules": list(subject.modules),
        "matrices": list(subject.matrices),
        "ranks": list(subject.ranks),
        "rates": list(subject.rates),
        "shots": list(subject.shots),
        "errors (shots, seeds, layers, modules, rates)": {
            c: value.tolist() for c, value in mean.items()
        },
        "single matrices (layers, matrices, rates, shots), first seed": m.single[
            :, :, :, m.asked.parts["standard", "test"]
        ]
        .mean(axis=3, dtype=np.float64)
        .tolist(),
        "depth": {
            module: depth_effect(m, place)
            for place, module in enumerate(subject.modules)
        },
        "spectra": spectra(m),
        "choices": [dataclasses.asdict(c) for c in m.choices],
    }


def _unpruned_table(m: PruningMeasurements, label_noise: float) -> Table:
    table = Table(
        title=f"{m.subject.name}, unpruned: error / d, mean over seeds (range)"
    )
    table.add_column("condition")
    for k in m.subject.shots:
        table.add_column(f"k = {k}", justify="right")
    for condition in CONDITIONS:
        cells = []
        for shot in range(len(m.subject.shots)):
            by_seed = m.unpruned(condition, shot).mean(axis=1)
            cells.append(
                f"{by_seed.mean():.3g} ({by_seed.min():.3g}-{by_seed.max():.3g})"
            )
        table.add_row(condition, *cells)
    for condition, noise in (("standard", 0.0), ("label noise", label_noise)):
        task = m.subject.recipe.task(noise)
        key = training.stream_key(0, "evaluation")
        lengths = range(m.subject.shots[-1] + 1)
        risk = estimate_risk(Bayes(task), task, lengths, key=key, num_prompts=2048)
        best = np.asarray(risk.mean - task.noise_var) / task.dim
        cells = [f"{round(float(best[k]), 6):.3g}" for k in m.subject.shots]
        table.add_row(f"best possible, {condition}", *cells)
    return table


def _inflation_table(m: PruningMeasurements) -> Table:
    """Builds the table of relative errors at the main number of shots, by layer."""
    subject = m.subject
    factor = 10 ** inflation(m).mean(axis=0)
    table = Table(
        title=f"{subject.name}: error over the unpruned error at k = "
        f"{subject.shots[-1]} (geometric mean over seeds), by rank kept"
    )
    table.add_column("module")
    table.add_column("layer", justify="right")
    for rank in subject.ranks:
        table.add_column(f"{rank}", justify="right")
    for place, module in enumerate(subject.modules):
        for layer in subject.layers:
            cells = [f"{value:.3g}" for value in factor[layer, place]]
            table.add_row(module, str(layer), *cells)
    return table


def _multiplicity_table(tested: dict[str, dict[str, dict[str, Any]]]) -> Table:
    table = Table(
        title="all (seed, layer, module, rate) against the unpruned model, on test"
    )
    names = ("family", "better on average", "p below the level", "after Holm")
    table.add_column("model, condition")
    for name in (*names, "best change", "where"):
        table.add_column(name, justify="right")
    for model, conditions in tested.items():
        for condition, row in conditions.items():
            best = row["best"]
            table.add_row(
                f"{model}, {condition}",
                *(str(row[name]) for name in names),
                f"{row['best relative change']:+.1%}",
                f"{best['module']} {best['layer']} rank {best['rank']}",
            )
    return table


def _choice_table(measured: list[PruningMeasurements], config: Config) -> Table:
    table = Table(
        title="chosen on validation, judged on test: relative change of the error "
        f"({100 * config.level:g} % interval)"
    )
    for name in ("model", "condition", "rule", "seed", "choice"):
        table.add_column(name)
    for name in ("validation", "test"):
        table.add_column(name, justify="right")
    for m in measured:
        for c in m.choices:
            table.add_row(
                c.model,
                c.condition,
                c.rule,
                str(c.seed),
                c.what,
                f"{c.validation:+.1%}",
                f"{c.test:+.1%} \\[{c.low:+.1%}, {c.high:+.1%}]",
            )
    return table
