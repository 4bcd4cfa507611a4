"""Scores of induction heads: on arrays, and of all heads of a layered model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Integer

from icltheory._checks import (
    Check,
    check_positive_int,
    check_shape,
    finite,
    within,
    wrong,
)
from icltheory._core import Record, calculator, widened
from icltheory._typing import Array, Bool, Float, PRNGKey, PyTree, Scalar
from icltheory.layered import LayeredModel, attention_patterns
from icltheory.layered.attention import check_readable

_weights = Check(lambda w: (w >= -1e-3) & (w <= 1 + 1e-3), "weights between 0 and 1")
_some = Check(lambda number: number > 0, "a token that occurs twice and counts")
_one = Check(lambda number: number > 0, "at least one True")


class HeadScores(Record):
    """Prefix-matching and previous-token scores of all heads, and of a uniform one."""

    prefix_matching: Float[Array, "layers heads"]
    previous_token: Float[Array, "layers heads"]
    uniform: Float[Array, ""]  # prefix matching of a head that attends to all alike


def prefix_targets(tokens: Integer[ArrayLike, "..."]) -> Bool[Array, "..."]:
    r"""Marks in row t all j + 1 <= t with j < t whose token j is that at t.

    Example:
        >>> prefix_targets(jnp.array([5, 7, 5])).astype(int).tolist()
        [[0, 0, 0], [0, 0, 0], [0, 1, 0]]

    Source: Olsson et al. (2022), prefix matching.
    """
    tokens = jnp.asarray(tokens)
    before = jnp.roll(tokens, 1, axis=-1)[..., None, :] == tokens[..., :, None]
    place = jnp.arange(tokens.shape[-1])
    allowed = (place[None] <= place[:, None]) & (place[None] > 0)
    return before & allowed.reshape((1,) * (tokens.ndim - 1) + allowed.shape)


def _counted(tokens, rows):
    counted = jnp.any(prefix_targets(tokens), axis=-1)
    return counted if rows is None else counted & jnp.asarray(rows, bool)


def _weights_of_tokens(name, attention, given):
    shape = np.shape(given["tokens"])
    check_shape(name, attention, (*shape, *shape[-1:]))
    return _weights(name, attention)


def _repeated(name, tokens, given):
    rows = given.get("rows")
    if rows is not None:
        check_shape("rows", rows, np.shape(tokens))
    return _some(name, jnp.sum(_counted(tokens, rows)))


@calculator(integers=("tokens", "rows"), attention=_weights_of_tokens, tokens=_repeated)
def prefix_matching_score(
    attention: Float[ArrayLike, "..."],
    tokens: Integer[ArrayLike, "..."],
    rows: Bool[ArrayLike, "..."] | None = None,
) -> Scalar:
    r"""Mean attention to tokens that followed earlier occurrences of the current one.

    .. math:: \frac{1}{|R|} \sum_{t \in R} \;
              \sum_{j < t,\; \mathrm{tok}_j = \mathrm{tok}_t} A_{t, j + 1} \in [0, 1] ,

    over the positions R, among ``rows``, whose token occurred before; rows of the
    attention A are queries. 1 for an induction head; the uniform head is at the mean of
    (occurrences before t) / (t + 1).

    Example:
        >>> A = [[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.5, 0.25]]
        >>> float(prefix_matching_score(A, [5, 7, 5]))
        0.5

    Source: Olsson et al. (2022), prefix-matching score.
    """
    A, tokens = jnp.asarray(attention), jnp.asarray(tokens)
    counted = _counted(tokens, rows)
    matched = jnp.sum(jnp.where(prefix_targets(tokens), A, 0), axis=-1)
    return jnp.sum(jnp.where(counted, matched, 0)) / jnp.sum(counted)


@calculator(attention=_weights)
def previous_token_score(attention: Float[ArrayLike, "..."]) -> Scalar:
    r"""Mean attention of a head to the previous token, A_{t, t - 1} over t >= 1.

    Example:
        >>> float(previous_token_score([[1.0, 0.0], [0.75, 0.25]]))
        0.75

    Source: Olsson et al. (2022), previous-token heads.
    """
    A = jnp.asarray(attention)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.shape[-1] < 2:
        raise ValueError(f"attention: expected shape (..., T, T), got {A.shape}")
    return jnp.mean(jnp.diagonal(A, offset=-1, axis1=-2, axis2=-1))


@calculator(circuit=finite)
def copying_score(circuit: Float[ArrayLike, "_V _V"]) -> Scalar:
    r"""Copying score of a circuit by its eigenvalues; 0 where all of them are 0.

    .. math:: \frac{\sum_i \operatorname{Re} \lambda_i}{\sum_i |\lambda_i|} \in [-1, 1]

    Example:
        >>> float(copying_score([[-1.0, 0.0], [0.0, -2.0]]))
        -1.0
        >>> float(copying_score([[0.0, 1.0], [-1.0, 0.0]]))
        0.0

    Source: Olsson et al. (2022), copying by eigenvalues.
    """
    check_shape("circuit", circuit, ("V", "V"))
    values = jnp.linalg.eigvals(widened(circuit))
    size = jnp.sum(jnp.abs(values))
    return jnp.where(size > 0, jnp.sum(values.real) / jnp.where(size > 0, size, 1), 0)


def _in_circuit(name, tokens, given):
    check_shape(name, tokens, ("T",))
    check_shape("attention", given["attention"], (len(tokens), len(tokens)))
    check_shape("circuit", given["circuit"], ("V", "V"))
    return within(0, len(given["circuit"]) - 1)(name, tokens)


def _one_row(name, rows, given):
    check_shape(name, rows, np.shape(given["tokens"]))
    return _one(name, rows.sum())


@calculator(
    integers=("tokens", "rows"),
    attention=finite,
    circuit=finite,
    tokens=_in_circuit,
    rows=_one_row,
)
def copying_ratio(
    attention: Float[ArrayLike, "_T _T"],
    circuit: Float[ArrayLike, "_V _V"],
    tokens: Integer[ArrayLike, "_T"],
    rows: Bool[ArrayLike, "_T"] | None = None,
) -> Scalar:
    r"""Copying score of a head on a sequence, from the attended tokens' logits.

    .. math::
        \ell_t = \sum_s A_{t s} M_{:, \mathrm{tok}_s} , \qquad
        2 \cdot \frac{(\ell_t - \bar \ell_t)_+ [\mathrm{tok}_{s^*(t)}]}
                     {\sum_v (\ell_t - \bar \ell_t)_+ [v]} - 1 \in [-1, 1] ,
        \qquad s^*(t) = \operatorname*{argmax}_s A_{t s} ,

    averaged over t, or over those in ``rows``, with attention A, the bar the mean over
    the vocabulary, and the circuit :math:`M = W_U W_O W_V W_E` from tokens to logits. A
    position at which nothing is raised counts -1.

    Example:
        >>> float(copying_ratio([[1, 0], [0, 1]], [[1, 0], [0, 1]], [0, 1]))
        1.0

    Source: Olsson et al. (2022), copying score.
    """
    A, M, tokens = jnp.asarray(attention), jnp.asarray(circuit), jnp.asarray(tokens)
    logits = A @ M[:, tokens].T
    raised = jnp.maximum(logits - jnp.mean(logits, axis=1, keepdims=True), 0)
    at = tokens[jnp.argmax(A, axis=1)]
    own = jnp.take_along_axis(raised, at[:, None], axis=1)[:, 0]
    total = jnp.sum(raised, axis=1)
    share = jnp.where(total > 0, own / jnp.where(total > 0, total, 1), 0)
    counted = jnp.ones(tokens.shape, bool) if rows is None else jnp.asarray(rows, bool)
    return 2 * jnp.sum(jnp.where(counted, share, 0)) / jnp.sum(counted) - 1


@calculator(static=("early", "late"))
def in_context_score(
    losses: Float[ArrayLike, "..."],
    early: int | tuple[int, int] = 50,
    late: int | tuple[int, int] = 500,
) -> Scalar:
    r"""Loss late in the context minus loss early in it; negative if context helps.

    ``early`` and ``late`` are a position, or the first of several and the one after the
    last, on the last axis of the losses.

    Example:
        >>> float(in_context_score([3.0, 2.0, 1.0, 0.0], (0, 2), (2, 4)))
        -2.0

    Source: Olsson et al. (2022), in-context learning score.
    """
    losses = jnp.asarray(losses)
    first, last = _part("early", losses, early), _part("late", losses, late)
    return jnp.mean(last) - jnp.mean(first)


def _part(name: str, losses: Array, at: Any) -> Array:
    start, stop = (at, at + 1) if isinstance(at, int | np.integer) else at
    if not 0 <= start < stop <= losses.shape[-1]:
        raise ValueError(
            f"{name}: expected positions from 0 to {losses.shape[-1] - 1}, got {at}"
        )
    return losses[..., start:stop]


def head_scores(
    model: LayeredModel,
    params: PyTree,
    inputs: PyTree,
    tokens: Integer[ArrayLike, "..."],
    rows: Bool[ArrayLike, "..."] | None = None,
) -> HeadScores:
    """Prefix-matching and previous-token scores of every head.

    ``tokens`` are those at every position of the inputs; where they are not tokens,
    numbers that are equal where they are. Positions in ``rows`` may count for prefix
    matching.

    Example:
        >>> from icltheory.induction import induction_circuit
        >>> circuit, tokens = induction_circuit(3, 6), jnp.array([0, 1, 2, 0, 1, 2])
        >>> inputs = circuit.embed(tokens)
        >>> scores = head_scores(circuit.model, circuit.stack, inputs, tokens)
        >>> scores.prefix_matching.ravel().round(3).tolist()
        [0.0, 1.0]

    Source: Olsson et al. (2022).
    """
    tokens = jnp.asarray(tokens)
    patterns = attention_patterns(model, params, inputs)
    check_shape("tokens", tokens, patterns[0].shape[:-3] + patterns[0].shape[-1:])
    heads = {pattern.shape[-3] for pattern in patterns}
    if len(heads) > 1:
        raise ValueError(f"model: expected as many heads in every layer, got {heads}")
    weights = jnp.stack([jnp.moveaxis(pattern, -3, 0) for pattern in patterns])

    def prefix(head):
        return prefix_matching_score(head, tokens, rows)

    place = jnp.arange(tokens.shape[-1])
    uniform = (place[None] <= place[:, None]) / (place[:, None] + 1)
    everywhere = jnp.broadcast_to(uniform, prefix_targets(tokens).shape)
    return HeadScores(
        prefix_matching=jax.vmap(jax.vmap(prefix))(weights),
        previous_token=jax.vmap(jax.vmap(previous_token_score))(weights),
        uniform=prefix(everywhere),
    )


class Head(NamedTuple):
    """A head of a model, with its scores on repeated random tokens."""

    layer: int
    head: int
    prefix_matching: float
    previous_token: float


def find_heads(
    model: LayeredModel,
    params: PyTree = None,
    *,
    vocab_size: int | None = None,
    length: int = 64,
    sequences: int = 4,
    threshold: float = 0.3,
    embed: Callable[[Any], Any] | None = None,
    key: PRNGKey | None = None,
) -> list[Head]:
    """Finds the induction heads of a model, the largest score first.

    Random tokens are shown twice. In the second half an induction head attends to the
    token that followed the current one the first time; a head is named if the mean of
    this attention (:func:`prefix_matching_score`) is at least ``threshold``. Random
    tokens have no other structure, so nothing but the repetition is scored.

    Args:
        model: A layered model, such as a language model that was loaded.
        params: Its parameters, unless they are an attribute of the model.
        vocab_size: Number of tokens, unless it is an attribute of the model.
        length: Different tokens T of a sequence, which is shown twice.
        embed: From the token numbers ``(2 T,)`` of a sequence to inputs of the model;
            a batch of them, ``(1, 2 T)``, unless given.
        key: Draws the tokens; ``jax.random.key(0)`` if ``None``.

    Example:
        >>> from icltheory.induction import induction_circuit
        >>> circuit = induction_circuit(8, 16)
        >>> found = find_heads(circuit.model, circuit.stack, vocab_size=8, length=8,
        ...     embed=circuit.embed)
        >>> [(one.layer, one.head, round(one.prefix_matching, 3)) for one in found]
        [(1, 0, 1.0)]

    Source: Olsson et al. (2022), the test on repeated random tokens.
    """
    params = getattr(model, "params", None) if params is None else params
    size = getattr(model, "vocab_size", None) if vocab_size is None else vocab_size
    if params is None or size is None:
        missing = "params" if params is None else "vocab_size"
        raise ValueError(f"{missing}: expected it, as the model has none, got None")
    for name, number in (("length", length), ("sequences", sequences)):
        check_positive_int(name, number)
    if length > size:
        raise ValueError(f"length: expected at most {size} tokens, got {length}")
    most = getattr(model, "context_length", None)
    if most is not None and 2 * length > most:
        raise wrong("length", f"at most {most // 2}, half of the context", length)
    keys = jax.random.split(jax.random.key(0) if key is None else key, sequences)
    scores = []
    for one in keys:
        once = jax.random.permutation(one, size)[:length]
        tokens = jnp.concatenate([once, once])
        second = jnp.arange(2 * length) >= length
        if embed is None:
            tokens, second = tokens[None], second[None]
        inputs = tokens if embed is None else embed(tokens)
        scores.append(head_scores(model, params, inputs, tokens, second))
    matching = np.mean([one.prefix_matching for one in scores], axis=0)
    previous = np.mean([one.previous_token for one in scores], axis=0)
    found = [
        Head(int(l), int(h), float(matching[l, h]), float(previous[l, h]))
        for l, h in np.argwhere(matching >= threshold)
    ]
    return sorted(found, key=lambda head: -head.prefix_matching)


@calculator(static=("model",), embedding=finite, unembedding=finite)
def head_copying(
    model: LayeredModel,
    params: PyTree,
    embedding: Float[ArrayLike, "_V _n"],
    unembedding: Float[ArrayLike, "_V _n"],
) -> Float[Array, "layers heads"]:
    r"""Copying score in [-1, 1] of every head, from the direct path tokens to logits.

    The eigenvalues are those of the small matrix :math:`W_V W_E W_U W_O`: no matrix of
    the vocabulary's size is made. MLPs, other layers, biases and the division of norms
    are left out, as in the original.

    Example:
        >>> from icltheory.induction import induction_circuit
        >>> circuit = induction_circuit(3, 6)
        >>> maps = circuit.embedding, circuit.unembedding
        >>> head_copying(circuit.model, circuit.stack, *maps).round(6).ravel().tolist()
        [0.0, 1.0]

    Source: Olsson et al. (2022), copying by eigenvalues.
    """
    readable = check_readable(model)
    W_E, W_U = jnp.asarray(embedding), jnp.asarray(unembedding)
    check_shape("embedding", W_E, ("V", "n"))
    check_shape("unembedding", W_U, W_E.shape)
    through = W_E.T @ W_U  # (n, n): residual stream to logits, and back as tokens
    rows = []
    for layer in range(model.num_layers):
        if (factors := readable.ov_factors(layer, params)) is None:
            raise ValueError(f"model: expected ov_factors of layer {layer}, got None")
        W_O, W_V = factors
        small = jnp.einsum("hdn,nm,hme->hde", W_V, through, W_O)
        rows.append(jnp.stack([copying_score(head) for head in small]))
    return jnp.stack(rows)
