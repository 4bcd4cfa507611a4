"""Pruning methods: what comes out, baselines with the size of truncation, searches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import AnswerFile, Evaluator, algorithm1
from icltheory.bridge.evaluation import evaluate_naive
from icltheory.bridge.evaluator import method_name
from icltheory.bridge.inputs import input_moments
from icltheory.bridge.methods import (
    ActivationAware,
    Cumulative,
    LargestEntries,
    RandomVectors,
)
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import LowRank, Method, Rank, Whitened, module_matrices, prune
from tests.bridge.evaluation_tasks import at_rates, classification, tiny, with_test
from tests.bridge.test_inputs import ROWS
from tests.oracles import truncate
from tests.raising import raises

AT = (0, "W_Q")


def weights(m, n, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((m, n)))


def test_no_matrix_of_the_rank_is_nearer_in_what_comes_out():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6, 8))
    X = rng.standard_normal((50, 8)) * np.geomspace(1, 30, 8)[None]
    method = ActivationAware({AT: X.T @ X / 50}, damping=0)

    def error(V):
        return np.mean(np.sum((X @ (W - V).T) ** 2, axis=1))

    cut = method.cutter(jnp.asarray(W), AT)
    for rank in range(1, 6):
        ours = np.asarray(cut(Rank(rank)))
        assert np.linalg.matrix_rank(ours, 1e-3) == rank
        # Eckart and Young: the least is what is left of the outputs' singular values.
        left = np.linalg.svd(X @ W.T, compute_uv=False)[rank:]
        assert error(ours) == pytest.approx(left @ left / 50, rel=1e-3)
        assert error(ours) < error(truncate(W, rank))
    np.testing.assert_array_equal(cut(Rank(6)), W)


def test_with_moments_of_one_it_is_plain_truncation():
    for shape in ((24, 16), (16, 24)):
        W = weights(*shape)
        cut = ActivationAware({AT: np.eye(shape[1])}).cutter(W, AT)
        np.testing.assert_allclose(cut(0.5), prune(W, 0.5), rtol=1e-9, atol=1e-9)


def test_what_is_missing_or_singular_is_named():
    W, method = jnp.eye(2), ActivationAware({(1, "W_Q"): np.zeros((2, 2))})
    with raises("moments: expected an entry (1, 'W_K'), got none"):
        method.cutter(W, (1, "W_K"))
    with raises("moments: expected positive definite moments of W_Q in layer 1"):
        method.cutter(W, (1, "W_Q"))
    for wrong in (np.full((2, 2), np.nan), np.triu(np.ones((2, 2))), 1j * np.eye(2)):
        with pytest.raises((ValueError, TypeError), match="moments"):
            ActivationAware({AT: wrong})
    with raises("damping: "):
        ActivationAware({}, damping=-1.0)
    with raises("seed: "):
        RandomVectors(-1)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_random_vectors_have_the_spectrum_and_not_the_directions(shape):
    W = weights(*shape)
    cut = RandomVectors(3).cutter(W, AT)
    s = np.linalg.svd(W, compute_uv=False)
    for rank in range(1, 6):
        found = np.asarray(cut(Rank(rank)))
        kept = np.where(np.arange(6) < rank, s, 0)
        own = np.linalg.svd(found, compute_uv=False)
        np.testing.assert_allclose(own, kept, atol=1e-12)
        assert np.abs(found - truncate(W, rank)).max() > 0.1
    np.testing.assert_array_equal(cut(Rank(6)), W)


def test_smaller_ranks_are_parts_of_larger_ones_in_any_order():
    W = weights(6, 9)
    rising = RandomVectors(3).cutter(W, AT)
    one, three = (np.asarray(rising(Rank(r))) for r in (1, 3))
    falling = RandomVectors(3).cutter(W, AT)
    np.testing.assert_array_equal(falling(Rank(3)), three)
    np.testing.assert_array_equal(falling(Rank(1)), one)
    # What rank 3 adds is orthogonal to what rank 1 has.
    np.testing.assert_allclose(one.T @ (three - one), 0, atol=1e-12)
    for seed, matrix, place in (
        (4, W, AT),
        (3, W, (1, "W_Q")),
        (3, W, (0, "W_K")),
        (3, W + 1e-3, AT),
    ):
        other = np.asarray(RandomVectors(seed).cutter(matrix, place)(Rank(1)))
        assert np.abs(other - one).max() > 0.01


def test_directions_are_those_of_the_haar_distribution():
    """Entries of a Haar matrix have mean 0 and variance 1 / size."""
    W, draws = jnp.eye(4), 400
    cut = [RandomVectors(s).cutter(W, AT)(Rank(1)) for s in range(draws)]
    found = np.stack(cut)  # a b^T of two independent unit vectors
    assert np.abs(found.mean(axis=0)).max() < 4 / (4 * np.sqrt(draws))
    # E[a_i^2 b_j^2] = 1/16, with E[a_i^4] = 3 / (4 * 6): a standard error of 0.0049.
    assert np.abs((found**2).mean(axis=0) - 1 / 16).max() < 4 * 0.0049


def test_largest_entries_are_as_many_as_the_factors_hold():
    W = weights(6, 9)
    cut = LargestEntries().cutter(W)
    order = np.sort(np.abs(np.asarray(W)).ravel())[::-1]
    for rank, entries in ((1, 15), (2, 30), (3, 45), (4, 54), (6, 54)):
        found = np.asarray(cut(Rank(rank)))
        assert np.count_nonzero(found) == entries
        assert np.abs(found[found != 0]).min() == order[entries - 1]
        np.testing.assert_array_equal(found[found != 0], np.asarray(W)[found != 0])


@pytest.mark.parametrize("method", [LowRank(), Whitened()])
@pytest.mark.parametrize("rank", [3, 256, 257, 299])
def test_a_product_of_the_first_vectors_is_that_of_all(method, rank):
    """Those beyond the rank are 0 in the product of all, and so change no digit."""
    W = weights(300, 310)
    cut = method.by_size(W)
    whole = jax.jit(cut)(rank)  # a traced rank has one program for all
    np.testing.assert_allclose(cut(rank), whole, rtol=0, atol=1e-12)
    assert np.linalg.matrix_rank(np.asarray(cut(rank)), tol=1e-9) == rank


def test_they_are_methods_of_one_interface():
    methods = (
        *(RandomVectors(1), RandomVectors(2), LargestEntries(), Cumulative((0.5,))),
        *(ActivationAware({AT: c * np.eye(2)}) for c in (1.0, 2.0)),
        *(ActivationAware({}), ActivationAware({}, label="demonstrations")),
    )
    assert all(isinstance(method, Method) for method in methods)
    assert len({method_name(method) for method in methods}) == len(methods)
    assert methods[-1].name == "activation-d0.001-demonstrations"
    assert methods[-1].fresh is methods[-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["activations", "random vectors", "largest entries"])
def test_a_search_evaluates_what_the_method_gives_and_resumes(kind, tmp_path):
    model, task = tiny("llama", num_layers=1), classification(6)
    method = {"random vectors": RandomVectors(5), "largest entries": LargestEntries()}
    method = method.get(kind) or ActivationAware(input_moments(model, ROWS))
    rates = (0, 0.5, 0.75)
    found = at_rates(model, task, 0, "mlp", rates, method=method)
    params = model.params
    for spec in module_matrices(model, 0, "mlp"):
        W = get_matrix(model.params, spec)
        cut = method.cutter(W, (0, spec.name))
        params = replace_matrix(params, spec, cut(0.75))
    alone = evaluate_naive(model.replace(params=params), task).scores
    np.testing.assert_allclose(found[2].scores, alone, rtol=1e-6)
    plain = at_rates(model, task, 0, "mlp", rates)
    np.testing.assert_array_equal(found[0].scores, plain[0].scores)
    assert np.abs(found[2].scores - plain[2].scores).max() > 1e-3
    path = tmp_path / "answers.sqlite"
    task = with_test(task, task.validation[:4])

    def search(some, answers=path):
        evaluator = Evaluator(model, task, method=method, answers=answers)
        return algorithm1(evaluator, 0, "mlp", some)

    search(rates[1:2])  # the part of a run that was stopped
    resumed = search(rates[1:])
    before = list(AnswerFile(path))
    assert search(rates[1:]).tried == resumed.tried
    assert list(AnswerFile(path)) == before
    fresh = search(rates[1:], answers=None)
    assert (fresh.tried, fresh.comparison) == (resumed.tried, resumed.comparison)
