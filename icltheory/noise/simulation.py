"""Simulates Assumption 1, and the b-shot prompts that it models."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice
from icltheory._names import DemoUpdates, Noise
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, PRNGKey
from icltheory.attention import LinearAttentionStack
from icltheory.noise.covariance import without_replacement_factor
from icltheory.trajectory._recursion import demo_factors, prepare

__all__ = ["NOISES", "NoisyTrajectory", "noisy_trajectory"]

NOISES = ("gaussian", "shots", "fresh_shots")


@pytree
class NoisyTrajectory:
    r"""A path of noisy implicit gradient descent; entry ``[t]`` is layer t + 1.

    .. math:: W_t = W_{t-1} + \tilde G_t , \qquad V_t = G_t - \tilde G_t .

    Args:
        G: :math:`G_t` at the weights the path had reached, ``(L, n, n)``.
        noise: :math:`\tilde G_t - G_t = -V_t`, ``(L, n, n)``.
        W: :math:`W_1, \dots, W_L`, ``(L, n, n)``.

    Source: Yao et al. (2024), Assumption 1 and equation (4).
    """

    G: Float[Array, "L n n"]
    noise: Float[Array, "L n n"]
    W: Float[Array, "L n n"]


@calculator
def noisy_trajectory(
    key: PRNGKey,
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    shots: Real[ArrayLike, ""],
    *,
    noise: Noise = "gaussian",
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
) -> NoisyTrajectory:
    r"""Implicit gradient descent from b of N demonstrations, or with its noise.

    .. math::
        W_t = W_{t-1} + \sum_{i=1}^N w_i^t\, g_i^t(W_{t-1}) , \qquad
        E\, w_i = 1 , \quad
        \operatorname{Cov}(w) = \kappa N \big(1 - \tfrac1N \mathbf 1 \mathbf 1^\top
        \big) .

    ``"gaussian"`` is equation (4): :math:`w = 1 + \sqrt{\kappa N}\,(\epsilon -
    \bar\epsilon)` with :math:`\epsilon \sim N(0, 1)`, which gives the noise
    :math:`C_t^{1/2} N_t` without C_t. ``"shots"`` is the prompt itself: b of the N
    demonstrations, the same ones in every layer, with attention normalised by 1/b, so
    :math:`w_i = N / b` for those and 0 for the others. ``"fresh_shots"`` draws them
    anew in each layer, as stochastic gradient descent would. In the first and the last
    the weights w have this mean and covariance at every layer, whatever the path so
    far, as Assumption 1 asserts. Those of ``"shots"`` have it before the first layer
    only: later, the path tells which demonstrations were drawn.

    Cost O(L N n^2) beside the n x n products.

    Args:
        key: Key of the noise.
        stack: The weights, ``(L, n, n)`` each.
        H: The pool of N demonstrations, ``(N, n)``.
        shots: Number b of demonstrations in the prompt, from 1 to N.
        noise: ``"gaussian"``, ``"shots"`` or ``"fresh_shots"``.
        demo_updates: ``"shared"`` (tokens move as :math:`h^t = (1 + W_t) h^0`) or
            ``"frozen"``; with ``"causal"`` the gradient would not be a function of
            :math:`W_{t-1}`.
        scale: Factor c on the attention sum over all N; for a prompt of b it is c N/b.

    Returns:
        The gradients at the visited weights, the noise and the path.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> I = jnp.eye(2)[None]
        >>> stack, H = LinearAttentionStack(I, I, I), jnp.eye(2)
        >>> path = noisy_trajectory(jax.random.key(0), stack, H, 1, noise="shots")
        >>> sorted(jnp.diag(path.W[-1]).tolist())
        [0.0, 2.0]

    Source: Yao et al. (2024), Assumption 1 and equation (4).
    """
    check_choice("noise", noise, NOISES)
    check_choice("demo_updates", demo_updates, ("shared", "frozen"))
    (stack, _, scale), H = prepare(stack, H, demo_updates, scale)
    kappa = without_replacement_factor(H.shape[0], shots).astype(H.dtype)
    one = jnp.eye(H.shape[1], dtype=H.dtype)

    def step(W, inputs):
        key, layer = inputs
        P = one + W
        V, U = demo_factors(layer, H if demo_updates == "frozen" else H @ P.T, scale)
        C = U @ P
        excess = _weights(key, noise, H, shots, kappa) - 1
        G, added = V.T @ C, (V * excess[:, None]).T @ C
        return W + G + added, (G, added, W + G + added)

    keys = jax.random.split(key, stack.num_layers)
    if noise == "shots":
        keys = jnp.broadcast_to(keys[:1], keys.shape)
    _, path = jax.lax.scan(step, jnp.zeros_like(one), (keys, stack))
    return NoisyTrajectory(*path)


def _weights(key, noise, H, shots, kappa):
    """Draws the weights w_i of the demonstrations in one layer."""
    N = H.shape[0]
    if noise == "gaussian":
        epsilon = jax.random.normal(key, (N,), H.dtype)
        return 1 + jnp.sqrt(kappa * N) * (epsilon - jnp.mean(epsilon))
    chosen = jax.random.permutation(key, N) < shots
    return jnp.where(chosen, jnp.asarray(N / shots, H.dtype), 0)
