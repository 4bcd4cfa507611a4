"""The attention model of equation (11), and the attention it should learn."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_positive_int, check_shape, real
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float, Scalar
from icltheory.chain_of_thought._memory import Memory, chain_columns, query_column
from icltheory.chain_of_thought.alphabet import Alphabet
from icltheory.chain_of_thought.tasks import ReasoningPrompt


class ReasoningAttention(Record):
    r"""One layer of softmax attention over the columns of a prompt, equation (11).

    .. math:: f(\Psi; P) = \sum_{i < \operatorname{len}(P)} W_V \tilde p_i
              \operatorname{softmax}\bigl( (W_K \tilde p_i)^\top W_Q \tilde p_{query}
              \bigr) .

    The query is no key. :math:`W_V = [0 \; I]`, ``(d, 2d)``, reads the lower half and
    is not trained; :math:`W_K` and :math:`W_Q` are ``(r, 2d)``.

    Example:
        >>> ReasoningAttention.initial(3).W_V.shape
        (3, 6)

    Source: Li et al. (2025), equation (11).
    """

    W_V: Any
    W_K: Any
    W_Q: Any

    def __post_init__(self):
        for name in ("W_V", "W_K", "W_Q"):
            setattr(self, name, jnp.asarray(real(name, getattr(self, name))))
        d = np.shape(self.W_V)[0]
        check_shape("W_V", self.W_V, (d, 2 * d))
        check_shape("W_K", self.W_K, ("r", 2 * d))
        check_shape("W_Q", self.W_Q, np.shape(self.W_K))

    @classmethod
    def initial(
        cls, dim: int, scale: Real[ArrayLike, ""] = 0.2
    ) -> "ReasoningAttention":
        r"""The start of training: :math:`W_K = W_Q = \delta I`, :math:`W_V = [0, I]`.

        delta = .2 is what the start of Figure 20 shows.

        Example:
            >>> ReasoningAttention.initial(1, 0.5).W_K.tolist()
            [[0.5, 0.0], [0.0, 0.5]]
        """
        check_positive_int("dim", dim)
        W = scale * jnp.eye(2 * dim, dtype=jnp.result_type(float))
        return cls(_reader(dim), W, W)

    @classmethod
    def matching(
        cls, dim: int, gain: Real[ArrayLike, ""] = 40.0
    ) -> "ReasoningAttention":
        r"""Hand-built attention that counts the columns of equal step and input.

        .. math:: W_K = W_Q = \sqrt{g} \begin{pmatrix} I & 0 \\ 0 & 0 \end{pmatrix} .

        For orthonormal patterns and codes all other columns have at most exp(-g) of the
        weight; exp(-40) is below the rounding of float64.

        Example:
            >>> ReasoningAttention.matching(1, 4.0).W_Q.tolist()
            [[2.0, 0.0], [0.0, 0.0]]

        Source: Li et al. (2025), CoT mechanism.
        """
        check_positive_int("dim", dim)
        dtype = jnp.result_type(float)
        upper = (jnp.arange(2 * dim) < dim).astype(dtype)
        W = jnp.sqrt(gain).astype(dtype) * jnp.diag(upper)
        return cls(_reader(dim), W, W)

    def check_dim(self, alphabet: Alphabet) -> None:
        """Raises unless the alphabet has patterns of the model's dimension."""
        expected, got = alphabet.dim, self.W_V.shape[0]
        if got != expected:
            raise ValueError(
                f"model: expected dimension {expected}, as of the prompt, got {got}"
            )

    def direction(self, query: Float[Array, " n"]) -> Float[Array, " n"]:
        r"""Vector that the columns are compared with, :math:`W_K^\top W_Q \tilde p`."""
        return self.W_K.T @ (self.W_Q @ query)

    def output(
        self, memory: Memory, alphabet: Alphabet, query: Float[Array, " n"]
    ) -> Float[Array, " d"]:
        """The vector f that answers a query column."""
        return self.W_V @ memory.average(alphabet, self.direction(query))


def _reader(dim):
    return jnp.eye(dim, 2 * dim, dim, dtype=jnp.result_type(float))


class AttentionMasses(NamedTuple):
    """Attention on the examples in four classes, as in Figure 20; they sum to 1.

    The step of a column is that of the query or another one; the input of an example is
    the same if its state before the query's step is that of the query.
    """

    same_step_same_input: Scalar
    other_step_same_input: Scalar
    same_step_other_input: Scalar
    other_step_other_input: Scalar


@calculator
def attention_masses(
    model: ReasoningAttention, prompt: ReasoningPrompt
) -> AttentionMasses:
    r"""Attention masses along the correct path of one prompt, averaged over steps.

    The query's own finished steps are left out.

    Example:
        >>> from icltheory.chain_of_thought import PermutationTasks
        >>> tasks = PermutationTasks(Alphabet.standard(4, 2), 0.4)
        >>> prompt = tasks.draw(jax.random.key(1), 5)
        >>> masses = attention_masses(ReasoningAttention.initial(6), prompt)
        >>> round(float(sum(masses)), 5)
        1.0

    Source: Li et al. (2025), Figure 20.
    """
    alphabet, columns = prompt.alphabet, chain_columns(prompt)
    model.check_dim(alphabet)

    def one(k):
        state = prompt.query_states[k]
        query = query_column(alphabet, state, k)
        weights = columns.weights(alphabet, model.direction(query))
        alike = jnp.append(prompt.states[:, k] == state, False)
        alike, now = jnp.repeat(alike, prompt.num_steps), columns.step == k
        classes = (alike & now, alike & ~now, ~alike & now, ~alike & ~now)
        return AttentionMasses(*(jnp.sum(weights * each) for each in classes))

    each = jax.vmap(one)(jnp.arange(prompt.num_steps))
    return jax.tree.map(jnp.mean, each)
