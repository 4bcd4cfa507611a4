"""Converts a prompt of (x, y) pairs to tokens, positions and an attention mask."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from icltheory._checks import check_choice, check_positive_int
from icltheory._core import Record

__all__ = ["TokenSequence", "shared_context", "tokenized"]

LAYOUTS = ("interleaved", "matrix", "shifted")


class TokenSequence(Record):
    """Tokens of a batch of prompts and the positions of the predictions.

    Attributes:
        tokens: Token vectors.
        positions: Index of each token's position embedding.
        mask: ``mask[i, j]`` says whether token ``i`` sees token ``j``; ``None`` stands
            for the causal mask, which fused attention kernels know by name.
        outputs: Slice of the token axis that holds the predictions, in order.
    """

    tokens: Float[Array, "B T width"]
    positions: Int[Array, "T"]
    mask: Bool[Array, "T T"] | None
    outputs: slice = eqx.field(static=True)


def _with_queries(context, positions, queries, places) -> TokenSequence:
    """Causal context tokens, and queries that see those before them and themselves."""
    rank = jnp.concatenate([positions, places])
    is_context = jnp.arange(rank.size) < positions.size
    seen = (rank[None, :] < rank[:, None]) & is_context[None, :]
    mask = seen | jnp.eye(rank.size, dtype=bool)
    tokens = jnp.concatenate([context, queries], axis=1)
    return TokenSequence(tokens, rank, mask, slice(positions.size, None))


def _examples(layout: str, X: Float[Array, "B P d"], y: Float[Array, "B P"]) -> Array:
    """Tokens of examples, ``(B, T, width)``."""
    if layout == "interleaved":
        labels = jnp.zeros_like(X).at[:, :, 0].set(y)
        return jnp.stack([X, labels], axis=2).reshape(len(X), -1, X.shape[2])
    return _joined(X, y if layout == "matrix" else _labels_before(y))


def _questions(
    layout: str, X_query: Float[Array, "B P d"], before: Float[Array, "B P"]
) -> Array:
    """Tokens of queries, given the label of the example before each."""
    if layout == "interleaved":
        return X_query
    return _joined(X_query, before if layout == "shifted" else jnp.zeros_like(before))


def _joined(X: Array, y: Array) -> Array:
    return jnp.concatenate([X, y[:, :, None]], axis=2)


def _labels_before(y: Array) -> Array:
    return jnp.pad(y, ((0, 0), (1, 0)))[:, :-1]


def tokenized(
    layout: str,
    X: Float[Array, "B P d"],
    y: Float[Array, "B P"],
    X_query: Float[Array, "B P d"] | None = None,
    *,
    last_only: bool = False,
) -> TokenSequence:
    r"""Tokens of the pairs of a prompt and of a query after every prefix.

    .. math:: (x_1, (y_1, 0, \dots, 0), x_2, (y_2, 0, \dots, 0), \dots) , \qquad
        \begin{pmatrix} x_1 & \dots & x_{P-1} & x_k \\
        y_1 & \dots & y_{P-1} & 0 \end{pmatrix} , \qquad
        \begin{pmatrix} x_1 & x_2 & \dots & x_P \\
        0 & y_1 & \dots & y_{P-1} \end{pmatrix}

    * ``"interleaved"``, the first: the prediction at the token of :math:`x_k` uses the
      pairs before it, so that one causal pass of 2 P tokens answers every prefix.
    * ``"matrix"``: P - 1 context tokens, and for every prefix a query token of its own
      that sees the pairs before it; one pass of 2 P - 1 tokens answers all of them. The
      last label is never shown. ``last_only`` asks the last alone, in the papers' P
      tokens.
    * ``"shifted"``: each input with the label before it, half the tokens of the first.
      One layer has to join :math:`x_k` and :math:`y_k` of neighbouring tokens.

    With ``X_query`` the question at prefix k differs from the example that follows:
    queries are further tokens, which stand at the position of :math:`x_k` and see only
    the pairs before it and themselves. One pass with P more tokens replaces P passes.

    Example:
        >>> import jax.numpy as jnp
        >>> X, y = jnp.ones((1, 2, 2)), 5 * jnp.ones((1, 2))
        >>> tokenized("interleaved", X, y).tokens[0].tolist()
        [[1.0, 1.0], [5.0, 0.0], [1.0, 1.0], [5.0, 0.0]]
        >>> tokenized("matrix", X, y).tokens[0].tolist()
        [[1.0, 1.0, 5.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]
        >>> tokenized("shifted", X, y).tokens[0].tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 5.0]]

    Source: Garg et al. 2022, Section 2 (interleaved); Zhang, Wu and Bartlett 2024,
    Section 2 (matrix).
    """
    check_choice("token_layout", layout, LAYOUTS)
    P, context = X.shape[1], _examples(layout, X, y)
    check_positive_int("points", P)
    positions = jnp.arange(context.shape[1])
    places = positions[::2] if layout == "interleaved" else positions
    asked = X if X_query is None else X_query
    queries = _questions(layout, asked, _labels_before(y))
    if layout == "matrix":
        context, positions = context[:, :-1], positions[:-1]
        if last_only:
            tokens = jnp.concatenate([context, queries[:, -1:]], axis=1)
            return TokenSequence(tokens, places, None, slice(P - 1, None))
    elif X_query is None:
        step = context.shape[1] // P
        return TokenSequence(context, positions, None, slice(0, None, step))
    return _with_queries(context, positions, queries, places)


def shared_context(
    layout: str,
    X: Float[Array, "B N d"],
    y: Float[Array, "B N"],
    X_query: Float[Array, "B Q d"],
) -> TokenSequence:
    r"""Tokens of many queries after the same N examples, which are embedded once.

    .. math:: (z_1, \dots, z_N, x^1_{query}, \dots, x^Q_{query})

    Every query stands at the position after the examples and sees them and itself, so
    that its prediction is that of a prompt of its own. One pass of N' + Q tokens, with
    N' = 2 N or N tokens of the examples, replaces Q passes of N' + 1 tokens.

    Example:
        >>> import jax.numpy as jnp
        >>> X, y, X_query = jnp.ones((1, 1, 2)), jnp.ones((1, 1)), jnp.ones((1, 3, 2))
        >>> seq = shared_context("interleaved", X, y, X_query)
        >>> seq.positions.tolist(), seq.mask[3].tolist()
        ([0, 1, 2, 2, 2], [True, True, False, True, False])

    Source: Garg et al. 2022, Section 2.
    """
    check_choice("token_layout", layout, LAYOUTS)
    examples, count = _examples(layout, X, y), X_query.shape[1]
    last = jnp.pad(y, ((0, 0), (1, 0)))[:, -1:]  # 0 without examples
    last = jnp.broadcast_to(last, X_query.shape[:2])
    places = jnp.full(count, examples.shape[1])
    queries = _questions(layout, X_query, last)
    return _with_queries(examples, jnp.arange(examples.shape[1]), queries, places)
