"""Evaluates trained models at every prefix of fresh prompts."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from icltheory._checks import check_shape
from icltheory.regression.prompts import PrefixPrompt

__all__ = ["prefix_errors"]


def prefix_errors(
    model: nn.Module, params: PyTree, prompt: PrefixPrompt, *, batch_size: int = 64
) -> Float[Array, "B P"]:
    r"""Squared errors of a model by prompt and prefix.

    .. math:: e_{bk} = (\hat y_\theta(x_{bk} \mid (x_{bi}, y_{bi})_{i<k}) - y_{bk})^2

    All prefixes come from one pass, also where the query differs from the next example.

    Args:
        model: Flax module called with ``(X, y)`` where each query is the next example,
            and with ``(X, y, X_query)`` otherwise; it returns ``(B, P)``.
        params: Its parameters.
        prompt: Prompts and their queries.
        batch_size: Prompts evaluated at once.

    Returns:
        The errors.

    Source: Garg et al. 2022, Section 3.
    """
    X_query = None if prompt.X_query is prompt.X else prompt.X_query
    predictions = _predict(model, params, prompt.X, prompt.y, X_query, batch_size)
    check_shape("predictions", predictions, jnp.shape(prompt.y_query))
    return jnp.square(predictions - prompt.y_query)


@functools.partial(jax.jit, static_argnames=("model", "batch_size"))
def _predict(model, params, X, y, X_query, batch_size):
    def one(example):
        inputs = jax.tree.map(lambda leaf: leaf[None], example)
        given = inputs if X_query is not None else inputs[:2]
        return model.apply({"params": params}, *given)[0]

    return jax.lax.map(one, (X, y, X_query), batch_size=batch_size)
