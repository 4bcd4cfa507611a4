"""Commands on a user's own model: ``python -m experiments.real_model NAME``.

``evaluate`` prints the accuracy on a task, of a pruned model beside the unpruned one;
``search`` chooses what to prune on validation and tests the choice once; ``export``
writes a pruned model; ``cost`` counts the memory and time of a run in advance.
"""

import dataclasses
import itertools
import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console

from experiments import frame, words_of
from experiments.frame import check_at_least, expect
from experiments.real_model import cost
from experiments.small_lm import FOLDER, SHIPPED, declaration
from icltheory.bridge import (
    Evaluator,
    LanguageModel,
    evaluate,
    load_checkpoint,
    load_task,
    prune_model,
    save_checkpoint,
    search_compositions,
    size_report,
)
from icltheory.bridge.evaluator import digest_of
from icltheory.bridge.factors import take_factors
from icltheory.bridge.model import weights_digest
from icltheory.bridge.spectra import SingularSystems
from icltheory.bridge.tasks import (
    SCORINGS,
    TASKS,
    LanguageTask,
    is_declaration_file,
    load_table,
    task_spec,
)
from icltheory.pruning import Intervention, LowRank, Rank
from icltheory.statistics import compare, majority_baseline, proportion_interval

ROOT = Path(__file__).parents[2]
Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
# One --prune may have several words, and the option may be repeated.
Prunings = Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """Options that select a model."""

    # folder of a checkpoint in the Hugging Face layout, a GGUF file, or a name on the
    # hub
    model: str = ""
    revision: str = ""  # branch, tag or commit of a name on the hub; "" for the newest
    # dtype of weights and products; "file" for that of the checkpoint
    dtype: Literal["file", "float32", "bfloat16", "float16"] = "file"
    # whether a rate that leaves rank 0 leaves rank 1 instead of an error
    at_least_one: Switch = False

    @property
    def method(self) -> LowRank:
        """How a rate becomes a rank."""
        return LowRank(at_least_one=self.at_least_one)

    def _check(self) -> None:
        expected = "the folder of a checkpoint or a name on the hub"
        expect(self.model != "", "model", expected, "none; pass --model")

    def load_model(self) -> LanguageModel:
        """Loads the unpruned model."""
        dtype = None if self.dtype == "file" else self.dtype
        near = _near(self.model)
        name = near if near.exists() else self.model
        return _loaded(load_checkpoint, name, dtype, revision=self.revision or None)


@dataclasses.dataclass(frozen=True)
class TaskOptions(ModelOptions):
    """Options that select a model, a task and its prompts."""

    # name of a task of the library or of the small language model, or a YAML file that
    # declares one
    task: str = ""
    task_folder: str = ""  # folder with one of the task's name; "" for the hub
    # table of one's own in place of a task: a csv, tsv or JSON-lines file
    csv: str = ""
    text: str = "text"  # its column of texts
    label: str = "label"  # its column of label words
    # what the paper says of the task, or what the authors' scripts do
    profile: Literal["paper", "authors_code"] = "paper"
    scoring: str = ""  # how the options of an example are compared; "" as the task says
    shots: int = -1  # demonstrations in front; -1 for all
    seed: int = 0  # draw of the demonstrations; 0 for the published one
    examples: int = 0  # most examples of a split, evenly spaced; all if 0
    batch_size: int = 32  # examples that run together
    level: float = 0.95  # level of the intervals

    def _check(self) -> None:
        super()._check()
        one = (self.task != "") != (self.csv != "")
        got = "both" if self.task else "none; pass --task or --csv"
        expect(one, "task", "the name of a task, or a table by --csv", got)
        check_at_least(self, -1, "shots")
        check_at_least(self, 0, "seed", "examples")
        check_at_least(self, 1, "batch_size")
        expect(0 < self.level < 1, "level", "a value within (0, 1)", self.level)
        known = not self.scoring or self.scoring in SCORINGS
        expect(known, "scoring", f"one of {', '.join(SCORINGS)}", self.scoring)

    def load_task(self) -> LanguageTask:
        """Loads the task with the demonstrations of the selected draw."""
        if self.csv:
            columns = {"text": self.text, "label": self.label}
            table = _loaded(load_table, Path(self.csv), seed=self.seed, **columns)
            return self._changed(table)
        folder = _near(self.task_folder) / self.task if self.task_folder else None
        if is_declaration_file(self.task):
            spec, folder = task_spec(_near(self.task)), None
        elif self.task in SHIPPED:
            spec, folder = declaration(self.task), folder or FOLDER / self.task
        else:
            known = ", ".join((*SHIPPED, *TASKS))
            expected = f"one of {known}, or a YAML file"
            expect(self.task in TASKS, "task", expected, self.task)
            spec = TASKS[self.task]
        given = load_task, spec, folder, self.profile
        return self._changed(_loaded(*given, demonstration_seed=self.seed))

    def _changed(self, task: LanguageTask) -> LanguageTask:
        """The task with the scoring and the examples of the command line."""
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
    """Options that select a model and the modules to clip."""

    # what is clipped, LAYER:MATRICES:STRENGTH such as 26:mlp:0.9 (a rate) or
    # 3:W_Q,W_K:rank=8; embeddings:0.5 and head:rank=16 have no layer; may be repeated
    prune: Prunings = ()

    def _check(self) -> None:
        super()._check()
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


