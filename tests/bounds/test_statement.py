"""What a bound says of itself: assumptions, estimate, approximate limit, summary."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from icltheory.attention import LinearAttentionStack
from icltheory.bounds import (
    REASONS,
    anisotropic_bound,
    held_out_bound,
    isotropic_bound,
    isotropic_term,
    log_inside_bound,
    noisy_steps,
    printed_bound,
)
from icltheory.bounds.theorem import _BIAS, _FITTED_BIAS
from icltheory.constructions import gradient_descent
from icltheory.noise import noise_spectrum, noisy_trajectory, support_dims
from icltheory.regression import LinearPopulation
from icltheory.trajectory import implicit_gd

STACK = gradient_descent(np.array([0.5]), d_in=2)


def steps_of(H, stack=STACK, **options):
    return noisy_steps(stack, H, 20, scale=1 / 40, **options)


def bound_of(H, form=isotropic_bound, **options):
    return form(steps_of(H), 1.0, **options)


def centred_bound(steps, R, **options):
    """With the mean of the gradients as the prior's centre."""
    return isotropic_bound(steps.centred("mean"), R, **options)


def pools(seed, number):
    """Prompts whose scales differ, so that the terms do."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((number, 40, 2)) * rng.lognormal(0, 0.3, (number, 1, 1))
    return np.concatenate([X, X[..., :1]], axis=-1)


def of_one(layer, W):
    """A covariance of the prior, about that of the gradients."""
    return 0.05 * jnp.eye(9)


@functools.cache
def truth(form=isotropic_bound):
    """The bound with the expectations over 20,000 prompts."""
    return float(bound_of(pools(0, 20_000), form).value)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.95, 0.6])
@pytest.mark.parametrize("form", [isotropic_bound, centred_bound])
def test_the_limit_lies_above_the_truth_as_often_as_it_says(form, confidence):
    limits = [
        float(bound_of(pools(seed, 40), form, confidence=confidence).upper)
        for seed in range(1, 401)
    ]
    share = np.mean(np.array(limits) >= truth(form))
    # Student's limits of a skewed mean are approximate; the union bound makes up for it
    assert share > confidence - 3 * (confidence * (1 - confidence) / 400) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("form", [isotropic_bound, log_inside_bound])
def test_the_standard_error_is_the_spread_over_samples_of_prompts(form):
    found = [bound_of(pools(seed, 200), form) for seed in range(1, 201)]
    spread = np.std([float(bound.value) for bound in found], ddof=1)
    typical = np.mean([float(bound.standard_error) for bound in found])
    # The spread of 200 samples has a relative error of 1 / 20.
    assert abs(typical / spread - 1) < 0.2


def test_two_prompts_have_a_standard_error():
    """That of a mean of two terms, times the slope of the root."""
    H = pools(5, 2)
    both, *each = (
        bound_of(one, held_out_bound, held_out=30) for one in (H, H[:1], H[1:])
    )
    first, second = (float(one.terms[0]) for one in each)
    expected = abs(first - second) / 2 / (2 * 10 * float(both.value))
    assert float(both.standard_error) == pytest.approx(expected, rel=1e-12)
    assert np.isnan(each[0].standard_error)


TWO = gradient_descent(np.array([0.5, 0.4]), d_in=2)


def student(values, confidence):
    """Student's limits of means over prompts, above and below."""
    B = len(values)
    quantile = scipy.stats.t.ppf(confidence, B - 1) / np.sqrt(B)
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    return mean + quantile * spread, mean - quantile * spread


def test_the_limit_is_that_of_both_expectations_of_every_layer_at_once():
    """The level is split evenly among E[A_1] and E[A_2] of all layers."""
    H = pools(3, 30)
    bound = isotropic_bound(steps_of(H, TWO), 1.0, confidence=0.9)
    spectrum = jax.vmap(lambda one: noise_spectrum(TWO, one, 20, scale=1 / 40))(H)
    G = jax.vmap(lambda one: implicit_gd(TWO, one, scale=1 / 40).G)(H)
    A_1 = np.sum(np.square(G), axis=(2, 3)) + spectrum.trace
    A_2, D = np.asarray(spectrum.log_pdet), spectrum.support_dim[0]
    share = 0.1 / (2 * 2)
    above, below = student(A_1, 1 - share)[0], student(A_2, 1 - share)[1]
    for got, *pair in (
        (bound.value, A_1.mean(axis=0), A_2.mean(axis=0)),
        (bound.upper, above, below),
    ):
        terms = isotropic_term(pair[0], 0.0, pair[1], D)
        np.testing.assert_allclose(got, np.sqrt(terms.sum() / 40), rtol=1e-6)


