"""Inputs and states of a decoder, and the positions of their tokens."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from icltheory._typing import Array, Bool, Float, Int
from icltheory.bridge.architecture import Rotary, exponents


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
    """The hidden state of a decoder: the residual stream ``h`` of :class:`Tokens`.

    The ``positions`` are those of the tokens in their sequences.
    """

    h: Float[Array, "B T n"]
    positions: Int[Array, "B T"]
    mask: Bool[Array, "B T"]
    ends: Int[Array, "B S"] | None = None
    stems: Int[Array, "B S"] | None = None


class KV(NamedTuple):
    """Keys and values of one block, to which later tokens attend.

    The keys are already rotated to their positions.
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


def rotate(
    x: Float[Array, "B T heads head_dim"], positions: Int[Array, "B T"], rotary: Rotary
) -> Float[Array, "B T heads head_dim"]:
    """Rotates the first dimensions of every head of queries or keys by their positions.

    Angles are computed in float32, and applied in the dtype of ``x``.

    Example:
        >>> import jax.numpy as jnp
        >>> x, one = jnp.ones((1, 1, 1, 2)), jnp.ones((1, 1), int)
        >>> rotate(x, one, Rotary(frequencies=(jnp.pi / 2,))).round(5).tolist()
        [[[[-1.0, 1.0]]]]

    Source: Su et al. (2021), section 3.2.
    """
    frequencies = _frequencies(rotary, positions)
    angles = positions.astype(jnp.float32)[..., None] * frequencies[None, None]
    cos = (jnp.cos(angles) * np.float32(rotary.scale)).astype(x.dtype)[:, :, None]
    sin = (jnp.sin(angles) * np.float32(rotary.scale)).astype(x.dtype)[:, :, None]
    half, dim = rotary.dim // 2, rotary.dim
    if rotary.interleaved:
        a, b = x[..., 0:dim:2], x[..., 1:dim:2]
        turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1)
        turned = turned.reshape(*x.shape[:-1], dim)
    else:
        a, b = x[..., :half], x[..., half:dim]
        turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return jnp.concatenate([turned, x[..., dim:]], axis=-1)


def _frequencies(rotary, positions):
    """Returns frequencies for the longest sequence of a batch."""
    usual = jnp.asarray(rotary.frequencies, jnp.float32)
    if rotary.switch is None:
        return usual
    length = (jnp.max(positions) + 1).astype(jnp.float32)
    if rotary.ntk is None:
        other = jnp.asarray(rotary.long_frequencies, jnp.float32)
        return jnp.where(length > rotary.switch, other, usual)
    base, factor = rotary.ntk
    longer = jnp.maximum(length, rotary.switch)
    stretch = factor * longer / rotary.switch - (factor - 1)
    grown = base * stretch ** np.float32(rotary.dim / (rotary.dim - 2))
    return 1.0 / grown ** jnp.asarray(exponents(rotary.dim))


def positions_of(mask, ends=None, stems=None):
    """Returns the position of every token within its sequence."""
    in_row = jnp.cumsum(mask, axis=1, dtype=jnp.int32) - 1
    if ends is not None:
        behind = jnp.take_along_axis(in_row, ends, axis=1) + 1
        begins = jnp.pad(behind, ((0, 0), (1, 0)))
        if stems is not None:
            lengths = behind - begins[:, :-1]
            has_one = stems != jnp.arange(stems.shape[1])[None]
            before = jnp.take_along_axis(lengths, stems, axis=1) * has_one
            begins = begins - jnp.pad(before, ((0, 0), (0, 1)))
        number = _segments(ends, mask.shape[1])
        in_row = in_row - jnp.take_along_axis(begins, number, axis=1)
    return jnp.clip(in_row, 0)


def _segments(ends, length):
    """Returns the segment number of each position in a row, in increasing order."""
    behind = jnp.arange(length)[None, :, None] > ends[:, None]
    return jnp.sum(behind, axis=-1, dtype=jnp.int32)


def of_sequence(stream, at):
    """Whether a position of the row is in the token's segment or its shared stem."""
    number = _segments(stream.ends, stream.mask.shape[1])
    own = jnp.take_along_axis(number, at, axis=1)
    found = own[:, :, None] == number[:, None]
    if stream.stems is not None:
        # Padding after the last segment has a number of its own.
        stem = jnp.take_along_axis(stream.stems, own, axis=1, mode="clip")
        found = found | (stem[:, :, None] == number[:, None])
    return found
