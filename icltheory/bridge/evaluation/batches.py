"""Batches of token rows in few shapes, with the positions of their answers."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from icltheory._checks import check_choice, check_positive_int
from icltheory.bridge.evaluation.prompts import Prompts, common_beginning
from icltheory.bridge.streams import Tokens

__all__ = ["Answers", "Batch", "Batches", "padded_lengths"]

# On a CPU, a program whose buffers exceed 32 MiB together gets new pages from the
# system in every call, which takes as long as its products. The attention scores and
# weights are two such buffers; the others are smaller.
_MOST_BYTES = 12 * 2**20


@runtime_checkable
class Sequences(Protocol):
    """Numbered sequences that can be laid out in rows, such as :class:`Prompts`."""

    def read(self, number: int) -> tuple[int, ...]:
        """Returns the tokens of a sequence that the model reads."""
        ...

    def asked(self, number: int) -> tuple[tuple[int, ...], int]:
        """Returns the tokens to measure and the position that predicts the first."""
        ...


class Answers(NamedTuple):
    """The measured tokens of a batch.

    Args:
        tokens: The tokens, ``(B, M)``.
        places: Place in the padded row where each is seen, ``(B, M)``.
        counted: Which of them count for which sequence of the row, ``(B, M, S)``.
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
        places: Place of each sequence among the B S measures that the device returns.
    """

    examples: np.ndarray
    tokens: Tokens
    answers: Answers
    sequences: np.ndarray
    places: np.ndarray


def padded_lengths(lengths: Sequence[int] | np.ndarray, most: int) -> np.ndarray:
    r"""Chooses a few padded lengths that minimise the total padding.

    .. math:: \min_{t_1 < \dots < t_m} \sum_i \min \{ t_j : t_j \ge T_i \} ,
        \qquad m \le \text{most}

    by dynamic programming over the distinct lengths.

    Args:
        lengths: Length :math:`T_i` of each row.
        most: How many different ones there may be.

    Returns:
        The lengths, ascending; the last is the longest row's.

    Example:
        >>> padded_lengths([3, 4, 4, 20, 21], 2).tolist()
        [4, 21]
    """
    check_positive_int("most", most)
    sizes, counts = np.unique(np.asarray(lengths), return_counts=True)
    total = np.concatenate([[0], np.cumsum(counts)])
    cost = np.full(len(sizes) + 1, np.inf)
    cost[0] = 0
    choices = []
    for _ in range(min(most, len(sizes))):
        # Entry [j, i] is the cost if the first i sizes use shorter lengths, and those
        # up to j size j.
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


def rounded_up(length: Any) -> Any:
    """Rounds lengths up to multiples of 8, so that rows share compiled programs."""
    return -(-length // 8) * 8


def row_lengths(sizes: np.ndarray, most: int) -> np.ndarray:
    """Pads rows of these sizes to at most ``most`` lengths; returns that of each."""
    lengths = padded_lengths(sizes, most)
    return lengths[np.searchsorted(lengths, sizes)]


def most_pairs(model: Any, rates: int) -> int | None:
    """Largest number of token pairs whose attention weights fit ``_MOST_BYTES``."""
    leaf = jax.tree.leaves(model.params)[0]
    devices = leaf.devices() if isinstance(leaf, jax.Array) else jax.devices()
    if any(device.platform != "cpu" for device in devices):
        return None
    return _MOST_BYTES // (4 * model.arch.num_heads * rates)


def rows_with(most_pairs: int, length: int, prompts: Prompts) -> int:
    """Number of rows after the prefix that have ``most_pairs`` token pairs."""
    return most_pairs // (length * (len(prompts.prefix) + length))


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """Batches of a split's examples, grouped by padded length.

    Args:
        prompts: The split.
        limit: Longest sequence of the model; nothing is padded beyond it.
        batch_size: Most examples that run together.
        buckets: Most padded lengths.
        padding: ``"right"`` or ``"left"``.
        most_pairs: Most pairs of a token and one that it may see, over all rows of a
            batch with more than one example; no limit if ``None``.
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
        check_positive_int("buckets", self.buckets)
        check_choice("padding", self.padding, ("right", "left"))
        p = self.prompts
        sizes = sizes_read(p)
        longest = sizes.reshape(-1, p.rows_per_example).max(axis=1)
        rounded = np.minimum(rounded_up(longest), self.limit)
        object.__setattr__(self, "lengths", row_lengths(rounded, self.buckets))
        answer = int(sizes_asked(p).max())
        object.__setattr__(self, "answer", -(-answer // 4) * 4)

    def __call__(
        self, examples: Sequence[int] | np.ndarray | None = None
    ) -> Iterator[Batch]:
        """Yields batches of all examples, or of some in shapes of other calls."""
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
        """Largest number of examples per batch for rows of this length."""
        if self.most_pairs is None:
            return self.batch_size
        rows = rows_with(self.most_pairs, length, self.prompts)
        return max(1, min(self.batch_size, rows // self.prompts.rows_per_example))

    def _batch(self, examples: np.ndarray, size: int, length: int) -> Batch:
        p, each = self.prompts, self.prompts.rows_per_example
        filled = np.pad(examples, (0, size - len(examples)), mode="edge")
        numbers = sequences_of(filled, each)
        lines = [Line(p, [(number,)]) for number in numbers.tolist()]
        tokens, answers = laid_out(lines, length, self.padding, self.answer)
        count = len(examples) * each
        return Batch(
            examples,
            tokens,
            answers,
            sequences=numbers[:count],
            places=np.arange(count),
        )


def sequences_of(examples: np.ndarray, each: int) -> np.ndarray:
    """Indices of the sequences of some examples, ``each`` per example."""
    return (examples[:, None] * each + np.arange(each)[None]).ravel()


def sizes_read(prompts: Prompts) -> np.ndarray:
    """Number of tokens that the model reads, by row."""
    return np.array([len(prompts.read(number)) for number in range(len(prompts.rows))])


def sizes_asked(prompts: Prompts) -> np.ndarray:
    """Number of measured tokens, by row."""
    numbers = range(len(prompts.rows))
    return np.array([len(prompts.asked(number)[0]) for number in numbers])


def shared_beginning(prompts: Sequences, numbers: Sequence[int]) -> int:
    """Number of tokens shared at the beginning of all sequences; 0 for a single one."""
    if len(numbers) == 1:
        return 0
    rows = [prompts.read(number) for number in numbers]
    return common_beginning(rows, min(map(len, rows)))


class Line:
    """One unpadded row of several sequences, in which shared beginnings occur once.

    Args:
        prompts: The sequences.
        groups: Numbers of the sequences of the row. The tokens that all of a group
            begin with are their stem, and the rest of each follows as a segment of its
            own. A group of one has no stem.

    Attributes:
        ids: Tokens.
        ends: Place behind each segment.
        stems: Number of the segment that each segment continues.
        asked: Tokens that are asked for.
        seen: Place where each of them is seen.
        owners: Number of the sequence, within the row, that each counts for.
    """

    def __init__(self, prompts: Sequences, groups: Sequence[Sequence[int]]):
        self.ids: list[int] = []
        self.ends: list[int] = []
        self.stems: list[int] = []
        self.asked: list[int] = []
        self.seen: list[int] = []
        self.owners: list[int] = []
        owner = 0
        for numbers in groups:
            stem, begin = shared_beginning(prompts, numbers), len(self.ids)
            number = len(self.ends) if stem else None
            self._add(prompts.read(numbers[0])[:stem])
            for sequence in numbers:
                tail = len(self.ids)
                self._add(prompts.read(sequence)[stem:], number)
                wanted, first = prompts.asked(sequence)
                at = range(first, first + len(wanted))
                self.asked += wanted
                self.seen += [(begin if i < stem else tail - stem) + i for i in at]
                self.owners += [owner] * len(wanted)
                owner += 1

    def _add(self, tokens: Sequence[int], stem: int | None = None) -> None:
        """Appends a segment, if it has tokens."""
        if tokens:
            self.stems.append(len(self.stems) if stem is None else stem)
            self.ids += tokens
            self.ends.append(len(self.ids))


def laid_out(
    lines: Sequence[Line],
    length: int,
    padding: str,
    answers: int,
    sequences: int = 1,
    segments: int = 1,
) -> tuple[Tokens, Answers]:
    """Pads lines to rows of one length and returns them as arrays.

    Args:
        lines: The rows without padding.
        length: Tokens in a row.
        padding: ``"right"`` or ``"left"``.
        answers: Most tokens in a row that are asked for.
        sequences: Most sequences in a row.
        segments: Most segments in a row.

    Returns:
        The tokens, and where the tokens that are asked for are seen.
    """
    ids, mask = (np.zeros((len(lines), length), kind) for kind in (np.int32, bool))
    ends = np.zeros((len(lines), segments), np.int32)
    stems = np.tile(np.arange(segments, dtype=np.int32), (len(lines), 1))
    shape = (len(lines), answers)
    asked, places = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    found = Answers(asked, places, np.zeros((*shape, sequences), bool))
    for row, line in enumerate(lines):
        place = 0 if padding == "right" else length - len(line.ids)
        ids[row, place : place + len(line.ids)] = line.ids
        mask[row, place : place + len(line.ids)] = True
        count = len(line.ends)
        ends[row] = place + np.pad(line.ends, (0, segments - count), mode="edge") - 1
        stems[row, :count] = line.stems
        count = len(line.asked)
        found.tokens[row, :count] = line.asked
        found.places[row, :count] = place + np.array(line.seen, int)
        found.counted[row, np.arange(count), line.owners] = True
    if segments == 1:
        return Tokens(ids, mask), found
    return Tokens(ids, mask, ends, stems if segments > sequences else None), found
