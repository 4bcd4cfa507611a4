"""Scores of induction heads on arrays: prefix matching, copying, in-context loss."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Integer

from icltheory._calculators import calculator
from icltheory._checks import check_finite, check_range, check_shape, check_values
from icltheory._precision import widened
from icltheory._typing import Array, Bool, Float, Scalar

__all__ = [
    "copying_ratio",
    "copying_score",
    "in_context_score",
    "prefix_matching_score",
    "prefix_targets",
    "previous_token_score",
]


def prefix_targets(tokens: Integer[ArrayLike, "..."]) -> Bool[Array, "..."]:
    r"""Marks the tokens that followed earlier occurrences of the current token.

    .. math:: \{ j + 1 \le t : j < t, \; \mathrm{tok}_j = \mathrm{tok}_t \}
              \quad \text{in row } t .

    Args:
        tokens: Token numbers.

    Returns:
        Booleans; rows are queries t, columns are keys.

    Example:
        >>> import jax.numpy as jnp
        >>> prefix_targets(jnp.array([5, 7, 5])).astype(int).tolist()
        [[0, 0, 0], [0, 0, 0], [0, 1, 0]]

    Source: Olsson et al. (2022), prefix matching.
    """
    tokens = jnp.asarray(tokens)
    before = jnp.roll(tokens, 1, axis=-1)[..., None, :] == tokens[..., :, None]
    place = jnp.arange(tokens.shape[-1])
    allowed = (place[None] <= place[:, None]) & (place[None] > 0)
    return before & allowed.reshape((1,) * (tokens.ndim - 1) + allowed.shape)


def check_weights(attention: Array) -> None:
    """Raises unless attention weights lie between 0 and 1, up to rounding."""
    check_values(
        "attention",
        attention,
        lambda weight: (weight >= -1e-3) & (weight <= 1 + 1e-3),
        "weights between 0 and 1",
    )


@calculator
def prefix_matching_score(
    attention: Float[ArrayLike, "..."],
    tokens: Integer[ArrayLike, "..."],
    rows: Bool[ArrayLike, "..."] | None = None,
) -> Scalar:
    r"""Mean attention to tokens that followed earlier occurrences of the current one.

    .. math:: \frac{1}{|R|} \sum_{t \in R} \;
              \sum_{j < t,\; \mathrm{tok}_j = \mathrm{tok}_t} A_{t, j + 1} ,

    over the positions R whose token occurred before. 1 for an induction head; the
    uniform head is at the mean of (occurrences before t) / (t + 1).

    Args:
        attention: Weights A of one head; rows are queries.
        tokens: Token numbers.
        rows: Positions that may count, such as the inputs of regression; all if left
            out. Those whose token did not occur before never do.

    Returns:
        The score, between 0 and 1.

    Example:
        >>> import jax.numpy as jnp
        >>> A = jnp.array([[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.5, 0.25]])
        >>> float(prefix_matching_score(A, jnp.array([5, 7, 5])))
        0.5

    Source: Olsson et al. (2022), prefix-matching score.
    """
    A, tokens = jnp.asarray(attention), jnp.asarray(tokens)
    check_shape("attention", A, (*tokens.shape, tokens.shape[-1]))
    check_weights(A)
    targets = prefix_targets(tokens)
    counted = jnp.any(targets, axis=-1)
    if rows is not None:
        check_shape("rows", rows, tokens.shape)
        counted = counted & jnp.asarray(rows)
    check_values(
        "tokens",
        jnp.sum(counted),
        lambda number: number > 0,
        "a token that occurs twice and counts",
        "none",
    )
    matched = jnp.sum(jnp.where(targets, A, 0), axis=-1)
    return jnp.sum(jnp.where(counted, matched, 0)) / jnp.sum(counted)


@calculator
def previous_token_score(attention: Float[ArrayLike, "..."]) -> Scalar:
    r"""Mean attention to the previous token, :math:`A_{t, t - 1}`, over t >= 1.

    Args:
        attention: Weights A of one head.

    Returns:
        The score, between 0 and 1.

    Example:
        >>> import jax.numpy as jnp
        >>> float(previous_token_score(jnp.array([[1.0, 0.0], [0.75, 0.25]])))
        0.75

    Source: Olsson et al. (2022), previous-token heads.
    """
    A = jnp.asarray(attention)
    check_weights(A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.shape[-1] < 2:
        raise ValueError(f"attention: expected shape (..., T, T), got {A.shape}")
    return jnp.mean(jnp.diagonal(A, offset=-1, axis1=-2, axis2=-1))


@calculator
def copying_score(circuit: Float[ArrayLike, "_V _V"]) -> Scalar:
    r"""Copying score of a circuit, from the real parts of its eigenvalues.

    .. math:: \frac{\sum_i \operatorname{Re} \lambda_i}{\sum_i |\lambda_i|} \in [-1, 1]
              \quad \text{of } W_U W_O W_V W_E .

    A product of factors has the same nonzero eigenvalues in either order: the small
    matrix :math:`W_V W_E W_U W_O` of a head, (head_dim, head_dim), serves as well. On
    devices without a solver for general matrices give a NumPy array.

    Args:
        circuit: The matrix.

    Returns:
        The score; 0 where all eigenvalues are 0.

    Example:
        >>> import jax.numpy as jnp
        >>> float(copying_score(-jnp.eye(3)))
        -1.0
        >>> float(copying_score(jnp.array([[0.0, 1.0], [-1.0, 0.0]])))
        0.0

    Source: Olsson et al. (2022), copying by eigenvalues.
    """
    check_shape("circuit", circuit, ("V", "V"))
    check_finite("circuit", circuit)
    values = jnp.linalg.eigvals(widened(circuit))
    size = jnp.sum(jnp.abs(values))
    return jnp.where(size > 0, jnp.sum(values.real) / jnp.where(size > 0, size, 1), 0)


@calculator
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
                     {\sum_v (\ell_t - \bar \ell_t)_+ [v]} - 1 ,
        \qquad s^*(t) = \operatorname*{argmax}_s A_{t s} ,

    averaged over t; M is the circuit, and the bar the mean over the vocabulary.

    Args:
        attention: Weights A of the head, ``(T, T)``.
        circuit: :math:`M = W_U W_O W_V W_E`, ``(V, V)``, from tokens to logits.
        tokens: Token numbers, ``(T,)``.
        rows: Positions that count; all if left out.

    Returns:
        The score, between -1 and 1; a position at which nothing is raised counts -1.

    Example:
        >>> import jax.numpy as jnp
        >>> tokens = jnp.array([0, 1, 0])
        >>> float(copying_ratio(jnp.eye(3), jnp.eye(2), tokens))
        1.0

    Source: Olsson et al. (2022), copying score.
    """
    A, M, tokens = jnp.asarray(attention), jnp.asarray(circuit), jnp.asarray(tokens)
    check_shape("tokens", tokens, ("T",))
    check_shape("attention", A, (*tokens.shape, tokens.shape[0]))
    check_finite("attention", A)
    check_shape("circuit", M, ("V", "V"))
    check_finite("circuit", M)
    check_range("tokens", tokens, 0, M.shape[0] - 1)
    logits = A @ M[:, tokens].T
    raised = jnp.maximum(logits - jnp.mean(logits, axis=1, keepdims=True), 0)
    at = tokens[jnp.argmax(A, axis=1)]
    own = jnp.take_along_axis(raised, at[:, None], axis=1)[:, 0]
    total = jnp.sum(raised, axis=1)
    share = jnp.where(total > 0, own / jnp.where(total > 0, total, 1), 0)
    counted = jnp.ones(tokens.shape, bool) if rows is None else jnp.asarray(rows)
    check_shape("rows", counted, tokens.shape)
    check_values(
        "rows",
        jnp.sum(counted),
        lambda number: number > 0,
        "at least one True",
        "none",
    )
    return 2 * jnp.sum(jnp.where(counted, share, 0)) / jnp.sum(counted) - 1


@calculator
def in_context_score(
    losses: Float[ArrayLike, "..."],
    early: int | tuple[int, int] = 50,
    late: int | tuple[int, int] = 500,
) -> Scalar:
    r"""Loss late in the context minus loss early in it; negative if context helps.

    Args:
        losses: Loss at every position.
        early: A position, or the first of several and the one after the last.
        late: Likewise. The original compares positions 50 and 500.

    Returns:
        The difference of means.

    Example:
        >>> import jax.numpy as jnp
        >>> float(in_context_score(jnp.array([3.0, 2.0, 1.0, 0.0]), (0, 2), (2, 4)))
        -2.0

    Source: Olsson et al. (2022), in-context learning score.
    """
    losses = jnp.asarray(losses)
    parts = (_part(name, losses, at) for name, at in (("early", early), ("late", late)))
    first, last = parts
    return jnp.mean(last) - jnp.mean(first)


def _part(name: str, losses: Array, at: Any) -> Array:
    start, stop = (at, at + 1) if isinstance(at, int | np.integer) else at
    if not 0 <= start < stop <= losses.shape[-1]:
        raise ValueError(
            f"{name}: expected positions from 0 to {losses.shape[-1] - 1}, got {at}"
        )
    return losses[..., start:stop]
