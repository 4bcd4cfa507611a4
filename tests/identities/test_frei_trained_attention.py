"""Zhang, Frei and Bartlett (2024): limit, test risk and constants of the flow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from tests.derivatives import slope_error
from tests.regression import oracles_ltb_rates as oracles

DIM = 3


@jax.jit
def constants_of(Lam, N, Theta, scale):
    start = reg.AttentionWeights(scale, scale * Theta @ Theta.T)
    return reg.flow_bounds(start, reg.LinearPopulation(Lam), N, jnp.zeros(1))


def drawn(seed, dim=DIM):
    rng = np.random.default_rng(seed)
    N, M = (int(n) for n in rng.integers(1, 40, size=2))
    return rng, oracles.random_cov(rng, dim), N, M


# --- the limit


@jax.jit
def limit_and_optimum(Lam, N):
    start = reg.AttentionWeights(0.1, 0.1 * jnp.eye(DIM) / DIM**0.5)
    end = reg.flow_limit(start, reg.LinearPopulation(Lam), N)
    best = reg.optimum(reg.GDBeta, reg.LinearPopulation(Lam), N).model
    return end.u * end.U, *end.matrices(), best.Gamma


@pytest.mark.statement("Frei: Theorem 4.1, limit")
def test_limit_is_the_best_step_split_evenly(measured):
    for seed in range(20):
        _, Lam, N, _ = drawn(seed)
        Gamma, W_PV, W_KQ, best = limit_and_optimum(Lam, N)
        expected = np.linalg.inv(oracles.gain(Lam, N))
        error = np.abs(best - expected).max() / np.abs(expected).max()
        measured("relative error of Gamma*", error, below=1e-12)
        np.testing.assert_allclose(Gamma, expected, rtol=1e-11, atol=1e-13)
        scale = np.trace(expected @ expected) ** 0.25
        np.testing.assert_allclose(W_PV[-1, -1], scale, rtol=1e-12)
        np.testing.assert_allclose(
            W_KQ[:DIM, :DIM], expected / scale, rtol=1e-11, atol=1e-13
        )
        assert np.count_nonzero(W_PV) == 1
        assert not np.any(W_KQ[DIM])
        assert not np.any(W_KQ[:, DIM])
        balance = np.sum(np.square(W_PV)) / np.sum(np.square(W_KQ))
        measured("imbalance", balance - 1, below=1e-12)


@pytest.mark.statement("Frei: Theorem 4.1, limit")
@pytest.mark.slow
def test_limit_is_stationary_for_the_whole_layer_without_mask(measured):
    # every prompt of an exact grid through the full matrices, d = N = 2
    rng = np.random.default_rng(0)
    Lam = oracles.random_cov(rng, 2)
    X, y, x, y_query, weights = oracles.prompt_grid(
        2, Lam, np.eye(2), np.zeros(2), 0.0, degrees=(3, 3, 1, 4, 1)
    )
    start = reg.AttentionWeights(0.1, 0.1 * np.eye(2) / 2**0.5)
    end = reg.flow_limit(start, reg.LinearPopulation(Lam), 2)
    limit = [np.asarray(W) for W in end.matrices()]

    def risk(W_PV, W_KQ):
        guess = oracles.attention_prediction(W_PV, W_KQ, X, y, x, masked=False)
        return weights @ (guess - y_query) ** 2

    least = oracles.one_step_risk(np.asarray(end.u * end.U), Lam, np.eye(2), 0.0, 2)
    np.testing.assert_allclose(risk(*limit), least, rtol=1e-12)
    slopes = []
    for change in 1e-4 * np.eye(18).reshape(18, 2, 3, 3):
        ends = [risk(*(np.array(limit) + sign * change)) for sign in (1, -1)]
        slopes.append((ends[0] - ends[1]) / 2e-4)
    measured("largest slope", slopes, below=1e-6)


@pytest.mark.statement("Frei: Theorem 4.5")
def test_optimum_for_random_covariances_is_stationary(measured):
    variances, N = np.array([[1.0, 0.3], [0.4, 2.0], [0.7, 0.1]]), 5

    @jax.jit
    @jax.value_and_grad
    def risk(Gamma, share):
        def one(diagonal):
            problem = reg.LinearPopulation(jnp.diag(diagonal))
            return reg.risk(reg.LinearStep(Gamma), problem, N)

        return share @ jax.vmap(one)(jnp.asarray(variances))

    for probabilities in (None, np.array([0.5, 0.2, 0.3])):
        share = np.ones(3) / 3 if probabilities is None else probabilities
        Gamma = reg.transfer.random_covariance_optimum(variances, N, probabilities)
        value, gradient = risk(Gamma, share)
        measured("slope", gradient, below=1e-14)
        expected = sum(
            s * oracles.one_step_risk(np.asarray(Gamma), np.diag(v), np.eye(2), 0.0, N)
            for s, v in zip(share, variances, strict=True)
        )
        np.testing.assert_allclose(value, expected, rtol=1e-13)
    # one covariance: the limit of the flow; a direction that never varies: 0
    one = reg.transfer.random_covariance_optimum(
        variances, N, np.array([0.0, 1.0, 0.0])
    )
    expected = np.linalg.inv(oracles.gain(np.diag(variances[1]), N))
    np.testing.assert_allclose(one, expected, rtol=1e-12)
    flat = reg.transfer.random_covariance_optimum(
        variances * np.array([1.0, 0.0]), N, None
    )
    assert np.asarray(flat)[1, 1] == 0


# --- the test risk


@jax.jit
def linear_label_risk(Lam, a, noise_var, N, M):
    """Risk of the step trained for N, by any law of labels and by the population."""
    problem = reg.LinearPopulation(Lam, a, jnp.zeros((DIM, DIM)), noise_var)
    moment = Lam @ a
    Sigma = jnp.outer(moment, moment) + (moment @ a + noise_var) * Lam
    step = trained(Lam, N)
    risk = reg.transfer.risk_for_labels(
        step, Lam, M, weight=a, moment_cov=Sigma, least_risk=noise_var
    )
    return risk, Sigma, reg.risk(step, problem, M)


def trained(Lam, N):
    """The limit of training with N examples."""
    return reg.optimum(reg.LinearStep, reg.LinearPopulation(Lam), N).model


@pytest.mark.statement("Frei: Theorem 4.2")
def test_risk_at_another_length_for_linear_labels(measured):
    for seed in range(20):
        rng, Lam, N, M = drawn(seed)
        a, noise_var = rng.normal(size=DIM), rng.uniform() * (seed % 4 > 0)
        Gamma = np.linalg.inv(oracles.gain(Lam, N))
        expected = oracles.one_step_risk(Gamma, Lam, np.outer(a, a), noise_var, M)
        got, Sigma, again = linear_label_risk(Lam, a, noise_var, N, M)
        np.testing.assert_allclose(again, got, rtol=1e-12)
        measured("relative error", got / expected - 1, below=1e-12)
        # the covariance of x y, from Isserlis' theorem with one example
        moment = oracles.feature_second_moment(Lam, np.outer(a, a), noise_var, 1)
        mean = Lam @ a
        np.testing.assert_allclose(
            Sigma, moment - np.outer(mean, mean), rtol=1e-11, atol=1e-12
        )


@pytest.mark.statement("Frei: Theorem 4.2")
@pytest.mark.parametrize("dim", [1, 2])
def test_risk_at_another_length_for_any_law_of_the_labels(dim, measured):
    # y = <b, x> + x'Cx + 1 + noise, integrated exactly over two examples and a query
    rng = np.random.default_rng(dim)
    Lam, N, M, noise_var = oracles.random_cov(rng, dim), 7, 2, 0.3
    b, C = rng.normal(size=dim), rng.normal(size=(dim, dim))
    nodes, weights = oracles.gaussian_grid([5] * (2 * dim) + [2, 2] + [3] * dim + [2])
    *parts, noise = np.split(nodes, [dim, 2 * dim, 2 * dim + 2, 3 * dim + 2], axis=1)
    first, second, query = (
        part @ oracles.root(Lam) for part in (parts[0], parts[1], parts[3])
    )

    def label(x, noise):
        signal = 1 + x @ b + np.einsum("ni,ij,nj->n", x, C, x)
        return signal + np.sqrt(noise_var) * noise

    y_1, y_2 = label(first, parts[2][:, 0]), label(second, parts[2][:, 1])
    y_query = label(query, noise[:, 0])
    Gamma = np.linalg.inv(oracles.gain(Lam, N))
    h = (first * y_1[:, None] + second * y_2[:, None]) / M
    guess = np.einsum("ni,ij,nj->n", h, Gamma, query)
    expected = weights @ (guess - y_query) ** 2
    moment = np.einsum("n,n,ni->i", weights, y_1, first)
    second_moment = np.einsum("n,n,ni,nj->ij", weights, y_1**2, first, first)
    a = np.linalg.solve(Lam, moment)
    got = reg.transfer.risk_for_labels(
        trained(jnp.asarray(Lam), N),
        Lam,
        M,
        weight=a,
        moment_cov=second_moment - np.outer(moment, moment),
        least_risk=weights @ (query @ a - y_query) ** 2,
    )
    measured("relative error", got / expected - 1, below=1e-12)


@jax.jit
def bound_and_risk(Lam, N, M):
    step = reg.LinearStep(
        reg.optimum(reg.GDBeta, reg.LinearPopulation(Lam), N).model.Gamma
    )
    risk = reg.risk(step, reg.LinearPopulation(Lam), M)
    return reg.transfer.risk_at_length_bound(Lam, N, M), risk


@pytest.mark.statement("Frei: Theorem 4.2, corollary")
def test_bound_on_the_average_risk_at_another_length(measured):
    for seed in range(100):
        _, Lam, N, M = drawn(seed)
        bound, risk = bound_and_risk(Lam, N, M)
        trace, kappa = np.trace(Lam), np.linalg.cond(Lam)
        second = (1 + 2 * DIM + DIM**2 * kappa) * trace / N**2
        expected = (DIM + 1) * trace / M + second
        np.testing.assert_allclose(bound, expected, rtol=1e-12)
        measured("risk over the bound", risk / bound)
        assert risk <= bound


@pytest.mark.statement("Frei: Theorem 4.2")
def test_risk_at_another_length_is_differentiable_and_vectorises(measured):
    Lam, a = np.diag([1.0, 0.5, 2.0]), np.ones(DIM)

    def risk(scale):
        return linear_label_risk(scale * Lam, a, 0.1, 5, 9)[0]

    measured("gradient against differences", slope_error(risk, 1.0), below=1e-7)
    lengths = np.array([1, 9, 100])
    one = jax.vmap(lambda M: linear_label_risk(Lam, a, 0.1, 5, M)[0])
    several = np.asarray(jax.jit(one)(lengths))
    np.testing.assert_allclose(several[1], risk(1.0), rtol=1e-13)
    assert np.all(np.diff(several) < 0)


# --- how fast the flow is


@pytest.mark.statement("Frei: Theorem 4.1, convergence")
def test_convergence_constants_know_when_the_start_is_too_large():
    Theta = np.eye(2) / 2**0.25
    assert constants_of(np.eye(2), 4, Theta, 0.5).holds
    assert not constants_of(np.eye(2), 4, Theta, 1.2).holds
