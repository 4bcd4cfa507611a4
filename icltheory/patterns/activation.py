"""Lucky neurons by the slides' definition: those active at initialisation."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._noted import check_unit
from icltheory._typing import Array, Bool, Float
from icltheory.patterns._attention import check_width, query_weights
from icltheory.patterns.prompts import PatternPrompt

__all__ = ["activation_shares", "active_neurons"]

Number = float | int | Real[ArrayLike, ""]


@calculator
def activation_shares(
    params: dict[str, Any], prompt: PatternPrompt
) -> Float[Array, "m"]:
    r"""Share of the prompts of its own sign on which each neuron is active.

    .. math:: \frac{\sum_n 1[z^n = \operatorname{sign} a_i]\;
        1\bigl[ (W_O)_i \sum_s (W_V p^n_s)\, \sigma^n_s \ge 0 \bigr]}
        {\sum_n 1[z^n = \operatorname{sign} a_i]} .

    The slides call a neuron lucky if this indicator is on at the start of training.
    With finitely many prompts that is a share of 1; :func:`active_neurons` takes those
    above a threshold. Lucky neurons by where they point after training are
    ``neuron_parts(...).lucky()``.

    Args:
        params: Parameters of a one-layer model; at the start of training for the
            definition of the slides.
        prompt: Prompts, with any leading axes.

    Returns:
        One share for each neuron; NaN where no prompt has its sign.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTask, PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(jax.random.key(0), task)
        >>> prompt = task.sample(jax.random.key(1), 500, 20, 0.8)
        >>> activation_shares(params, prompt).shape
        (64,)

    Source: Li et al. (2024), slides on the proof of Theorem 1, "lucky neurons".
    """
    check_width(params, prompt.P.shape[-1], "prompt")
    weights = query_weights(
        jnp.asarray(params["W_K"]), jnp.asarray(params["W_Q"]), prompt.P, prompt.P_query
    )
    pooled = jnp.einsum("...l,...ld->...d", weights, prompt.P)
    inputs = (pooled @ jnp.asarray(params["W_V"]).T) @ jnp.asarray(params["W_O"]).T
    axes = tuple(range(inputs.ndim - 1))
    sign = jnp.expand_dims(jnp.sign(jnp.asarray(params["a"])), axes)
    own = prompt.z[..., None] == sign
    count = jnp.sum(own, axis=axes)
    active = jnp.sum(own & (inputs >= 0), axis=axes)
    return jnp.where(count > 0, active / jnp.maximum(count, 1), jnp.nan)


@calculator
def active_neurons(
    params: dict[str, Any], prompt: PatternPrompt, *, least: Number = 0.99
) -> Bool[Array, "m"]:
    r"""Neurons that are active on more than a share of the prompts of their own sign.

    Args:
        params: Parameters of a one-layer model.
        prompt: Prompts.
        least: The share that has to be exceeded, in [0, 1].

    Returns:
        One answer for each neuron.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTask, PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(jax.random.key(0), task)
        >>> prompt = task.sample(jax.random.key(1), 500, 20, 0.8)
        >>> int(active_neurons(params, prompt).sum()) < 32
        True

    Source: Li et al. (2024), slides on the proof of Theorem 1, "lucky neurons".
    """
    check_unit("least", least)
    return activation_shares(params, prompt) > least
