"""Rows of tokens: log-likelihoods of their ends, and greedy continuations."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_positive_int, check_sequence, wrong
from icltheory.batching import Counter, Progress
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.decoder import embed
from icltheory.bridge.evaluation import _programs as programs
from icltheory.bridge.evaluation.batches import PackedBatches, most_pairs, rounded_up
from icltheory.bridge.evaluation.prompts import common_beginning
from icltheory.bridge.model import check_weights, ends_of, through
from icltheory.bridge.sharding import replicated
from icltheory.bridge.streams import Tokens, padded_tokens
from icltheory.bridge.tokenizer import read_rows

_MOST = 64  # Most rows per line, whose answer logits are in memory at once.
# Measured cost of the softmax for one token pair and head, in multiply-adds.
_COMPARISON = 90


class Likelihoods(NamedTuple):
    """Log-likelihoods of the ends of token rows.

    Attributes:
        log_likelihood: Sum of the natural logarithms of the tokens' probabilities.
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
        rows: Tokens of each row, at most one more than the context's length, as the
            last one is predicted and not read.
        starts: Number s of the first predicted token in each row, at least 1.
        batch_size: About how many families of rows run together. Rows that begin alike
            are a family, whose common tokens stand once, where that takes less.
        progress: Called as ``progress(done, total, part)`` after each batch, with
            numbers of rows; see :mod:`icltheory.batching`.

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
    switch = model.arch.switch
    # Frequencies depend on the longest row of a batch, so rows run one by one.
    apart = switch is not None and max(map(len, read)) > switch
    alone: list[tuple[int, ...]] = [(number,) for number in range(len(plain))]
    families = alone if apart else _families(plain, model.arch)
    laid = _Rows(plain, [int(s) for s in starts], families)
    shape = model.arch.width, 1 if apart else batch_size, most_pairs(model, 1)
    totals, greedy = np.zeros(len(read)), np.zeros(len(read), bool)

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
        wanted = "one start per row and at least one row"
        got = f"{len(starts)} for {len(rows)} rows"
        raise ValueError(f"starts: expected {wanted}, got {got}")
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
    stream, _ = through(model, tokens)
    found = programs.row_likelihoods(model.decoder, ends_of(model), stream, answers)
    return tuple(np.asarray(replicated(part)).ravel() for part in found)


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    ended: Callable[[int, list[int]], bool] | None = None,
) -> list[list[int]]:
    r"""Generates the most likely tokens one by one, for several prompts together.

    .. math:: w_t = \arg\max_w p(w \mid w_0, \dots, w_{t-1})

    Keys and values are kept, so that a token costs one pass over the weights. Returned
    are the new tokens of each prompt, those that ended it included.

    Args:
        ended: Called as ``ended(number, tokens)`` with the number of a prompt and all
            that was written behind it so far; True ends it.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> [len(new) for new in generate(model, [[1, 2], [3]], 4)]
        [4, 4]
    """
    rows = _checked_prompts(model, prompts, max_tokens)
    longest = rounded_up(max(map(len, rows)))
    tokens = padded_tokens(rows, longest, left=True)  # so that all end at one position
    decoder, params, ends = model.decoder, model.params, ends_of(model)
    longer = functools.partial(programs.lengthened, tokens=max_tokens)
    stream, caches = through(model, tokens, longer)
    written: list[list[int]] = [[] for _ in rows]
    running = np.ones(len(rows), bool)
    lengths = np.array([len(row) for row in rows], np.int32)
    for step in range(max_tokens):
        new = np.asarray(replicated(programs.likeliest(decoder, ends, stream)))
        for number in np.flatnonzero(running):
            if new[number] < 0:
                check_weights(model, tokens=False)
                raise ValueError(
                    "prompts: expected finite logits, got NaN after prompt "
                    f"{number}; a row of the token table is NaN, or the range of the "
                    "dtype too small"
                )
            written[number].append(int(new[number]))
            if ended is not None and ended(int(number), written[number]):
                running[number] = False
        if not running.any() or step == max_tokens - 1:
            break
        token = Tokens(np.maximum(new, 0)[:, None], np.ones((len(rows), 1), bool))
        stream = embed(decoder, params["embed"], token, lengths + step)
        place = np.int32(longest + step)
        for number, layer in enumerate(params["layers"]):
            block, cache = decoder.of_layer(number), caches[number]
            stream, cache = programs.continued(block, layer, stream, cache, place)
            caches[number] = cache
    return written


