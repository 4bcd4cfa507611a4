"""Theorem 6 of Li et al.: plain in-context learning votes for the final output."""

import math

import jax
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from tests.chain_of_thought import oracles
from tests.identities.test_li_cot_votes import counting_errors


@pytest.mark.statement("Li CoT: Theorem 6, part 1")
@pytest.mark.slow
def test_condition_1_fails_for_one_input_of_the_slides_and_for_all_of_another():
    slide = cot.ReasoningTask(cot.slide_transitions())
    assert slide.condition_1.tolist() == [False, True]
    popular = cot.popular_answer_transitions()
    task = cot.ReasoningTask(popular)
    assert not np.any(task.condition_1)
    assert float(task.icl_error_limit) == 1
    assert float(task.tau) == pytest.approx(0.165, abs=1e-12)
    assert float(task.rho) == pytest.approx(1 - 0.35 / 0.55, abs=1e-12)
    second = np.asarray(popular)[1]
    assert second.argmax(axis=1).tolist() == [1, 2, 3, 4, 5, 1]
    row = oracles.transitions(popular)[0][0]
    np.testing.assert_allclose(row[:3], [0.35, 0.256, 0.0985], atol=1e-12)
    assert np.all(cot.ReasoningTask(cot.faithful_transitions()).condition_1)


@pytest.mark.statement("Li CoT: Theorem 6, part 1")
def test_two_inputs_cannot_both_fail_with_the_slides_first_step():
    """B_1 and B_2 both wrong would need u + v < 1 with u, v > 1/2."""
    rng = np.random.default_rng(0)
    first = np.array([[0.6, 0.4], [0.4, 0.6]])
    u, v = rng.uniform(0.5, 1, size=(2, 200))
    for rows in ((1 - u, u, v, 1 - v), (u, 1 - u, v, 1 - v)):
        second = np.stack(rows, axis=1).reshape(200, 2, 2)
        steps = np.stack([np.broadcast_to(first, second.shape), second], axis=1)
        holds = jax.jit(jax.vmap(lambda A: cot.ReasoningTask(A).condition_1))(steps)
        assert np.all(np.any(holds, axis=1))


@pytest.mark.statement("Li CoT: Theorems 5 and 6 together", "Li CoT: Theorem 6, part 1")
@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("slide", 0.5),
        pytest.param("popular_answer", 1.0, marks=pytest.mark.slow),
        pytest.param("faithful", 0.0, marks=pytest.mark.slow),
    ],
)
def test_the_error_tends_to_its_limit(name, limit, measured):
    steps = getattr(cot, f"{name}_transitions")()
    chain, direct = counting_errors(steps, 641, 1.0, 1000)
    measured(f"ICL error at l = 641, {name}", direct.mean())
    assert float(cot.ReasoningTask(steps).icl_error_limit) == limit
    # exact at two states; four standard errors of a share
    assert abs(direct.mean() - limit) < 0.002 + 4 * math.sqrt(0.25 / 1000) * (
        limit == 0.5
    )
    assert chain.mean() < 0.01


@pytest.mark.statement("Li CoT: Theorem 6, part 1")
@pytest.mark.slow
def test_failing_inputs_err_at_every_length(measured):
    """Part 1: the error is at least half the limit, up to ties, for every odd l."""
    B = np.asarray(cot.ReasoningTask(cot.slide_transitions()).composed_transition)
    errors = [float(cot.vote_error(B[0, 1], l, 1.0).wrong) for l in (1, 9, 41, 641)]
    measured("least error of the failing input", min(errors))
    assert min(errors) > 0.5
    assert errors[-1] > 0.998


@pytest.mark.statement("Li CoT: Theorem 6, part 2")
@pytest.mark.slow
def test_the_bound_of_part_2_holds_and_is_its_sum():
    steps = np.asarray(cot.faithful_transitions(0.8))
    B = oracles.transitions(steps)[0]
    for l, alpha in ((21, 1.0), (21, 0.5)):
        by_hand = np.mean(
            [(1 - alpha * (max(r) ** 0.5 - min(r) ** 0.5) ** 2) ** l for r in B]
        )
        found = float(cot.icl_error_bound(cot.ReasoningTask(steps, alpha), l))
        assert found == pytest.approx(by_hand, rel=1e-12)
        _, direct = counting_errors(steps, l, alpha, 2000)
        assert direct.mean() <= found + 4 * math.sqrt(0.25 / 2000)
    slide = cot.ReasoningTask(cot.slide_transitions())
    assert float(cot.icl_error_bound(slide, 5000)) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.statement("Li CoT: Theorem 6, part 2")
def test_both_forms_of_the_predicate():
    task = cot.ReasoningTask(cot.faithful_transitions(0.8), 0.5)
    top, gap = float(task.tau_o), float(task.rho_o)
    assert (top, gap) == (pytest.approx(0.68), pytest.approx(1 - 0.32 / 0.68))
    for form, least in (("slides", 0.5 * top), ("published", 0.5 * top * gap)):
        found = cot.icl_conditions(task, 3 * least**-2, form=form, constant=2)
        assert float(found["test length"].right) == pytest.approx(2 * least**-2)
        assert bool(found.holds)
        short = cot.icl_conditions(task, least**-2, form=form, constant=2)
        assert not bool(short.holds)
    slide = cot.icl_conditions(cot.ReasoningTask(cot.slide_transitions()), 10**6)
    assert slide.failing == ("condition 1",)
    with pytest.raises(ValueError, match="form: expected one of 'slides', 'published'"):
        cot.icl_conditions(task, 1, form="deck")
