"""Tasks of several steps as sources of prompts, and what their matrices say."""

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    check_key,
    check_positive_int,
    check_shape,
    checked,
    finite,
    real,
    scalar,
    unit,
    within,
)
from icltheory._core import Record, where_valid, widened
from icltheory._typing import Array, Bool, Float, Int, PRNGKey, Scalar
from icltheory.chain_of_thought.alphabet import Alphabet

_probabilities = finite & Check(lambda p: p >= 0, "probabilities >= 0")
# The tolerance accepts rows rounded to float32, but no missing probability.
_whole = Check(lambda total: abs(total - 1) <= 1e-5, "rows that sum to 1")
_certain = Check(lambda share: share == 1, "1 where there is one state")


class ReasoningPrompt(Record):
    r"""Prompts of l examples of K steps and a query; batches have a leading axis.

    Example i went from state ``states[i, 0]`` through ``states[i, k]`` and stands for K
    columns :math:`(x_i; y_{i,1}), (y_{i,1}; y_{i,2}), \dots` where chain of thought is
    asked for, and for :math:`(x_i; y_{i,K})` and zeros where it is not. The query's
    states are the input and its correct steps z_0, ..., z_K.

    Source: Li et al. (2025), problem formulation.
    """

    states: Int[Array, "*B l K_1"]
    query_states: Int[Array, "*B K_1"]
    alphabet: Alphabet

    @property
    def num_examples(self) -> int:
        """Number of examples l."""
        return self.states.shape[-2]

    @property
    def num_steps(self) -> int:
        """Number of steps K."""
        return self.states.shape[-1] - 1

    def wrong(self, answers: Int[Array, "*B S"]) -> Bool[Array, "*B S"]:
        r"""Whether each answer is wrong: :math:`v_k \ne z_k`, or :math:`v \ne z_K`."""
        return answers != self.query_states[..., -answers.shape[-1] :]


class _Source(Record):
    """What draws prompts, with ``draw(key, num_examples)`` for one of them."""

    alphabet: eqx.AbstractVar[Alphabet]

    @property
    def num_states(self) -> int:
        """Number of states M."""
        return self.alphabet.num_states

    @property
    def num_steps(self) -> int:
        """Number of steps K."""
        return self.alphabet.num_steps

    def sample(
        self, key: PRNGKey, num_examples: int, num_prompts: int
    ) -> ReasoningPrompt:
        """Draws a batch of prompts; every query is uniform over the states."""
        check_key("key", key)
        check_positive_int("num_prompts", num_prompts)
        keys = jax.random.split(key, num_prompts)
        return jax.vmap(lambda own: self.draw(own, num_examples))(keys)

    @abc.abstractmethod
    def draw(self, key: PRNGKey, num_examples: int) -> ReasoningPrompt:
        """Draws one prompt."""


class PermutationTasks(_Source):
    r"""Training prompts: every prompt has a task of its own, without errors.

    The task is K random permutations of the states, so that examples from other starts
    never meet the query's path. An example starts like the query with probability
    alpha, the ``relevant_fraction``, and else anywhere else.

    Example:
        >>> tasks = PermutationTasks(Alphabet.standard(4, 2), 0.4)
        >>> prompt = tasks.draw(jax.random.key(1), 5)
        >>> prompt.states.shape, prompt.query_states.shape
        ((5, 3), (3,))

    Source: Li et al. (2025), data modelling.
    """

    alphabet: Alphabet
    relevant_fraction: Real[ArrayLike, ""] = 1.0

    def __post_init__(self):
        self.relevant_fraction = _share(self.relevant_fraction, self.num_states)

    def draw(self, key: PRNGKey, num_examples: int) -> ReasoningPrompt:
        """Draws one prompt."""
        check_key("key", key)
        check_positive_int("num_examples", num_examples)
        return ReasoningPrompt(*_permuted(self, key, int(num_examples)), self.alphabet)


