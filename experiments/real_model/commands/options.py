"""Options shared by the commands, and loading of the model and the task."""

import dataclasses
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import tyro

from experiments._frame.fields import check_at_least
from experiments._frame.tyro_line import read_line
from experiments.small_lm import FOLDER, SHIPPED, declaration
from icltheory.bridge import LanguageModel, load_checkpoint, load_task
from icltheory.bridge.tasks import (
    SCORINGS,
    TASKS,
    LanguageTask,
    is_declaration_file,
    task_spec,
)
from icltheory.pruning import Intervention
from icltheory.strict_json import plain

ROOT = Path(__file__).parents[3]
Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
# One --prune may have several words, and the option may be repeated.
Prunings = Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """Options that select a model.

    Attributes:
        model: Folder of a checkpoint in the Hugging Face layout, a GGUF file, or a name
            on the hub.
        revision: Branch, tag or commit of a name on the hub; "" for the newest.
        dtype: Of weights and products; "file" for that of the checkpoint.
        at_least_one: Whether a rate that leaves rank 0 leaves rank 1 instead of an
            error.
    """

    model: str = ""
    revision: str = ""
    dtype: Literal["file", "float32", "bfloat16", "float16"] = "file"
    at_least_one: Switch = False

    def check(self) -> None:
        """Raises for options that are invalid whatever the model is."""
        if not self.model:
            raise ValueError(
                "model: expected the folder of a checkpoint or a name on the hub, "
                "got none; pass --model"
            )

    def load_model(self) -> LanguageModel:
        """Loads the unpruned model."""
        dtype = None if self.dtype == "file" else self.dtype
        near = _near(self.model)
        name = near if near.exists() else self.model
        return _loaded(load_checkpoint, name, dtype, revision=self.revision or None)


@dataclasses.dataclass(frozen=True)
class TaskOptions(ModelOptions):
    """Options that select a model, a task and its prompts.

    Attributes:
        task: Name of a task of the library or of the small language model, or a YAML
            file that declares one.
        task_folder: Folder with one of the task's name; "" for the hub.
        profile: What the paper says of the task, or what the authors' scripts do.
        scoring: How the options of an example are compared; "" as the task says.
        shots: Demonstrations in front; -1 for all.
        seed: Draw of the demonstrations; 0 for the published one.
        examples: Most examples of a split, evenly spaced; all if 0.
        batch_size: Examples that run together.
        level: Level of the intervals.
    """

    task: str = ""
    task_folder: str = ""
    profile: Literal["paper", "authors_code"] = "paper"
    scoring: str = ""
    shots: int = -1
    seed: int = 0
    examples: int = 0
    batch_size: int = 32
    level: float = 0.95

    def check(self) -> None:
        """Raises for options that are invalid whatever the model is."""
        super().check()
        if not self.task:
            raise ValueError("task: expected the name of a task, got none; pass --task")
        check_at_least(self, -1, "shots")
        check_at_least(self, 0, "seed", "examples")
        check_at_least(self, 1, "batch_size")
        if not 0 < self.level < 1:
            raise ValueError(f"level: expected a value within (0, 1), got {self.level}")
        if self.scoring and self.scoring not in SCORINGS:
            known = ", ".join(SCORINGS)
            raise ValueError(f"scoring: expected one of {known}, got {self.scoring}")

    def load_task(self) -> LanguageTask:
        """Loads the task with the demonstrations of the selected draw."""
        folder = _near(self.task_folder) / self.task if self.task_folder else None
        if is_declaration_file(self.task):
            spec, folder = task_spec(_near(self.task)), None
        elif self.task in SHIPPED:
            spec, folder = declaration(self.task), folder or FOLDER / self.task
        elif self.task in TASKS:
            spec = TASKS[self.task]
        else:
            raise ValueError(
                f"task: expected one of {', '.join((*SHIPPED, *TASKS))}, or a YAML "
                f"file, got {self.task}"
            )
        task = _loaded(
            load_task, spec, folder, self.profile, demonstration_seed=self.seed
        )
        return dataclasses.replace(
            task,
            scoring=self.scoring or task.scoring,
            validation=self._some(task.validation),
            test=self._some(task.test),
        )

    def _some(self, examples: tuple) -> tuple:
        if not 0 < self.examples < len(examples):
            return examples
        places = np.linspace(0, len(examples) - 1, self.examples).round().astype(int)
        return tuple(examples[place] for place in places)

    @property
    def given_shots(self) -> int | None:
        """Number of demonstrations, or ``None`` for all."""
        return None if self.shots == -1 else self.shots

    def describe(self, model: LanguageModel, task: LanguageTask) -> str:
        """Describes model, task, scoring and demonstrations in one line."""
        shown = len(task.demonstrations) if self.shots == -1 else self.shots
        return (
            f"{self.model}: {model.arch.family}, {model.num_layers} layers; "
            f"{task.name} by {task.scoring}, {shown} demonstrations (seed {self.seed})"
        )


@dataclasses.dataclass(frozen=True)
class Pruned(ModelOptions):
    """Options that select a model and the modules to clip.

    Attributes:
        prune: What is clipped, LAYER:MATRICES:STRENGTH such as 26:mlp:0.9 (a rate) or
            3:W_Q,W_K:rank=8; embeddings:0.5 and head:rank=16 have no layer. May be
            repeated.
    """

    prune: Prunings = ()

    def check(self) -> None:
        """Raises for options that are invalid whatever the model is."""
        super().check()
        _ = self.interventions

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """All interventions in one tuple."""
        return read_prunings("prune", self.prune)


def read_prunings(name: str, texts: Prunings) -> tuple[Intervention, ...]:
    """Parses the interventions of an option."""
    try:
        return tuple(map(Intervention.parse, itertools.chain(*texts)))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


Options = TypeVar("Options", bound=ModelOptions)


def read_options(
    kind: type[Options], argv: list[str] | None, command: str, about: str | None
) -> Options:
    """Parses a command line and checks its options before a model is loaded."""
    line = (about or "").partition("\n")[0]
    options = read_line(kind(), argv, name=f"real_model {command}", about=line)
    options.check()
    return options


def as_row(interval: Any) -> str:
    """Formats an interval as a table cell."""
    return f"{interval.low:.4f} to {interval.high:.4f}"


def check_file(name: str, path: Path | None) -> None:
    """Raises if an option names a folder, before hours are spent on its contents."""
    if path is not None and path.is_dir():
        raise ValueError(f"{name}: expected a file, got the folder {path}")


def save_numbers(path: Path | None, numbers: dict[str, Any], console: Any) -> None:
    """Writes a JSON file atomically if one is asked for, and says so."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".writing_{path.name}")
    aside.write_text(json.dumps(plain(numbers), indent=1) + "\n", encoding="utf-8")
    os.replace(aside, path)
    console.print(f"written to {path}", soft_wrap=True)


def _loaded(load: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return load(*args, **options)
    except ImportError as error:  # a package that reading needs is not installed
        raise ValueError(str(error)) from error


def _near(name: str) -> Path:
    """Returns a path as given, or in the repository if it exists only there."""
    path = Path(name)
    return ROOT / path if (ROOT / path).exists() and not path.exists() else path
