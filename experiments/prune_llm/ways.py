"""Measures once per run: fast against plain search, rate 0, and the surrogate."""

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from experiments.prune_llm.study import Study
from experiments.prune_llm.subject import Subject
from icltheory.bridge import clip_module
from icltheory.bridge.evaluation import evaluate, evaluate_naive, evaluate_rates
from icltheory.bridge.surrogate import surrogate_terms
from icltheory.bridge.tasks import LanguageTask


def compare_ways(study: Study, subject: Subject) -> dict[str, Any]:
    """Times one search over all rates by both ways, on some examples of the first task.

    Both ways start from the unpruned weights and decompose them, and both are compiled
    when their time is taken; what the quick one takes at first is told beside it.
    """
    config, model = study.config, subject.model
    case, module = study.main_case(config.task_names[0]), config.modules[0]
    (layer, _), rates = study.choice(module), study.rates(module)
    task = _some(subject.tasks[case], config.naive_examples)
    at, least = (layer, module), {"at_least_one": config.at_least_one}

    def cached():
        options = {"batch_size": config.batch_size, **least}
        return evaluate_rates(
            model, task, layer, module, rates, shots=case.shots, **options
        )

    def naive():
        clipped = (clip_module(model, *at, rate, **least) for rate in rates)
        return [evaluate_naive(one, task, shots=case.shots) for one in clipped]

    _, cold = _timed(cached)
    quick, cached_seconds = _timed(cached)
    evaluate_naive(model, task, shots=case.shots)  # compiles for every length
    plain, naive_seconds = _timed(naive)
    scores, other = (np.stack([e.scores for e in found]) for found in (quick, plain))
    same = np.stack([e.predictions for e in quick]) == np.stack(
        [e.predictions for e in plain]
    )
    return {
        "task": case.task,
        "module": module,
        "layer": layer,
        "examples": len(task.validation),
        "answers": int(same.size),
        "cached_seconds": cached_seconds,
        "cached_seconds_at_first": cold,
        "naive_seconds": naive_seconds,
        "ratio": naive_seconds / cached_seconds,
        "different_predictions": int((~same).sum()),
        "largest_difference": float(np.abs(scores - other).max()),
    }


def rate_0(study: Study, subject: Subject) -> dict[str, Any]:
    """Compares rate 0 with the unpruned model: weights, scores and predictions."""
    config, model = study.config, subject.model
    changed = 0
    for layer in study.layers:
        for module in config.modules:
            clipped = clip_module(model, layer, module, 0)
            pairs = zip(
                jax.tree.leaves(clipped.params),
                jax.tree.leaves(model.params),
                strict=True,
            )
            # Shared arrays are equal, so only rebuilt ones are compared.
            changed += sum(
                int((np.asarray(a) != np.asarray(b)).sum())
                for a, b in pairs
                if a is not b
            )
    different, largest = 0, 0.0
    for case in study.grid_cases:
        task = subject.tasks[case]
        alone = evaluate(model, task, shots=case.shots, batch_size=config.batch_size)
        for layer in study.layers:
            for module in config.modules:
                found = study.answers[case].scores(
                    "validation", layer, module, config.rates[:1]
                )[0]
                largest = max(largest, float(np.nanmax(np.abs(found - alone.scores))))
                best = np.argmax(found, axis=-1)
                different += int((best != np.argmax(alone.scores, axis=-1)).sum())
    return {
        "changed_weights": changed,
        "different_predictions": different,
        "largest_difference": largest,
    }


def beside(study: Study, subject: Subject, systems: Any) -> dict[str, Any] | None:
    """Computes the linear surrogate of the grid's layers on the first task."""
    config = study.config
    case = study.main_case(config.task_names[0])
    module = "attn" if "attn" in config.modules else config.modules[0]
    task = subject.tasks[case]
    if case.shots < 2:
        return None
    shown = task.with_demonstrations(task.demonstrations[: case.shots])
    rows = surrogate_terms(
        subject.model,
        shown,
        study.layers,
        study.rates(module),
        module=module,
        systems=systems,
        at_least_one=config.at_least_one,
    )
    return {
        "case": case._asdict(),
        "module": module,
        "rows": [row._asdict() for row in rows],
    }


def _some(task: LanguageTask, most: int) -> LanguageTask:
    total = len(task.validation)
    places = np.linspace(0, total - 1, min(most, total)).round().astype(int)
    # Only scores are compared, so the denominator must allow a single example.
    return dataclasses.replace(
        task,
        validation=tuple(task.validation[place] for place in places),
        denominator="n",
    )


def _timed(function):
    begin = time.perf_counter()
    found = function()
    return found, time.perf_counter() - begin
