"""Greedy generation with a cache of keys and values."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from icltheory._checks import check_positive_int, check_sequence
from icltheory.bridge._arrays import replicated
from icltheory.bridge._vocabulary import read_rows
from icltheory.bridge.evaluation import _programs as programs
from icltheory.bridge.evaluation._branches import prefix_tokens
from icltheory.bridge.evaluation.batches import rounded_up
from icltheory.bridge.evaluation.prompts import common_beginning
from icltheory.bridge.model import check_weights
from icltheory.bridge.streams import KV, Tokens, padded_tokens

__all__ = ["generate", "generate_text"]

_LEAST_PREFIX = 32  # A shorter prefix does not justify extra programs.


def generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    ended: Callable[[int, list[int]], bool] | None = None,
) -> list[list[int]]:
    r"""Generates the most likely tokens one by one, for several prompts together.

    .. math:: w_t = \arg\max_w p(w \mid w_0, \dots, w_{t-1})

    Keys and values are kept, so that a token costs one pass over the weights.

    Args:
        model: The model.
        prompts: Tokens of each prompt.
        max_tokens: Most tokens that are written behind each.
        ended: Called as ``ended(number, tokens)`` with the number of a prompt and all
            that was written behind it so far; True ends it. Nothing ends it unless
            given.

    Returns:
        The new tokens of each prompt, those that ended it included.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> [len(new) for new in generate(model, [[1, 2], [3]], 4)]
        [4, 4]
    """
    written, lost = continuations(model, prompts, max_tokens, ended)
    _refuse_lost(lost)
    return written


class PrefixCache(NamedTuple):
    """The shared beginning of prompts, computed once.

    Attributes:
        size: Its number of tokens.
        length: The same with padding.
        caches: Keys and values of each layer, of one row.
    """

    size: int
    length: int
    caches: tuple[KV, ...]


def prefix_cache(model: Any, prompts: Sequence[Sequence[int]]) -> PrefixCache | None:
    """Returns a cache of the prompts' common beginning; None if it is short."""
    rows = [list(prompt) for prompt in prompts]
    size = common_beginning(rows, min(map(len, rows)) - 1)
    if size < _LEAST_PREFIX:
        return None
    decoder, params, caches = model.decoder, model.params, []
    tokens = prefix_tokens(rows[0][:size], decoder.arch.max_positions)
    stream = programs.embed(decoder, params["embed"], tokens, np.int32(0))
    for number, layer in enumerate(params["layers"]):
        block = decoder.of_layer(number)
        stream, cache = programs.block(block, False, layer, stream, None)
        caches.append(cache)
    return PrefixCache(size, np.shape(tokens.ids)[1], tuple(caches))


def continuations(
    model: Any,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    ended: Callable[[int, list[int]], bool] | None,
    length: int = 0,
    prefix: PrefixCache | None = None,
) -> tuple[list[list[int]], np.ndarray]:
    """Returns the new tokens of each prompt, and which prompts met a NaN logit.

    Prompts are padded to ``length`` if it is more than theirs. Those that begin with a
    prefix run from its cache.
    """
    rows = checked_prompts(model, prompts, max_tokens)
    front = 0 if prefix is None else prefix.size
    tails = [row[front:] for row in rows]
    longest = rounded_up(max(*map(len, tails), length - front))
    tokens = padded_tokens(tails, longest, left=True)  # so that all end at one position
    decoder, params = model.decoder, model.params
    ends = {name: leaf for name, leaf in params.items() if name != "layers"}
    stream = programs.embed(decoder, params["embed"], tokens, np.int32(front))
    caches = []
    for number, layer in enumerate(params["layers"]):
        block, before = decoder.of_layer(number), None
        if prefix is not None:
            before = prefix.caches[number]
        stream, cache = programs.block(block, False, layer, stream, before)
        caches.append(programs.lengthened(before, cache, max_tokens))
    place = longest if prefix is None else longest + prefix.length
    written: list[list[int]] = [[] for _ in rows]
    running, lost = np.ones(len(rows), bool), np.zeros(len(rows), bool)
    lengths = np.array([len(row) for row in rows], np.int32)
    for step in range(max_tokens):
        new = np.asarray(replicated(programs.likeliest(decoder, ends, stream)))
        lost |= running & (new < 0)
        running &= new >= 0
        for number in np.flatnonzero(running):
            written[number].append(int(new[number]))
            if ended is not None and ended(int(number), written[number]):
                running[number] = False
        if not running.any() or step == max_tokens - 1:
            break
        token = Tokens(np.maximum(new, 0)[:, None], np.ones((len(rows), 1), bool))
        stream = programs.embed(decoder, params["embed"], token, lengths + step)
        for number, layer in enumerate(params["layers"]):
            stream, caches[number] = programs.continued(
                decoder.of_layer(number),
                layer,
                stream,
                caches[number],
                np.int32(place + step),
            )
    if lost.any():
        check_weights(model, tokens=False)
    return written, lost


