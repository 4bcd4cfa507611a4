"""Packs several questions into rows of fixed length, so that one program serves all."""

from collections.abc import Iterator, Sequence

import numpy as np

from icltheory._checks import check_choice, check_positive_int
from icltheory.bridge.evaluation.batches import (
    Batch,
    Line,
    laid_out,
    rounded_up,
    rows_with,
    shared_beginning,
    sizes_asked,
    sizes_read,
)
from icltheory.bridge.evaluation.prompts import Prompts

__all__ = ["PackedBatches", "pack"]

Group = tuple[int, ...]  # Sequences of one example that share a stem in a row.

_SHORTEST = 64  # Shorter rows save nothing, as attention is a small part of a block.


def pack(
    lengths: Sequence[int] | np.ndarray, row_length: int, most: int
) -> list[list[int]]:
    """Packs sequences into rows by best fit, longest first.

    Each goes into the fullest row that still holds it, and into a new one if there is
    none.

    Args:
        lengths: Length of each sequence, at least 1.
        row_length: Tokens in a row, at least the longest length.
        most: Sequences in a row.

    Returns:
        Numbers of the sequences of each row.

    Example:
        >>> pack([3, 6, 2, 5], row_length=8, most=4)
        [[1, 2], [3, 0]]

    Source: Johnson et al. (1974), worst-case performance bounds for simple
    one-dimensional packing algorithms.
    """
    sizes = np.asarray(lengths)
    rows: list[list[int]] = []
    by_free: list[list[int]] = [[] for _ in range(row_length + 1)]
    for number in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[number])
        left = next(
            (free for free in range(size, row_length + 1) if by_free[free]), None
        )
        if left is None:
            row, left = len(rows), row_length
            rows.append([])
        else:
            row = by_free[left].pop()
        rows[row].append(number)
        if left > size and len(rows[row]) < most:
            by_free[left - size].append(row)
    return rows


