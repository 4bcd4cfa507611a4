import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression import PrefixPrompt
from icltheory.regression.predictors import LeastSquares
from icltheory.regression.shifts import EXTRA_SHIFTS, GARG_SHIFTS, Shift, garg_shifts
from tests.regression import oracles
from tests.regression.calls import answers

D, P, B = 6, 13, 500
QUICK = ("standard", "random_quadrants", "overlapping_train_test", "skewed")


@functools.cache
def sampler(name):
    return jax.jit(Shift(name, D), static_argnums=(1, 2))


@functools.cache
def draw(name, seed=0):
    return jax.tree.map(np.asarray, sampler(name)(jax.random.key(seed), P, B))


def test_the_fifteen_settings_of_garg_and_one_more():
    shifts = garg_shifts(20)
    names = (
        "standard random_quadrants orthogonal_train_test overlapping_train_test "
        "half_subspace skewed scale-x=0.333 scale-x=0.5 scale-x=2 scale-x=3 "
        "scale-y=0.333 scale-y=0.5 scale-y=2 scale-y=3 noisyLR"
    )
    assert tuple(shifts) == GARG_SHIFTS == tuple(names.split())
    assert EXTRA_SHIFTS == ("opposite_quadrants",)
    assert shifts["noisyLR"].normalizer == 20.0
    np.testing.assert_allclose(shifts["scale-x=0.333"].normalizer, 20 * 0.333**2)
    assert shifts["scale-y=3"].normalizer == 180.0
    assert shifts["orthogonal_train_test"].num_informative == 20
    assert shifts["standard"].num_informative is None


@pytest.mark.parametrize(
    "name",
    [
        # scales of inputs and labels are checked against the standard setting below
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in (*GARG_SHIFTS, *EXTRA_SHIFTS)
    ],
)
def test_labels_are_linear_and_the_zero_predictor_has_error_one(name):
    prompt = draw(name)
    assert isinstance(prompt, PrefixPrompt)
    assert prompt.X.shape == prompt.X_query.shape == (B, P, D)
    if name != "noisyLR":
        for X, y in ((prompt.X, prompt.y), (prompt.X_query, prompt.y_query)):
            np.testing.assert_allclose(
                y, np.einsum("bpd,bd->bp", X, prompt.w), rtol=1e-9, atol=1e-12
            )
    shift = Shift(name, D)
    last = shift.num_informative or P
    errors = (prompt.y_query[:, :last] ** 2).mean(axis=1) / shift.normalizer
    # prompts of one call share a rotation, so only they are independent given it
    assert abs(errors.mean() - 1) < 5 * errors.std() / np.sqrt(B)


@pytest.mark.parametrize("name", GARG_SHIFTS)
def test_samples_have_the_dtype_asked_for_and_shifts_can_be_static(name, key):
    shift = Shift(name, 4, jnp.float32)
    shapes = jax.eval_shape(lambda k: shift(k, 5, 3), key)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    assert hash(shift) == hash(Shift(name, 4, jnp.float32))


def test_queries_are_the_next_examples_unless_the_shift_is_about_them():
    names = ("standard", "half_subspace", "scale-x=0.333", "scale-y=0.333", "noisyLR")
    for name in names:
        prompt = draw(name)
        np.testing.assert_array_equal(prompt.X, prompt.X_query)
        np.testing.assert_array_equal(prompt.y, prompt.y_query)


def test_quadrants():
    for name in ("random_quadrants", "opposite_quadrants"):
        prompt = draw(name)
        pattern = np.sign(prompt.X[:, :1])
        assert np.all(np.sign(prompt.X) == pattern)
        assert len(np.unique(pattern[:, 0], axis=0)) == 2**D
    np.testing.assert_array_equal(prompt.X_query, -prompt.X)
    prompt = draw("random_quadrants")
    np.testing.assert_array_equal(np.abs(prompt.X_query), np.abs(prompt.X))
    agreement = (np.sign(prompt.X_query) == np.sign(prompt.X)).mean()
    assert abs(agreement - 0.5) < 5 * 0.5 / np.sqrt(prompt.X.size)


@pytest.mark.slow
def test_orthogonal_queries_are_what_projection_gives_and_end_at_d():
    prompt = draw("orthogonal_train_test")
    for b in range(20):
        for k in range(D):
            expected = oracles.orthogonal_query(prompt.X[b, :k], prompt.X[b, k])
            np.testing.assert_allclose(prompt.X_query[b, k], expected, atol=1e-7)
    assert np.all(prompt.X_query[:, D:] == 0)
    assert np.all(prompt.y_query[:, D:] == 0)
    # nothing can be learned about them: least squares predicts 0
    predictions = answers(LeastSquares(), prompt.X, prompt.y, prompt.X_query)
    np.testing.assert_allclose(predictions, 0, atol=1e-6)
    short = jax.eval_shape(
        lambda k: Shift("orthogonal_train_test", D)(k, 3, 2), jax.random.key(0)
    )
    assert short.X_query.shape == (2, 3, D)


