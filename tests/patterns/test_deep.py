import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icltheory.layered import LayeredModel, forward, get_matrix
from icltheory.patterns import DeepPatternTransformer, train
from icltheory.pruning import prune_model
from tests.patterns import drawn, oracles

MODEL = DeepPatternTransformer(2, 7)


@pytest.fixture(scope="module")
def params(task):
    return drawn.pattern_params(MODEL, task, size=0.4)


def test_it_is_the_loop(task, params):
    prompt = drawn.pattern_prompt(task, 4, 5)
    run = jax.jit(lambda p: (forward(MODEL, p, prompt), MODEL.attention(p, prompt)))
    F, A = map(np.asarray, run(params))
    assert (F.shape, A.shape) == ((4,), (2, 4, 5))
    P, P_query = np.asarray(prompt.P), np.asarray(prompt.P_query)
    for b in range(4):
        wanted, attn = oracles.many_layers(params, P[b], P_query[b])
        np.testing.assert_allclose(F[b], wanted, rtol=1e-10)
        np.testing.assert_allclose(A[:, b], attn, rtol=1e-10, atol=1e-14)


def test_the_start(task):
    model = DeepPatternTransformer(4, 50)
    start = jax.jit(lambda key: model.init(task, key=key))(jax.random.key(2))
    for name, shape, mean, scale in (
        ("W_Q", (4, 12, 12), 0.2 * np.eye(12)[None], 0.02),
        ("W_V", (4, 12, 12), 0.2 * np.eye(12)[None], 0.02),
        ("W_O", (4, 50, 12), 0.0, 0.1),
        ("W_U", (4, 12, 50), 0.0, 0.1),
    ):
        assert start[name].shape == shape
        off = (np.asarray(start[name]) - mean) / scale
        assert abs(off.mean()) < 4.5 / off.size**0.5
        assert abs((off**2).mean() - 1) < 4.5 * (2 / off.size) ** 0.5
    assert not np.array_equal(start["W_Q"], start["W_K"])
    numbers = [np.asarray(start[name]).ravel() for name in ("W_O", "W_U")]
    assert abs(np.corrcoef(numbers)[0, 1]) < 4.5 / numbers[0].size ** 0.5


def test_the_layered_protocol(params):
    assert isinstance(MODEL, LayeredModel)
    names = ["W_Q", "W_K", "W_V", "W_O", "W_U"]
    assert [spec.name for spec in MODEL.matrices(1)] == names
    for spec in MODEL.matrices(1):
        np.testing.assert_array_equal(get_matrix(params, spec), params[spec.name][1])
    cut = prune_model(MODEL, params, "1:mlp:0.5")
    np.testing.assert_array_equal(cut["W_O"][0], params["W_O"][0])
    assert np.linalg.matrix_rank(np.asarray(cut["W_O"][1])) == 3
    with pytest.raises(ValueError, match="layer: expected 0 to 1, got 2"):
        MODEL.matrices(2)
    with pytest.raises(ValueError, match="num_layers: expected a positive integer"):
        DeepPatternTransformer(0)


@pytest.mark.slow
def test_it_learns_with_a_rule_of_optax():
    """Four patterns without noise, in a few seconds; every parameter moves."""
    sizes = {"noise": 0.0, "relevant_fraction": 1.0, "dtype": jnp.float32}
    task = drawn.pattern_task(4, 2, 2.0, 2, **sizes)
    model = DeepPatternTransformer(2, 16)
    start = jax.jit(lambda key: model.init(task, key=key))(jax.random.key(0))
    given = {"batch_size": 64, "num_examples": 12, "record_every": 300}
    given |= {"key": jax.random.key(1), "rule": optax.adam(1e-2)}
    path = train(model, task, start, 300, **given)
    losses = np.asarray(path.losses)
    assert losses[-20:].mean() < 0.1 < 0.9 < losses[0]
    for name, leaf in path.last.items():
        assert not np.array_equal(leaf, start[name])
