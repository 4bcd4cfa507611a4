"""Transforms a model to the coordinates of its patterns."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from icltheory.patterns import PatternPrompt, PatternTask


def basis_of(task: PatternTask) -> Float[Array, "D D"]:
    r"""Orthogonal matrix whose columns are the patterns and the label embedding.

    .. math:: R = \operatorname{diag}\bigl( [\mu_1 .. \mu_{M_1}, \nu_1 .. \nu_{M_2}]
        / \beta ,\ H \bigr) , \qquad H e_1 = q ,

    with H a reflection. It needs d_X = M1 + M2.
    """
    d, e = task.dim, task.label_dim
    features = jnp.concatenate([task.relevant, task.irrelevant]) / task.scale
    first = jnp.zeros(e, task.dtype).at[0].set(1)
    v = task.label_embedding - first
    square = jnp.sum(v**2)
    H = jnp.eye(e, dtype=task.dtype)
    H = H - 2 / jnp.where(square > 0, square, 1) * jnp.outer(v, v)
    R = jnp.zeros((d + e, d + e), task.dtype)
    return R.at[:d, :d].set(features.T).at[d:, d:].set(H)


def in_basis(
    params: dict[str, Any], prompt: PatternPrompt, R: Float[Array, "D D"]
) -> tuple[dict[str, Any], PatternPrompt]:
    r"""Transforms weights and tokens to new coordinates; the outputs stay the same.

    .. math:: W \mapsto R^\top W R , \qquad W_O \mapsto W_O R , \qquad
        p \mapsto R^\top p .

    The law of the start does not depend on the basis, and the descent turns with it:
    these are the weights of a model that was trained on patterns along the axes.
    """
    turned = {name: R.T @ params[name] @ R for name in ("W_Q", "W_K", "W_V")}
    prompt = dataclasses.replace(prompt, P=prompt.P @ R, P_query=prompt.P_query @ R)
    return params | turned | {"W_O": params["W_O"] @ R}, prompt
