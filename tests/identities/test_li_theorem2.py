"""Li et al. (2024), Theorem 2: the margin by S_1, and what fails below S_1 = 1."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import patterns
from tests.patterns.compiled import pattern_task, sample
from tests.patterns.trained import ensemble, evaluate

KEY = jax.random.key(12)
SETTING = patterns.Setting(num_steps=320)
SUMS = (1.4, 1.2, 1.0, 0.7, 0.5, 0.0, -0.5)


def ideal_network(task, gain, ratio, pairs=4, sharpness=40.0):
    """Lucky neurons exactly as in Proposition 2, and attention on one pattern."""
    M, d = task.relevant.shape
    scale, q = float(task.scale), np.asarray(task.label_embedding)
    mean = np.asarray(task.relevant).sum(0) / scale**2
    features = np.diag(np.arange(task.width) < d) * sharpness**0.5 / scale
    signs = np.tile([1.0, -1.0], pairs)
    rows = [np.concatenate([ratio * mean, s * q]) for s in signs]
    params = {
        "W_Q": features,
        "W_K": features,
        "W_V": np.eye(task.width),
        "W_O": np.stack(rows),
        "a": signs * gain / pairs,
    }
    return jax.tree.map(jnp.asarray, params)


@jax.jit
def read(params, task, prompt):
    return patterns.scores(
        patterns.PatternTransformer(8), params, prompt
    ), patterns.gain_ratio(params, task)


@functools.cache
def shifted_task():
    return pattern_task(6, 4, 2.0, num_shifted=3)


@pytest.mark.statement("Li ICL: Theorem 2, margin")
@pytest.mark.parametrize("ratio", [0.4, 0.9])
@pytest.mark.parametrize("S", [1.4, 1.0, 0.5, 0.0, -0.7, -1.2])
def test_an_ideal_network_has_the_margin_of_the_formula(measured, S, ratio):
    """Every prompt with a hit, also at sums where the network fails."""
    task = shifted_task()
    params = ideal_network(task, 0.7, ratio)
    got, found = read(params, task, sample(task, KEY, 20, 300, 0.8, S))
    wanted = float(patterns.margin(S, 0.7, ratio))
    margins = np.asarray(got.margins)[~np.asarray(got.missed)]
    np.testing.assert_allclose(margins, wanted, atol=1e-12)
    np.testing.assert_allclose([found.gain, found.ratio], [0.7, ratio], rtol=1e-12)
    measured("margin off", np.abs(margins - wanted).max())


@pytest.mark.statement("Li ICL: Theorem 2")
def test_shifted_patterns_are_classified_by_an_ideal_network_from_sum_1_on():
    """At gain 1/2, the least for margins 2 g of 1 or more; c = 1."""
    task = shifted_task()
    params = ideal_network(task, 0.5, 1.0)
    for S in (1.4, 1.0, 0.9):
        got, _ = read(params, task, sample(task, KEY, 20, 300, 0.8, S))
        errors = np.maximum(1 - np.asarray(got.margins), 0)[~np.asarray(got.missed)]
        np.testing.assert_allclose(errors, max(0, (1 - S) / 2), atol=1e-12)
        assert patterns.out_of_domain_conditions(task, SETTING, 0.1, S).holds == (
            S >= 1
        )


@pytest.mark.statement("Li ICL: Theorem 2")
@pytest.mark.slow
def test_shifted_patterns_are_classified_from_sum_1_on(measured):
    task, params = ensemble().at(3.0)
    one = jax.tree.map(lambda leaf: leaf[0], task)
    for S in (1.0, 1.1, 1.4):
        assert patterns.out_of_domain_conditions(one, SETTING, 0.1, S).holds
        found = evaluate(task, params, KEY, 0.8, coefficient_sum=S)
        assert np.all(found.hinge < 1e-3)
        assert np.all(found.attention_mass > 0.95)
        measured("hinge error", found.hinge.max())


@pytest.mark.statement("Li ICL: Theorem 2, margin")
@pytest.mark.slow
@pytest.mark.parametrize("beta", [2.0, 3.0])
def test_the_margin_follows_the_formula(measured, beta):
    """Gain and ratio from the weights, agreement of labels from attention; no fit.

    In the mean of four draws of shifted patterns.
    """
    task, params = ensemble().at(beta)
    read = jax.vmap(patterns.gain_ratio)(params, task)
    draws = jax.random.split(KEY, 4)
    for S in SUMS:
        found = [evaluate(task, params, k, 0.8, coefficient_sum=S) for k in draws]
        margins, losses, A = (
            np.mean([getattr(f, name) for f in found], axis=0)
            for name in ("margin", "hinge", "agreement")
        )
        predicted = patterns.margin(S, read.gain * A[:, 0], read.ratio / A[:, 0])
        np.testing.assert_allclose(margins, predicted, atol=0.02)
        np.testing.assert_allclose(losses, patterns.hinge(predicted), atol=0.02)
        measured("margin off", np.abs(margins - predicted).max())


@pytest.mark.statement("Li ICL: Theorem 2")
@pytest.mark.slow
def test_the_hinge_error_fails_below_1_and_the_01_error_does_not(measured):
    """The counter-example to reading the theorem as one of the 0-1 error."""
    task, params = ensemble().at(3.0)
    found = {s: evaluate(task, params, KEY, 0.8, coefficient_sum=s) for s in SUMS}
    for S in (0.7, 0.5, 0.0):
        assert np.all(found[S].hinge > 0.05)
        assert np.all(found[S].error <= found[S].miss_rate + 1e-9)
        assert np.all(found[S].attention_mass > 0.95)
    errors = np.stack([found[S].hinge for S in SUMS])
    assert np.all(np.diff(errors[2:], axis=0) > 0)  # grows as S_1 falls
    ratio = np.asarray(jax.vmap(patterns.gain_ratio)(params, task).ratio)
    assert np.all(1 / ratio < 1.3)
    below = evaluate(task, params, KEY, 0.8, coefficient_sum=-1.4)  # S_1 < -1/c
    assert np.all(below.error > 0.4)
    measured("0-1 error at S_1 = 0", found[0.0].error.max())
    measured("hinge error at S_1 = 0", found[0.0].hinge.max())
