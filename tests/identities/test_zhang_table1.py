"""Zhang, Wu and Bartlett (2024), Table 1: what GPT-2 without its MLP can express."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.models import GPT2
from icltheory.regression import LinearPopulation

DIM, M, NOISE_VAR, CONSTANT = 2, 5, 0.01, 1e4
FAR = np.full(DIM, 10.0)


def prior_mean_reader():
    """One block of attention alone, with weights that answer <beta*, x>.

    The stream holds each coordinate of x and a large constant c, both once with each
    sign, so that it has mean zero and its norm hardly depends on x. The last norm then
    divides by a constant, up to (|x| / c)^2, and the read-out is linear in x. Attention
    adds nothing.
    """
    model = GPT2(
        dim=DIM,
        num_positions=M + 1,
        width=2 * (DIM + 1),
        num_layers=1,
        num_heads=1,
        mlp=False,
        token_layout="matrix",
        dtype=jnp.float64,
        param_dtype=jnp.float64,
    )

    def init():
        X, y = jnp.zeros((1, M, DIM)), jnp.zeros((1, M))
        return model.init(jax.random.key(0), X, y, X[:, 0], method="predict")

    params = jax.eval_shape(init)["params"]
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape), params)
    signs = np.array([1.0, -1.0])
    width = 2 * (DIM + 1)
    read_in = np.zeros((DIM + 1, width))  # the last row reads the label: not at all
    read_in[:DIM, : 2 * DIM] = np.kron(np.eye(DIM), signs[None])
    bias = np.append(np.zeros(2 * DIM), CONSTANT * signs)
    norm = CONSTANT * np.sqrt(2 / width)
    read_out = np.append(np.kron(FAR, signs) / 2, np.zeros(2)) * norm
    params["read_in"] = {"kernel": read_in, "bias": bias}
    params["ln_f"]["scale"] = np.ones(width)
    params["read_out_head"]["kernel"] = read_out[:, None]
    return model, jax.tree.map(jnp.asarray, params)


@pytest.mark.statement("Zhang: Section 4, Table 1")
def test_without_mlp_the_stream_carries_the_prior_mean_to_the_answer(measured):
    model, params = prior_mean_reader()
    assert not any("mlp" in name for name in params["block_0"])
    task = LinearPopulation(np.eye(DIM), FAR, np.eye(DIM), NOISE_VAR)
    prompt = jax.jit(lambda key: task.sample(key, M, 50_000))(jax.random.key(1))
    inputs = prompt.X, prompt.y, prompt.x_query
    answer = jax.jit(lambda *inputs: model.apply(*inputs, method="predict"))
    answers = np.asarray(answer({"params": params}, *inputs))
    exact = np.asarray(prompt.x_query) @ FAR
    measured("largest distance from <beta*, x>", answers - exact, below=1e-4)
    errors = np.square(answers - np.asarray(prompt.y_query))
    risk, spread = errors.mean(), errors.std() / np.sqrt(len(errors))
    measured("its risk", risk)
    assert abs(risk - (DIM + NOISE_VAR)) < 5 * spread
    # No linear attention layer gets below this (Theorem 4.1), whatever its weights.
    least, gap = jax.jit(
        lambda task: (reg.optimum(reg.LTB, task, M).risk, reg.gap(task, M))
    )(task)
    lower = float(least) + float(gap.lower_instance)
    measured("lower bound of every linear attention layer", lower)
    assert lower > 25 * risk
