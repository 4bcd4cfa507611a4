"""Steps of the derivations for Yao et al. (2024), by rational numbers and by SymPy.

Nothing is rounded: an equality is an equality. The library's functions are evaluated
at the rational points beside.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from icltheory.attention import LinearAttentionStack
from icltheory.bounds import isotropic_term, xu_raginsky
from icltheory.noise import noise_covariance, without_replacement_factor
from icltheory.trajectory import implicit_update


def whole_numbers(seed, *shape):
    return np.random.default_rng(seed).integers(-3, 4, size=shape)


def exact(array):
    return sp.Matrix(array.tolist())


@pytest.mark.statement("Yao: C_t (definition)")
def test_covariance_of_b_shots_in_rational_numbers(measured):
    """All subsets of N = 5 vectors of whole numbers, for every b."""
    z = whole_numbers(0, 5, 3)
    N, vectors = len(z), [exact(row[:, None]) for row in z]
    mean = sum(vectors, sp.zeros(3, 1)) / N
    inner = sum((v * v.T for v in vectors), sp.zeros(3)) / N - mean * mean.T
    for b in range(1, N + 1):
        means = [
            sum((vectors[i] for i in chosen), sp.zeros(3, 1)) / b
            for chosen in itertools.combinations(range(N), b)
        ]
        true = sum(((m - mean) * (m - mean).T for m in means), sp.zeros(3)) / len(means)
        kappa = sp.Rational(N - b, b * (N - 1))
        assert true == kappa * inner
        np.testing.assert_allclose(
            without_replacement_factor(N, b), float(kappa), rtol=1e-15
        )
    measured("values of b that agree exactly", N)


@pytest.mark.statement("Yao: C_t positive definite")
def test_support_dimension_in_rational_numbers():
    """Rank of X -> A X B on symmetric X is r s - k (k - 1) / 2."""
    n = 4
    basis = [
        exact(np.eye(n, dtype=int)[[i]].T @ np.eye(n, dtype=int)[[j]])
        for i in range(n)
        for j in range(i, n)
    ]
    for seed, (r, s) in enumerate(itertools.product((1, 2, 3, 4), (1, 2, 4))):
        A = exact(whole_numbers([seed, 1], n, r)) * exact(
            whole_numbers([seed, 2], r, n)
        )
        B = exact(whole_numbers([seed, 3], n, s)) * exact(
            whole_numbers([seed, 4], s, n)
        )
        images = [A * (E + E.T) * B for E in basis]
        m = sp.Matrix([list(image) for image in images]).rank()
        ranks = A.rank(), B.rank()
        together = A.T.row_join(B).rank()
        k = sum(ranks) - together
        assert m == ranks[0] * ranks[1] - sp.Rational(k * (k - 1), 2)
        assert m <= n * (n + 1) / 2 < n * n


@pytest.mark.statement("Yao: C_t positive definite", "Yao: Theorem 2 (as printed)")
def test_covariance_of_a_prompt_is_singular_in_rational_numbers(measured):
    """N far above n^2, and still rank n (n + 1) / 2: the assumption never holds."""
    n, N = 2, 12
    W_V, W_K, W_Q, H = (
        whole_numbers([9, i], *s)
        for i, s in enumerate([(n, n), (n, n), (n, n), (N, n)])
    )
    g = [np.outer(W_V @ h, (W_K @ h) @ W_Q).ravel() for h in H]
    rows = exact(np.array(g))
    mean = sp.ones(1, N) * rows / N
    C = rows.T * rows / N - mean.T * mean
    assert C.rank() == n * (n + 1) // 2 < n * n
    assert C.det() == 0
    stack = LinearAttentionStack(*(w[None].astype(float) for w in (W_V, W_K, W_Q)))
    found = np.asarray(noise_covariance(stack, H.astype(float), 4, 0))
    wanted = np.array(C, float) * N**2 * float(without_replacement_factor(N, 4))
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-9)
    measured("rank of C_t, of 4", C.rank())


@pytest.mark.statement("Yao: Eq. (17)")
def test_isotropic_optimum_by_sympy():
    """The minimum of m log s - A_2 - m + A_1 / s is at A_1 / m, and nowhere else."""
    s, A_1, m = sp.symbols("s A_1 m", positive=True)
    A_2 = sp.Symbol("A_2", real=True)
    value = m * sp.log(s) - A_2 - m + A_1 / s
    assert sp.solve(sp.diff(value, s), s) == [A_1 / m]
    assert sp.simplify(sp.diff(value, s, 2).subs(s, A_1 / m) - m**3 / A_1**2) == 0
    least = sp.simplify(value.subs(s, A_1 / m))
    assert sp.simplify(sp.expand_log(least - (m * sp.log(A_1 / m) - A_2))) == 0
    found = isotropic_term(3.0, 2.0, -1.5, 4)
    assert abs(float(found) - float(4 * sp.log(sp.Rational(5, 4)) + 1.5)) < 1e-14


@pytest.mark.statement("Yao: Remark 4")
def test_terms_are_invariant_under_scale_by_sympy():
    """Remark 4: A_1 -> a^2 A_1 and log pdet C -> log pdet C + m log a^2."""
    a, A_1, m = sp.symbols("a A_1 m", positive=True)
    A_2 = sp.Symbol("A_2", real=True)
    term = m * sp.log(A_1 / m) - A_2
    moved = m * sp.log(a**2 * A_1 / m) - (A_2 + m * sp.log(a**2))
    assert sp.simplify(sp.expand_log(moved - term)) == 0


@pytest.mark.statement("Yao: Lemma 6, second line")
def test_gaussian_channel_of_lemma_6_in_exact_logarithms(measured):
    """One sample, C = c I in 200 dimensions, c = 1 or 4: not a prompt."""
    d, sizes = 200, (sp.Integer(1), sp.Integer(4))
    half = sp.Rational(1, 2)
    inside = sum(half * (d * sp.log(d * c / d) - d * sp.log(c)) for c in sizes)
    assert sp.simplify(inside) == 0
    mean = sum(half * c for c in sizes)
    outside = d * sp.log(mean) - sum(half * d * sp.log(c) for c in sizes)
    assert sp.simplify(outside - 200 * sp.log(sp.Rational(5, 4))) == 0
    bound = float(xu_raginsky(float(outside) / 2, 1, 0.5))
    measured("bound with the logarithm outside", bound)
    assert abs(bound - float(sp.sqrt(outside) / 2)) < 1e-12
    assert bound > 3


@pytest.mark.statement("Yao: Lemma 1", "Yao: Theorem 1 (identity)", "Yao: Remark 2")
def test_products_of_theorem_1_in_whole_numbers():
    """Three layers under the shared mask: sums, products, and the polynomial in S."""
    n, N = 2, 3
    H = H_0 = exact(whole_numbers(5, n, N))
    P = sp.eye(n)
    total = sp.zeros(n)
    for t in range(3):
        W_V, W_K, W_Q = (exact(whole_numbers([t, i], n, n)) for i in range(3))
        update = W_V * H * (W_K * H).T * W_Q
        G = update * P
        S = H_0 * H_0.T
        assert G == W_V * P * S * P.T * W_K.T * W_Q * P
        H, P, total = (sp.eye(n) + update) * H, (sp.eye(n) + update) * P, total + G
        assert sp.eye(n) + total == P
        assert H == P * H_0
    first = np.array(exact(whole_numbers([0, 0], n, n)), float)
    given = [np.array(whole_numbers([0, i], n, n), float) for i in range(3)]
    np.testing.assert_array_equal(given[0], first)
    found = np.asarray(implicit_update(*given, np.array(H_0.T, float)))
    wanted = given[0] @ np.array(H_0, float) @ (given[1] @ np.array(H_0, float)).T
    np.testing.assert_allclose(found, wanted @ given[2], atol=1e-9)


@pytest.mark.statement(
    "Yao: Example 2 (W_Q)", "Yao: Example 3 (W_V)", "Yao: Example 3 (W_K)"
)
def test_squares_of_the_examples_in_whole_numbers(measured):
    """Pruning diag(2, 1): an equality for W_V and W_Q, from 0 to 2 for W_K."""
    W, kept, lost = (sp.diag(*v) for v in ((2, 1), (2, 0), (0, 1)))
    X = exact(whole_numbers(3, 2, 2))

    def square(M):
        return sum(x**2 for x in M)

    assert square(X * W) == square(X * kept) + square(X * lost)
    assert square(W * X) == square(kept * X) + square(lost * X)
    W_V, W_Q = sp.Matrix([[1, 1], [0, 0]]), sp.Matrix([[1, 0], [-2, 0]])
    before, after = square(W_V * W * W_Q), square(W_V * kept * W_Q)
    assert (before, after) == (0, 4)
    measured("norm after pruning W_K, before 0", np.sqrt(float(after)))
    # Equation (20) and the line (**): 4 > 2, and 4 is not 2.
    assert Fraction(1 + 1) ** 2 > 1 + 1
    assert square(sp.Matrix([[2]])) == 4
