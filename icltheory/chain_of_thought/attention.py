"""The attention model of equation (11), and the attention it should learn."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int, check_shape
from icltheory._pytree import pytree
from icltheory._typing import Array, Float
from icltheory.chain_of_thought._memory import Memory
from icltheory.chain_of_thought.alphabet import Alphabet

__all__ = ["ReasoningAttention", "initial_attention", "matching_attention"]


@pytree
class ReasoningAttention:
    r"""One layer of softmax attention over the columns of a prompt, equation (11).

    .. math:: f(\Psi; P) = \sum_{i < \operatorname{len}(P)} W_V \tilde p_i
              \operatorname{softmax}\bigl( (W_K \tilde p_i)^\top W_Q \tilde p_{query}
              \bigr) .

    The query is no key. :math:`W_V = [0 \; I]` reads the lower half and is not trained.

    Args:
        W_V: ``(d, 2d)``.
        W_K: ``(2d, 2d)``.
        W_Q: ``(2d, 2d)``.

    Example:
        >>> initial_attention(3).W_V.shape
        (3, 6)

    Source: Li et al. (2025), arXiv 2410.02167, equation (11).
    """

    W_V: Float[Array | np.ndarray, "..."]
    W_K: Float[Array | np.ndarray, "..."]
    W_Q: Float[Array | np.ndarray, "..."]

    def __post_init__(self):
        d = np.shape(self.W_V)[0]
        check_shape("W_V", self.W_V, (d, 2 * d))
        check_shape("W_K", self.W_K, ("r", 2 * d))
        check_shape("W_Q", self.W_Q, np.shape(self.W_K))
        for name in ("W_V", "W_K", "W_Q"):
            object.__setattr__(self, name, jnp.asarray(getattr(self, name)))

    def check_dim(self, alphabet: Alphabet) -> None:
        """Raises unless the alphabet has patterns of the model's dimension."""
        expected, got = alphabet.dim, self.W_V.shape[0]
        if got != expected:
            raise ValueError(
                f"model: expected dimension {expected}, as of the prompt, got {got}"
            )

    def direction(self, query: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""Vector that the columns are compared with, :math:`W_K^\top W_Q \tilde p`."""
        return jnp.asarray(self.W_K).T @ (jnp.asarray(self.W_Q) @ query)

    def output(
        self, memory: Memory, alphabet: Alphabet, query: Float[Array, " n"]
    ) -> Float[Array, " d"]:
        """The vector f that answers a query column."""
        return jnp.asarray(self.W_V) @ memory.average(alphabet, self.direction(query))


@calculator
def initial_attention(dim: int, scale: Real[ArrayLike, ""] = 0.2) -> ReasoningAttention:
    r"""The start of training, :math:`W_K = W_Q = \delta I` and :math:`W_V = [0 \; I]`.

    Args:
        dim: Dimension d of a pattern.
        scale: delta.

    Returns:
        The model, in the default precision.

    Example:
        >>> initial_attention(1, 0.5).W_K.tolist()
        [[0.5, 0.0], [0.0, 0.5]]

    Source: Li et al. (2025), arXiv 2410.02167; delta = .2 as the start of Figure 20
    shows.
    """
    check_positive_int("dim", dim)
    dtype = jnp.result_type(float)
    W = scale * jnp.eye(2 * dim, dtype=dtype)
    return ReasoningAttention(_reader(dim, dtype), W, W)


@calculator
def matching_attention(
    dim: int, gain: Real[ArrayLike, ""] = 40.0
) -> ReasoningAttention:
    r"""Hand-built attention of the slides: it counts columns of equal step and input.

    .. math:: W_K = W_Q = \sqrt{g} \begin{pmatrix} I & 0 \\ 0 & 0 \end{pmatrix} .

    Every column of the query's step and input has the same weight, all others at most
    exp(-g) of it, for orthonormal patterns and codes without noise. The answer is that
    of the most votes: the oracles of this package are exact for it, while training also
    puts small weight elsewhere.

    Args:
        dim: Dimension d of a pattern.
        gain: g; exp(-40) is below the rounding of float64.

    Returns:
        The model, in the default precision.

    Example:
        >>> matching_attention(1, 4.0).W_Q.tolist()
        [[2.0, 0.0], [0.0, 0.0]]

    Source: Li et al. (2025), arXiv 2410.02167, CoT mechanism.
    """
    check_positive_int("dim", dim)
    dtype = jnp.result_type(float)
    upper = jnp.arange(2 * dim) < dim
    W = jnp.sqrt(gain).astype(dtype) * jnp.diag(upper.astype(dtype))
    return ReasoningAttention(_reader(dim, dtype), W, W)


def _reader(dim, dtype):
    return jnp.eye(dim, 2 * dim, dim, dtype=dtype)
