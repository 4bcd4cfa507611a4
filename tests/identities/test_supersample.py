"""Bounds in the supersample setting: identities, order, attainment and coverage."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from icltheory import bounds
from icltheory.bounds.supersample import _shift
from icltheory.regression import LinearPopulation, Steps

FORMS = ("difference", "variance", "optimal", "evaluated", "weighted", "binary_kl")
ABOVE = "weighted", "binary_kl"  # these bound the error, not its absolute value
LEVELS, PROMPTS, PAIRS, LEARNERS = 3, 250, 2, 200
MANY = 1000, PAIRS  # prompts and pairs of the tests that share a program
GRID = np.arange(LEVELS) / (LEVELS - 1)


@functools.partial(jax.jit, static_argnames="levels")
def every(losses, chosen, levels=LEVELS):
    """Every bound of every learner, by its name."""

    def one(losses, chosen):
        found = bounds.supersample_bounds(losses, chosen, levels=levels)
        return {form: getattr(found, form) for form in FORMS}

    return jax.vmap(one)(losses, chosen)


def kappa(g):
    """Log 2 minus the entropy of a coin with odds (1 + g) / 2."""
    odds = np.array([(1 + g) / 2, (1 - g) / 2])
    return np.log(2) + np.sum(odds * np.log(np.where(odds > 0, odds, 1)), axis=0)


def random_laws(rng):
    """Laws of (chosen, other) of random learners, (learners, K, K).

    Sparse ones have losses that hardly vary, and skewed ones fit their prompt.
    """
    sharpness = rng.choice([0.1, 0.3, 1, 3], (LEARNERS, 1))
    laws = rng.gamma(np.broadcast_to(sharpness, (LEARNERS, LEVELS**2)))
    laws = laws.reshape(LEARNERS, LEVELS, LEVELS) + 1e-9
    fits = np.exp(rng.choice([0, 0.5, 4], (LEARNERS, 1, 1)) * (GRID - GRID[:, None]))
    laws = laws * fits
    return laws / laws.sum(axis=(1, 2), keepdims=True)


def sample(rng, laws, num_prompts=PROMPTS):
    """Losses and coins of every learner."""
    cells = np.stack(
        [rng.choice(LEVELS**2, (num_prompts, PAIRS), p=law.ravel()) for law in laws]
    )
    taken, other = GRID[cells // LEVELS], GRID[cells % LEVELS]
    coins = rng.integers(0, 2, cells.shape)
    first, second = np.where(coins, other, taken), np.where(coins, taken, other)
    return np.stack([first, second], axis=-1), coins


def information_of(observed):
    """I(cell; coin) of (cell, swapped cell, coin), both orders of a pair alike."""
    joint = {}
    for cell, swapped, coin in observed:
        for one, u in ((cell, int(coin)), (swapped, 1 - int(coin))):
            joint[one, u] = joint.get((one, u), 0) + 1 / (2 * len(observed))
    return sum(
        p * np.log(2 * p / (p + joint.get((cell, 1 - u), 0)))
        for (cell, u), p in joint.items()
    )


@pytest.fixture(scope="module")
def learners():
    rng = np.random.default_rng(0)
    laws = random_laws(rng)
    drawn = sample(rng, laws)
    return laws, drawn, jax.tree.map(np.asarray, every(*drawn))


def population(law):
    """Error and information of the difference, from the sum notation."""
    error = information = 0.0
    mass = {}
    for i, chosen in enumerate(GRID):
        for j, other in enumerate(GRID):
            error += law[i, j] * (other - chosen)
            size = round(2 * (other - chosen))
            mass[size] = mass.get(size, 0) + law[i, j]
    for size, p in mass.items():
        information += p * np.log(2 * p / (p + mass[-size]))
    return error, information


@pytest.mark.statement("Supersample: Square root")
def test_information_is_that_of_difference_and_coin(learners):
    """By counting the joint law of difference and coin, both orders of each pair."""
    found = learners[1], learners[2]["difference"]
    (losses, coins), bound = jax.tree.map(lambda leaf: leaf[0], found)
    for i in range(PAIRS):
        change = losses[:, i, 1] - losses[:, i, 0]
        found = information_of([*zip(change, -change, coins[:, i], strict=True)])
        assert abs(bound.information[i] - found) < 1e-12
    assert abs(bound.value - np.mean(np.sqrt(2 * bound.information))) < 1e-12
    taken = np.take_along_axis(losses, coins[..., None], 2)[..., 0]
    error = np.mean(losses.sum(axis=-1) - 2 * taken)
    assert abs(bound.error - error) < 1e-12


@pytest.mark.statement("Supersample: Square root", "Supersample: Fast rates")
def test_no_bound_is_below_the_error_of_any_sample(learners, measured):
    """The empirical law is a law: the plug-in bounds its error without chance."""
    for name, bound in learners[2].items():
        error = bound.error if name in ABOVE else None
        error = np.abs(bound.error) if error is None else error
        assert np.all(bound.value >= error - 1e-9), name
        assert np.all(bound.upper >= np.minimum(bound.value, 1) - 1e-9), name
    best = learners[2]["optimal"]
    large = np.abs(best.error) > 0.02
    assert np.sum(large) > LEARNERS / 2
    ratio = np.median(best.value[large] / np.abs(best.error[large]))
    measured("median of the best bound over the error, 200 learners", ratio)


@pytest.mark.statement("Supersample: Confidence limits")
def test_limits_of_the_binary_bound_come_close_with_many_prompts(measured):
    """Odds of a loss: a half on the prompt, .8 beside it; 200,000 prompts."""
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, 2, (200_000, 1))
    losses = rng.random((200_000, 1, 2)) < np.where(
        np.arange(2) == chosen[..., None], 0.5, 0.8
    )
    losses = jnp.asarray(losses, float)
    found = bounds.supersample_bounds(losses, chosen, levels=2)
    bound = found.binary_kl
    measured("limit of the binary bound over the bound", bound.upper / bound.value)
    assert 1 < bound.upper / bound.value < 1.03
    zeros = jnp.zeros(losses.shape)
    answers = bounds.prediction_bound(losses, zeros, chosen, 2)
    for other in (found.evaluated, answers):
        assert 1 < other.upper / other.value < 1.03


@pytest.mark.statement("Supersample: Optimal form")
def test_order_of_the_bounds(learners):
    """Optimal <= variance <= square root; optimal <= weighted; difference <= both."""
    found = learners[2]
    best = found["optimal"].value
    # The least of 512 tilts is above the infimum by at most 0.01 percent.
    slack = 1.0001
    pooled = np.sqrt(2 * found["variance"].information)
    difference = found["difference"]
    assert np.all(best <= found["variance"].value)
    assert np.all(best <= slack * found["weighted"].value)
    assert np.all(found["variance"].value <= pooled + 1e-12)
    pairs = found["evaluated"].information
    assert np.all(difference.information <= pairs + 1e-12)
    mean = np.mean(difference.information, axis=1)
    assert np.all(found["variance"].information <= mean + 1e-12)


@pytest.mark.statement("Supersample: Square root")
def test_predictions_tell_at_least_what_losses_tell():
    rng = np.random.default_rng(2)
    labels, predictions = rng.integers(0, 3, (2, *MANY, 2))
    coins = rng.integers(0, 2, MANY)
    memory = rng.random((*MANY, 2)) < np.where(coins[..., None] == [0, 1], 0.6, 0)
    predictions = np.where(memory, labels, predictions)
    losses = (predictions != labels).astype(float)
    one = bounds.supersample_bounds(losses, coins).evaluated
    two = bounds.prediction_bound(predictions, labels, coins, 3)
    assert abs(one.error - two.error) < 1e-12
    assert np.all(one.information <= two.information + 1e-12)
    cells = np.stack([predictions[:, 0], labels[:, 0]], 1)
    pairs = [(tuple(c.ravel()), tuple(c[:, ::-1].ravel())) for c in cells]
    found = information_of([(*p, u) for p, u in zip(pairs, coins[:, 0], strict=True)])
    assert abs(two.information[0] - found) < 1e-12


@pytest.mark.statement("Supersample: Optimal form")
@pytest.mark.parametrize("tilt", [0, 24, 40])
def test_the_optimal_bound_is_attained(tilt):
    """Signs with log-odds 2 tilt |difference|: the error is the bound."""
    tilt = float(np.geomspace(0.01, 100, 64)[tilt])
    counts, error, information = [], 0.0, 0.0
    for size, share in ((0.25, 0.5), (0.5, 0.2), (1.0, 0.3)):
        g = np.tanh(tilt * size)
        error += share * size * g
        information += share * kappa(g)
        counts += [(size, share * (1 + g) / 2), (-size, share * (1 - g) / 2)]
    total = 400_000
    sizes = np.repeat([s for s, _ in counts], [round(total * p) for _, p in counts])
    losses = np.stack([np.maximum(-sizes, 0), np.maximum(sizes, 0)], axis=-1)
    bound = bounds.supersample_bounds(
        losses[:, None], np.zeros((len(sizes), 1)), levels=5
    ).optimal
    # The counts are rounded to one in 400,000.
    assert abs(bound.information - information) < 1e-4
    assert abs(bound.value - bound.error) < 1e-4
    assert abs(bound.error - error) < 1e-4


@pytest.mark.statement("Supersample: Optimal form")
@pytest.mark.parametrize("one_in", [10, 1000, 0])
def test_the_optimal_bound_and_the_weighted_one_of_small_errors(one_in):
    """The other demonstration is wrong once in so many prompts; the chosen one never.

    A learner with a loss that does not depend on its prompt has information 0.
    """
    losses = np.zeros((*MANY, 2))
    losses[: 1000 // one_in if one_in else 0, :, 1] = 1
    losses[500:] += 0 if one_in else 1
    found = bounds.supersample_bounds(losses, np.zeros(MANY))
    error = 1 / one_in if one_in else 0.0
    for form in ("optimal", "weighted"):
        value = float(getattr(found, form).value)
        assert error - 1e-12 <= value <= 1.0001 * error + 1e-6, form


@pytest.mark.statement("Supersample: Fast rates")
def test_zero_loss_on_the_prompt_makes_the_weighted_bound_exact():
    rng = np.random.default_rng(3)
    coins = rng.integers(0, 2, MANY)
    wrong = rng.random(MANY) < 0.2
    losses = wrong[..., None] * (coins[..., None] != [0, 1]).astype(float)
    bound = bounds.supersample_bounds(losses, coins).weighted
    # The weight that the grid ends at is 1e-9 from log 2.
    assert abs(bound.value - bound.error) < 1e-6
    assert abs(bound.information - np.log(2) * np.mean(wrong)) < 1e-12


@pytest.mark.statement("Supersample: Confidence limits")
def test_the_lemma_of_the_limit():
    """1 - (r^(1-l) + (1-r)^(1-l)) / 2^l >= l (1 - l) kappa, and no factor is larger."""
    r = np.linspace(0, 1, 2001)[:, None]
    lam = np.linspace(0.001, 0.999, 399)[None, :]
    left = 1 - (r ** (1 - lam) + (1 - r) ** (1 - lam)) / 2**lam
    right = lam * (1 - lam) * kappa(2 * r[:, 0] - 1)[:, None]
    assert np.all(left >= right - 1e-12)
    near = 0.5 + 1e-3
    ratio = (1 - (near**0.7 + (1 - near) ** 0.7) / 2**0.3) / (0.21 * kappa(2e-3))
    assert abs(ratio - 1) < 1e-4


@pytest.mark.statement("Supersample: Confidence limits")
def test_limits_hold_with_their_confidence(learners, measured):
    """Of 200 learners at most the binomial share lies above its limit."""
    laws, _, found = learners
    true = np.array([population(law) for law in laws])
    error, information = true.T
    most = stats.binom.ppf(0.999, LEARNERS, 0.05)
    missed = {}
    for name, bound in found.items():
        above = error if name in ABOVE else abs(error)
        missed[name] = int(np.sum(above > bound.upper))
    assert max(missed.values()) <= most, missed
    difference = found["difference"]
    limit = np.minimum(np.sqrt(2 * information), 1)
    assert np.sum(limit > difference.upper) <= most
    # The estimate alone is no limit: it is below the truth for many learners.
    below = np.sum(np.sqrt(2 * information) > difference.value)
    assert below > most
    measured("limits below the information, of 200", np.sum(limit > difference.upper))


@pytest.mark.statement("Supersample: Confidence limits")
def test_limits_of_the_binary_bound_rest_on_the_slope_of_the_error():
    """A tangent of a concave function lies above it."""
    training, information = jnp.meshgrid(
        jnp.array([0.05, 0.3, 0.6, 0.9]), jnp.array([1e-3, 0.1, 0.6])
    )
    error = functools.partial(_shift, information=information)
    slope, h = np.asarray(error(training)[1]), 1e-6
    expected = (error(training + h)[0] - error(training - h)[0]) / (2 * h)
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.statement("Supersample: Confidence limits")
@pytest.mark.slow
def test_coverage_where_the_limit_is_sharp(measured):
    """One law, 4,000 samples: the limit fails, and less often than it may."""
    law = np.array([[0.0, 0.75], [0.25, 0.0]])
    rng = np.random.default_rng(4)
    cells = rng.choice(4, (4000, 200, 1), p=law.ravel())
    losses = np.stack([cells // 2, cells % 2], axis=-1).astype(float)
    bound = every(losses, np.zeros(cells.shape), levels=2)
    information = bound["difference"].information[:, 0]
    upper = np.asarray(bound["difference"].upper)
    missed = np.mean(np.sqrt(2 * kappa(0.5)) > upper)
    assert np.mean(information) > kappa(0.5)
    assert 0 < missed <= 0.05
    measured("share of limits below the bound, confidence 0.95", missed)


@pytest.mark.statement("Supersample: Square root")
@pytest.mark.slow
def test_the_trial_of_one_gradient_step(measured):
    """With d = 5, N = 20, noise 0.25, clip 4, 16 levels: error 0.0508, bound 0.1254.

    The trial has 200,000 other prompts; these are a quarter as many. The difference of
    the two errors has the standard error s, and the bound is 2.5 times the error.
    """
    drawn = bounds.supersample_losses(
        Steps([20 / 26.25]),
        LinearPopulation.isotropic(5, 0.25, dtype=jnp.float32),
        20,
        50_000,
        bounds.ClippedSquaredError(4.0),
        key=jax.random.key(0),
    )
    found = bounds.supersample_bounds(*drawn, levels=16)
    bound, best = found.difference, found.optimal
    s = 1.25**0.5 * bound.standard_error
    assert abs(bound.error - 0.0508) < 4 * s
    # The estimates of 31 shares add 15 / (2 B) to each information of 0.0078.
    assert abs(bound.value - 0.1254) < 4 * 2.5 * s + 0.1254 * 15 / (4 * 50_000 * 0.0078)
    assert abs(best.value / best.error - 1) < 0.02
    assert best.upper < 1.15 * bound.error
    measured("one gradient step: bound over error", bound.value / bound.error)
    measured("one gradient step: best bound over error", best.value / best.error)
