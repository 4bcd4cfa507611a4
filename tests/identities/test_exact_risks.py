"""Exact risks against simulation, closed forms and each other."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icltheory import regression as reg
from icltheory.regression import risk
from icltheory.statistics import Estimate
from tests.derivatives import slope_error
from tests.oracles import z_score
from tests.raising import raises
from tests.regression import oracles

averaging_risk = functools.partial(risk, reg.Averaging())
least_squares_risk = functools.partial(risk, reg.LeastSquares())
best_step = functools.partial(reg.optimum, reg.LinearStep)


zero_risk = functools.partial(risk, reg.Zero(), num_examples=0)


def step_risk(task, k, Gamma):
    return risk(reg.LinearStep(Gamma), task, k)


def step_size(task, k):
    return reg.optimum(reg.Steps(1), task, k).model.step_sizes[0]


garg = functools.partial(reg.LinearPopulation.isotropic, 20)


def full_task(noise_var=0.5, seed=1, dim=3):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, dim, dim))
    return reg.LinearPopulation(A @ A.T, rng.normal(size=dim), C @ C.T, noise_var)


def simulate(predictor, task, num_prompts, num_examples):
    sizes = {"key": jax.random.key(0), "num_prompts": num_prompts, "prefixes": True}
    return Estimate.of(reg.squared_errors(predictor, task, num_examples, **sizes))


def assert_agree(measured, found, exact, prefixes=slice(None), name="z"):
    mean, error = np.asarray(found.mean), np.asarray(found.standard_error)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = ((mean - np.asarray(exact)) / error)[prefixes]
    measured(f"largest {name}", z, below=5)


# --- closed forms of the isotropic case


@pytest.mark.statement("Garg: least squares")
@pytest.mark.slow
def test_least_squares_averaging_and_one_layer_attention_for_d_20(measured):
    k, task = np.arange(1, 41), garg()

    def curve(risk):
        return np.asarray(jax.jit(jax.vmap(lambda n: risk(task, n)))(k)) / 20

    exact = np.maximum(1 - k / 20, 0)
    measured("error, least squares", curve(least_squares_risk) - exact, below=1e-14)
    mean = curve(averaging_risk)
    measured("relative error, averaging", mean / (21 / k) - 1, below=1e-12)
    best = curve(lambda task, n: best_step(task, n).risk)
    measured("one layer", best / (21 / (k + 21)) - 1, below=1e-12)
    assert zero_risk(task) == 20.0
    # Garg's training loss of least squares over 41 points
    total = 20 + curve(least_squares_risk).sum() * 20
    np.testing.assert_allclose(total / 41, 210 / 41, rtol=1e-12)


@pytest.mark.statement("Garg: averaging", "Zhang: Theorem 5.2 (one layer)")
def test_noise_enters_attention_and_averaging_as_d_plus_1_plus_sigma_squared(measured):
    assert zero_risk(reg.LinearPopulation.isotropic(20, 0.25)) == 20.25
    for d, noise in ((1, 0.0), (3, 0.7)):
        task = reg.LinearPopulation.isotropic(d, noise)
        for k in (1, 5, 30):
            best = best_step(task, k)
            shrink = k / (k + d + 1 + noise)
            np.testing.assert_allclose(best.model.Gamma, shrink * np.eye(d), atol=1e-14)
            expected = d * (1 - shrink) + noise
            measured("relative error", best.risk / expected - 1, below=1e-12)
            np.testing.assert_allclose(step_size(task, k), shrink, rtol=1e-12)
            expected = d * (d + 1 + noise) / k + noise
            np.testing.assert_allclose(averaging_risk(task, k), expected)


# --- simulation


@pytest.mark.statement("Garg: least squares", "Garg: averaging")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("predictor", "exact"),
    [
        (reg.LeastSquares(), least_squares_risk),
        (reg.Averaging(), averaging_risk),
        (reg.Zero(), lambda task, k: zero_risk(task)),
    ],
)
def test_simulation_agrees_for_least_squares_averaging_and_zero_at_d_20(
    predictor, exact, measured
):
    found = simulate(predictor, garg(), 2000, 40)
    curve = jax.jit(jax.vmap(functools.partial(exact, garg())))(np.arange(41))
    exact_fit = predictor == reg.LeastSquares()
    random = slice(0, 20) if exact_fit else slice(None)
    assert_agree(measured, found, curve, random)
    if exact_fit:
        np.testing.assert_allclose(np.asarray(found.mean)[20:], 0, atol=1e-10)


@pytest.mark.statement("Garg: least squares")
@pytest.mark.slow
def test_least_squares_with_noise_below_and_above_d(measured):
    task = reg.LinearPopulation(0.5 * np.eye(6), np.ones(6), 2 * np.eye(6), 0.3)
    found = simulate(reg.LeastSquares(), task, 8000, 30)
    exact = jax.jit(jax.vmap(functools.partial(least_squares_risk, task)))
    exact = np.asarray(exact(np.arange(31)))
    # within 4 of d the squared error has no variance, so no z-score
    assert_agree(measured, found, np.array(exact), slice(0, 3), "z below d")
    assert_agree(measured, found, np.array(exact), slice(11, None), "z above d")
    assert np.all(np.isinf(exact[5:8]))
    assert np.isclose(exact[8], 0.3 * 6 + 0.3)
    assert np.isclose(exact[0], 0.5 * (12 + 6) + 0.3)


@pytest.mark.statement("Garg: least squares")
def test_least_squares_beyond_d_is_the_same_for_every_input_covariance(measured):
    task = full_task(0.5)
    exact = least_squares_risk(task, 12)
    np.testing.assert_allclose(exact, 0.5 * 3 / 8 + 0.5, rtol=1e-12)
    drawn = {"key": jax.random.key(0), "num_prompts": 4000}
    average = reg.estimate_risk(reg.Ridge(0.0), task, 12, **drawn)
    measured("z", (average.mean - exact) / average.standard_error, below=5)
    # without full rank the rank stands in place of d
    for rank, share in ((2, 2 / 9), (1, 1 / 10), (0, 0.0)):
        H = np.diag([2.0, 0.5, 1.0] * (np.arange(3) < rank))
        flat = reg.LinearPopulation(H, np.ones(3), np.eye(3), 0.5)
        found = least_squares_risk(flat, 12)
        np.testing.assert_allclose(found, 0.5 * share + 0.5, rtol=1e-12)
    # and is not below d: the restriction to multiples of the identity is needed
    with raises("population: expected isotropic inputs where num_examples < dim"):
        least_squares_risk(task, 2)
    skewed = reg.LinearPopulation(np.diag([4.0, 1.0, 0.1]), np.zeros(3), np.eye(3), 0.0)
    average = reg.estimate_risk(reg.Ridge(0.0), skewed, 1, **drawn)
    isotropic = float(zero_risk(skewed)) * (1 - 1 / 3)
    measured("below d, other covariance: share", average.mean / isotropic)
    assert average.mean + 20 * average.standard_error < isotropic


@pytest.mark.statement("Zhang: Section 5 (one layer)")
@pytest.mark.slow
def test_attention_and_averaging_for_any_population(measured):
    task = full_task(0.5)
    exact = jax.jit(jax.vmap(lambda k, Gamma: step_risk(task, k, Gamma), (0, None)))
    counts = np.arange(10)
    for Gamma in (np.eye(3), 0.3 * np.random.default_rng(2).normal(size=(3, 3))):
        found = simulate(reg.Steps([1.0], Gamma), task, 20_000, 9)
        assert_agree(measured, found, exact(counts, Gamma))
    noisy = jax.jit(jax.vmap(functools.partial(averaging_risk, task)))(counts)
    np.testing.assert_allclose(noisy, exact(counts, np.eye(3)), rtol=1e-12)


@pytest.mark.statement("Zhang: Section 5 (one layer)")
def test_the_risk_of_a_fixed_preconditioner_is_also_that_of_other_lengths(measured):
    # a matrix tuned for k = 4 and used at k = 9 is worse than one tuned for 9
    task = full_task(0.5)
    best = [best_step(task, k) for k in (4, 9)]
    used = risk(best[0].model, task, 9)
    measured("excess of the matrix of k = 4 at k = 9", used / best[1].risk - 1)
    assert best[1].risk < used < best[0].risk


# --- the optimum of one layer


@pytest.mark.statement("Zhang: Theorem 5.2 (one layer)")
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.sampled_from([1, 4, 50]))
def test_the_optimum_of_one_layer_is_stationary_and_has_the_stated_risk(
    seed, k, measured
):
    rng = np.random.default_rng(seed)
    A, C = rng.normal(size=(2, 3, 3))
    H, Psi = A @ A.T, C @ C.T
    given = H, rng.normal(size=3), Psi, rng.uniform(), k, rng.normal(size=(3, 3))
    least, gradient, at, near, slope = _optimum(*given)
    scale = np.abs(H).max() ** 2 * np.abs(Psi).max() + 1
    measured("gradient at the optimum", np.abs(gradient).max() / scale)
    measured("relative error of its risk", at / least - 1, below=1e-9)
    np.testing.assert_allclose(gradient, 0, atol=1e-9 * scale)
    assert near >= least * (1 - 1e-12)
    np.testing.assert_allclose(slope, 0, atol=1e-9 * scale)


@jax.jit
def _optimum(H, mean, Psi, noise, k, direction):
    task = reg.LinearPopulation(H, mean, Psi, noise)
    best = best_step(task, k)
    of, Gamma = functools.partial(step_risk, task, k), best.model.Gamma
    slope = jax.grad(lambda e: of(e * jnp.eye(3)))(step_size(task, k))
    near = of(Gamma + 0.01 * direction)
    return best.risk, jax.grad(of)(Gamma), of(Gamma), near, slope


@pytest.mark.statement("Zhang: Theorem 5.2 (one layer)")
@pytest.mark.slow
def test_the_optimum_also_for_singular_covariances_and_without_examples():
    H, Psi = np.diag([2.0, 0.0, 1.0]), np.diag([0.0, 1.0, 3.0])
    task = reg.LinearPopulation(H, np.zeros(3), Psi, 0.1)
    best = best_step(task, 7)
    one = reg.LinearPopulation(np.eye(1), np.zeros(1), 3 * np.eye(1), 0.1)
    np.testing.assert_allclose(best.risk, best_step(one, 7).risk, rtol=1e-12)
    none = best_step(task, 0)
    np.testing.assert_array_equal(none.model.Gamma, np.zeros((3, 3)))
    np.testing.assert_allclose(none.risk, zero_risk(task), rtol=1e-12)
    assert step_size(task, 0) == 0
    np.testing.assert_allclose(averaging_risk(task, 0), zero_risk(task), rtol=1e-12)


# --- all of them


@pytest.mark.statement("Zhang: Section 5 (one layer)")
@pytest.mark.slow
def test_exact_risks_are_differentiable_and_vectorise(key, measured):
    def total(noise):
        task = reg.LinearPopulation.isotropic(3, noise)
        X = jax.random.normal(key, (4, 3))
        risks = jax.vmap(lambda k: averaging_risk(task, k))(jnp.arange(1, 5))
        return (
            risks.sum()
            + best_step(task, 4).risk
            + reg.Ridge(0.3).risk_given(task, X)
            + reg.Bayes(task).risk_given(task, X)
            + reg.Bayes(task).risks_given(task, X).sum()
        )

    measured("gradient against differences", slope_error(total, 0.5), below=1e-6)


# --- ridge and Bayes given the inputs, and their averages


def ridge_given(task, X, penalty):
    """Risk given the inputs, without the noise of the query."""
    return reg.Ridge(penalty).risk_given(task, jnp.asarray(X))


def bayes_given(task, X):
    return reg.Bayes(task).risk_given(task, jnp.asarray(X))


def bayes_curve(task, num_prompts, num_examples, seed=0):
    """Bayes risks after 0, ..., N examples, with the noise of the query."""
    drawn = {"key": jax.random.key(seed), "num_prompts": num_prompts}
    return reg.estimate_risk(reg.Bayes(task), task, range(num_examples + 1), **drawn)


@pytest.mark.statement("Hastie: Lemma 1")
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), penalty=st.sampled_from([0.01, 1.0, 30.0]))
def test_ridge_given_inputs_is_the_expansion_in_weight_and_noise(
    seed, penalty, measured
):
    rng = np.random.default_rng(seed)
    task = full_task(0.5, seed % 1000)
    parts = [np.asarray(a) for a in (task.input_cov, task.task_mean, task.task_cov)]
    for num in (2, 6):
        X = rng.normal(size=(num, 3))
        expected = oracles.ridge_risk_given(X, penalty, *parts, 0.5)
        got = ridge_given(task, X, penalty)
        measured("relative error", got / expected - 1, below=1e-9)


@pytest.mark.statement("Hastie: Lemma 1")
@pytest.mark.slow
def test_ridge_given_inputs_agrees_with_simulation(measured):
    task = full_task(0.5)
    X = np.random.default_rng(0).normal(size=(5, 3))

    @jax.jit
    def errors(key):
        prompt = task.sample(key, 4, 40_000)
        noise = prompt.y[:, :4] - jnp.einsum("bnd,bd->bn", prompt.X, prompt.w)
        rows = jnp.broadcast_to(X[:4], (40_000, 4, 3))
        y = jnp.einsum("nd,bd->bn", X[:4], prompt.w) + noise
        rows = jnp.concatenate([rows, prompt.x_query[:, None]], axis=1)
        y = jnp.concatenate([y, prompt.y_query[:, None]], axis=1)
        predictions = jax.vmap(reg.Ridge(0.7).predict_prefixes)(rows, y)
        return (predictions[:, -1] - prompt.y_query) ** 2

    exact = ridge_given(task, X[:4], 0.7) + 0.5
    measured("z", z_score(errors(jax.random.key(0)), exact), below=5)


@pytest.mark.statement("Zhang: Lemma 6.1")
def test_bayes_given_inputs_is_ridge_with_the_right_penalty_and_the_least_of_all(
    measured,
):
    task = reg.LinearPopulation(full_task().input_cov, noise_var=0.6)
    for X in np.random.default_rng(0).normal(size=(2, 5, 3)):
        best = bayes_given(task, X)
        measured("relative error", best / ridge_given(task, X, 0.6) - 1, below=1e-12)
        for penalty in (0.0, 0.3, 0.59, 0.61, 2.0):
            assert ridge_given(task, X, penalty) > best


@pytest.mark.statement("Zhang: Lemma 6.1")
def test_bayes_given_inputs_has_its_slope_in_them():
    H, Psi = np.array([[2, 0.5], [0.5, 1]]), np.array([[1, 0.2], [0.2, 0.5]])
    task = reg.LinearPopulation(H, np.array([1.0, -2.0]), Psi, 0.25)
    X = np.array([[1.0, 0], [0, 1], [1, -1]])
    assert abs(slope_error(lambda X: bayes_given(task, X), X, step=1e-5)) < 1e-7


@pytest.mark.statement("Zhang: Lemma 6.1")
def test_bayes_risks_of_all_prefixes_are_those_of_each(measured):
    X = np.random.default_rng(0).normal(size=(2, 7, 3))
    X[1, 2] = X[1, 0]
    singular = reg.LinearPopulation(np.eye(3), None, np.diag([1.0, 2.0, 0.0]), 0.4)
    exact = reg.LinearPopulation(np.eye(3), None, np.diag([1.0, 2.0, 3.0]))
    paths = jax.jit(jax.vmap(lambda t, X: reg.Bayes(t).risks_given(t, X), (None, 0)))
    for task in (full_task(0.5), singular, exact):
        path = np.asarray(paths(task, X))
        for k, b in itertools.product((0, 1, 3, 6), (0, 1)):
            one = bayes_given(task, X[b, :k])
            measured("error", path[b, k] - one)
            np.testing.assert_allclose(path[b, k], one, rtol=1e-9, atol=1e-12)
    # a traced zero noise is the limit as well
    known = jax.jit(jax.vmap(lambda X: reg.Bayes(exact).risks_given(exact, X)))(X)
    np.testing.assert_allclose(known, path, atol=1e-9)


@pytest.mark.statement("Raventos: ridge baseline")
def test_the_published_ridge_curve(measured):
    # d = 8, sigma^2 = 1/4, errors against noiseless labels, over d, k = 0..15
    reference = np.array(
        [1.00, 0.875, 0.760, 0.658, 0.528, 0.426, 0.332, 0.242]
        + [0.180, 0.132, 0.0995, 0.0771, 0.0622, 0.0516, 0.0434, 0.0380]
    )
    task = reg.LinearPopulation.isotropic(8, 0.25)
    curve = (np.asarray(bayes_curve(task, 4000, 15).mean) - 0.25) / 8
    measured("largest relative difference", curve / reference - 1, below=0.03)
    assert abs(curve.mean() - 0.3445) < 0.004


@pytest.mark.statement("Bai: ridge baselines")
def test_the_published_ridge_risks_of_transformers_as_statisticians(measured):
    # d = n = 20, w ~ N(0, I / 20), penalty d sigma^2
    for sigma, expected in ((0.1, 0.103), (0.25, 0.229), (0.5, 0.398), (1.0, 0.622)):
        task = reg.LinearPopulation(np.eye(20), np.zeros(20), np.eye(20) / 20, sigma**2)
        drawn = {"key": jax.random.key(0), "num_prompts": 1000}
        risk = reg.estimate_risk(reg.Ridge(20 * sigma**2), task, 20, **drawn)
        off = risk.mean - sigma**2 - expected
        measured("difference", off, below=5e-4 + 5 * risk.standard_error)


@pytest.mark.statement("Zhang: Section 5 (one layer)", "Zhang: Lemma 6.1")
def test_impossible_risks_say_what_was_expected(key):
    task, below = full_task(), "num_examples: expected a whole number >= 0, got -1"
    for run, message in (
        (lambda: averaging_risk(task, -1), below),
        (lambda: best_step(task, -1), below),
        (
            lambda: step_risk(task, 4, np.eye(2)),
            "Gamma: expected shape (3, 3), got (2, ",
        ),
        (
            lambda: reg.estimate_risk(reg.Bayes(task), task, 3, key=key, num_prompts=0),
            "num_prompts: expected a positive integer, got 0",
        ),
        (
            lambda: reg.estimate_risk(reg.Ridge(0.1), task, -1, key=key),
            "num_examples: expected an integer >= 0, got -1",
        ),
    ):
        with raises(message):
            run()
