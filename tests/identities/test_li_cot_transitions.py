"""Transition matrices of Li et al.: the slides' numbers, and sums over all paths."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from tests.chain_of_thought import oracles

SLIDE = np.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
COUNTER = np.array([[[0.51, 0.49], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]]])


def random_steps(seed, K, M):
    return np.random.default_rng(seed).dirichlet(np.ones(M), size=(K, M))


def test_the_slides_matrices_have_the_slides_numbers(measured):
    np.testing.assert_array_equal(cot.slide_transitions(), SLIDE)
    B = np.array([[0.56, 0.44], [0.64, 0.36]])
    error = np.abs(cot.composed_transition(SLIDE) - B).max()
    measured("difference of B", error)
    assert error < 1e-15
    exact = {
        cot.tau: 0.36,
        cot.tau_o: 0.56,
        cot.rho: 1 / 3,
        cot.rho_o: 1 - 0.44 / 0.56,
        cot.icl_error_limit: 0.5,
    }
    for function, value in exact.items():
        assert abs(float(function(SLIDE)) - value) < 1e-15
    np.testing.assert_array_equal(cot.stepwise_paths(SLIDE), [[0, 0, 1], [1, 1, 0]])
    np.testing.assert_allclose(cot.path_probabilities(SLIDE), [0.36, 0.48], rtol=1e-15)
    np.testing.assert_array_equal(cot.condition_1(SLIDE), [False, True])


def test_the_correct_path_need_not_be_the_most_probable_one(measured):
    best = cot.most_probable_paths(COUNTER)
    stepwise = float(cot.path_probabilities(COUNTER)[0])
    viterbi = float(cot.path_probabilities(COUNTER, best)[0])
    measured("stepwise", stepwise)
    measured("Viterbi", viterbi)
    assert abs(stepwise - 0.255) < 1e-15
    assert abs(viterbi - 0.49) < 1e-15
    assert best[0].tolist() == [0, 1, 0]
    # for the slides' own matrices both are the same path
    np.testing.assert_array_equal(
        cot.most_probable_paths(SLIDE), cot.stepwise_paths(SLIDE)
    )


@pytest.mark.parametrize(("K", "M"), [(1, 3), (2, 4), (3, 3)])
def test_everything_is_the_sum_over_all_paths(K, M, measured):
    for seed in range(3):
        steps = random_steps([seed, K, M], K, M)
        B, correct, shares, best = oracles.transitions(steps)
        np.testing.assert_allclose(cot.composed_transition(steps), B, atol=1e-14)
        np.testing.assert_array_equal(cot.stepwise_paths(steps), correct)
        np.testing.assert_allclose(cot.path_probabilities(steps), shares, rtol=1e-13)
        paths = cot.most_probable_paths(steps)
        np.testing.assert_allclose(
            cot.path_probabilities(steps, paths), best, rtol=1e-13
        )
        assert float(cot.tau(steps)) == pytest.approx(shares.min(), rel=1e-13)
        assert float(cot.tau_o(steps)) == pytest.approx(B.max(axis=1).min(), rel=1e-13)
        gaps = [
            1 - sorted(row)[-2] / max(row)
            for row in itertools.chain.from_iterable(steps)
        ]
        assert float(cot.rho(steps)) == pytest.approx(min(gaps), rel=1e-10)
        gaps = [1 - sorted(row)[-2] / max(row) for row in B]
        assert float(cot.rho_o(steps)) == pytest.approx(min(gaps), rel=1e-10)
        holds = B.argmax(axis=1) == correct[:, -1]
        np.testing.assert_array_equal(cot.condition_1(steps), holds)
        assert float(cot.icl_error_limit(steps)) == pytest.approx(1 - holds.mean())
    measured("difference of B", np.abs(cot.composed_transition(steps) - B).max())


def test_they_are_jitted_and_vmapped_like_any_function():
    batch = np.stack([random_steps(seed, 2, 3) for seed in range(4)])
    functions = (
        *(cot.composed_transition, cot.tau, cot.tau_o, cot.rho, cot.rho_o),
        *(cot.condition_1, cot.icl_error_limit, cot.stepwise_paths),
    )
    found = jax.jit(jax.vmap(lambda steps: [f(steps) for f in functions]))(batch)
    for i, steps in enumerate(batch):
        for function, value in zip(functions, found, strict=True):
            np.testing.assert_allclose(value[i], function(steps), rtol=1e-14)


def test_edge_cases():
    assert float(cot.rho(np.ones((2, 1, 1)))) == 1
    assert cot.condition_1(np.ones((2, 1, 1))).tolist() == [True]
    assert float(cot.rho(np.full((1, 2, 2), 0.5))) == 0
    assert cot.tau(np.eye(2, dtype=np.float32)[None]).dtype == jnp.float32


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (np.eye(2), r"steps: expected shape \(K, M, M\), got \(2, 2\)"),
        (np.ones((2, 2, 3)), r"steps: expected shape \(K, M, M\), got \(2, 2, 3\)"),
        (
            np.array([np.eye(2), [[0.5, 0.4], [0, 1]]]),
            r"steps: expected rows that sum to 1, got 0.9 in row 0 of step 1",
        ),
        (np.array([[[1.5, -0.5], [0.0, 1.0]]]), "expected probabilities >= 0, got -0"),
        (np.full((1, 2, 2), np.nan), "steps: expected finite entries"),
        (np.ones((0, 2, 2)), "steps: expected a step and a state"),
    ],
)
def test_rows_that_are_no_distributions_are_refused(steps, message):
    for function in (cot.composed_transition, cot.tau, cot.condition_1):
        with pytest.raises(ValueError, match=message):
            function(steps)
