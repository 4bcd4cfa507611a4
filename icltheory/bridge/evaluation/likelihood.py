"""Log-likelihoods of token sequences, and the perplexity of a text."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_positive_int
from icltheory.batching import Counter, Progress
from icltheory.bridge._arrays import replicated
from icltheory.bridge._vocabulary import read_rows
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.evaluation import _programs as programs
from icltheory.bridge.evaluation.batches import (
    Line,
    laid_out,
    most_pairs,
    rounded_up,
    row_lengths,
)
from icltheory.bridge.evaluation.prompts import common_beginning
from icltheory.bridge.model import check_weights

__all__ = ["Likelihoods", "log_likelihoods", "perplexity"]

_MOST = 64  # Most rows per line, whose answer logits are in memory at once.
# Measured cost of the softmax for one token pair and head, in multiply-adds.
_COMPARISON = 90


class Likelihoods(NamedTuple):
    """Log-likelihoods of the ends of token rows.

    Attributes:
        log_likelihood: Sum of the natural logarithms of the tokens' probabilities, a
            row each.
        greedy: Whether each of the tokens was the likeliest; False where the
            log-likelihood is NaN.
        num_tokens: Number of tokens that were predicted.
    """

    log_likelihood: np.ndarray
    greedy: np.ndarray
    num_tokens: np.ndarray


def log_likelihoods(
    model: Any,
    rows: Sequence[Sequence[int]],
    starts: Sequence[int],
    *,
    batch_size: int = 32,
    buckets: int = 4,
    progress: Progress | None = None,
) -> Likelihoods:
    r"""Log-likelihood of each row's end, given its beginning.

    .. math:: \log p(w_{s}, \dots, w_{T-1} \mid w_0, \dots, w_{s-1})
        = \sum_{t=s}^{T-1} \log p(w_t \mid w_0, \dots, w_{t-1})

    Args:
        model: The model.
        rows: Tokens of each row, at most one more than the context's length, as the
            last one is predicted and not read.
        starts: Number s of the first predicted token in each row, at least 1.
        batch_size: About how many rows run together. Rows that begin alike are put in
            one line, in which the common tokens stand once, where that takes less.
        buckets: Most lengths to which lines are padded; each compiles.
        progress: Called as ``progress(done, total, part)`` after each batch, with
            numbers of rows; see :mod:`icltheory.batching`.

    Returns:
        Sums, and whether a greedy reader would have written the same.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> found = log_likelihoods(model, [[1, 2, 3], [4, 5]], [1, 1])
        >>> found.num_tokens.tolist(), bool((found.log_likelihood < -3).all())
        ([2, 1], True)
    """
    check_positive_int("batch_size", batch_size)
    check_positive_int("buckets", buckets)
    read = read_rows("rows", rows, model.vocab_size)
    _check_rows(model, read, starts)
    laid = _Rows([tuple(row.tolist()) for row in read], [int(s) for s in starts])
    groups = laid.groups(model.arch)
    rotary = model.decoder.arch.rotary
    switch = None if rotary is None else rotary.switch
    if switch is not None and max(map(len, read)) > switch:
        # Frequencies depend on the longest row of a batch, so rows run one by one.
        groups, batch_size = [[number] for number in range(len(read))], 1
    totals = np.zeros(len(read))
    greedy = np.zeros(len(read), bool)

    def run(groups, count):
        for numbers, places, *batch in _batches(
            laid, groups, batch_size, buckets, most_pairs(model, 1)
        ):
            found = _run(model, *batch)
            totals[numbers], greedy[numbers] = (part[places] for part in found)
            count.add(len(numbers), "rows")

    run(groups, Counter(len(read), progress))
    wrong = np.flatnonzero(np.isnan(totals)).tolist()
    if wrong:
        check_weights(model, tokens=False)
        # One row of a line may have made the others NaN, since 0 times NaN is NaN.
        run([[number] for number in wrong], Counter(len(wrong), None))
    sizes = np.array([len(row) for row in read]) - np.asarray(starts)
    return Likelihoods(totals, greedy, sizes)


def perplexity(
    model: Any,
    text: str,
    *,
    window: int | None = None,
    stride: int | None = None,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> float:
    r"""Perplexity of a text per token, by overlapping windows.

    .. math:: \exp\Big( - \frac1{T - 1} \sum_{t=1}^{T-1}
        \log p(w_t \mid w_{c(t)}, \dots, w_{t-1}) \Big)

    The first token is read and not predicted. Windows begin ``stride`` tokens apart,
    and each predicts only what the window before it did not, so that every token but
    those of the first window has at least ``window - stride`` tokens in front.

    Args:
        model: The model, with a tokenizer.
        text: The text.
        window: Tokens of a window; the model's context if not given.
        stride: Tokens between the beginnings of windows; half a window if not given.
        batch_size: Most windows that run together; on a CPU fewer where their attention
            would need so much memory that the program slows down.
        progress: As of :func:`log_likelihoods`.

    Returns:
        The perplexity.
    """
    ids = [int(i) for i in model.tokenizer.encode(text)]
    window = model.context_length if window is None else window
    stride = max(window // 2, 1) if stride is None else stride
    check_positive_int("window", window)
    if not 1 <= stride <= window <= model.context_length:
        raise ValueError(
            f"stride, window: expected 1 <= stride <= window <= "
            f"{model.context_length} tokens, got {stride} and {window}"
        )
    if len(ids) < 2:
        raise ValueError(f"text: expected at least two tokens, got {len(ids)}")
    rows, starts, done = [], [], 1
    for begin in range(0, len(ids), stride):
        end = min(begin + window + 1, len(ids))
        if end > done:
            rows.append(ids[begin:end])
            starts.append(done - begin)
            done = end
    found = log_likelihoods(
        model, rows, starts, batch_size=batch_size, progress=progress
    )
    return math.exp(-found.log_likelihood.sum() / found.num_tokens.sum())


def _check_rows(model, rows, starts):
    if not rows or len(rows) != len(starts):
        raise ValueError(
            f"starts: expected one start per row and at least one row, got "
            f"{len(starts)} for {len(rows)} rows"
        )
    if np.asarray(starts).dtype.kind not in "iu":
        raise ValueError(f"starts: expected whole numbers, got {list(starts)}")
    limit = model.context_length
    for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
        if not 1 <= start < len(row) <= limit + 1:
            raise ValueError(
                f"rows: expected at most {limit + 1} tokens and a start below their "
                f"number, from 1, got {len(row)} and start {start} in row {number}"
            )


class _Rows(NamedTuple):
    """Rows of tokens, and the index of the first predicted token in each."""

    rows: list[tuple[int, ...]]
    starts: list[int]

    def read(self, number):
        return self.rows[number][:-1]

    def asked(self, number):
        start = self.starts[number]
        return self.rows[number][start:], start - 1

    def groups(self, arch: Architecture) -> list[list[int]]:
        """Groups rows into lines; a row joins the previous line if that is cheaper."""
        reads = [self.read(number) for number in range(len(self.rows))]
        longest = 2 * max(map(len, reads))
        pair = 1 + _COMPARISON / (2 * arch.head_dim)

        def cost(tokens):
            return tokens * (6 * arch.width + pair * tokens)

        found: list[list[int]] = []
        stem, total, size = (), 0, 0
        for number in sorted(range(len(reads)), key=reads.__getitem__):
            row = reads[number]
            shared = common_beginning([stem, row], len(stem))
            joined = total + len(row) - (len(found[-1]) if found else 0) * shared
            fits = bool(found) and joined <= longest and len(found[-1]) < _MOST
            if fits and cost(joined) < cost(size) + cost(len(row)):
                found[-1].append(number)
                stem, total, size = row[:shared], total + len(row), joined
            else:
                found.append([number])
                stem, total, size = row, len(row), len(row)
        return found


def _batches(rows: _Rows, groups, size, buckets, pairs) -> Iterator[tuple]:
    """Yields batches: row numbers, positions, input tokens and predicted tokens."""
    lines = [Line(rows, [group]) for group in groups]
    read = np.array([len(line.ids) for line in lines])
    asked = np.array([len(line.asked) for line in lines])
    padded = row_lengths(rounded_up(read), buckets)
    most = max(map(len, groups))
    size = max(1, round(size * len(groups) / sum(map(len, groups))))
    for length in np.unique(padded):
        members = np.flatnonzero(padded == length).tolist()
        answers = rounded_up(asked[members].max())
        each = min(size, 1 << (len(members) - 1).bit_length())
        if pairs is not None:
            each = max(1, min(each, pairs // int(length) ** 2))
        for first in range(0, len(members), each):
            chosen = members[first : first + each]
            # The last row is repeated to fill the shape.
            filled = chosen + chosen[-1:] * (each - len(chosen))
            shape = (int(answers), most, most + (most > 1))
            laid = laid_out([lines[i] for i in filled], int(length), "right", *shape)
            numbers = [number for i in chosen for number in groups[i]]
            slots = [range(len(groups[i])) for i in chosen]
            places = [at * most + s for at, row in enumerate(slots) for s in row]
            yield np.array(numbers), np.array(places), *laid


def _run(model, tokens, answers):
    decoder, params = model.decoder, model.params
    stream = programs.embed(decoder, params["embed"], tokens, np.int32(0))
    for number, layer in enumerate(params["layers"]):
        block = decoder.of_layer(number)
        stream, _ = programs.block(block, False, layer, stream, None)
    ends = {name: leaf for name, leaf in params.items() if name != "layers"}
    found = programs.row_likelihoods(decoder, ends, stream, answers)
    return tuple(np.asarray(replicated(part)).ravel() for part in found)
