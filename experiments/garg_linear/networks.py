"""A two-layer network trained on the examples of each prompt."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from experiments._frame.fields import check_at_least

_TOGETHER = 16  # prompts whose networks are trained together, to bound the memory


@dataclasses.dataclass(frozen=True)
class NetworkRecipe:
    """Training of the two-layer network of each prompt and prefix.

    Attributes:
        width: Hidden units.
        steps: Steps of Adam, each on all examples of the prefix.
        learning_rate: Learning rate of Adam.
    """

    width: int = 100
    steps: int = 200
    learning_rate: float = 5e-3

    def __post_init__(self):
        check_at_least(self, 1, "width", "steps")
        if not self.learning_rate > 0:
            raise ValueError(
                f"learning_rate: expected a number above 0, got {self.learning_rate}"
            )


@functools.partial(jax.jit, static_argnames="recipe")
def network_prefixes(
    X: Float[Array, "B P d"], y: Float[Array, "B P"], key: Array, recipe: NetworkRecipe
) -> Float[Array, "B P"]:
    r"""Predictions of two-layer networks trained on every prefix, in one program.

    .. math:: f(x) = b_2 + w_2^\top \mathrm{relu}(W_1 x + b_1), \qquad
        \min_f \frac1k \sum_{i \le k} (f(x_i) - y_i)^2 \text{ by Adam.}

    Each prompt and each k = 1, ..., P - 1 has a network of its own, which starts from
    uniform weights on :math:`\pm 1/\sqrt{\text{fan-in}}` and is asked at
    :math:`x_{k+1}`. Without examples the prediction is 0. The cost is about
    :math:`12\, B P^2\, \text{width}\, (d + 1)` floating-point operations per step.

    Args:
        X: Inputs; row k is the query of the first k examples.
        y: Labels.
        key: Typed key of the initial weights.
        recipe: Width, steps and learning rate.

    Returns:
        The predictions.

    References:
        Garg et al. 2022, Section 5. Verified by
        ``tests/experiments/test_garg_families.py``.
    """
    count = X.shape[1]
    seen = jnp.tril(jnp.ones((count, count), X.dtype), -1)
    keys = jax.random.split(key, y.shape)

    def of_prompt(prompt):
        X, y, keys = prompt
        fits = jax.vmap(functools.partial(_answers, recipe, X, y))(seen, keys)
        # Row k has the predictions of the network trained on the first k examples.
        return jnp.diagonal(fits).at[0].set(0.0)

    return jax.lax.map(of_prompt, (X, y, keys), batch_size=_TOGETHER)


def _answers(recipe: NetworkRecipe, X, y, seen, key) -> Float[Array, "P"]:
    """Outputs at all inputs of a network trained on the examples seen so far."""
    optimizer = optax.adam(recipe.learning_rate)
    weights = seen / jnp.maximum(seen.sum(), 1)
    gradient = jax.grad(lambda p: jnp.sum(weights * (_network(p, X) - y) ** 2))

    def step(_, state):
        params, moments = state
        changes, moments = optimizer.update(gradient(params), moments)
        return optax.apply_updates(params, changes), moments

    params = _start(key, X.shape[1], recipe.width, X.dtype)
    start = (params, optimizer.init(params))
    return _network(jax.lax.fori_loop(0, recipe.steps, step, start)[0], X)


def _network(params: dict[str, Any], X) -> Float[Array, "P"]:
    hidden = jax.nn.relu(X @ params["W_1"] + params["b_1"][None])
    return hidden @ params["w_2"] + params["b_2"]


def _start(key: Array, dim: int, width: int, dtype: Any) -> dict[str, Array]:
    """Draws uniform weights and biases, as ``torch.nn.Linear`` initialises them."""
    shapes = {"W_1": (dim, width), "b_1": (width,), "w_2": (width,), "b_2": ()}
    fan_in = {"W_1": dim, "b_1": dim, "w_2": width, "b_2": width}
    keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
    return {
        name: jax.random.uniform(
            keys[name],
            shape,
            dtype,
            -1 / math.sqrt(fan_in[name]),
            1 / math.sqrt(fan_in[name]),
        )
        for name, shape in shapes.items()
    }