def test_the_limit_of_a_held_out_prior_is_that_of_every_layer_at_once():
    H = pools(3, 30)

    def bound(H):
        return held_out_bound(steps_of(H, TWO), 1.0, 30, confidence=0.9)

    each = np.asarray(jax.vmap(lambda one: bound(one).terms)(H))
    limits = student(each, 1 - 0.1 / 2)[0]
    np.testing.assert_allclose(bound(H).upper, np.sqrt(limits.sum() / 10), rtol=1e-6)


@pytest.mark.slow
def test_the_estimate_lies_below_its_limit():
    bound = bound_of(pools(1, 40))
    assert truth() < bound.upper
    assert bound.value < bound.upper < bound.value + 8 * bound.standard_error
    assert bound.upper < bound_of(pools(1, 40), confidence=0.999).upper
    assert np.isnan(bound_of(pools(1, 1)).upper)


def held_out_mean(m, N, b, M):
    """Mean term of a held-out prior for Gaussian gradients, by Wishart's law."""

    def log_det(dof):
        halves = (dof - np.arange(m)) / 2
        return np.sum(scipy.special.digamma(halves)) + m * np.log(2)

    within, among = (N - b) / (b * N), 1 / M - 1 / N
    inverse = m / (M - m - 2)  # mean trace of the inverse scatter of M gradients
    shape = within / (N - 1) * (m + (N - M) * inverse) + among * inverse
    logs = log_det(M - 1) - log_det(N - 1) - m * np.log(within / (N - 1))
    spread = (within + among) / (M - 1)
    return logs + m * np.log(spread) - m + shape / spread


def gaussian_pools(key, number):
    """Inputs with labels that are independent signs, so that gradients are Gaussian."""
    x, y = jax.random.split(key)
    X = jax.random.normal(x, (number, 40, 2))
    return jnp.concatenate([X, jax.random.rademacher(y, (number, 40, 1), X.dtype)], -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beyond", "least", "most"),
    [(3, 0.35, 0.7), (6, 0.09, 0.3), (30, 0, 0.11)],
)
def test_limits_of_held_out_priors_hold_from_30_demonstrations_on(beyond, least, most):
    """Of 1,000 samples of 64 prompts, at confidence 95 %."""

    @jax.jit
    @jax.vmap
    def limit(key):
        H = gaussian_pools(key, 64)
        return held_out_bound(steps_of(H), 1.0, 2 + beyond).upper

    limits = limit(jax.random.split(jax.random.key(0), 1000))
    truth = (held_out_mean(2, 40, 20, 2 + beyond) / (38 - beyond)) ** 0.5
    missed = np.mean(np.asarray(limits) < truth)
    assert least <= missed <= most


def test_few_held_out_demonstrations_give_infinity_or_a_remark():
    H = gaussian_pools(jax.random.key(0), 64)
    infinite, finite, many = (
        bound_of(H, held_out_bound, held_out=M) for M in (4, 5, 32)
    )
    assert infinite.value == infinite.upper == np.inf
    assert infinite.reason.startswith("layer 0: M = 4 <= m + 2 = 4: the mean over")
    assert np.isfinite(finite.upper)
    assert "M = 5 < m + 30 = 32: rare prompts decide the mean" in finite.summary()
    assert "rare" not in many.summary()
    assert "rare" in dataclasses.replace(many, held_out=31).summary()
    term, spread = 8 * many.value**2, 16 * many.value * many.standard_error
    assert abs(term - held_out_mean(2, 40, 20, 32)) < 4 * spread


