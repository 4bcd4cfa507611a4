"""The two ways to answer a prompt, and how often each is wrong."""

import abc
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import count
from icltheory._core import Record, calculator, where_valid
from icltheory._typing import Array, Bool, Int, PRNGKey
from icltheory.chain_of_thought.attention import (
    ReasoningAttention,
    chain_columns,
    compact,
    direct_columns,
    query_column,
)
from icltheory.chain_of_thought.tasks import (
    PermutationTasks,
    ReasoningPrompt,
    ReasoningTask,
)
from icltheory.chain_of_thought.votes import (
    VoteError,
    cot_error_bound,
    icl_error_bound,
    vote_error,
)
from icltheory.statistics import Estimate


def _visible(name, value, given):
    return count(1, given["prompt"].num_examples)(name, value)


class _Reasoner(Record):
    """A predictor: a model with a way to answer."""

    model: ReasoningAttention | None = None

    @calculator(integers=("num_examples",), num_examples=_visible)
    def answers(
        self, prompt: ReasoningPrompt, num_examples: Real[ArrayLike, ""] | None = None
    ) -> Int[Array, " S"]:
        """States that answer one prompt, from its first ``num_examples`` only."""
        return self.read(prompt, num_examples)

    def attention(self, prompt: ReasoningPrompt) -> ReasoningAttention:
        """The model, or attention that counts votes."""
        alphabet = prompt.alphabet
        if self.model is None:
            return ReasoningAttention.matching(alphabet.dim)
        self.model.check_dim(alphabet)
        return self.model

    @abc.abstractmethod
    def read(self, prompt: ReasoningPrompt, limit: Any) -> Array:
        """The answers from the first ``limit`` examples, all if ``None``."""

    @abc.abstractmethod
    def bound(self, task: ReasoningTask, num_examples: Any) -> Array:
        """Bound on the probability of a wrong answer, of attention that counts."""


class ChainOfThought(_Reasoner):
    r"""Chain of thought: each answer is appended to the prompt and is the next query.

    .. math:: v_k = \operatorname{argmin}_{u \in \mu'} \lVert f(\Psi; P_k) - u
              \rVert^2, \qquad P_{k+1} = \bigl( P_k,\, (v_{k-1}; v_k),\,
              (v_k; 0) \bigr), \quad v_0 = z_0 .

    K answers to a prompt. Without a model it is attention that counts votes.

    Example:
        >>> from icltheory.chain_of_thought import faithful_transitions
        >>> prompt = ReasoningTask(faithful_transitions(1.0)).draw(jax.random.key(1), 5)
        >>> prompt.wrong(ChainOfThought().answers(prompt)).tolist()
        [False, False]

    Source: Li et al. (2025), CoT inference.
    """

    def read(self, prompt: ReasoningPrompt, limit: Any) -> Array:
        """One scan over the steps."""
        alphabet, model = prompt.alphabet, self.attention(prompt)

        def answer(carry, k):
            memory, state = carry
            query = query_column(alphabet, state, k)
            found = alphabet.nearest(model.output(memory, alphabet, query))
            found = found.astype(state.dtype)
            return (memory.joined(state, found, k), found), found

        memory = compact(chain_columns(prompt, limit), alphabet)
        start = memory, prompt.query_states[0]
        return lax.scan(answer, start, jnp.arange(prompt.num_steps))[1]

    def bound(self, task: ReasoningTask, num_examples: Any) -> Array:
        """That of any wrong step."""
        return cot_error_bound(task, num_examples)


class DirectAnswer(_Reasoner):
    r"""Plain in-context learning: one answer from inputs and final states.

    .. math:: E_i = \begin{pmatrix} x_i & 0 & \cdots & 0 \\
              y_{i,K} & 0 & \cdots & 0 \end{pmatrix},

    with the codes of all K columns, and the query with that of the first step. Without
    a model it is attention that counts votes.

    Example:
        >>> from icltheory.chain_of_thought import faithful_transitions
        >>> prompt = ReasoningTask(faithful_transitions(1.0)).draw(jax.random.key(1), 5)
        >>> prompt.wrong(DirectAnswer().answers(prompt)).tolist()
        [False]

    Source: Li et al. (2025), ICL inference.
    """

    def read(self, prompt: ReasoningPrompt, limit: Any) -> Array:
        """One query."""
        alphabet, model = prompt.alphabet, self.attention(prompt)
        query = query_column(alphabet, prompt.query_states[0], jnp.asarray(0))
        memory = compact(direct_columns(prompt, limit), alphabet)
        found = alphabet.nearest(model.output(memory, alphabet, query))
        return found.astype(prompt.query_states.dtype)[None]

    def bound(self, task: ReasoningTask, num_examples: Any) -> Array:
        """That of a wrong last state."""
        return icl_error_bound(task, num_examples)


