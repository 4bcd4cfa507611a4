"""Steps of the derivations for Zhang, Wu and Bartlett (2024), by SymPy, in rationals.

Nothing is rounded. Where a formula ends in a function of the library, the function is
evaluated at a rational point beside it.
"""

import itertools

import numpy as np
import pytest
import sympy as sp

from icltheory import regression as reg
from icltheory.regression import LinearPopulation

b, Gamma, q, A, g, v = sp.symbols("b Gamma q A g v", real=True)
phi, sigma, t, square = sp.symbols("phi sigma t T_2", positive=True)
M = sp.Symbol("M", positive=True)
tau = phi + sigma**2
omega = ((M + 1) * phi + tau) / M


def gaussian_mean(expression, *pairs):
    """Expectation over independent centred Gaussians (symbol, variance)."""
    for symbol, variance in pairs:
        total = 0
        for (power,), factor in sp.Poly(sp.expand(expression), symbol).terms():
            if power % 2 == 0:
                total += factor * sp.factorial2(power - 1) * variance ** (power // 2)
        expression = total
    return sp.expand(expression)


def scalar_problem(H, mean, Psi, noise):
    return LinearPopulation(
        np.array([[float(H)]]),
        np.array([float(mean)]),
        np.array([[float(Psi)]]),
        float(noise),
    )


@pytest.mark.statement("Zhang: Lemma H.4")
def test_moments_by_wick_in_whole_numbers(measured):
    """E[S A S] and E[tr(A S) S] for M = 3, d = 2, from fourth moments one by one."""
    d, count = 2, 3
    mat = sp.Matrix([[2, 1], [1, -3]])

    def pair(i, j):
        return int(i == j)

    def fourth(*index):
        i, j, k, l = index
        return (
            pair(i, j) * pair(k, l) + pair(i, k) * pair(j, l) + pair(i, l) * pair(j, k)
        )

    inner, weighted = sp.zeros(d), sp.zeros(d)
    for r, s in itertools.product(range(count), repeat=2):
        for i, j, k, l in itertools.product(range(d), repeat=4):
            # rows r and s: one Gaussian vector where they are equal
            moment = fourth(i, j, k, l) if r == s else pair(i, j) * pair(k, l)
            inner[i, l] += mat[j, k] * moment
            weighted[k, l] += mat[i, j] * moment
    one, m = sp.eye(d), sp.Rational(count)
    assert inner / m**2 == (m + 1) / m * mat + mat.trace() / m * one
    assert weighted / m**2 == mat.trace() * one + 2 / m * mat
    measured("moments that agree exactly", 2 * d**2)


def scalar_excess(examples):
    """R - sigma^2 of GD-beta for H = 1, d = 1, from all moments of the data."""
    xs = sp.symbols(f"x1:{examples + 1}", real=True)
    es = sp.symbols(f"e1:{examples + 1}", real=True)
    w = sp.Symbol("w", real=True)  # about its prior mean
    gradient = sum(x * (x * (b - w) - e) for x, e in zip(xs, es, strict=True))
    error = (b - Gamma * gradient / examples - w) ** 2
    pairs = [(e, sigma**2) for e in es] + [(w, phi)] + [(x, 1) for x in xs]
    return gaussian_mean(error, *pairs)


@pytest.mark.statement("Zhang: Section 5", "Zhang: Theorem 5.2")
def test_risk_and_its_two_squares_by_sympy():
    """M = 2: the risk from its definition is R_min + b^2 Q + omega (Gamma - *)^2."""
    at = {M: 2}
    Q = 1 - 2 * Gamma + (M + 2) / M * Gamma**2
    least = phi * (phi + tau) / ((M + 1) * phi + tau)
    parts = least + b**2 * Q + omega * (Gamma - phi / omega) ** 2
    assert sp.simplify(scalar_excess(2) - parts.subs(at)) == 0
    point = {phi: sp.Rational(3, 2), sigma: sp.Rational(1, 2), b: 2, Gamma: 1}
    problem = scalar_problem(1, 0, sp.Rational(3, 2), sp.Rational(1, 4))
    model = reg.GDBeta(np.array([2.0]), np.array([[1.0]]))
    wanted = float(parts.subs(at).subs(point)) + 0.25
    np.testing.assert_allclose(reg.risk(model, problem, 2), wanted, rtol=1e-14)
    np.testing.assert_allclose(
        reg.optimum(reg.LTB, problem, 2).risk,
        float(least.subs(at).subs(point)) + 0.25,
    )


@pytest.mark.statement("Zhang: Appendix G, curvature")
def test_least_curvature_by_sympy():
    """1 - 2s + (M + 2)/M s^2 has its minimum 2 / (M + 2) at s = M / (M + 2)."""
    s = sp.Symbol("s", nonnegative=True)
    value = 1 - 2 * s + (M + 2) / M * s**2
    completed = 2 / (M + 2) + (M + 2) / M * (s - M / (M + 2)) ** 2
    assert sp.simplify(value - completed) == 0
    # Attained in two dimensions by the matrix s u u', in rational numbers
    count, unit = sp.Rational(3), sp.Matrix([sp.Rational(3, 5), sp.Rational(4, 5)])
    G = count / (count + 2) * unit * unit.T
    square_sum = sum(x**2 for x in G)
    Q = (
        sp.eye(2)
        - G
        - G.T
        + (count + 1) / count * G.T * G
        + square_sum / count * sp.eye(2)
    )
    assert (unit.T * Q * unit)[0] == 2 / (count + 2)
    problem = LinearPopulation(np.eye(2), np.zeros(2), np.eye(2), 1.0)
    found = reg.landscape.curvature(np.array(G, float), problem, 3)
    np.testing.assert_allclose(found, np.array(Q, float), atol=1e-14)


@pytest.mark.statement("Zhang: Appendices B and D, terms")
def test_squares_of_a_block_by_sympy():
    """The four squares add up to the risk of an LTB, for d = 1 from its moments."""
    examples, m = 1, sp.Symbol("m", real=True)
    z, e, zeta = sp.symbols("z e zeta", real=True)
    r = z * zeta + e
    B = v * A + q * g
    error = -m + A * z**2 * q + v * r**2 * g - zeta + B * z * r
    pairs = [(e, sigma**2), (zeta, phi), (z, 1)]
    moments = gaussian_mean(error**2, *pairs)
    least = phi * (phi + tau) / ((M + 1) * phi + tau)
    parts = omega * (B - phi / omega) ** 2
    parts += (A * q + v * tau * g - m) ** 2
    parts += v**2 * g**2 * (2 * tau**2 / M + 2 * phi**2)
    parts += ((A * q + 2 * v * phi * g) ** 2 + (A * q) ** 2) / M
    assert sp.simplify(moments - (least + parts).subs(M, examples)) == 0


@pytest.mark.statement("Zhang: Theorem 4.1")
def test_theta_and_its_bound_by_sympy():
    """It is h' D^-1 h = M theta(t), and theta <= 1: one sign in 1 - theta."""
    T = sp.Symbol("tau", positive=True)
    kappa = (2 * T**2 + 4 * t**2) / M + 2 * square
    D = sp.Matrix([[2 / M, 2 * t / M], [2 * t / M, kappa]])
    h = sp.Matrix([1, T])
    theta = ((T**2 - T * t + t**2) / M + square / 2) / ((T**2 + t**2) / M + square)
    assert sp.simplify((h.T * D.inv() * h)[0] - M * theta) == 0
    gap = sp.factor(sp.simplify(1 - theta))
    numerator, denominator = sp.fraction(gap)
    for part in (numerator, denominator):
        signs = {sp.sign(c) for c in sp.Poly(sp.expand(part), T, t, square, M).coeffs()}
        assert len(signs) == 1
    # The quadratic form's minimum, by solving for its stationary point
    a, s, m = sp.symbols("a s m", real=True)
    form = (a + T * s - m) ** 2 + 2 / M * a**2 + 4 * t / M * a * s + kappa * s**2
    found = sp.solve([sp.diff(form, a), sp.diff(form, s)], [a, s], dict=True)[0]
    assert sp.simplify(form.subs(found) - m**2 / (1 + M * theta)) == 0


@pytest.mark.statement("Zhang: Theorem 4.1")
def test_constant_of_theorem_4_1_is_the_best_by_sympy(measured):
    """An LSA for d = 1 whose excess over m^2 tends to 1 / (M + 1)."""
    m, T = sp.symbols("m tau", positive=True)
    a = M * m / (2 * (M + 1))
    s = a / T
    excess = (a + T * s - m) ** 2 + 2 / M * a**2 + 4 * phi / M * a * s
    excess += s**2 * (2 * T**2 / M + 2 * (1 + 2 / M) * phi**2)
    limit = sp.limit(excess / m**2, phi, 0)
    assert sp.simplify(limit - 1 / (M + 1)) == 0
    # The library's exact gap of one dimension, below the bound by ever less
    for small in (0.1, 0.01, 0.001):
        problem = scalar_problem(1, small / 100, small, 1.0)
        gap, largest = map(float, reg.gaps.scalar_gap(problem, 4))
        assert small / 100 < largest  # where the formula is the gap
        ratio = gap / (small / 100) ** 2
        assert ratio > 0.2
    measured("gap over its bound at phi = 0.001", ratio / 0.2, below=1.005)


@pytest.mark.statement("Zhang: Theorem 6.3, remark")
@pytest.mark.parametrize(("top", "second"), [(1, sp.Rational(1, 20)), (2, 1)])
def test_second_variation_at_the_spurious_minimum_by_sympy(top, second, measured):
    """At d = 2, M = 2: the Hessian of the squares, its one zero and the condition."""
    noise, count = sp.Rational(1, 4), sp.Integer(2)
    Phi = sp.diag(top, second)
    T = Phi.trace() + noise
    Omega = (count + 1) / count * Phi + T / count * sp.eye(2)
    rho = Phi[0, 0] / Omega[0, 0]
    names = sp.symbols("v a11 a12 a21 a22 m1 m2 q1 q2 g1 g2", real=True)
    w, A_ = names[0], sp.Matrix(2, 2, names[1:5])
    m_, q_, g_ = (sp.Matrix(names[i : i + 2]) for i in (5, 7, 9))
    B = w * A_ + q_ * g_.T
    gap = B - Omega.inv() * Phi
    trace = (Phi**2).trace()
    risk = (gap.T * Omega * gap).trace()
    drift = A_.T * q_
    start = drift + w * T * g_ - m_
    risk += (start.T * start)[0] + (drift.T * drift)[0] / count
    risk += w**2 * (g_.T * g_)[0] * (2 * T**2 / count + 2 * trace)
    risk += (
        sum(x**2 for x in A_) * (q_.T * q_)[0]
        + 4 * w * (q_.T * Phi * A_ * g_)[0]
        + 4 * w**2 * trace * (g_.T * g_)[0]
    ) / count
    point = dict.fromkeys(names, 0) | {names[7]: 1, names[9]: rho}
    assert all(sp.diff(risk, x).subs(point) == 0 for x in names)
    lost = Phi[1, 1] ** 2 / Omega[1, 1]
    assert risk.subs(point) == lost
    hessian = sp.hessian(risk, names).subs(point)
    margin = rho**2 * (
        2 * T**2 / count - 2 * Phi[0, 0] ** 2 / count + 2 * (1 + 2 / count) * trace
    )
    margin -= count * Phi[1, 1] ** 2
    assert hessian.rank() == len(names) - 1  # the rescaling of q and g
    values = np.linalg.eigvalsh(np.array(hessian, float))
    assert (values[0] > -1e-12) == (margin > 0)
    problem = LinearPopulation(
        np.eye(2), np.zeros(2), np.array(Phi, float), float(noise)
    )
    found = reg.landscape.spurious_minimum(problem, 2)
    np.testing.assert_allclose(found.margin, float(margin), rtol=1e-12)
    np.testing.assert_allclose(found.excess, float(lost), rtol=1e-12)
    measured("margin", float(margin))


@pytest.mark.statement("Zhang: Theorem 6.3, rates")
def test_bound_on_the_flow_solves_its_equation_by_sympy():
    """N' = -alpha N + C e^{-gamma t}, both cases."""
    alpha, gamma, C, N_0 = sp.symbols("alpha gamma C N_0", positive=True)
    apart = sp.exp(-alpha * t) * N_0
    apart += C * (sp.exp(-gamma * t) - sp.exp(-alpha * t)) / (alpha - gamma)
    equal = sp.exp(-alpha * t) * (N_0 + C * t)
    for path, rate in ((apart, gamma), (equal, alpha)):
        right = -alpha * path + C * sp.exp(-rate * t)
        assert sp.simplify(sp.diff(path, t) - right) == 0
        assert sp.simplify(path.subs(t, 0) - N_0) == 0


@pytest.mark.statement("Zhang: after Theorem 6.3")
def test_risk_is_not_convex_by_sympy():
    """Determinant of the Hessian at Gamma = 1/k - 1 is negative for large b."""
    Q = 1 - 2 * Gamma + (M + 2) / M * Gamma**2
    k = (M + 2) / M
    leading = (k * Q - sp.diff(Q, Gamma) ** 2).subs(Gamma, 1 / k - 1)
    assert sp.simplify(leading - (-3 * k**2 + k - 1)) == 0
    value = scalar_excess(1)
    hessian = sp.hessian(value, (b, Gamma)).subs({M: 1, phi: 1, sigma: 1})
    at = hessian.subs({b: 100, Gamma: sp.Rational(1, 3) - 1})
    assert at.det() < 0


@pytest.mark.statement("Zhang: Corollary 6.2")
def test_rates_of_single_terms_by_sympy():
    """A term of R_min is between a third and 1 + 2c times its threshold."""
    for count, signal, noise in itertools.product((1, 3, 40), (1, 5), (1, 2)):
        for share in (sp.Rational(1, 50), sp.Rational(1, 3), sp.Integer(1)):
            value, c = share * signal, sp.Rational(signal, noise)
            total = signal + noise
            term = value * (value + total) / ((count + 1) * value + total)
            least = min(value, sp.Rational(noise, count))
            assert least / 3 <= term <= (1 + 2 * c) * least
            assert value * noise / (noise + count * value) >= least / 2
