"""Log-likelihoods of token sequences."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_positive_int
from icltheory.batching import Counter, Progress
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.evaluation import _programs as programs
from icltheory.bridge.evaluation.batches import PackedBatches, most_pairs
from icltheory.bridge.evaluation.prompts import common_beginning
from icltheory.bridge.model import check_weights
from icltheory.bridge.sharding import replicated
from icltheory.bridge.tokenizer import read_rows

__all__ = ["Likelihoods", "log_likelihoods"]

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
        batch_size: About how many families of rows run together. Rows that begin alike
            are a family, whose common tokens stand once, where that takes less.
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
    read = read_rows("rows", rows, model.vocab_size)
    _check_rows(model, read, starts)
    plain = [tuple(row.tolist()) for row in read]
    rotary = model.decoder.arch.rotary
    switch = None if rotary is None else rotary.switch
    # Frequencies depend on the longest row of a batch, so rows run one by one.
    apart = switch is not None and max(map(len, read)) > switch
    alone: list[tuple[int, ...]] = [(number,) for number in range(len(plain))]
    families = alone if apart else _families(plain, model.arch)
    laid = _Rows(plain, [int(s) for s in starts], families)
    shape = model.arch.width, 1 if apart else batch_size, most_pairs(model, 1)
    totals = np.zeros(len(read))
    greedy = np.zeros(len(read), bool)

    def run(rows, some, count, apart):
        for batch in PackedBatches(rows, *shape, alone=apart)(some):
            found = _run(model, batch.tokens, batch.answers)
            own = (part[batch.places] for part in found)
            totals[batch.sequences], greedy[batch.sequences] = own
            count.add(len(batch.sequences), "rows")

    run(laid, None, Counter(len(read), progress), apart)
    wrong = np.flatnonzero(np.isnan(totals)).tolist()
    if wrong:
        check_weights(model, tokens=False)
        # One row of a line may have made the others NaN, since 0 times NaN is NaN.
        run(laid._replace(families=alone), wrong, Counter(len(wrong), None), True)
    sizes = np.array([len(row) for row in read]) - np.asarray(starts)
    return Likelihoods(totals, greedy, sizes)


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
    """Rows of tokens, the first predicted token of each, and which run together."""

    rows: list[tuple[int, ...]]
    starts: list[int]
    families: list[tuple[int, ...]]
    prefix: tuple[int, ...] = ()

    def read(self, number):
        return self.rows[number][:-1]

    def asked(self, number):
        start = self.starts[number]
        return self.rows[number][start:], start - 1


def _families(rows, arch: Architecture) -> list[tuple[int, ...]]:
    """Groups rows that begin alike, where that is cheaper."""
    reads = [row[:-1] for row in rows]
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
    return [tuple(own) for own in found]


def _run(model, tokens, answers):
    decoder, params = model.decoder, model.params
    stream = programs.embed(decoder, params["embed"], tokens, np.int32(0))
    for number, layer in enumerate(params["layers"]):
        block = decoder.of_layer(number)
        stream, _ = programs.block(block, False, layer, stream, None)
    ends = {name: leaf for name, leaf in params.items() if name != "layers"}
    found = programs.row_likelihoods(decoder, ends, stream, answers)
    return tuple(np.asarray(replicated(part)).ravel() for part in found)
