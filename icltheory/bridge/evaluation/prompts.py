"""A split of a task as tokens: a shared prefix, and the tokens of each example."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from icltheory.bridge.tasks import (
    SCORINGS,
    Finding,
    LanguageTask,
    check_prompt,
    enforce,
    label_tokens,
)

Encode = Callable[[str], Sequence[int]]


@dataclasses.dataclass(frozen=True, eq=False)
class Prompts:
    """The token prompts of a split.

    Every text is encoded whole, and the prefix is the longest run of tokens that all of
    them begin with. A tokenizer that merges across the boundary between demonstrations
    and question therefore only makes the prefix shorter.

    Args:
        prefix: Tokens that all rows begin with.
        rows: The other tokens of each row, at least one: one row an example where label
            tokens are compared, else one for each option, next to each other.
        starts: Where the answer begins among the tokens of each row; their number where
            no likelihood of an answer is asked for.
        label_ids: Token of each label; empty where whole options are compared.
        labels: Number of the right option of each example.
        num_options: Number K of options of each example.
        measure: Name of the quantity that the device computes for each option.
        lengths: Divisors of the measures ``(n, K)``, if there are any.
    """

    prefix: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    label_ids: tuple[int, ...]
    labels: np.ndarray
    num_options: int
    measure: str
    lengths: np.ndarray | None = None

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return len(self.labels)

    @property
    def families(self) -> list[tuple[int, ...]]:
        """Numbers of the rows of each example."""
        each = 1 if self.measure == "label_token" else self.num_options
        firsts = range(0, each * self.num_examples, each)
        return [tuple(range(first, first + each)) for first in firsts]

    def read(self, number: int) -> tuple[int, ...]:
        """Tokens of a row that the model reads, without a predicted last token."""
        row = self.rows[number]
        return row[:-1] if self.measure == "log_likelihood" else row

    def asked(self, number: int) -> tuple[tuple[int, ...], int]:
        """Measured tokens of a row, and the position that predicts the first one.

        A log-likelihood sees a token at the place in front of it, a mean of all logits
        sees every token at its own place, and a label token needs none.
        """
        row = self.rows[number]
        if self.measure == "mean_logit":
            return row, 0
        start = self.starts[number]
        return row[start:], start - 1

    def scores(self, measures: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """Scores ``(..., b, K)`` of some examples, from what is measured."""
        if self.lengths is None:
            return measures
        return (measures / self.lengths[examples]).astype(measures.dtype)


def tokenize(
    model: Any, task: LanguageTask, split: str = "validation", shots: int | None = None
) -> Prompts:
    """Encodes a split and checks that the model can evaluate it.

    A label's token is what the label adds to the tokens of the whole prompt. It is
    looked up once for every ending of a prompt (its last word with the space behind
    it), and has to be the same for all.

    ``shots`` demonstrations stand in front, all if ``None``. Of the model its
    tokenizer, the size of its vocabulary and its context length are used.

    Source: Yao et al. (2024), section C.1.
    """
    examples = task.examples(split)
    if not examples:
        raise ValueError(f"{task.name} {split}: expected examples, got none")
    encode, scoring = model.tokenizer.encode, SCORINGS[task.scoring]
    reader = _PromptReader(task, split, shots, encode)
    by_token = scoring.measure == "label_token"
    label_ids = reader.label_ids(examples) if by_token else ()
    read = reader.question if by_token else reader.answers
    found = [row for example in examples for row in read(example)]
    rows, starts = [row for row, _ in found], [start for _, start in found]
    reader.check_rows(examples, rows, label_ids, model)
    lengths = None
    if scoring.length is not None:
        lengths = reader.lengths(examples, rows, starts, scoring.length)
    enforce(reader.findings)
    if scoring.measure != "log_likelihood":
        starts = [len(row) for row in rows]
    # The token before an answer predicts the answer's first token.
    shared = common_beginning(rows, min(starts) - 1)
    return Prompts(
        prefix=rows[0][:shared],
        rows=tuple(row[shared:] for row in rows),
        starts=tuple(start - shared for start in starts),
        label_ids=label_ids,
        labels=np.array([example.label for example in examples]),
        num_options=len(task.options(examples[0])),
        measure=scoring.measure,
        lengths=lengths,
    )


class _PromptReader:
    """Encodes the examples of a split and collects errors in them."""

    def __init__(
        self, task: LanguageTask, split: str, shots: int | None, encode: Encode
    ):
        self.task, self.shots = task, shots
        self.where = f"{task.name} {split}"
        self.encode = lambda text: tuple(int(i) for i in encode(text))
        self.prefix = task.prefix(shots)
        self.findings: list[Finding] = []

    def note(self, level: str, code: str, example: Any, message: str) -> None:
        text = f"{self.where} example {example.index}: {message}"
        self.findings.append(Finding(level, code, self.where, text, (example.index,)))

    def text(self, example: Any) -> str:
        query = self.task.query(example, self.shots)
        self.findings += check_prompt(
            query, self.task.options(example), example=(self.where, example.index)
        )
        return self.prefix + query

    def question(self, example: Any) -> list[tuple[tuple[int, ...], int]]:
        """Returns the row of an example whose label token is predicted."""
        row = self.encode(self.text(example))
        if not row:
            raise ValueError(f"{self.where} example {example.index}: no tokens")
        return [(row, len(row))]

    def answers(self, example: Any) -> list[tuple[tuple[int, ...], int]]:
        """Returns a row for each option, and where the option begins."""
        text = self.text(example)
        before, found = self.encode(text), []
        if not before:
            message = "expected at least one token in front of the answer, got none"
            self.note("error", "label-tokens", example, message)
        for option in self.task.options(example):
            row = self.encode(text + option)
            start = common_beginning([before, row], len(before))
            if start < len(before):
                merged = f"the tokenizer merges the option {option!r} with the question"
                self.note("warning", "boundary", example, merged)
            start = max(start, 1)
            if start >= len(row):
                message = f"expected an option of at least one token, got {option!r}"
                self.note("error", "label-tokens", example, message)
            found.append((row, start))
        return found

    def lengths(
        self, examples: Sequence[Any], rows: Any, starts: Any, length: Any
    ) -> np.ndarray:
        """Divisors of the options' measures."""
        found, place = [], 0
        for example in examples:
            for option in self.task.options(example):
                found.append(length(option, len(rows[place]) - starts[place]))
                if not found[-1]:
                    message = f"expected an option with characters, got {option!r}"
                    self.note("error", "label-tokens", example, message)
                place += 1
        return np.array(found, float).reshape(len(examples), -1)

    def label_ids(self, examples: Sequence[Any]) -> tuple[int, ...]:
        """Returns the token of each label, which must not depend on the prompt."""
        known, found = set(), None
        for example in examples:
            query = self.task.query(example, self.shots)
            ending = query[len(" ".join(query.rsplit(maxsplit=1)[:-1])) :]
            if ending in known:
                continue
            known.add(ending)
            ids = self._label_ids(example, self.prefix + query)
            if found is not None and ids != found:
                message = f"expected the labels' tokens {found}, got {ids}"
                self.note("error", "label-tokens", example, message)
            found = ids if found is None else found
        enforce([f for f in self.findings if f.level == "error"])
        assert found is not None
        return found

    def _label_ids(self, example: Any, text: str) -> tuple[int, ...]:
        before, ids = self.encode(text), []
        for option in self.task.options(example):
            whole = self.encode(text + option)
            tokens = whole[len(before) :]
            if whole[: len(before)] != before:
                on_purpose = self.task.profile == "authors_code"
                level = "warning" if on_purpose else "error"
                message = f"the tokenizer merges the label {option!r} with the prompt"
                self.note(level, "boundary", example, message)
                tokens = label_tokens(self.encode, (option,))[0]
            if len(tokens) != 1:
                message = (
                    f"expected one token for the label {option!r}, got {len(tokens)}; "
                    'dataclasses.replace(task, scoring="average_log_likelihood") '
                    "compares labels of any length"
                )
                self.note("error", "label-tokens", example, message)
            ids.append(tokens[0] if tokens else -1)
        if len(set(ids)) < len(ids):
            labels = ", ".join(map(repr, self.task.options(example)))
            message = f"expected distinct tokens for the labels {labels}, got {ids}"
            self.note("error", "label-tokens", example, message)
        return tuple(ids)

    def check_rows(
        self, examples: Sequence[Any], rows: Any, labels: Sequence[int], model: Any
    ) -> None:
        """Notes rows that are too long, and tokens that JAX would clamp."""
        limit, size = model.context_length, model.vocab_size
        for number, row in enumerate(rows):
            example = examples[number // (len(rows) // len(examples))]
            if len(row) > limit:
                message = f"expected at most {limit} tokens, got {len(row)}"
                self.note("error", "too-long", example, message)
            wrong = [token for token in (*row, *labels) if not 0 <= token < size]
            if wrong:
                message = (
                    f"expected tokens of the model's vocabulary, 0 to {size - 1}, got "
                    f"{wrong[0]}; do tokenizer and model belong together?"
                )
                self.note("error", "vocabulary", example, message)


def common_beginning(rows: Sequence[Sequence[int]], most: int) -> int:
    """Length of the longest common beginning, at most ``most``."""
    shared = rows[0][: max(most, 0)]
    for row in rows:
        if row[: len(shared)] != shared:
            pairs = zip(shared, row, strict=False)
            same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
            shared = shared[: sum(1 for _ in same)]
    return len(shared)
