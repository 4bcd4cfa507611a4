"""Exact errors of majority votes and bounds on them, for attention that counts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, gammaln, xlogy
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    all_hold,
    check_nonnegative_int,
    check_shape,
    nonnegative,
    scalar,
    unit,
)
from icltheory._core import calculator
from icltheory._typing import Array, Float, Scalar
from icltheory.chain_of_thought.tasks import ReasoningTask

_share = scalar & unit
_at_most_one = Check(lambda total: total <= 1 + 1e-5, "a sum <= 1")
_length = scalar & nonnegative


def _probabilities(name, p, given):
    return all_hold(nonnegative(name, p), _at_most_one(name, p.sum()))


class VoteError(NamedTuple):
    """Probabilities that the wrong one of two candidates has more votes, and of a tie.

    The probability of an error lies between ``wrong`` and the sum of both.
    """

    wrong: Scalar
    tied: Scalar


@calculator(static=("num_examples",), probability=_share, relevant_fraction=_share)
def vote_error(
    probability: Real[ArrayLike, ""],
    num_examples: int,
    relevant_fraction: Real[ArrayLike, ""] = 1.0,
) -> VoteError:
    r"""Exact error of a majority vote between two candidates.

    .. math:: \sum_{b > a} \frac{l!}{a! \, b! \, (l - a - b)!} (\alpha' p)^a
              (\alpha' (1 - p))^b (1 - \alpha')^{l - a - b}
              = \sum_{m = 0}^l P[\mathrm{Bin}(l, \alpha') = m] \,
              P[\mathrm{Bin}(m, p) < m / 2] .

    Each of l examples votes with probability alpha', and then for the right candidate
    with probability p. With two states this is the error of the first step of chain of
    thought (p an entry of A_1), and of a direct answer (p an entry of B). A tie is
    decided by what attention leaks to other columns.

    Example:
        >>> [round(float(x), 4) for x in vote_error(0.6, 1)]
        [0.4, 0.0]
        >>> [round(float(x), 4) for x in vote_error(0.5, 2)]
        [0.25, 0.5]

    Source: Li et al. (2025), CoT mechanism.
    """
    check_nonnegative_int("num_examples", num_examples)
    # These are floats, since xlogy has no derivative for integers.
    p, alpha = 1.0 * jnp.asarray(probability), 1.0 * jnp.asarray(relevant_fraction)
    counts = jnp.arange(num_examples + 1)
    m = counts.astype(jnp.result_type(p, alpha))
    ways = gammaln(m + 1)
    voters = jnp.exp(
        ways[-1] - ways - ways[::-1] + xlogy(m, alpha) + xlogy(m[::-1], 1 - alpha)
    )
    # P[at most k of m are right] is a ratio of incomplete beta functions.
    k = (counts - 1) // 2
    wrong = jnp.where(
        counts > 0, betainc(jnp.maximum(m - k, 1), jnp.maximum(k + 1, 1), 1 - p), 0
    )
    split = ways - 2 * gammaln(m / 2 + 1) + xlogy(m / 2, p * (1 - p))
    tie = jnp.where(counts % 2 == 0, jnp.exp(split), 0)
    return VoteError(jnp.sum(voters * wrong), jnp.sum(voters * tie))


@calculator(
    probabilities=_probabilities, num_examples=_length, relevant_fraction=_share
)
def decay_bound(
    probabilities: Float[ArrayLike, "..."],
    num_examples: Real[ArrayLike, ""],
    relevant_fraction: Real[ArrayLike, ""] = 1.0,
) -> Scalar:
    r"""Chernoff bound on the error of a vote between many candidates.

    .. math:: P[\text{the likeliest does not win}] \le \sum_{j \ne 1} \bigl( 1 - \alpha'
              (\sqrt{p_{(1)}} - \sqrt{p_{(j)}})^2 \bigr)^l .

    The probabilities, ``(M,)``, may sum to less than 1; the bound may exceed 1. A tie
    counts as an error.

    Example:
        >>> round(float(decay_bound(jnp.array([0.64, 0.36]), 1)), 4)
        0.96

    Source: Chernoff's bound for the plurality vote.
    """
    check_shape("probabilities", probabilities, ("M",))
    p = jnp.asarray(probabilities)
    return _decay(p, jnp.argmax(p), jnp.asarray(relevant_fraction), num_examples)


def _decay(row, best, fraction, l):
    """Sums the bound over the wrong candidates."""
    gaps = jnp.square(jnp.sqrt(row[best]) - jnp.sqrt(row))
    terms = (1 - fraction * gaps) ** l
    return jnp.sum(jnp.where(jnp.arange(len(row)) == best, 0, terms))


@calculator(num_examples=_length)
def cot_error_bound(task: ReasoningTask, num_examples: Real[ArrayLike, ""]) -> Scalar:
    r"""Bound on the probability of any wrong step, for attention that counts votes.

    .. math:: \frac1M \sum_i \sum_{k=1}^{K} \sum_{j \ne s_k(i)} \Bigl( 1 - \pi_k(i)
        \bigl( \sqrt{A_k[s_{k-1}, s_k]} - \sqrt{A_k[s_{k-1}, j]} \bigr)^2 \Bigr)^l,

    where :math:`\pi_k(i)` is the probability that an example is at the query's correct
    state before step k: Theorem 5 with constants, without an assumption on B. A mean
    over uniform inputs, which may exceed 1.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> bool(cot_error_bound(ReasoningTask(slide_transitions()), 2000) < 1e-6)
        True

    Source: Li et al. (2025), Theorem 5.
    """
    paths, at = task.stepwise_paths, _start_shares(task)
    total = jnp.zeros(len(at), task.steps.dtype)
    for k, A in enumerate(task.steps):
        share = jnp.take_along_axis(at, paths[:, k : k + 1], axis=1)[:, 0]
        rows, best = A[paths[:, k]], paths[:, k + 1]
        total += jax.vmap(_decay, (0, 0, 0, None))(rows, best, share, num_examples)
        at = at @ A
    return jnp.mean(total)


def _start_shares(task: ReasoningTask) -> Array:
    """Distribution of an example's start, one row per query."""
    M, fraction = task.num_states, task.relevant_fraction
    same = jnp.eye(M, dtype=task.steps.dtype)
    return fraction * same + (1 - fraction) / max(M - 1, 1) * (1 - same)


@calculator(num_examples=_length)
def icl_error_bound(task: ReasoningTask, num_examples: Real[ArrayLike, ""]) -> Scalar:
    r"""Bound on the error of a direct answer, for attention that counts votes.

    .. math:: \frac1M \sum_i \sum_{j \ne c(i)} \bigl( 1 - \alpha' (\sqrt{B_{ic}} -
              \sqrt{B_{ij}})^2 \bigr)^l, \qquad c(i) = \operatorname{argmax}_j B_{ij},

    where Condition 1 holds for input i, and 1 where it fails. A mean over uniform
    inputs, which may exceed 1.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> bound = icl_error_bound(ReasoningTask(slide_transitions()), 2000)
        >>> round(float(bound), 4)
        0.5

    Source: Li et al. (2025), Theorem 6.
    """
    B, correct = task.composed_transition, task.stepwise_paths[:, -1]
    fraction = task.relevant_fraction
    bounds = jax.vmap(_decay, (0, 0, None, None))(B, correct, fraction, num_examples)
    failing = 1 + 0 * bounds  # NaN of a wrong task stays
    return jnp.mean(jnp.where(task.condition_1, bounds, failing))


@calculator(failure=_share)
def sufficient_examples(task: ReasoningTask, failure: Real[ArrayLike, ""]) -> Scalar:
    r"""Number of examples for which a wrong step is less likely than ``failure``.

    .. math:: l \ge \frac{4 \log \bigl( K (M - 1) / \delta \bigr)}
              {\alpha' \, \tau \, \rho^2} .

    Not rounded. It follows from :func:`cot_error_bound` by :math:`\pi_k A_k[s_{k-1},
    s_k] \ge \alpha' \tau` and :math:`1 - \sqrt{1 - \rho} \ge \rho / 2`. The same with
    :math:`\tau_o`, :math:`\rho_o`, K = 1 holds for direct answers under Condition 1.

    Example:
        >>> from icltheory.chain_of_thought import slide_transitions
        >>> round(float(sufficient_examples(ReasoningTask(slide_transitions()), 0.02)))
        461

    Source: Li et al. (2025), Theorem 5.
    """
    events = task.num_steps * max(task.num_states - 1, 1)
    top = 4 * jnp.log(events / jnp.asarray(failure))
    return top / (task.relevant_fraction * task.tau * jnp.square(task.rho))