@pytest.mark.slow
def test_the_bias_has_the_direction_it_says():
    values = np.array([bound_of(pools(seed, 4)).value for seed in range(1, 401)])
    assert values.mean() < truth() - 3 * values.std(ddof=1) / 20
    assert "biased low" in bound_of(pools(1, 4)).bias


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"center": "mean"}, marks=pytest.mark.slow),
        pytest.param({"prior": of_one, "center": "mean"}, marks=pytest.mark.slow),
    ],
)
def test_a_prior_that_is_fitted_to_the_prompts_has_no_limit(options):
    """Of 64 prompts up to 41 % of them would lie below the bound."""
    bound = bound_of(pools(1, 8), anisotropic_bound, **options)
    assert np.isfinite(bound.value)
    assert np.isnan(bound.upper)
    assert "biased low, with no limit: the prior is fitted" in bound.summary()
    assert "at most" not in bound.summary()


JITTER = "the learner is that of equation (4), without jitter"
PATH = "the weights follow the noisy path"
OUTSIDE = "the logarithm stands outside the expectation"
FIXED = "the prior is fixed before the prompts are drawn"


@pytest.mark.parametrize(
    ("options", "form", "failing", "bias"),
    [
        ({}, isotropic_bound, (), _BIAS),
        ({"stack": TWO}, isotropic_bound, (PATH,), _BIAS),
        ({"stack": TWO, "key": jax.random.key(0)}, isotropic_bound, (), _BIAS),
        ({}, lambda s, R: isotropic_bound(s.jittered(0.1), R), (JITTER,), _BIAS),
        ({}, log_inside_bound, (OUTSIDE,), ""),
        ({}, centred_bound, (FIXED,), _BIAS),
        ({}, anisotropic_bound, (FIXED,), _FITTED_BIAS),
        ({}, functools.partial(anisotropic_bound, prior=of_one), (), ""),
        (
            {},
            functools.partial(anisotropic_bound, prior=of_one, center="mean"),
            (FIXED,),
            _FITTED_BIAS,
        ),
        ({}, functools.partial(held_out_bound, held_out=10), (), ""),
        ({}, printed_bound, (OUTSIDE,), ""),
        ({"H": pools(1, 1)}, isotropic_bound, (), ""),
    ],
)
def test_assumptions_that_fail_are_named_and_no_others(options, form, failing, bias):
    bound = form(steps_of(**{"H": pools(1, 4), **options}), 1.0)
    assert bound.failing == failing
    assert bound.is_bound == (not failing)
    assert bound.bias == bias
    given = [one.text for one in bound.assumptions if one.holds is None]
    assert len(given) == 2


@pytest.mark.parametrize(
    ("changes", "words", "said"),
    [
        ({}, ", vacuous", False),
        ({"vacuous": jnp.array(True)}, ", vacuous", True),
        ({}, "at most", True),
        ({"confidence": 0.9}, "with confidence 90 %", True),
        ({"upper": jnp.array(jnp.nan)}, "at most", False),
        ({"standard_error": jnp.array(jnp.nan)}, "one prompt", True),
        ({"num_prompts": 1000, "largest_share": jnp.array([0.09])}, "one of", False),
        ({"num_prompts": 1000, "largest_share": jnp.array([0.11])}, "11 % of", True),
        ({"num_prompts": 20, "largest_share": jnp.array([0.14])}, "one of", False),
        ({"num_prompts": 20, "largest_share": jnp.array([0.16])}, "16 % of", True),
    ],
)
def test_each_remark_of_the_summary_has_its_condition(changes, words, said):
    bound = dataclasses.replace(bound_of(pools(1, 40)), **changes)
    assert (words in bound.summary()) == said


GENERIC = LinearAttentionStack(*np.random.default_rng(1).normal(size=(3, 1, 3, 3)))
DRAWN = np.random.default_rng(0).normal(size=(2, 12, 3))


def nothing(layer, W):
    """The covariance of a prior that covers no space."""
    return jnp.zeros((9, 9))


EXACT = np.concatenate([DRAWN[..., :2], DRAWN[..., :2].sum(-1, keepdims=True)], -1)