def read_options(kind: Any, argv: list[str] | None, command: str, about: str) -> Any:
    """Parses a command line, and checks what is invalid whatever the model is."""
    options = frame.read_line(kind(), argv, name=f"real_model {command}", about=about)
    options._check()
    return options


def as_row(interval: Any) -> str:
    """Formats an interval as a table cell."""
    return f"{interval.low:.4f} to {interval.high:.4f}"


def check_file(name: str, path: Path | None) -> None:
    """Raises if an option names a folder, before hours are spent on its contents."""
    fine = path is None or not path.is_dir()
    expect(fine, name, "a file", f"the folder {path}")


def save_numbers(path: Path | None, numbers: dict[str, Any], console: Any) -> None:
    """Writes a JSON file atomically if one is asked for, and says so."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.Run(path.parent).write_json(path.name, numbers)
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


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False)


@dataclasses.dataclass(frozen=True)
class Evaluate(Pruned, TaskOptions):
    """Options of the command ``evaluate``."""

    split: Literal["validation", "test"] = "test"  # examples that are asked
    # file for the numbers and the answer to every example, as JSON; none is written if
    # left out
    save: Path | None = None

    def _check(self) -> None:
        super()._check()
        check_file("save", self.save)


def run_evaluate(argv: list[str] | None = None) -> None:
    """Parses the command line, evaluates and prints the results."""
    about = "Evaluates a language model on a task, unpruned and pruned."
    options = read_options(Evaluate, argv, "evaluate", about)
    task, model = options.load_task(), options.load_model()
    prunings, how = options.interventions, {"method": options.method}
    prune = [str(one) for one in prunings]
    # A single model is called "model", since it may itself be a pruned checkpoint.
    models = {"unpruned" if prune else "model": model}
    if prune:
        models[" ".join(prune)] = prune_model(model, prunings, **how)
    split, size = options.split, len(task.examples(options.split))
    expect(size > 0, "split", f"examples of {task.name} {split}", "none")
    console, display = _console(), frame.Display(Console(stderr=True))
    console.print(f"{options.describe(model, task)}, {split}")
    rows, labels = [], None
    for name, one in models.items():
        with display.during(frame.Activity(name, unit="examples")) as activity:
            how = {"batch_size": options.batch_size, "progress": activity.follow}
            answers = evaluate(one, task, split, options.given_shots, **how)
        rows.append({"model": name} | judged(options.level, task, answers))
        labels = answers.labels
    level = f"{100 * options.level:g} % interval"
    columns = {"model": "{model}", "right": "{right}", "accuracy": "{cell}"}
    columns |= {level: "{ends}", "ties": "{num_ties}", "NaN": "{num_nan}"}
    console.print(frame.table(rows, columns), soft_wrap=False)
    silent = [row["model"] for row in rows if row["interval"] is None]
    for name in silent:
        console.print(
            f"{name}: all answers are NaN, so that it has no accuracy; is the range of "
            "the dtype too small?"
        )
    compared = None
    if prune and silent:
        console.print("difference, paired: none, as a model has no accuracy")
    elif prune:
        compared = compare(*(row["correct"] for row in rows), level=options.level)
        console.print(f"difference, paired: {compared}")
    share = majority_baseline(labels, task.labels).share
    console.print(f"share of the commonest label: {share:.4f}")
    aside = ("model", "right", "cell", "ends")
    numbers = [{k: x for k, x in row.items() if k not in aside} for row in rows]
    save_numbers(
        options.save,
        {
            "options": {**vars(options), "save": str(options.save), "prune": prune},
            "weights": weights_digest(model),
            "task": described(task),
            "models": [{"prune": prune * (i > 0), **x} for i, x in enumerate(numbers)],
            "labels": labels,
            "comparison": None if compared is None else dataclasses.asdict(compared),
        },
        console,
    )


def described(task: LanguageTask) -> dict[str, Any]:
    """Name, labels, sizes and digest of a task."""
    sizes = {"validation": len(task.validation), "test": len(task.test)}
    names = ("name", "profile", "scoring", "denominator", "labels")
    known = {name: getattr(task, name) for name in names}
    return known | {"sizes": sizes, "digest": digest_of(task)}


def judged(level: float, task: LanguageTask, found: Any) -> dict[str, Any]:
    """Judges answers by the rules of the task's profile; NaN if every answer is."""
    right = found.correct
    count, silent = int(right.sum()), found.num_nan == found.num_examples
    total = len(right) - (task.denominator == "n-1")
    interval = None if silent else proportion_interval(count, len(right), level=level)
    return {
        "accuracy": math.nan if silent else count / total,
        "interval": interval,
        "num_ties": found.num_ties,
        "num_nan": found.num_nan,
        "predictions": found.predictions,
        "correct": right,
        "right": f"{count:,} of {len(right):,}",
        "cell": "NaN" if silent else f"{count / total:.4f}",
        "ends": "" if silent else as_row(interval),
    }


