"""Condition numbers, the store of singular systems, and ways to decompose."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge.pruning import prune_model
from icltheory.bridge.spectra import (
    Exact,
    Randomised,
    SingularSystems,
    condition_numbers,
    randomised_svd,
    rounding_noise,
    stored_dtype,
)
from icltheory.linalg import SVD
from icltheory.pruning import module_spectra, random_condition_number
from tests.bridge.tiers import quick
from tests.bridge.tiny import model_of
from tests.raising import raises


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def with_spectrum(s, seed=0):
    U, V = (np.linalg.qr(gaussian(len(s), len(s), seed=seed + i))[0] for i in (0, 1))
    return (U * np.asarray(s)[None]) @ V.T


# --- condition numbers


@pytest.mark.parametrize(
    "dtype", quick(["bfloat16"], ["float32", "bfloat16", "float16"])
)
def test_rows_are_those_of_numpy_in_float64(dtype, tmp_path):
    model = model_of("mistral", dtype)
    plain = condition_numbers(model)
    for rows in (plain, condition_numbers(model, SingularSystems(tmp_path))):
        assert len(rows) == 2 * 7
        for row in rows:
            layer = model.params["layers"][row.layer]
            W = np.asarray(layer[row.module][row.matrix]["weight"], np.float64)
            s = np.linalg.svd(W, compute_uv=False)
            np.testing.assert_allclose(row.singular_values, s, rtol=1e-12)
            np.testing.assert_allclose(row.condition_number, s[0] / s[-1], rtol=1e-9)
            assert row.null == random_condition_number(W.shape)
            assert row.null_ratio == row.condition_number / row.null
            assert (row.shape, row.dtype) == (W.shape, dtype)
    spectra = module_spectra(model, model.params)
    assert [r.condition_number for r in spectra] == [r.condition_number for r in plain]
    some = condition_numbers(model, layers=[1], module="W_K")
    assert [(r.layer, r.matrix) for r in some] == [(1, "W_K")]
    assert some[0].shape == (12, 12)


def test_a_clipped_matrix_is_not_resolved():
    clipped = prune_model(model_of("gptj"), "1:W_O:0.5")
    rows = {(r.layer, r.matrix): r for r in condition_numbers(clipped, module="attn")}
    assert rows[0, "W_O"].resolved
    assert not rows[1, "W_O"].resolved
    assert rows[1, "W_O"].condition_number > rows[1, "W_O"].ceiling > 1e6


def test_a_zero_matrix_has_an_infinite_condition_number():
    model = model_of("gptj")
    zero = jax.tree.map(jnp.zeros_like, model.params)
    for row in condition_numbers(model.replace(params=zero), module="W_V"):
        assert row.condition_number == np.inf
        assert not row.resolved


def test_weights_that_are_not_finite_are_named(tmp_path):
    model = model_of("gptj")
    nan = jax.tree.map(lambda x: np.asarray(x) * np.nan, model.params)
    bad = model.replace(params=nan)
    for cache in (None, SingularSystems(tmp_path)):
        with raises("W_Q: expected finite entries"):
            condition_numbers(bad, cache)
    assert not list(tmp_path.iterdir())


# --- rounding


def test_the_stored_dtype_is_the_narrowest_that_holds_all():
    W = gaussian(3, 5)
    for dtype in ("bfloat16", "float16", "float32", "float64"):
        rounded = jnp.asarray(W).astype(dtype)
        assert stored_dtype(rounded.astype("float64")) == dtype
    assert stored_dtype(np.array([[1e6, 1 + 2**-10]])) == "float32"  # beyond float16


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rows", [40, 48])
def test_rounding_lifts_a_zero_singular_value_to_the_noise(dtype, rows):
    lifted, draws, extra = [], 200, rows - 40
    for seed in range(draws):
        U, s, Vt = np.linalg.svd(gaussian(rows, 40, seed=seed), full_matrices=False)
        s[-1] = 0
        rounded = ((U * s[None]) @ Vt).astype(jnp.dtype(dtype))
        smallest = np.linalg.svd(rounded.astype(float), compute_uv=False)[-1]
        lifted.append(smallest / rounding_noise(rounded))
    # Squares are chi-squared with one degree of freedom more than there are extra rows.
    squares, degrees = np.square(lifted), extra + 1
    error = np.sqrt(2 * degrees / draws)
    assert abs(squares.mean() - degrees) < 4 * error
    above = np.mean(squares > 4 * degrees)
    assert above < (0.11 if extra == 0 else 0.001)  # 0.046 expected of squares


def test_the_noise_of_subnormal_numbers_is_theirs():
    W = np.full((2, 2), 2.0**-30, np.float16) + np.float16(2.0**-24)
    np.testing.assert_allclose(rounding_noise(W, "float16"), 2.0**-24 / 12**0.5)
    zero = rounding_noise(np.zeros((1, 1)), "float16")
    np.testing.assert_allclose(zero, 2.0**-24 / 12**0.5)


# --- exact decompositions


@pytest.mark.parametrize("cond", [1e2, 1e4, 1e7])
def test_float32_errs_by_epsilon_times_the_condition_number(cond):
    W = with_spectrum(np.geomspace(1, 1 / cond, 48)).astype(np.float32)
    single, double = Exact("float32")(W).s, Exact("float64")(W).s
    eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(double[0] / double[-1], cond, rtol=10 * cond * eps)
    np.testing.assert_allclose(single, double, rtol=0, atol=10 * eps)
    ratio = (single[0] / single[-1]) / (double[0] / double[-1])
    assert abs(ratio - 1) < 10 * cond * eps
    assert (single.dtype, double.dtype) == (np.float32, np.float64)


def test_a_system_cuts_as_clip_module_does(tmp_path):
    model = model_of("gptj")
    systems = SingularSystems(tmp_path)
    clipped = prune_model(model, "0:mlp:0.75")
    for name in ("W_in", "W_out"):
        both = (m.params["layers"][0]["mlp"][name] for m in (model, clipped))
        W, cut = (own["weight"] for own in both)
        system = SVD(*map(jnp.asarray, systems.of(W)))
        np.testing.assert_array_equal(system.truncate(3), cut)


# --- the randomised decomposition


def moments(spectrum, m, n, rank, draws=60):
    """Mean and standard error of distances from the optimum, residuals, wobble."""
    W, best = np.zeros((2, m, n))
    np.fill_diagonal(W, spectrum)
    np.fill_diagonal(best[:rank, :rank], spectrum[:rank])
    found = []
    for seed in range(draws):
        U, s, Vt = randomised_svd(jax.random.key(seed), W, rank)
        found.append((U * s[None]) @ Vt)
    found, size = np.array(found), np.linalg.norm(best)
    apart = (found - best, W - found, found - np.roll(found, 1, axis=0))
    values = np.stack([np.linalg.norm(matrices, axis=(1, 2)) for matrices in apart])
    values /= np.array([[size], [np.linalg.norm(W - best)], [size]])
    return values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(draws)


POWER, FLAT = 1 / np.arange(1, 49), 1 - 0.9 * np.arange(48) / 48
# Distance, residual and wobble of torch.svd_lowrank(q=rank, niter=2), 2000 draws.
LOWRANK = [
    ("power", 48, 48, 6, (0.1170, 1.0248, 0.1495), (0.00105, 0.00043, 0.00089)),
    ("flat", 48, 48, 4, (0.9705, 1.0163, 1.0605), (0.00159, 0.00006, 0.00132)),
    ("flat", 64, 48, 16, (0.4821, 1.0476, 0.5794), (0.00068, 0.00016, 0.00058)),
    ("flat", 48, 64, 16, (0.4815, 1.0474, 0.5796), (0.00068, 0.00016, 0.00059)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "m", "n", "rank", "torch", "error"), LOWRANK)
def test_the_randomised_decomposition_errs_as_the_published_one(
    kind, m, n, rank, torch, error
):
    mean, own_error = moments({"power": POWER, "flat": FLAT}[kind], m, n, rank)
    z = (mean - np.array(torch)) / np.hypot(own_error, error)
    assert np.abs(z).max() < 5, (mean, torch)


@pytest.mark.slow
def test_the_randomised_decomposition_is_exact_at_low_rank_and_keyed():
    W = with_spectrum([3, 2, 1] + [0] * 17, seed=3)
    for shaped in (W, W[:, :12], W[:12]):
        U, s, Vt = Randomised(3)(shaped)
        np.testing.assert_allclose((U * s[None]) @ Vt, shaped, atol=1e-5)
        np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-5)
        np.testing.assert_allclose(Vt @ Vt.T, np.eye(3), atol=1e-5)
    W = gaussian(20, 20)
    first, same, other = (Randomised(4, seed=seed)(W).U for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert np.abs(np.abs(first) - np.abs(other)).max() > 0.01


# --- the store


def test_a_matrix_is_decomposed_once(tmp_path, monkeypatch):
    W = gaussian(6, 4)
    store = SingularSystems(tmp_path / "new" / "folder", Exact("float64"))
    first, values = store.of(W), store.singular_values(W)
    monkeypatch.setattr(np.linalg, "svd", None)
    again = SingularSystems(store.folder, Exact("float64"))
    for old, new in zip(first, again.of(jnp.asarray(W)), strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(values, first.s)
    assert len(list(store.folder.iterdir())) == 1


def test_content_shape_dtype_and_method_tell_files_apart(tmp_path):
    W = gaussian(4, 4).astype(np.float32)
    changed = W.copy()
    changed[0, 0] = np.nextafter(W[0, 0], np.float32(9))
    zeros = np.zeros((4, 4), np.float32)
    matrices = [W, changed, W.reshape(2, 8), W.T, zeros, zeros.astype(np.float16)]
    methods = [None, Exact("float64"), Randomised(1), Randomised(1, 7), Randomised(2)]
    for method in methods:
        for matrix in matrices:
            SingularSystems(tmp_path, method).of(matrix)
    SingularSystems(tmp_path).singular_values(W.reshape(16, 1))
    assert len(list(tmp_path.iterdir())) == len(methods) * len(matrices) + 1


@pytest.mark.parametrize("part", ["of", "singular_values"])
def test_every_damage_is_reported_and_left_in_place(part, tmp_path):
    W, store = np.diag([2.0, 1.0]), SingularSystems(tmp_path)
    good = getattr(store, part)(W)
    (path,) = tmp_path.iterdir()
    whole, messages = path.read_bytes(), []
    damaged = [whole[:size] for size in range(0, len(whole), 23)]
    for place in range(len(whole)):
        byte = bytes([whole[place] ^ 0x10])
        damaged.append(whole[:place] + byte + whole[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        try:
            got = getattr(store, part)(W)
        except ValueError as error:
            messages.append(str(error))
        else:  # in a time stamp, say
            for a, b in zip(good, got, strict=True):
                np.testing.assert_array_equal(a, b)
        assert path.read_bytes() == content
    assert len(messages) > len(damaged) / 2
    expected = f"{path}: expected a singular system, got "
    assert all(message.startswith(expected) for message in messages)


def test_a_file_of_another_matrix_and_a_pickle_are_refused(tmp_path):
    store = SingularSystems(tmp_path)
    store.of(np.eye(3))
    (path,) = tmp_path.iterdir()
    other = SingularSystems(tmp_path / "other")
    other.of(np.eye(2))
    path.write_bytes(next((tmp_path / "other").iterdir()).read_bytes())
    with raises(f"{path}: expected a singular system, got factors of shapes (2, 2)"):
        store.of(np.eye(3))
    np.savez(path, **{name: np.array([{}], object) for name in ("U", "s", "Vt")})
    with raises(f"{path}: expected a singular system, got ValueError"):
        store.of(np.eye(3))


def test_values_are_read_without_the_vectors(tmp_path):
    W = gaussian(500, 300)
    store = SingularSystems(tmp_path, Exact("float64"))
    store.of(W)
    tracemalloc.start()
    store.singular_values(W)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * 300 * 8 / 2


def test_bad_input(tmp_path):
    store = SingularSystems(tmp_path)
    wrong = np.full((2, 2), np.nan)
    for call, message in (
        (lambda: store.of(wrong[None]), "W: expected shape (m, n), got (1, 2, 2)"),
        (lambda: store.singular_values(wrong), "W: expected finite entries"),
        (lambda: Randomised(1)(wrong), "W: expected finite entries"),
        (lambda: Randomised(3)(np.eye(2)), "rank: expected at most 2, got 3"),
        (lambda: Randomised(3, -1), "seed: expected an integer >= 0, got -1"),
        (lambda: Exact("float16"), "dtype: expected one of 'float32', 'float64', got"),
    ):
        with raises(message):
            call()