def generate_text(
    model: Any,
    prompts: Sequence[str],
    max_tokens: int,
    *,
    until: Sequence[str] = (),
) -> list[str]:
    """Generates greedy continuations of texts, each up to the first stop string.

    Args:
        model: The model, with a tokenizer.
        prompts: The texts. An empty one begins with the tokenizer's token for the
            beginning of a text or, without one, for its end.
        max_tokens: Most tokens that are written behind each.
        until: Strings that end a continuation; they are left out. A token for the end
            of a text (:attr:`~icltheory.bridge.Tokenizer.eos_ids`) ends it too.

    Returns:
        The continuations.
    """
    check_texts("prompts", prompts)
    encoded = [begun(model.tokenizer, model.tokenizer.encode(p)) for p in prompts]
    texts, lost = written_texts(model, encoded, max_tokens, until)
    _refuse_lost(lost)
    return texts


def written_texts(
    model: Any,
    encoded: Sequence[Sequence[int]],
    max_tokens: int,
    until: Sequence[str],
    length: int = 0,
    prefix: PrefixCache | None = None,
) -> tuple[list[str], np.ndarray]:
    """Returns texts generated after token prompts, and which met a NaN logit."""
    check_texts("until", until)
    tokenizer, stops = model.tokenizer, [stop for stop in until if stop]
    ends = end_tokens(tokenizer)

    def text(number, tokens):
        """Decodes generated tokens after their prompt and returns the new text."""
        front = tokenizer.decode(encoded[number])
        whole = tokenizer.decode([*encoded[number], *tokens])
        return whole[len(front) :] if whole.startswith(front) else whole

    def ended(number, tokens):
        return tokens[-1] in ends or any(stop in text(number, tokens) for stop in stops)

    written, lost = continuations(model, encoded, max_tokens, ended, length, prefix)
    texts = []
    for number, tokens in enumerate(written):
        kept = tokens[:-1] if tokens and tokens[-1] in ends else tokens
        texts.append(cut_before(text(number, kept), stops))
    return texts, lost


def end_tokens(tokenizer: Any) -> Collection[int | None]:
    """Returns the tokens that end a text; a tokenizer may know one, or none."""
    return getattr(tokenizer, "eos_ids", (getattr(tokenizer, "eos_id", None),))


def begun(tokenizer: Any, ids: Sequence[int]) -> Sequence[int]:
    """Returns a prompt; an empty one becomes the token that begins or ends a text."""
    known = (getattr(tokenizer, name, None) for name in ("bos_id", "eos_id"))
    return ids or [i for i in known if i is not None][:1]


def cut_before(text: str, stops: Sequence[str]) -> str:
    """Cuts a text before the first occurrence of a stop string."""
    return text[: min((text.find(s) for s in stops if s in text), default=len(text))]


def check_texts(name: str, texts: Any) -> None:
    """Raises for a single string in place of several, and for what is no text."""
    check_sequence(name, texts)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"{name}: expected texts, got {text!r}")


def _refuse_lost(lost: np.ndarray) -> None:
    for number in np.flatnonzero(lost):
        raise ValueError(
            f"prompts: expected finite logits, got NaN after prompt {number}; a row "
            "of the token table is NaN, or the range of the dtype too small"
        )


def checked_prompts(
    model: Any, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[np.ndarray]:
    """Returns the prompts as arrays; raises if new tokens would not fit."""
    check_positive_int("max_tokens", max_tokens)
    rows = read_rows("prompts", prompts, model.vocab_size)
    if not rows:
        raise ValueError("prompts: expected at least one, got none")
    rotary = model.decoder.arch.rotary
    # Beyond the switch, cached keys would need another rotation.
    switch = None if rotary is None else rotary.switch
    longest = model.context_length if switch is None else switch
    limit = longest - max_tokens
    if limit < 1:
        raise ValueError(
            f"max_tokens: expected at most {longest - 1}, since a prompt has at least "
            f"one token, got {max_tokens}"
        )
    for number, row in enumerate(rows):
        if not 1 <= len(row) <= limit:
            raise ValueError(
                f"prompts: expected 1 to {limit} tokens, since {max_tokens} more are "
                f"generated, got {len(row)} in prompt {number}"
            )
    return rows
