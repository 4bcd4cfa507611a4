"""Rows of tokens in few shapes: padded lengths, batches, and positions of answers."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from icltheory._checks import check_choice, check_positive_int
from icltheory._named_errors import named_errors
from icltheory.bridge.evaluation.prompts import Prompts
from icltheory.bridge.streams import Tokens

__all__ = ["Answers", "Batch", "Batches", "padded_lengths"]

_STEP = 8  # Lengths are multiples of this, so that other prompts meet compiled shapes.


class Answers(NamedTuple):
    """Positions of the tokens of the options.

    Args:
        tokens: The tokens, ``(B, M)``.
        places: Place in the padded row of the token that predicts each.
        counted: Where there is one.

    References:
        Verified by ``tests/bridge/test_evaluation_prompts.py``.
    """

    tokens: np.ndarray
    places: np.ndarray
    counted: np.ndarray


class Batch(NamedTuple):
    """Sequences that run together, the last row repeated to fill the shape.

    A sequence is an entry of ``prompts.rows``: an example, or one option of it.

    Args:
        examples: Numbers of the examples whose last sequence is among these.
        tokens: Rows of one or more sequences, padded.
        answers: Where the options' tokens stand.
        sequences: Numbers of the sequences, without the repeated ones.
        places: Place of each sequence among the measures that the device returns.

    References:
        Verified by ``tests/bridge/test_evaluation_prompts.py``.
    """

    examples: np.ndarray
    tokens: Tokens
    answers: Answers
    sequences: np.ndarray
    places: np.ndarray


@named_errors
def padded_lengths(lengths: Sequence[int] | np.ndarray, most: int) -> np.ndarray:
    r"""The lengths, a few only, to which rows are best padded.

    .. math:: \min_{t_1 < \dots < t_m} \sum_i \min \{ t_j : t_j \ge T_i \} ,
        \qquad m \le \text{most}

    by dynamic programming over the distinct lengths.

    Args:
        lengths: Length :math:`T_i` of each row.
        most: How many different ones there may be.

    Returns:
        The lengths, ascending; the last is the longest row's.

    Raises:
        ValueError: If ``most`` is not positive.

    Example:
        >>> padded_lengths([3, 4, 4, 20, 21], 2).tolist()
        [4, 21]

    References:
        Verified by ``tests/bridge/test_evaluation_prompts.py``.
    """
    check_positive_int("most", most)
    sizes, counts = np.unique(np.asarray(lengths), return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)])
    cost = np.full(len(sizes) + 1, np.inf)
    cost[0] = 0
    choices = []
    for _ in range(min(most, len(sizes))):
        # Entry [j, i]: the first i sizes by earlier lengths, those up to j by size j.
        step = cost[None, :-1] + sizes[:, None] * (total[1:, None] - total[None, :-1])
        step = np.where(np.tri(len(sizes), dtype=bool), step, np.inf)
        choices.append(step.argmin(axis=1))
        cost = np.concatenate([[0], step.min(axis=1)])
    chosen, j = [], len(sizes)
    for choice in reversed(choices):
        if j == 0:
            break
        chosen.append(sizes[j - 1])
        j = int(choice[j - 1])
    return np.array(chosen[::-1])


def rows_with(most_pairs: int, length: int, prompts: Prompts) -> int:
    """How many rows behind the prefix have so many pairs of tokens."""
    return most_pairs // (length * (len(prompts.prefix) + length))


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """The examples of a split by padded length.

    Args:
        prompts: The split.
        limit: Longest sequence of the model; nothing is padded beyond it.
        batch_size: Most examples that run together.
        buckets: Most padded lengths.
        padding: ``"right"`` or ``"left"``.
        most_pairs: Most pairs of a token and one that it may see, over all rows of a
            batch with more than one example; no limit if ``None``.

    References:
        Verified by ``tests/bridge/test_evaluation_prompts.py``.
    """

    prompts: Prompts
    limit: int
    batch_size: int = 32
    buckets: int = 3
    padding: str = "right"
    most_pairs: int | None = None
    lengths: np.ndarray = dataclasses.field(init=False)
    answer: int = dataclasses.field(init=False)

    def __post_init__(self):
        check_positive_int("batch_size", self.batch_size)
        check_choice("padding", self.padding, ("right", "left"))
        p = self.prompts
        sizes = np.array([len(row) for row in p.rows])
        longest = sizes.reshape(-1, p.rows_per_example).max(axis=1)
        rounded = np.minimum(-(-longest // _STEP) * _STEP, self.limit)
        lengths = padded_lengths(rounded, self.buckets)
        object.__setattr__(self, "lengths", lengths[np.searchsorted(lengths, rounded)])
        answer = int((sizes - np.array(p.starts)).max())
        object.__setattr__(self, "answer", -(-answer // 4) * 4)

    def __call__(
        self, examples: Sequence[int] | np.ndarray | None = None
    ) -> Iterator[Batch]:
        """Batches of all examples, or of some in shapes that other calls share."""
        whole = examples is None
        count = self.prompts.num_examples
        chosen = np.arange(count) if whole else np.asarray(examples, int)
        for length in np.unique(self.lengths[chosen]):
            members = chosen[self.lengths[chosen] == length]
            most = self._most(int(length))
            size = -(-len(members) // -(-len(members) // most))
            if not whole:
                size = min(1 << (size - 1).bit_length(), most)
            for start in range(0, len(members), size):
                yield self._batch(members[start : start + size], size, int(length))

    def _most(self, length: int) -> int:
        """Most examples of a batch with rows of this length."""
        if self.most_pairs is None:
            return self.batch_size
        rows = rows_with(self.most_pairs, length, self.prompts)
        return max(1, min(self.batch_size, rows // self.prompts.rows_per_example))

    def _batch(self, examples: np.ndarray, size: int, length: int) -> Batch:
        p, each = self.prompts, self.prompts.rows_per_example
        filled = np.pad(examples, (0, size - len(examples)), mode="edge")
        numbers = sequences_of(filled, each)
        rows = [[number] for number in numbers.tolist()]
        tokens, answers = laid_out(p, rows, length, self.padding, self.answer)
        count = len(examples) * each
        return Batch(
            examples,
            tokens._replace(ends=None),
            answers,
            sequences=numbers[:count],
            places=np.arange(count),
        )


def sequences_of(examples: np.ndarray, each: int) -> np.ndarray:
    """Numbers of the sequences of some examples, of which each has so many."""
    return (examples[:, None] * each + np.arange(each)[None]).ravel()


def laid_out(
    prompts: Prompts,
    rows: Sequence[Sequence[int]],
    length: int,
    padding: str,
    answers: int,
    most: int = 1,
) -> tuple[Tokens, Answers]:
    """Rows of tokens in which sequences follow one another.

    Args:
        prompts: The split.
        rows: Numbers of the sequences of each row.
        length: Tokens in a row.
        padding: ``"right"`` or ``"left"``.
        answers: Most tokens of answers in a row.
        most: Most sequences in a row.

    Returns:
        The tokens, and where the tokens of the answers stand.
    """
    ids, mask = (np.zeros((len(rows), length), kind) for kind in (np.int32, bool))
    ends = np.zeros((len(rows), most), np.int32)
    kinds = (np.int32, np.int32, bool)
    found = Answers(*(np.zeros((len(rows), answers), kind) for kind in kinds))
    for row, numbers in enumerate(rows):
        total, count = sum(len(prompts.rows[number]) for number in numbers), 0
        place = 0 if padding == "right" else length - total
        mask[row, place : place + total] = True
        for slot, number in enumerate(numbers):
            sequence, start = prompts.rows[number], prompts.starts[number]
            end = place + len(sequence)
            ids[row, place:end] = sequence
            ends[row, slot:] = end - 1
            own = slice(count, count + len(sequence) - start)
            found.tokens[row, own] = sequence[start:]
            found.places[row, own] = np.arange(place + start, end) - 1
            found.counted[row, own] = True
            place, count = end, own.stop
    return Tokens(ids, mask, ends), found
