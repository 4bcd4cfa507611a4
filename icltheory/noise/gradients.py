"""Each demonstration's implicit gradient, and their covariance."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    Check,
    CheckLike,
    check_choice,
    check_shape,
    scalar,
    wrong,
)
from icltheory._core import calculator
from icltheory._typing import Array, DemoUpdates, Float, Scalar
from icltheory.attention import LinearAttentionStack
from icltheory.trajectory._recursion import (
    Learner,
    factor_recursion,
    num_heads,
    parts_on_path,
    prepare,
    token_recursion,
)
from icltheory.trajectory.records import TrajectoryFactors


def up_to(pool: Callable[[Mapping[str, Any]], Any], named: str = "H") -> CheckLike:
    """Returns the check that shots are a whole number from 1 to the size of a pool."""

    def check(name, shots, given):
        N = pool(given)
        if not isinstance(N, int | np.integer) or N < 2:
            raise wrong(named, "at least 2 demonstrations", N)
        expected = f"an integer from 1 to N = {N}"
        kind = getattr(shots, "dtype", np.dtype(type(shots)))
        if np.shape(shots) or not jnp.issubdtype(kind, np.integer):
            raise wrong(name, expected, shots)
        return Check(lambda b: (b >= 1) & (b <= float(N)), expected)(name, shots)

    return check


def _num_rows(given):
    check_shape("H", given["H"], ("N", "n"))
    return len(given["H"])


of_pool = up_to(_num_rows)


@calculator(
    static=("num_demos",),
    integers=("shots",),
    shots=up_to(lambda given: given["num_demos"], "num_demos"),
)
def without_replacement_factor(num_demos: int, shots: Real[ArrayLike, ""]) -> Scalar:
    r"""Variance of the mean of b of N values without replacement, over their variance.

    .. math:: \kappa(N, b) = \frac{N - b}{b\,(N - 1)} .

    It is 0 at b = N: the whole pool leaves no noise.

    Example:
        >>> float(without_replacement_factor(5, 2))
        0.375

    Source: Yao et al. (2024), section 3.3, the factor of :math:`C_t`; Cochran (1977),
    theorem 2.2.
    """
    N, b = float(num_demos), jnp.asarray(shots, jnp.result_type(float))
    return (N - b) / (b * (N - 1))


@calculator(static=("demo_updates",), scale=scalar)
def demonstration_gradients(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    W: Float[ArrayLike, "_L _n _n"] | None = None,
) -> TrajectoryFactors:
    r"""The implicit gradient that each demonstration contributes, in factors.

    .. math::
        g_i^t = c\, W_V^t h_i^{t-1} \,(h_i^{t-1})^\top (W_K^t)^\top W_Q^t
        (1 + W_{t-1}) , \qquad \sum_{i=1}^N g_i^t = G_t , \qquad z_i^t = N g_i^t .

    The papers' :math:`\nabla \ell_i` is :math:`z_i`, of which the noise has the
    covariance. Cost O(L N n^2 + L^2 N^2 n) when L N < n, otherwise O(L (N n^2 + n^3)).

    Args:
        demo_updates: As in :func:`~icltheory.trajectory.implicit_gd`.
        scale: Factor c on the attention sum over all N.
        W: Weights :math:`W_0, \dots, W_{L-1}` at which the gradients are taken, such as
            those of a noisy path, instead of Theorem 1's. Not with ``"causal"``, where
            they do not determine the gradients.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)[None]
        >>> stack = LinearAttentionStack(I, I, I)
        >>> H = jnp.array([[1.0, 0.0], [0.0, 2.0]])
        >>> demonstration_gradients(stack, H).per_demonstration(0).tolist()
        [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 4.0]]]

    Source: Yao et al. (2024), section 3.3.
    """
    learner, H = prepare(stack, H, demo_updates, scale)
    return path_gradients(learner, H, W)


@calculator(
    static=("layer", "demo_updates"), integers=("shots",), shots=of_pool, scale=scalar
)
def noise_covariance(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    shots: Real[ArrayLike, ""],
    layer: int,
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    W: Float[ArrayLike, "_L _n _n"] | None = None,
) -> Float[Array, "d d"]:
    r"""Covariance of the implicit gradient noise of one layer, dense, d = n^2.

    .. math::
        C_t = \kappa(N, b) \Big( \frac1N \sum_{i=1}^N z_i z_i^\top
              - \operatorname{vec}(G_t) \operatorname{vec}(G_t)^\top \Big) , \qquad
        z_i = N \operatorname{vec}(g_i^t) ,

    exactly the covariance of :math:`\frac1b \sum_{i \in B} z_i` over the subsets B of b
    demonstrations. Its rank is at most :math:`\min(N - 1, n(n + 1)/2)`. Cost O(N n^4);
    :func:`noise_spectrum` forms nothing of this size. The options are those of
    :func:`demonstration_gradients`.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)[None]
        >>> stack = LinearAttentionStack(I, I, I)
        >>> noise_covariance(stack, jnp.array([[1.0], [2.0]]), 1, 0).tolist()
        [[9.0]]

    Source: Yao et al. (2024), section 3.3.
    """
    gradients = demonstration_gradients(
        stack, H, demo_updates=demo_updates, scale=scale, W=W
    )
    layers, N = gradients.left.shape[0], gradients.num_demos
    if not 0 <= layer < layers:
        raise ValueError(f"layer: expected 0 to {layers - 1}, got {layer}")
    kappa = without_replacement_factor(N, shots)
    g = gradients.per_demonstration(layer).reshape(N, -1)
    centred = g - jnp.mean(g, axis=0)[None]
    return (kappa * N).astype(g.dtype) * (centred.T @ centred)


def path_gradients(learner: Learner, H, W) -> TrajectoryFactors:
    """Factors of the gradients by the cheaper recursion, or at given weights."""
    heads = num_heads(learner.stack)
    if W is None and learner.stack.num_layers * heads * H.shape[0] < H.shape[1]:
        return TrajectoryFactors(*factor_recursion(learner, H), heads)
    _, V, U, C, _ = layer_parts(learner, H, W)
    return TrajectoryFactors(V, U, C, heads)


def layer_parts(learner: Learner, H, W):
    """Tokens, V, U, C and B of every layer, on Theorem 1's path or at given weights."""
    if W is None:
        return token_recursion(learner, H)
    check_choice("demo_updates", learner.demo_updates, ("shared", "frozen"))
    n = H.shape[1]
    check_shape("W", W, (learner.stack.num_layers, n, n))
    return parts_on_path(learner, H, jnp.asarray(W, H.dtype))