class PackedBatches:
    r"""Batches of a split's sequences after a shared prefix, several in each row.

    A sequence is a question, or a question with one of its options. It sees the prefix
    and itself, and its positions begin behind the prefix. The tokens that the options
    of an example begin with stand once in a row, as their stem; where a row is too
    short for all of them, another one has the rest and the stem again. Of rows of T
    tokens, N(T) are needed. T is that multiple of the longest sequence, up to three, or
    the length of the longest example with all its options, which takes the fewest
    operations in a block of width d behind P tokens,

    .. math:: N(T)\, T\, (6 d + P + T) ,

    and a row has at most :math:`\lceil T / \bar t \rceil` examples for a mean length
    :math:`\bar t`: what reads only last tokens has that many places in each row. The
    options of an example may be in several batches; it belongs to the last of them.

    Args:
        prompts: The split.
        width: Width d of the model.
        batch_size: About how many examples run together.
        padding: ``"right"`` or ``"left"``, where a row that is not full is padded.
        most_pairs: Most pairs of a token and one before it in its row or in the prefix,
            over all rows of a batch of more than one; no limit if ``None``.

    Source: Krell et al. (2021), "Efficient sequence packing without
    cross-contamination".
    """

    def __init__(
        self,
        prompts: Prompts,
        width: int,
        batch_size: int,
        padding: str,
        most_pairs: int | None = None,
    ):
        check_positive_int("batch_size", batch_size)
        check_choice("padding", padding, ("right", "left"))
        self.prompts, self.padding = prompts, padding
        self.sizes, self.asked = sizes_read(prompts), sizes_asked(prompts)
        each = prompts.rows_per_example
        self.stems = np.array(
            [
                shared_beginning(prompts, range(n * each, (n + 1) * each))
                for n in range(prompts.num_examples)
            ]
        )
        least = np.inf
        for length in self._lengths():
            groups = self._groups(length)
            mean = np.mean([self._size(group) for group in groups])
            most = int(np.ceil(length / mean))
            packed = self._packed(groups, length, most)
            cost = len(packed) * length * (6 * width + len(prompts.prefix) + length)
            if cost < least:
                least, self.length, self.most = cost, length, most
                self.groups, self.whole = groups, packed
        share = batch_size * len(self.whole) / prompts.num_examples
        self.rows = max(1, min(round(share), len(self.whole)))
        if most_pairs is not None:
            fitting = rows_with(most_pairs, self.length, prompts)
            self.rows = max(1, min(self.rows, fitting))
        self.answers = self._answers(self.whole)

    def _lengths(self) -> list[int]:
        """Returns the candidate row lengths in ascending order."""
        longest = int(rounded_up(self.sizes.max()))
        found = {max(times * longest, _SHORTEST) for times in (1, 2, 3)}
        if self.prompts.rows_per_example > 1:
            whole = max(map(self._size, self._groups(None)))
            found.add(max(rounded_up(whole), _SHORTEST))
        return sorted(found)

    def _groups(self, length: int | None) -> list[Group]:
        """Groups each example's sequences into as few rows as a row length allows."""
        each, found = self.prompts.rows_per_example, []
        for first in range(0, len(self.sizes), each):
            group: Group = (first,)
            for number in range(first + 1, first + each):
                if length is None or self._size((*group, number)) <= length:
                    group = (*group, number)
                else:
                    found.append(group)
                    group = (number,)
            found.append(group)
        return found

    def _size(self, group: Group) -> int:
        """Number of tokens of a group, in which the shared stem occurs once."""
        stem = int(self.stems[group[0] // self.prompts.rows_per_example])
        return int(self.sizes[list(group)].sum()) - (len(group) - 1) * stem

    def _packed(self, groups: list[Group], length: int, most: int) -> list[list[Group]]:
        rows = pack([self._size(group) for group in groups], length, most)
        return [[groups[number] for number in row] for row in rows]

    def _answers(self, packed: list[list[Group]]) -> int:
        most = max((self.asked[_numbers([row])].sum() for row in packed), default=0)
        return -(-int(most) // 4) * 4

    def __call__(
        self, examples: Sequence[int] | np.ndarray | None = None
    ) -> Iterator[Batch]:
        """Yields batches of all examples, or of some in shapes of other calls."""
        each, answers = self.prompts.rows_per_example, self.answers
        if examples is None:
            packed, count = self.whole, -(-len(self.whole) // self.rows)
            size = -(-len(packed) // count)
        else:
            chosen = set(np.asarray(examples, int).tolist())
            groups = [group for group in self.groups if group[0] // each in chosen]
            packed = self._packed(groups, self.length, self.most)
            size = min(1 << max(len(packed) - 1, 0).bit_length(), self.rows)
            answers = max(answers, self._answers(packed))
        missing = np.full(self.prompts.num_examples, each)
        sequences, segments = self.most * each, self.most * (each + (each > 1))
        for start in range(0, len(packed), size):
            rows = packed[start : start + size]
            numbers = np.array(_numbers(rows))
            np.subtract.at(missing, numbers // each, 1)
            done = dict.fromkeys((numbers // each).tolist())
            complete = np.array([n for n in done if not missing[n]], int)
            # Missing rows are filled with copies of the last one.
            lines = [Line(self.prompts, row) for row in rows]
            lines += [lines[-1]] * (size - len(rows))
            shape = (answers, sequences, segments)
            tokens, asked = laid_out(lines, self.length, self.padding, *shape)
            places = [
                number * sequences + slot
                for number, row in enumerate(rows)
                for slot in range(len(_numbers([row])))
            ]
            yield Batch(complete, tokens, asked, numbers, np.array(places))


def _numbers(rows: Sequence[Sequence[Group]]) -> list[int]:
    """Returns the indices of the sequences of some rows."""
    return [number for row in rows for group in row for number in group]
