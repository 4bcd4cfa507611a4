"""Converts a prompt of (x, y) pairs to tokens, positions and an attention mask."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from icltheory._checks import check_choice
from icltheory._core import Record

__all__ = [
    "TokenSequence",
    "interleaved",
    "shared_context",
    "shifted",
    "token_matrix",
]

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


def interleaved(
    X: Float[Array, "B P d"],
    y: Float[Array, "B P"],
    X_query: Float[Array, "B P d"] | None = None,
) -> TokenSequence:
    r"""Interleaves inputs and labels as Garg et al. do.

    .. math:: (x_1, (y_1, 0, \dots, 0), x_2, (y_2, 0, \dots, 0), \dots)

    The prediction at the token of :math:`x_k` uses the pairs before it, so that one
    causal pass answers every prefix. With ``X_query`` the question at prefix ``k``
    differs from the example that follows: the queries are appended as further tokens
    which stand at the position of :math:`x_k` and see only the pairs before it, so that
    one pass of :math:`3P` tokens replaces :math:`P` passes.

    Example:
        >>> import jax.numpy as jnp
        >>> seq = interleaved(jnp.ones((1, 2, 3)), 5 * jnp.ones((1, 2)))
        >>> seq.tokens[0].tolist()
        [[1.0, 1.0, 1.0], [5.0, 0.0, 0.0], [1.0, 1.0, 1.0], [5.0, 0.0, 0.0]]

    Source: Garg et al. 2022, Section 2.
    """
    B, P, d = X.shape
    labels = jnp.zeros_like(X).at[:, :, 0].set(y)
    tokens = jnp.stack([X, labels], axis=2).reshape(B, 2 * P, d)
    positions = jnp.arange(2 * P)
    if X_query is None:
        return TokenSequence(tokens, positions, None, slice(0, None, 2))
    return _with_queries(tokens, positions, X_query, positions[::2])


def token_matrix(
    X: Float[Array, "B P d"],
    y: Float[Array, "B P"],
    X_query: Float[Array, "B P d"] | None = None,
    *,
    last_only: bool = False,
) -> TokenSequence:
    r"""Joins each pair into one token, as the papers on linear attention do.

    .. math:: \begin{pmatrix} x_1 & \dots & x_{P-1} & x_{k} \\
              y_1 & \dots & y_{P-1} & 0 \end{pmatrix}

    The first ``P - 1`` pairs are context tokens; the last label is never shown. Every
    prefix has a query token of its own that sees the pairs before it, so that one pass
    of ``2P - 1`` tokens answers all of them. Queries are those of ``X`` unless
    ``X_query`` is given. ``last_only`` asks the last alone, in the papers' ``P``
    tokens.

    Example:
        >>> import jax.numpy as jnp
        >>> seq = token_matrix(jnp.ones((1, 2, 1)), 5 * jnp.ones((1, 2)))
        >>> seq.tokens[0].tolist()
        [[1.0, 5.0], [1.0, 0.0], [1.0, 0.0]]

    Source: Zhang, Wu and Bartlett 2024, Section 2.
    """
    P = X.shape[1]
    queries = X if X_query is None else X_query
    context = jnp.concatenate([X, y[:, :, None]], axis=2)[:, : P - 1]
    asked = jnp.concatenate([queries, jnp.zeros_like(y)[:, :, None]], axis=2)
    ranks = jnp.arange(P)
    if last_only:
        tokens = jnp.concatenate([context, asked[:, -1:]], axis=1)
        return TokenSequence(tokens, ranks, None, slice(P - 1, None))
    return _with_queries(context, ranks[: P - 1], asked, ranks)


def shifted(
    X: Float[Array, "B P d"],
    y: Float[Array, "B P"],
    X_query: Float[Array, "B P d"] | None = None,
) -> TokenSequence:
    r"""Joins each input with the label before it, half the tokens of Garg's layout.

    .. math:: \begin{pmatrix} x_1 & x_2 & \dots & x_P \\
              0 & y_1 & \dots & y_{P-1} \end{pmatrix}

    The prediction at token ``k`` uses the pairs before it, so that one causal pass of
    ``P`` tokens answers every prefix. A first layer has to join :math:`x_k` and
    :math:`y_k`, which stand in neighbouring tokens. ``X_query`` has ``P`` tokens of its
    own, as in :func:`interleaved`.

    Example:
        >>> import jax.numpy as jnp
        >>> shifted(jnp.ones((1, 2, 1)), 5 * jnp.ones((1, 2))).tokens[0].tolist()
        [[1.0, 0.0], [1.0, 5.0]]

    Source: Garg et al. 2022, Section 2 (the same prefixes).
    """
    before = jnp.pad(y, ((0, 0), (1, 0)))[:, :-1, None]
    tokens = jnp.concatenate([X, before], axis=2)
    positions = jnp.arange(X.shape[1])
    if X_query is None:
        return TokenSequence(tokens, positions, None, slice(None))
    asked = jnp.concatenate([X_query, before], axis=2)
    return _with_queries(tokens, positions, asked, positions)


def shared_context(
    X: Float[Array, "B N d"],
    y: Float[Array, "B N"],
    X_query: Float[Array, "B Q d"],
    *,
    token_layout: str = "interleaved",
) -> TokenSequence:
    r"""Tokens of many queries after the same N examples, which are embedded once.

    .. math:: (z_1, \dots, z_N, x^1_{query}, \dots, x^Q_{query})

    Every query stands at the position after the examples and sees them and itself, so
    that its prediction is that of a prompt of its own. One pass of N' + Q tokens, with
    N' = 2 N or N tokens of the examples, replaces Q passes of N' + 1 tokens. The layout
    is ``"interleaved"``, ``"matrix"`` or ``"shifted"``.

    Example:
        >>> import jax.numpy as jnp
        >>> X, y, X_query = jnp.ones((1, 1, 2)), jnp.ones((1, 1)), jnp.ones((1, 3, 2))
        >>> seq = shared_context(X, y, X_query)
        >>> seq.positions.tolist(), seq.mask[3].tolist()
        ([0, 1, 2, 2, 2], [True, True, False, True, False])

    Source: Garg et al. 2022, Section 2.
    """
    check_choice("token_layout", token_layout, LAYOUTS)
    asked = X_query
    if token_layout == "interleaved":
        examples = interleaved(X, y).tokens
    elif token_layout == "shifted":
        examples = shifted(X, y).tokens
        last = jnp.broadcast_to(y[:, -1:, None], (*X_query.shape[:2], 1))
        asked = jnp.concatenate([X_query, last], axis=2)
    else:
        examples = jnp.concatenate([X, y[:, :, None]], axis=2)
        asked = jnp.concatenate([X_query, jnp.zeros_like(X_query[:, :, :1])], axis=2)
    length = examples.shape[1]
    places = jnp.full(X_query.shape[1], length)
    return _with_queries(examples, jnp.arange(length), asked, places)
