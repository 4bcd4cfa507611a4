"""Theorem 2 of Yao et al.: with an isotropic prior, other priors, and as printed."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import scipy.special
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import (
    check_choice,
    concrete,
    open_unit,
    positive,
    wrong,
)
from icltheory._core import calculator, where_valid
from icltheory._typing import Array
from icltheory.bounds._priors import fitted_terms, given_terms, held_out_terms
from icltheory.bounds.gaussian import check_held_out, isotropic_term
from icltheory.bounds.records import Assumption, Bound
from icltheory.bounds.steps import (
    Center,
    GaussianSteps,
    NoisySteps,
    centers,
    dense_steps,
)

_DENSE_WIDTH = 40  # of a basis of the support, n^2 x n (n + 1) / 2 by prompt and layer
_BIAS = "biased low: the logarithm of a mean"
_FITTED_BIAS = "biased low, with no limit: the prior is fitted to the prompts"


def _steps_of(kind, name, steps, given):
    if not isinstance(steps, kind):
        raise wrong(name, f"{kind.__name__}, as noisy_steps returns", steps)
    return True


def _narrow_steps(name, steps, given):
    """Checks steps that a prior with a covariance can be compared with."""
    _steps_of(NoisySteps, name, steps, given)
    if steps.width > _DENSE_WIDTH:
        expected = f"tokens of width n <= {_DENSE_WIDTH}"
        raise ValueError(f"{name}: expected {expected}, got n = {steps.width}")
    return True


def _seen_steps(name, steps, given):
    """Checks that a held-out prior sees more demonstrations than dimensions."""
    _narrow_steps(name, steps, given)
    M, m = given["held_out"], jnp.max(steps.dim)
    check_held_out(M, steps.H.shape[1])
    # The first M demonstrations represent any M only if none has a special position.
    check_choice("demo_updates", steps.demo_updates, ("shared", "frozen"))
    if concrete(m) is None:
        return m < M
    if m >= M:
        expected = f"more demonstrations than the dimension, {m}"
        raise ValueError(f"held_out: expected {expected}, got {M}")
    return True


_gaussian_steps = functools.partial(_steps_of, GaussianSteps)
_noisy_steps = functools.partial(_steps_of, NoisySteps)


@calculator(static=("confidence",), steps=_gaussian_steps, subgaussian_scale=positive)
def isotropic_bound(
    steps: GaussianSteps,
    subgaussian_scale: Real[ArrayLike, ""],
    *,
    confidence: float = 0.95,
) -> Bound:
    r"""The corrected Theorem 2, with the best isotropic prior.

    .. math::
        |\overline{error}| \le \sqrt{ \frac{R^2}{N} \sum_{t=1}^L T_t } , \qquad
        T_t = m_t \log \frac{E \left[ \|G_t - \tilde g_t\|_F^2 + \operatorname{tr} C_t
        \right]}{m_t} - E \log \operatorname{pdet} C_t ,

    for an R-sub-Gaussian loss. A term is infinite where N - 1 < m_t: the space itself
    tells of the demonstrations. :math:`\tilde g_t` is 0 unless the steps are
    :meth:`~NoisySteps.centred`; :meth:`~GaussianSteps.jittered` steps give the bound of
    another learner.

    Args:
        steps: Of :func:`noisy_steps`.
        subgaussian_scale: R, in units of the loss.
        confidence: Confidence level of ``upper``, in (0, 1); approximate, see
            :class:`Bound`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from icltheory.bounds import noisy_steps
        >>> from icltheory.constructions import gradient_descent
        >>> X = jax.random.normal(jax.random.key(0), (30, 40, 2))
        >>> H = jnp.concatenate([X, X[..., :1]], axis=-1)  # y = x_1
        >>> stack = gradient_descent(jnp.array([0.5]), d_in=2)
        >>> bound = isotropic_bound(noisy_steps(stack, H, 20, scale=1 / 40), 1.0)
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

    Source: Yao et al. (2024), Theorem 2 and Lemma 6, first line.
    """
    open_unit("confidence", confidence)
    D, log_det = steps.dim, steps.log_det
    A_1 = steps.squared_distance + steps.trace
    mean = jnp.mean(A_1, axis=0)
    relative = A_1 / jnp.where(mean > 0, mean, 1)[None]
    # There are two expectations in each layer.
    part = 1 - (1 - confidence) / (2 * len(D))
    above, below = _limit(A_1, part), -_limit(-log_det, part)
    return _bound(
        steps,
        subgaussian_scale,
        confidence,
        terms=isotropic_term(mean, 0.0, jnp.mean(log_det, axis=0), D),
        influence=jnp.sum(D[None] * relative - log_det, axis=1),
        upper=isotropic_term(above, 0.0, below, D),
        averaged=A_1,
        bias=_BIAS,
    )


@calculator(static=("confidence",), steps=_gaussian_steps, subgaussian_scale=positive)
def log_inside_bound(
    steps: GaussianSteps,
    subgaussian_scale: Real[ArrayLike, ""],
    *,
    confidence: float = 0.95,
) -> Bound:
    r"""Lemma 6's second line, with the logarithm inside the expectation; no bound.

    By Jensen's inequality it is smaller than :func:`isotropic_bound`, which is what was
    proved. It has no confidence limit. The arguments are the same.

    Example:
        >>> import jax
        >>> from icltheory.bounds import noisy_steps
        >>> from icltheory.constructions import gradient_descent
        >>> H = jax.random.normal(jax.random.key(0), (30, 40, 3))
        >>> steps = noisy_steps(gradient_descent([0.5], d_in=2), H, 20, scale=1 / 40)
        >>> bool(log_inside_bound(steps, 1.0).value < isotropic_bound(steps, 1.0).value)
        True

    Source: Yao et al. (2024), Lemma 6, second line.
    """
    A_1 = steps.squared_distance, steps.trace
    each = isotropic_term(*A_1, steps.log_det, steps.dim[None])
    options: Any = {"limited": False, "log_outside": False}
    return _mean_bound(steps, subgaussian_scale, confidence, each, **options)


@calculator(static=("confidence",), steps=_noisy_steps, subgaussian_scale=positive)
def printed_bound(
    steps: NoisySteps,
    subgaussian_scale: Real[ArrayLike, ""],
    *,
    confidence: float = 0.95,
) -> Bound:
    r"""Theorem 2 exactly as printed, which is infinite for every prompt with n >= 2.

    .. math::
        \sqrt{ \frac{R^2}{N} \sum_{t=1}^L E \Big[ d \log \frac{ \|\Delta W_t\|_F^2
        \|1 + W_{t-1}\|_F^2 + \operatorname{tr} C_t}{d} - \log\det C_t \Big] } ,
        \qquad d = n^2 .

    It assumes that :math:`C_t` is positive definite, which it never is. This is
    :func:`log_inside_bound` of ``steps.norm_product().ambient()``, which can be
    ``jittered``. The arguments are the same.

    Example:
        >>> import jax
        >>> from icltheory.bounds import noisy_steps
        >>> from icltheory.constructions import gradient_descent
        >>> H = jax.random.normal(jax.random.key(0), (30, 40, 3))
        >>> steps = noisy_steps(gradient_descent([0.5], d_in=2), H, 20, scale=1 / 40)
        >>> printed_bound(steps, 1.0).reason
        'layer 0: C_t is singular in the ambient space: rank 2 < d = 9'

    Source: Yao et al. (2024), Theorem 2.
    """
    printed = steps.norm_product("frobenius").ambient()
    return log_inside_bound(printed, subgaussian_scale, confidence=confidence)


@calculator(
    compiled=False,  # but for the fitted prior: a function is traced by the caller
    static=("center", "prior", "confidence"),
    steps=_narrow_steps,
    subgaussian_scale=positive,
)
def anisotropic_bound(
    steps: NoisySteps,
    subgaussian_scale: Real[ArrayLike, ""],
    *,
    center: Center = None,
    prior: Callable[[int, Any], Any] | None = None,
    confidence: float = 0.95,
) -> Bound:
    r"""The corrected Theorem 2, with a Gaussian prior that has a covariance.

    .. math::
        T_t = E \left[ \log\det\Sigma_t - \log\det C_t - m_t + \operatorname{tr}
        \Sigma_t^{-1} \big( C_t + \delta_t \delta_t^\top \big) \right] , \qquad
        \delta_t = G_t - \Pi_t \tilde g_t .

    The prior is :math:`N(\Pi_t \tilde g_t, \Pi_t \Sigma_t \Pi_t)`, where :math:`\Pi_t`
    projects on the support that :math:`W_{t-1}` determines: a prior that is wider has
    infinite divergence. A prior that is fitted to the prompts gives a value that is
    biased low, without a limit. ``center`` is :math:`\tilde g_t`, as in
    :meth:`NoisySteps.centred`, or 0; ``prior`` is a function ``(layer, W) -> (n * n,
    n * n)`` for :math:`\Sigma_t`, which without it is :math:`E [C_t + \delta_t
    \delta_t^\top]` over the prompts. Forms matrices of n^2 x n^2, for n <= 40.

    Example:
        >>> import jax
        >>> from icltheory.bounds import noisy_steps
        >>> from icltheory.constructions import gradient_descent
        >>> H = jax.random.normal(jax.random.key(0), (30, 40, 3))
        >>> steps = noisy_steps(gradient_descent([0.5], d_in=2), H, 20, scale=1 / 40)
        >>> fitted = anisotropic_bound(steps, 1.0, center="mean")
        >>> bool(fitted.value < isotropic_bound(steps, 1.0).value)
        True

    Source: Yao et al. (2024), Lemma 5, with the prior left free.
    """
    if prior is not None and not callable(prior):
        raise wrong("prior", "a function or None", prior)
    G, W, _ = dense_steps(steps)
    flat = (G - centers(center, G, W)).reshape(*G.shape[:2], -1)
    given = prior is not None
    each = given_terms(steps, flat, W, prior) if given else fitted_terms(steps, flat)
    fitted = not given or isinstance(center, str)
    options: Any = {"limited": not fitted, "fitted": fitted}
    options["bias"] = _FITTED_BIAS if fitted else ""
    return _mean_bound(steps, subgaussian_scale, confidence, each, **options)


@calculator(
    static=("held_out", "confidence"), steps=_seen_steps, subgaussian_scale=positive
)
def held_out_bound(
    steps: NoisySteps,
    subgaussian_scale: Real[ArrayLike, ""],
    held_out: int,
    *,
    confidence: float = 0.95,
) -> Bound:
    r"""The corrected Theorem 2, with a prior that has seen M of the demonstrations.

    .. math:: |\overline{error}| \le \sqrt{ \frac{R^2}{N - M} \sum_t E\, T_t } ,

    with the terms of :func:`held_out_term`: the prior has the moments of the first
    M = ``held_out`` demonstrations of each prompt, m_t < M < N. Infinite for
    M <= m_t + 2, where the terms have no mean; below about m_t + 30 a large term is too
    rare for few prompts, see :class:`Bound`. Not for ``demo_updates="causal"``, where
    the order of the demonstrations matters, nor for n > 40.

    Example:
        >>> import jax
        >>> from icltheory.bounds import noisy_steps
        >>> from icltheory.constructions import gradient_descent
        >>> H = jax.random.normal(jax.random.key(0), (30, 40, 3))
        >>> steps = noisy_steps(gradient_descent([0.5], d_in=2), H, 20, scale=1 / 40)
        >>> [bool(held_out_bound(steps, 1.0, M).vacuous) for M in (4, 20)]
        [True, False]

    Source: Yao et al. (2024), Theorem 2; Negrea et al. (2019) for the prior.
    """
    each = held_out_terms(steps, held_out)
    return _mean_bound(steps, subgaussian_scale, confidence, each, held_out=held_out)


def _limit(values, confidence):
    """One-sided confidence limit of means over prompts, by Student's quantile."""
    B = values.shape[0]
    if B == 1:
        return jnp.full(values.shape[1:], jnp.nan, values.dtype)
    quantile = scipy.special.stdtrit(B - 1, confidence) / B**0.5
    return jnp.mean(values, axis=0) + quantile * jnp.std(values, axis=0, ddof=1)


