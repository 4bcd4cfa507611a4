"""The steps of the noisy learner of Theorem 2, and what each changes in them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_choice,
    check_positive_int,
    check_shape,
    checked,
    finite,
    nonnegative,
    scalar,
)
from icltheory._core import Record, calculator, exact_products, where_valid
from icltheory._typing import (
    Array,
    DemoUpdates,
    Float,
    Int,
    MatrixNorm,
    PRNGKey,
    Scalar,
)
from icltheory.attention import LinearAttentionStack
from icltheory.batching import in_batches
from icltheory.noise import (
    NoiseSpectrum,
    noisy_trajectory,
    without_replacement_factor,
)
from icltheory.noise.gradients import path_gradients, up_to
from icltheory.noise.spectrum import reaches_ranks, spectrum_on_path
from icltheory.noise.support import _WIDE, dims_of, finite_stack
from icltheory.trajectory._recursion import Learner, prepare

Center = str | Float[ArrayLike, "_L _n _n"] | Callable[[int, Any], Any] | None


class GaussianSteps(Record):
    r"""Gaussian steps :math:`N(G_t, C_t)` of B prompts, for an isotropic prior.

    Args:
        squared_distance: :math:`\|G_t - \tilde g_t\|_F^2` or a bound on it, ``(B, L)``.
        trace: :math:`\operatorname{tr} C_t`, ``(B, L)``.
        log_det: :math:`\log\det C_t` in the space of ``dim``; -inf where it is singular
            there, ``(B, L)``.
        dim: Dimension of this space, ``(L,)``: the support's m_t unless ``ambient``.
        spectrum: Spectra of :math:`C_t`, with a leading axis B.
        noise_factor: :math:`\kappa(N, b)` of
            :func:`~icltheory.noise.without_replacement_factor`.
        width: Width n of a token.
        noisy_path: Whether the weights follow the noisy path.
        counted: Whether ``dim`` is exact, not counted up to N only.
        jitter: Whether noise was added.
        fitted: Whether the centre is fitted to the prompts.
    """

    squared_distance: Float[Array, "B L"]
    trace: Float[Array, "B L"]
    log_det: Float[Array, "B L"]
    dim: Int[Array, " L"]
    spectrum: NoiseSpectrum
    noise_factor: Scalar
    width: int = eqx.field(static=True)
    noisy_path: bool = eqx.field(static=True)
    counted: bool = eqx.field(static=True)
    jitter: bool = eqx.field(static=True)
    fitted: bool = eqx.field(static=True)

    def ambient(self) -> "GaussianSteps":
        """The same steps in all n^2 dimensions, where only added noise is regular."""
        dim = jnp.full_like(self.dim, self.width**2)
        return self._with(dim=dim, counted=True, log_det=_log_det(self.spectrum, dim))

    def jittered(self, variance: Real[ArrayLike, ""]) -> "GaussianSteps":
        r"""Steps of a learner with more noise, :math:`C_t + s^2`.

        Its bound diverges like (dim - rank) log(1/s^2).
        """
        variance = checked("variance", variance, scalar & nonnegative)
        if not self.counted:
            expected = "noise.support_dims(stack) for noise in the support"
            raise ValueError(f"support_dims: expected {expected}, got None")
        values = self.spectrum.eigenvalues
        s2 = jnp.asarray(variance, values.dtype)
        inside = (jnp.arange(values.shape[-1])[None] < self.dim[:, None])[None]
        logs = jnp.log(jnp.where(inside & (s2 > 0), values + s2, 1))
        missing = jnp.maximum(self.dim - values.shape[-1], 0)[None]
        log_det = jnp.sum(logs, axis=-1) + missing * jnp.log(jnp.where(s2 > 0, s2, 1))
        return self._with(
            trace=jnp.sum(jnp.where(inside, values, 0), axis=-1) + self.dim[None] * s2,
            log_det=jnp.where(s2 > 0, log_det, self.log_det),
            noise_factor=self.noise_factor + 0 * s2,  # NaN for a wrong variance
            jitter=True,
        )

    def _with(self, **changes):
        fields = {f.name: getattr(self, f.name) for f in _FIELDS}
        return GaussianSteps(**fields | changes)


_FIELDS = dataclasses.fields(GaussianSteps)


class NoisySteps(GaussianSteps):
    r"""The steps of :func:`noisy_steps`, with the prompts that they come from.

    Args:
        stack: The weights, ``(L, n, n)`` each.
        H: Pools of demonstrations, ``(B, N, n)``.
        W: Weights before each step of the noisy path, ``(B, L, n, n)``; ``None`` on
            Theorem 1's path.
        scale: Factor c on the attention sum.
        demo_updates: ``"shared"``, ``"causal"`` or ``"frozen"``.
        batch_size: Prompts that are held at once.
    """

    stack: LinearAttentionStack
    H: Float[Array, "B N n"]
    W: Float[Array, "B L n n"] | None
    scale: Scalar
    demo_updates: DemoUpdates = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)

    @property
    def learner(self) -> Learner:
        """The stack with the options of Theorem 1's learner."""
        return Learner(self.stack, self.demo_updates, self.scale)

    @exact_products
    def centred(self, center: Center = "mean") -> GaussianSteps:
        r"""Steps relative to a prior mean, :math:`\|G_t - \tilde g_t\|_F^2`.

        Args:
            center: :math:`\tilde g_t`: an array ``(L, n, n)``, a function ``(layer, W)
                -> (n, n)`` of :math:`W_{t-1}`, or ``"mean"``, that of :math:`G_t` over
                the prompts. Forms n x n matrices, as ``norm_product`` does.
        """
        G, W, _ = dense_steps(self)
        squares = jnp.sum((G - centers(center, G, W)) ** 2, axis=(2, 3))
        return self._with(squared_distance=squares, fitted=isinstance(center, str))

    @exact_products
    def norm_product(self, norm: MatrixNorm = "frobenius") -> GaussianSteps:
        r"""Steps with :math:`\|\Delta W_t\|_F^2 \|1 + W_{t-1}\|^2` for the distance.

        It bounds :math:`\|G_t\|_F^2` with the ``"spectral"`` norm of the second factor;
        the paper's ``"frobenius"`` norm is larger, by n in the first layer.
        """
        check_choice("norm", norm, ("spectral", "frobenius"))
        _, W, squared_delta_W = dense_steps(self)
        P = jnp.eye(self.width, dtype=W.dtype)[None, None] + W
        order = 2 if norm == "spectral" else "fro"
        squares = squared_delta_W * jnp.linalg.norm(P, ord=order, axis=(2, 3)) ** 2
        return self._with(squared_distance=squares)