class ReasoningTask(_Source):
    r"""A task of K steps, whose examples follow transition matrices, errors included.

    Row i of :math:`A_k`, ``steps[k - 1]``, is the distribution of what follows state i
    in step k. The correct path takes the likeliest state in each step; ties go to the
    first state. Without an alphabet patterns and codes are unit vectors.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> task = ReasoningTask(slide_transitions(), 0.5)
        >>> task.draw(jax.random.key(1), 7).states.shape
        (7, 3)

    Source: Li et al. (2025), data modelling.
    """

    steps: Float[Array, "..."]
    relevant_fraction: Scalar
    alphabet: Alphabet

    def __init__(
        self,
        steps: Float[ArrayLike, "..."],
        relevant_fraction: Real[ArrayLike, ""] = 1.0,
        alphabet: Alphabet | None = None,
    ):
        steps = widened(real("steps", steps))
        self.steps = jnp.asarray(checked("steps", steps, _distributions))
        K, M = self.steps.shape[:2]
        self.relevant_fraction = _share(relevant_fraction, M)
        if alphabet is None:
            alphabet = Alphabet.standard(M, K, self.steps.dtype)
        self.alphabet = alphabet
        fits = (alphabet.num_steps, alphabet.num_states)
        if fits != (K, M):
            raise ValueError(
                f"steps: expected {fits[0]} steps over {fits[1]} states, got "
                f"{K} over {M}"
            )

    def draw(self, key: PRNGKey, num_examples: int) -> ReasoningPrompt:
        """Draws one prompt."""
        check_key("key", key)
        check_positive_int("num_examples", num_examples)
        return ReasoningPrompt(*_walked(self, key, int(num_examples)), self.alphabet)

    @property
    def composed_transition(self) -> Float[Array, "M M"]:
        r"""Transition from input to final state, :math:`B = A_1 A_2 \cdots A_K`."""
        product = functools.partial(jnp.matmul, precision="highest")
        return functools.reduce(product, self.steps)

    @property
    def stepwise_paths(self) -> Int[Array, "M _"]:
        r"""Correct path from every start i, ``(M, K + 1)``.

        .. math:: s_0 = i, \qquad s_k = \operatorname{argmax}_j A_k[s_{k-1}, j] .

        It need not be the most probable path, see :attr:`most_probable_paths`.
        """
        states = [jnp.arange(self.num_states)]
        for A in self.steps:
            states.append(jnp.argmax(A, axis=1)[states[-1]])
        return jnp.stack(states, axis=1)

    @property
    def most_probable_paths(self) -> Int[Array, "M _"]:
        r"""Most probable path from every start (Viterbi), ``(M, K + 1)``.

        .. math:: (s_1, \dots, s_K) = \operatorname{argmax} \prod_k A_k[s_{k-1}, s_k] .

        Example:
            >>> A = jnp.array([[[0.51, 0.49], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]]])
            >>> task = ReasoningTask(A)
            >>> both = task.stepwise_paths, task.most_probable_paths
            >>> [paths[0].tolist() for paths in both]
            [[0, 0, 0], [0, 1, 0]]
            >>> [round(float(task.path_probabilities(paths)[0]), 4) for paths in both]
            [0.255, 0.49]
        """
        value, choices = jnp.ones_like(self.steps[0, 0]), []
        for A in self.steps[::-1]:
            scores = A * value[None]
            choices.append(jnp.argmax(scores, axis=1))
            value = jnp.max(scores, axis=1)
        states = [jnp.arange(self.num_states)]
        for choice in choices[::-1]:
            states.append(choice[states[-1]])
        return jnp.stack(states, axis=1)

    def path_probabilities(
        self, paths: Int[ArrayLike, "..."] | None = None
    ) -> Float[Array, " _"]:
        r"""Probability of each path, :math:`\prod_k A_k[s_{k-1}, s_k]`.

        Paths are ``(n, K + 1)``; the correct ones from all starts if ``None``.
        """
        if paths is None:
            paths = self.stepwise_paths
        check_shape("paths", paths, ("n", self.num_steps + 1))
        valid = within(0, self.num_states - 1)("paths", paths)
        paths = jnp.asarray(paths)
        factors = [A[paths[:, k], paths[:, k + 1]] for k, A in enumerate(self.steps)]
        return where_valid(jnp.prod(jnp.stack(factors), axis=0), valid)

    @property
    def tau(self) -> Scalar:
        r"""Least probability of a correct path, :math:`\tau^f` of Theorem 5."""
        return jnp.min(self.path_probabilities())

    @property
    def tau_o(self) -> Scalar:
        r"""Least probability of a likeliest state, :math:`\min_i \max_j B_{ij}`."""
        return jnp.min(jnp.max(self.composed_transition, axis=1))

    @property
    def rho(self) -> Scalar:
        r"""Least relative gap of a step, :math:`\rho^f` of the published Theorem 5.

        .. math:: \rho^f = \min_{k, i} \Bigl( 1 - \frac{p_{(2)}}{p_{(1)}} \Bigr), \qquad
                  p = A_k[i, \cdot],

        with the two largest entries of a row, also of rows that no correct path meets;
        0 at a tie, 1 for a single state. The ratio is recalled from the paper.
        """
        return jnp.min(_relative_gaps(self.steps))

    @property
    def rho_o(self) -> Scalar:
        r"""The same gap of the rows of B, :math:`\rho_o^f` of Theorem 6."""
        return jnp.min(_relative_gaps(self.composed_transition))

    @property
    def condition_1(self) -> Bool[Array, " M"]:
        r"""Condition 1 for each input i: the correct answer is the most frequent one.

        .. math:: \operatorname{argmax}_j B_{ij} = s_K(i) .

        Where it fails, plain in-context learning votes for a wrong answer.
        """
        likeliest = jnp.argmax(self.composed_transition, axis=1)
        return likeliest == self.stepwise_paths[:, -1]

    @property
    def icl_error_limit(self) -> Scalar:
        r"""Error of plain in-context learning in long prompts: the share that fails.

        For queries that are uniform over the inputs, and attention that counts votes.
        It is the constant behind the Omega(1) of Theorem 6.
        """
        limit = 1 - jnp.mean(self.condition_1, dtype=jnp.result_type(float))
        # Of a task that is wrong where it is traced, all entries are NaN.
        return jnp.where(jnp.isnan(self.steps[0, 0, 0]), jnp.nan, limit)


