"""One layer as regression on features: exact moments, drifting tasks, pretraining."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import (
    CorrelatedTasks,
    LinearPopulation,
    LinearStep,
    NoClosedForm,
    optimum,
    risk,
    squared_errors,
)
from icltheory.regression.one_layer import FeatureMoments, OneLayer
from icltheory.statistics import Estimate

KEY = jax.random.key(0)


def step_features(x, y, x_query):
    return y * jnp.outer(x_query, x)


def label_features(x, y, x_query):
    """Features of an LSA with p = 0: a step, and the query scaled by the labels."""
    return jnp.concatenate([y * jnp.outer(x_query, x).ravel(), y**2 * x_query])


def population(dim, mean=0.0):
    H = jnp.diag(jnp.array([1.5, 1.0, 0.7, 0.4])[:dim])
    task_cov = jnp.diag(jnp.array([1.0, 0.5, 1.0, 2.0])[:dim])
    return LinearPopulation(H, mean * jnp.ones(dim), task_cov, 0.25)


def age(count):
    return np.abs(np.arange(count)[:, None] - np.arange(count))


@pytest.mark.parametrize("N", [0, 1, 6])
def test_the_features_of_a_step_have_the_optimum_of_linear_attention(N):
    tasks = population(2, mean=0.8)
    moments = OneLayer(step_features, degree=2).moments(tasks, N)
    best = optimum(LinearStep, tasks, N)
    np.testing.assert_allclose(moments.optimum(), best.model.Gamma, atol=1e-12)
    np.testing.assert_allclose(moments.risk(moments.optimum()), best.risk, rtol=1e-12)
    other = jnp.array([[0.3, -0.2], [0.5, 0.9]])
    wanted = risk(LinearStep(other), tasks, N)
    layer = OneLayer(step_features, other, degree=2)
    np.testing.assert_allclose(risk(layer, tasks, N), wanted, rtol=1e-12)
    excess = moments.excess(other)
    np.testing.assert_allclose(excess, wanted - best.risk, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("N", [1, 3])
def test_the_risk_of_weighted_correlated_examples_is_its_formula(N):
    d = 2
    tasks, rng = population(d), np.random.default_rng(2)
    Sigma, Psi = np.asarray(tasks.input_cov), np.asarray(tasks.task_cov)
    G, omega, C = rng.normal(size=(d, d)), rng.random(N), 0.8 ** age(N + 1)
    R, r, S = C[:N, :N], C[N, :N], Sigma @ Psi @ Sigma
    spread = S + (np.trace(Sigma @ Psi) + 0.25) * Sigma
    wanted = (
        np.trace(Sigma @ Psi)
        - 2 * (omega @ r) * np.trace(G @ Sigma @ Psi @ Sigma)
        + (omega @ R @ omega) * np.trace(Sigma @ G @ S @ G.T)
        + omega @ omega * np.trace(Sigma @ G @ spread @ G.T)
    )
    layer = OneLayer(step_features, G, degree=2, weights=omega)
    drift = CorrelatedTasks(tasks, C)
    np.testing.assert_allclose(risk(layer, drift, N) - 0.25, wanted, rtol=1e-12)
    errors = squared_errors(layer, drift, N, key=KEY, num_prompts=40_000)
    simulated = Estimate.of(errors)
    assert abs(simulated.mean - 0.25 - wanted) < 4 * simulated.standard_error


def test_the_best_weights_of_a_drifting_task_are_the_closed_form():
    d, N, noise = 2, 5, 0.25
    C = 0.9 ** age(N + 1)
    drift = CorrelatedTasks(LinearPopulation.isotropic(d, noise), C)
    moments = OneLayer(step_features, jnp.eye(d), degree=2).weight_moments(drift)
    R, r = C[:N, :N], C[N, :N]
    wanted = np.linalg.solve(R + (d + 1 + noise) * np.eye(N), r)
    np.testing.assert_allclose(moments.optimum(), wanted, rtol=1e-10)
    least = d * (1 - wanted @ r) + noise
    np.testing.assert_allclose(moments.risk(moments.optimum()), least, rtol=1e-10)


def test_features_of_a_users_own_have_the_moments_of_a_simulation():
    tasks = population(1, mean=0.8)
    layer = OneLayer(label_features, degree=3)
    exact = layer.moments(tasks, 4)
    drawn = [
        layer.moments(tasks, 4, key=key, num_prompts=20_000)
        for key in jax.random.split(KEY, 16)
    ]
    for name in ("A", "b", "c"):
        values = np.stack([getattr(moments, name) for moments in drawn])
        error = values.std(0, ddof=1) / 4
        z = (values.mean(0) - getattr(exact, name)) / error
        assert np.abs(z).max() < 4.5, name
    # The label's square is of use where the tasks have a mean.
    step = OneLayer(step_features, degree=2).moments(tasks, 4)
    assert exact.risk(exact.optimum()) < step.risk(step.optimum()) - 1e-3


def test_the_flow_is_that_of_the_gradient():
    A, b = jnp.array([[2.0, 0.5], [0.5, 1.0]]), jnp.array([1.0, -1.0])
    moments = FeatureMoments(A, b, 3.0)
    start, times = jnp.array([0.3, 0.4]), jnp.array([0.0, 0.1, 50.0])
    path = moments.flow(start, times)
    np.testing.assert_allclose(path[0], start, rtol=1e-12)
    np.testing.assert_allclose(path[2], jnp.linalg.solve(A, b), rtol=1e-12)
    velocity = jax.jacfwd(lambda t: moments.flow(start, t[None])[0])(times[1])
    np.testing.assert_allclose(velocity, -jax.grad(moments.risk)(path[1]), rtol=1e-10)


@pytest.mark.parametrize(
    ("phi", "degree"),
    [
        (label_features, 2),
        (lambda x, y, x_query: y * x_query * jnp.sum(x * x), 2),
        (lambda x, y, x_query: y * x_query * jnp.sum(x_query**2), 3),
        (lambda x, y, x_query: jnp.tanh(y) * x_query, 8),
        (lambda x, y, x_query: abs(y) * x_query, 3),
    ],
)
def test_a_degree_that_is_too_small_is_refused(phi, degree):
    for dim in (1, 3):
        with pytest.raises(ValueError, match=f"degree: expected .*, got {degree}"):
            optimum(OneLayer(phi, degree=degree), population(dim), 4)


def test_a_sampled_optimum_says_how_sure_its_risk_is():
    tasks, layer = population(2), OneLayer(step_features)
    exact = optimum(OneLayer(step_features, degree=2), tasks, 6, key=KEY)
    assert (exact.certificate, exact.standard_error) == (
        "exact moments of the features",
        0,
    )
    found = optimum(layer, tasks, 6, key=KEY, num_prompts=20_000)
    assert 0 < found.standard_error < 0.05 * found.risk
    assert abs(found.risk - exact.risk) < 4 * found.standard_error
    with pytest.raises(ValueError, match="key: expected one to sample phi"):
        optimum(layer, tasks, 6)
    with pytest.raises(ValueError, match="Gamma: expected weights, got None"):
        risk(OneLayer(step_features, degree=2), tasks, 6)


def test_what_is_not_known_is_refused():
    drift = CorrelatedTasks(population(2), np.eye(4))
    layer = OneLayer(step_features, jnp.eye(2), degree=2)
    with pytest.raises(ValueError, match="num_examples: expected 3, got 5"):
        risk(layer, drift, 5)
    with pytest.raises(ValueError, match="num_examples: expected 3, got 4"):
        drift.sample(KEY, 4, 2)
    with pytest.raises(NoClosedForm, match="got degree None on LinearPopulation"):
        risk(OneLayer(step_features, jnp.eye(2)), population(2), 4)
    with pytest.raises(ValueError, match="correlation: expected"):
        CorrelatedTasks(population(2), [[1.0, 2.0], [2.0, 1.0]])
