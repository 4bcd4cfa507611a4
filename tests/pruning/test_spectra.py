import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.layered import LayeredStack
from icltheory.linalg import condition_number, effective_rank, stable_rank
from icltheory.pruning import by_layer, module_spectra, random_condition_number
from tests.raising import raises

L, n = 2, 6


def stack(dtype="float64", seed=0):
    W = np.random.default_rng(seed).normal(size=(3, L, n, n))
    return LinearAttentionStack(*jnp.asarray(W, dtype))


def test_records_agree_with_the_functions_of_one_matrix():
    params = stack()
    records = module_spectra(LayeredStack.of(params), params)
    assert [(r.layer, r.name) for r in records][:4] == [
        (0, "W_V"),
        (0, "W_K"),
        (0, "W_Q"),
        (1, "W_V"),
    ]
    for record in records:
        W = getattr(params, record.name)[record.layer]
        s = np.linalg.svd(W, compute_uv=False)
        np.testing.assert_allclose(record.singular_values, s, rtol=1e-13)
        np.testing.assert_allclose(record.condition_number, condition_number(W))
        np.testing.assert_allclose(record.effective_rank, effective_rank(W))
        np.testing.assert_allclose(record.stable_rank, stable_rank(W))
        null = random_condition_number((n, n))
        np.testing.assert_allclose(record.null_ratio, s[0] / s[-1] / null)
        assert (record.numerical_rank, record.below_floor) == (n, False)


def test_rows_by_layer_and_a_choice_of_module():
    params = stack()
    model = LayeredStack.of(params)
    records = module_spectra(model, params)
    rows = by_layer(records, "condition_number")
    assert np.shape(rows) == (L, 3)
    some = module_spectra(model, params, layers=[1], module="W_Q")
    assert by_layer(some, "condition_number") == [[rows[1][2]]]


def test_values_below_the_rounding_of_the_stored_dtype_are_flagged():
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(n, n)))[0]
    W = U @ np.diag([1, 0.5, 0.1, 0.1, 0.1, 1e-6]) @ U.T
    for dtype, rank in (("float64", 6), ("bfloat16", 5), ("float16", 5)):
        params = LinearAttentionStack(*[jnp.asarray(W, dtype)[None]] * 3)
        record = module_spectra(LayeredStack.of(params), params)[0]
        assert record.dtype == dtype
        assert (record.below_floor, record.numerical_rank) == (rank < 6, rank)


def test_zero_and_singular_matrices():
    O = jnp.zeros((1, 2, 2))
    params = LinearAttentionStack(O, O.at[0, 0, 0].set(2.0), O)
    zero, singular, _ = module_spectra(LayeredStack.of(params), params)
    assert zero.condition_number == singular.condition_number == np.inf
    assert (zero.effective_rank, zero.stable_rank, zero.numerical_rank) == (0, 0, 0)
    assert (singular.effective_rank, singular.stable_rank) == (1, 1)
    assert zero.below_floor
    assert singular.below_floor


@pytest.mark.parametrize("columns", [16, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("extra", [0, 1, 2, 3, 5, 8, 16, 64])
def test_the_null_is_the_median_of_gaussian_matrices(columns, extra):
    rng = np.random.default_rng(extra)
    s = np.linalg.svd(rng.normal(size=(800, columns + extra, columns)))[1]
    ratios = np.sort(s[:, 0] / s[:, -1])
    formula = random_condition_number((columns + extra, columns))
    # Order statistics four standard errors around the median.
    low, high = ratios[[400 - 57, 400 + 57]]
    share = {2: 0.12, 3: 0.08, 5: 0.08}.get(extra, 0.05)
    assert low * (1 - share) < formula < high * (1 + share)
    assert formula == random_condition_number((columns, columns + extra))


def test_the_null_of_a_rectangle_is_that_of_ma_2012():
    """Centre and scale of the largest eigenvalue, and the median of its TW_1 law."""
    for p, k in ((80, 16), (200, 100)):
        roots = np.sqrt(np.array([p, k]) - 0.5)
        largest = roots.sum() ** 2
        largest -= 1.26857 * roots.sum() * np.cbrt(np.sum(1 / roots))
        spread = np.cbrt(1 / roots[1] - 1 / roots[0]) / (roots[0] - roots[1])
        smallest = (roots[0] - roots[1]) ** 2
        smallest *= np.exp(1.26857 * spread + spread**2 / 8)
        expected = np.sqrt(largest / smallest)
        np.testing.assert_allclose(random_condition_number((p, k)), expected, 1e-12)


def test_the_null_has_its_limits():
    for size in (1000, 4000):  # Edelman: P(kappa / n < x) = exp(-2 / x - 2 / x^2)
        x = random_condition_number((size, size)) / size
        np.testing.assert_allclose(np.exp(-2 / x - 2 / x**2), 0.5, atol=0.01)
    y = 0.25
    limit = (1 + np.sqrt(y)) / (1 - np.sqrt(y))
    np.testing.assert_allclose(
        random_condition_number((4_000_000, 1_000_000)), limit, rtol=1e-3
    )
    assert random_condition_number((5, 1)) == 1


def test_bad_input():
    params = stack()
    model = LayeredStack.of(params)
    with raises("field: expected one of 'layer', 'name'"):
        by_layer((), "cond")
    with raises("layer: expected 0 to 1, got 2"):
        module_spectra(model, params, layers=[2])
    with raises(
        "module: expected one of 'all', 'attn', 'W_V', 'W_K', 'W_Q', got 'mlp'"
    ):
        module_spectra(model, params, module="mlp")
    bad = LinearAttentionStack(params.W_V * np.nan, params.W_K, params.W_Q)
    with raises("W_V: expected finite entries, got "):
        module_spectra(model, bad)
    with raises("shape: expected (m, n), got (3,)"):
        random_condition_number((3,))
