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


NAMES = (
    *("composed_transition", "tau", "tau_o", "rho", "rho_o", "condition_1"),
    *("icl_error_limit", "stepwise_paths", "most_probable_paths"),
)
shares_of = jax.jit(lambda steps, paths: task(steps).path_probabilities(paths))


def task(steps):
    return cot.ReasoningTask(steps)


@jax.jit
def everything(steps):
    found = {name: getattr(task(steps), name) for name in NAMES}
    return found | {"path_probabilities": task(steps).path_probabilities()}


def random_steps(seed, K, M):
    return np.random.default_rng(seed).dirichlet(np.ones(M), size=(K, M))


@pytest.mark.statement("Li CoT: correct path")
def test_the_correct_path_need_not_be_the_most_probable_one(measured):
    found = jax.tree.map(np.asarray, everything(COUNTER))
    best = found["most_probable_paths"]
    stepwise = float(found["path_probabilities"][0])
    viterbi = float(shares_of(COUNTER, best)[0])
    measured("stepwise", stepwise)
    measured("Viterbi", viterbi)
    assert abs(stepwise - 0.255) < 1e-15
    assert abs(viterbi - 0.49) < 1e-15
    assert best[0].tolist() == [0, 1, 0]
    # for the slides' own matrices both are the same path
    found = everything(SLIDE)
    np.testing.assert_array_equal(found["most_probable_paths"], found["stepwise_paths"])


@pytest.mark.statement("Li CoT: K-steps transition")
@pytest.mark.parametrize(("K", "M"), [(1, 3), (2, 4), (3, 3)])
def test_everything_is_the_sum_over_all_paths(K, M, measured):
    for seed in range(3):
        steps = random_steps([seed, K, M], K, M)
        B, correct, shares, best = oracles.transitions(steps)
        found = jax.tree.map(np.asarray, everything(steps))
        np.testing.assert_allclose(found["composed_transition"], B, atol=1e-14)
        np.testing.assert_array_equal(found["stepwise_paths"], correct)
        np.testing.assert_allclose(found["path_probabilities"], shares, rtol=1e-13)
        likeliest = shares_of(steps, found["most_probable_paths"])
        np.testing.assert_allclose(likeliest, best, rtol=1e-13)
        assert float(found["tau"]) == pytest.approx(shares.min(), rel=1e-13)
        assert float(found["tau_o"]) == pytest.approx(B.max(axis=1).min(), rel=1e-13)
        gaps = [
            1 - sorted(row)[-2] / max(row)
            for row in itertools.chain.from_iterable(steps)
        ]
        assert float(found["rho"]) == pytest.approx(min(gaps), rel=1e-10)
        gaps = [1 - sorted(row)[-2] / max(row) for row in B]
        assert float(found["rho_o"]) == pytest.approx(min(gaps), rel=1e-10)
        holds = B.argmax(axis=1) == correct[:, -1]
        np.testing.assert_array_equal(found["condition_1"], holds)
        assert float(found["icl_error_limit"]) == pytest.approx(1 - holds.mean())
    measured("difference of B", np.abs(found["composed_transition"] - B).max())


@pytest.mark.statement("Li CoT: K-steps transition")
def test_edge_cases():
    assert float(task(np.ones((2, 1, 1))).rho) == 1
    assert task(np.ones((2, 1, 1))).condition_1.tolist() == [True]
    assert float(task(np.full((1, 2, 2), 0.5)).rho) == 0
    assert task(np.eye(2, dtype=np.float32)[None]).tau.dtype == jnp.float32


@pytest.mark.statement("Li CoT: K-steps transition")
@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (np.eye(2), r"steps: expected shape \(K, M, M\), got \(2, 2\)"),
        (np.ones((2, 2, 3)), r"steps: expected shape \(K, M, M\), got \(2, 2, 3\)"),
        (
            np.array([np.eye(2), [[0.5, 0.4], [0, 1]]]),
            r"steps: expected rows that sum to 1, got 0.9",
        ),
        (np.array([[[1.5, -0.5], [0.0, 1.0]]]), "expected probabilities >= 0, got -0"),
        (np.full((1, 2, 2), np.nan), "steps: expected finite entries"),
        (np.ones((0, 2, 2)), "steps: expected a step and a state"),
    ],
)
def test_rows_that_are_no_distributions_are_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        task(steps)
