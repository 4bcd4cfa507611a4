"""Theorem 2 as printed and as corrected."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.bounds import (
    anisotropic_bound,
    bound_from_expectations,
    held_out_bound,
    held_out_term,
    isotropic_bound,
    isotropic_term,
    log_inside_bound,
    noisy_steps,
    printed_bound,
    xu_raginsky,
)
from icltheory.constructions import gradient_descent
from icltheory.noise import noisy_trajectory
from icltheory.trajectory import implicit_gd, implicit_gd_norms
from tests import oracles, stacks, theory_cases
from tests.derivatives import slope_error
from tests.raising import raises


def problem(L=3, N=64, n=4, seed=0, rho=0.3, prompts=None):
    stack, H, _ = stacks.problem(L, N, n, seed, rho)
    if prompts is not None:
        H = np.random.default_rng(seed + 1).normal(size=(prompts, N, n))
    return stack, H


def corrected(stack, H, shots, **options):
    return isotropic_bound(noisy_steps(stack, H, shots, **options), 1.0)


def dense_term(stack, H, shots, t, jitter=0.0, ambient=False):
    """The term from the n^2 x n^2 covariance."""
    g = stacks.gradients(stack, H)[t]
    C = oracles.noise_covariance(g, shots)
    values = np.linalg.eigvalsh(C)[::-1]
    n = H.shape[1]
    d = n * n if ambient else min(len(H) - 1, n * (n + 1) // 2)
    values = values[:d] + jitter
    return d * np.log((np.sum(g.sum(axis=0) ** 2) + values.sum()) / d) - np.sum(
        np.log(values)
    )


@pytest.mark.statement("Yao: Theorem 2 (as printed)", "Yao: Lemma 6, second line")
def test_theorem_2_as_printed_is_below_the_true_error(measured):
    # N = 1, h = +-1, L = 1, G = 0, C = c(h) 1 in 200 dimensions, c in {1, 4}: the size
    # of W tells h, and the learner that reads it never errs on the training sample.
    d, c = 200, np.array([1.0, 4.0])
    rng = np.random.default_rng(0)
    h = rng.integers(0, 2, 20_000)
    size = c[h] * rng.chisquare(d, len(h)) / d
    training_error = np.mean((size > 2) != (h == 1))
    error = 0.5 - training_error  # on a fresh sample it is a coin toss
    trace, log_det = d * c, d * np.log(c)
    printed = float(np.mean(isotropic_term(0.0, trace, log_det, d)))
    printed = float(xu_raginsky(max(printed, 0) / 2, 1, 0.5))
    means = np.array([[trace.mean()], [log_det.mean()], [d]])
    corrected = float(bound_from_expectations(*means, 1, 0.5))
    measured("true error", error)
    measured("printed bound", printed)
    measured("corrected bound", corrected)
    assert error > 0.49
    assert printed < 1e-6
    assert corrected > error


@pytest.mark.statement("Yao: Theorem 2 (as printed)")
@pytest.mark.parametrize("N", [5, pytest.param(64, marks=pytest.mark.slow)])
def test_theorem_2_as_printed_is_infinite_for_every_prompt(N, measured):
    stack, H = problem(N=N)
    bound = printed_bound(noisy_steps(stack, H, N // 2), 1.0)
    assert np.isinf(bound.value)
    assert bool(bound.vacuous)
    assert "singular in the ambient space" in bound.reason
    assert not bound.is_bound
    measured("printed bound", bound.value)


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.parametrize(
    ("N", "n", "seed"),
    [
        (9, 4, 0),
        pytest.param(64, 4, 1, marks=pytest.mark.slow),
        pytest.param(30, 3, 2, marks=pytest.mark.slow),
    ],
)
def test_theorem_2_corrected_equals_its_dense_evaluation(N, n, seed, measured):
    stack, H = problem(N=N, n=n, seed=seed)
    rank = min(N - 1, n * (n + 1) // 2)
    for jitter, ambient in ((0.0, False), (1e-3, True), (1e-2, True)):
        if rank < n * (n + 1) // 2 and not ambient:
            continue
        steps = noisy_steps(stack, H, 4)
        bound = isotropic_bound(
            steps.ambient().jittered(jitter) if ambient else steps, 1.0
        )
        dense = [dense_term(stack, H, 4, t, jitter, ambient) for t in range(3)]
        error = np.asarray(bound.terms) / dense - 1
        measured("relative error of T_t", error, below=1e-10)
        assert abs(bound.value - math.sqrt(sum(dense) / N)) < 1e-9


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        isotropic_bound,
        functools.partial(anisotropic_bound, center="mean"),
        functools.partial(held_out_bound, held_out=10),
    ],
    ids=["isotropic", "anisotropic", "held_out"],
)
def test_theorem_2_gradient_where_weights_are_singular(form):
    # those of gradient descent are, and the basis of their support is not unique
    stack = gradient_descent(jnp.array([0.5, 0.5]), d_in=2)
    H = np.random.default_rng(0).normal(size=(3, 20, 3))

    def value(H):
        return form(noisy_steps(stack, H, 8, scale=1 / 20), 1.0).value

    assert abs(slope_error(value, H, step=1e-5)) < 1e-6


@pytest.mark.slow
@pytest.mark.statement("Yao: Theorem 2 (corrected)")
def test_theorem_2_gradient_does_not_depend_on_the_scale_of_singular_weights():
    # T_t stays as it is if W_V, the prior's mean and the root of its covariance grow
    # alike; the basis of the support turns with the weights, and the prior does not.
    rng = np.random.default_rng(0)
    V, K, Q, turn = rng.normal(size=(4, 1, 3, 3))
    V[:, 2], turn[:, 2] = 0, 0
    H, root = jnp.asarray(rng.normal(size=(2, 12, 3))), rng.normal(size=(9, 9))
    center = rng.normal(size=(1, 3, 3))

    @jax.jit
    def value(angle, size):
        stack = LinearAttentionStack(size * (V + angle * turn), K, Q)
        prior = size**2 * (root @ root.T)
        choice = {"center": size * center, "prior": lambda layer, W: prior}
        return anisotropic_bound(noisy_steps(stack, H, 5), 1.0, **choice).value

    slope = jax.jit(jax.grad(value))
    found = np.array([slope(0.0, size) for size in (1.0, 1e-9, 1e9)])
    ends = value(1e-5, 1.0), value(-1e-5, 1.0)
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-5, rtol=1e-7)


@pytest.mark.statement("Yao: Theorem 2 (as printed)")
@pytest.mark.slow
def test_theorem_2_numerators_are_a_ladder_and_the_printed_one_loses_n(measured):
    stack, H = problem()
    steps = noisy_steps(stack, H, 32)
    exact, spectral, frobenius = (
        np.asarray(isotropic_bound(one, 1.0).terms)
        for one in (steps, steps.norm_product("spectral"), steps.norm_product())
    )
    assert np.all(exact <= spectral + 1e-9)
    assert np.all(spectral <= frobenius + 1e-9)
    assert abs(exact[0] - spectral[0]) < 1e-9  # 1 + W_0 is the identity
    norms = implicit_gd_norms(stack, H)
    norms = jax.tree.map(np.asarray, norms)
    loss = (norms.delta_W[0] * norms.one_plus_W[0] / norms.G[0]) ** 2
    measured("|dW_1|^2 |1|_F^2 / |G_1|^2, n = 4", loss)
    assert abs(loss - 4) < 1e-12
    trace = float(stacks.spectrum(stack, H, 32).trace[0])
    shift = 10 * np.log((4 * norms.G[0] ** 2 + trace) / (norms.G[0] ** 2 + trace))
    assert abs(frobenius[0] - exact[0] - shift) < 1e-9


@pytest.mark.statement("Yao: Theorem 2 (as printed)")
@pytest.mark.slow
def test_theorem_2_logarithm_inside_is_smaller(measured):
    stack, H = problem(prompts=20)
    steps = noisy_steps(stack, H, 32)
    outside, inside = isotropic_bound(steps, 1.0), log_inside_bound(steps, 1.0)
    measured("inside over outside", inside.value / outside.value)
    assert np.all(inside.terms < outside.terms)
    assert "the logarithm stands outside the expectation" in inside.failing
    each = [corrected(stack, one, 32).terms for one in H]
    np.testing.assert_allclose(inside.terms, np.mean(each, axis=0), rtol=1e-12)


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
def test_theorem_2_jitter_diverges_like_the_missing_dimensions(measured):
    stack, H = problem(N=9)
    trace = float(stacks.spectrum(stack, H, 4).trace[0])
    steps = noisy_steps(stack, H, 4).ambient()
    terms = [
        float(isotropic_bound(steps.jittered(e * trace / 16), 1.0).terms[0])
        for e in (1e-8, 1e-10)
    ]
    slope = (terms[1] - terms[0]) / math.log(100)
    measured("slope a unit of log(1/s^2); d - rank = 8", slope)
    assert abs(slope - 8) < 1e-3


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.slow
def test_theorem_2_every_term_is_non_negative(measured):
    least = math.inf
    for seed in range(20):
        steps = noisy_steps(*problem(seed=seed, rho=0.05), 32)
        for one in (steps, steps.norm_product("frobenius")):
            terms = np.asarray(isotropic_bound(one, 1.0).terms)
            least = min(least, terms.min())
    measured("least term of 20 draws", least)
    assert least > 0


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.slow
def test_priors_are_a_ladder(measured):
    stack, H = problem(L=1, prompts=300)
    steps = noisy_steps(stack, H, 32)
    found = {
        "zero": isotropic_bound(steps, 1.0),
        "mean": isotropic_bound(steps.centred("mean"), 1.0),
        "anisotropic": anisotropic_bound(steps, 1.0, center="mean"),
    }
    value = {name: float(bound.value) for name, bound in found.items()}
    for name, v in value.items():
        measured(name, v)
    assert value["anisotropic"] < value["mean"] < value["zero"]


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
def test_a_centre_as_an_array_or_a_function_of_the_weights_is_the_same_centre():
    stack, H = problem(L=1, N=12, n=3, prompts=4)
    center = implicit_gd(stack, H[0]).G

    @jax.jit
    def both(center):
        steps = noisy_steps(stack, H, 4)
        function = steps.centred(lambda layer, W: center[layer])
        given = steps.centred(center), function
        return [isotropic_bound(one, 1.0).value for one in given]

    array, function = both(center)
    assert abs(array - function) < 1e-12
    assert abs(array - both(0 * center)[0]) > 1e-3


@pytest.mark.slow
@pytest.mark.statement("Yao: Theorem 2 (corrected)")
def test_anisotropic_prior_lies_in_the_support_of_each_prompt(measured):
    """Supports differ from the second layer on; there the mean gradient leaves them."""
    stack, H = problem(L=2, N=12, n=3, prompts=4)
    bound = anisotropic_bound(noisy_steps(stack, H, 5), 1.0, center="mean")
    outside = []
    for t in range(2):
        g = np.array([stacks.gradients(stack, one)[t] for one in H])
        C = np.array([oracles.noise_covariance(one, 5) for one in g])
        G = g.sum(axis=1).reshape(4, 9)
        z = (g - g.mean(axis=1, keepdims=True)).reshape(4, 12, 9)
        U = np.swapaxes(np.linalg.svd(z)[2][:, :6], 1, 2)
        center = U @ np.swapaxes(U, 1, 2) @ G.mean(axis=0)
        outside.append(np.abs(center - G.mean(axis=0)).max())
        both = C + np.einsum("bi,bj->bij", G - center, G - center)
        Sigma, both, C = (np.swapaxes(U, 1, 2) @ S @ U for S in (both.mean(0), both, C))
        each = np.linalg.slogdet(Sigma)[1] - np.linalg.slogdet(C)[1] - 6
        each += np.trace(np.linalg.solve(Sigma, both), axis1=1, axis2=2)
        measured("relative error", float(bound.terms[t]) / each.mean() - 1, below=1e-9)
    assert outside[0] < 1e-12
    assert outside[1] > 1e-4


@pytest.mark.slow
@pytest.mark.statement("Yao: Theorem 2 (corrected)")
def test_anisotropic_prior_at_the_population_covariance(measured):
    # Gaussian demonstrations, L = 1: the best Sigma is Sigma_mu / b, whose term is
    # about m log(N / (N - b)) plus what estimating C_t costs
    stack, H = problem(L=1, N=200, n=2, prompts=400)
    bound = anisotropic_bound(noisy_steps(stack, H, 100), 1.0, center="mean")
    planned = 3 * (math.log(2) + 4 / 400)
    measured("T_1", bound.terms[0])
    measured("expansion for Gaussian gradients", planned)
    assert 0.9 * planned < bound.terms[0] < 1.4 * planned


def held_out_by_definition(z, b, M):
    """The term of a held-out prior; N - b and 1 / M enter the prior's spread."""
    N, m = z.shape
    C, S = (N - b) / (b * (N - 1)) * np.cov(z.T, bias=True), np.cov(z[:M].T)
    S = S * ((N - b) / (b * N) + 1 / M - 1 / N)
    delta = z.mean(axis=0) - z[:M].mean(axis=0)
    shape = np.trace(np.linalg.solve(S, C + np.outer(delta, delta))) - m
    return shape + np.linalg.slogdet(S)[1] - np.linalg.slogdet(C)[1]


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
def test_held_out_prior_has_the_spread_of_its_definition():
    z = np.random.default_rng(5).normal(size=(12, 2))
    expected = held_out_by_definition(z, 5, 7)
    assert float(held_out_term(z, 5, 7)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.slow
def test_held_out_prior_equals_its_dense_formula_and_ignores_the_weights(measured):
    stack, H = problem(L=3, N=40, n=3, prompts=2)
    bound = held_out_bound(noisy_steps(stack, H, 20), 1.0, 20)

    def dense(t, H):
        z = 40 * stacks.gradients(stack, H)[t].reshape(40, -1)
        basis = np.linalg.svd(z - z.mean(axis=0), full_matrices=False)[2][:6]
        expected = held_out_by_definition(z @ basis.T, 20, 20)
        return expected, float(held_out_term(z @ basis.T, 20, 20))

    pairs = np.array([[dense(t, one) for one in H] for t in range(3)])
    np.testing.assert_allclose(pairs[..., 0], pairs[..., 1], rtol=1e-8)
    error = pairs[..., 0].mean(axis=1) / np.asarray(bound.terms) - 1
    measured("against the dense formula", error, below=1e-7)
    # the dense basis squares the condition number
    # every z_i is one linear image of h_i h_i^T: the divergence cannot see the weights
    spread = float(np.ptp(bound.terms) / bound.terms[0])
    measured("relative spread over the layers", spread, below=1e-8)
    assert abs(bound.value - math.sqrt(float(bound.terms.sum()) / 20)) < 1e-12


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.slow
def test_a_prior_on_noisy_paths_equals_its_dense_evaluation(measured):
    # tokens of the noisy learner are (1 + W) h; the prior is the identity
    L, N, n = 2, 30, 3
    stack, H = problem(L=L, N=N, n=n, prompts=2)
    key, m = jax.random.key(4), n * (n + 1) // 2
    steps = noisy_steps(stack, H, 8, key=key)
    bound = anisotropic_bound(steps, 1.0, prior=lambda layer, W: jnp.eye(n * n))
    expected = np.zeros(L)
    for one, own in zip(H, jax.random.split(key, 2), strict=True):
        path = noisy_trajectory(stack, one, 8, key=own)
        for t in range(L):
            before = np.eye(n) + (0 if t == 0 else path.W[t - 1])
            V, K, Q = (np.asarray(w[t]) for w in (stack.W_V, stack.W_K, stack.W_Q))
            g = [np.outer(V @ h, K @ h) @ Q @ before for h in one @ before.T]
            C = oracles.noise_covariance(np.array(g), 8)
            values = np.linalg.eigvalsh(C)[-m:]
            delta = np.sum(np.sum(g, axis=0) ** 2)
            expected[t] += (values.sum() + delta - m - np.log(values).sum()) / 2
    measured("relative error", np.asarray(bound.terms) / expected - 1, below=1e-9)


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.slow
def test_anisotropic_prior_in_float32_where_its_covariance_has_too_few_digits(measured):
    weights, H = theory_cases.stack_and_tokens(4, 40, 4, 30)
    H, found = H / 40**0.5, []
    for dtype in (jnp.float32, jnp.float64):
        low = (np.asarray(W[:1], dtype) for W in weights)
        stack, tokens = LinearAttentionStack(*low), jnp.asarray(np.asarray(H, dtype))
        found.append(anisotropic_bound(noisy_steps(stack, tokens, 20), 1.0))
    values = np.asarray(stacks.spectrum(stack, tokens[0], 20).eigenvalues[0])
    measured("least of ten eigenvalues over the largest", values[9] / values[0])
    assert values[9] < 10 * np.finfo(np.float32).eps * values[0]
    error = abs(float(found[0].terms[0] / found[1].terms[0]) - 1)
    measured("float32 against float64", error)
    assert found[0].value.dtype == jnp.float32
    assert error < 1e-4


def one_bound(form=isotropic_bound, shots=32, R=1.0, **options):
    """A bound of the problem, with options of the steps and of the form."""
    updates = {name: options.pop(name) for name in ("demo_updates",) if name in options}
    return lambda s, H: form(noisy_steps(s, H, shots, **updates), R, **options)


def held_out(M, **options):
    return one_bound(held_out_bound, held_out=M, **options)


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
@pytest.mark.usefixtures("as_for_a_user")
@pytest.mark.parametrize(
    ("run", "message"),
    [
        (one_bound(shots=65), "shots: expected an integer from 1 to N"),
        (lambda s, H: noisy_steps(s, H[:, :3], 32), "H: expected shape (N, 4), got"),
        (lambda s, H: noisy_steps(s, H[0], 32), "H: expected shape"),
        (
            lambda s, H: noisy_steps(s, H[None][:0], 32),
            "H: expected shape (N, n) or (B, N, n), B > 0",
        ),
        (lambda s, H: noisy_steps(s, H[:1], 1), "H: expected at least 2 demon"),
        (lambda s, H: noisy_steps(s, H * np.inf, 32), "H: expected finite entries"),
        (one_bound(R=math.inf), "subgaussian_scale"),
        (one_bound(confidence=2.0), "confidence: expected a number between 0 and 1"),
        (
            one_bound(lambda s, R: s.jittered(-1.0)),
            "variance: expected a value >= 0",
        ),
        (
            one_bound(lambda s, R: s.norm_product("nuclear")),
            "norm: expected one of 'spectral', 'frobenius'",
        ),
        (
            one_bound(lambda s, R: s.centred("median")),
            "center: expected one of 'mean'",
        ),
        (
            one_bound(lambda s, R: anisotropic_bound(s.ambient(), R)),
            "steps: expected NoisySteps, as noisy_steps returns",
        ),
        (
            one_bound(anisotropic_bound, prior="flat"),
            "prior: expected a function or None, got 'flat'",
        ),
        (held_out(64), "held_out: expected M < N"),
        (
            held_out(32, demo_updates="causal"),
            "demo_updates: expected one of 'shared', 'frozen'",
        ),
        (
            held_out(9),
            "held_out: expected more demonstrations than the dimension, 10, got 9",
        ),
    ],
)
def test_bad_input(run, message):
    with raises(message):
        run(*problem())
