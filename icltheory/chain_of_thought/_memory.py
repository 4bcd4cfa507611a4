"""The columns of a prompt as state numbers, in two forms for attention.

A column is (x; y) + c_step with x and y from few patterns, so that columns of width 2d
are never built. ``Columns`` keeps every column: O(n M + M d) per query. ``Counts`` only
says how often each kind of column occurs: O(M^2 K + M d) for any number of examples.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from icltheory._typing import Array
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
