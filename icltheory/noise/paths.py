"""Noisy implicit descent: simulated paths, and the exact moments of them."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, check_positive_int, scalar
from icltheory._core import Record, calculator
from icltheory._typing import Array, DemoUpdates, Float, Noise, PRNGKey
from icltheory.attention import LinearAttentionStack
from icltheory.noise.gradients import of_pool, without_replacement_factor
from icltheory.trajectory._recursion import demo_factors, num_heads, prepare


class NoisyTrajectory(Record):
    r"""A path of noisy implicit gradient descent; entry ``[t]`` is layer t + 1.

    Args:
        G: :math:`G_t` at the weights the path had reached.
        noise: :math:`\tilde G_t - G_t = -V_t`.
        W: :math:`W_t = W_{t-1} + \tilde G_t`.

    Source: Yao et al. (2024), Assumption 1 and equation (4).
    """

    G: Float[Array, "L n n"]
    noise: Float[Array, "L n n"]
    W: Float[Array, "L n n"]


class PathMoments(Record):
    r"""Mean and covariance of the weights; entry ``[t]`` is after layer t + 1.

    Args:
        mean: :math:`E\, W_t`.
        covariance: :math:`\operatorname{Cov}(\operatorname{vec} W_t)`, d = n^2.

    Source: Yao et al. (2024), equation (4) and footnote 4.
    """

    mean: Float[Array, "L n n"]
    covariance: Float[Array, "L d d"]


@calculator(
    static=("noise", "demo_updates"), integers=("shots",), shots=of_pool, scale=scalar
)
def noisy_trajectory(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    shots: Real[ArrayLike, ""],
    *,
    key: PRNGKey,
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

    Args:
        noise: ``"gaussian"`` is equation (4), :math:`w = 1 + \sqrt{\kappa N}\,(\epsilon
            - \bar\epsilon)` with :math:`\epsilon \sim N(0, 1)`. ``"shots"`` is the
            prompt: :math:`w_i = N / b` for the same b demonstrations in every layer, 0
            for the others; after the first layer the path tells which, and the moments
            are no longer those above. ``"fresh_shots"`` draws them in each layer.
        demo_updates: ``"shared"``, tokens move as :math:`h^t = (1 + W_t) h^0`, or
            ``"frozen"``.
        scale: Factor c on the attention sum over all N; for a prompt of b it is c N/b.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> I = jnp.eye(2)[None]
        >>> stack, H = LinearAttentionStack(I, I, I), jnp.eye(2)
        >>> path = noisy_trajectory(
        ...     stack, H, 1, key=jax.random.key(0), noise="shots"
        ... )
        >>> sorted(jnp.diag(path.W[-1]).tolist())
        [0.0, 2.0]

    Source: Yao et al. (2024), Assumption 1 and equation (4).
    """
    check_choice("noise", noise, ("gaussian", "shots", "fresh_shots"))
    check_choice("demo_updates", demo_updates, ("shared", "frozen"))
    (stack, _, scale), H = prepare(stack, H, demo_updates, scale)
    kappa = without_replacement_factor(H.shape[0], shots).astype(H.dtype)
    one = jnp.eye(H.shape[1], dtype=H.dtype)

    def step(W, inputs):
        key, layer = inputs
        P = one + W
        V, U = demo_factors(layer, H if demo_updates == "frozen" else H @ P.T, scale)
        C = U @ P
        excess = jnp.tile(_weights(key, noise, H, shots, kappa) - 1, num_heads(stack))
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


@calculator(
    static=("steps_per_layer", "continuous"),
    integers=("shots",),
    shots=of_pool,
    scale=scalar,
)
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

    Each layer is divided into k steps, equation (4) for k = 1; the paper's
    :math:`\eta` is 1/k. As :math:`g_i(W) = B_i (1 + W)` is linear, the moments of
    :math:`p = \operatorname{vec}(1 + W)` close. With :math:`A = \sum_i B_i` and
    :math:`Q = E\, p p^\top`,

    .. math::
        Q_t = (1 + \tfrac Ak) Q_{t-1} (1 + \tfrac Ak)^\top + \tfrac{1}{k^2} N(Q_{t-1})
        , \qquad \dot Q = A Q + Q A^\top + \tfrac1k N(Q) , \\
        N(Q) = \kappa N \Big( \sum_i B_i Q B_i^\top - \tfrac1N A Q A^\top \Big) .

    The two differ by O(1/k). The SDE (``continuous``) takes memory O(n^8).

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
    check_choice("continuous", continuous, (False, True))
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
        updates = V[:, :, None] * U[:, None]
        updates = jnp.sum(updates.reshape(-1, N, n, n), axis=0)
        B = jax.vmap(lambda update: jnp.kron(update, one))(updates)
        return jnp.sum(B, axis=0), B

    def discrete(p, Q, A, B):
        step, noise = jnp.eye(d, dtype=H.dtype) + A / k, noise_of(A, B)

        def move(state, _):
            p, Q = state
            return (step @ p, step @ Q @ step.T + noise(Q) / k**2), None

        return jax.lax.scan(move, (p, Q), None, length=k)[0]

    def diffused(p, Q, A, B):
        noise = noise_of(A, B)

        def change(Q):
            return A @ Q + Q @ A.T + noise(Q) / k

        generator = jax.jacfwd(change)(jnp.zeros_like(Q)).reshape(d * d, d * d)
        moved = jax.scipy.linalg.expm(generator) @ Q.ravel()
        return jax.scipy.linalg.expm(A) @ p, moved.reshape(d, d)

    def one_layer(state, layer):
        (p, Q), (A, B) = state, layer_maps(layer)
        p, Q = (diffused if continuous else discrete)(p, Q, A, B)
        return (p, Q), (p.reshape(n, n) - one, Q - jnp.outer(p, p))

    p = one.ravel()
    _, found = jax.lax.scan(one_layer, (p, jnp.outer(p, p)), stack)
    return PathMoments(*found)
