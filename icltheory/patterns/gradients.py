"""Gradients of one training step in closed form, as in the backup slides."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_shape
from icltheory._names import GradientForm
from icltheory._typing import Array, Float
from icltheory.patterns._attention import check_width

__all__ = ["loss_gradients"]

FORMS = ("correct", "printed")


@calculator
def loss_gradients(
    params: dict[str, Any],
    P: Float[ArrayLike, "..."],
    P_query: Float[ArrayLike, "..."],
    z: Float[ArrayLike, "..."],
    *,
    form: GradientForm = "correct",
    query_is_key: bool = False,
) -> dict[str, Array]:
    r"""Gradients of the mean hinge loss in the four matrices, in closed form.

    With attention sigma_s, :math:`\bar p = \sum_s \sigma_s p_s`, the active neurons
    :math:`1_i = 1[(W_O)_i W_V \bar p \ge 0]` and
    :math:`u = \sum_i a_i 1_i (W_O)_i`, the gradients of one prompt with z F < 1 are

    .. math:: \partial W_Q &= -z \sum_s \sigma_s (u^\top W_V p_s)
        \bigl( W_K p_s - \textstyle\sum_r \sigma_r W_K p_r \bigr) p_{query}^\top , \\
        \partial W_K &= -z \sum_s \sigma_s (u^\top W_V p_s)\, W_Q p_{query}\,
        (p_s - \bar p)^\top , \\
        \partial W_V &= -z\, u\, \bar p^\top , \qquad
        \partial (W_O)_i = -z\, a_i 1_i\, (W_V \bar p)^\top ,

    and 0 otherwise. The slides print the transpose of W_Q in the second line, leave out
    the condition z F < 1 and let s run to l + 1, so that the query is a key; equation
    (7) has the l contexts only. ``form="printed"`` has the first two of these,
    ``query_is_key=True`` the third.

    Args:
        params: Parameters of a one-layer model.
        P: Contexts p_i, ``(B, l, D)``.
        P_query: Queries, ``(B, D)``.
        z: Labels of the queries, +1 or -1, ``(B,)``.
        form: ``"correct"`` or ``"printed"``.
        query_is_key: Whether the sums run over the query too.

    Returns:
        The gradients of ``"W_Q"``, ``"W_K"``, ``"W_V"`` and ``"W_O"``.

    Example:
        >>> from icltheory.patterns import PatternTask, PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(jax.random.key(0), task)
        >>> prompt = task.sample(jax.random.key(1), 5, 20, 0.8)
        >>> found = loss_gradients(params, prompt.P, prompt.P_query, prompt.z)
        >>> sorted(found), found["W_O"].shape
        (['W_K', 'W_O', 'W_Q', 'W_V'], (64, 60))

    Source: Li et al. (2024), slides on the proof of Theorem 1.
    """
    check_choice("form", form, FORMS)
    check_shape("P", P, ("B", "l", "D"))
    P, P_query, z = jnp.asarray(P), jnp.asarray(P_query), jnp.asarray(z)
    check_shape("P_query", P_query, P.shape[:1] + P.shape[2:])
    check_shape("z", z, P.shape[:1])
    check_width(params, P.shape[-1], "prompt")
    W_Q, W_K, W_V, W_O, a = (
        jnp.asarray(params[name]) for name in ("W_Q", "W_K", "W_V", "W_O", "a")
    )
    keys = jnp.concatenate([P, P_query[:, None]], axis=1) if query_is_key else P
    query, K = P_query @ W_Q.T, keys @ W_K.T
    sigma = jax.nn.softmax(jnp.einsum("bsk,bk->bs", K, query), axis=-1)
    pooled = jnp.einsum("bs,bsd->bd", sigma, keys)
    value = pooled @ W_V.T
    inputs = value @ W_O.T
    weight = a[None] * (inputs >= 0)
    correct = form == "correct"
    enough = z * (jax.nn.relu(inputs) @ a) >= 1  # these prompts have zero loss
    sign = -jnp.where(enough & correct, 0, z) / len(z)
    u = weight @ W_O
    cost = sigma * jnp.einsum("bsd,bd->bs", keys @ W_V.T, u)
    moved_keys = K - jnp.einsum("bs,bsk->bk", sigma, K)[:, None]
    moved = keys - pooled[:, None]
    side = query if correct else P_query @ W_Q
    return {
        "W_Q": jnp.einsum("b,bs,bsk,bd->kd", sign, cost, moved_keys, P_query),
        "W_K": jnp.einsum("b,bs,bk,bsd->kd", sign, cost, side, moved),
        "W_V": jnp.einsum("b,bv,bd->vd", sign, u, pooled),
        "W_O": jnp.einsum("b,bi,bv->iv", sign, weight, value),
    }
