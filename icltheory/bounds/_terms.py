"""Computes the layer terms of Theorem 2 from the quantities of the prompts."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import scipy.special

from icltheory._checks import check_shape, is_choice
from icltheory._typing import Array
from icltheory.batching import batches_of, in_batches
from icltheory.bounds._prompt import PromptQuantities, Sample, in_support
from icltheory.bounds.gaussian import (
    centred_rows,
    check_held_out,
    factored_term,
    held_out_divergence,
    isotropic_term,
)
from icltheory.bounds.shrinkage import ledoit_wolf_intensity
from icltheory.noise import without_replacement_factor
from icltheory.noise._routes import compressed


def is_fitted(center, prior) -> bool:
    """Whether the prior is fitted to the prompts on which it is evaluated."""
    return is_choice(center, "mean") or is_choice(prior, "anisotropic")


class Terms(NamedTuple):
    """The layer terms of a bound.

    Attributes:
        terms: T_t, ``(L,)``.
        influence: Influence of each prompt on their sum, ``(B,)``.
        upper: One-sided confidence limits of all terms together, ``(L,)``.
        reason_code: Why a term is infinite, ``(L,)``.
        dim: Dimension of each term, ``(L,)``.
        largest_share: Largest share of one prompt in the mean of each layer, ``(L,)``.
        degenerate: Prompts with a lower rank than weights and N allow, ``(L,)``.
    """

    terms: Array
    influence: Array
    upper: Array
    reason_code: Array
    dim: Array
    largest_share: Array
    degenerate: Array


def squared_distances(q: PromptQuantities, numerator, center):
    """||G_t - g_t||^2 or the chosen upper bound on it, (B, L)."""
    if numerator == "exact":
        if is_choice(center, "zero"):
            return q.squared_G
        return jnp.sum((q.G - centers(q, center)) ** 2, axis=(2, 3))
    P = jnp.eye(q.width, dtype=q.W.dtype)[None, None] + q.W
    order = 2 if numerator == "spectral" else "fro"
    return q.squared_delta_W * jnp.linalg.norm(P, ord=order, axis=(2, 3)) ** 2


def centers(q: PromptQuantities, center):
    """The prior means g_t, broadcastable to (B, L, n, n)."""
    if isinstance(center, str):
        mean = jnp.mean(q.G, axis=0, keepdims=True)
        return jnp.zeros_like(mean) if center == "zero" else mean
    if callable(center):
        return _each_layer(center, q.W)
    check_shape("center", center, q.G.shape[1:])
    return jnp.asarray(center, q.G.dtype)[None]


def _each_layer(function, W):
    """Applies ``function(layer, W)`` to all prompts, layer by layer: (B, L, ...)."""
    per_layer = [
        jax.vmap(lambda w, t=t: jnp.asarray(function(t, w)))(W[:, t])
        for t in range(W.shape[1])
    ]
    return jnp.stack(per_layer, axis=1)


def isotropic_terms(
    q: PromptQuantities, squares, shots, dim, jitter, log, confidence
) -> Terms:
    """Computes the terms m log(A_1 / m) - A_2 with the selected options."""
    m = q.spectrum.support_dim[0]
    D = m if dim == "support" else jnp.full_like(m, q.width**2)
    trace, log_det = _noise_terms(q.spectrum, shots, D, jitter)
    if log == "inside":
        each = isotropic_term(squares, trace, log_det, D[None])
        terms, influence = jnp.mean(each, axis=0), jnp.sum(each, axis=1)
        upper, averaged = jnp.full_like(terms, jnp.nan), each
    else:
        A_1 = averaged = squares + trace
        mean = jnp.mean(A_1, axis=0)
        terms = isotropic_term(mean, 0.0, jnp.mean(log_det, axis=0), D)
        relative = A_1 / jnp.where(mean > 0, mean, 1)[None]
        influence = jnp.sum(D[None] * relative - log_det, axis=1)
        # There are two expectations in each layer.
        part = 1 - (1 - confidence) / (2 * terms.shape[0])
        above, below = _limit(A_1, part), -_limit(-log_det, part)
        upper = isotropic_term(above, 0.0, below, D)
    finite = jnp.all(jnp.isfinite(squares + q.spectrum.trace), axis=0)
    code = 1 if dim == "ambient" else 6
    return _finish(q, terms, influence, upper, shots, D, finite, code, averaged)


def _limit(values, confidence):
    """One-sided confidence limit of means over prompts, by Student's quantile."""
    B = values.shape[0]
    if B == 1:
        return jnp.full(values.shape[1:], jnp.nan, values.dtype)
    quantile = scipy.special.stdtrit(B - 1, confidence) / B**0.5
    return jnp.mean(values, axis=0) + quantile * jnp.std(values, axis=0, ddof=1)


