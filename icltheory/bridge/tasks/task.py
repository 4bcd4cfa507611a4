"""A task ready for evaluation: demonstrations, questions, options and labels."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_choice, check_nonnegative_int
from icltheory.bridge.tasks.declare import PromptTemplate
from icltheory.bridge.tasks.lint import (
    Finding,
    check_labels,
    check_overlap,
    check_prompt,
    gather,
)
from icltheory.bridge.tasks.scorings import SCORINGS
from icltheory.bridge.tasks.template import fill

__all__ = ["Example", "LanguageTask"]


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
    ``options(example)``, and ``example.label`` says which.

    Args:
        name: Name of the task.
        profile: ``"paper"`` or ``"authors_code"``.
        kind: ``"classification"`` (the options are label words) or ``"choice"`` (each
            example has its own).
        labels: Label words that are compared; ``"1"``, ``"2"`` for a choice.
        demonstrations: In the order of the prompt.
        validation: Examples for the search.
        test: Examples for the one look at the end.
        template: The strings.
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
            raise ValueError(
                f"labels: expected different words, got {twice[0]!r} for two classes"
            )
        for split in ("demonstrations", "validation", "test"):
            for example in getattr(self, split):
                self._check_label(split, example)

    def _check_label(self, split: str, example: Example) -> None:
        choice = self.kind == "choice"
        most = len(self.template.options if choice else self.labels) - 1
        label = example.label
        whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
        if not (whole and 0 <= label <= most):
            raise ValueError(
                f"{split} example {example.index}: expected a label from 0 to {most}, "
                f"got {label!r}"
            )

    def prefix(self, shots: int | None = None) -> str:
        """The demonstrations as text.

        Args:
            shots: How many of them, the first ones; all if ``None``.

        Returns:
            The text in front of every question; empty for 0 shots.
        """
        chosen = self.demonstrations[: self._shots(shots)]
        return "".join(self._demonstration(example) for example in chosen)

    def query(self, example: Example, shots: int | None = None) -> str:
        """Returns the question's text up to the answer.

        Args:
            example: The example.
            shots: Demonstrations in front of it. Without any, some tasks ask in other
                words.

        Returns:
            The text behind the prefix.
        """
        if self._shots(shots) == 0 and self.template.zero_shot:
            return fill(self.template.zero_shot, example.fields)
        return fill(self.template.query, example.fields)

    def options(self, example: Example) -> tuple[str, ...]:
        """Returns the answers that are compared.

        Args:
            example: The example.

        Returns:
            Texts that follow the question: the label words, each behind a space, or
            the example's own options.
        """
        if self.kind == "choice":
            return tuple(fill(t, example.fields) for t in self.template.options)
        return tuple(f" {word}" for word in self.labels)

    def examples(self, split: str) -> tuple[Example, ...]:
        """Returns the examples of a split.

        Args:
            split: ``"demonstrations"``, ``"validation"`` or ``"test"``.

        Returns:
            Its examples.
        """
        check_choice("split", split, ("demonstrations", "validation", "test"))
        return getattr(self, split)

    def class_counts(self, split: str) -> tuple[int, ...]:
        """Number of examples with each label; the largest gives the majority baseline.

        Args:
            split: ``"demonstrations"``, ``"validation"`` or ``"test"``.

        Returns:
            One count a label.
        """
        counts = Counter(example.label for example in self.examples(split))
        return tuple(counts[label] for label in range(len(self.labels)))

    def with_demonstrations(
        self,
        demonstrations: Sequence[Example] | None = None,
        *,
        order_seed: int | None = None,
    ) -> "LanguageTask":
        """Returns the task with other demonstrations, or with another order of them.

        Args:
            demonstrations: New demonstrations; the task's own if ``None``.
            order_seed: Seed of a random order; the order given if ``None``.

        Returns:
            A new task.
        """
        chosen = self.demonstrations if demonstrations is None else demonstrations
        if order_seed is not None:
            order = np.random.default_rng(order_seed).permutation(len(chosen))
            chosen = [chosen[int(position)] for position in order]
        return replace(self, demonstrations=tuple(chosen))

    def lint(
        self,
        encode: Callable[[str], Sequence[int]] | None = None,
        *,
        context_length: int | None = None,
        split: str = "validation",
        shots: int | None = None,
    ) -> tuple[Finding, ...]:
        """Finds prompts that a model cannot answer correctly.

        Args:
            encode: Tokenizer; token counts are not checked without it.
            context_length: Longest prompt of the model; not checked if ``None``.
            split: The split whose examples are looked at.
            shots: Demonstrations; all if ``None``.

        Returns:
            What was found: a space in front of the label, a label of several tokens, a
            prompt longer than the context, examples that stand in the test set too.
            Each says which examples. ``enforce`` raises and warns.
        """
        examples, prefix = self.examples(split), self.prefix(shots)
        found: list[Finding] = []
        by_token = SCORINGS[self.scoring].measure == "label_token"
        if encode is not None and examples and by_token:
            found += check_labels(encode, self.options(examples[0]), self.name)
        prefix_tokens = None if encode is None else len(encode(prefix))
        for example in examples:
            found += check_prompt(
                self.query(example, shots),
                self.options(example),
                prefix=prefix,
                encode=encode,
                context_length=context_length,
                prefix_tokens=prefix_tokens,
                example=(f"{self.name} {split}", example.index),
            )
        if split != "test":
            found += check_overlap(f"{self.name} {split}", examples, self.test)
        shown = self.demonstrations[: self._shots(shots)]
        found += check_overlap(f"{self.name} demonstrations", shown, self.test)
        return gather(found)

    def _shots(self, shots: int | None) -> int:
        if shots is None:
            return len(self.demonstrations)
        check_nonnegative_int("shots", shots)
        if shots > len(self.demonstrations):
            raise ValueError(
                f"shots: expected at most {len(self.demonstrations)} for {self.name}, "
                f"got {shots}"
            )
        return shots

    def _demonstration(self, example: Example) -> str:
        fields: dict[str, Any] = dict(example.fields)
        if self.kind != "classification":
            fields["label"] = self.options(example)[example.label]
        else:
            fields["label"] = self.template.words[example.label]
        return fill(self.template.demonstration, fields)
