"""Exact moments of noisy implicit descent, and of the diffusion that it discretises."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._pytree import pytree
from icltheory._typing import Array, Float
from icltheory.attention import LinearAttentionStack
from icltheory.noise.covariance import without_replacement_factor
from icltheory.trajectory._recursion import demo_factors, prepare

__all__ = ["PathMoments", "path_moments"]


@pytree
class PathMoments:
    r"""Mean and covariance of the weights; entry ``[t]`` is after layer t + 1.

    Args:
        mean: :math:`E\, W_t`, ``(L, n, n)``.
        covariance: :math:`\operatorname{Cov}(\operatorname{vec} W_t)`, row by row,
            ``(L, n^2, n^2)``.

    Source: Yao et al. (2024), equation (4) and footnote 4.
    """

    mean: Float[Array, "L n n"]
    covariance: Float[Array, "L d d"]


@calculator
def path_moments(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    shots: Real[ArrayLike, ""],
    *,
    steps_per_layer: int = 1,
    continuous: bool = False,
    scale: Real[ArrayLike, ""] = 1.0,
) -> PathMoments:
    r"""Moments of equation (4) with frozen demonstrations, or of footnote 4's SDE.

    .. math::
        W_t = W_{t-1} + \tfrac1k G + \tfrac1k C(W_{t-1})^{1/2} N_t
        \quad\text{or}\quad
        \mathrm dW = G(W)\,\mathrm ds + \tfrac{1}{\sqrt k}\, C(W)^{1/2}\,
        \mathrm d\theta_s .

    One layer is a unit of time s and is divided into k steps; k = 1 is equation (4),
    which is the Euler-Maruyama scheme of the SDE. The paper's :math:`\eta` is 1/k. With
    frozen demonstrations :math:`g_i(W) = B_i (1 + W)` is linear, and first and second
    moments of :math:`p = \operatorname{vec}(1 + W)` close. With
    :math:`A = \sum_i B_i` and :math:`Q = E\, p p^\top`,

    .. math::
        Q_t = (1 + \tfrac Ak) Q_{t-1} (1 + \tfrac Ak)^\top + \tfrac{1}{k^2} N(Q_{t-1})
        , \qquad \dot Q = A Q + Q A^\top + \tfrac1k N(Q) , \\
        N(Q) = \kappa N \Big( \sum_i B_i Q B_i^\top - \tfrac1N A Q A^\top \Big) ,

    so that the two differ by :math:`\tfrac{1}{2 k^2} (A^2 Q + Q A^{\top 2})` and terms
    of order :math:`k^{-3}` per step, and by O(1/k) in all: the SDE describes equation
    (4) only as far as the update of a layer is small. The covariance is one difference
    of second moments. Memory O(n^8) with ``continuous``, which solves the equations by
    matrix exponentials; for small n.

    Args:
        stack: The weights, ``(L, n, n)`` each.
        H: The pool of N demonstrations, ``(N, n)``.
        shots: Number b of demonstrations in the prompt, from 1 to N.
        steps_per_layer: Steps k into which a layer is divided.
        continuous: Whether to return the moments of the SDE.
        scale: Factor c on the attention sum over all N.

    Returns:
        Mean and covariance after every layer.

    Example:
        >>> one = jnp.ones((1, 1, 1))
        >>> stack, H = LinearAttentionStack(one, one, one), jnp.array([[1.0], [2.0]])
        >>> for continuous in (False, True):  # 1 + W is 1 + 5 / 2, and exp(5 / 2)
        ...     found = path_moments(stack, H, 1, scale=0.5, continuous=continuous)
        ...     mean, covariance = found.mean.item(), found.covariance.item()
        ...     print(f"{mean:.2f} {covariance:.2f}")
        2.50 2.25
        11.18 1259.69

    Source: Yao et al. (2024), equation (4) and footnote 4; Li, Malladi and Arora
    (2021).
    """
    check_positive_int("steps_per_layer", steps_per_layer)
    (stack, _, scale), H = prepare(stack, H, "frozen", scale)
    kappa = without_replacement_factor(H.shape[0], shots).astype(H.dtype)
    N, n = H.shape
    k, d = steps_per_layer, n * n
    one = jnp.eye(n, dtype=H.dtype)

    def noise_of(A, B):
        def apply(Q):
            each = jnp.sum(B @ Q @ jnp.swapaxes(B, 1, 2), axis=0)
            return kappa * N * (each - A @ Q @ A.T / N)

        return apply

    def layer_maps(layer):
        V, U = demo_factors(layer, H, scale)
        # vec(L P) = (L kron 1) vec(P), row by row.
        B = jax.vmap(lambda v, u: jnp.kron(jnp.outer(v, u), one))(V, U)
        return jnp.sum(B, axis=0), B

    def discrete(p, Q, layer):
        A, B = layer_maps(layer)
        step, noise = jnp.eye(d, dtype=H.dtype) + A / k, noise_of(A, B)

        def move(state, _):
            p, Q = state
            return (step @ p, step @ Q @ step.T + noise(Q) / k**2), None

        return jax.lax.scan(move, (p, Q), None, length=k)[0]

    def diffused(p, Q, layer):
        A, B = layer_maps(layer)
        noise = noise_of(A, B)

        def change(Q):
            return A @ Q + Q @ A.T + noise(Q) / k

        generator = jax.jacfwd(change)(jnp.zeros_like(Q)).reshape(d * d, d * d)
        moved = jax.scipy.linalg.expm(generator) @ Q.ravel()
        return jax.scipy.linalg.expm(A) @ p, moved.reshape(d, d)

    def one_layer(state, layer):
        p, Q = state
        p, Q = (diffused if continuous else discrete)(p, Q, layer)
        return (p, Q), (p.reshape(n, n) - one, Q - jnp.outer(p, p))

    p = one.ravel()
    _, found = jax.lax.scan(one_layer, (p, jnp.outer(p, p)), stack)
    return PathMoments(*found)
