"""Declarations of tasks: columns and labels, prompts, and splits; their YAML files.

A declaration says how the rows of a file become examples. A recipe, one for each
profile, says how examples become prompts, how the training rows are split, and how an
answer is scored.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from icltheory._checks import check_choice, check_nonnegative_int, wrong
from icltheory.bridge.tasks.scorings import SCORINGS
from icltheory.bridge.tasks.task import PromptTemplate, fill, names_of

PROFILES = ("paper", "authors_code")


@dataclass(frozen=True)
class Split:
    """Which rows become demonstrations, validation and test.

    The training rows are shuffled and listed class by class. In each list the first
    ``skip`` rows are passed over, the next ``per_class`` are demonstrations, and all
    others, those passed over first, are left for validation and test. Demonstrations
    take turns: one of each class, and again.

    Args:
        seed: Seed of the shuffle.
        per_class: Demonstrations of each class; 0 for none.
        skip: Rows of each class that come before them.
        order: Classes in the order in which they take turns; all, ascending, if empty.
        keep: How many of the demonstrations reach the prompt; all if ``None``.
        validation: Rows of each class, or ``"rest"`` for all that the demonstrations
            leave, or ``"validation"`` for the file of that name.
        test: ``"rest"`` for what validation leaves, or the file ``"test"`` or
            ``"validation"``.

    Source: Yao et al. (2024), section C.3.
    """

    seed: int = 0
    per_class: int = 5
    skip: int = 0
    order: tuple[int, ...] = ()
    keep: int | None = None
    validation: int | str = "validation"
    test: str = "test"

    def __post_init__(self):
        if str(self.validation).isdecimal():  # a YAML file has a text
            object.__setattr__(self, "validation", int(self.validation))
        if isinstance(self.validation, str):
            check_choice("validation", self.validation, ("rest", "validation"))
        for name in ("per_class", "seed", "skip", "keep", "validation"):
            if not (isinstance(number := getattr(self, name), str) or number is None):
                check_nonnegative_int(name, number)
        check_choice("test", self.test, ("rest", "test", "validation"))


@dataclass(frozen=True)
class TaskRecipe:
    """Prompts, split and scoring of a task in one profile.

    Args:
        scoring: How options are compared, one of ``tasks.SCORINGS``.
        denominator: What a count of right answers is divided by, ``"n"`` or ``"n-1"``.
        merge: Label of each class of the file; the class itself if empty.

    Source: Yao et al. (2024), sections C.1 to C.3.
    """

    prompt: PromptTemplate
    split: Split = field(default_factory=Split)
    scoring: str = "label_token"
    denominator: str = "n"
    merge: tuple[int, ...] = ()

    def __post_init__(self):
        check_choice("scoring", self.scoring, tuple(SCORINGS))
        check_choice("denominator", self.denominator, ("n", "n-1"))


@dataclass(frozen=True)
class File:
    """A file that holds a split under a name that is not standard.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``.
        pattern: Name, or a pattern such as ``"train*.tsv"``.
        start: First row of the split in the file; ``stop`` is the first after it.
    """

    split: str
    pattern: str
    start: int = 0
    stop: int | None = None

    def __post_init__(self):
        check_choice("split", self.split, ("train", "validation", "test"))


@dataclass(frozen=True)
class TaskSpec:
    """The declaration of a task.

    Args:
        fields: Template over the columns for each field of an example, or several, of
            which the first whose columns exist is taken.
        labels: Pairs of a column and the values it has, in the order of the classes.
            Files may differ: the first pair that fits a row is taken.
        recipes: One recipe for both profiles, or a recipe for each.
        kind: ``"classification"`` or ``"choice"``.
        hub: Name on the hub and, if it has one, configuration.
        files: Files with names of their own, tried in order before the usual ones.
        headerless: Columns of tsv and csv files without a header.
        folder: Folder of local files; the hub if empty.
    """

    name: str
    fields: Mapping[str, str | tuple[str, ...]]
    labels: tuple[tuple[str, tuple[str, ...]], ...]
    recipes: TaskRecipe | Mapping[str, TaskRecipe]
    kind: str = "classification"
    hub: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    headerless: tuple[tuple[str, ...], ...] = ()
    folder: str = ""

    def __post_init__(self):
        check_choice("kind", self.kind, ("classification", "choice"))
        if isinstance(self.labels, Mapping):
            object.__setattr__(self, "labels", tuple(self.labels.items()))
        for name in self.fields:
            for template in self.templates(name):
                self._check_columns(name, template)
        given = self.recipes
        if not isinstance(given, TaskRecipe | Mapping):
            raise wrong("recipes", "a TaskRecipe, or one for each profile", given)
        for recipe in [given] if isinstance(given, TaskRecipe) else given.values():
            _check_recipe(self, recipe)

    def templates(self, field: str) -> tuple[str, ...]:
        """The templates of a field over the columns, in the order of trying."""
        given = self.fields[field]
        return (given,) if isinstance(given, str) else given

    def recipe(self, profile: str) -> TaskRecipe:
        """The recipe of a profile, ``"paper"`` or ``"authors_code"``."""
        recipes = self.recipes
        if isinstance(recipes, TaskRecipe):
            recipes = dict.fromkeys(PROFILES, recipes)
        check_choice("profile", profile, tuple(recipes))
        return recipes[profile]

    def _check_columns(self, name: str, template: str) -> None:
        try:
            names_of(template)
            template.format_map(defaultdict(str))
        except ValueError as error:
            wanted = f"a format string for {name!r} of {self.name}"
            got = f"{template!r} ({error})"
            raise ValueError(f"fields: expected {wanted}, got {got}") from None


def _check_recipe(spec: TaskSpec, recipe: TaskRecipe) -> None:
    """Raises unless prompts, labels and the order of classes are consistent."""
    prompt, merge = recipe.prompt, recipe.merge
    wanted = "words" if spec.kind == "classification" else "options"
    if not getattr(prompt, wanted):
        raise ValueError(f"{wanted}: expected one per class of {spec.name}, got none")
    for name in ("words", "scored"):
        words = getattr(prompt, name)
        if len(set(words)) < len(words):
            raise wrong(name, f"different words for {spec.name}", words)
    if prompt.scored and len(prompt.scored) != len(prompt.words):
        wanted = f"{len(prompt.words)} words for {spec.name}"
        raise wrong("scored", wanted, prompt.scored)
    labels = list(range(prompt.num_labels))
    for column, values in spec.labels:
        merged = merge or range(len(values))
        if sorted(set(merged)) != labels or len(values) != len(merged):
            shown = ", ".join(values) + (f", merged to {merge}" if merge else "")
            wanted = f"{len(labels)} classes in column {column!r} of {spec.name}"
            raise ValueError(f"labels: expected values for {wanted}, got {shown}")
    order = recipe.split.order
    if order and sorted(order) != labels:
        raise ValueError(f"order: expected each class of {spec.name} once, got {order}")
    blanks = dict.fromkeys(spec.fields, "")
    fill(prompt.demonstration, blanks | {"label": ""})
    for template in (prompt.query, prompt.zero_shot, *prompt.options):
        fill(template, blanks)
    if spec.kind != "choice" and "label" not in names_of(prompt.demonstration):
        wanted = f"a template with {{label}} for {spec.name}"
        raise ValueError(
            f"demonstration: expected {wanted}, got {prompt.demonstration!r}"
        )


SUFFIXES = (".yaml", ".yml")


def is_declaration_file(name: Any) -> bool:
    """Whether a name ends in ``.yaml`` or ``.yml``.

    Example:
        >>> is_declaration_file("tasks/weather.yaml"), is_declaration_file("sst2")
        (True, False)
    """
    return Path(name).suffix in SUFFIXES


def read_task_spec(path: Any) -> TaskSpec:
    """Reads the declaration of a task from a YAML file.

    The file has the fields of :class:`~icltheory.bridge.TaskSpec`. Those of a
    :class:`~icltheory.bridge.tasks.TaskRecipe` stand beside them, or under ``recipes``,
    one recipe for both profiles or one for each. ``labels`` may be a mapping from a
    column to its values. Without ``name`` the task has that of the file. ``folder`` is
    relative to the folder of the file, and is that folder where neither ``folder`` nor
    ``hub`` is given.

    A text is what stands in the file: ``no`` and ``01`` are label words like others.
    The file is parsed and nothing in it is run: tags have no effect.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        expected = f"expected a file of {' or '.join(SUFFIXES)}"
        raise ValueError(f"path: {expected}, got {path}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such declaration file")
    tree = _parse(path)
    own = [each.name for each in fields(TaskRecipe)]
    try:
        _check_names(tree, [*(each.name for each in fields(TaskSpec)), *own])
        beside = {name: tree.pop(name) for name in own if name in tree}
        given = tree.pop("recipes", beside)
        if given is not beside and beside:
            raise ValueError(f"{min(beside)}: expected inside recipes, got it outside")
        if not isinstance(given, dict):
            raise ValueError(f"recipes: expected a mapping, got {given!r:.60}")
        if set(PROFILES) & given.keys():
            recipes = {name: _convert(one, TaskRecipe) for name, one in given.items()}
        else:
            recipes = _convert(given, TaskRecipe)
        if isinstance(tree.get("labels"), dict):
            tree["labels"] = list(tree["labels"].items())
        tree |= {"name": tree.get("name") or path.stem, "recipes": recipes}
        made = _convert(tree, _Written)
        folder = "" if made.hub and not made.folder else str(path.parent / made.folder)
        return TaskSpec(**vars(made) | {"folder": folder})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class _Written(TaskSpec):
    """A declaration whose recipes have been read, so that errors name their fields."""

    recipes: Any


