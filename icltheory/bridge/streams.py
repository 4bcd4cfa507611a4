"""Input, hidden state and cache of a decoder."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from icltheory._typing import Array, Bool, Float, Int

__all__ = ["KV", "Stream", "Tokens"]


class Tokens(NamedTuple):
    """A batch of token sequences, padded on either side.

    A row may hold several segments that follow one another. A segment that continues
    another one, its stem, sees that one too, and its positions begin behind it.

    Attributes:
        ids: Token numbers; those of padding only have to be valid.
        mask: Where there is a token.
        ends: Place of the last token of each segment, ascending, the last repeated to
            fill the shape; ``None`` for one sequence a row.
        stems: Number of the segment that each segment continues, its own number where
            there is none; ``None`` where no segment has a stem.
    """

    ids: Int[ArrayLike, "B T"]
    mask: Bool[ArrayLike, "B T"]
    ends: Int[ArrayLike, "B S"] | None = None
    stems: Int[ArrayLike, "B S"] | None = None


class Stream(NamedTuple):
    """The hidden state of a decoder.

    Attributes:
        h: The residual stream.
        positions: Position of each token among the tokens of its sequence.
        mask: Where there is a token.
        ends: Last tokens of the segments of a row, as of :class:`Tokens`.
        stems: What the segments continue, as of :class:`Tokens`.
    """

    h: Float[Array, "B T n"]
    positions: Int[Array, "B T"]
    mask: Bool[Array, "B T"]
    ends: Int[Array, "B S"] | None = None
    stems: Int[Array, "B S"] | None = None


class KV(NamedTuple):
    """Keys and values of one block, to which later tokens attend.

    Attributes:
        k: Keys, already turned to their positions.
        v: Values.
        mask: Where there is a token.
    """

    k: Float[Array, "B P kv_heads head_dim"]
    v: Float[Array, "B P kv_heads head_dim"]
    mask: Bool[Array, "B P"]


def padded_tokens(rows: Sequence[Any], length: int, *, left: bool = False) -> Tokens:
    """Pads rows of token numbers to one length, on the right unless ``left``."""
    ids = np.zeros((len(rows), length), np.int32)
    mask = np.zeros(ids.shape, bool)
    for i, row in enumerate(rows):
        place = slice(length - len(row), None) if left else slice(len(row))
        ids[i, place], mask[i, place] = row, True
    return Tokens(ids, mask)