def generate_text(
    model: Any,
    prompts: Sequence[str],
    max_tokens: int,
    *,
    until: Sequence[str] = (),
) -> list[str]:
    """Generates greedy continuations of texts, each up to the first stop string.

    Args:
        prompts: The texts. An empty one begins with the tokenizer's token for the
            beginning of a text or, without one, for its end.
        until: Strings that end a continuation; they are left out. A token for the end
            of a text (:attr:`~icltheory.bridge.Tokenizer.eos_ids`) ends it too.
    """
    for name, texts in (("prompts", prompts), ("until", until)):
        check_sequence(name, texts)
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"{name}: expected texts, got {text!r}")
    tokenizer = model.tokenizer
    encoded = [begun(tokenizer, tokenizer.encode(prompt)) for prompt in prompts]

    def decoded(number, tokens):
        """The text of new tokens, decoded behind their prompt."""
        front = tokenizer.decode(encoded[number])
        whole = tokenizer.decode([*encoded[number], *tokens])
        return whole[len(front) :] if whole.startswith(front) else whole

    return texts_behind(model, encoded, max_tokens, until, decoded)


def texts_behind(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    until: Sequence[str],
    decoded: Callable[[int, list[int]], str],
) -> list[str]:
    """Greedy continuations of tokens up to the first stop string or end of a text.

    ``decoded(number, tokens)`` is the text of the new tokens of a prompt.
    """
    stops, tokenizer = [stop for stop in until if stop], model.tokenizer
    # A tokenizer may know several ends of a text, one, or none.
    ends = getattr(tokenizer, "eos_ids", (getattr(tokenizer, "eos_id", None),))

    def ended(number, tokens):
        return tokens[-1] in ends or any(s in decoded(number, tokens) for s in stops)

    texts = []
    for number, ids in enumerate(generate(model, prompts, max_tokens, ended=ended)):
        text = decoded(number, ids[:-1] if ids and ids[-1] in ends else ids)
        found = [text.find(stop) for stop in stops if stop in text]
        texts.append(text[: min(found, default=None)])
    return texts


def begun(tokenizer: Any, ids: Sequence[int]) -> Sequence[int]:
    """Returns a prompt; an empty one becomes the token that begins or ends a text."""
    known = (getattr(tokenizer, name, None) for name in ("bos_id", "eos_id"))
    return ids or [i for i in known if i is not None][:1]


def _checked_prompts(
    model: Any, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[np.ndarray]:
    """Returns the prompts as arrays; raises if new tokens would not fit."""
    check_positive_int("max_tokens", max_tokens)
    rows = read_rows("prompts", prompts, model.vocab_size)
    if not rows:
        raise ValueError("prompts: expected at least one, got none")
    # Beyond the switch, cached keys would need another rotation.
    longest = model.arch.switch or model.context_length
    limit = longest - max_tokens
    if limit < 1:
        wanted = f"at most {longest - 1}, since a prompt has at least one token"
        raise wrong("max_tokens", wanted, max_tokens)
    for number, row in enumerate(rows):
        if not 1 <= len(row) <= limit:
            wanted = f"1 to {limit} tokens, since {max_tokens} more are generated"
            got = f"{len(row)} in prompt {number}"
            raise ValueError(f"prompts: expected {wanted}, got {got}")
    return rows
