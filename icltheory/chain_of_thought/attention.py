"""The attention model of equation (11), and the attention it should learn.

A column of a prompt is (x; y) + c_step with x and y from few patterns, so that columns
of width 2d are never built. ``Columns`` keeps the state numbers of every column: O(n M
+ M d) per query. ``Counts`` only says how often each kind of column occurs: O(M^2 K + M
d) for any number of examples.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_positive_int, check_shape, real
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float, Scalar
from icltheory.chain_of_thought.alphabet import Alphabet
from icltheory.chain_of_thought.tasks import ReasoningPrompt

NOTHING = -1


class Columns(NamedTuple):
    """All columns of a prompt: K for each example, then K for the query."""

    x: Array  # states in the upper half, -1 for none, (l K + K,)
    y: Array  # states in the lower half
    step: Array  # numbers of the codes
    shown: Array  # which of them the model may read

    def weights(self, alphabet: Alphabet, direction: Array) -> Array:
        """Softmax of the scores over the visible columns."""
        upper, lower, codes = _tables(alphabet, direction)
        scores = upper[self.x] + lower[self.y] + codes[self.step]
        return jax.nn.softmax(jnp.where(self.shown, scores, -jnp.inf))

    def average(self, alphabet: Alphabet, direction: Array) -> Array:
        """Output of attention along a direction: the weighted mean of columns."""
        weights = self.weights(alphabet, direction)
        M, K = alphabet.num_states, alphabet.num_steps
        numbers = (self.x, M), (self.y, M), (self.step, K)
        return _combine(alphabet, *(_by_number(n, weights, k) for n, k in numbers))

    def joined(self, x: Array, y: Array, step: Array) -> "Columns":
        """Adds the query's own column of one step."""
        at = len(self.x) - self.step[-1] - 1 + step
        return self._replace(
            x=self.x.at[at].set(x),
            y=self.y.at[at].set(y),
            shown=self.shown.at[at].set(True),
        )


class Counts(NamedTuple):
    """Counts of each kind of column; the last index of x and y stands for none."""

    counts: Array  # (M + 1, M + 1, K)

    def average(self, alphabet: Alphabet, direction: Array) -> Array:
        """Output of attention along a direction: the weighted mean of columns."""
        upper, lower, codes = _tables(alphabet, direction)
        scores = upper[:, None, None] + lower[None, :, None] + codes[None, None]
        top = jnp.max(jnp.where(self.counts > 0, scores, -jnp.inf))
        mass = self.counts * jnp.exp(jnp.minimum(scores - top, 0))
        mass /= jnp.sum(mass)
        of_x, of_y = jnp.sum(mass, axis=(1, 2)), jnp.sum(mass, axis=(0, 2))
        return _combine(alphabet, of_x[:-1], of_y[:-1], jnp.sum(mass, axis=(0, 1)))

    def joined(self, x: Array, y: Array, step: Array) -> "Counts":
        """Adds the query's own column of one step."""
        return Counts(self.counts.at[x, y, step].add(1))


Memory = Columns | Counts


def chain_columns(prompt: ReasoningPrompt, limit=None) -> Columns:
    """Columns of examples step by step, and of the query's correct steps, hidden."""
    paths = jnp.concatenate([prompt.states, prompt.query_states[None]])
    x, y = paths[:, :-1].reshape(-1), paths[:, 1:].reshape(-1)
    return Columns(x, y, *_rest(prompt, limit))


def direct_columns(prompt: ReasoningPrompt, limit=None) -> Columns:
    """Columns of examples as input and final output, then zeros; the query's empty."""
    K = prompt.num_steps
    first = jnp.arange(K)[None] == 0
    x = jnp.where(first, prompt.states[:, :1], NOTHING).reshape(-1)
    y = jnp.where(first, prompt.states[:, -1:], NOTHING).reshape(-1)
    own = jnp.full(K, NOTHING, x.dtype)
    return Columns(jnp.append(x, own), jnp.append(y, own), *_rest(prompt, limit))


def compact(columns: Columns, alphabet: Alphabet) -> Memory:
    """Returns counts where they are cheaper: few states, many examples."""
    M, K = alphabet.num_states, alphabet.num_steps
    # A count is cheaper than a column, which is looked up in three tables.
    fewer = 4 * len(columns.x) < (M + 1) ** 2 * K
    return columns if fewer else count(columns, alphabet)


def count(columns: Columns, alphabet: Alphabet) -> Counts:
    """Counts how often each kind of visible column occurs."""
    M, K = alphabet.num_states, alphabet.num_steps
    none = jnp.zeros((M + 1, M + 1, K), alphabet.patterns.dtype)
    seen = columns.shown.astype(none.dtype)
    return Counts(none.at[columns.x, columns.y, columns.step].add(seen))


def query_column(alphabet: Alphabet, state: Array, step: Array) -> Array:
    """The query column of a step: (z; 0) + c_step."""
    return alphabet.embed(state, jnp.asarray(NOTHING), step)


def _rest(prompt, limit):
    """Step of each column, and whether its example is visible."""
    l, K = prompt.num_examples, prompt.num_steps
    step = jnp.tile(jnp.arange(K), l + 1)
    return step, jnp.arange((l + 1) * K) < (l if limit is None else limit) * K


def _tables(alphabet, direction):
    """Scores of patterns in either half (0 for no pattern), and of codes."""
    upper, lower = jnp.split(direction, 2)
    return (
        jnp.append(alphabet.patterns @ upper, 0),
        jnp.append(alphabet.patterns @ lower, 0),
        alphabet.codes @ direction,
    )


def _combine(alphabet, of_x, of_y, of_step):
    """Computes the mean column from the weight of every pattern and code."""
    halves = [of_x @ alphabet.patterns, of_y @ alphabet.patterns]
    return jnp.concatenate(halves) + of_step @ alphabet.codes


def _by_number(numbers, weights, count):
    """Sums the weights of each number by comparison, since scatters are slow."""
    same = numbers[:, None] == jnp.arange(count)[None]
    return jnp.sum(jnp.where(same, weights[:, None], 0), axis=0)


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
