"""Probes of attention: projections of tokens, and logits between patterns."""

from typing import Any

import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Scalar
from icltheory.patterns._attention import check_width
from icltheory.patterns.prompts import PatternPrompt
from icltheory.patterns.task import PatternTask

__all__ = ["Projections", "pattern_logits", "projections"]


@pytree
class Projections:
    r"""Norm of projected tokens, and of their component along the token's pattern.

    Args:
        query: Mean of :math:`\|W_Q p_{query}\|`.
        query_component: Mean of its component along the feature pattern.
        keys: Mean of :math:`\|W_K p_i\|` over the contexts.
        keys_component: Mean of its component along the context's pattern.

    Returns:
        A frozen pytree.

    Example:
        >>> one = jnp.ones(())
        >>> float(Projections(one, one, one, one).query)
        1.0

    Source: Li et al. (2024), Proposition 1 and Figure 8.
    """

    query: Scalar
    query_component: Scalar
    keys: Scalar
    keys_component: Scalar


@calculator
def projections(
    params: dict[str, Any], task: PatternTask, prompt: PatternPrompt
) -> Projections:
    r"""Norms of projections of tokens by W_Q and W_K (Proposition 1).

    .. math:: \|W p\| \quad \text{and} \quad
        \Bigl| \Bigl\langle \frac{\mu_j}{\|\mu_j\|} , (W p)_{1..d_X} \Bigr\rangle
        \Bigr| ,

    where mu_j is the relevant pattern, in or out of domain, of the token. The outputs
    of W are read in the coordinates of the inputs, in which W starts as a diagonal.

    Args:
        params: Parameters of a one-layer model.
        task: The task that drew the prompts; out of domain the shifted one.
        prompt: The prompts.

    Returns:
        Means over tokens and prompts.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTransformer
        >>> task = PatternTask(6, 24, 2.0, noise=0.0)
        >>> params = PatternTransformer(64).init(jax.random.key(0), task)
        >>> found = projections(params, task, task.sample(jax.random.key(1), 5, 20, 1))
        >>> round(float(found.query), 5), round(float(found.keys_component), 5)
        (0.4, 0.4)

    Source: Li et al. (2024), Proposition 1 and Figure 8.
    """
    check_width(params, task.width, "task")
    check_width(params, prompt.P.shape[-1], "prompt")
    unit = task.relevant / jnp.linalg.norm(task.relevant, axis=1, keepdims=True)

    def sizes(W, tokens, pattern):
        out = tokens @ jnp.asarray(W).T
        along = jnp.sum(out[..., : task.dim] * unit[pattern], axis=-1)
        return jnp.mean(jnp.linalg.norm(out, axis=-1)), jnp.mean(jnp.abs(along))

    query = sizes(params["W_Q"], prompt.P_query, prompt.query_pattern)
    keys = sizes(params["W_K"], prompt.P, prompt.pattern)
    return Projections(*query, *keys)


@calculator
def pattern_logits(params: dict[str, Any], task: PatternTask) -> Float[Array, "M M"]:
    r"""Attention logits between the relevant patterns.

    .. math:: \mu_i^\top W_K^\top W_Q \mu_j ,

    keys in rows. A cover by too few tasks leaves the entries off the diagonal unequal,
    and shifted patterns, which mix the mu, then attend to one another.

    Args:
        params: Parameters of a one-layer model.
        task: The task whose patterns are meant.

    Returns:
        The logits, ``(M1, M1)``.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTransformer
        >>> task = PatternTask(2, 2, 2.0)
        >>> params = PatternTransformer(64).init(jax.random.key(0), task)
        >>> abs(pattern_logits(params, task)).round(4).tolist()
        [[0.16, 0.0], [0.0, 0.16]]

    Source: Li et al. (2024), Theorem 1 and Proposition 1.
    """
    check_width(params, task.width, "task")
    d = task.dim
    keys = task.relevant @ jnp.asarray(params["W_K"])[:, :d].T
    return keys @ (task.relevant @ jnp.asarray(params["W_Q"])[:, :d].T).T
