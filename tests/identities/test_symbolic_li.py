"""Steps of the derivations for Li et al. and Huang et al., in rationals, by SymPy."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from icltheory import chain_of_thought as cot
from icltheory.patterns import hinge, is_feasible, margin, pruned_hinge
from icltheory.regression.balanced_features import balanced_time

R = sp.Rational
POINTS = [R(p, 4) for p in range(-8, 9)]


def positive(x):
    return sp.Max(0, x)


def network(c, S, g, z, removed=0, pairs=4):
    """F of an ideal network by neurons: inputs c S +- z, weights +- g / pairs."""
    total = 0
    for index, sign in itertools.product(range(pairs), (1, -1)):
        if index >= removed:
            total += sign * g / pairs * positive(c * S + sign * z)
    return total


@pytest.mark.statement("Li ICL: Theorem 2, margin", "Li ICL: Eq. (12)")
def test_margin_and_hinge_in_rational_numbers(measured):
    """The margin z F is one formula for both labels; its hinge is [1 - F]_+."""
    count = 0
    for c, g, S in itertools.product((R(1, 3), R(1)), (R(1, 2), R(3, 2)), POINTS):
        F = g * (positive(c * S + 1) - positive(c * S - 1))
        for z in (1, -1):
            assert z * network(c, S, g, z) == F
        if abs(c * S) <= 1:
            assert g * (1 + c * S) == F
        if c * S >= 1:
            assert 2 * g == F
        if c * S <= -1:
            assert F == 0
        found = margin(float(S), float(g), float(c))
        np.testing.assert_allclose(found, float(F), atol=1e-15)
        np.testing.assert_allclose(hinge(found), float(positive(1 - F)), atol=1e-15)
        count += 1
    measured("points that agree exactly", count)


@pytest.mark.statement("Li ICL: Theorem 3, large neurons")
def test_pruned_margin_in_rational_numbers():
    """A share r of either sign gone leaves (1 - r) F, free up to r = 1 - 1/F."""
    c, g, S = R(2, 3), R(3, 2), R(1)
    F = network(c, S, g, 1)
    for removed in range(5):
        r = R(removed, 4)
        cut = network(c, S, g, 1, removed)
        assert cut == (1 - r) * F
        loss = positive(1 - cut)
        assert (loss == 0) == (r <= 1 - 1 / F)
        np.testing.assert_allclose(
            pruned_hinge(float(F), float(r)), float(loss), atol=1e-15
        )


@pytest.mark.statement("Li ICL: Theorem 2, margin")
def test_feasible_sums_in_rational_numbers():
    """Gram matrix I - (S^2 / M) 1 1' of what is orthogonal to the vector of ones."""
    M = 6
    for n, S in itertools.product((1, 2, 3, 5), (R(1, 2), R(1), R(6, 5), R(5, 2))):
        Gram = sp.eye(n) - S**2 / M * sp.ones(n)
        least = min(Gram.eigenvals())
        assert (least >= 0) == (n * S**2 <= M)
        assert bool(is_feasible(M, n, float(S))) == (n * S**2 <= M)


# --- chain of thought


def transition_matrices():
    one = sp.Matrix([[R(6, 10), R(4, 10)], [R(4, 10), R(6, 10)]])
    two = sp.Matrix([[R(4, 10), R(6, 10)], [R(8, 10), R(2, 10)]])
    return one, two


def correct_path(steps, start):
    path = [start]
    for A in steps:
        row = list(A.row(path[-1]))
        path.append(row.index(max(row)))
    return path


@pytest.mark.statement("Li CoT: K-steps transition")
def test_slides_numbers_in_rational_numbers(measured):
    """B, tau = 9/25, tau_o = 14/25, the gaps, and Condition 1 for one input of two."""
    steps = transition_matrices()
    B = steps[0] * steps[1]
    assert sp.Matrix([[R(56, 100), R(44, 100)], [R(64, 100), R(36, 100)]]) == B
    chances, right = [], []
    for start in range(2):
        path = correct_path(steps, start)
        chance = sp.Integer(1)
        for A, s, t in zip(steps, path, path[1:], strict=False):
            chance *= A[s, t]
        chances.append(chance)
        row = list(B.row(start))
        right.append(row.index(max(row)) == path[-1])
        assert row[path[-1]] >= chance
    assert chances == [R(36, 100), R(48, 100)]
    assert right == [False, True]
    given = cot.ReasoningTask(cot.slide_transitions())
    np.testing.assert_allclose(given.tau, float(min(chances)), rtol=1e-15)
    tau_o = min(max(B.row(i)) for i in range(2))
    assert tau_o == R(14, 25)
    np.testing.assert_allclose(given.tau_o, float(tau_o), rtol=1e-15)
    np.testing.assert_array_equal(given.condition_1, right)
    np.testing.assert_allclose(given.icl_error_limit, 0.5)
    rho = min(1 - sorted(A.row(i))[0] / max(A.row(i)) for A in steps for i in range(2))
    assert rho == R(1, 3)
    np.testing.assert_allclose(given.rho, float(rho), rtol=1e-15)
    measured("numbers that agree exactly", 6)


