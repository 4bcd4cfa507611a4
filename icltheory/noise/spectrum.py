"""The spectrum of the noise covariance, computed without n^2 x n^2 matrices."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_choice, check_shape, check_values, concrete
from icltheory._names import DemoUpdates, SpectrumMethod
from icltheory._precision import widened
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, Int
from icltheory.attention import LinearAttentionStack
from icltheory.noise._routes import (
    centred_gram,
    compressed_rows,
    singular_values,
    symmetric_rows,
)
from icltheory.noise.covariance import without_replacement_factor
from icltheory.noise.gradients import layer_parts, path_gradients
from icltheory.noise.support import dims_of
from icltheory.trajectory import TrajectoryFactors
from icltheory.trajectory._recursion import Learner, prepare

__all__ = ["NoiseSpectrum", "noise_spectrum", "spectrum_of_gradients"]

# With more numbers per layer than this, the rows are too large to decompose.
_ROWS_LIMIT = 2**25


@pytree
class NoiseSpectrum:
    r"""Spectrum of :math:`C_t` and derived quantities; ``[t]`` is layer t + 1.

    ``rank`` counts the eigenvalues that stand above rounding, and never more than the
    N - 1 or m_t that exact arithmetic allows; where it is less than both, the
    demonstrations are degenerate or the working precision does not resolve them.

    Args:
        eigenvalues: The N largest eigenvalues of :math:`C_t`, descending, zeros where
            it has no more, ``(L, N)``.
        trace: :math:`\operatorname{tr} C_t`, ``(L,)``.
        log_pdet: Sum of the logarithms of the first ``rank`` eigenvalues, ``(L,)``; NaN
            where they are, as after an overflow.
        rank: Rank of :math:`C_t`, ``(L,)``.
        support_dim: Dimension m_t of the space that the weights allow, ``(L,)``; for
            n > 512 the smaller of m_t and N, unless it was given.
        deviations: :math:`\|z_i - \bar z\|^2` of each demonstration, ``(L, N)``.

    Source: Yao et al. (2024), section 3.3.
    """

    eigenvalues: Float[Array, "L N"]
    trace: Float[Array, " L"]
    log_pdet: Float[Array, " L"]
    rank: Int[Array, " L"]
    support_dim: Int[Array, " L"]
    deviations: Float[Array, "L N"]


@calculator
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

    Three routes give the same numbers.

    ``"rows"`` takes the singular values of the centred rows, written in the coordinates
    of thin QR factors, N x min(N, n)^2; no squaring, so float32 keeps small
    eigenvalues. ``"symmetric"`` writes the rows in the n(n + 1)/2 coordinates of
    symmetric matrices, for N above that. ``"gram"`` takes the eigenvalues of the
    centred N x N Gram matrix :math:`(V V^\top) \circ (C C^\top)`, O(N^2 n + N^3), whose
    floor is N times the working precision of the largest eigenvalue: in float32 with
    N = 40 an eigenvalue of 1.5e-6 of the largest, which the other routes keep, counts
    as zero, and ``rank`` and ``log_pdet`` leave it out. ``"auto"`` takes
    ``"symmetric"`` where N > n(n + 1)/2, ``"gram"`` where the rows would be too large
    to hold, and ``"rows"`` otherwise.

    Args:
        stack: The weights :math:`W_V, W_K, W_Q`, ``(L, n, n)`` each.
        H: The pool of N demonstrations, ``(N, n)``.
        shots: Number b of demonstrations in the prompt, from 1 to N.
        demo_updates: ``"shared"``, ``"causal"`` or ``"frozen"``.
        scale: Factor c on the attention sum over all N.
        method: ``"auto"``, ``"rows"``, ``"symmetric"`` or ``"gram"``.
        W: The weights :math:`W_0, \dots, W_{L-1}` at which the noise is taken;
            without them, those of Theorem 1.
        support_dims: :math:`m_1, \dots, m_L` as :func:`~icltheory.noise.support_dims`
            returns them, to be computed once for many calls with the same weights.
            Without them, those of weights with n > 512 are counted up to N only.

    Returns:
        The spectrum of every layer. Differentiable while the kept eigenvalues are not
        zero.

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
    learner, H = prepare(stack, H, demo_updates, scale)
    m = dims_of(stack, support_dims, H.shape[0])
    spectrum = spectrum_on_path(learner, H, shots, W, m, method)[0]
    check_given_dims(support_dims, spectrum)
    return spectrum


def check_given_dims(given: Any, spectrum: NoiseSpectrum) -> None:
    """Raises if given dimensions m_t are below the rank of some C_t."""
    if given is None:
        return
    values = spectrum.eigenvalues.reshape(-1, *spectrum.eigenvalues.shape[-2:])
    # Far above the rounding of every route.
    floor = 1000 * values.shape[-1] * jnp.finfo(values.dtype).eps
    ranks = jnp.max(jnp.sum(values > floor * values[..., :1], axis=-1), axis=0)
    known = concrete(ranks)
    said = "" if known is None else f", {known.tolist()}"
    expected = f"at least the rank of C_t in every layer{said}"
    check_values("support_dims", given, lambda m: m >= ranks, expected)


def spectrum_on_path(learner: Learner, H, shots, W, m, method: SpectrumMethod = "auto"):
    """Returns the spectrum, and the gradients it was computed from."""
    N, n = H.shape
    without_replacement_factor(N, shots)
    if method == "symmetric" or (method == "auto" and n * (n + 1) // 2 < N):
        H_t, V, U, C, B = layer_parts(learner, H, W)
        A = learner.scale * learner.stack.W_V
        rows = jax.vmap(symmetric_rows)(A, B, H_t)
        return _from_rows(rows, m, N, shots), TrajectoryFactors(V, U, C)
    gradients = path_gradients(learner, H, W)
    return spectrum_of_gradients(gradients, shots, m, method=method), gradients


@calculator
def spectrum_of_gradients(
    gradients: TrajectoryFactors,
    shots: Real[ArrayLike, ""],
    support_dim: Int[ArrayLike, "_L"],
    *,
    method: SpectrumMethod = "auto",
) -> NoiseSpectrum:
    r"""Computes the spectrum from any per-demonstration gradients.

    The formulas are those of :func:`~icltheory.noise.noise_spectrum`; the gradients
    may be those of another learner, as long as each is one outer product.

    Args:
        gradients: Factors of :math:`g_i^t`, ``(L, N, n)`` each.
        shots: Number b of demonstrations in the prompt, from 1 to N.
        support_dim: Dimension m_t of the space in which each layer's gradients lie.
        method: ``"auto"``, ``"rows"`` or ``"gram"``.

    Returns:
        The spectrum of every layer.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.trajectory import TrajectoryFactors
        >>> v, c = jnp.ones((1, 2, 1)), jnp.array([[[1.0], [4.0]]])
        >>> g = TrajectoryFactors(v, c, c)
        >>> spectrum_of_gradients(g, 1, jnp.array([1])).trace.tolist()
        [9.0]

    Source: Yao et al. (2024), section 3.3.
    """
    check_choice("method", method, ("auto", "rows", "gram"))
    V, C = widened(gradients.left), widened(gradients.right_G)
    check_shape("right_G", C, V.shape)
    L, N, n = V.shape
    check_shape("support_dim", support_dim, (L,))
    without_replacement_factor(N, shots)
    too_large = N * min(N, n) ** 2 > _ROWS_LIMIT
    if method == "gram" or (method == "auto" and too_large):
        K = jax.vmap(centred_gram)(V, C)
        values = jnp.maximum(jnp.linalg.eigvalsh(K)[:, ::-1], 0)
        deviations = jnp.diagonal(K, axis1=1, axis2=2)
        floor = N * jnp.finfo(K.dtype).eps
        return _record(values, deviations, floor, support_dim, N, shots)
    rows = jax.vmap(compressed_rows)(V, C)
    return _from_rows(rows, support_dim, N, shots)


def _from_rows(rows, support_dim, N, shots):
    s = singular_values(rows)
    s = jnp.pad(s, ((0, 0), (0, max(0, N - s.shape[1]))))[:, :N]
    # The square of twice the usual bound on the backward error of singular values.
    floor = (2 * max(rows.shape[1:]) ** 0.5 * jnp.finfo(s.dtype).eps) ** 2
    return _record(s**2, jnp.sum(rows**2, axis=2), floor, support_dim, N, shots)


def _record(values, deviations, floor, support_dim, N, shots):
    """Builds the record from eigenvalues of sum_i g~_i g~_i^T and their shares."""
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
        trace=kappa * N * jnp.sum(deviations, axis=1),
        log_pdet=jnp.where(
            jnp.isnan(values[:, 0]), jnp.nan, jnp.sum(jnp.where(kept, logs, 0), axis=1)
        ),
        rank=jnp.sum(kept, axis=1),
        support_dim=support_dim,
        deviations=N**2 * deviations,
    )