@dataclasses.dataclass(frozen=True)
class Search(TaskOptions):
    """Options of the command ``search``."""

    # layers of the candidates, counted from the last if negative; all if empty
    layers: tuple[int, ...] = ()
    # modules of the candidates, one at a time
    modules: tuple[str, ...] = ("mlp", "attn")
    # clipping rates of the candidates; none if no number follows
    rates: tuple[float, ...] = (0.5, 0.75, 0.9)
    ranks: tuple[int, ...] = ()  # ranks of the candidates, beside the rates
    # further candidates, such as head:rank=16 or 3:W_Q,W_K:0.5; may be repeated
    candidates: Prunings = ()
    # most evaluations: a model that answers the validation set is one
    budget: int = 50
    beam: int = 1  # how many compositions of each size are kept; 1 is greedy
    # file of the answers, from which a search goes on; none is kept if left out
    answers: Path | None = None
    # folder of singular systems, so that no matrix is decomposed twice; none are kept
    # if left out
    systems: Path | None = None
    save: Path | None = None  # file for the result as JSON; none if left out

    def _check(self) -> None:
        super()._check()
        check_at_least(self, 2, "budget")
        check_at_least(self, 1, "beam")
        _ = read_prunings("candidates", self.candidates)
        check_file("answers", self.answers)
        check_file("save", self.save)

    def every_candidate(self, num_layers: int) -> list[Intervention]:
        """All candidates: every layer, module and strength, and the additional ones."""
        layers = self.layers or range(num_layers)
        for layer in layers:
            fits, last = -num_layers <= layer < num_layers, num_layers - 1
            expect(fits, "layers", f"-{num_layers} to {last}", layer)
        strengths = [*self.rates, *map(Rank, self.ranks)]
        places = itertools.product(layers, self.modules, strengths)
        grid = [Intervention(layer % num_layers, m, much) for layer, m, much in places]
        return [*grid, *read_prunings("candidates", self.candidates)]