def _parse(path: Path) -> Any:
    """Reads YAML with texts for all scalars; a name may not be given twice."""
    try:
        import msgspec  # noqa: F401 - used once the file is parsed
        import yaml
    except ImportError as error:
        raise ImportError(
            "reading a declaration file needs the packages pyyaml and msgspec: "
            "pip install icltheory[llm]"
        ) from error

    class Loader(yaml.BaseLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict:
            found = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                said = f"two entries of a name among {', '.join(map(str, found))}"
                raise yaml.MarkedYAMLError(None, None, said, node.start_mark)
            return found

    try:
        return yaml.load(path.read_text("utf-8-sig"), Loader)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8, got {error.reason}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"{path}{line}: expected YAML, got {said}") from None


def _convert(tree: Any, kind: Any) -> Any:
    """Builds a record from a mapping of texts; errors name the field."""
    import msgspec

    try:
        made = msgspec.convert(tree, kind, strict=False)
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        place = place.strip(".`")
        said = said[0].lower() + said[1:]
        raise ValueError(f"{place}: {said}" if place else said) from None
    _check_unknown(tree, asdict(made))
    return made


def _check_unknown(given: Any, made: Any, front: str = "") -> None:
    """Raises for names of a tree that the record made of it does not have."""
    if isinstance(given, dict):
        _check_names(given, made, front)
        for name, value in given.items():
            _check_unknown(value, made[name], f"{front}{name}.")
    elif isinstance(given, list):
        for value, other in zip(given, made, strict=True):
            _check_unknown(value, other, front)


def _check_names(given: Any, known: Any, front: str = "") -> None:
    if not isinstance(given, dict):
        raise ValueError(f"expected a mapping of fields, got {given!r:.60}")
    for name in given:
        if name not in known:
            listed = ", ".join(known)
            raise ValueError(f"{front}{name}: expected a field among {listed}")
