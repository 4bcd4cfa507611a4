"""Theorem 5 of Li et al.: chain of thought becomes right, and how fast."""

import math

import jax
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from tests.chain_of_thought import drawn, trained
from tests.identities.test_li_cot_votes import counting_errors


@jax.jit
def cot_bound(steps, l, fraction):
    return cot.cot_error_bound(cot.ReasoningTask(steps, fraction), l)


@pytest.mark.statement("Li CoT: Theorem 5, published")
@pytest.mark.slow
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("name", ["slide", "popular_answer"])
def test_the_bound_with_constants_holds_for_attention_that_counts(
    name, fraction, measured
):
    steps = getattr(cot, f"{name}_transitions")()
    chain, _ = counting_errors(steps, 41, fraction, 2000)
    lost = chain.any(axis=1).mean()
    bound = float(cot_bound(steps, 41, fraction))
    measured("any wrong step over its bound", lost / bound)
    assert lost <= bound + 4 * math.sqrt(0.25 / 2000)


def bound_by_hand(steps, l, alpha):
    K, M = steps.shape[:2]
    total = 0.0
    for i in range(M):
        at = np.full(M, (1 - alpha) / (M - 1))
        at[i] = alpha
        state = i
        for k in range(K):
            best = int(np.argmax(steps[k, state]))
            for j in range(M):
                if j != best:
                    gap = math.sqrt(steps[k, state, best]) - math.sqrt(
                        steps[k, state, j]
                    )
                    total += (1 - at[state] * gap**2) ** l / M
            at, state = at @ steps[k], best
    return total


@pytest.mark.statement("Li CoT: Theorem 5, published")
def test_the_bound_is_its_sum():
    for seed in range(3):
        steps = np.random.default_rng(seed).dirichlet(np.ones(3), size=(2, 3))
        for l, alpha in ((7, 1.0), (30, 0.4)):
            found = float(cot_bound(steps, l, alpha))
            assert found == pytest.approx(bound_by_hand(steps, l, alpha), rel=1e-12)


@pytest.mark.statement("Li CoT: Theorem 5, published")
def test_alpha_tau_rho_squared_examples_suffice(measured):
    """4 log(K (M - 1) / delta) / (alpha' tau rho^2), never above the published rate."""
    for K, M, tau, rho in ((2, 1, 1, 1), (1, 2, 0.75, 2 / 3), (2, 5, 0.3, 0.5)):
        steps = (
            cot.contested_transitions(M, K, tau, rho) if M > 1 else np.ones((K, 1, 1))
        )
        alpha = 0.8 if M > 1 else 1
        l = cot.sufficient_examples(cot.ReasoningTask(steps, alpha), 0.01)
        expected = 4 * np.log(K * max(M - 1, 1) / 0.01) / (alpha * tau * rho**2)
        assert float(l) == pytest.approx(expected, rel=1e-12)
    rng = np.random.default_rng(5)
    for K, M in ((1, 2), (3, 4)):
        steps = rng.dirichlet(np.ones(M) / 2, size=(20, K, M))
        alpha, delta = rng.uniform(0.2, 1, 20), 10 ** rng.uniform(-4, -1, 20)
        constant = 4 * np.log(K * (M - 1) / delta)

        @jax.jit
        @jax.vmap
        def judge(steps, alpha, delta, constant):
            task = cot.ReasoningTask(steps, alpha)
            l = cot.sufficient_examples(task, delta)
            asked = cot.cot_conditions(task, 1.0, constant=constant)
            bound = cot.cot_error_bound(task, l)
            return bound / delta, l / asked["test length"].right

        over, share = judge(steps, alpha, delta, constant)
        measured("bound over delta", over.max())
        assert over.max() <= 1
        assert share.max() <= 1 + 1e-9


@pytest.mark.statement("Li CoT: Theorem 5, slides")
def test_without_the_gap_no_constant_serves(measured):
    """Tau stays above 1/2 while rho falls: the error stays at 1/2 for any C."""
    constant, gap = 100.0, 1e-4
    steps = np.array([[[0.5 + gap, 0.5 - gap], [0.5 - gap, 0.5 + gap]]])
    task = cot.ReasoningTask(steps)
    found = cot.cot_conditions(task, 401, form="slides", constant=constant)
    assert bool(found.holds)
    error = float(cot.vote_error(0.5 + gap, 401, 1.0).wrong)
    measured("error where the slides' form with C = 100 promises 0", error)
    assert error > 0.49
    published = cot.cot_conditions(task, 401, form="published", constant=constant)
    assert not bool(published.holds)


@pytest.mark.statement("Li CoT: Theorem 5, slides")
@pytest.mark.parametrize(
    ("alpha", "slides", "published"),
    [(0.4, 48.2, 434), (0.6, 21.4, 193), (0.8, 12.1, 109), (1.0, 7.7, 69)],
)
def test_both_forms_on_the_slides_matrices(alpha, slides, published):
    task = cot.ReasoningTask(cot.slide_transitions(), alpha)
    for form, value, digits in (
        ("slides", slides, 0.06),
        ("published", published, 0.6),
    ):
        found = cot.cot_conditions(task, 100, form=form)
        assert abs(float(found["test length"].right) - value) < digits
        assert bool(found.holds) == (value < 100)


@pytest.mark.statement("Li CoT: Theorem 5, published")
def test_patterns_outside_the_span_are_told(key):
    alphabet = drawn.alphabet(4, 2, 12)
    steps = cot.slide_transitions()
    for residual, slides, published in (
        (0, True, True),
        (0.6, False, True),
        (1, False, False),
    ):
        unseen = jax.jit(cot.Alphabet.unseen, static_argnums=(2, 3))(
            alphabet, key, 2, residual
        )
        task = cot.ReasoningTask(steps, alphabet=unseen)
        for form, value in (("slides", slides), ("published", published)):
            found = cot.cot_conditions(task, 1000, form=form, training=alphabet)
            assert bool(found["patterns"].holds) == bool(found.holds) == value


@pytest.mark.statement("Li CoT: Theorems 5 and 6 together")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["slide", "popular_answer"])
def test_trained_chain_of_thought_is_right_where_icl_stays_at_its_limit(name, measured):
    """At l = 321, alpha' = 1, seeds 0 to 2, three draws of patterns, 400 prompts."""
    steps = getattr(cot, f"{name}_transitions")()
    chains, directs = [], []
    for seed in range(3):
        alphabet, model = trained.member(2, 0.5, seed)
        for draw in range(3):
            key = jax.random.key(100 * seed + draw)
            chain, direct = trained.errors(model, alphabet, steps, 1.0, 321, key, 400)
            chains.append(float(chain.mean()))
            directs.append(float(direct.mean()))
    limit = float(cot.ReasoningTask(steps).icl_error_limit)
    chain, direct = np.mean(chains), np.mean(directs)
    # interval from the spread over nine pairs of model and patterns, t = 2.31
    half = 2.31 * np.std(chains, ddof=1) / 3
    measured(f"CoT error, {name}", chain)
    measured(f"upper end of its interval, {name}", chain + half)
    measured(f"ICL error, {name}", direct)
    assert chain < 0.03
    assert chain + half < 0.035
    # a vote of 321 is .008 off the limit at two states; then four standard errors
    assert abs(direct - limit) < 0.01 + 4 * np.std(directs, ddof=1) / 3
    assert direct > 0.9 * limit