def _noise_terms(spectrum, shots, D, jitter):
    """Trace and log-determinant of C_t, of C_t + s^2, or of the shrunken C_t."""
    whole = spectrum.rank == D[None]
    log_pdet = jnp.where(whole, spectrum.log_pdet, -jnp.inf)
    if jitter is None:
        return spectrum.trace, log_pdet
    values = spectrum.eigenvalues
    counted = jnp.arange(values.shape[-1])[None] < D[:, None]
    values = jnp.where(counted[None], values, 0)
    if isinstance(jitter, str):
        kappa = without_replacement_factor(values.shape[-1], shots)
        sample = values / jnp.where(kappa > 0, kappa, 1).astype(values.dtype)
        rho = ledoit_wolf_intensity(sample, spectrum.deviations, D[None])
        kept, s2 = (1 - rho)[..., None], rho * jnp.sum(values, axis=-1) / D[None]
    else:
        kept = jnp.ones((1, 1, 1), values.dtype)
        s2 = jnp.full(spectrum.trace.shape, jitter, values.dtype)
    added = kept * values + s2[..., None]
    usable = s2 > 0
    logs = jnp.where(counted[None] & usable[..., None], added, 1)
    missing = jnp.maximum(D - values.shape[-1], 0)[None]
    log_s2 = jnp.log(jnp.where(usable, s2, 1))
    log_det = jnp.sum(jnp.log(logs), axis=-1) + missing * log_s2
    trace = jnp.sum(kept * values, axis=-1) + D[None] * s2
    return trace, jnp.where(usable, log_det, log_pdet)


def gaussian_terms(
    q: PromptQuantities, sample: Sample, center, prior, held_out, confidence
) -> Terms:
    """Computes terms of priors that are not isotropic, in support coordinates."""
    learner, H, shots, W, batch_size = sample
    m, columns = q.spectrum.support_dim[0], q.width * (q.width + 1) // 2
    mask = (jnp.arange(columns)[None] < m[:, None]).astype(H.dtype)

    def coordinates(H, W):
        z, basis = in_support(learner, H, W)
        return z * mask[None, :, None, :], basis * mask[None, :, None, :]

    if is_choice(prior, "held_out"):
        check_held_out(held_out, H.shape[1], jnp.max(m))
        divergence = jax.vmap(lambda z, p: held_out_divergence(z, shots, held_out, p))

        def held(H, W):
            z, _ = coordinates(H, W)
            return jax.vmap(divergence, (0, None))(z, 1 - mask)

        each = in_batches(held, batch_size, H, W)
    else:
        each = _anisotropic(q, sample, coordinates, mask, center, prior)
    # The inverse Wishart matrix of M demonstrations has a mean for M > m + 2 alone.
    known = jnp.full(m.shape, True) if held_out is None else held_out > m + 2
    each = jnp.where((q.spectrum.rank == m[None]) & known[None], each, jnp.inf)
    terms, influence = jnp.mean(each, axis=0), jnp.sum(each, axis=1)
    finite = jnp.all(jnp.isfinite(q.squared_G + q.spectrum.trace), axis=0)
    upper = _limit(each, 1 - (1 - confidence) / terms.shape[0])
    if is_fitted(center, prior):  # no term knows of the fit
        upper = jnp.full_like(upper, jnp.nan)
    code = jnp.where(known, 6, 7)
    return _finish(q, terms, influence, upper, shots, m, finite, code, each)


