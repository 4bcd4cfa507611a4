"""Greedy generation with a cache of keys and values."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from icltheory._checks import check_positive_int, check_sequence
from icltheory.bridge.evaluation import _programs as programs
from icltheory.bridge.evaluation.batches import rounded_up
from icltheory.bridge.model import check_weights
from icltheory.bridge.sharding import replicated
from icltheory.bridge.streams import Tokens, padded_tokens
from icltheory.bridge.tokenizer import read_rows

__all__ = ["generate", "generate_text"]


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
    rows = _checked_prompts(model, prompts, max_tokens)
    longest = rounded_up(max(map(len, rows)))
    tokens = padded_tokens(rows, longest, left=True)  # so that all end at one position
    decoder, params = model.decoder, model.params
    ends = {name: leaf for name, leaf in params.items() if name != "layers"}
    stream = programs.embed(decoder, params["embed"], tokens, np.int32(0))
    caches = []
    for number, layer in enumerate(params["layers"]):
        block = decoder.of_layer(number)
        stream, cache = programs.block(block, False, layer, stream, None)
        caches.append(programs.lengthened(cache, max_tokens))
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
        stream = programs.embed(decoder, params["embed"], token, lengths + step)
        for number, layer in enumerate(params["layers"]):
            stream, caches[number] = programs.continued(
                decoder.of_layer(number),
                layer,
                stream,
                caches[number],
                np.int32(longest + step),
            )
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
    check_texts("until", until)
    tokenizer, stops = model.tokenizer, [stop for stop in until if stop]
    encoded = [begun(tokenizer, tokenizer.encode(prompt)) for prompt in prompts]
    ends = end_tokens(tokenizer)

    def text(number, tokens):
        """Decodes generated tokens after their prompt and returns the new text."""
        front = tokenizer.decode(encoded[number])
        whole = tokenizer.decode([*encoded[number], *tokens])
        return whole[len(front) :] if whole.startswith(front) else whole

    def ended(number, tokens):
        return tokens[-1] in ends or any(stop in text(number, tokens) for stop in stops)

    written = generate(model, encoded, max_tokens, ended=ended)
    kept = [ids[:-1] if ids and ids[-1] in ends else ids for ids in written]
    return [cut_before(text(number, ids), stops) for number, ids in enumerate(kept)]


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


def _checked_prompts(
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