def _is_reasoner(name, value, given):
    if isinstance(value, _Reasoner):
        return True
    expected = "ChainOfThought(model) or DirectAnswer(model)"
    raise ValueError(f"{name}: expected {expected}, got a {type(value).__name__}")


def _lengths(num_examples) -> tuple[tuple[int, ...], bool]:
    """Numbers of examples, and whether there is just one."""
    single = np.ndim(num_examples) == 0
    return (num_examples,) if single else tuple(num_examples), single


class ReasoningError(Record):
    """How often a predictor is wrong on a task, and what theory says of counted votes.

    Args:
        estimate: Share of wrong answers over sampled prompts; ``None`` without a key.
        votes: Exact error of counted votes, for two states and one answer only.
        bound: Bound on the probability of any wrong answer of counted votes.
    """

    estimate: Estimate | None
    votes: VoteError | None
    bound: Any


_SIZES = ("num_examples", "num_prompts")


@calculator(compiled=False, static=_SIZES, predictor=_is_reasoner)
def error(
    predictor: _Reasoner,
    task: ReasoningTask,
    num_examples: int | Sequence[int],
    *,
    key: PRNGKey | None = None,
    num_prompts: int = 4096,
) -> ReasoningError:
    r"""Error of a predictor in context on a task.

    .. math:: \frac1K \sum_{k=1}^K P[v_k \ne z_k] \quad\text{or}\quad P[v \ne z_K] .

    With a key prompts are sampled. Several numbers of examples give a curve.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> task = ReasoningTask(slide_transitions())
        >>> found = error(DirectAnswer(), task, 41, key=jax.random.key(0))
        >>> print(f"{found.votes.wrong:.3f} {found.bound:.3f}")
        0.407 0.594
        >>> mean, standard_error = found.estimate
        >>> bool(abs(mean - 0.407) < 5 * standard_error)
        True

    Source: Li et al. (2025), CoT and ICL generalization error.
    """
    if not isinstance(task, ReasoningTask):
        kind = type(task).__name__
        raise ValueError(
            f"task: expected a ReasoningTask, got {kind}: of other tasks "
            "there is wrong_answers"
        )
    lengths, single = _lengths(num_examples)
    bound = jnp.stack([predictor.bound(task, l) for l in lengths])
    votes = _votes(predictor, task, lengths)
    estimate = None
    if key is not None:
        drawn = {"key": key, "num_prompts": num_prompts}
        wrong = wrong_answers(predictor, task, lengths, **drawn)
        shares = jnp.mean(wrong, axis=-1, dtype=jnp.result_type(float))
        estimate = Estimate.of(shares[0] if single else shares.T)
    if single:
        bound, votes = jax.tree.map(lambda leaf: leaf[0], (bound, votes))
    known = ~jnp.any(jnp.isnan(bound))  # samples of a wrong task are no NaN
    return where_valid(ReasoningError(estimate, votes, bound), known)


def _votes(predictor, task, lengths) -> VoteError | None:
    """Exact errors of all lengths, averaged over uniform inputs."""
    one_answer = isinstance(predictor, DirectAnswer) or task.num_steps == 1
    if task.num_states != 2 or not one_answer:
        return None
    last = task.stepwise_paths[:, -1]
    p = task.composed_transition[jnp.arange(2), last]

    def at(length):
        found = jax.vmap(lambda p: vote_error(p, length, task.relevant_fraction))(p)
        return jax.tree.map(jnp.mean, found)

    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(at, lengths))


@calculator(static=_SIZES, predictor=_is_reasoner)
def wrong_answers(
    predictor: _Reasoner,
    task: ReasoningTask | PermutationTasks,
    num_examples: int | Sequence[int],
    *,
    key: PRNGKey,
    num_prompts: int = 4096,
) -> Bool[Array, "..."]:
    """Which answers are wrong, prompt by prompt: ``(num_prompts, S)``.

    With several numbers of examples a leading axis of them. The same key gives the same
    prompts, so the errors of two predictors are paired.

    Example:
        >>> from icltheory.chain_of_thought import faithful_transitions
        >>> task, key = ReasoningTask(faithful_transitions(1.0)), jax.random.key(0)
        >>> wrong = wrong_answers(
        ...     ChainOfThought(), task, (3, 5), key=key, num_prompts=4)
        >>> wrong.shape, int(wrong.sum())
        ((2, 4, 2), 0)

    Source: Li et al. (2025), CoT and ICL generalization error.
    """
    lengths, single = _lengths(num_examples)
    prompts = task.sample(key, max(lengths), num_prompts)

    def at(limit):
        def one(states, query_states):  # with one alphabet for all
            prompt = ReasoningPrompt(states, query_states, task.alphabet)
            return prompt.wrong(predictor.answers(prompt, limit))

        return jax.vmap(one)(prompts.states, prompts.query_states)

    return at(None) if single else lax.map(at, jnp.array(lengths))
