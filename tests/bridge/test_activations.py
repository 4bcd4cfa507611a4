"""Clipping by what comes out: the moments, the optimum, and the way into a search."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Decoder, Tokens
from icltheory.bridge.evaluator import method_name
from icltheory.bridge.inputs import input_moments
from icltheory.bridge.methods import ActivationAware
from icltheory.bridge.pruning import prune_model
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import LowRank, Rank, module_matrices
from tests.bridge.evaluation_tasks import at_rates, classification, tiny
from tests.oracles import truncate

ROWS = [[1, 5, 77, 9, 14, 3, 60], [4, 4, 90], [31, 2]]


def by_hand(model, layer, name):
    """Inputs from a model whose matrix is probed one direction at a time."""
    (spec,) = module_matrices(model, layer, name)
    W = get_matrix(model.params, spec)
    total, count = np.zeros((W.shape[1], W.shape[1])), 0
    for row in ROWS:
        stream = model.embed(model.params, tokens(row))
        for number in range(layer):
            stream = model.block(number, model.params, stream)
        _, inputs = model.decoder.run_block_inputs(
            model.params["layers"][layer], stream
        )
        x = np.asarray(inputs[spec.path[2:-1]])[0]
        total, count = total + x.T @ x, count + len(x)
    return total / count


def tokens(row):
    return Tokens(jnp.array([row]), jnp.ones((1, len(row)), bool))


@pytest.mark.slow
def test_moments_are_those_of_the_inputs_of_one_row_at_a_time():
    model = tiny("groups", num_layers=2)
    found = input_moments(model, ROWS, batch_size=2)
    assert len(found) == 2 * 7
    for (layer, name), C in found.items():
        np.testing.assert_allclose(C, by_hand(model, layer, name), rtol=2e-5, atol=1e-5)
    assert set(input_moments(model, ROWS, layers=[1], module="W_O")) == {(1, "W_O")}


def test_beyond_the_switch_of_rotary_positions_rows_are_measured_one_by_one():
    plain = tiny("llama", num_layers=1)
    turns = plain.arch.rotary
    other = tuple(2 * f for f in turns.frequencies)
    turns = dataclasses.replace(turns, switch=4, long_frequencies=other)
    arch = dataclasses.replace(plain.arch, rotary=turns)
    model = plain.replace(decoder=Decoder(arch))
    found, alone = (
        input_moments(model, ROWS, module="W_O", batch_size=size)[0, "W_O"]
        for size in (3, 1)
    )
    np.testing.assert_array_equal(found, alone)
    assert np.abs(found - input_moments(plain, ROWS, module="W_O")[0, "W_O"]).max() > 0
    sums = [
        len(row) * input_moments(model, [row], module="W_O")[0, "W_O"] for row in ROWS
    ]
    np.testing.assert_allclose(found, sum(sums) / sum(map(len, ROWS)), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["W_Q", "W_O", "W_gate", "W_out"])
def test_what_is_read_is_what_the_matrix_is_applied_to(name):
    """A change V of the matrix changes what comes out by x -> V x."""
    model = tiny("llama", num_layers=1)
    (spec,) = module_matrices(model, 0, name)
    stream = model.embed(model.params, tokens(ROWS[0]))
    layer = model.params["layers"][0]
    _, inputs = model.decoder.run_block_inputs(layer, stream)
    kept = inputs[spec.path[2:-1]]
    other = replace_matrix(model.params, spec, 2 * get_matrix(model.params, spec))
    _, changed = model.decoder.run_block_inputs(other["layers"][0], stream)
    # Its own input does not depend on it, and is the input of its neighbours.
    np.testing.assert_array_equal(changed[spec.path[2:-1]], kept)
    assert kept.shape[-1] == get_matrix(model.params, spec).shape[1]


def test_no_matrix_of_the_rank_is_nearer_in_what_comes_out():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6, 8))
    X = rng.standard_normal((50, 8)) * np.geomspace(1, 30, 8)[None]
    C = X.T @ X / 50
    method = ActivationAware({(0, "W_Q"): C}, damping=0)

    def error(V):
        return np.mean(np.sum((X @ (W - V).T) ** 2, axis=1))

    cut = method.cutter(jnp.asarray(W), (0, "W_Q"))
    for rank in range(1, 6):
        ours = np.asarray(cut(Rank(rank)))
        assert np.linalg.matrix_rank(ours, 1e-3) == rank
        # Eckart and Young: the least is what is left of the outputs' singular values.
        left = np.linalg.svd(X @ W.T, compute_uv=False)[rank:]
        assert error(ours) == pytest.approx(left @ left / 50, rel=1e-3)
        assert error(ours) < error(truncate(W, rank))
    np.testing.assert_array_equal(cut(Rank(6)), W)


def test_with_moments_of_one_it_is_plain_truncation():
    model = tiny("llama", num_layers=1)
    specs = module_matrices(model, 0, "mlp")
    sizes = {s.name: get_matrix(model.params, s).shape[1] for s in specs}
    method = ActivationAware({(0, name): np.eye(n) for name, n in sizes.items()})
    plain = prune_model(model, "0:mlp:0.5")
    for spec in specs:
        W = get_matrix(model.params, spec)
        cut = method.cutter(W, (0, spec.name))
        np.testing.assert_allclose(
            cut(0.5), get_matrix(plain.params, spec), rtol=1e-9, atol=1e-9
        )


@pytest.mark.slow
def test_a_search_takes_it_as_a_method():
    model, task = tiny("llama", num_layers=1), classification(6)
    method = ActivationAware(input_moments(model, ROWS))
    rates = (0, 0.5, 0.75)
    found = at_rates(model, task, 0, "mlp", rates, method=method)
    plain = at_rates(model, task, 0, "mlp", rates)
    np.testing.assert_array_equal(found[0].scores, plain[0].scores)
    pruned = model.params
    for spec in module_matrices(model, 0, "mlp"):
        W = get_matrix(model.params, spec)
        cut = method.cutter(W, (0, spec.name))
        pruned = replace_matrix(pruned, spec, cut(0.5))
    (alone,) = at_rates(
        model.replace(params=pruned), task, 0, "mlp", (0,), method=LowRank()
    )
    np.testing.assert_allclose(found[1].scores, alone.scores, rtol=1e-6)
    assert np.abs(found[1].scores - plain[1].scores).max() > 1e-3


def test_names_tell_moments_apart():
    one, two = (ActivationAware({(0, "W_Q"): c * np.eye(2)}) for c in (1.0, 2.0))
    assert method_name(one) == one.name != two.name
    assert one.fresh is one


def test_what_is_missing_or_singular_is_named():
    W = jnp.eye(2)
    method = ActivationAware({(1, "W_Q"): np.zeros((2, 2))})
    with pytest.raises(ValueError, match="moments: expected an entry .1, 'W_K'., got"):
        method.cutter(W, (1, "W_K"))
    with pytest.raises(ValueError, match="positive definite moments of W_Q in layer 1"):
        method.cutter(W, (1, "W_Q"))
    with pytest.raises(ValueError, match="rows: expected at least one token, got none"):
        input_moments(tiny("llama", num_layers=1), [[]])
    with pytest.raises(ValueError, match="batch_size: expected a positive integer, g"):
        input_moments(tiny("llama", num_layers=1), ROWS, batch_size=0)
    for row, said in (
        ([1, 128], "tokens 0 to 127, got 128"),
        ([1] * 161, "rows of 1 to 160 tokens, got 161"),
    ):
        with pytest.raises(ValueError, match=f"rows: expected {said}"):
            input_moments(tiny("llama", num_layers=1), [row])
    for wrong in (
        np.full((2, 2), np.nan),
        np.array([[1, 5.0], [0, 1]]),
        1j * np.eye(2),
    ):
        with pytest.raises((ValueError, TypeError), match="moments"):
            ActivationAware({(0, "W_Q"): wrong})
    with pytest.raises(ValueError, match="damping: "):
        ActivationAware({}, damping=-1.0)
