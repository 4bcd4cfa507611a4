"""The spectrum of the noise covariance, computed without n^2 x n^2 matrices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import Check, check_choice, is_tracer, scalar
from icltheory._core import Record, calculator, where_valid, widened
from icltheory._typing import Array, DemoUpdates, Float, Int, SpectrumMethod
from icltheory.attention import LinearAttentionStack
from icltheory.noise._routes import (
    centred_gram,
    compressed_rows,
    singular_values,
    symmetric_rows,
)
from icltheory.noise.gradients import (
    layer_parts,
    of_pool,
    path_gradients,
    without_replacement_factor,
)
from icltheory.noise.support import countable, dims_of
from icltheory.trajectory import TrajectoryFactors
from icltheory.trajectory._recursion import Learner, num_heads, prepare

# With more numbers per layer than this, the rows are too large to decompose.
_ROWS_LIMIT = 2**25


class NoiseSpectrum(Record):
    r"""Spectrum of :math:`C_t` and derived quantities; ``[t]`` is layer t + 1.

    Args:
        eigenvalues: The N largest eigenvalues of :math:`C_t`, descending; zeros where
            it has no more.
        trace: :math:`\operatorname{tr} C_t`.
        log_pdet: Sum of the logarithms of the first ``rank`` eigenvalues; NaN where
            they are, as after an overflow.
        rank: Number of eigenvalues above rounding, at most N - 1 and m_t.
        support_dim: Dimension m_t of the space that the weights allow; for n > 512 the
            smaller of m_t and N, unless it was given.

    Source: Yao et al. (2024), section 3.3.
    """

    eigenvalues: Float[Array, "L N"]
    trace: Float[Array, " L"]
    log_pdet: Float[Array, " L"]
    rank: Int[Array, " L"]
    support_dim: Int[Array, " L"]


@calculator(
    compiled=False,
    static=("demo_updates", "method"),
    integers=("shots", "support_dims"),
    stack=countable,
    shots=of_pool,
    scale=scalar,
)
def noise_spectrum(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "_N _n"],
    shots: Real[ArrayLike, ""],
    *,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    method: SpectrumMethod = "auto",
    W: Float[ArrayLike, "_L _n _n"] | None = None,
    support_dims: Int[ArrayLike, "_L"] | None = None,
) -> NoiseSpectrum:
    r"""Eigenvalues, trace, log pseudo-determinant and rank of :math:`C_t`, all layers.

    With the centred rows :math:`\tilde g_i = g_i - G_t / N`,

    .. math::
        C_t = \kappa N \sum_i \tilde g_i \tilde g_i^\top , \qquad
        \lambda_j(C_t) = \kappa N\, \sigma_j^2(\tilde g) , \qquad
        \operatorname{tr} C_t = \frac{\kappa}{N} \sum_i \|z_i - \bar z\|^2 .

    Args:
        demo_updates: As in :func:`~icltheory.trajectory.implicit_gd`.
        scale: Factor c on the attention sum over all N.
        method: ``"rows"`` takes the singular values of the rows, N x min(N, n)^2;
            ``"symmetric"`` of their n(n + 1)/2 coordinates, for N above that;
            ``"gram"`` the eigenvalues of the centred :math:`(V V^\top) \circ
            (C C^\top)`, without those below N times the precision of the largest.
            ``"auto"`` takes ``"gram"`` only where the rows are too large to hold.
        W: As in :func:`demonstration_gradients`.
        support_dims: The :func:`support_dims` of the weights, if they are known.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)[None]
        >>> spectrum = noise_spectrum(
        ...     LinearAttentionStack(I, I, I), jnp.array([[1.0], [2.0]]), 1)
        >>> spectrum.eigenvalues.round(3).tolist(), spectrum.rank.tolist()
        ([[9.0, 0.0]], [1])

    Source: Yao et al. (2024), section 3.3.
    """
    check_choice("method", method, ("auto", "rows", "symmetric", "gram"))
    options = {"demo_updates": demo_updates, "method": method}
    spectrum = _compiled(stack, H, shots, scale, W, support_dims, **options)
    if support_dims is None:
        return spectrum
    enough = reaches_ranks(spectrum)("support_dims", support_dims)
    return where_valid(spectrum, enough)


@functools.partial(jax.jit, static_argnames=("demo_updates", "method"))
def _compiled(stack, H, shots, scale, W, support_dims, *, demo_updates, method):
    learner, H = prepare(stack, H, demo_updates, scale)
    m = dims_of(stack, support_dims, H.shape[0])
    return spectrum_on_path(learner, H, shots, W, m, method)[0]


def reaches_ranks(spectrum: NoiseSpectrum) -> Check:
    """Returns the check that dimensions m_t are at least the rank of every C_t."""
    values = spectrum.eigenvalues.reshape(-1, *spectrum.eigenvalues.shape[-2:])
    # Far above the rounding of every route.
    floor = 1000 * values.shape[-1] * jnp.finfo(values.dtype).eps
    ranks = jnp.max(jnp.sum(values > floor * values[..., :1], axis=-1), axis=0)
    said = "" if is_tracer(ranks) else f", {ranks.tolist()}"
    expected = f"at least the rank of C_t in every layer{said}"
    return Check(lambda m: m >= ranks, expected)


def spectrum_on_path(learner: Learner, H, shots, W, m, method: SpectrumMethod = "auto"):
    """Returns the spectrum, and the gradients it was computed from."""
    N, n = H.shape
    if method == "symmetric" or (method == "auto" and n * (n + 1) // 2 < N):
        H_t, V, U, C, B = layer_parts(learner, H, W)
        A = learner.scale * learner.stack.W_V
        rows = jax.vmap(symmetric_rows)(A, B, H_t)
        gradients = TrajectoryFactors(V, U, C, num_heads(learner.stack))
        return _from_rows(rows, m, N, shots), gradients
    gradients = path_gradients(learner, H, W)
    return of_gradients(gradients, shots, m, method), gradients


def of_gradients(
    gradients: TrajectoryFactors, shots: Any, support_dim: Any, method: str = "auto"
) -> NoiseSpectrum:
    """Spectrum of gradients that are outer products, in a space of dimension m_t."""
    V, C = widened(gradients.left), widened(gradients.right_G)
    (_, rows, n), N, heads = V.shape, gradients.num_demos, gradients.num_heads
    too_large = rows * min(rows, n) ** 2 > _ROWS_LIMIT
    if method == "gram" or (method == "auto" and too_large):
        K = jax.vmap(functools.partial(centred_gram, heads=heads))(V, C)
        values = jnp.maximum(jnp.linalg.eigvalsh(K)[:, ::-1], 0)
        square = jnp.trace(K, axis1=1, axis2=2)
        floor = N * jnp.finfo(K.dtype).eps
        return _record(values, square, floor, support_dim, N, shots)
    rows = jax.vmap(functools.partial(compressed_rows, heads=heads))(V, C)
    return _from_rows(rows, support_dim, N, shots)


def _from_rows(rows, support_dim, N, shots):
    s = singular_values(rows)
    s = jnp.pad(s, ((0, 0), (0, max(0, N - s.shape[1]))))[:, :N]
    # The square of twice the usual bound on the backward error of singular values.
    floor = (2 * max(rows.shape[1:]) ** 0.5 * jnp.finfo(s.dtype).eps) ** 2
    return _record(s**2, jnp.sum(rows**2, axis=(1, 2)), floor, support_dim, N, shots)


def _record(values, square, floor, support_dim, N, shots):
    """Builds the record from the eigenvalues of sum_i g~_i g~_i^T and its trace."""
    dtype = values.dtype
    kappa = without_replacement_factor(N, shots).astype(dtype)
    eigenvalues = kappa * N * values
    support_dim = jnp.asarray(support_dim)
    possible = jnp.minimum(N - 1, support_dim)
    above = values > floor * values[:, :1]
    kept = above & (jnp.arange(N)[None] < possible[:, None]) & (kappa > 0)
    logs = jnp.log(jnp.where(kept, eigenvalues, 1))
    return NoiseSpectrum(
        eigenvalues=eigenvalues,
        trace=kappa * N * square,
        log_pdet=jnp.where(
            jnp.isnan(eigenvalues[:, 0]),
            jnp.nan,
            jnp.sum(jnp.where(kept, logs, 0), axis=1),
        ),
        rank=jnp.sum(kept, axis=1),
        support_dim=support_dim,
    )
