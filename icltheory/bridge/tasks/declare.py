"""Declarations of tasks: columns and labels, prompts, and splits.

A declaration says how the rows of a file become examples. A recipe, one for each
profile, says how examples become prompts, how the training rows are split, and how an
answer is scored.
"""

import functools
import string
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from icltheory._checks import check_choice, check_nonnegative_int
from icltheory.bridge.tasks.scorings import SCORINGS

__all__ = [
    "PROFILES",
    "File",
    "PromptTemplate",
    "Split",
    "TaskRecipe",
    "TaskSpec",
    "fill",
]

PROFILES = ("paper", "authors_code")


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
            where they are the label words after a space.
        zero_shot: Question without demonstrations; empty if it is the same.

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
        counts = {name: getattr(self, name) for name in ("per_class", "seed", "skip")}
        if self.keep is not None:
            counts["keep"] = self.keep
        if not isinstance(self.validation, str):
            counts["validation"] = self.validation
        elif self.validation.isdecimal():  # as a YAML file has it
            object.__setattr__(self, "validation", int(self.validation))
        else:
            check_choice("validation", self.validation, ("rest", "validation"))
        for name, number in counts.items():
            check_nonnegative_int(name, number)
        check_choice("test", self.test, ("rest", "test", "validation"))


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
        stop: First row after it; the end if ``None``.
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
        check_choice("kind", self.kind, ("classification", "choice"))
        for name in self.fields:
            for template in self.templates(name):
                self._check_columns(name, template)
        given = self.recipes
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
            raise ValueError(
                f"fields: expected a format string for {name!r} of {self.name}, "
                f"got {template!r} ({error})"
            ) from None


def _check_recipe(spec: TaskSpec, recipe: TaskRecipe) -> None:
    """Raises unless prompts, labels and the order of classes are consistent."""
    prompt, merge = recipe.prompt, recipe.merge
    wanted = "words" if spec.kind == "classification" else "options"
    if not getattr(prompt, wanted):
        raise ValueError(f"{wanted}: expected one per class of {spec.name}, got none")
    if prompt.scored and len(prompt.scored) != len(prompt.words):
        raise ValueError(
            f"scored: expected {len(prompt.words)} words for {spec.name}, "
            f"got {prompt.scored}"
        )
    labels = list(range(prompt.num_labels))
    for column, values in spec.labels:
        merged = merge or range(len(values))
        if sorted(set(merged)) != labels or len(values) != len(merged):
            shown = ", ".join(values) + (f", merged to {merge}" if merge else "")
            raise ValueError(
                f"labels: expected values for {len(labels)} classes in column "
                f"{column!r} of {spec.name}, got {shown}"
            )
    order = recipe.split.order
    if order and sorted(order) != labels:
        raise ValueError(f"order: expected each class of {spec.name} once, got {order}")
    blanks = dict.fromkeys(spec.fields, "")
    fill(prompt.demonstration, blanks | {"label": ""})
    for template in (prompt.query, prompt.zero_shot, *prompt.options):
        fill(template, blanks)
    if spec.kind != "choice" and "label" not in names_of(prompt.demonstration):
        raise ValueError(
            f"demonstration: expected a template with {{label}} for {spec.name}, "
            f"got {prompt.demonstration!r}"
        )


@functools.cache
def names_of(template: str) -> frozenset[str]:
    """Names of a template's fields; raises for attributes and items of fields."""
    names = set()
    for _, name, inside, _ in string.Formatter().parse(template):
        if name is not None:
            if "." in name or "[" in name:
                raise ValueError(f"a field's name has no '.' or '[', got {name!r}")
            names |= {name} | names_of(inside or "")
    return frozenset(names)


class _Formatter(string.Formatter):
    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "t":
            return str(value).strip()
        if conversion == "e":
            return str(value).rstrip()
        return super().convert_field(value, conversion)


_FORMATTER = _Formatter()


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fills a template from the fields of an example.

    ``{text}`` is the field as it stands, ``{text!t}`` without white space at both ends,
    ``{text!e}`` without it at the end. Braces inside a field stay what they are.

    Example:
        >>> fill("text: {text!t}", {"text": " a fine {film} "})
        'text: a fine {film}'
    """
    for name, value in fields.items():
        if not isinstance(value, str):
            raise ValueError(f"fields: expected a text for {name!r}, got {value!r}")
    try:
        names_of(template)
        return _FORMATTER.vformat(template, (), fields)
    except KeyError as error:
        raise ValueError(
            f"template: expected fields among {', '.join(fields)}, "
            f"got {error.args[0]!r} in {template!r}"
        ) from None
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"template: expected a format string with the conversions !t and !e, got "
            f"{template!r} ({error})"
        ) from None
