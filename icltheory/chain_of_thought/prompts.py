"""Prompts of multi-step examples and a query."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_key, check_positive_int
from icltheory._noted import check_nonnegative, check_unit, check_values
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Int, PRNGKey
from icltheory.chain_of_thought.alphabet import Alphabet
from icltheory.chain_of_thought.transitions import as_steps, paths_of

__all__ = ["ReasoningPrompt", "ReasoningTask", "sample_training_prompt"]


@pytree
class ReasoningPrompt:
    r"""One prompt: l examples of K steps and a query; batches by ``vmap``.

    Example i went from state ``states[i, 0]`` through ``states[i, k]`` and stands for K
    columns :math:`(x_i; y_{i,1}), (y_{i,1}; y_{i,2}), \dots` where chain of thought is
    asked for, and for :math:`(x_i; y_{i,K})` and zeros where it is not.

    Attributes:
        states: Steps of the examples, ``(l, K + 1)``.
        query_states: The query and its correct steps z_0, ..., z_K, ``(K + 1,)``.
        alphabet: The vectors that the states stand for.
        noise: What is added to the columns, K a example, then K of the query's own,
            ``(l K + K, 2d)``; ``None`` for nothing.

    Source: Li et al. (2025), arXiv 2410.02167, problem formulation.
    """

    states: Int[Array, "l _"]
    query_states: Int[Array, " _"]
    alphabet: Alphabet
    noise: Float[Array, "n _"] | None = None

    @property
    def num_examples(self) -> int:
        """Number of examples l."""
        return self.states.shape[-2]

    @property
    def num_steps(self) -> int:
        """Number of steps K."""
        return self.states.shape[-1] - 1


def sample_training_prompt(
    key: PRNGKey,
    alphabet: Alphabet,
    num_examples: int,
    relevant_fraction: Real[ArrayLike, ""],
) -> ReasoningPrompt:
    r"""Draws a training prompt: a random task without errors.

    The task is K random permutations of the states, so that examples from other starts
    never meet the query's path. An example starts like the query with probability
    alpha, and anywhere else otherwise.

    Args:
        key: Random key.
        alphabet: TRR patterns and codes.
        num_examples: Examples :math:`l_{tr}`.
        relevant_fraction: alpha.

    Returns:
        One prompt.

    Example:
        >>> from icltheory.chain_of_thought import training_alphabet
        >>> letters = training_alphabet(jax.random.key(0), 4, 2, 6)
        >>> prompt = sample_training_prompt(jax.random.key(1), letters, 5, 0.4)
        >>> prompt.states.shape, prompt.query_states.shape
        ((5, 3), (3,))

    Source: Li et al. (2025), arXiv 2410.02167, data modelling.
    """
    check_key("key", key)
    starts, steps = jax.random.split(key)
    M = alphabet.num_states
    query, first = _starts(starts, M, num_examples, relevant_fraction)
    states = jnp.append(first, query)
    paths = [states]
    for order in jax.random.uniform(steps, (alphabet.num_steps, M)):
        paths.append(jnp.argsort(order)[paths[-1]])
    paths = jnp.stack(paths, axis=1)
    return ReasoningPrompt(paths[:-1], paths[-1], alphabet)


@pytree
class ReasoningTask:
    r"""Test prompts with erroneous examples, drawn from transition matrices.

    Args:
        alphabet: TSR patterns and codes.
        steps: Transition matrices :math:`A_1, \dots, A_K`, ``(K, M', M')``.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions, training_alphabet
        >>> letters = training_alphabet(jax.random.key(0), 2, 2, 4)
        >>> task = ReasoningTask(letters, slide_transitions())
        >>> task.sample(jax.random.key(1), 7, 0.5).states.shape
        (7, 3)

    Source: Li et al. (2025), arXiv 2410.02167, data modelling.
    """

    alphabet: Alphabet
    steps: Float[Array | np.ndarray, "..."]

    def __post_init__(self):
        steps = as_steps(self.steps)
        object.__setattr__(self, "steps", steps)
        fits = (self.alphabet.num_steps, self.alphabet.num_states)
        if fits != steps.shape[:2]:
            raise ValueError(
                f"steps: expected {fits[0]} steps over {fits[1]} states, got "
                f"{steps.shape[0]} over {steps.shape[1]}"
            )

    def sample(
        self,
        key: PRNGKey,
        num_examples: int,
        relevant_fraction: Real[ArrayLike, ""],
        noise: float | int = 0.0,
    ) -> ReasoningPrompt:
        r"""Draws one prompt with a uniform query and its correct steps.

        Args:
            key: Random key.
            num_examples: Examples :math:`l_{ts}`.
            relevant_fraction: alpha', the probability that an example starts like the
                query; may be traced.
            noise: Bound on the norm of what is added to each pattern of the examples
                and of the query, a random direction and a uniform length; a Python
                number.

        Returns:
            One prompt.
        """
        check_key("key", key)
        check_nonnegative("noise", noise)
        starts, walk, shake = jax.random.split(key, 3)
        M = self.alphabet.num_states
        query, first = _starts(starts, M, num_examples, relevant_fraction)
        uniform = jax.random.uniform(
            walk, (len(self.steps), num_examples), self.steps.dtype
        )
        paths = [first]
        for A, u in zip(self.steps, uniform, strict=True):
            paths.append(_follow(A, paths[-1], u))
        return ReasoningPrompt(
            jnp.stack(paths, axis=1),
            paths_of(jnp.asarray(self.steps))[query],
            self.alphabet,
            _noise(shake, self.alphabet, num_examples, noise) if noise else None,
        )


def _starts(key, M, num_examples, fraction):
    """Draws the starts of the query and of the examples."""
    check_positive_int("num_examples", num_examples)
    check_fraction(fraction, M)
    of_query, of_others, alike = jax.random.split(key, 3)
    query = jax.random.randint(of_query, (), 0, M)
    shift = jax.random.randint(of_others, (num_examples,), 1, max(M, 2))
    same = jax.random.uniform(alike, (num_examples,)) < fraction
    return query, jnp.where(same, query, (query + shift) % M)


def check_fraction(fraction, num_states):
    """Raises unless a fraction is a probability, or 1 if there is no other start."""
    check_unit("relevant_fraction", fraction)
    if num_states < 2:
        check_values(
            "relevant_fraction",
            fraction,
            lambda share: share == 1,
            "1 where there is one state",
        )


def _follow(A, states, uniform):
    """Draws the next state of each example by inversion of the distribution."""
    ladder = jnp.cumsum(A, axis=1)
    heights = ladder[states]
    drawn = uniform * ladder[states, -1]
    return jnp.sum(drawn[:, None] >= heights[:, :-1], axis=1)


def _noise(key, alphabet, num_examples, bound):
    """Draws noise on the patterns of the examples and of the query."""
    K, d = alphabet.num_steps, alphabet.dim
    n = num_examples * K + K
    direction, length = jax.random.split(key)
    dtype = alphabet.patterns.dtype
    drawn = jax.random.normal(direction, (n, 2, d), dtype)
    drawn /= jnp.linalg.norm(drawn, axis=-1, keepdims=True)
    drawn *= bound * jax.random.uniform(length, (n, 2, 1), dtype)
    # Of the query's own columns only the first, the given input, is noisy.
    own = jnp.arange(n)[:, None] - (n - K)
    given = jnp.where(own < 0, 1, jnp.array([[1, 0]]) * (own == 0))
    return (drawn * given[:, :, None]).reshape(n, 2 * d)
