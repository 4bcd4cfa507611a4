"""The trainable linear stack: prefixes, the theory's object, and real training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import training
from icltheory.constructions import gradient_descent
from icltheory.models import LinearStack
from icltheory.regression import LinearPopulation
from icltheory.trajectory import implicit_gd
from tests.weights import drawn

B, P, D = 3, 5, 4
_rng = np.random.default_rng(1)
X, Q = _rng.standard_normal((2, B, P, D))
Y = _rng.standard_normal((B, P))
MODEL = LinearStack(D, num_layers=2, init_std=0.3, param_dtype=jnp.float64)


@pytest.fixture(scope="module")
def params():
    return drawn(MODEL.init, X, Y)["params"]


def numpy_answer(params, X, y, query):
    """Two linear attention layers by loops, scaled by one over the demonstrations."""
    H = np.concatenate([X, y[:, None]], axis=1)
    h = np.append(query, 0.0)
    N = max(len(H), 1)
    W_V, W_K, W_Q = (np.asarray(params[name]) for name in ("W_V", "W_K", "W_Q"))
    for layer in range(len(W_V)):
        dW = np.zeros_like(W_V[0])
        for demo in H:
            dW += np.outer(W_V[layer] @ demo, W_K[layer] @ demo) @ W_Q[layer] / N
        H, h = H + H @ dW.T, h + dW @ h
    return h[-1]


def test_every_prefix_equals_the_loop_on_its_demonstrations(params):
    got = jax.jit(MODEL.apply)({"params": params}, X, Y, Q)
    for b in range(B):
        for k in range(P):
            expected = numpy_answer(params, X[b, :k], Y[b, :k], Q[b, k])
            np.testing.assert_allclose(got[b, k], expected, rtol=1e-10, atol=1e-12)


def test_predict_equals_the_last_prefix(params):
    every = jax.jit(MODEL.apply)({"params": params}, X, Y)
    predict = jax.jit(lambda *a: MODEL.apply({"params": params}, *a, method="predict"))
    last = predict(X[:, :-1], Y[:, :-1], X[:, -1])
    np.testing.assert_allclose(last, every[:, -1], rtol=1e-10)


def test_its_weights_are_the_theorys_stack(params):
    @jax.jit
    def both(params, X, Y, query):
        stack = MODEL.apply({"params": params}, method="stack")
        H = jnp.concatenate([X[0], Y[0][:, None]], axis=1)
        trajectory = implicit_gd(stack, H, scale=1.0 / P)
        answer = MODEL.apply({"params": params}, X, Y, query, method="predict")
        return trajectory.outputs(jnp.append(query[0], 0.0)), answer

    outputs, answer = both(params, X[:1], Y[:1], Q[:1, 0])
    np.testing.assert_allclose(outputs[-1, -1], answer[0], rtol=1e-10)


@pytest.mark.slow
def test_a_residual_stack_keeps_the_factor_of_all_examples_and_descends():
    X, y = np.ones((1, 3, 1)), 2 * np.ones((1, 3))
    for L in (1, 2):
        model = LinearStack(1, L, residual=True, num_examples=4)
        stack = gradient_descent(np.ones(L), 1)
        params = {"W_V": stack.W_V, "W_K": stack.W_K, "W_Q": stack.W_Q}
        answers = jax.jit(model.apply)({"params": params}, X, y)
        # one step a layer on 1/8 sum (2 - w)^2 from w = 0, with k = 0, 1, 2 examples
        descended = [2 - 2 * (1 - k / 4) ** L for k in range(3)]
        np.testing.assert_allclose(answers[0], descended, rtol=1e-12)


def test_a_factor_of_no_examples_is_an_error():
    with pytest.raises(ValueError, match="num_examples: expected a positive integer"):
        LinearStack(1, num_examples=0).init(jax.random.key(0), X[..., :1], Y)


@pytest.mark.slow
def test_training_one_layer_reaches_the_exact_optimum_and_never_beats_it():
    """Prediction against training: (d + 1) / (k + d + 1), Ahn et al. 2023.

    Five of these six random starts end in the spurious minimum near 0.58, whatever the
    rate and the size of the start; the sixth reaches the optimum.
    """
    d, k = 2, 8
    task = LinearPopulation.isotropic(d, dtype=jnp.float32)
    model = LinearStack(d, init_std=0.3)
    tx = training.make_optimizer(training.OptimizerConfig("adam", 2e-2), 600)
    step = training.make_step(
        model,
        task,
        tx,
        training.Curriculum.none(d, k + 1),
        batch_size=256,
        num_points=k + 1,
        loss_points="last",
        halves=False,
    )
    seeds = tuple(range(6))
    state = training.init_state(model, task, tx, seeds, num_points=k + 1)
    *_, chunk = training.run(jax.vmap(step), state, 600, chunk_steps=200)
    prompt = task.sample(jax.random.key(5), k, 20_000)

    def errors(params):
        inputs = (prompt.X, prompt.y, prompt.x_query)
        answers = model.apply({"params": params}, *inputs, method="predict")
        return (answers - prompt.y_query) ** 2 / d

    found = np.asarray(jax.jit(jax.vmap(errors))(chunk.state.params))
    se = found.std(axis=1) / np.sqrt(found.shape[1])
    optimum = (d + 1) / (k + d + 1)
    assert np.all(found.mean(axis=1) > optimum - 5 * se)
    best = found.mean(axis=1).argmin()
    # 600 steps of Adam come within a few percent.
    assert found.mean(axis=1)[best] < 1.05 * optimum + 5 * se[best]