@pytest.mark.statement("Li CoT: CoT mechanism")
def test_chernoff_term_of_a_vote_by_sympy():
    """The minimum of 1 - pi (p + s) + pi (s e^x + p e^-x), and the bound by rho."""
    p, s, pi, y = sp.symbols("p s pi y", positive=True)  # y = e^x
    value = 1 - pi * (p + s) + pi * (s * y + p / y)
    [at] = sp.solve(sp.diff(value, y), y)
    least = sp.simplify(value.subs(y, at))
    assert sp.simplify(least - (1 - pi * (sp.sqrt(p) - sp.sqrt(s)) ** 2)) == 0
    # 1 - sqrt(1 - rho) >= rho / 2, as (1 - rho/2)^2 = 1 - rho + rho^2 / 4
    rho = sp.Symbol("rho", positive=True)
    assert sp.expand((1 - rho / 2) ** 2 - (1 - rho)) == rho**2 / 4


@pytest.mark.statement("Li CoT: CoT mechanism")
def test_vote_bound_holds_in_rational_numbers(measured):
    """Exact probability of a lost or tied plurality, of 5 examples and 3 candidates."""
    p, l = [R(5, 10), R(3, 10), R(2, 10)], 5
    lost = R(0)
    for votes in itertools.product(range(3), repeat=l):
        counts = [votes.count(j) for j in range(3)]
        if max(counts[1:]) >= counts[0]:
            lost += sp.prod([p[j] for j in votes])
    bound = float(cot.decay_bound(np.array(p, float), l))
    measured("probability over its bound", float(lost) / bound)
    assert float(lost) <= bound


@pytest.mark.statement("Li CoT: Theorem 5, slides")
def test_without_the_gap_the_error_is_that_of_a_fair_vote():
    """One step, tau > 1/2, three examples: 1/2 - 3e/2 + 2e^3, which tends to 1/2."""
    e = sp.Symbol("e", positive=True)
    good = sp.Rational(1, 2) + e
    wrong = (1 - good) ** 3 + 3 * (1 - good) ** 2 * good
    assert sp.expand(wrong) == sp.Rational(1, 2) - sp.Rational(3, 2) * e + 2 * e**3
    assert sp.limit(wrong, e, 0) == Fraction(1, 2)


# --- Huang et al.

u = sp.Symbol("u", positive=True)
G = -1 / (2 * u**2) - 2 / u + 3 * sp.log(u) + 1 / (1 - u) - 3 * sp.log(1 - u)


@pytest.mark.statement("Huang: balanced features")
def test_time_of_balanced_features_by_sympy(measured):
    """G' = 1 / (u^3 (1 - u)^2), both phases, and the library's t(u)."""
    K, eta = sp.symbols("K eta", positive=True)
    assert sp.simplify(sp.diff(G, u) - 1 / (u**3 * (1 - u) ** 2)) == 0
    s = K / (K - 1)
    time = K / (2 * eta * s**2) * (G.subs(u, 1 - 1 / K) - G)
    late = sp.limit(sp.simplify(s * u**2 * time.subs(K, 5)).subs(K, 5), u, 0)
    assert sp.simplify(late - 4 / (4 * eta) * 1) == 0
    start = sp.simplify(G.subs(u, 1 - 1 / K) - K - 3 * sp.log(K))
    assert sp.limit(start / sp.log(K), K, sp.oo) == 0
    for attention in (0.3, 0.5, 0.9):
        exact = time.subs({K: 5, eta: R(1, 4), u: 1 - attention})
        found = balanced_time(attention, 5, 0.25)
        measured("relative error of t(u)", float(found) / float(exact) - 1, below=1e-12)


@pytest.mark.statement("Huang: balanced features, phase 2")
@pytest.mark.parametrize("K", [5, 10])
def test_loss_tends_to_its_asymptote_from_above_by_sympy(K):
    s = R(K, K - 1)
    product = s * u**2 * K / (2 * s**2) * (G.subs(u, 1 - R(1, K)) - G)
    values = [sp.N(product.subs(u, R(1, 10**k))) for k in (2, 3, 4)]
    limit = R(K - 1, 4)
    assert values[0] > values[1] > values[2] > limit
    assert abs(values[2] / limit - 1) < 1e-3