def _distributions(name: str, steps: Any, given: Any = None) -> Any:
    """The check that every row is a distribution."""
    check_shape(name, steps, ("K", "M", "M"))
    if 0 in np.shape(steps):
        raise ValueError(f"{name}: expected a step and a state, got {np.shape(steps)}")
    entries = _probabilities(name, steps)
    sums = _whole(name, jnp.sum(steps, axis=-1))
    return entries if sums is True else entries & sums


def _relative_gaps(rows: Array) -> Array:
    """One minus the second largest over the largest entry of each row."""
    if rows.shape[-1] == 1:
        return jnp.ones(rows.shape[:-1], rows.dtype)
    ordered = jnp.sort(rows, axis=-1)
    return 1 - ordered[..., -2] / ordered[..., -1]


def _share(fraction: Any, num_states: int) -> Array:
    """Reads the share of relevant examples, which is 1 if there is no other start."""
    check = scalar & unit if num_states > 1 else scalar & unit & _certain
    fraction = real("relevant_fraction", fraction)
    return jnp.asarray(checked("relevant_fraction", fraction, check))


def _starts(key: Array, source: Any, num_examples: int) -> tuple[Array, Array]:
    """Draws the starts of the query and of the examples."""
    M, fraction = source.num_states, source.relevant_fraction
    of_query, of_others, alike = jax.random.split(key, 3)
    query = jax.random.randint(of_query, (), 0, M)
    shift = jax.random.randint(of_others, (num_examples,), 1, max(M, 2))
    same = jax.random.uniform(alike, (num_examples,)) < fraction
    return query, jnp.where(same, query, (query + shift) % M)


@eqx.filter_jit
def _permuted(source: Any, key: Array, num_examples: int) -> tuple[Array, Array]:
    """Paths of the examples and the query by random permutations, one program."""
    starts, steps = jax.random.split(key)
    query, first = _starts(starts, source, num_examples)
    paths = [jnp.append(first, query)]
    for order in jax.random.uniform(steps, (source.num_steps, source.num_states)):
        paths.append(jnp.argsort(order)[paths[-1]])
    paths = jnp.stack(paths, axis=1)
    return paths[:-1], paths[-1]


@eqx.filter_jit
def _walked(source: Any, key: Array, num_examples: int) -> tuple[Array, Array]:
    """Paths of the examples by the matrices, and the query's correct one."""
    starts, walk, _ = jax.random.split(key, 3)  # three, as in the stored results
    query, first = _starts(starts, source, num_examples)
    shape = (source.num_steps, num_examples)
    uniform = jax.random.uniform(walk, shape, source.steps.dtype)
    paths = [first]
    for A, u in zip(source.steps, uniform, strict=True):
        paths.append(_follow(A, paths[-1], u))
    return jnp.stack(paths, axis=1), source.stepwise_paths[query]


def _follow(A: Array, states: Array, uniform: Array) -> Array:
    """Draws the next state of each example by inversion of the distribution."""
    ladder = jnp.cumsum(A, axis=1)
    heights = ladder[states]
    drawn = uniform * ladder[states, -1]
    return jnp.sum(drawn[:, None] >= heights[:, :-1], axis=1)
