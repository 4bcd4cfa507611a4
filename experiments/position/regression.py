"""Errors of regression models by position of the special example."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments._trained import TrainedModels
from experiments.position.config import Config
from icltheory import constructions
from icltheory.regression import position
from icltheory.training import stream_key

SPECIAL = ("relevant", "wrong")


def stack_errors(config: Config) -> dict[tuple[str, str], np.ndarray]:
    """Squared errors / d of the linear stacks, ``(prompts, N)`` by name and kind."""
    found = {}
    for layers in config.layers:
        predict = functools.partial(_descend, config.step_size, layers)
        name = f"{layers} layer{'s' * (layers > 1)}"
        found |= _errors(config, name, predict)
    return found


def trained_errors(config: Config, trained: TrainedModels) -> dict:
    """Squared errors / d of the trained transformer by seed and kind."""
    found = {}
    for index, seed in enumerate(config.gpt2.seeds):
        predict = functools.partial(_answer, trained.module, trained.of_seed(index))
        found |= _errors(config, f"GPT-2, seed {seed}", predict)
    return found


def _answer(module, params, X, y, x_query):
    """A transformer's answer to one prompt."""
    one = (a[None] for a in (X, y, x_query))
    return module.apply({"params": params}, *one, method=module.predict)[0]


def _errors(config: Config, name: str, predict) -> dict[tuple[str, str], np.ndarray]:
    key = stream_key(config.seed, "evaluation")
    task = config.gpt2.task()

    def measure(key, special):
        sizes = {"num_prompts": config.prompts, "special": special}
        N = config.gpt2.num_points - 1
        return position.errors_by_position(predict, task, N, key=key, **sizes)

    dim = config.gpt2.dim
    return {
        (name, special): np.asarray(measure(key, special), np.float64) / dim
        for special in SPECIAL
    }


def _descend(step_size: float, layers: int, X, y, x_query):
    """Prediction of a gradient-descent stack with a causal mask."""
    dim = X.shape[-1]
    stack = constructions.gradient_descent(jnp.full(layers, step_size), dim)
    tokens = constructions.join_tokens(X, y[:, None], x_query)
    out = stack.apply(*tokens, "causal", scale=1 / X.shape[0])
    return constructions.read_prediction(out.h_query[-1], dim)[0]


def exact_errors(config: Config, layers: int, special: str) -> np.ndarray:
    """Expected errors / d of a stack given the inputs, ``(prompts, N)``.

    The label weights a are exact, and each task is N(0, I): with the query as relevant
    example the expected error is (1 - a_p)^2 |x|^2 + sum over the others a_i^2 |x_i|^2,
    and with a wrong one |x - sum over the others a_i x_i|^2 + a_p^2 |x_p|^2.
    """
    task = config.gpt2.task()
    key, N = stream_key(config.seed, "evaluation"), config.gpt2.num_points - 1
    prompt = task.sample(key, N, config.prompts)
    steps = jnp.full(layers, config.step_size)

    def one(X, x):
        def at(place):
            moved = jnp.where(special == "relevant", x, X[-1])
            rows = jnp.insert(X[:-1], place, moved, axis=0)
            a = position.label_weights(steps, rows, x)
            return _expected(special, a, rows, x, place)

        return jax.vmap(at)(jnp.arange(N))

    return (
        np.asarray(jax.jit(jax.vmap(one))(prompt.X, prompt.x_query)) / config.gpt2.dim
    )


def _expected(special: str, a, X, x, place):
    is_special = jnp.arange(len(a)) == place
    power = a**2 * jnp.sum(X**2, axis=1)
    if special == "relevant":
        return (1 - a[place]) ** 2 * (x @ x) + jnp.sum(jnp.where(is_special, 0, power))
    missing = x - jnp.where(is_special, 0, a) @ X
    return missing @ missing + power[place]


def mean_weights(config: Config, layers: int) -> np.ndarray:
    r"""Mean weight of a label by position in long prompts, ``(20,)``.

    The least-squares slope of N a_i against eta <x_i, x>, over all examples of a part
    of the prompt and over several prompts.
    """
    d, N, prompts = config.gpt2.dim, config.long_prompt, 64
    inputs, queries = jax.random.split(stream_key(config.seed, "data"))
    X = jax.random.normal(inputs, (prompts, N, d))
    x = jax.random.normal(queries, (prompts, d))
    steps = jnp.full(layers, config.step_size)

    def one(prompt):
        X, x = prompt
        a, k = position.label_weights(steps, X, x), X @ x
        parts = (a * k).reshape(20, -1), (k * k).reshape(20, -1)
        return tuple(part.sum(axis=1) for part in parts)

    product, square = jax.jit(lambda *prompt: jax.lax.map(one, prompt))(X, x)
    slope = np.asarray(product).sum(axis=0) / np.asarray(square).sum(axis=0)
    return N / config.step_size * slope
