import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.layered import LayeredModel, forward, get_matrix
from icltheory.patterns import PatternTransformer, hinge
from icltheory.pruning import Intervention, Scored, prune_model, sweep
from tests.patterns import drawn, oracles
from tests.raising import raises

MODEL = PatternTransformer(6)
run = jax.jit(functools.partial(forward, MODEL))


@pytest.fixture(scope="module")
def params(task):
    return drawn.pattern_params(MODEL, task)


@pytest.fixture(scope="module")
def prompt(task):
    return drawn.pattern_prompt(task, 7, 5)


@pytest.mark.statement("Li ICL: Eq. (7), model")
def test_it_is_equation_7(params, prompt):
    F, A = run(params, prompt), jax.jit(MODEL.attention)(params, prompt)
    assert (F.shape, A.shape) == ((7,), (1, 7, 5))
    F, A, P, P_query = map(np.asarray, (F, A, prompt.P, prompt.P_query))
    for b in range(7):
        wanted, attn = oracles.one_layer(params, P[b], P_query[b])
        np.testing.assert_allclose(F[b], wanted, rtol=1e-11)
        np.testing.assert_allclose(A[0, b], attn, rtol=1e-11, atol=1e-15)


def test_a_pair_of_arrays_and_no_batch_are_fine(params, prompt):
    whole = np.asarray(run(params, prompt))
    P, P_query = np.asarray(prompt.P), np.asarray(prompt.P_query)
    np.testing.assert_array_equal(run(params, (P, P_query)), whole)
    np.testing.assert_allclose(run(params, (P[2], P_query[2])), whole[2], rtol=1e-12)
    with pytest.raises(ValueError, match=r"P_query: expected shape \(7, 12\), got"):
        forward(MODEL, params, (prompt.P, prompt.P_query[0]))


def test_the_order_of_contexts_does_not_matter(params, prompt):
    order = np.random.default_rng(0).permutation(5)
    mixed = (np.asarray(prompt.P)[:, order], np.asarray(prompt.P_query))
    np.testing.assert_allclose(run(params, mixed), run(params, prompt), rtol=1e-12)


def test_the_start(task):
    model = PatternTransformer(400)
    scales = {"attention_scale": 0.3, "neuron_scale": 0.05}
    start = jax.jit(lambda key: model.init(task, key=key, **scales))(jax.random.key(2))
    start = jax.tree.map(np.asarray, start)
    wanted = 0.3 * np.diag([1.0] * 9 + [0.0] * 3)
    np.testing.assert_array_equal(start["W_Q"], wanted)
    np.testing.assert_array_equal(start["W_K"], wanted)
    np.testing.assert_array_equal(start["W_V"], 0.3 * np.eye(12))
    W = np.asarray(start["W_O"]) / 0.05
    assert abs(W.mean()) < 4.5 / W.size**0.5
    assert abs((W**2).mean() - 1) < 4.5 * (2 / W.size) ** 0.5
    assert sorted(set(np.asarray(start["a"]))) == [-1 / 400, 1 / 400]
    assert int((start["a"] > 0).sum()) == 200
    assert not np.array_equal(start["a"], np.sort(start["a"])[::-1])


def test_the_layered_protocol(params, prompt):
    assert isinstance(MODEL, LayeredModel)
    names = [(spec.name, spec.group) for spec in MODEL.matrices(0)]
    assert names == [("W_Q", "attn"), ("W_K", "attn"), ("W_V", "attn"), ("W_O", "mlp")]
    for spec in MODEL.matrices(0):
        np.testing.assert_array_equal(get_matrix(params, spec), params[spec.name])
    with pytest.raises(ValueError, match="layer: expected 0, got 1"):
        MODEL.matrices(1)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mlp", "W_V"])
def test_clipping_by_the_library_is_clipping_by_hand(params, prompt, module):
    name = {"mlp": "W_O", "W_V": "W_V"}[module]
    W = np.asarray(params[name])
    U, s, Vt = np.linalg.svd(W, full_matrices=False)

    def score(F, z):
        return jnp.mean(hinge(z * F))

    rates = [0, 0.5]
    scored = Scored(MODEL, params, prompt, score, (prompt.z,))
    found = sweep(scored, 0, module, rates)
    for rate, got in zip(rates, found, strict=True):
        rank = int((1 - rate) * len(s))
        cut = params | {name: jnp.asarray((U[:, :rank] * s[:rank]) @ Vt[:rank])}
        F = np.asarray(run(cut, prompt))
        wanted = np.maximum(1 - np.asarray(prompt.z) * F, 0).mean()
        np.testing.assert_allclose(got, wanted, rtol=1e-10)
        again = prune_model(MODEL, params, Intervention(0, module, rate))[name]
        np.testing.assert_allclose(again, cut[name], atol=1e-10)


def test_bad_sizes():
    with raises("num_neurons: expected an even"):
        PatternTransformer(5)
    with raises("num_neurons: expected a positive integer"):
        PatternTransformer(0)
