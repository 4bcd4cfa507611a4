"""Theorem 2: the bound along the whole trajectory, as printed and as corrected."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._arguments import shown
from icltheory._calculators import calculator
from icltheory._checks import (
    check_choice,
    check_open_unit,
    check_positive_int,
    is_choice,
)
from icltheory._names import DemoUpdates, Dimension, Logarithm, Numerator
from icltheory._noted import check_finite, check_nonnegative, check_positive
from icltheory._typing import Array, Float, Int, PRNGKey
from icltheory.attention import LinearAttentionStack
from icltheory.bounds._prompt import Sample, noisy_paths, prompt_quantities
from icltheory.bounds._terms import (
    gaussian_terms,
    is_fitted,
    isotropic_terms,
    squared_distances,
)
from icltheory.bounds.gaussian import check_held_out
from icltheory.bounds.records import Assumption, Bound
from icltheory.noise import without_replacement_factor
from icltheory.noise.spectrum import check_given_dims
from icltheory.noise.support import dims_of
from icltheory.trajectory._recursion import prepare

__all__ = ["AS_PRINTED", "generalization_bound"]

# The formula exactly as printed in the paper, which is infinite for every n >= 2.
AS_PRINTED: dict[str, Any] = {
    "dim": "ambient",
    "numerator": "frobenius",
    "log": "inside",
}
NUMERATORS = ("exact", "spectral", "frobenius")
# Largest width for a dense support basis, n^2 x n (n + 1) / 2 for each prompt and
# layer.
_DENSE_WIDTH = 40
_BIAS = "biased low: the logarithm of a mean"
_FITTED_BIAS = "biased low, with no limit: the prior is fitted to the prompts"

Center = str | Float[ArrayLike, "_L _n _n"] | Callable[[int, Any], Any]
Prior = str | Callable[[int, Any], Any]


@calculator
def generalization_bound(
    stack: LinearAttentionStack,
    H: Float[ArrayLike, "..."],
    shots: Real[ArrayLike, ""],
    subgaussian_scale: Real[ArrayLike, ""],
    *,
    dim: Dimension = "support",
    jitter: Real[ArrayLike, ""] | str | None = None,
    numerator: Numerator = "exact",
    center: Center = "zero",
    prior: Prior = "isotropic",
    log: Logarithm = "outside",
    held_out: int | None = None,
    key: PRNGKey | None = None,
    trivial: Real[ArrayLike, ""] | None = None,
    confidence: float = 0.95,
    demo_updates: DemoUpdates = "shared",
    scale: Real[ArrayLike, ""] = 1.0,
    batch_size: int | None = None,
    support_dims: Int[ArrayLike, "_L"] | None = None,
) -> Bound:
    r"""Generalisation bound of implicit gradient descent (Yao et al., Theorem 2).

    .. math::
        |\overline{error}| \le \sqrt{ \frac{R^2}{N} \sum_{t=1}^L T_t } , \qquad
        T_t = m_t \log \frac{E \left[ \|G_t - \tilde g_t\|_F^2 + \operatorname{tr} C_t
        \right]}{m_t} - E \log \operatorname{pdet} C_t

    is the corrected theorem with an isotropic prior. Its learner takes the steps
    :math:`W_t = W_{t-1} + G_t + C_t^{1/2} N_t` of equation (4); the loss is
    R-sub-Gaussian; the range of :math:`C_t` is a space of dimension m_t that
    :math:`W_{t-1}` alone determines, which it is when N - 1 >= m_t. Otherwise the term
    is infinite: the space itself tells of the demonstrations.

    The printed theorem (``**AS_PRINTED``) has d = n^2 for m_t, under an assumption,
    :math:`C_t` positive definite, that no prompt meets; it puts the logarithm inside
    the expectation, which makes it smaller than what was proved; and it bounds
    :math:`\|G_t\|` by norms that lose a factor n in the first layer.

    Each choice has a name.

    * ``dim``: ``"support"`` (m_t) or ``"ambient"`` (d = n^2, where only a jitter makes
      the value finite).
    * ``jitter``: variance s^2 added to :math:`C_t`, or ``"ledoit_wolf"`` for
      :math:`(1 - \rho) C_t + \rho \mu 1`. Either is the bound of another learner, one
      with more noise, and diverges like (dim - rank) log(1/s^2).
    * ``numerator``: ``"exact"`` :math:`\|G_t\|_F^2`, ``"spectral"``
      :math:`\|\Delta W_t\|_F^2 \|1 + W_{t-1}\|_2^2` or ``"frobenius"``
      :math:`\|\Delta W_t\|_F^2 \|1 + W_{t-1}\|_F^2`, in growing order.
    * ``center``: :math:`\tilde g_t`, a function of :math:`W_{t-1}`: ``"zero"``,
      ``"mean"`` (of G_t over the prompts), an array ``(L, n, n)``, or a function
      ``(layer, W) -> (n, n)``.
    * ``prior``: ``"isotropic"``; ``"anisotropic"``, :math:`\Sigma_t = E [C_t +
      (G_t - \Pi_t \tilde g_t)(G_t - \Pi_t \tilde g_t)^\top]` over the prompts; a
      function ``(layer, W) -> (n * n, n * n)`` for :math:`\Sigma_t`; or
      ``"held_out"``, Gaussian with the moments of the first M = ``held_out``
      demonstrations of each prompt (not with ``"causal"``, where the order of the
      demonstrations matters, nor with a centre, which is one of these moments). Its
      terms have a mean for M > m_t + 2 alone, and too rarely a large one below about
      m_t + 30, see :class:`Bound`. With a covariance, the prior is :math:`N(\Pi_t
      \tilde g_t, \Pi_t \Sigma_t \Pi_t)`, where :math:`\Pi_t` projects on the support
      that :math:`W_{t-1}` determines: a prior that is wider has infinite divergence.
    * ``log``: ``"outside"`` the expectation, or ``"inside"``, which is no bound.

    Cost O(L (N^2 n + N^3)) a prompt, or that of
    :func:`~icltheory.noise.noise_spectrum`; the priors that are not isotropic and the
    centres form matrices of n^2 x n^2 and are meant for small n.

    Args:
        stack: The weights :math:`W_V, W_K, W_Q`, ``(L, n, n)`` each.
        H: A pool of N demonstrations, ``(N, n)``, or B of them, ``(B, N, n)``, over
            which the expectations are taken.
        shots: Number b of demonstrations in the prompt, from 1 to N.
        subgaussian_scale: R, in units of the loss.
        dim: See above.
        jitter: See above.
        numerator: See above.
        center: See above.
        prior: See above.
        log: See above.
        held_out: Number M of demonstrations that a held-out prior sees.
        key: Key of the noisy path, on which weights and demonstrations are drawn
            jointly, as the theorem asks. Without it, the path of Theorem 1, without
            noise, stands in for it beyond the first layer.
        trivial: What bounds the error anyway; 2 R if not given, as for a loss in
            [0, 2R].
        confidence: Confidence level of the upper limit, between 0 and 1; approximate,
            see :class:`Bound`.
        demo_updates: ``"shared"``, ``"frozen"`` or, without a key, ``"causal"``.
        scale: Factor c on the attention sum over all N, the papers' 1/N.
        batch_size: Prompts that are held at once; all of them if not given. The value
            does not depend on it, the memory does.
        support_dims: :math:`m_1, \dots, m_L` as :func:`~icltheory.noise.support_dims`
            returns them, to be computed once for many calls with the same weights.
            Without them, those of weights with n > 512 are counted up to N only: more
            than N - 1 make the bound infinite, unless there is jitter.

    Returns:
        The estimate with its standard error, a confidence limit, every term, ranks,
        whether it is vacuous, why it is infinite, and which assumptions hold.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from icltheory.constructions import gradient_descent
        >>> X = jax.random.normal(jax.random.key(0), (30, 40, 2))
        >>> H = jnp.concatenate([X, X[..., :1]], axis=-1)  # y = x_1
        >>> stack = gradient_descent(jnp.array([0.5]), d_in=2)
        >>> bound = generalization_bound(stack, H, 20, 1.0, scale=1 / 40)
        >>> print(bound.summary())
        bound 0.386
        estimated, standard error 0.003; biased low: the logarithm of a mean
        at most 0.4016 with confidence 95 %, approximately
        assumed: the loss is sub-Gaussian with the given R
        assumed: the prompts are independent draws
        holds: the weights follow the noisy path
        holds: the learner is that of equation (4), without jitter
        holds: the logarithm stands outside the expectation
        holds: the prior is fixed before the prompts are drawn
        >>> generalization_bound(stack, H, 20, 1.0, scale=1 / 40, **AS_PRINTED).reason
        'layer 0: C_t is singular in the ambient space: rank 2 < d = 9'

    Source: Yao et al. (2024), Theorem 2 and Lemma 6; Negrea et al. (2019) for the prior
    that holds out.
    """
    prompts = _as_prompts(H)
    _check_choices(dim, jitter, numerator, center, prior, log, held_out)
    check_positive("subgaussian_scale", subgaussian_scale)
    check_open_unit("confidence", confidence)
    if batch_size is not None:
        check_positive_int("batch_size", batch_size)
    # With jitter the exact dimension enters the term.
    enough = prompts.shape[1] if jitter is None else None
    m = dims_of(stack, support_dims, enough)
    learner, _ = prepare(stack, prompts[0], demo_updates, scale)
    prompts = prompts.astype(learner.scale.dtype)
    B, N, n = prompts.shape
    without_replacement_factor(N, shots)
    simple = is_choice(prior, "isotropic")
    if not simple and n > _DENSE_WIDTH:
        raise ValueError(
            f"prior: expected 'isotropic' for n > {_DENSE_WIDTH}, got n = {n}"
        )
    used = N
    if is_choice(prior, "held_out"):
        check_held_out(held_out, N, 0)
        # The first M demonstrations represent any M only if none has a special
        # position.
        check_choice(
            "demo_updates with prior 'held_out'", demo_updates, ("shared", "frozen")
        )
        used = N - int(held_out or 0)
    sample = Sample(learner, prompts, shots, None, batch_size)
    if key is not None:
        sample = sample._replace(W=noisy_paths(key, sample))

    dense = not (simple and numerator == "exact" and is_choice(center, "zero"))
    quantities = prompt_quantities(sample, m, dense)
    check_given_dims(support_dims, quantities.spectrum)
    if simple:
        squares = squared_distances(quantities, numerator, center)
        terms = isotropic_terms(
            quantities, squares, shots, dim, jitter, log, confidence
        )
    else:
        terms = gaussian_terms(quantities, sample, center, prior, held_out, confidence)
    value, error = _value(terms, subgaussian_scale, used)
    upper = subgaussian_scale * jnp.sqrt(jnp.sum(terms.upper) / used)
    limit = 2 * jnp.asarray(subgaussian_scale) if trivial is None else trivial
    check_positive("trivial", limit)
    return Bound(
        value=value,
        terms=terms.terms,
        support_dim=m,
        rank=jnp.min(quantities.spectrum.rank, axis=0),
        vacuous=value >= jnp.asarray(limit, value.dtype),
        standard_error=error,
        reason_code=terms.reason_code,
        dim=terms.dim,
        upper=jnp.asarray(upper, value.dtype),
        largest_share=terms.largest_share,
        degenerate=terms.degenerate,
        confidence=confidence,
        bias=_bias(simple, center, prior, log) if B > 1 else "",
        assumptions=_assumptions(stack.num_layers, key, jitter, center, prior, log),
        num_prompts=B,
        held_out=None if held_out is None else int(held_out),
    )


def _as_prompts(H) -> Array:
    prompts = jnp.asarray(H)
    if prompts.ndim not in (2, 3) or not len(prompts):
        raise ValueError(
            f"H: expected shape (N, n) or (B, N, n), B > 0, got {prompts.shape}"
        )
    check_finite("H", prompts)
    return prompts[None] if prompts.ndim == 2 else prompts


def _check_choices(dim, jitter, numerator, center, prior, log, held_out):
    check_choice("dim", dim, ("support", "ambient"))
    check_choice("numerator", numerator, NUMERATORS)
    check_choice("log", log, ("outside", "inside"))
    if isinstance(center, str):
        check_choice("center", center, ("zero", "mean"))
    if isinstance(prior, str):
        check_choice("prior", prior, ("isotropic", "anisotropic", "held_out"))
    if isinstance(jitter, str):
        check_choice("jitter", jitter, ("ledoit_wolf",))
    elif jitter is not None:
        check_nonnegative("jitter", jitter)
    holds_out = is_choice(prior, "held_out")
    if holds_out and not is_choice(center, "zero"):
        raise ValueError(
            "center: expected 'zero' with prior 'held_out', which sets its own center, "
            f"got {shown(center)}"
        )
    if not holds_out and held_out is not None:
        raise ValueError(
            f"held_out: expected None without prior 'held_out', got {held_out}"
        )
    if not is_choice(center, "zero") and numerator != "exact":
        raise ValueError(f"numerator: expected 'exact' with a centre, got {numerator}")
    if not is_choice(prior, "isotropic") and (dim, jitter, numerator, log) != (
        "support",
        None,
        "exact",
        "outside",
    ):
        raise ValueError(
            "prior: expected 'isotropic' with a jitter, dim='ambient', a numerator "
            f"other than 'exact' or log='inside', got {shown(prior)}"
        )


def _value(terms, subgaussian_scale, samples):
    """Value of the bound, and its standard error from the influence of each prompt."""
    total = jnp.sum(terms.terms)
    value = subgaussian_scale * jnp.sqrt(total / samples)
    B = terms.influence.shape[0]
    if B == 1:
        return value, jnp.full_like(value, math.nan)
    spread = jnp.std(terms.influence, ddof=1) / math.sqrt(B)
    usable = jnp.isfinite(value) & (value > 0)
    slope = subgaussian_scale**2 / (2 * samples * jnp.where(usable, value, 1))
    return value, jnp.where(usable, slope * spread, math.nan)


def _bias(simple, center, prior, log):
    if simple:
        return _BIAS if log == "outside" else ""
    return _FITTED_BIAS if is_fitted(center, prior) else ""


def _assumptions(layers, key, jitter, center, prior, log):
    fitted = is_fitted(center, prior)
    return (
        Assumption("the loss is sub-Gaussian with the given R", None),
        Assumption("the prompts are independent draws", None),
        Assumption("the weights follow the noisy path", key is not None or layers == 1),
        Assumption(
            "the learner is that of equation (4), without jitter", jitter is None
        ),
        Assumption("the logarithm stands outside the expectation", log == "outside"),
        Assumption("the prior is fixed before the prompts are drawn", not fitted),
    )
