"""The published rate loop: its matrices, its answers, and how runs of it resume."""

import contextlib
import itertools
import sqlite3

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import AnswerFile, Evaluator, algorithm1, evaluate
from icltheory.bridge.methods import Cumulative
from icltheory.bridge.pruning import pruned_stacks
from icltheory.layered import get_matrix, replace_matrix
from icltheory.linalg import svd
from icltheory.pruning import choose_rate, module_matrices, prune, rank_for_rate
from tests.bridge.evaluation_tasks import at_rates, classification, tiny, with_test
from tests.bridge.test_spectra import FLAT, POWER, with_spectrum
from tests.bridge.tiers import quick
from tests.raising import raises

RATES = (0, 0.25, 0.5, 0.75)
LOOP = Cumulative(RATES, seed=3)
norm = np.linalg.norm


def lowrank(omega, W, iterations=2):
    """A subspace iteration and a small decomposition, in NumPy and float64."""
    Q = np.linalg.qr(W @ omega)[0]
    for _ in range(iterations):
        Q = np.linalg.qr(W.T @ Q)[0]
        Q = np.linalg.qr(W @ Q)[0]
    U, s, Vt = np.linalg.svd(Q.T @ W, full_matrices=False)
    return (Q @ U * s[None]) @ Vt


def step(W, loop, left, rate):
    """One round: what was left, in the dtype of the weights, is clipped once more."""
    rank, wide = rank_for_rate(W.shape, rate), W.shape[0] < W.shape[1]
    omega = jax.random.normal(loop.key(W, rate), (min(W.shape), rank), jnp.float32)
    left, omega = np.asarray(left, float), np.asarray(omega, float)
    new = lowrank(omega, left.T).T if wide else lowrank(omega, left)
    return jnp.asarray(new).astype(W.dtype)


def in_place(W, loop, rates):
    """The published loop on one matrix: it edits what the last round left."""
    left = W
    for rate in sorted(rate for rate in rates if rate):
        left = step(W, loop, left, rate)
    return left


@pytest.mark.parametrize(
    "dtype", quick(["bfloat16"], ["float32", "float16", "bfloat16"])
)
@pytest.mark.parametrize("shape", quick([(20, 12)], [(12, 12), (20, 12), (12, 20)]))
def test_it_is_the_loop_that_edits_in_place(shape, dtype):
    W = jnp.asarray(np.random.default_rng(0).normal(size=shape)).astype(dtype)
    cut = LOOP.cutter(W)
    np.testing.assert_array_equal(cut(0), W)
    for before, rate in itertools.pairwise(RATES):
        found = cut(rate)
        assert found.dtype == W.dtype
        expected = step(W, LOOP, cut(before), rate)
        found, expected = (np.asarray(a, float) for a in (found, expected))
        spacing = np.spacing(np.abs(expected).astype(np.float32)).astype(float)
        spacing *= float(jnp.finfo(dtype).eps) / 2**-23
        # Entries next to a midpoint may be rounded to either side, but few are.
        assert np.all(np.abs(found - expected) <= 1e-5 + spacing)
        assert dtype == "float32" or np.mean(found == expected) > 0.95