def run_search(argv: list[str] | None = None) -> None:
    """Parses the command line, searches and prints the results."""
    about = "Searches for several modules to clip together, and tests the choice once."
    options = read_options(Search, argv, "search", about)
    task, model = options.load_task(), options.load_model()
    candidates, console = options.every_candidate(model.num_layers), _console()
    console.print(options.describe(model, task))
    console.print(
        f"{len(candidates)} candidates, at most {options.budget} evaluations of "
        f"{len(task.validation)} examples"
    )
    if options.answers is not None:
        frame.continue_with("the same command, which reads the answers kept so far")
    kept = None if options.systems is None else SingularSystems(options.systems)
    display = frame.Display(Console(stderr=True))
    with display.during(frame.Activity("searching", unit="answers")) as activity:
        evaluator = Evaluator(
            model,
            task,
            options.given_shots,
            method=options.method,
            systems=kept,
            answers=options.answers,
            batch_size=options.batch_size,
            progress=activity.follow,
        )
        how = {"budget": options.budget, "beam": options.beam, "level": options.level}
        found = search_compositions(evaluator, candidates, **how)
    console.print(_found_table(found), soft_wrap=False)
    console.print(f"{len(found.tried)} evaluations; the search ended: {found.stopped}")
    console.print(f"test: {found}")
    if found.path:
        line = [*words_of("real_model"), "export"]
        line += ["--model", options.model]
        line += ["--revision", options.revision] if options.revision else []
        line += ["--at-least-one"] if options.at_least_one else []
        line += ["--prune", *map(str, found.path), "--to", "NEW"]
        console.print(f"to keep it: {shlex.join(line)}")
    files = {name: str(getattr(options, name)) for name in ("answers", "systems")}
    path = [
        {"prune": str(one), "validation": score}
        for one, score in zip(found.path, found.path_scores[1:], strict=True)
    ]
    save_numbers(
        options.save,
        {
            "options": {**vars(options), **files, "save": str(options.save)},
            "task": described(task),
            **dataclasses.asdict(found),
            "path": path,
        },
        console,
    )


def _found_table(found: Any) -> Any:
    names = [f"{'+ ' * (i > 0)}{one}" for i, one in enumerate(found.path)]
    rows = [
        {"clipped": name, "validation": score, "test": "", "ends": ""}
        for name, score in zip(["unpruned", *names], found.path_scores, strict=True)
    ]
    last = {"test": f"{found.test_after:.4f}", "ends": as_row(found.after_interval)}
    first = {"test": f"{found.test_before:.4f}", "ends": as_row(found.before_interval)}
    rows[-1] |= last
    rows[0] |= first
    columns = {"clipped": "{clipped}", "validation": "{validation:.4f}"}
    level = f"{100 * found.comparison.level:g} % interval"
    return frame.table(rows, columns | {"test": "{test}", level: "{ends}"})


@dataclasses.dataclass(frozen=True)
class Export(Pruned):
    """Options of the command ``export``."""

    to: Path | None = None  # folder to write; it must not exist
    # whether clipped matrices are stored as two factors where that is smaller; only
    # this library reads such a folder
    factorised: Switch = False

    def _check(self) -> None:
        super()._check()
        to, some = self.to, bool(self.interventions)
        named = to is not None and bool(to.name)
        expect(named, "to", "a folder to write", f"{to}; pass --to")
        expect(some, "prune", "something to clip", "none; pass --prune")
        fresh = to is not None and not to.exists()
        expect(fresh, "to", "a path that does not exist", to)


def run_export(argv: list[str] | None = None) -> None:
    """Parses the command line, clips the model and writes it."""
    about = "Writes a pruned language model as a checkpoint, dense or in factors."
    options = read_options(Export, argv, "export", about)
    prunings, model = options.interventions, options.load_model()
    how, console = {"method": options.method}, _console()
    clipped = prune_model(model, prunings, **how)
    pairs = [(one.layer, one.module) for one in prunings]
    factorised = pairs if options.factorised else None
    folder = save_checkpoint(clipped, options.to, factorised=factorised)
    rows = []
    for one in prunings:
        place = one.layer, one.module, one.strength
        for size in size_report(model, *place, **how).matrices:
            shape = "{} x {}".format(*size.shape)
            rows.append({"clipped": str(one), "shape": shape, "size": size})
    columns = {"clipped": "{clipped}", "matrix": "{size.matrix}", "shape": "{shape}"}
    columns |= {"rank": "{size.rank}", "numbers": "{size.dense:,}"}
    columns |= {"as two factors": "{size.factors:,}"}
    console.print(frame.table(rows, columns), soft_wrap=False)
    if model.arch.tied and not clipped.arch.tied:
        console.print("embeddings and head were one matrix, and are two now")
    in_factors = take_factors(json.loads((folder / "config.json").read_text()))[1]
    reader = "transformers and icltheory read it"
    reader = "icltheory reads it, in factors" if in_factors else reader
    stored = sum(path.stat().st_size for path in folder.iterdir())
    console.print(f"{folder}: {stored:,} bytes, {reader}")


COMMANDS: dict[str, Callable[[list[str]], Any]] = {
    "evaluate": run_evaluate,
    "search": run_search,
    "export": run_export,
    "cost": cost.main,
}