def _pool(given):
    shape = jnp.shape(given["H"])
    if len(shape) not in (2, 3) or not shape[0]:
        raise ValueError(f"H: expected shape (N, n) or (B, N, n), B > 0, got {shape}")
    return shape[-2]


@calculator(
    compiled=False,
    static=("demo_updates", "batch_size"),
    integers=("shots", "support_dims"),
    stack=finite_stack,
    H=finite,
    shots=up_to(_pool),
    scale=scalar,
)
def noisy_steps(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "..."],
    shots: Real[ArrayLike, ""],
    *,
    key: PRNGKey | None = None,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    batch_size: int | None = None,
    support_dims: Int[ArrayLike, "_L"] | None = None,
) -> NoisySteps:
    r"""Steps of implicit gradient descent with noise, of which Theorem 2 is made.

    .. math:: W_t = W_{t-1} + G_t + C_t^{1/2} N_t , \qquad t = 1, \dots, L ,

    equation (4). The range of :math:`C_t` is a space of dimension m_t that
    :math:`W_{t-1}` alone determines, which it is when N - 1 >= m_t. Cost
    O(L (N^2 n + N^3)) per prompt, or that of :func:`~icltheory.noise.noise_spectrum`.

    Args:
        stack: The weights.
        H: A pool of N demonstrations, ``(N, n)``, or B of them, ``(B, N, n)``, over
            which the expectations of a bound are taken.
        shots: Number b of demonstrations in the prompt, from 1 to N.
        key: Key of the noisy path, on which weights and demonstrations are drawn
            jointly, as the theorem asks; without it, Theorem 1's path stands in.
        demo_updates: ``"shared"``, ``"frozen"`` or, without a key, ``"causal"``.
        scale: Factor c on the attention sum over all N. The papers have 1/N; with the
            default 1 steps of gradient descent are N times as large.
        batch_size: Prompts that are held at once; all of them if not given.
        support_dims: :math:`m_1, \dots, m_L` of :func:`~icltheory.noise.support_dims`,
            computed once for many calls with the same weights. Without them, those of
            weights with n > 512 are counted up to N only.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from icltheory.constructions import gradient_descent
        >>> X = jax.random.normal(jax.random.key(0), (30, 40, 2))
        >>> H = jnp.concatenate([X, X[..., :1]], axis=-1)  # y = x_1
        >>> stack = gradient_descent(jnp.array([0.5]), d_in=2)
        >>> steps = noisy_steps(stack, H, 20, scale=1 / 40)
        >>> steps.trace.shape, steps.dim.tolist()
        ((30, 1), [2])

    Source: Yao et al. (2024), section 3.3 and equation (4).
    """
    prompts = jnp.asarray(H)
    if batch_size is not None:
        check_positive_int("batch_size", batch_size)
    prompts = prompts[None] if prompts.ndim == 2 else prompts
    arrays = stack, prompts, shots, key, scale, support_dims
    steps = _noisy_steps(*arrays, demo_updates, batch_size)
    if support_dims is None:
        return steps
    enough = reaches_ranks(steps.spectrum)("support_dims", support_dims)
    return where_valid(steps, enough)