@pytest.mark.slow
def test_a_matrix_does_not_depend_on_what_is_asked_beside_it():
    model = tiny("groups", num_layers=2)
    specs, whole = pruned_stacks(model, (1, "mlp"), RATES, LOOP)
    for asked in ((0.75,), (0.5, 0, 0.25, 0.5)):
        _, some = pruned_stacks(model, (1, "mlp"), asked, LOOP)
        for one, other in zip(whole, some, strict=True):
            at = [RATES.index(rate) for rate in asked]
            np.testing.assert_array_equal(np.asarray(one)[at], other)
    for spec, stack in zip(specs, whole, strict=True):
        group, name, _ = spec.path
        W = model.params["layers"][1][group][name]["weight"]
        np.testing.assert_array_equal(stack[0], W)
        size = min(W.shape)
        kept = [np.linalg.matrix_rank(np.asarray(V, np.float32)) for V in stack]
        assert kept == [size, size * 3 // 4, size // 2, size // 4]


def test_draws_are_those_of_seed_weights_loop_and_rate():
    W = jnp.asarray(np.random.default_rng(1).normal(size=(12, 12)), jnp.float32)
    first = LOOP.cutter(W)(0.75)
    np.testing.assert_array_equal(Cumulative(RATES[1:], 3).cutter(W)(0.75), first)
    others = (
        Cumulative(RATES, 4).cutter(W)(0.75),
        LOOP.fresh.cutter(W)(0.75),
        Cumulative((0.25, 0.75), 3).cutter(W)(0.75),
        LOOP.cutter(W.T)(0.75).T,
    )
    for other in others:
        assert norm(first - other) > 0.05 * norm(first)
    # The first rate of a loop clips the weights as the test does, by another draw.
    alone, looped = LOOP.fresh.cutter(W)(0.25), LOOP.cutter(W)(0.25)
    assert norm(alone - looped) > 1e-3 * norm(alone)


@pytest.mark.slow
def test_with_best_approximations_a_loop_changes_nothing():
    """Truncations are nested; and the loop tends to them with its iterations."""
    W = jnp.asarray(with_spectrum(FLAT))
    left, many = W, Cumulative(RATES, iterations=300).cutter(W)
    for rate in RATES:
        left = prune(left, rate)
        np.testing.assert_allclose(left, prune(W, rate), atol=1e-12)
        np.testing.assert_allclose(many(rate), left, atol=1e-4)


# Error of torch's loop (svd_lowrank, q=rank, niter=2, to float16 each time) over Eckart
# and Young's at ranks 43, 24, 12, 4, and at 4 without the loop; then, over the norm of
# the best matrix, the distances best-loop, best-single and loop-single. Means and
# standard errors of 2000 draws.
TORCH = {
    "flat": (
        (1.07549, 1.05567, 1.03871, 1.01601, 1.01646, 0.95015, 0.97063, 1.05499),
        (7.8e-4, 2.3e-4, 1.2e-4, 6e-5, 6e-5, 1.67e-3, 1.62e-3, 1.27e-3),
    ),
    "power": (
        (1.08729, 1.03586, 1.02616, 1.02542, 1.02397, 0.13423, 0.12903, 0.17675),
        (3.4e-4, 1.8e-4, 2.5e-4, 5.8e-4, 5.9e-4, 1.73e-3, 1.72e-3, 1.61e-3),
    ),
}
PUBLISHED, DRAWS = (0.1, 0.5, 0.75, 0.9), 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "power"])
def test_errors_are_those_of_the_published_loop(kind, record_property):
    s = {"flat": FLAT, "power": POWER}[kind]
    W = jnp.asarray(with_spectrum(s), jnp.float16)
    parts, rows = svd(W.astype(jnp.float64)), []
    tails = [np.sqrt(np.sum(parts.s[r:] ** 2)) for r in (43, 24, 12, 4)]
    best = parts.truncate(4)
    for seed in range(DRAWS):
        loop = Cumulative(PUBLISHED, seed)
        cut, single = loop.cutter(W), loop.fresh.cutter(W)(0.9)
        left = [np.asarray(cut(rate), float) for rate in PUBLISHED]
        errors = [norm(W - V) / tail for V, tail in zip(left, tails, strict=True)]
        # Of no more than that rank, but for the rounding, so never below the best.
        assert min(errors) > 1 - 1e-3
        pairs = ((best, left[-1]), (best, single), (left[-1], single))
        apart = [norm(np.asarray(a) - np.asarray(b)) / norm(best) for a, b in pairs]
        rows.append([*errors, norm(W - single) / tails[-1], *apart])
    mean, error = np.mean(rows, 0), np.std(rows, 0, ddof=1) / DRAWS**0.5
    names = ("r43", "r24", "r12", "r4", "r4_single", "to_best", "single", "apart")
    for name, value in zip(names, mean, strict=True):
        record_property(f"{kind}_{name}", float(value))
    z = (mean - np.array(TORCH[kind][0])) / np.hypot(error, TORCH[kind][1])
    assert np.abs(z).max() < 5, (mean, z)


# --- answers


