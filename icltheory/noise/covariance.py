"""The covariance of the implicit gradient noise as a dense matrix."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_values
from icltheory._names import DemoUpdates
from icltheory._typing import Array, Float, Scalar
from icltheory.attention import LinearAttentionStack
from icltheory.noise.gradients import demonstration_gradients

__all__ = ["noise_covariance", "without_replacement_factor"]


@calculator
def without_replacement_factor(num_demos: int, shots: Real[ArrayLike, ""]) -> Scalar:
    r"""Variance of the mean of b of N values without replacement, over their variance.

    .. math:: \kappa(N, b) = \frac{N - b}{b\,(N - 1)} .

    It is 0 at b = N: the whole pool leaves no noise, and every bound built on it is
    infinite.

    Args:
        num_demos: Number N of demonstrations in the pool, at least 2.
        shots: Number b of them in the prompt, from 1 to N; may be traced.

    Returns:
        :math:`\kappa(N, b)`.

    Example:
        >>> float(without_replacement_factor(5, 2))
        0.375

    Source: Yao et al. (2024), section 3.3, the factor of :math:`C_t`; Cochran (1977),
    theorem 2.2.
    """
    if num_demos < 2:
        raise ValueError(
            f"num_demos: expected at least 2 demonstrations, got {num_demos}"
        )
    expected = f"an integer from 1 to N = {num_demos}"
    if np.shape(shots) or not np.issubdtype(np.result_type(shots), np.integer):
        raise ValueError(f"shots: expected {expected}, got {shots}")
    check_values("shots", shots, lambda b: (b >= 1) & (b <= num_demos), expected)
    b = jnp.asarray(shots, jnp.result_type(float))
    return (num_demos - b) / (b * (num_demos - 1))


@calculator
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

    with ``vec`` row by row. It is exactly the covariance of :math:`\frac1b \sum_{i \in
    B} z_i` over the subsets B of b demonstrations. Never positive definite when n >= 2:
    its rank is at most :math:`\min(N - 1, n(n + 1)/2) < n^2`. This is the oracle for
    small n, O(N n^4); :func:`~icltheory.noise.noise_spectrum` forms nothing of this
    size.

    Args:
        stack: The weights, ``(L, n, n)`` each.
        H: The pool of N demonstrations, ``(N, n)``.
        shots: Number b of demonstrations in the prompt.
        layer: Layer, from 0 to L - 1.
        demo_updates: ``"shared"``, ``"causal"`` or ``"frozen"``.
        scale: Factor c on the attention sum over all N.
        W: The weights :math:`W_0, \dots, W_{L-1}` at which the gradients are taken;
            without them, those of Theorem 1.

    Returns:
        The covariance, ``(n * n, n * n)``.

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
    layers, N = gradients.left.shape[:2]
    if not 0 <= layer < layers:
        raise ValueError(f"layer: expected 0 to {layers - 1}, got {layer}")
    kappa = without_replacement_factor(N, shots)
    g = gradients.per_demonstration(layer).reshape(N, -1)
    centred = g - jnp.mean(g, axis=0)[None]
    return (kappa * N).astype(g.dtype) * (centred.T @ centred)
