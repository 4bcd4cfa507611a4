"""What enters a decoder, what flows through it, and what a cache keeps."""

from typing import NamedTuple

from jax.typing import ArrayLike

from icltheory._typing import Array, Bool, Float, Int

__all__ = ["KV", "Stream", "Tokens"]


class Tokens(NamedTuple):
    """A batch of token sequences, padded on either side.

    Attributes:
        ids: Token numbers; those of padding only have to be valid.
        mask: Where there is a token.
        ends: Place of the last token of each of several sequences that follow one
            another in a row, ascending, the last repeated to fill the shape; ``None``
            for one sequence a row.
    """

    ids: Int[ArrayLike, "B T"]
    mask: Bool[ArrayLike, "B T"]
    ends: Int[ArrayLike, "B S"] | None = None


class Stream(NamedTuple):
    """The hidden state of a decoder.

    Attributes:
        h: The residual stream.
        positions: Position of each token among the tokens of its sequence.
        mask: Where there is a token.
        ends: Last tokens of the sequences of a row, as of :class:`Tokens`.
    """

    h: Float[Array, "B T n"]
    positions: Int[Array, "B T"]
    mask: Bool[Array, "B T"]
    ends: Int[Array, "B S"] | None = None


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
