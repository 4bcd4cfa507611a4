"""Lemmas 2 to 6 and equations (16) and (17): the information side of Theorem 2."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from icltheory import bounds


def gaussian(d, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d))
    return rng.normal(size=d), A @ A.T + 0.1 * np.eye(d)


@pytest.mark.statement("Yao: Lemma 2", "Yao: Section 3.1, error")
def test_lemma_2_bounds_the_error_of_the_sample_mean_learner(measured):
    # W is one of the N samples: with labels +-1 and loss 1[w != z] everything is exact.
    # Population loss 1/2; the training loss of W = z_1 is (N - 1) / (2 N).
    for N in (1, 2, 10, 100):
        error = 0.5 - (N - 1) / (2 * N)
        information = math.log(2)  # W = z_1 tells one fair bit
        bound = float(bounds.xu_raginsky(information, N, 0.5))
        assert bound >= error
    measured(
        "error / bound at N = 1", 0.5 / float(bounds.xu_raginsky(math.log(2), 1, 0.5))
    )


@pytest.mark.statement("Yao: Lemma 2", "Yao: Section 3.1, error")
def test_lemma_2_is_tight_in_R_for_gaussian_losses(measured):
    # l(w, z) = w z with z ~ N(0, R^2) given |w| = 1: w = sign of the sum maximises the
    # correlation; error E max over two hypotheses = R E|N(0, 1/N)|, I = log 2
    for N in (1, 5, 50):
        error = 2.0 * math.sqrt(2 / (math.pi * N))
        assert error <= float(bounds.xu_raginsky(math.log(2), N, 2.0))
    assert np.isinf(bounds.xu_raginsky(math.inf, 10, 1.0))
    ratio = math.sqrt(2 / math.pi) / math.sqrt(2 * math.log(2))
    measured("error / bound, two hypotheses", ratio)


@pytest.mark.statement("Yao: Lemma 2", "Yao: Section 3.1, error")
def test_lemma_2_needs_sub_gaussian_losses(measured):
    # The squared error of Gaussian data has an infinite moment generating function, so
    # no R serves; clipped to [0, 2] it has R = 1 by Hoeffding.
    x = np.linspace(0, 200, 20001)
    density = stats.chi2(1).pdf(x[1:])
    with np.errstate(over="ignore"):
        partial = np.cumsum(np.exp(0.6 * x[1:]) * density) * (x[1] - x[0])
    measured("partial moment at 200 over that at 100", partial[-1] / partial[9999])
    assert partial[-1] > 1e3 * partial[9999]  # it diverges
    rng = np.random.default_rng(0)
    clipped = np.minimum(rng.normal(size=100_000) ** 2, 2)
    for s in (-3.0, -1.0, 1.0, 3.0):
        moment = np.mean(np.exp(s * (clipped - clipped.mean())))
        assert math.log(moment) <= s**2 / 2


def chain_information(a, g, c_1, c_2):
    """I(W_2; S) and the two conditional informations, all in closed form.

    W_1 = g S + sqrt(c_1) N_1 and W_2 = W_1 + a (S - W_1) + sqrt(c_2) N_2.
    """
    gain = (1 - a) * g + a
    total = gain**2 + (1 - a) ** 2 * c_1 + c_2
    end = -0.5 * math.log(1 - gain**2 / total)
    first = 0.5 * math.log(1 + g**2 / c_1)
    left = c_1 / (g**2 + c_1)  # variance of S given W_1
    second = 0.5 * math.log(1 + a**2 * left / c_2)
    return end, first, second


@pytest.mark.statement("Yao: Lemma 3", "Yao: Eqs. (14)-(15)")
def test_lemma_3_information_of_the_end_is_below_the_sum_over_the_path(measured):
    rng = np.random.default_rng(0)
    slack = []
    for _ in range(200):
        a, g = rng.uniform(-1.5, 1.5, 2)
        c_1, c_2 = rng.uniform(0.05, 2, 2)
        end, first, second = chain_information(a, g, c_1, c_2)
        bound = float(bounds.trajectory_information(jnp.array([2 * first, 2 * second])))
        slack.append(bound - end)
    measured("least slack over 200 linear-Gaussian chains", min(slack))
    assert min(slack) >= -1e-12


@pytest.mark.statement("Yao: Lemma 3")
def test_lemma_3_needs_fresh_noise(measured):
    # W_1 = S + sqrt(c) N_1. A second step that hands its noise back, W_2 = S, is as
    # noisy as one with noise of its own, but tells all of S. In terms of (S, N_1, N_2):
    c = 1.0
    first, root = 0.5 * math.log(1 + 1 / c), math.sqrt(c)
    claimed = float(bounds.trajectory_information(jnp.array([2 * first, 2 * first])))

    def left(W_2):  # variance of S given W_1 and W_2
        W = np.array([[1.0, root, 0.0], W_2])
        return 1 - W[:, 0] @ np.linalg.solve(W @ W.T, W[:, 0])

    of_its_own, handed_back = left([1.0, root, -root]), left([1.0, 0.0, 0.0])
    measured("information, noise of its own", -0.5 * math.log(of_its_own))
    measured("claimed bound", claimed)
    measured("variance left, noise handed back", handed_back)
    assert -0.5 * math.log(of_its_own) <= claimed
    assert handed_back < 1e-14  # and the information is infinite


@pytest.mark.statement("Yao: Lemma 4")
def test_lemma_4_golden_formula(measured):
    rng = np.random.default_rng(0)
    p, Q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(4), 6)
    q = p @ Q
    information = np.sum(p[:, None] * Q * np.log(Q / q))
    errors = []
    for _ in range(50):
        P = rng.dirichlet(np.ones(4))
        left = np.sum(p[:, None] * Q * np.log(Q / P))
        excess = np.sum(q * np.log(q / P))
        errors.append(abs(left - information - excess))
        assert left >= information
    measured("error of E KL(Q||P) = I + KL(Q_Y||P)", max(errors), below=1e-12)


@pytest.mark.statement("Yao: Lemma 5")
def test_lemma_5_any_prior_bounds_and_the_marginal_is_best(measured):
    # G ~ N(0, 1), noise c: the marginal prior N(0, 1 + c) attains the information
    for c in (1.0, 0.1, 0.01):
        information = 0.5 * math.log(1 + 1 / c)

        def divergence(variance, c=c):  # average of KL(N(G, c) || N(0, variance))
            return 0.5 * (math.log(variance / c) - 1 + (1 + c) / variance)

        best = optimize.minimize_scalar(divergence, bounds=(1e-3, 10), method="bounded")
        assert abs(best.fun - information) < 1e-9
        assert abs(best.x - (1 + c)) < 1e-3
    measured("information reached by the best prior, c = 0.01", best.fun)


@pytest.mark.statement("Yao: Eq. (16)")
def test_eq_16_is_the_divergence_of_two_gaussians(measured):
    (mu, C), (g, S) = gaussian(4, 0), gaussian(4, 1)
    value = float(bounds.gaussian_kl(mu, C, g, S))
    rng = np.random.default_rng(2)
    x = rng.multivariate_normal(mu, C, 100_000)
    ratio = stats.multivariate_normal(mu, C).logpdf(x)
    ratio -= stats.multivariate_normal(g, S).logpdf(x)
    z = (ratio.mean() - value) / (ratio.std() / math.sqrt(len(x)))
    measured("z-score against Monte Carlo", z, below=5)
    inverse = np.linalg.inv(S)
    closed = 0.5 * (
        np.linalg.slogdet(S)[1]
        - np.linalg.slogdet(C)[1]
        - 4
        + np.trace(inverse @ (C + np.outer(mu - g, mu - g)))
    )
    assert abs(value / closed - 1) < 1e-12
    assert np.isinf(bounds.gaussian_kl(mu, np.diag([1.0, 1.0, 1.0, 0.0]), g, S))


@pytest.mark.statement("Yao: Eq. (17)")
def test_eq_17_best_isotropic_variance(measured):
    mu, C = gaussian(5, 3)
    A_1 = float(mu @ mu + np.trace(C))
    best = float(bounds.optimal_prior_variance(A_1, 5))

    def kl(variance):
        return float(bounds.gaussian_kl(mu, C, np.zeros(5), variance * np.eye(5)))

    log_det = np.linalg.slogdet(C)[1]
    term = float(bounds.isotropic_term(mu @ mu, np.trace(C), log_det, 5))
    measured("(17) against (16)", kl(best) - term / 2, below=1e-12)
    assert kl(0.9 * best) > kl(best) < kl(1.1 * best)
    assert abs(jax.grad(lambda v: A_1 / v + 5 * jnp.log(v))(best)) < 1e-12


@pytest.mark.statement("Yao: Eq. (16)")
def test_eq_16_expectation_is_over_demonstrations_given_the_weights(measured):
    # S = tau e with tau in {0, 1}, W_1 reveals tau, and G_2 = tau S with noise c.
    # I(G_2; S | W_1) is 1/2 of the information at tau = 1. Fresh demonstrations have
    # E[(tau' e)^2] = 1/2 whatever W_1 says, so their variance is too small at tau = 1.
    c = 0.1
    truth = 0.25 * math.log(1 + 1 / c)
    fresh = 0.25 * float(bounds.isotropic_term(0.5, c, math.log(c), 1))
    joint = 0.25 * float(bounds.isotropic_term(1.0, c, math.log(c), 1))
    measured("truth", truth)
    measured("'bound' with fresh demonstrations", fresh, below=truth - 0.1)
    assert joint >= truth - 1e-12


@pytest.mark.statement("Yao: Lemma 6, first line", "Yao: Lemma 6, second line")
@pytest.mark.parametrize("c", [1.0, 0.1, 0.01])
def test_lemma_6_first_line_holds_and_the_second_is_smaller_than_the_truth(c, measured):
    # d = 1, G ~ N(0, 1), C = c: the information is 1/2 log(1 + 1/c)
    x, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    truth = 0.5 * math.log(1 + 1 / c)
    outside = 0.5 * float(bounds.isotropic_term(1.0, c, math.log(c), 1))
    inside = 0.5 * float(weights @ bounds.isotropic_term(x**2, c, math.log(c), 1))
    measured("information", truth)
    measured("logarithm inside the expectation", inside)
    assert outside >= truth - 1e-12
    assert inside < truth - 0.05
    bound = float(
        bounds.bound_from_expectations(
            jnp.array([1 + c]), jnp.array([math.log(c)]), 1, 10, 1.0
        )
    )
    assert abs(bound - math.sqrt(2 * outside / 10)) < 1e-12


@pytest.mark.statement("Yao: Lemma 6, first line")
def test_lemma_6_best_prior_is_anisotropic(measured):
    rng = np.random.default_rng(0)
    G = rng.normal(size=(400, 3)) * np.array([3.0, 1.0, 0.2])
    C = np.diag([0.5, 0.3, 0.1])
    Sigma = C + np.cov(G.T, bias=True)
    centred = G - G.mean(axis=0)
    term = jax.jit(jax.vmap(bounds.anisotropic_term, (0, None, None)))
    best = float(term(centred, C, Sigma).mean())
    A_1 = np.mean(np.sum(centred**2, 1)) + np.trace(C)
    log_det = np.linalg.slogdet(C)[1]
    isotropic = float(bounds.isotropic_term(A_1, 0.0, log_det, 3))
    measured("anisotropic over isotropic", best / isotropic)
    assert abs(best - (np.linalg.slogdet(Sigma)[1] - log_det)) < 1e-10
    assert best < isotropic
    for factor in (0.9, 1.1):
        assert float(term(centred, C, factor * Sigma).mean()) > best


@pytest.mark.statement("Yao: Eq. (16)")
def test_eq_16_is_infinite_where_most_of_the_noise_is_rounding():
    C = np.diag([1e-20, 1e-20, 1.0])
    assert np.isinf(bounds.anisotropic_term(np.zeros(3), C, np.eye(3)))