def _mean_bound(steps, R, confidence, each, *, limited=True, **options) -> Bound:
    """The bound whose terms are the means over the prompts of ``each``, (B, L)."""
    open_unit("confidence", confidence)
    terms, influence = jnp.mean(each, axis=0), jnp.sum(each, axis=1)
    upper = _limit(each, 1 - (1 - confidence) / len(terms))
    upper = upper if limited else jnp.full_like(upper, jnp.nan)
    return _bound(steps, R, confidence, terms, influence, upper, each, **options)


def _bound(
    steps: GaussianSteps,
    R: Any,
    confidence: float,
    terms: Array,
    influence: Array,
    upper: Array,
    averaged: Array,
    *,
    bias: str = "",
    log_outside: bool = True,
    fitted: bool = False,
    held_out: int | None = None,
) -> Bound:
    """Puts together terms and limits, (L,), and the influence of each prompt, (B,).

    ``averaged`` is what is averaged over the prompts, (B, L).
    """
    spectrum, B = steps.spectrum, len(averaged)
    N, m = spectrum.eigenvalues.shape[-1], spectrum.support_dim[0]
    used, rank = N - (held_out or 0), jnp.min(spectrum.rank, axis=0)
    finite = jnp.isfinite(steps.squared_distance + spectrum.trace)
    finite = jnp.all(finite, axis=0)
    terms = jnp.where(finite & ~jnp.isnan(terms), jnp.maximum(terms, 0), jnp.inf)
    upper = jnp.where(jnp.isfinite(terms), jnp.maximum(upper, 0), jnp.inf)
    reasons = {
        0: jnp.isfinite(terms),
        5: ~finite,
        3: jnp.broadcast_to(steps.noise_factor == 0, terms.shape),
        1: steps.dim > m,
        2: m > N - 1,
        4: rank < m,
        7: jnp.full(m.shape, False) if held_out is None else held_out <= m + 2,
    }
    codes = [jnp.full(terms.shape, code) for code in reasons]
    value = R * jnp.sqrt(jnp.sum(terms) / used)
    total = jnp.sum(averaged, axis=0)
    assumptions = {
        "the loss is sub-Gaussian with the given R": None,
        "the prompts are independent draws": None,
        "the weights follow the noisy path": steps.noisy_path,
        "the learner is that of equation (4), without jitter": not steps.jitter,
        "the logarithm stands outside the expectation": log_outside,
        "the prior is fixed before the prompts are drawn": not (fitted or steps.fitted),
    }
    result = Bound(
        value=value,
        terms=terms,
        support_dim=m,
        rank=rank,
        vacuous=value >= jnp.asarray(2 * R, value.dtype),
        standard_error=_standard_error(value, influence, R**2 / (2 * used)),
        reason_code=jnp.select(list(reasons.values()), codes, 6),
        dim=steps.dim,
        upper=jnp.asarray(R * jnp.sqrt(jnp.sum(upper) / used), value.dtype),
        largest_share=jnp.max(averaged, axis=0) / jnp.where(total > 0, total, 1),
        degenerate=jnp.sum(spectrum.rank < jnp.minimum(m, N - 1)[None], axis=0),
        confidence=confidence,
        bias=bias if B > 1 else "",
        assumptions=tuple(Assumption(*one) for one in assumptions.items()),
        num_prompts=B,
        held_out=held_out,
    )
    # Steps of a wrong argument are NaN, and so is their bound.
    return where_valid(result, ~jnp.isnan(steps.noise_factor))


def _standard_error(value, influence, slope):
    """Standard error of the value, from the influence of each prompt on its square."""
    B = influence.shape[0]
    if B == 1:
        return jnp.full_like(value, math.nan)
    spread = jnp.std(influence, ddof=1) / math.sqrt(B)
    usable = jnp.isfinite(value) & (value > 0)
    return jnp.where(usable, slope / jnp.where(usable, value, 1) * spread, math.nan)
