"""Heads of linear attention as predictors, and the flow of their risk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import Heads, LinearPopulation
from icltheory.regression._block_moments import Moments
from icltheory.regression.flows import gradient

KEY = jax.random.key(0)
TASKS = LinearPopulation(
    jnp.array([[1.2, 0.3], [0.3, 0.6]]), jnp.array([0.5, -1.0]), jnp.eye(2), 0.3
)
ISO = LinearPopulation.isotropic(3)


def drawn(rank, heads=3):
    return Heads.random(2, heads, 0.7, rank=rank, key=KEY)


@pytest.mark.parametrize("rank", [None, 1, 2])
def test_heads_answer_as_the_sum_of_their_attention(rank):
    model, rng = drawn(rank), np.random.default_rng(0)
    X, y, x = rng.normal(size=(5, 2)), rng.normal(size=5), rng.normal(size=2)
    total = 0.0
    for h in range(3):
        for a, b in zip(X, y, strict=True):
            K = np.asarray(model.K[h])
            score = a @ K @ x if rank is None else (K @ a) @ (model.Q[h] @ x)
            total += float(model.v[h]) * b * float(score) / 5
    np.testing.assert_allclose(model.predict(X, y, x), total, rtol=1e-12)
    effective = model.effective()
    np.testing.assert_allclose(effective.predict(X, y, x), total, rtol=1e-12)
    exact = reg.risk(model, TASKS, 4)
    np.testing.assert_allclose(exact, reg.risk(effective, TASKS, 4), rtol=1e-12)
    np.testing.assert_allclose(
        exact, reg.risk(reg.LinearStep(model.Gamma), TASKS, 4), rtol=1e-12
    )


@pytest.mark.parametrize("rank", [None, 1])
def test_the_gradient_of_the_flow_is_that_of_the_risk(rank):
    model = drawn(rank)
    found = gradient(model, Moments.of(TASKS, 4))
    wanted = jax.grad(reg.risk)(model, TASKS, 4)
    for left, right in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_the_flow_conserves_what_heads_balance_and_ends_at_the_least_risk():
    tasks = TASKS.with_(task_mean=jnp.zeros(2))
    path = reg.flow(drawn(1), tasks, 4, jnp.array([0.0, 1.0, 400.0]))
    assert bool(path.succeeded)
    v, K, Q = (np.asarray(a) for a in (path.model.v, path.model.K, path.model.Q))
    for other in (K, Q):
        balance = v**2 - np.sum(other**2, axis=(2, 3))
        np.testing.assert_allclose(balance, balance[:1] + 0 * balance, atol=1e-4)
    np.testing.assert_allclose(
        path.risk[-1], reg.head_plateaus(tasks, 4)[-1], rtol=1e-9
    )
    assert path.excess[-1] < 1e-9
    found = reg.head_removals(path.model, tasks, 4)
    assert found.heads.shape == (3, 3)
    np.testing.assert_allclose(found.risk, path.risk, rtol=1e-12)


def without(model, h, i=None):
    """The merged layer without a head, or one singular direction of its matrix."""
    U = np.array(model.key_query())
    a, s, b = np.linalg.svd(U[h])
    U[h] = 0 if i is None else U[h] - s[i] * np.outer(a[:, i], b[i])
    return Heads(model.v, U)


@pytest.mark.parametrize("rank", [None, 1, 2])
def test_a_layer_without_a_part_has_the_risk_that_the_change_says(rank):
    model = drawn(rank)
    found = reg.head_removals(model, TASKS, 4)
    for h in range(3):
        change = reg.risk(without(model, h), TASKS, 4) - found.risk
        np.testing.assert_allclose(found.heads[h], change, rtol=1e-9, atol=1e-12)
        for i in range(found.directions.shape[1]):
            change = reg.risk(without(model, h, i), TASKS, 4) - found.risk
            np.testing.assert_allclose(
                found.directions[h, i], change, rtol=1e-9, atol=1e-12
            )


def test_a_direction_that_does_not_grow_is_never_learned():
    flat = LinearPopulation(jnp.diag(jnp.array([1.0, 0.0])))
    small = jax.tree.map(lambda leaf: 0.05 * leaf, drawn(1))
    found = reg.head_times(small, flat, 5)
    assert np.isfinite(found.times).tolist() == [True, False]
    assert found.learned.tolist() == [0, 1]


@pytest.mark.parametrize("rank", [None, 1])
def test_a_start_that_is_no_plateau_has_no_time(rank):
    large = jax.tree.map(lambda leaf: 9 * leaf, drawn(rank))
    assert np.isnan(reg.head_times(large, LinearPopulation.isotropic(2), 5).times).all()


def test_a_probability_that_says_nothing_is_zero():
    assert reg.rates(LinearPopulation.isotropic(3, 0.25), 5).likely.probability == 0


def test_wrong_heads_are_refused():
    pair, one = jnp.ones((1, 2, 2)), jnp.ones((1, 1, 2))
    for call, message in (
        (lambda: Heads(jnp.ones(2), jnp.ones((3, 1, 2))), r"K: expected shape \(2, d"),
        (lambda: Heads(jnp.ones(2), jnp.ones((2, 1, 2))), r"K: expected shape \(2, d"),
        (lambda: Heads(jnp.ones(1), one, pair), r"Q: expected shape \(1, 1, 2\)"),
        (lambda: Heads.random(2, 0, 0.1, key=KEY), "heads: expected a positive"),
        (lambda: Heads.random(2, 1, 0.0, key=KEY), "scale: expected a finite value"),
        (lambda: reg.head_times(drawn(1), ISO, 2), "population: expected dimension 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_levels_of_four_directions_without_noise():
    tasks = LinearPopulation(jnp.diag(jnp.array([2.0, 1.0, 0.5, 0.25])))
    expected = [3.75, 2.054636, 1.283551, 0.957021, 0.832021]
    np.testing.assert_allclose(reg.head_plateaus(tasks, 16), expected, atol=5e-7)
