"""The model, and the tasks with their draws, prompts and stored answers."""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments._frame.run import Run
from experiments.real_model.config import PROMPTS, RAREST, SCORINGS, Config, Prompt
from experiments.real_model.fetch import fetch
from icltheory.bridge import LanguageModel, Records, load_checkpoint, load_task
from icltheory.bridge.answer_cache import PLACE_FIELDS, AnswerCache, facts_of
from icltheory.bridge.cached_evaluator import CachedEvaluator, method_name
from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.model import weights_digest
from icltheory.bridge.spectra import SingularSystems
from icltheory.bridge.tasks import TASKS, LanguageTask

KEYS = ("task", "prompt", "scoring", "shots", "draw", "method", *PLACE_FIELDS)


class Subject:
    """A model and the answers it has given.

    Attributes:
        config: The config of the run.
        model: The model.
        systems: Singular value decompositions of its matrices.
        records: All answers of the run.
        about: Which weights these are.
        task_folder: Folder with one of the task's name for each; ``None`` for the hub.
    """

    def __init__(self, config: Config, run: Run, task_folder: Path | None = None):
        self.config, self.run, self.task_folder = config, run, task_folder
        self.model: LanguageModel = load_checkpoint(
            config.checkpoint or fetch(), config.dtype
        )
        self.systems = SingularSystems(run.folder / "singular_systems")
        self.about = {
            "source": Path(self.model.source).name,
            "digest": weights_digest(self.model),
        }
        self.records = Records(run.folder / "answers.jsonl", KEYS, config=self.about)

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of the grid."""
        return self.config.layers or tuple(range(self.model.num_layers))

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def task(self, name: str, prompt: str, scoring: str, draw: int = 0) -> LanguageTask:
        """Returns a task with a prompt, ``"paper"`` or ``"other"`` twice by a plus."""
        spec = TASKS[name]
        recipe = spec.recipe("paper")
        classes = len(spec.labels[0][1])
        classes = len(set(recipe.merge)) if recipe.merge else classes
        third = RAREST.get(name, sys.maxsize) // 3
        per_class = min(-(-self.config.most_shots // classes), third)
        split = dataclasses.replace(recipe.split, per_class=per_class, keep=None)
        recipe = dataclasses.replace(recipe, split=split)
        folder = self.task_folder
        found = load_task(
            dataclasses.replace(spec, recipes=recipe),
            None if folder is None else Path(folder, name),
            demonstration_seed=draw,
            reserved=min(per_class * self.config.draws, third),
        )
        template, words = prompt.split("+")
        other: Prompt = PROMPTS[name]
        changes: dict[str, Any] = {}
        if template == "other":
            changes = {"demonstration": other.demonstration, "query": other.query}
        if words == "other":
            changes |= {"words": other.words, "scored": ()}
        template = dataclasses.replace(found.template, **changes)
        labels = template.words or found.labels
        return dataclasses.replace(
            found,
            template=template,
            labels=labels,
            scoring=scoring,
            validation=_some(found.validation, self.config.search_examples),
            test=_some(found.test, self.config.test_examples),
        )

    def prompts(self, name: str) -> list[tuple[str, str]]:
        """All prompts and scorings of a task that can be asked; the paper's first."""
        kind = TASKS[name].kind
        words = ("paper", "other") if PROMPTS[name].words else ("paper",)
        found = []
        for template in ("paper", "other"):
            for word in words:
                for scoring in SCORINGS[kind]:
                    task = self.task(name, f"{template}+{word}", scoring)
                    try:
                        tokenize(self.model, task, "validation", self.shots(name))
                    except ValueError:  # label words that share their first token
                        continue
                    found.append((f"{template}+{word}", scoring))
        return found

    def shots(self, name: str) -> int:
        """Demonstrations of the paper, which searches use."""
        recipe = TASKS[name].recipe("paper")
        classes = len(set(recipe.merge)) or len(TASKS[name].labels[0][1])
        own = recipe.split.per_class * classes
        return min(recipe.split.keep or own, self.config.most_shots)

    def evaluator(
        self,
        case: tuple[str, str, str],
        shots: int | None = None,
        draw: int = 0,
        method: Any = "svd",
    ) -> CachedEvaluator:
        """Returns what answers a task with a prompt and a scoring, or has answered."""
        name, prompt, scoring = case
        task = self.task(name, prompt, scoring, draw)
        shots = self.shots(name) if shots is None else shots
        answers = AnswerCache(
            facts_of(task),
            self.records,
            task=name,
            prompt=prompt,
            scoring=scoring,
            shots=shots,
            draw=draw,
            method=method_name(method),
        )
        return CachedEvaluator(
            answers,
            self.model,
            task,
            shots,
            method=method,
            systems=self.systems,
            batch_size=self.config.batch_size,
            at_least_one=True,
        )

    def unpruned(
        self, evaluator: CachedEvaluator, split: str, most: int | None = None
    ) -> np.ndarray:
        """Which of the first examples the model answers correctly as it is."""
        size = len(evaluator.task.examples(split))
        some = range(size if most is None else min(most, size))
        place = self.model.num_layers - 1, self.config.modules[0], (0.0,)
        return evaluator.correct(split, *place, some)[0]


def _some(examples: Any, most: int) -> Any:
    if len(examples) <= most:
        return examples
    # In an order in which any first part is spread over the whole split.
    places = np.linspace(0, len(examples) - 1, most).round().astype(int)
    order = np.random.default_rng(0).permutation(most)
    return tuple(examples[places[i]] for i in order)
