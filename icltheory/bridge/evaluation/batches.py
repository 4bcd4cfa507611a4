"""Rows of several sequences, packed into batches of one shape."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from icltheory._checks import check_positive_int
from icltheory.bridge.evaluation.prompts import common_beginning
from icltheory.bridge.streams import Tokens

# On a CPU, a program whose buffers exceed 32 MiB together gets new pages from the
# system in every call, which takes as long as its products. The attention scores and
# weights are two such buffers; the others are smaller.
_MOST_BYTES = 12 * 2**20
_SHORTEST = 64  # Shorter rows save nothing, as attention is a small part of a block.

Group = tuple[int, ...]  # Sequences that share a stem in a row.


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

    Args:
        complete: Numbers of the families whose last sequence is among these.
        tokens: Rows of one or more sequences, padded on the right.
        answers: Where the measured tokens stand.
        sequences: Numbers of the sequences, without the repeated ones.
        places: Place of each sequence among the B S measures that the device returns.
    """

    complete: np.ndarray
    tokens: Tokens
    answers: Answers
    sequences: np.ndarray
    places: np.ndarray


def rounded_up(length: Any, step: int = 8) -> Any:
    """Rounds lengths up to multiples of a step, so that rows share programs."""
    return -(-length // step) * step


def most_pairs(model: Any, rates: int) -> int | None:
    """Largest number of token pairs whose attention weights fit ``_MOST_BYTES``."""
    leaf = jax.tree.leaves(model.params)[0]
    devices = leaf.devices() if isinstance(leaf, jax.Array) else jax.devices()
    if any(device.platform != "cpu" for device in devices):
        return None
    return _MOST_BYTES // (4 * model.arch.num_heads * rates)


def pack(
    lengths: Sequence[int] | np.ndarray, row_length: int, most: int
) -> list[list[int]]:
    """Packs items of some lengths into rows by best fit, longest first.

    Each goes into the fullest row that still holds it, and into a new one if there is
    none. A row has at most ``most`` of them. Returns the numbers of each row's items.

    Example:
        >>> pack([3, 6, 2, 5], row_length=8, most=4)
        [[1, 2], [3, 0]]

    Source: Johnson et al. (1974).
    """
    sizes = np.asarray(lengths)
    rows: list[list[int]] = []
    by_free: list[list[int]] = [[] for _ in range(row_length + 1)]
    for number in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[number])
        fitting = (free for free in range(size, row_length + 1) if by_free[free])
        if (left := next(fitting, None)) is None:
            row, left = len(rows), row_length
            rows.append([])
        else:
            row = by_free[left].pop()
        rows[row].append(number)
        if left > size and len(rows[row]) < most:
            by_free[left - size].append(row)
    return rows