def test_overlapping_queries_are_uniform_among_the_examples_seen():
    prompt = draw("overlapping_train_test")
    np.testing.assert_array_equal(prompt.X_query[:, 0], prompt.X[:, 0])
    same = np.all(prompt.X_query[:, :, None] == prompt.X[:, None], axis=-1)
    index = same.argmax(axis=2)
    assert np.all(same.sum(axis=2) == 1)
    for k in (1, 4, 12):
        assert np.all(index[:, k] < k)
        counts = np.bincount(index[:, k], minlength=k)
        assert ((counts - B / k) ** 2 / (B / k)).sum() < 3 * k + 30
    predictions = answers(LeastSquares(), prompt.X, prompt.y, prompt.X_query)
    np.testing.assert_allclose(
        predictions[:, 1:], prompt.y_query[:, 1:], rtol=1e-6, atol=1e-6
    )


def test_subspace_and_skewed_inputs_have_their_spectra():
    half = np.linalg.eigvalsh(np.cov(draw("half_subspace").X.reshape(-1, D).T))[::-1]
    np.testing.assert_allclose(half[3:], 0, atol=1e-12)
    np.testing.assert_allclose(half[:3], 2.0, rtol=0.15)
    skewed = np.linalg.eigvalsh(np.cov(draw("skewed").X.reshape(-1, D).T))[::-1]
    squares = 1 / np.arange(1.0, D + 1) ** 2
    np.testing.assert_allclose(skewed, D * squares / squares.sum(), rtol=0.1)
    one, other = (np.cov(draw("skewed", s).X.reshape(-1, D).T) for s in (0, 5))
    assert np.abs(one - other).max() > 0.1  # the rotation is part of the draw


@pytest.mark.parametrize(
    "scale", [0.333, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.5, 2, 3))]
)
def test_scales(scale):
    plain = draw("standard")
    x, y = draw(f"scale-x={scale:g}"), draw(f"scale-y={scale:g}")
    np.testing.assert_allclose(x.X, scale * plain.X, rtol=1e-12)
    np.testing.assert_allclose(x.y, scale * plain.y, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(y.X, plain.X)
    np.testing.assert_allclose(y.y, scale * plain.y, rtol=1e-10, atol=1e-12)


def test_noise():
    noisy = draw("noisyLR")
    np.testing.assert_allclose(np.var(noisy.y, ddof=1), D, rtol=1e-10)
    residual = noisy.y - np.einsum("bpd,bd->bp", noisy.X, noisy.w)
    # noise of variance 1 on labels of variance d, rescaled together by d / (d + 1)
    assert abs(residual.var() - D / (D + 1)) < 0.1


def test_any_factor_scales():
    shift = Shift("scale-x=7.5", 2)
    assert (shift.scale, shift.normalizer) == (7.5, 2 * 7.5**2)
    for written, scale in (("1e-3", 1e-3), ("2.", 2.0), ("+.5", 0.5), ("1e200", 1e200)):
        shift = Shift(f"scale-y={written}", 2)
        assert (shift.scale, shift.normalizer) == (scale, 2 * (scale * scale))
    bad = "", "0", "-1", "1e400", "inf", "nan", "two", "2=2"
    for name in ("scale-z=2", "scale-x", *(f"scale-x={factor}" for factor in bad)):
        with pytest.raises(ValueError, match=r"^name: expected one of"):
            Shift(name, 2)


def test_unknown_shifts_say_what_there_is():
    with pytest.raises(
        ValueError, match="^" + re.escape("name: expected one of 'standard', ")
    ):
        Shift("rotated", 4)
    with pytest.raises(ValueError, match="^dim: expected a positive integer, got 0"):
        Shift("standard", 0)
    with pytest.raises(ValueError, match="^dim: expected an integer >= 2, got 1"):
        garg_shifts(1)
    with pytest.raises(ValueError, match="^num_points: expected a positive integer"):
        Shift("standard", 4)(jax.random.key(0), 0, 1)


def test_one_label_has_no_variance_to_be_rescaled_to():
    with pytest.raises(ValueError, match="^batch_size: expected two labels or more"):
        Shift("noisyLR", 4)(jax.random.key(0), 1, 1)
    two = jax.jit(lambda key: Shift("noisyLR", 4)(key, 1, 2).y)
    assert np.all(np.isfinite(two(jax.random.key(0))))
