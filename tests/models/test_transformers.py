"""The constructor of transformers, and its linear and gated attention by loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.models import transformer
from icltheory.models.gpt2 import _linear_weights
from tests.bridge.tiers import quick
from tests.raising import raises
from tests.weights import drawn

RNG = np.random.default_rng(0)
X, QUERIES = map(jnp.asarray, RNG.standard_normal((2, 2, 4, 3)))
Y = jnp.asarray(RNG.standard_normal((2, 4)))
F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}


def loop(q, k, gates, mask):
    """Weights of one head from the sums, token by token."""
    found = np.zeros((len(q), len(q)))
    for i in range(len(q)):
        seen = [j for j in range(len(q)) if mask[i, j]]
        decay = {j: np.prod([gates[t] for t in seen if t > j]) for j in seen}
        for j in seen:
            score = q[i] @ k[j] / np.sqrt(q.shape[1])
            found[i, j] = score * decay[j] / sum(decay.values())
    return found


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_those_of_the_sums(gated, causal):
    q, k = RNG.standard_normal((2, 1, 5, 2, 4))
    gates = RNG.uniform(0.3, 1, (1, 5, 2)) if gated else np.ones((1, 5, 2))
    # Two examples, and three queries that see the examples and themselves.
    asked = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], *np.eye(5)[2:]], bool)
    asked[2:, :2] = [[0, 0], [1, 0], [1, 1]]
    mask = np.tril(np.ones((5, 5), bool)) if causal else asked
    log_gates = jnp.log(gates) if gated else None
    found = _linear_weights(q, k, log_gates, None if causal else jnp.asarray(mask))
    for head in range(2):
        expected = loop(q[0, :, head], k[0, :, head], gates[0, :, head], mask)
        np.testing.assert_allclose(found[0, head], expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", quick(["gated"], ["linear", "gated"]))
@pytest.mark.parametrize("layout", quick(["matrix"], ["interleaved", "matrix"]))
def test_one_pass_answers_every_prefix_and_every_query(kind, layout):
    model = transformer(3, 4, kind, width=8, num_layers=2, token_layout=layout, **F64)
    params = drawn(model.init, X, Y)["params"]

    @jax.jit
    def run(*args):
        return model.apply({"params": params}, *args)

    every, other = run(X, Y), run(X, Y, QUERIES)
    for count in range(4):
        for queries, found in ((X, every), (QUERIES, other)):
            args = X[:, :count], Y[:, :count], queries[:, count]
            one = model.apply({"params": params}, *args, method="predict")
            np.testing.assert_allclose(found[:, count], one, atol=1e-12)


@pytest.mark.slow
def test_gates_of_one_are_linear_attention():
    gated = transformer(3, 4, "gated", width=8, num_layers=2, **F64)
    params = drawn(gated.init, X, Y)["params"]
    open_gates = {"kernel": jnp.zeros((8, 2)), "bias": jnp.full(2, 40.0)}
    params = {
        name: {**leaf, "attn_gate": open_gates} if "block" in name else leaf
        for name, leaf in params.items()
    }
    plain = {
        name: {k: v for k, v in leaf.items() if k != "attn_gate"}
        if "block" in name
        else leaf
        for name, leaf in params.items()
    }
    linear = transformer(3, 4, "linear", width=8, num_layers=2, **F64)
    found, expected = (
        model.apply({"params": p}, X, Y)
        for model, p in ((gated, params), (linear, plain))
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.usefixtures("as_for_a_user")
def test_sizes_and_what_cannot_be():
    model = transformer(5, 10)
    assert (model.num_positions, model.init_std) == (11, 0.1)
    assert transformer(5, 10, token_layout="interleaved").num_positions == 22
    assert transformer(5, 10, width=256).init_std == 0.025
    assert transformer(5, 10, width=1024, init_std=0.3).init_std == 0.3
    with raises("kind: expected one of"):
        transformer(5, 10, "mesa")
    with raises("num_examples: expected a positive integer, got 0"):
        transformer(5, 0)
    with raises("option: expected one of 'dim', "):
        transformer(5, 10, layers=3)
