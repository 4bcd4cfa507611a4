import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.patterns import is_feasible, out_of_domain_patterns
from icltheory.patterns.shift import complement, random_orthogonal
from tests.raising import raises

drawn = jax.jit(out_of_domain_patterns, static_argnums=1)  # of a traced sum
MU = 2.0 * np.linalg.qr(np.random.default_rng(0).normal(size=(9, 9)))[0][:6]


@pytest.mark.parametrize(
    ("num", "S"),
    [(1, 2.4), (2, -1.7), (3, 1.3), (3, 2**0.5), (5, 0.0), (6, 1.0), (6, -1.0)],
)
def test_patterns_are_orthogonal_of_one_norm_and_of_the_sum(key, num, S):
    new = np.asarray(drawn(MU, num, S, key=key))
    np.testing.assert_allclose(new @ new.T, 4 * np.eye(num), atol=1e-12)
    coefficients = new @ MU.T / 4
    np.testing.assert_allclose(coefficients @ MU, new, atol=1e-12)  # in the span
    np.testing.assert_allclose(coefficients.sum(1), S, atol=1e-12)


def test_infeasible_sums_name_the_inequality(key):
    message = "coefficient_sum: expected M1' S_1^2 <= M1 = 6, got 6.76"
    with raises(message):
        out_of_domain_patterns(MU, 4, 1.3, key=key)
    with raises("coefficient_sum: expected M1' S_1^2 = M1 = 6 where M1' = M1, got 1.5"):
        out_of_domain_patterns(MU, 6, 0.5, key=key)
    with raises("num_shifted: expected M1' <= M1 = 6, got 7"):
        out_of_domain_patterns(MU, 7, 0.1, key=key)
    with raises("coefficient_sum: expected finite entries"):
        out_of_domain_patterns(MU, 2, np.nan, key=key)
    with raises("patterns: expected orthogonal rows of one norm up to a deviation"):
        out_of_domain_patterns(np.diag([1.0, 2.0]), 1, 1.0, key=key)
    with raises("num_shifted: expected a positive integer, got 0"):
        out_of_domain_patterns(MU, 0, 1.0, key=key)


@pytest.mark.statement("Li ICL: Theorem 2")
@pytest.mark.parametrize("num", [2, 5, 6])
def test_no_orthonormal_rows_break_the_condition(num):
    """The sums of any rows: squares at most M1, and exactly M1 for a basis."""
    rng = np.random.default_rng(num)
    for _ in range(20):
        rows = np.linalg.qr(rng.normal(size=(6, 6)))[0][:num]
        total = np.sum(rows.sum(1) ** 2)
        assert total <= 6 + 1e-12
        assert (abs(total - 6) < 1e-12) == (num == 6)


def test_feasibility_of_many_sums():
    S = np.array([0.0, 1.0, 1.2, 2**0.5, 1.5, -1.5])
    wanted = [3 * s**2 <= 6 + 1e-9 for s in S]
    np.testing.assert_array_equal(is_feasible(6, 3, S), wanted)
    assert not is_feasible(6, 7, 0.0)


@pytest.mark.slow
def test_traced_sums_and_stacks_are_the_same(key):
    S = np.array([-1.0, 0.3, 1.4])

    def draw(s, num=3):
        return out_of_domain_patterns(np.eye(6), num, s, key=key)

    for one, s in zip(np.asarray(jax.jit(jax.vmap(draw))(S)), S, strict=True):
        np.testing.assert_allclose(one, draw(s), atol=1e-14)
    broken = np.asarray(jax.jit(lambda s: draw(s, 4))(1.3))
    np.testing.assert_allclose(broken.sum(1), 1.3, atol=1e-12)  # the sum is kept
    assert np.isfinite(broken).all()


def test_coefficients_are_drawn_uniformly():
    """The law is invariant under permutations of both patterns: means and squares."""
    keys = jax.random.split(jax.random.key(1), 4000)
    one = lambda key: out_of_domain_patterns(np.eye(6), 3, 0.9, key=key)  # noqa: E731
    k = np.asarray(jax.jit(jax.vmap(one))(keys))
    for values, mean in ((k, 0.9 / 6), (k**2, 1 / 6)):
        z = (values.mean(0) - mean) / (values.std(0) / len(k) ** 0.5)
        assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("size", [1, 2, 5, 30])
def test_random_matrices_are_orthogonal(key, size):
    Q = np.asarray(jax.jit(lambda k: random_orthogonal(k, size, jnp.float64))(key))
    np.testing.assert_allclose(Q @ Q.T, np.eye(size), atol=1e-13)
    basis = complement(size)
    np.testing.assert_allclose(basis.T @ basis, np.eye(size - 1), atol=1e-13)
    np.testing.assert_allclose(basis.sum(0), 0, atol=1e-13)


@pytest.mark.slow
def test_random_matrices_are_of_the_haar_measure():
    """Invariant under rotations from both sides: moments of a rotated entry."""
    keys = jax.random.split(jax.random.key(2), 8000)
    one = lambda key: random_orthogonal(key, 3, jnp.float64)  # noqa: E731
    Q = np.asarray(jax.jit(jax.vmap(one))(keys))
    rng = np.random.default_rng(0)
    for u, v in rng.normal(size=(6, 2, 3)):
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        entry = np.einsum("i,kij,j->k", u, Q, v)
        for power, mean in ((1, 0), (2, 1 / 3), (3, 0), (4, 1 / 5)):
            sample = entry**power
            assert abs(sample.mean() - mean) < 4.5 * sample.std() / len(Q) ** 0.5
    signs = np.sign(np.linalg.det(Q))
    assert abs(signs.mean()) < 4.5 / len(Q) ** 0.5