@functools.partial(jax.jit, static_argnames=("demo_updates", "batch_size"))
def _noisy_steps(stack, H, shots, key, scale, given_dims, demo_updates, batch_size):
    learner, _ = prepare(stack, H[0], demo_updates, scale)
    H = H.astype(learner.scale.dtype)
    B, N, n = H.shape
    kappa = without_replacement_factor(N, shots)
    m = dims_of(stack, given_dims, N)
    W = None
    if key is not None:
        options = {"demo_updates": demo_updates, "scale": learner.scale}

        def before(key, H):
            path = noisy_trajectory(learner.stack, H, shots, key=key, **options).W
            return jnp.concatenate([jnp.zeros_like(path[:1]), path[:-1]])

        W = in_batches(jax.vmap(before), batch_size, jax.random.split(key, B), H)

    def one(H, W):
        spectrum, gradients = spectrum_on_path(learner, H, shots, W, m)
        squared_G = _thin_square(gradients.left, gradients.right_G)
        return spectrum, squared_G

    mapped = jax.vmap(one, (0, None if W is None else 0))
    spectrum, squared_G = in_batches(mapped, batch_size, H, W)
    return NoisySteps(
        squared_distance=squared_G,
        trace=spectrum.trace,
        log_det=_log_det(spectrum, m),
        dim=m,
        spectrum=spectrum,
        noise_factor=kappa,
        width=n,
        noisy_path=key is not None or stack.num_layers == 1,
        counted=given_dims is not None or n <= _WIDE,
        jitter=False,
        fitted=False,
        stack=learner.stack,
        H=H,
        W=W,
        scale=learner.scale,
        demo_updates=demo_updates,
        batch_size=batch_size,
    )


def _log_det(spectrum, dim):
    return jnp.where(spectrum.rank == dim[None], spectrum.log_pdet, -jnp.inf)


@jax.jit
@exact_products
def dense_steps(steps: NoisySteps) -> tuple[Array, Array, Array]:
    """G_t and the weights before it, (B, L, n, n), and ||dW_t||^2, (B, L)."""

    def one(H, W):
        g = path_gradients(steps.learner, H, W)
        G = jnp.swapaxes(g.left, 1, 2) @ g.right_G
        return G, _thin_square(g.left, g.right_delta_W)

    mapped = jax.vmap(one, (0, None if steps.W is None else 0))
    G, squares = in_batches(mapped, steps.batch_size, steps.H, steps.W)
    W = jnp.cumsum(G, axis=1) - G if steps.W is None else steps.W
    return G, W, squares


def centers(center: Center, G: Array, W: Array) -> Array:
    """The prior means g_t, broadcastable to (B, L, n, n)."""
    if center is None:
        return jnp.zeros_like(G[:1])
    if isinstance(center, str):  # fitted to the prompts on which it is evaluated
        check_choice("center", center, ("mean",))
        return jnp.mean(G, axis=0, keepdims=True)
    if callable(center):
        return each_layer(center, W)
    check_shape("center", center, G.shape[1:])
    return jnp.asarray(center, G.dtype)[None]


def each_layer(function: Callable[[int, Any], Any], W: Array) -> Array:
    """Applies ``function(layer, W)`` to all prompts, layer by layer: (B, L, ...)."""
    per_layer = [
        jax.vmap(lambda w, t=t: jnp.asarray(function(t, w)))(W[:, t])
        for t in range(W.shape[1])
    ]
    return jnp.stack(per_layer, axis=1)


def _thin_square(A, B):
    """Computes ||A^T B||_F^2 for rows A, B without forming the product."""
    return jnp.sum(
        (A @ jnp.swapaxes(A, 1, 2)) * (B @ jnp.swapaxes(B, 1, 2)), axis=(1, 2)
    )