@pytest.mark.parametrize(
    ("code", "H", "shots", "form"),
    [
        (0, DRAWN, 5, isotropic_bound),
        (1, DRAWN, 5, lambda steps, R: isotropic_bound(steps.ambient(), R)),
        (2, DRAWN[:, :6], 5, isotropic_bound),
        (3, DRAWN, 12, isotropic_bound),
        (4, EXACT, 5, isotropic_bound),
        (5, DRAWN * 1e120, 5, isotropic_bound),
        (6, DRAWN, 5, functools.partial(anisotropic_bound, prior=nothing)),
        (7, DRAWN, 5, functools.partial(held_out_bound, held_out=8)),
    ],
)
def test_every_reason_of_an_infinite_term(code, H, shots, form):
    """Six dimensions of the support, of nine."""
    bound = form(noisy_steps(GENERIC, H, shots, scale=1 / 12), 1.0)
    assert bound.reason_code.tolist() == [code]
    assert np.isfinite(bound.value) == np.isfinite(bound.upper) == (code == 0)
    words = REASONS[code].split("{")[0]
    assert (words in bound.reason) if code else not bound.reason


def test_the_summary_tells_the_three_apart():
    lines = bound_of(pools(1, 40)).summary().splitlines()
    assert lines[0].startswith("bound 0.")
    assert lines[1].startswith("estimated, standard error")
    assert lines[2].endswith("with confidence 95 %, approximately")
    assert lines[3].startswith("layer 0: one of 40 prompts is 22 % of a mean")
    assert lines[4] == "assumed: the loss is sub-Gaussian with the given R"
    assert "one prompt" in bound_of(pools(1, 1)).summary()
    infinite = isotropic_bound(noisy_steps(GENERIC, EXACT, 5), 1.0).summary()
    assert "layer 0: rank 3 < min(N - 1, m = 6) in 2 of 2 prompts" in infinite
    assert "add label noise" in infinite


def test_wide_weights_are_counted_as_far_as_the_bound_needs():
    rng = np.random.default_rng(2)
    W = rng.normal(size=(3, 1, 520, 520)).astype(np.float32) / 520
    H = rng.normal(size=(5, 520)).astype(np.float32)
    steps = noisy_steps(LinearAttentionStack(*W), H, 2, scale=1 / 5)
    bound = isotropic_bound(steps, 1.0)
    assert np.isinf(bound.value)
    assert bound.support_dim.tolist() == [5]
    assert "rank 4 < m >= 5" in bound.reason
    assert np.isfinite(isotropic_bound(steps.ambient().jittered(0.1), 1.0).value)
    jittered = jax.jit(lambda v: isotropic_bound(steps.ambient().jittered(v), 1.0))
    assert np.isnan(jittered(-0.1).value)
    message = r"support_dims: expected noise.support_dims\(stack\)"
    with pytest.raises(ValueError, match=message):
        steps.jittered(0.1)  # m is not known


def test_dimensions_of_the_support_can_be_handed_over():
    H, m = pools(1, 40), support_dims(STACK)
    given = isotropic_bound(steps_of(H, support_dims=m), 1.0)
    np.testing.assert_array_equal(given.terms, bound_of(H).terms)
    spectrum = noise_spectrum(STACK, H[0], 20, support_dims=m + 1)
    assert spectrum.support_dim.tolist() == (m + 1).tolist()
    with pytest.raises(ValueError, match="support_dims: expected shape"):
        noise_spectrum(STACK, H[0], 20, support_dims=[2, 2])


def test_dimensions_below_the_rank_are_refused():
    """They made the bound smaller than the theorem's, in silence."""
    rng = np.random.default_rng(3)
    stack = LinearAttentionStack(*rng.normal(size=(3, 2, 4, 4)) / 2)
    H = rng.normal(size=(6, 20, 4))

    def value(m):
        steps = noisy_steps(stack, H, 10, scale=1 / 20, support_dims=m)
        return isotropic_bound(steps, 1.0).value

    assert np.isfinite(value(np.array([10, 10])))
    wrong = np.array([10, 5])
    message = r"at least the rank of C_t in every layer, \[10, 10\], got 5"
    with pytest.raises(ValueError, match=f"support_dims: expected {message}"):
        value(wrong)
    with pytest.raises(ValueError, match=f"support_dims: expected {message}"):
        noise_spectrum(stack, H[0], 10, scale=1 / 20, support_dims=wrong)
    assert np.isnan(jax.jit(value)(wrong))
    assert np.isnan(jax.vmap(value)(np.stack([wrong, wrong])))[0]