@pytest.fixture(scope="module")
def model():
    return tiny("groups", num_layers=2)


@pytest.fixture(scope="module")
def task():
    return with_test(classification(9), classification(9, seed=5).validation)


def edited(model, loop, rates):
    """The model after the loop over its attention, by editing in place."""
    for spec in module_matrices(model, 0, "attn"):
        W = get_matrix(model.params, spec)
        params = replace_matrix(model.params, spec, in_place(W, loop, rates))
        model = model.replace(params=params)
    return model


@pytest.fixture(scope="module")
def whole(model, task, tmp_path_factory):
    """Algorithm 1 by the loop, in one go, and the answers it stored."""
    path = tmp_path_factory.mktemp("loop") / "answers.sqlite"
    found = search(model, task, path)
    file = AnswerFile(path, read_only=True)
    return found, Evaluator(model, task, method=LOOP, answers=file)


def search(model, task, answers, method=LOOP):
    evaluator = Evaluator(model, task, method=method, answers=answers)
    return algorithm1(evaluator, 0, "attn", RATES)


@pytest.mark.slow
def test_algorithm1_searches_the_loop_and_tests_fresh_weights(model, task, whole):
    found, answers = whole
    shown = [edited(model, LOOP, RATES[: i + 1]) for i in range(4)]
    plain = [evaluate(m, task) for m in shown]
    scores = answers.scores("validation", [f"0:attn:{rate}" for rate in RATES])
    for one, other in zip(scores, plain, strict=True):
        np.testing.assert_allclose(one, other.scores, atol=2e-3)
    accuracies = [p.accuracy for p in plain]
    assert list(found.tried.values()) == pytest.approx(accuracies)
    assert found.rate == choose_rate(accuracies, RATES, accuracies[0]).rate > 0
    tested = edited(model, LOOP.fresh, (found.rate,))
    after = evaluate(tested, task, "test")
    pair = answers.scores("test", ["", f"0:attn:{found.rate}"])
    np.testing.assert_allclose(pair[1], after.scores, atol=2e-3)
    assert found.test_after == pytest.approx(after.accuracy)
    before = evaluate(model, task, "test")
    np.testing.assert_allclose(pair[0], before.scores, atol=1e-9)
    best = at_rates(model, task, 0, "attn", RATES)
    assert np.abs(scores[1:] - [b.scores for b in best[1:]]).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kept", [4, 8])
def test_a_killed_run_goes_on_in_the_same_loop(kept, model, task, whole, tmp_path):
    found, answers = whole
    path = tmp_path / "answers.sqlite"
    # Some rates of some examples are lost, on validation or test.
    with contextlib.closing(sqlite3.connect(path)) as data:
        with contextlib.closing(sqlite3.connect(answers.answers.path)) as every:
            every.backup(data)
        data.execute(f"DELETE FROM answers WHERE example % 9 >= {kept}")
        data.commit()
    again = search(model, task, path)
    assert str(again) == str(found)
    assert again.tried == found.tried
    own, before = list(AnswerFile(path)), list(answers.answers)
    scores = [[row.pop("scores") for row in rows] for rows in (own, before)]
    assert own == before
    np.testing.assert_allclose(*scores, atol=1e-9, rtol=0)


@pytest.mark.usefixtures("as_for_a_user")
def test_what_is_no_loop_is_refused(model, task):
    with raises("rates: expected numbers in [0, 1), got 1"):
        Cumulative((0, 1))
    with raises("rates: expected no duplicates, got (0.5, 0.5)"):
        Cumulative((0.5, 0.5))
    with raises("seed: expected an integer >= 0, got -1"):
        Cumulative((), -1)
    with raises("rate: expected a rate that leaves a rank >= 1 of 16"):
        at_rates(model, task, 1, "mlp", (0.995,), method=Cumulative((0.99,)))
    with raises("method: expected a Method, got 'random'"):
        at_rates(model, task, 1, "mlp", (0.5,), method="random")
    cut = Cumulative((0.5, 0.99), at_least_one=True).cutter(jnp.eye(16))
    assert np.linalg.matrix_rank(np.asarray(cut(0.99), np.float32)) == 1
