"""Inputs of matrices: their moments, and the exact implicit updates of MLPs."""

import dataclasses

import numpy as np
import pytest

from icltheory.bridge import Decoder
from icltheory.bridge.inputs import block_update, implicit_updates, input_moments
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import module_matrices
from tests.bridge.evaluation_tasks import tiny
from tests.bridge.tiny import CONFIGS, model_of
from tests.raising import raises

ROWS = [[1, 5, 77, 9, 14, 3, 60], [4, 4, 90], [31, 2]]
QUERIES = [[7, 9, 3], [31, 2], [30, 11, 5, 8]]
PROMPTS = [[4, 4, 19, *QUERIES[0]], [1, 5, 27, 14, *QUERIES[1]], [6, *QUERIES[2]]]


def inputs_of(model, layer, row):
    """What the matrices of a layer read at the tokens of one row alone, by path."""
    stream = model.embed(model.params, np.array([row]))
    for number in range(layer):
        stream = model.block(number, model.params, stream)
    decoder = model.decoder.of_layer(layer)
    _, inputs = decoder.run_block_inputs(model.params["layers"][layer], stream)
    return {path: np.asarray(x).reshape(len(row), -1) for path, x in inputs.items()}


@pytest.mark.slow
def test_moments_are_those_of_the_inputs_of_one_row_at_a_time():
    model = tiny("groups", num_layers=2)
    found = input_moments(model, ROWS, batch_size=2)
    assert len(found) == 2 * 7
    for layer in (0, 1):
        rows = [inputs_of(model, layer, row) for row in ROWS]
        for spec in module_matrices(model, layer, "all"):
            x = np.concatenate([row[spec.path[2:-1]] for row in rows])
            C = found[layer, spec.name]
            np.testing.assert_allclose(C, x.T @ x / len(x), rtol=2e-5, atol=1e-5)
    assert set(input_moments(model, ROWS, layers=[1], module="W_O")) == {(1, "W_O")}


def test_beyond_the_switch_of_rotary_positions_rows_are_measured_one_by_one():
    plain = tiny("llama", num_layers=1)
    turns = plain.arch.rotary
    other = tuple(2 * f for f in turns.frequencies)
    turns = dataclasses.replace(turns, switch=4, long_frequencies=other)
    arch = dataclasses.replace(plain.arch, rotary=turns)
    model = plain.replace(decoder=Decoder(arch))

    def moment(model, rows, **how):
        return input_moments(model, rows, module="W_O", **how)[0, "W_O"]

    found = moment(model, ROWS, batch_size=3)
    np.testing.assert_array_equal(found, moment(model, ROWS, batch_size=1))
    assert np.abs(found - moment(plain, ROWS)).max() > 0
    sums = [len(row) * moment(model, [row]) for row in ROWS]
    np.testing.assert_allclose(found, sum(sums) / sum(map(len, ROWS)), rtol=1e-5)


@pytest.mark.slow
def test_what_is_read_is_what_the_matrix_is_applied_to():
    """It does not depend on the matrix itself, and is the input of its neighbours."""
    model = tiny("llama", num_layers=1)
    kept = inputs_of(model, 0, ROWS[0])
    for name in ("W_Q", "W_O", "W_gate", "W_out"):
        (spec,) = module_matrices(model, 0, name)
        W, path = get_matrix(model.params, spec), spec.path[2:-1]
        other = model.replace(params=replace_matrix(model.params, spec, 2 * W))
        np.testing.assert_array_equal(inputs_of(other, 0, ROWS[0])[path], kept[path])
        assert kept[path].shape[-1] == W.shape[1]


def test_the_update_gives_the_output_with_demonstrations_and_is_the_smallest():
    rng = np.random.default_rng(0)
    W, z_with, z_without = rng.normal(size=(6, 4)), *rng.normal(size=(2, 4))
    update = np.outer(*block_update(W, z_with, z_without))
    np.testing.assert_allclose((W + update) @ z_without, W @ z_with, rtol=1e-12)
    assert np.linalg.matrix_rank(update) == 1
    # Every other solution differs by rows orthogonal to z_0, which add to the norm.
    other = rng.normal(size=(6, 4))
    other -= np.outer(other @ z_without, z_without) / (z_without @ z_without)
    np.testing.assert_allclose((W + update + other) @ z_without, W @ z_with, rtol=1e-11)
    norm = np.linalg.norm(update)
    assert np.linalg.norm(update + other) > norm
    size = np.linalg.norm(W @ (z_with - z_without)) / np.linalg.norm(z_without)
    np.testing.assert_allclose(norm, size, rtol=1e-12)
    assert np.isnan(block_update(W, z_with, 0 * z_without)[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("family", CONFIGS)
def test_norms_are_those_of_the_matrices_that_read_the_input(family):
    model = model_of(family)
    found = implicit_updates(model, PROMPTS, QUERIES, batch_size=2)
    for layer in range(model.num_layers):
        specs = [
            spec
            for spec in module_matrices(model, layer, "mlp")
            if get_matrix(model.params, spec).shape[1] == model.arch.width
            and not spec.name.endswith("W_out")
        ]
        W = np.concatenate([get_matrix(model.params, spec) for spec in specs])
        for i, rows in enumerate(zip(PROMPTS, QUERIES, strict=True)):
            path = specs[0].path[2:-1]
            z_with, z_without = (inputs_of(model, layer, row)[path][-1] for row in rows)
            a, b = block_update(W, z_with, z_without)
            after = (W + np.outer(a, b)) @ z_without
            np.testing.assert_allclose(after, W @ z_with, rtol=1e-4, atol=1e-5)
            size = np.linalg.norm(a) * np.linalg.norm(b)
            np.testing.assert_allclose(found.norms[layer, i], size, 1e-4, 1e-5)
        relative = found.norms[layer] / np.linalg.norm(W)
        np.testing.assert_allclose(found.relative[layer], relative, rtol=1e-5)
    some = implicit_updates(model, PROMPTS, QUERIES, layers=[1], batch_size=1)
    np.testing.assert_allclose(some.norms[0], found.norms[1], 1e-5, 1e-5)


def test_wrong_rows_are_refused():
    model = tiny("llama", num_layers=1)
    for rows, said in (
        ([[]], "at least one token, got none"),
        ([[1, 128]], "tokens 0 to 127, got 128"),
        ([[1] * 161], "rows of 1 to 160 tokens, got 161"),
    ):
        with raises(f"rows: expected {said}"):
            input_moments(model, rows)
    with raises("batch_size: expected a positive integer, got 0"):
        input_moments(model, ROWS, batch_size=0)
    model = model_of("gpt2")
    with raises("queries: expected one for each of 3 prompts, at least one, got 2"):
        implicit_updates(model, PROMPTS, QUERIES[:2])
    with raises("queries: expected rows of 1 to"):
        implicit_updates(model, PROMPTS, [[], [1], [2]])
    with raises("prompts: expected tokens 0 to"):
        implicit_updates(model, [[9999]], [[1]])
