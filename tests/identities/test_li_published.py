"""Li et al. (2024): relations that hold for every setting of the training."""

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from icltheory.chain_of_thought import vote_error
from icltheory.patterns import loss_gradients
from tests.oracles import share_z
from tests.patterns import drawn

DELTA, XI = 0.2, 0.05
# Errors of Figure 17 by alpha', at these prompt lengths.
LENGTHS = (20, 40, 60, 80, 100)
FIGURE_17 = {
    0.4: (0.236, 0.144, 0.078, 0.047, 0.028),
    0.6: (0.144, 0.048, 0.024, 0.0091, 0.0033),
    0.8: (0.083, 0.025, 0.0114, 0.0047, 0.0017),
    1.0: (0.061, 0.017, 0.0055, 0.0023, 0.0010),
}


@functools.cache
def path(step_size, batches=60, momentum=0.0, repeats=1):
    """A training of eight neurons from the start of the slides; every snapshot.

    Each batch is used for some steps, of a step size that is divided by their number.
    """
    task = drawn.pattern_task(4, 4, 2.0, 8)
    rng = np.random.default_rng(5)
    D, d, m = task.width, task.dim, 8
    features = DELTA * np.diag((np.arange(D) < d).astype(float))
    W = {"W_Q": features, "W_K": features, "W_V": DELTA * np.eye(D)}
    W["W_O"] = XI * rng.normal(size=(m, D))
    a = np.tile([2.0, -2.0], m // 2) / m
    shots, velocity = [W], {name: 0.0 for name in W}
    for t in range(batches * repeats):
        prompt = drawn.pattern_prompt(task, 8, 12, seed=t // repeats)
        slope = {
            n: np.asarray(v) for n, v in loss_gradients(W | {"a": a}, prompt).items()
        }
        velocity = {n: momentum * velocity[n] + slope[n] for n in W}
        W = {name: W[name] - step_size / repeats * velocity[name] for name in W}
        shots.append(W)
    return task, shots


@pytest.mark.statement("Li ICL: Figures 10 and 11")
@pytest.mark.parametrize(("step_size", "momentum"), [(2.0, 0.0), (1.0, 0.5)])
def test_a_label_part_is_off_q_by_what_the_start_left(measured, step_size, momentum):
    """At every step b sin(angle) <= delta |w|, and neurons do learn."""
    task, shots = path(step_size, momentum=momentum)
    q = np.asarray(task.label_embedding)
    largest = 0.0
    for W in shots:
        columns = W["W_V"][:, task.dim :]
        start = DELTA * np.eye(task.width)[:, task.dim :]
        changed = columns - start
        np.testing.assert_allclose(changed, np.outer(changed @ q, q), atol=1e-12)
        label = W["W_O"] @ columns
        across = np.linalg.norm(label - np.outer(label @ q, q), axis=1)
        limit = DELTA * np.linalg.norm(W["W_O"], axis=1)
        assert np.all(across <= limit * (1 + 1e-12))
        largest = max(largest, float((across / limit).max()))
    end = np.linalg.norm(shots[-1]["W_O"] @ shots[-1]["W_V"][:, task.dim :], axis=1)
    assert end.max() > 1  # it began near delta xi sqrt(8) = .03
    measured("b sin(angle) / (delta |w|)", largest)


@pytest.mark.statement("Li ICL: Figures 10 and 11")
def test_the_last_two_layers_stay_in_balance(measured):
    """W_V W_V' - W_O' W_O changes in second order of the step size only."""

    def difference(W):
        return W["W_V"] @ W["W_V"].T - W["W_O"].T @ W["W_O"]

    drifts = []
    for repeats in (1, 4):
        _, shots = path(2.0, repeats=repeats)
        grown = np.linalg.norm(shots[-1]["W_O"].T @ shots[-1]["W_O"])
        change = np.linalg.norm(difference(shots[-1]) - difference(shots[0]))
        drifts.append(change / grown)
    # Four steps of a quarter of the size: a quarter of the drift, to leading order.
    assert drifts[1] < 0.1
    assert 0.15 < drifts[1] / drifts[0] < 0.35
    measured("drift at a quarter of the step size", drifts[1] / drifts[0])


@pytest.mark.statement("Li ICL: Figures 14 and 15")
def test_pruning_adds_errors_only_where_labels_agree_little():
    """An error, z F <= 0, is A <= c S_1 t for A > 0; in rational numbers."""
    numbers = [Fraction(i, 7) for i in range(1, 15)]
    seen = set()
    for shift, agreement in itertools.product(numbers, numbers):
        for mine, others in itertools.product(range(1, 6), range(1, 6)):
            F = mine * (shift + agreement) - others * max(shift - agreement, 0)
            share = Fraction(others - mine, others + mine)
            wrong = F <= 0
            assert wrong == (agreement <= shift * share and agreement < shift)
            assert not (wrong and mine == others)
            seen.add(wrong)
    assert seen == {True, False}


@pytest.mark.statement("Li ICL: Figures 14 and 15")
def test_attention_bounds_the_error_of_every_pruning(measured):
    """Markov's bound 2 (1 - w) / (1 - c S_1), for random attention and prunings."""
    rng = np.random.default_rng(0)
    closest = 1.0
    for _ in range(200):
        w = rng.beta(*rng.uniform(0.2, 8, 2), size=400)
        agreement = w + (1 - w) * rng.uniform(-1, 1, 400)
        shift = rng.uniform(0.05, 0.95)
        mine, others = rng.uniform(1e-3, 1, (2, 400))
        up = np.maximum(shift + agreement, 0)
        F = mine * up - others * np.maximum(shift - agreement, 0)
        bound = 2 * (1 - w.mean()) / (1 - shift)
        error = np.mean(F <= 0)
        assert error <= bound + 1e-12
        closest = min(closest, bound - error)
    measured("least slack", closest)


@pytest.mark.statement("Li ICL: Figures 27 and 28")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_no_weighted_majority_beats_one_context(measured, n):
    """h(p) >= p for p >= 1/2 and any weights, ties by a coin; exact."""
    rng = np.random.default_rng(n)
    least = Fraction(1)
    cases = [[1] * n, *(rng.integers(0, 5, n).tolist() for _ in range(8))]
    for weights in cases:
        if not sum(weights):
            continue
        for p in (Fraction(1, 2), Fraction(5, 7), Fraction(5, 6), Fraction(19, 20)):
            chance = Fraction(0)
            for votes in itertools.product((1, -1), repeat=n):
                total = sum(w * v for w, v in zip(weights, votes, strict=True))
                ups = votes.count(1)
                share = p**ups * (1 - p) ** (n - ups)
                chance += share * (1 if total > 0 else Fraction(total == 0, 2))
            assert chance >= p
            least = min(least, chance - p)
    measured("least h(p) - p", float(least))


@pytest.mark.statement("Li ICL: Figures 27 and 28")
@pytest.mark.parametrize("fraction", [0.6, 1.0])
def test_the_nearest_context_is_right_unless_the_pattern_is_missed(measured, fraction):
    """And then it errs with 1 / (2 - alpha'); z-score of the exact error."""
    rng, M, n, size = np.random.default_rng(2), 6, 4, 4_000
    chance = np.full(M, (1 - fraction) / (M - 2))
    chance[:2] = fraction / 2
    pattern = rng.choice(M, p=chance, size=(size, n))
    coin = rng.choice([-1, 1], size=(size, n))
    y = np.where(pattern == 0, 1, np.where(pattern == 1, -1, coin))
    basis = 2.0 * np.eye(M + 8)

    def token(pattern):
        kappa = rng.uniform(-0.5, 0.5, size=(*pattern.shape, 1))
        return basis[pattern] + kappa * basis[M + rng.integers(8, size=pattern.shape)]

    X, query = token(pattern), token(np.zeros(size, int))
    nearest = ((X - query[:, None]) ** 2).sum(-1).argmin(1)
    wrong = y[np.arange(size), nearest] != 1
    hit = (pattern == 0).any(1)
    assert not wrong[hit].any()
    exact = (1 - fraction / 2) ** n / (2 - fraction)
    measured("z", share_z(wrong, exact), below=4)


def least_factor(curves, lengths, *, falling=True):
    """Least factor, to 1e-4, within which an error by votes alone fits the curves."""
    # With l examples of which each votes with probability alpha', the error is the mean
    # of g(n) over a binomial n; with ``falling``, g must not rise with n. Linear
    # programs decide whether some g has all errors within a factor.
    counts = np.arange(max(lengths) + 1)
    mixing = np.array([binom.pmf(counts, l, a) for a in curves for l in lengths])
    errors = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    rise = np.diff(np.eye(len(counts)), axis=0)[: len(counts) if falling else 0]
    rows, rises = np.vstack([mixing, -mixing, rise]), np.zeros(len(rise))
    low, high = 1.0, 16.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        limit = np.concatenate([errors * middle, -errors / middle, rises])
        found = linprog(0.0 * counts, rows, limit, bounds=(0, 1), method="highs")
        low, high = (low, middle) if found.status == 0 else (middle, high)
    return high


@pytest.mark.statement("Li CoT: Figures 17 and 18")
def test_the_linear_program_knows_what_votes_can_do():
    """Errors of a vote are met exactly; a rise with alpha' is not."""
    lengths = (6, 12)
    exact = {
        a: [float(vote_error(0.7, l, a).wrong) for l in lengths] for a in (0.5, 1.0)
    }
    assert least_factor(exact, lengths, falling=False) < 1.001
    # One vote more or less: errors that grow fourfold with alpha' need at least 2.
    rising = {0.5: [0.1], 1.0: [0.4]}
    assert least_factor(rising, (12,)) == pytest.approx(2, abs=1e-3)


@pytest.mark.statement("Li CoT: Figures 17 and 18")
@pytest.mark.parametrize(("falling", "factor"), [(True, 1.287), (False, 1.15)])
def test_figure_17_is_near_what_votes_can_do(measured, falling, factor):
    found = least_factor(FIGURE_17, LENGTHS, falling=falling)
    assert found == pytest.approx(factor, abs=0.01)
    measured("least factor", found)
