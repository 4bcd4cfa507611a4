"""Networks and trees that are fitted to the examples of each prompt."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from experiments.frame import check_at_least, check_each

TOGETHER = 16  # prompts whose networks are trained together, to bound the memory


@dataclasses.dataclass(frozen=True)
class NetworkRecipe:
    """Training of the two-layer network of each prompt and prefix, by Adam."""

    width: int = 100  # hidden units
    steps: int = 200  # steps, each on all examples of the prefix
    learning_rate: float = 5e-3  # learning rate

    def __post_init__(self):
        check_at_least(self, 1, "width", "steps")
        check_each(self, "above 0", "learning_rate")


@functools.partial(jax.jit, static_argnames="recipe")
def network_prefixes(
    X: Float[Array, "B P d"], y: Float[Array, "B P"], key: Array, recipe: NetworkRecipe
) -> Float[Array, "B P"]:
    """Answers at x_{k+1} of ReLU networks trained on the first k examples, for all k.

    Weights start uniform on +-1 / sqrt(fan-in). Without examples the prediction is 0.
    """
    count = X.shape[1]
    seen = jnp.tril(jnp.ones((count, count), X.dtype), -1)
    optimizer = optax.adam(recipe.learning_rate)

    def fit(X, y, seen, key):
        """Outputs at all inputs of a network trained on the examples seen so far."""
        weights = seen / jnp.maximum(seen.sum(), 1)
        gradient = jax.grad(lambda p: jnp.sum(weights * (_network(p, X) - y) ** 2))

        def step(_, state):
            params, moments = state
            changes, moments = optimizer.update(gradient(params), moments)
            return optax.apply_updates(params, changes), moments

        params = network_start(key, X.shape[1], recipe.width, X.dtype)
        start = (params, optimizer.init(params))
        return _network(jax.lax.fori_loop(0, recipe.steps, step, start)[0], X)

    def of_prompt(prompt):
        X, y, keys = prompt
        fits = jax.vmap(functools.partial(fit, X, y))(seen, keys)
        # Row k has the predictions of the network trained on the first k examples.
        return jnp.diagonal(fits).at[0].set(0.0)

    keys = jax.random.split(key, y.shape)
    return jax.lax.map(of_prompt, (X, y, keys), batch_size=TOGETHER)


def _network(params: dict[str, Any], X: Array) -> Float[Array, "P"]:
    hidden = jax.nn.relu(X @ params["W_1"] + params["b_1"][None])
    return hidden @ params["w_2"] + params["b_2"]


def network_start(key: Array, dim: int, width: int, dtype: Any) -> dict[str, Array]:
    """Draws uniform weights and biases, as ``torch.nn.Linear`` initialises them."""
    shapes = {"W_1": (dim, width), "b_1": (width,), "w_2": (width,), "b_2": ()}
    limits = [1 / math.sqrt(dim)] * 2 + [1 / math.sqrt(width)] * 2
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.uniform(own, shape, dtype, -limit, limit)
        for own, (name, shape), limit in zip(keys, shapes.items(), limits, strict=True)
    }


def tree_prefixes(X: np.ndarray, y: np.ndarray, depth: int) -> np.ndarray:
    """Answers at x_{k+1} of greedy regression trees of the first k examples, for all k.

    Without examples the prediction is 0; equal splits are taken in order of features.
    """
    from sklearn.tree import DecisionTreeRegressor

    found = np.zeros(y.shape)
    for prompt, (inputs, labels) in enumerate(zip(X, y, strict=True)):
        for k in range(1, len(labels)):
            tree = DecisionTreeRegressor(max_depth=depth, random_state=0)
            tree.fit(inputs[:k], labels[:k])
            found[prompt, k] = tree.predict(inputs[k : k + 1])[0]
    return found