def _anisotropic(q, sample: Sample, coordinates, mask, center, prior):
    """Computes the terms of every prompt; the fitted prior needs its own pass.

    Covariances are kept as rows whose Gram matrix they are, see ``factored_term``.
    """
    N, paths = sample.H.shape[-2], (sample.H, sample.W)
    kappa = without_replacement_factor(N, sample.shots).astype(mask.dtype)
    flat = (q.G - centers(q, center)).reshape(*q.G.shape[:2], -1)
    pad = (1 - mask)[:, :, None] * jnp.eye(mask.shape[1], dtype=mask.dtype)[None]
    term = jax.vmap(jax.vmap(factored_term))

    def factors(H, W, flat):
        z, U = coordinates(H, W)
        delta = jnp.einsum("bld,bldm->blm", flat, U)
        return centred_rows(z, kappa / N), delta, U

    def fitted(*part):
        rows, delta, U = factors(*part)
        moment = compressed(jnp.concatenate([rows, delta[:, :, None]], axis=2))
        spread = jnp.moveaxis(moment @ jnp.swapaxes(U, -1, -2), 0, 1)
        return compressed(spread.reshape(spread.shape[0], -1, spread.shape[-1]))

    def root(path, U):
        """Returns R with R' R the prior in the coordinates of each prompt."""
        if callable(prior):
            Sigma = jnp.swapaxes(U, -1, -2) @ _each_layer(prior, path) @ U
            lower = jnp.linalg.cholesky(Sigma + pad[None])
            return jnp.swapaxes(lower, -1, -2)
        return jnp.linalg.qr(_over(common[None] @ U, pad), mode="r")

    def divergence(path, *part):
        rows, delta, U = factors(*part)
        return term(delta, _over(rows, pad), root(path, U))

    common = jnp.zeros(())
    if not callable(prior):
        parts = [fitted(*part) for part in batches_of(sample.batch_size, *paths, flat)]
        both = functools.reduce(
            lambda a, b: compressed(jnp.concatenate([a, b], axis=1)), parts
        )
        common = both / flat.shape[0] ** 0.5
    return in_batches(divergence, sample.batch_size, q.W, *paths, flat)


def _over(rows, pad):
    """Stacks the rows of each prompt and layer above those of unused coordinates."""
    below = jnp.broadcast_to(pad[None], (rows.shape[0], *pad.shape))
    return jnp.concatenate([rows, below], axis=2)


def _finish(q, terms, influence, upper, shots, D, finite, otherwise, averaged) -> Terms:
    """Clips terms at zero, and makes vacuous ones infinite with a reason."""
    spectrum, N = q.spectrum, q.spectrum.eigenvalues.shape[-1]
    m, rank = spectrum.support_dim[0], jnp.min(spectrum.rank, axis=0)
    terms = jnp.where(finite & ~jnp.isnan(terms), jnp.maximum(terms, 0), jnp.inf)
    upper = jnp.where(jnp.isfinite(terms), jnp.maximum(upper, 0), jnp.inf)
    conditions = [
        jnp.isfinite(terms),
        ~finite,
        jnp.broadcast_to(without_replacement_factor(N, shots) == 0, terms.shape),
        jnp.full(terms.shape, otherwise == 1),
        m > N - 1,
        rank < m,
    ]
    codes = [jnp.full(terms.shape, code) for code in (0, 5, 3, 1, 2, 4)]
    code = jnp.select(conditions, codes, otherwise)
    total = jnp.sum(averaged, axis=0)
    share = jnp.max(averaged, axis=0) / jnp.where(total > 0, total, 1)
    degenerate = jnp.sum(spectrum.rank < jnp.minimum(m, N - 1)[None], axis=0)
    return Terms(terms, influence, upper, code, D, share, degenerate)