class PackedBatches:
    r"""Batches of sequences behind a shared prefix, several sequences in each row.

    A sequence sees the prefix and itself, and its positions begin behind the prefix.
    The tokens that the sequences of a family begin with stand once in a row, as their
    stem; where a row is too short for all of them, another one has the rest and the
    stem again. Of rows of T tokens, N(T) are needed. T is that multiple of the longest
    sequence, up to three, or the length of the longest whole family, which takes the
    fewest operations in a block of width d behind P tokens,

    .. math:: N(T)\, T\, (6 d + P + T) ,

    and a row has at most :math:`\lceil T / \bar t \rceil` families for a mean length
    :math:`\bar t`: what reads only last tokens has that many places in each row. A
    family may be in several batches; it belongs to the last of them.

    Args:
        sequences: Their ``prefix`` has the tokens in front of all, and ``families`` the
            numbers of those that belong together, such as the options of an example;
            ``read(number)`` are the tokens that the model reads of one, and
            ``asked(number)`` those to measure and the place that predicts the first.
        width: Width d of the model.
        batch_size: About how many families run together.
        pairs: Most pairs of a token and one that it sees, over all rows of a batch of
            more than one; no limit if ``None``.
        alone: Whether every sequence has a row of its own.

    Source: Krell et al. (2021).
    """

    def __init__(
        self,
        sequences: Any,
        width: int,
        batch_size: int,
        pairs: int | None = None,
        *,
        alone: bool = False,
    ):
        check_positive_int("batch_size", batch_size)
        self.all, self.families = sequences, sequences.families
        count = sum(map(len, self.families))
        self.sizes = np.array([len(sequences.read(n)) for n in range(count)])
        self.asked = np.array([len(sequences.asked(n)[0]) for n in range(count)])
        self.stems = [shared_beginning(sequences, own) for own in self.families]
        self.family_of = np.empty(count, int)
        for number, own in enumerate(self.families):
            self.family_of[list(own)] = number
        prefix, least = len(sequences.prefix), np.inf
        for length in self._lengths(alone):
            groups = self._groups(length, alone)
            mean = np.mean([self._size(group) for group in groups])
            most = 1 if alone else int(np.ceil(length / mean))
            packed = self._packed(groups, length, most)
            cost = len(packed) * length * (6 * width + prefix + length)
            if cost < least:
                least, self.length, self.most = cost, length, most
                self.groups, self.whole = groups, packed
        self.slots = self.most * max(map(len, self.groups))
        self.segments = self.slots
        if any(len(g) > 1 and self.stems[self.family_of[g[0]]] for g in self.groups):
            self.segments += self.most
        share = round(batch_size * len(self.whole) / len(self.families))
        self.rows = max(1, min(share, len(self.whole)))
        if pairs is not None:
            fitting = pairs // (self.length * (prefix + self.length))
            self.rows = max(1, min(self.rows, fitting))

    def _lengths(self, alone: bool) -> list[int]:
        """Candidate row lengths in ascending order."""
        longest = int(rounded_up(self.sizes.max()))
        if alone:
            return [longest]
        found = {max(times * longest, _SHORTEST) for times in (1, 2, 3)}
        if len(self.families) < len(self.sizes):
            whole = max(map(self._size, self.families))
            found.add(max(rounded_up(whole), _SHORTEST))
        return sorted(found)

    def _groups(self, length: int, alone: bool) -> list[Group]:
        """Parts each family so that it needs as few rows of a length as possible."""
        found: list[Group] = []
        for own in self.families:
            group: Group = own[:1]
            for number in own[1:]:
                if not alone and self._size((*group, number)) <= length:
                    group = (*group, number)
                else:
                    found.append(group)
                    group = (number,)
            found.append(group)
        return found

    def _size(self, group: Group) -> int:
        """Number of tokens of a group, in which the shared stem occurs once."""
        stem = self.stems[self.family_of[group[0]]]
        return int(self.sizes[list(group)].sum()) - (len(group) - 1) * stem

    def _packed(self, groups: list[Group], length: int, most: int) -> list[list[Group]]:
        rows = pack([self._size(group) for group in groups], length, most)
        return [[groups[number] for number in row] for row in rows]

    def __call__(self, families: Any = None) -> Iterator[Batch]:
        """Yields batches of all families, or of some in shapes of other calls."""
        packed = self.whole
        size = -(-len(packed) // -(-len(packed) // self.rows))
        if families is not None:
            chosen = set(np.asarray(families, int).tolist())
            some = [g for g in self.groups if self.family_of[g[0]] in chosen]
            packed = self._packed(some, self.length, self.most)
            size = min(1 << max(len(packed) - 1, 0).bit_length(), self.rows)
        asked = (self.asked[_numbers(row)].sum() for row in [*self.whole, *packed])
        answers = int(rounded_up(max(asked), 4))
        missing = np.array([len(own) for own in self.families])
        for start in range(0, len(packed), size):
            rows = packed[start : start + size]
            numbers = np.array([n for row in rows for n in _numbers(row)])
            np.subtract.at(missing, self.family_of[numbers], 1)
            done = dict.fromkeys(self.family_of[numbers].tolist())
            lines = [Line(self.all, row) for row in rows]
            lines += [lines[-1]] * (size - len(rows))
            shape = self.length, answers, self.slots, self.segments
            tokens, wanted = laid_out(lines, *shape)
            places = [
                number * self.slots + slot
                for number, row in enumerate(rows)
                for slot in range(len(_numbers(row)))
            ]
            complete = np.array([n for n in done if not missing[n]], int)
            yield Batch(complete, tokens, wanted, numbers, np.array(places))


def _numbers(row: Sequence[Group]) -> list[int]:
    return [number for group in row for number in group]


def shared_beginning(sequences: Any, numbers: Sequence[int]) -> int:
    """Number of tokens shared at the beginning of all sequences; 0 for a single one."""
    if len(numbers) == 1:
        return 0
    rows = [sequences.read(number) for number in numbers]
    return common_beginning(rows, min(map(len, rows)))


class Line:
    """One unpadded row of several sequences, in which shared beginnings occur once.

    The tokens that all of a group begin with are their stem, and the rest of each
    follows as a segment of its own. A group of one has no stem.
    """

    def __init__(self, sequences: Any, groups: Sequence[Sequence[int]]):
        self.ids: list[int] = []
        self.ends: list[int] = []  # the place behind each segment
        self.stems: list[int] = []  # the number of the segment that each continues
        self.asked: list[int] = []  # the tokens that are measured
        self.seen: list[int] = []  # the place where each of them is seen
        self.owners: list[int] = []  # the sequence of the row that each counts for
        owner = 0
        for numbers in groups:
            stem, begin = shared_beginning(sequences, numbers), len(self.ids)
            number = len(self.ends) if stem else None
            self._add(sequences.read(numbers[0])[:stem])
            for sequence in numbers:
                tail = len(self.ids)
                self._add(sequences.read(sequence)[stem:], number)
                wanted, first = sequences.asked(sequence)
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
    lines: Sequence[Line], length: int, answers: int, slots: int, segments: int
) -> tuple[Tokens, Answers]:
    """Pads lines on the right to rows of one length, and returns them as arrays.

    ``answers``, ``slots`` and ``segments`` are the most measured tokens, sequences and
    segments of a row.
    """
    ids, mask = (np.zeros((len(lines), length), kind) for kind in (np.int32, bool))
    ends = np.zeros((len(lines), segments), np.int32)
    stems = np.tile(np.arange(segments, dtype=np.int32), (len(lines), 1))
    shape = (len(lines), answers)
    asked, places = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    found = Answers(asked, places, np.zeros((*shape, slots), bool))
    for row, line in enumerate(lines):
        ids[row, : len(line.ids)], mask[row, : len(line.ids)] = line.ids, True
        count = len(line.ends)
        ends[row] = np.pad(line.ends, (0, segments - count), mode="edge") - 1
        stems[row, :count] = line.stems
        count = len(line.asked)
        found.tokens[row, :count] = line.asked
        found.places[row, :count] = line.seen
        found.counted[row, np.arange(count), line.owners] = True
    if segments == 1:
        return Tokens(ids, mask), found
    return Tokens(ids, mask, ends, stems if segments > slots else None), found
