"""A task ready for evaluation: prompts, questions, options, and its problems."""

import functools
import string
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_choice, check_nonnegative_int, wrong
from icltheory.bridge.tasks.scorings import SCORINGS


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
    """Fills a template of :class:`PromptTemplate` from the fields of an example.

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
        said = f"fields among {', '.join(fields)}, got {error.args[0]!r} in"
        raise ValueError(f"template: expected {said} {template!r}") from None
    except (ValueError, IndexError) as error:
        said = f"a format string with the conversions !t and !e, got {template!r}"
        raise ValueError(f"template: expected {said} ({error})") from None


class Example(NamedTuple):
    """One labelled example.

    Args:
        fields: Texts that the templates name.
        label: Right class, or right option of a choice.
        index: Row in the file it came from, from 0.
    """

    fields: dict[str, str]
    label: int
    index: int


@dataclass(frozen=True)
class LanguageTask:
    """Demonstrations, validation and test examples, with their prompts.

    A prompt is ``prefix(shots) + query(example)``; its answer is one of
    ``options(example)``, and ``example.label`` says which. ``shots`` are the first
    demonstrations, all if ``None``; splits are ``"demonstrations"``, ``"validation"``
    and ``"test"``.

    Args:
        profile: ``"paper"`` or ``"authors_code"``.
        kind: ``"classification"`` (the options are label words) or ``"choice"`` (each
            example has its own).
        labels: Label words that are compared; ``"1"``, ``"2"`` for a choice.
        scoring: How options are compared, one of ``tasks.SCORINGS``.
        denominator: What a count of right answers is divided by, ``"n"`` or ``"n-1"``.
        sources: The files or hub splits that were read.

    Source: Yao et al. (2024), sections C.1 to C.3.
    """

    name: str
    profile: str
    kind: str
    labels: tuple[str, ...]
    demonstrations: tuple[Example, ...]
    validation: tuple[Example, ...]
    test: tuple[Example, ...]
    template: PromptTemplate
    scoring: str = "label_token"
    denominator: str = "n"
    sources: tuple[str, ...] = ()

    def __post_init__(self):
        check_choice("scoring", self.scoring, tuple(SCORINGS))
        twice = [word for word, number in Counter(self.labels).items() if number > 1]
        if twice:
            got = f"{twice[0]!r} for two classes"
            raise ValueError(f"labels: expected different words, got {got}")
        classes = self.template.options if self.kind == "choice" else self.labels
        for split in ("demonstrations", "validation", "test"):
            for example in getattr(self, split):
                label = example.label
                whole = isinstance(label, (int, np.integer))
                if isinstance(label, bool) or not (whole and 0 <= label < len(classes)):
                    said = f"a label from 0 to {len(classes) - 1}, got {label!r}"
                    raise ValueError(
                        f"{split} example {example.index}: expected {said}"
                    )

    def prefix(self, shots: int | None = None) -> str:
        """The demonstrations as text, before every question; empty for 0 shots."""
        chosen = self.demonstrations[: self.shown(shots)]
        return "".join(self._demonstration(example) for example in chosen)

    def query(self, example: Example, shots: int | None = None) -> str:
        """The question's text after the prefix, up to the answer.

        Without demonstrations some tasks ask in other words.
        """
        if self.shown(shots) == 0 and self.template.zero_shot:
            return fill(self.template.zero_shot, example.fields)
        return fill(self.template.query, example.fields)

    def options(self, example: Example) -> tuple[str, ...]:
        """The answers that are compared: label words after a space, or texts."""
        if self.kind == "choice":
            return tuple(fill(t, example.fields) for t in self.template.options)
        return tuple(f" {word}" for word in self.labels)

    def examples(self, split: str) -> tuple[Example, ...]:
        """The examples of a split."""
        check_choice("split", split, ("demonstrations", "validation", "test"))
        return getattr(self, split)

    def class_counts(self, split: str) -> tuple[int, ...]:
        """Number of examples with each label, in the order of the labels."""
        counts = Counter(example.label for example in self.examples(split))
        return tuple(counts[label] for label in range(len(self.labels)))

    def with_demonstrations(
        self,
        demonstrations: Sequence[Example] | None = None,
        *,
        order_seed: int | None = None,
    ) -> "LanguageTask":
        """Returns the task with other demonstrations, or its own, in a random order.

        The order is the one given if there is no ``order_seed``.
        """
        chosen = self.demonstrations if demonstrations is None else demonstrations
        if order_seed is not None:
            order = np.random.default_rng(order_seed).permutation(len(chosen))
            chosen = [chosen[place] for place in order.tolist()]
        return replace(self, demonstrations=tuple(chosen))

    def shown(self, shots: int | None) -> int:
        """Number of demonstrations in a prompt, all for ``None``."""
        if shots is None:
            return len(self.demonstrations)
        check_nonnegative_int("shots", shots)
        if shots > (most := len(self.demonstrations)):
            raise wrong("shots", f"at most {most} for {self.name}", shots)
        return shots

    def _demonstration(self, example: Example) -> str:
        choice = self.kind == "choice"
        words = self.options(example) if choice else self.template.words
        fields = {**example.fields, "label": words[example.label]}
        return fill(self.template.demonstration, fields)


class Finding(NamedTuple):
    """One problem found in one or several examples.

    Args:
        level: ``"error"`` or ``"warning"``.
        code: ``"trailing-space"``, ``"label-tokens"``, ``"too-long"``,
            ``"vocabulary"``, ``"boundary"`` or ``"overlap"``.
        where: Task and split.
        examples: Rows of all examples it was found in.
    """

    level: str
    code: str
    where: str
    message: str
    examples: tuple[int, ...] = ()


def check_prompt(
    query: str, options: Sequence[str], *, example: tuple[str, int] = ("prompt", 0)
) -> tuple[Finding, ...]:
    """Finds two spaces at the beginning of an answer.

    A question that ends in a space is followed by a label whose token begins with one:
    the model sees two spaces, which are rare in the texts it learned from. ``example``
    is split and row, for the message.

    Example:
        >>> check_prompt("Is it true? ", [" Yes", " No"])[0].message
        "prompt example 0: a space stands before the space of the answer ' Yes'"
    """
    where, row = example
    begins = " " if query.endswith((" ", "\t")) else "  "
    for option in options:
        if option.startswith(begins):
            said = f"a space stands before the space of the answer {option!r}"
            message = f"{where} example {row}: {said}"
            return (Finding("warning", "trailing-space", where, message, (row,)),)
    return ()


def check_overlap(
    where: str, examples: Iterable[Example], test: Iterable[Example]
) -> tuple[Finding, ...]:
    """Finds examples whose texts also occur in the test set, a warning for each."""
    known = {tuple(example.fields.values()) for example in test}
    found = []
    for example in examples:
        if tuple(example.fields.values()) in known:
            row = example.index
            message = f"{where} example {row}: the same text is in the test set"
            found.append(Finding("warning", "overlap", where, message, (row,)))
    return tuple(found)


def enforce(findings: Iterable[Finding]) -> None:
    """Raises the first error, or issues the warnings, one for each kind and split.

    The message is that of the first example, with the number of the others.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        key = finding.level, finding.code, finding.where
        groups.setdefault(key, []).append(finding)
    for (level, *_), group in sorted(groups.items(), key=lambda item: item[0][0]):
        others = len({row for one in group for row in one.examples}) - 1
        message = group[0].message + (f" (and {others} more)" if others > 0 else "")
        if level == "error":
            raise ValueError(message)
        warnings.warn(message, UserWarning, stacklevel=2)


def label_tokens(
    encode: Callable[[str], Sequence[int]], options: Sequence[str]
) -> tuple[tuple[int, ...], ...]:
    """Tokens of each label word when it follows another word.

    The word is encoded after a letter and the letter's tokens are taken away, so that
    tokenizers that mark spaces at the front, and those that add a first token, agree.

    Example:
        >>> label_tokens(lambda text: [len(word) for word in text.split(" ")], [" yes"])
        ((3,),)
    """
    before = list(encode("a"))
    rows = [list(encode("a" + option)) for option in options]
    return tuple(tuple(row[len(commonprefix([before, row])) :]) for row in rows)
