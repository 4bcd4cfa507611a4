"""Loads the model and the tasks of a run and checks all options before it begins.

Everything that a person may have got wrong is found out here, before a run begins.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.prune_llm.config import Config
from experiments.prune_llm.methods import check_calibration
from experiments.small_lm.tasks import SHIPPED, declaration
from icltheory.bridge import LanguageModel, load_checkpoint
from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.model import weights_digest
from icltheory.bridge.tasks import (
    TASKS,
    LanguageTask,
    TaskSpec,
    is_declaration_file,
    load_task,
    task_spec,
)
from icltheory.layered import get_matrix
from icltheory.pruning import choose_layers, module_matrices, rank_for_rate

ROOT = Path(__file__).parents[2]
# Layers named by the authors' scripts, by family and number of layers.
PUBLISHED_LAYERS = {
    ("gptj", 28): {"mlp": 26, "attn": 27},
    ("llama", 32): {"mlp": 30, "attn": 30},
}


class TaskDraw(NamedTuple):
    """A task with particular demonstrations.

    Attributes:
        task: Its name.
        shots: Demonstrations in front.
        seed: Draw of the demonstrations.
        order: Order of them, 0 as drawn.
    """

    task: str
    shots: int
    seed: int
    order: int


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A model and its tasks.

    Attributes:
        model: The model.
        digest: Digest of its weights.
        tasks: The task of each case, with its demonstrations in order.
    """

    model: LanguageModel
    digest: str
    tasks: dict[TaskDraw, LanguageTask]


def load(config: Config) -> Subject:
    """Loads the model and the tasks, and raises if an option is invalid."""
    drawn = load_tasks(config)
    check_calibration(config, drawn.values())
    model = load_model(config.checkpoint, config.dtype, config.revision)
    _check_pruning(model, config)
    tasks = {}
    for (task, seed, order), found in drawn.items():
        for place, shots in enumerate(_shots(found, config)):
            tasks[TaskDraw(task, shots, seed, order)] = found
            if order == config.orders[0]:
                for split in ("validation", "test")[: 2 if place == 0 else 1]:
                    tokenize(model, found, split, shots)
    return Subject(model, weights_digest(model), tasks)


def load_model(checkpoint: str, dtype: str | None, revision: str) -> LanguageModel:
    """Loads the model from a folder, here or in the repository, or from the hub."""
    folder = _near(checkpoint)
    name = folder if folder.is_dir() else checkpoint
    try:
        return load_checkpoint(name, dtype, revision=revision or None)
    except ImportError as error:
        raise ValueError(str(error)) from error


def load_tasks(config: Config) -> dict[tuple[str, int, int], LanguageTask]:
    """Loads each task by name, draw and order of the demonstrations."""
    try:
        return _draws(config)
    except ImportError as error:
        raise ValueError(str(error)) from error


def grid_layers(config: Config, num_layers: int) -> tuple[int, ...]:
    """Returns the layers of the grid, from 0."""
    wanted = config.layers or range(num_layers)
    for layer in wanted:
        if not -num_layers <= layer < num_layers:
            raise ValueError(
                f"layers: expected -{num_layers} to {num_layers - 1}, got {layer}"
            )
    return tuple(sorted({layer % num_layers for layer in wanted}))


def main_cases(config: Config, cases: Sequence[TaskDraw]) -> list[TaskDraw]:
    """Returns the cases of the first draw in the first order, which form the grid."""
    first = config.demonstration_seeds[0], config.orders[0]
    return [case for case in cases if case[2:] == first]


def judged_cases(config: Config, cases: Sequence[TaskDraw]) -> list[TaskDraw]:
    """Returns the cases for Algorithm 1: the first number of shots, and all draws."""
    first: dict[str, int] = {}
    for case in cases:
        first.setdefault(case.task, case.shots)
    return [case for case in cases if case.shots == first[case.task]]


def given_layer(
    config: Config, family: str, num_layers: int, module: str
) -> int | None:
    """Returns the layer named by the authors' scripts if their profile is selected."""
    if config.profile != "authors_code":
        return None
    return PUBLISHED_LAYERS.get((family, num_layers), {}).get(module)


def _near(name: str) -> Path:
    """Returns a path as given, or in the repository if it exists only there."""
    path = Path(name)
    return ROOT / path if (ROOT / path).exists() and not path.exists() else path


def _draws(config: Config) -> dict[tuple[str, int, int], LanguageTask]:
    found: dict[tuple[str, int, int], LanguageTask] = {}
    named = zip(config.task_names, config.tasks, strict=True)
    for (name, task), seed in itertools.product(named, config.demonstration_seeds):
        spec, folder = _declared(task, config.task_folder)
        drawn = load_task(
            spec,
            folder,
            config.profile,
            demonstration_seed=seed,
            reserved=_reserved(spec, config),
        )
        if config.scoring:
            drawn = dataclasses.replace(drawn, scoring=config.scoring)
        drawn = _limited(drawn, config.examples)
        for order in config.orders:
            ordered = drawn.with_demonstrations(order_seed=order) if order else drawn
            found[name, seed, order] = ordered
    return found


def _declared(task: str, task_folder: str) -> tuple[TaskSpec, Path | None]:
    """Returns the declaration of a task, and its data folder if known."""
    if is_declaration_file(task):
        return task_spec(_near(task)), None
    if task not in (names := (*SHIPPED, *TASKS)):
        raise ValueError(
            f"tasks: expected some of {', '.join(names)}, or YAML files, got {task}"
        )
    spec = declaration(task) if task in SHIPPED else TASKS[task]
    return spec, _near(task_folder) / task if task_folder else None


def _reserved(spec: TaskSpec, config: Config) -> int:
    """Number of rows per class reserved for several draws of demonstrations."""
    seeds = config.demonstration_seeds
    per_class = spec.recipe(config.profile).split.per_class
    return 0 if seeds == (0,) else per_class * len(seeds)


def _limited(task: LanguageTask, most: int) -> LanguageTask:
    def some(examples):
        if not 0 < most < len(examples):
            return examples
        places = np.linspace(0, len(examples) - 1, most).round().astype(int)
        return tuple(examples[place] for place in places)

    return dataclasses.replace(
        task, validation=some(task.validation), test=some(task.test)
    )


def _shots(task: LanguageTask, config: Config) -> list[int]:
    most = len(task.demonstrations)
    for shots in config.shots:
        if shots > most:
            raise ValueError(
                f"shots: expected at most {most} for {task.name}, got {shots}"
            )
    return list(dict.fromkeys(most if k == -1 else k for k in config.shots))


def _check_pruning(model: LanguageModel, config: Config) -> None:
    layers = range(model.num_layers)
    choose_layers([[1.0] for _ in layers], config.top_k, aggregate=config.aggregate)
    grid_layers(config, model.num_layers)
    # A rate that keeps no rank of a module is left out there, and the table says so.
    sizes = [
        min(
            min(get_matrix(model.params, spec).shape)
            for layer in layers
            for spec in module_matrices(model, layer, module)
        )
        for module in config.modules
    ]
    least = min(config.rates[1:], default=0.0)
    rank_for_rate((max(sizes), max(sizes)), least, at_least_one=config.at_least_one)
