"""Votes: exact errors against enumeration, and attention that counts against both."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from icltheory import chain_of_thought as cot
from tests.chain_of_thought import drawn
from tests.oracles import share_z

pytestmark = pytest.mark.statement("Li CoT: CoT mechanism")


def enumerate_votes(p, l, alpha):
    """Wrong and tied by summing over right and wrong votes."""
    wrong = tied = 0.0
    for right in range(l + 1):
        for bad in range(l + 1 - right):
            ways = math.comb(l, right) * math.comb(l - right, bad)
            share = (alpha * p) ** right * (alpha * (1 - p)) ** bad
            share *= ways * (1 - alpha) ** (l - right - bad)
            wrong += share * (bad > right)
            tied += share * (bad == right)
    return wrong, tied


@pytest.mark.parametrize("l", [0, 1, 8, 11])
def test_vote_error_is_the_sum_over_all_outcomes(l, measured):
    for p, alpha in ((0.6, 1.0), (0.44, 1.0), (0.6, 0.3), (1.0, 0.5), (0.3, 0.0)):
        found = cot.vote_error(p, l, alpha)
        exact = enumerate_votes(p, l, alpha)
        measured("difference", np.array(found) - exact, below=1e-12)
    if l % 2:
        assert float(cot.vote_error(0.6, l, 1.0).tied) == 0


@pytest.mark.slow
def test_vote_error_of_a_hundred_thousand_examples(measured):
    """Against sums of SciPy's binomial laws; the cost grows with l, not its square."""
    l, p, alpha = 100_000, 0.501, 0.3
    m = np.arange(l + 1)
    voters = stats.binom.pmf(m, l, alpha)
    wrong = voters @ stats.binom.cdf((m - 1) // 2, m, p)
    half = m[::2] // 2
    tied = voters[::2] @ stats.binom.pmf(half, m[::2], p)
    found = cot.vote_error(p, l, alpha)
    np.testing.assert_allclose(found, (wrong, tied), rtol=1e-8)
    measured("wrong majority of 100,000 examples, p = .501, alpha' = .3", found.wrong)


def test_vote_error_has_its_derivatives(measured):
    for p, l, alpha in ((0.6, 5, 1.0), (0.3, 8, 0.4)):
        wrong = jax.grad(lambda p, a, l=l: cot.vote_error(p, l, a).wrong, (0, 1))
        slopes = jax.jit(wrong)(p, alpha)
        steps = [(1e-6, 0.0)] if alpha == 1 else [(1e-6, 0.0), (0.0, 1e-6)]
        for slope, (up, more) in zip(slopes, steps, strict=False):
            ends = [enumerate_votes(p + s * up, l, alpha + s * more) for s in (1, -1)]
            error = float(slope) - (ends[0][0] - ends[1][0]) / 2e-6
            measured("difference of a derivative", error, below=1e-8)


@pytest.mark.parametrize("row", [(0.5, 0.3, 0.2), (0.6, 0.4), (0.4, 0.2, 0.2, 0.2)])
def test_decay_bound_is_above_the_error_of_a_plurality(row):
    rng = np.random.default_rng(0)
    row = np.array(row)
    for l, alpha in ((10, 1.0), (40, 0.5)):
        n = rng.binomial(l, alpha, size=20_000)
        votes = np.array([rng.multinomial(k, row) for k in n])
        lost = (votes[:, 1:] >= votes[:, :1]).any(axis=1).mean()
        bound = float(cot.decay_bound(row, l, alpha))
        direct = sum(
            (1 - alpha * (math.sqrt(row[0]) - math.sqrt(q)) ** 2) ** l for q in row[1:]
        )
        assert bound == pytest.approx(direct, rel=1e-12)
        assert lost <= bound + 4 * math.sqrt(0.25 / 20_000)


def test_the_term_of_the_runner_up_alone_is_no_bound(measured):
    # one right candidate against twenty: 1 - (sqrt p1 - sqrt p2)^2 is one pair only
    row = np.append(0.1, np.full(20, 0.045))
    rng = np.random.default_rng(1)
    votes = rng.multinomial(30, row, size=20_000)
    lost = (votes[:, 1:] >= votes[:, :1]).any(axis=1).mean()
    alone = (1 - (math.sqrt(0.1) - math.sqrt(0.045)) ** 2) ** 30
    measured("error over the single term", lost / alone)
    assert lost > alone + 4 * math.sqrt(0.25 / 20_000)
    assert lost <= float(cot.decay_bound(row, 30))


def counting_errors(steps, l, fraction, prompts):
    letters = drawn.alphabet(steps.shape[1], len(steps), 8)
    task = cot.ReasoningTask(steps, fraction, letters)
    model = cot.ReasoningAttention.matching(8)
    run = {"key": jax.random.key(1), "num_prompts": prompts}
    return [
        np.asarray(cot.wrong_answers(kind(model), task, l, **run))
        for kind in (cot.ChainOfThought, cot.DirectAnswer)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("l", [11, 41])
def test_attention_that_matches_has_the_error_of_a_vote(l, measured):
    steps, prompts = cot.slide_transitions(), 10_000
    chain, direct = counting_errors(steps, l, 1.0, prompts)
    B = np.asarray(cot.ReasoningTask(steps).composed_transition)
    first, *votes = (cot.vote_error(p, l, 1.0).wrong for p in (0.6, B[0, 1], B[1, 0]))
    measured("z, first step", share_z(chain[:, 0], first), below=4)
    measured("z, ICL", share_z(direct, np.mean(votes)), below=4)


@pytest.mark.slow
def test_ties_leave_an_interval(measured):
    chain, _ = counting_errors(cot.slide_transitions(), 10, 0.5, 10_000)
    wrong, tied = map(float, cot.vote_error(0.6, 10, 0.5))
    found, error = chain[:, 0].mean(), math.sqrt(0.25 / 10_000)
    measured("place in the interval of ties", (found - wrong) / tied)
    assert tied > 20 * error
    assert wrong - 4 * error < found < wrong + tied + 4 * error


def test_numbers_out_of_range_are_refused():
    message = r"probability: expected a value in \[0, 1\], got 1.5"
    with pytest.raises(ValueError, match=message):
        cot.vote_error(1.5, 3)
    with pytest.raises(ValueError, match="probabilities: expected a sum <= 1, got 1.7"):
        cot.decay_bound(jnp.array([0.9, 0.8]), 3)