@pytest.mark.slow
def test_few_prompts_say_too_little_of_deep_stacks_of_large_weights():
    """Rare prompts decide the expectation, and no limit from few prompts knows it."""
    W = np.random.default_rng(0).normal(size=(3, 4, 3, 3)) / 12**0.5
    stack, task = LinearAttentionStack(*W), LinearPopulation.isotropic(2, 0.25)

    def bound(seed, number):
        H, _ = task.sample(jax.random.key(seed), 40, number).tokens()
        return isotropic_bound(noisy_steps(stack, H, 10, scale=1 / 40), 1.0)

    few = [bound(seed, 64) for seed in range(100, 112)]
    assert sum("one of 64 prompts is" in one.summary() for one in few) >= 10
    many = bound(99, 20_000).value
    assert sum(float(one.upper) < many for one in few) >= 10
    calm = bound_of(np.asarray(task.sample(jax.random.key(1), 40, 64).tokens()[0]))
    assert max(calm.largest_share) < 0.1
    assert calm.num_prompts == 64


def test_exactly_linear_labels_make_the_bound_of_generic_weights_infinite():
    """Every h_i lies in a space of d dimensions, and so does what moves the query."""
    rng = np.random.default_rng(0)
    generic = LinearAttentionStack(*rng.normal(size=(3, 1, 4, 4)))
    X = rng.normal(size=(8, 30, 3))
    linear = np.concatenate([X, X @ rng.normal(size=(3, 1))], axis=-1)
    noise = rng.normal(size=(8, 30, 1)) * [0, 0, 0, 1]

    def value(R, size):
        H = linear + size * noise
        bound = isotropic_bound(noisy_steps(generic, H, 10, scale=1 / 30), R)
        return bound.value, bound

    of = jax.jit(jax.grad(value, argnums=(0, 1), has_aux=True))
    (by_scale, by_noise), bound = of(1.0, 0.0)
    # Symmetric products of vectors in 3 dimensions span 6, of which weights allow 10.
    assert bound.value == np.inf
    assert bound.support_dim.tolist() == [10]
    assert "rank 6 < min(N - 1, m = 10) in 8 of 8 prompts" in bound.reason
    assert "or float64 does not resolve C_t" in bound.reason
    assert "labels are an exact linear function of the inputs" in bound.reason
    # d/dR of R * inf; and infinity stays infinity, so that no gradient is NaN.
    assert (float(by_scale), float(by_noise)) == (np.inf, 0.0)
    (by_scale, _), noisy = of(1.0, 0.1)
    assert np.isfinite(noisy.value)
    assert not noisy.reason
    np.testing.assert_allclose(by_scale, noisy.value, rtol=1e-12)


def test_a_batch_of_bounds_has_no_single_reason():
    bound = bound_of(pools(0, 8))
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), bound)
    with pytest.raises(ValueError, match="^reason: expected one concrete bound, got a"):
        batch.summary()


@pytest.mark.statement("Yao: Theorem 2 (corrected)")
def test_noisy_paths_are_the_weights_before_each_layer():
    rng = np.random.default_rng(1)
    stack = LinearAttentionStack(*rng.normal(size=(3, 3, 2, 2)) / 2)
    H = jnp.asarray(rng.normal(size=(2, 5, 2)))
    key = jax.random.key(4)
    found = noisy_steps(stack, H, 3, key=key).W
    for got, one, own in zip(found, H, jax.random.split(key, 2), strict=True):
        path = noisy_trajectory(stack, one, 3, key=own)
        np.testing.assert_allclose(got[1:], path.W[:-1], rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(got[0], 0)
