"""Searches every arm on the validation prompts and tests each choice once."""

import json
from typing import Any

import numpy as np

from experiments._frame.run import Run
from experiments.headroom.arms import ARMS, SEARCHED, Arm
from experiments.headroom.config import MODULES, Config
from experiments.headroom.prompts import DrawnPrompts, draw
from experiments.headroom.train import CHECKPOINT
from experiments.small_lm import model as models
from icltheory.bridge import LanguageModel
from icltheory.bridge.answer_cache import AnswerCache, facts_of
from icltheory.bridge.cached_evaluator import CachedEvaluator, method_name
from icltheory.bridge.layer_search import layer_choice
from icltheory.bridge.spectra import condition_numbers, input_moments


def search_all(config: Config, run: Run) -> list[list[dict[str, Any]]]:
    """Returns the search results of each model for each kind and noise of prompts.

    A finished search is a file of the run's folder, which is read if it is there.
    """
    found = []
    with run.progress(
        "searching", len(config.seeds) * len(config.conditions), unit="searches"
    ) as activity:
        for seed in config.seeds:
            folder, rows = run.folder / f"seed{seed}", []
            for place, (kind, noise) in enumerate(config.conditions):
                path = folder / f"search{place}.json"
                if not path.is_file():
                    model = models.load(str(folder / CHECKPOINT))
                    prompts = draw(config, seed, kind, noise)
                    rows_of_one = search(config, model, prompts)
                    run.write_json(str(path.relative_to(run.folder)), rows_of_one)
                rows.append(json.loads(path.read_text()))
                activity.advance()
            found.append(rows)
    return found


def search(
    config: Config, model: LanguageModel, prompts: DrawnPrompts
) -> dict[str, Any]:
    """Searches all arms on one set of prompts.

    Returns:
        Accuracies of the unpruned model, also by the group of the label words, and of
        the ideal learner, the layer of each module by condition numbers, accuracies of
        every setting on the validation prompts, and of each arm its choice with what it
        gains and loses on the test prompts.
    """
    evaluators = {
        name: _evaluator(config, model, prompts, ARMS[name]) for name in SEARCHED
    }
    right = {
        split: evaluators["svd"].correct(split, 0, MODULES[0], (0.0,))[0]
        for split in ("validation", "test")
    }
    grids = {
        name: _grid(config, model, evaluator, ARMS[name])
        for name, evaluator in evaluators.items()
    }
    rows = condition_numbers(model)
    layers = {m: layer_choice(rows, m, config.top_k, "max").deepest for m in MODULES}
    chosen = {}
    for name, arm in ARMS.items():
        own = "svd" if arm.condition_layer else name
        choice = choose(
            config, arm, grids[own], layers, float(right["validation"].mean())
        )
        after = right["test"]
        if choice is not None:
            at = choice["layer"], choice["module"], (choice["place"],)
            after = evaluators[own].correct("test", *at)[0]
        chosen[name] = {**(choice or {}), **_counted(right["test"], after)}
    return {
        "task": prompts.task.name,
        "validation": float(right["validation"].mean()),
        "test": float(right["test"].mean()),
        "by_words": [
            float(right["test"][prompts.groups == group].mean())
            for group in np.unique(prompts.groups)
        ],
        "ideal": float(prompts.ideal.mean()),
        "informed": float(prompts.informed.mean()),
        "layers": layers,
        "grids": {
            name: {module: values.tolist() for module, values in grid.items()}
            for name, grid in grids.items()
        },
        "arms": chosen,
    }


def choose(
    config: Config,
    arm: Arm,
    grid: dict[str, np.ndarray],
    layers: dict[str, int],
    unpruned: float,
) -> dict[str, Any] | None:
    """Chooses the setting of best validation accuracy; None if unpruned is best.

    Of several that are equal the first one wins, by module, then layer, then place.

    Args:
        config: Says what the places stand for.
        arm: The arm.
        grid: Validation accuracies of each module, (layers, places).
        layers: Algorithm 1's layer of each module.
        unpruned: Validation accuracy of the model as it is.
    """
    best, chosen = unpruned, None
    for module in arm.modules:
        values = grid[module]
        searched = [layers[module]] if arm.condition_layer else range(len(values))
        for layer in searched:
            place = int(np.argmax(values[layer]))
            if values[layer][place] > best:
                best = float(values[layer][place])
                chosen = {
                    "layer": layer,
                    "module": module,
                    "place": arm.places(config)[place],
                    "number": arm.numbers(config)[place],
                    "validation_gain": best - unpruned,
                }
    return chosen


def _evaluator(
    config: Config, model: LanguageModel, prompts: DrawnPrompts, arm: Arm
) -> CachedEvaluator:
    moments: Any = {}
    if arm.calibrated:
        encode = model.tokenizer.encode
        moments = input_moments(model, [encode(text) for text in prompts.calibration])
    method = arm.method(config, moments)
    answers = AnswerCache(facts_of(prompts.task), method=method_name(method))
    return CachedEvaluator(
        answers,
        model,
        prompts.task,
        method=method,
        batch_size=config.batch_size,
        at_least_one=True,
    )


def _grid(
    config: Config, model: LanguageModel, evaluator: CachedEvaluator, arm: Arm
) -> dict[str, np.ndarray]:
    """Returns the validation accuracies of each module, (layers, places)."""
    layers, places = range(model.num_layers), arm.places(config)
    evaluator.evaluate_missing("validation", layers, arm.modules, places)
    return {
        module: np.stack(
            [
                evaluator.correct("validation", layer, module, places).mean(axis=1)
                for layer in layers
            ]
        )
        for module in arm.modules
    }


def _counted(before: np.ndarray, after: np.ndarray) -> dict[str, int]:
    """Counts the test answers that become right and that become wrong."""
    return {
        "gained": int((after & ~before).sum()),
        "lost": int((before & ~after).sum()),
    }
