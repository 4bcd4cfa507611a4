"""The exact implicit update of an MLP against its definition, for every family."""

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Tokens
from icltheory.bridge.inputs import block_update, implicit_updates
from icltheory.layered import get_matrix
from icltheory.pruning import module_matrices
from tests.bridge.tiny import CONFIGS, model_of
from tests.raising import raises

QUERIES = [[7, 9, 3], [31, 2], [30, 11, 5, 8]]
PROMPTS = [[4, 4, 19, *QUERIES[0]], [1, 5, 27, 14, *QUERIES[1]], [6, *QUERIES[2]]]


def test_the_update_gives_the_output_with_demonstrations_and_is_the_smallest():
    rng = np.random.default_rng(0)
    W, z_with, z_without = rng.normal(size=(6, 4)), *rng.normal(size=(2, 4))
    a, b = block_update(W, z_with, z_without)
    update = np.outer(a, b)
    np.testing.assert_allclose((W + update) @ z_without, W @ z_with, rtol=1e-12)
    assert np.linalg.matrix_rank(update) == 1
    # every other solution differs by rows orthogonal to z_0, which only add to the norm
    other = rng.normal(size=(6, 4))
    other -= np.outer(other @ z_without, z_without) / (z_without @ z_without)
    np.testing.assert_allclose((W + update + other) @ z_without, W @ z_with, rtol=1e-11)
    norm = np.linalg.norm(update)
    assert np.linalg.norm(update + other) > norm
    np.testing.assert_allclose(
        norm,
        np.linalg.norm(W @ (z_with - z_without)) / np.linalg.norm(z_without),
        rtol=1e-12,
    )
    assert np.isnan(block_update(W, z_with, 0 * z_without)[1]).all()


def inputs_by_hand(model, layer, row):
    stream = model.embed(
        model.params, Tokens(jnp.array([row]), jnp.ones((1, len(row)), bool))
    )
    for number in range(layer):
        stream = model.block(number, model.params, stream)
    decoder = model.decoder.of_layer(layer)
    _, inputs = decoder.run_block_inputs(model.params["layers"][layer], stream)
    path = next(p for p in inputs if p[0] == "mlp" and p[-1] != "W_out")
    return np.asarray(inputs[path]).reshape(len(row), -1)[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "gpt2",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in CONFIGS
            if name != "gpt2"
        ),
    ],
)
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
            z_with, z_without = (inputs_by_hand(model, layer, row) for row in rows)
            a, b = block_update(W, z_with, z_without)
            after = (W + np.outer(a, b)) @ z_without
            np.testing.assert_allclose(after, W @ z_with, rtol=1e-4, atol=1e-5)
            size = np.linalg.norm(a) * np.linalg.norm(b)
            np.testing.assert_allclose(found.norms[layer, i], size, 1e-4, 1e-5)
        np.testing.assert_allclose(
            found.relative[layer], found.norms[layer] / np.linalg.norm(W), rtol=1e-5
        )
    some = implicit_updates(model, PROMPTS, QUERIES, layers=[1], batch_size=1)
    np.testing.assert_allclose(some.norms[0], found.norms[1], 1e-5, 1e-5)


def test_wrong_rows_are_refused():
    model = model_of("gpt2")
    with raises("queries: expected one for each of 3 prompts, at least one, got 2"):
        implicit_updates(model, PROMPTS, QUERIES[:2])
    with raises("queries: expected rows of 1 to"):
        implicit_updates(model, PROMPTS, [[], [1], [2]])
    with raises("prompts: expected tokens 0 to"):
        implicit_updates(model, [[9999]], [[1]])
