"""Declarations of tasks: columns and labels, prompts, and splits.

A declaration says how the rows of a file become examples. A recipe, one for each
profile, says how examples become prompts, how the training rows are split, and how an
answer is scored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from icltheory._checks import check_choice, check_nonnegative_int
from icltheory.bridge.tasks.scorings import SCORINGS
from icltheory.bridge.tasks.template import check_name, fill, names_of

__all__ = [
    "PROFILES",
    "File",
    "PromptTemplate",
    "TaskRecipe",
    "Split",
    "TaskSpec",
]

PROFILES = ("paper", "authors_code")
KINDS = ("classification", "choice")


@dataclass(frozen=True)
class PromptTemplate:
    """The strings of a task's prompts, as templates over the fields of an example.

    ``{text}`` is the field as it stands in the file, ``{text!t}`` without white space
    at both ends, ``{text!e}`` without it at the end. ``{label}`` is the label word.

    Args:
        demonstration: One demonstration, with everything up to the next one.
        query: The question, up to where the answer begins.
        words: Label word of each class, as demonstrations show it; none for a choice.
        scored: Label words that are compared, if they are not those shown.
        options: Templates of the texts to choose from; empty for a classification,
            where they are the label words behind a space.
        zero_shot: Question asked when there are no demonstrations; empty if it is the
            same.

    Source: Yao et al. (2024), Table 1.
    """

    demonstration: str
    query: str
    words: tuple[str, ...] = ()
    scored: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    zero_shot: str = ""

    @property
    def num_labels(self) -> int:
        """Number of classes, or of options of a choice."""
        return len(self.words or self.options)


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
        check_nonnegative_int("per_class", self.per_class)
        check_nonnegative_int("seed", self.seed)
        check_nonnegative_int("skip", self.skip)
        if self.keep is not None:
            check_nonnegative_int("keep", self.keep)
        if isinstance(self.validation, str):
            check_choice("validation", self.validation, ("rest", "validation"))
        else:
            check_nonnegative_int("validation", self.validation)
        check_choice("test", self.test, ("rest", "test", "validation"))

    @property
    def uses_training_rows(self) -> bool:
        """Whether any part of the split uses training rows."""
        counted = 0 if isinstance(self.validation, str) else self.validation
        return bool(self.per_class or counted) or "rest" in (self.validation, self.test)


@dataclass(frozen=True)
class TaskRecipe:
    """Prompts, split and scoring of a task in one profile.

    Args:
        prompt: The strings.
        split: The rows.
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
        start: First row of the split in the file.
        stop: First row behind it; the end if ``None``.
    """

    split: str
    pattern: str
    start: int = 0
    stop: int | None = None

    def __post_init__(self):
        check_choice("split", self.split, ("train", "validation", "test"))
        if PurePath(self.pattern).is_absolute():
            raise ValueError(
                "pattern: expected a path within the folder of the task, got "
                f"{self.pattern}"
            )


@dataclass(frozen=True)
class TaskSpec:
    """The declaration of a task.

    Args:
        name: Name of the task.
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
        check_choice("kind", self.kind, KINDS)
        for name, templates in self.fields.items():
            for template in (templates,) if isinstance(templates, str) else templates:
                _check_columns(self, name, template)
        given = self.recipes
        for recipe in (given,) if isinstance(given, TaskRecipe) else given.values():
            _check_recipe(self, recipe)

    def recipe(self, profile: str) -> TaskRecipe:
        """Returns the recipe of a profile.

        Args:
            profile: ``"paper"`` or ``"authors_code"``.

        Returns:
            Its prompts, split and scoring.
        """
        if isinstance(self.recipes, TaskRecipe):
            check_choice("profile", profile, PROFILES)
            return self.recipes
        check_choice("profile", profile, tuple(self.recipes))
        return self.recipes[profile]


class _AnyColumn(dict):
    def __missing__(self, column: str) -> str:
        return ""


def _check_columns(spec: TaskSpec, name: str, template: str) -> None:
    """Raises unless a template can be filled from columns."""
    try:
        for field in names_of(template):
            check_name(field)
        template.format_map(_AnyColumn())
    except (ValueError, IndexError, AttributeError) as error:
        raise ValueError(
            f"fields: expected a format string for {name!r} of {spec.name}, "
            f"got {template!r} ({error})"
        ) from None


def _check_recipe(spec: TaskSpec, recipe: TaskRecipe) -> None:
    """Raises unless prompts, labels and the order of classes are consistent."""
    prompt = recipe.prompt
    wanted = "words" if spec.kind == "classification" else "options"
    if not getattr(prompt, wanted):
        raise ValueError(f"{wanted}: expected one per class of {spec.name}, got none")
    if prompt.scored and len(prompt.scored) != len(prompt.words):
        raise ValueError(
            f"scored: expected {len(prompt.words)} words for {spec.name}, "
            f"got {prompt.scored}"
        )
    labels = set(range(prompt.num_labels))
    for label in recipe.merge:
        if label not in labels:
            raise ValueError(
                f"merge: expected labels from 0 to {len(labels) - 1} for {spec.name}, "
                f"got {label!r}"
            )
    for column, values in spec.labels:
        merged = set(recipe.merge or range(len(values)))
        if merged != labels or len(values) != len(recipe.merge or values):
            raise ValueError(
                f"labels: expected values for {len(labels)} classes in column "
                f"{column!r} of {spec.name}, got {', '.join(values)}"
            )
    order = recipe.split.order
    if order and sorted(order) != sorted(labels):
        raise ValueError(f"order: expected each class of {spec.name} once, got {order}")
    _check_templates(prompt, dict.fromkeys(spec.fields, ""))
    if spec.kind != "choice" and "{label" not in prompt.demonstration:
        raise ValueError(
            f"demonstration: expected a template with {{label}} for {spec.name}, "
            f"got {prompt.demonstration!r}"
        )


def _check_templates(prompt: PromptTemplate, fields: dict[str, str]) -> None:
    """Raises unless every string of a prompt can be filled from the fields."""
    fill(prompt.demonstration, fields | {"label": ""})
    for template in (prompt.query, prompt.zero_shot, *prompt.options):
        fill(template, fields)
