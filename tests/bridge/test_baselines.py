"""Baselines with the parameters of truncation: spectra, draws, counts, searches."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import AnswerFile, Evaluator, algorithm1
from icltheory.bridge.evaluation import evaluate_naive
from icltheory.bridge.evaluator import method_name
from icltheory.bridge.methods import (
    ActivationAware,
    Cumulative,
    LargestEntries,
    RandomVectors,
)
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import Method, Rank, module_matrices
from tests.bridge.evaluation_tasks import at_rates, classification, tiny, with_test

AT = (0, "W_Q")


def weights(m, n, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((m, n)))


@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_random_vectors_have_the_spectrum_and_not_the_directions(shape):
    W = weights(*shape)
    cut = RandomVectors(3).cutter(W, AT)
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    for rank in range(1, 6):
        found = np.asarray(cut(Rank(rank)))
        kept = np.where(np.arange(6) < rank, s, 0)
        np.testing.assert_allclose(
            np.linalg.svd(found, compute_uv=False), kept, atol=1e-12
        )
        assert np.abs(found - (U[:, :rank] * s[:rank]) @ Vt[:rank]).max() > 0.1
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
    others = (
        RandomVectors(4).cutter(W, AT)(Rank(1)),
        RandomVectors(3).cutter(W, (1, "W_Q"))(Rank(1)),
        RandomVectors(3).cutter(W, (0, "W_K"))(Rank(1)),
        RandomVectors(3).cutter(W + 1e-3, AT)(Rank(1)),
    )
    for other in others:
        assert np.abs(np.asarray(other) - one).max() > 0.01


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


def test_they_are_methods_of_one_interface():
    methods = (
        RandomVectors(1),
        LargestEntries(),
        ActivationAware({}),
        ActivationAware({}, label="demonstrations"),
        Cumulative((0.5,)),
    )
    assert all(isinstance(method, Method) for method in methods)
    assert len({method_name(method) for method in methods}) == len(methods)
    assert method_name(RandomVectors(1)) != method_name(RandomVectors(2))
    assert methods[3].name == "activation-d0.001-demonstrations"
    with pytest.raises(ValueError, match="seed: "):
        RandomVectors(-1)


@pytest.mark.slow
@pytest.mark.parametrize("method", [RandomVectors(5), LargestEntries()])
def test_a_search_evaluates_what_the_method_gives_and_resumes(method, tmp_path):
    model, task = tiny("llama", num_layers=1), classification(6)
    rates = (0, 0.5, 0.75)
    found = at_rates(model, task, 0, "mlp", rates, method=method)
    params = model.params
    for spec in module_matrices(model, 0, "mlp"):
        W = get_matrix(model.params, spec)
        cut = method.cutter(W, (0, spec.name))
        params = replace_matrix(params, spec, cut(0.75))
    alone = evaluate_naive(model.replace(params=params), task).scores
    np.testing.assert_allclose(found[2].scores, alone, rtol=1e-6)
    path = tmp_path / "answers.sqlite"
    task = with_test(task, task.validation[:4])

    def search(some):
        evaluator = Evaluator(model, task, method=method, answers=path)
        return algorithm1(evaluator, 0, "mlp", some)

    search(rates[1:2])  # the part of a run that was stopped
    resumed = search(rates[1:])
    before = list(AnswerFile(path))
    assert search(rates[1:]).tried == resumed.tried
    assert list(AnswerFile(path)) == before
    fresh = algorithm1(Evaluator(model, task, method=method), 0, "mlp", rates[1:])
    assert fresh.tried == resumed.tried
    assert fresh.comparison == resumed.comparison
