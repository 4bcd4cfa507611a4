"""Several questions in one row of fixed length, so that one program serves all."""

from collections.abc import Iterator, Sequence

import numpy as np

from icltheory._checks import check_choice, check_positive_int
from icltheory._named_errors import named_errors
from icltheory.bridge.evaluation.batches import (
    Batch,
    laid_out,
    rows_with,
    sequences_of,
)
from icltheory.bridge.evaluation.prompts import Prompts

__all__ = ["PackedBatches", "pack"]

_STEP = 8  # Lengths are multiples of this, so that other prompts meet compiled shapes.
_SHORTEST = 64  # Shorter rows save nothing: attention is a small part of a block.


@named_errors
def pack(
    lengths: Sequence[int] | np.ndarray, row_length: int, most: int
) -> list[list[int]]:
    """Sequences in rows, by best fit in the order of decreasing length.

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

    References:
        Johnson et al. (1974), worst-case performance bounds for simple one-dimensional
        packing algorithms. Verified by ``tests/bridge/test_packing.py``.
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
    r"""The sequences of a split behind a shared prefix, several in each row.

    A sequence is a question, or a question with one of its options. It sees the prefix
    and itself, and its positions begin behind the prefix. Of rows of T tokens, N(T) are
    needed. T is that multiple of the longest sequence, up to three, which takes the
    fewest operations in a block of width d behind P tokens,

    .. math:: N(T)\, T\, (6 d + P + T) ,

    and a row has at most :math:`\lceil T / \bar t \rceil` sequences for a mean length
    :math:`\bar t`: what reads only last tokens has that many places in each row. The
    options of an example may be in several batches; it belongs to the last of them.

    Args:
        prompts: The split.
        width: Width d of the model.
        batch_size: About how many examples run together.
        padding: ``"right"`` or ``"left"``, where a row that is not full is padded.
        most_pairs: Most pairs of a token and one before it in its row or in the prefix,
            over all rows of a batch of more than one; no limit if ``None``.

    References:
        Krell et al. (2021), "Efficient sequence packing without cross-contamination".
        Verified by ``tests/bridge/test_packing.py``.
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
        self.sizes = np.array([len(row) for row in prompts.rows])
        longest = int(-(-self.sizes.max() // _STEP) * _STEP)
        costs = {}
        for length in sorted({max(times * longest, _SHORTEST) for times in (1, 2, 3)}):
            rows = len(pack(self.sizes, length, self._most(length)))
            cost = rows * length * (6 * width + len(prompts.prefix) + length)
            costs[length] = cost
        self.length = min(costs, key=lambda length: costs[length])
        self.most = self._most(self.length)
        self.whole = pack(self.sizes, self.length, self.most)
        share = batch_size * len(self.whole) / prompts.num_examples
        self.rows = max(1, min(round(share), len(self.whole)))
        if most_pairs is not None:
            fitting = rows_with(most_pairs, self.length, prompts)
            self.rows = max(1, min(self.rows, fitting))
        self.asked = self.sizes - np.array(prompts.starts)
        self.answers = self._answers(self.whole)

    def _answers(self, packed: list[list[int]]) -> int:
        most = max((int(self.asked[numbers].sum()) for numbers in packed), default=0)
        return -(-most // 4) * 4

    def _most(self, length: int) -> int:
        return int(np.ceil(length / self.sizes.mean()))

    def __call__(
        self, examples: Sequence[int] | np.ndarray | None = None
    ) -> Iterator[Batch]:
        """Batches of all examples, or of some in shapes that other calls share."""
        each, answers = self.prompts.rows_per_example, self.answers
        if examples is None:
            packed, count = self.whole, -(-len(self.whole) // self.rows)
            size = -(-len(packed) // count)
        else:
            chosen = sequences_of(np.asarray(examples, int), each)
            found = pack(self.sizes[chosen], self.length, self.most)
            packed = [chosen[row].tolist() for row in found]
            size = min(1 << max(len(packed) - 1, 0).bit_length(), self.rows)
            answers = max(answers, self._answers(packed))
        missing = np.full(self.prompts.num_examples, each)
        for start in range(0, len(packed), size):
            rows = packed[start : start + size]
            numbers = np.array([number for row in rows for number in row])
            np.subtract.at(missing, numbers // each, 1)
            done = dict.fromkeys((numbers // each).tolist())
            complete = np.array([n for n in done if not missing[n]], int)
            # Rows that are missing repeat the last one.
            filled = rows + [rows[-1]] * (size - len(rows))
            tokens, asked = laid_out(
                self.prompts, filled, self.length, self.padding, answers, self.most
            )
            places = [
                number * self.most + slot
                for number, row in enumerate(rows)
                for slot in range(len(row))
            ]
            yield Batch(complete, tokens, asked, numbers, np.array(places))
