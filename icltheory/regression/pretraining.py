r"""Pretraining on finitely many prompts: what it costs, and how many it takes.

At a fixed dimension the risk after T prompts is that of the best learner plus
``leading_excess(...).constant`` / T. In high dimension, with T of the order of d^2,
``high_dimensional_limit`` has the whole curve, with its peak where T = d^2.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    Check,
    check_positive_int,
    check_shape,
    count,
    covariance,
    nonnegative,
    positive,
    scalar,
)
from icltheory._core import Record, calculator, exact_products, where_valid
from icltheory._typing import Array, PRNGKey, Scalar
from icltheory.regression._block_moments import OF_POPULATION, Whitened, best_step
from icltheory.regression._leading_terms import start_constant, step_constant
from icltheory.regression._linalg import (
    as_floats,
    quotient,
    seen_eigenvalues,
    seen_inverse,
)
from icltheory.regression.blocks import LSA, LTB
from icltheory.regression.depth import best_matrix
from icltheory.regression.gradient_blocks import GDBeta
from icltheory.regression.one_layer import OneLayer, drawn_features, length_of
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep
from icltheory.statistics import Estimate

__all__ = [
    "HighDimensionalLimit",
    "LeadingExcess",
    "PretrainingPlan",
    "high_dimensional_limit",
    "leading_excess",
    "prompts_needed",
    "shifted_tasks_limit",
]


class LeadingExcess(Record):
    """The risk after T prompts to first order, with the constant's standard error."""

    optimum_risk: Any
    constant: Any
    standard_error: Any = 0.0

    def risk(self, num_prompts: Any) -> Array:
        """optimum_risk + constant / T."""
        return self.optimum_risk + self.constant / jnp.asarray(num_prompts)

    def prompts_needed(self, risk: Any) -> Array:
        """T at which the risk is reached; infinite below that of the optimum."""
        excess = jnp.asarray(risk, jnp.result_type(float)) - self.optimum_risk
        return quotient(self.constant, excess, jnp.inf)


@exact_products
def leading_excess(
    family: Any,
    population: LinearPopulation,
    num_examples: Any,
    *,
    key: PRNGKey | None = None,
    num_prompts: int = 65536,
) -> LeadingExcess:
    r"""What fitting a layer to T prompts costs: C in :math:`R_T = R^* + C / T`.

    .. math:: C = \mathrm{tr}(A^{-1} B), \qquad
        A = \tfrac12 \nabla^2 R = E\, \nabla f \nabla f^\top, \qquad
        B = E\, e^2\, \nabla f \nabla f^\top, \qquad e = y - f,

    at the optimum, for the least squares fit of all weights to T prompts with one query
    each. C is exact for x, w and noise that are Gaussian. For one linear step

    .. math:: C = r^2 \sigma^2 + (r + 2)\, E \bigl[ (w - \Gamma^* h)^\top H
        (w - \Gamma^* h)\; h^\top S^{-1} h \bigr], \qquad h = X^\top y / N, \quad
        S = E\, h h^\top,

    with r = rank(H). GD-beta adds the cost of its start, LTB those of its start, values
    and labels: their Hessian at the optimum has blocks, as the terms e grad^2 f
    average to 0. An LSA is one linear step with values and labels that are learned.

    Args:
        family: ``LinearStep``, ``GDBeta``, ``LTB``, ``LSA`` (for tasks of mean 0, where
            one gradient step is best), or ``OneLayer(phi, degree=...)``.
        population: For LTB and LSA H Psi is not 0.
        key: For ``OneLayer``, whose C is a mean over ``num_prompts`` sampled prompts.

    Example:
        >>> H = jnp.diag(jnp.array([1.0, 0.7, 0.5, 0.3, 0.2]))
        >>> population = LinearPopulation(H, noise_var=0.25)
        >>> cost = leading_excess(LinearStep, population, 20)
        >>> print(f"{cost.optimum_risk:.6f} {cost.constant:.3f}")
        0.881456 36.842
        >>> print(f"{leading_excess(LTB, population, 20).risk(600):.4f}")
        0.9810

    Source: White (1982) for C; Wu et al. (2024) for the order d^2 / T; Zhang, Wu and
    Bartlett (2024), Section 7, leave that of LTB open.
    """
    if isinstance(family, OneLayer):
        if key is None:
            raise ValueError("key: expected one to sample prompts, got None")
        moments = family.moments(population, num_examples)
        best = moments.optimum()
        length = length_of(population, num_examples, family.weights)
        flat, y, _ = drawn_features(family, population, key, length, num_prompts)
        missed = y - flat @ jnp.ravel(best)
        weight = jnp.sum(flat @ seen_inverse(moments.A) * flat, axis=1)
        cost = Estimate.of(missed**2 * weight)
        return LeadingExcess(moments.risk(best), cost.mean, cost.standard_error)
    name = getattr(family, "__name__", repr(family))
    if not any(family is known for known in (LinearStep, GDBeta, LTB, LSA)):
        expected = "LinearStep, GDBeta, LTB, LSA or OneLayer(phi)"
        raise ValueError(f"family: expected {expected}, got {name}")
    found = _exact_excess(population, num_examples, name)
    if family is not LSA:
        return found
    centred = Check(lambda mean: mean == 0, "task_mean = 0 for an LSA")
    return where_valid(found, centred("population", population.task_mean))


@calculator(static=("family",), **OF_POPULATION)
def _exact_excess(population, num_examples, family):
    N = jnp.asarray(num_examples, population.dtype)
    if family == "LinearStep":
        _, least = best_matrix(population, num_examples)
        second = population.with_(task_cov=population.second_moment)
        return LeadingExcess(least, step_constant(Whitened.of(second), N))
    H, Psi, noise_var = population.input_cov, population.task_cov, population.noise_var
    _, gain = best_step(H, Psi, noise_var, N)
    white = Whitened.of(population.with_(task_mean=0 * population.task_mean))
    constant = step_constant(white, N) + start_constant(white, N, family)
    return LeadingExcess(noise_var + gain, constant)


class HighDimensionalLimit(Record):
    """Errors on new tasks (``icl``) and on the tasks of pretraining, noise included."""

    icl: Scalar
    in_distribution: Scalar


_RATIO = scalar & Check(lambda x: x > 0, "a number > 0, or infinity")
_RATIOS: dict[str, Any] = {
    **dict.fromkeys(("context_ratio", "task_ratio", "prompt_ratio"), _RATIO),
    **dict.fromkeys(("noise_var", "ridge"), scalar & nonnegative),
}


@calculator(**_RATIOS)
def high_dimensional_limit(
    context_ratio: Any,
    task_ratio: Any,
    prompt_ratio: Any,
    noise_var: Any,
    *,
    ridge: Any = 0.0,
) -> HighDimensionalLimit:
    r"""Errors of a linear step that is fitted to n prompts, as d grows.

    N = alpha d examples, k = kappa d tasks w ~ N(0, I), n = tau d^2 prompts, x ~ N(0, I
    / d) and noise rho, so that a label has variance 1 + rho (for x ~ N(0, I) divide the
    risk and the noise by d). Gamma, of the answer d x'Gamma X'y / N, minimises the sum
    of squares over the prompts + lambda (n / d) |Gamma|^2. With sigma = (1 + rho) /
    alpha, z = sigma + xi and G the resolvent of the tasks at -z,

    .. math:: 1 - \frac{\lambda}{\xi} = \frac{1 - \xi\, m}{\tau}, \qquad
        m = \tfrac1d \mathrm{tr}\, G(z) = \frac{2}{z + 1 - 1/\kappa
        + \sqrt{(z + 1 - 1/\kappa)^2 + 4 z / \kappa}}, \\
        \mathrm{IDG} = \frac{\rho + z - z^2 m - \xi (1 - 2 z m - z^2 m')}
        {1 - (1 - 2 \xi m - \xi^2 m') / \tau}, \\
        \mathrm{ICL} = \rho + 1 - 2 (1 - z m) + (1 + \sigma)
        \bigl[1 - 2 z m - z^2 m' + \tfrac1\tau (m + \xi m')\, \mathrm{IDG}\bigr] ,

    where xi = 0 without ridge for tau > 1. Both are infinite without ridge at tau = 1.

    The ratios are alpha, kappa and tau, of which the last two may be infinite, and the
    ridge is lambda, for 0 the fit of least norm.

    Example:
        >>> found = high_dimensional_limit(2.0, 2.0, 4.0, 0.25)
        >>> print(f"{found.icl:.5f} {found.in_distribution:.5f}")
        0.93730 0.78244

    Source: Lu, Letey, Zavatone-Veth, Maiti and Pehlevan (2025).
    """
    given = as_floats(context_ratio, task_ratio, prompt_ratio, noise_var, ridge)
    one = jnp.ones(1, given[0].dtype)
    return _limit(one, one, *given)


@calculator(**_RATIOS, train_cov=covariance, test_cov=covariance)
def shifted_tasks_limit(
    context_ratio: Any,
    task_ratio: Any,
    prompt_ratio: Any,
    noise_var: Any,
    train_cov: Any,
    test_cov: Any,
    *,
    ridge: Any = 0.0,
) -> HighDimensionalLimit:
    r"""The limit for tasks w ~ N(0, R), tested on tasks w ~ N(0, R').

    As :func:`high_dimensional_limit`, where R = R' = I. With c = tr(R) / d, sigma =
    (c + rho) / alpha, S' = R' + (tr(R') / d + rho) / alpha and z = sigma + xi,

    .. math:: G = \frac{k}{z} (R + k)^{-1}, \qquad
        z = k - \frac{k}{\kappa d} \mathrm{tr}\, R (R + k)^{-1}, \qquad
        \mathrm{ICL} = \rho + \tfrac1d \mathrm{tr} \bigl[ R' - 2 R' (1 - z G)
        + S' (1 - 2 z G - z^2 G') + \tfrac1\tau S' (G + \xi G')\, \mathrm{IDG}
        \bigr]

    for the G that stands for the resolvent of k sampled tasks, and G' its derivative in
    z. ``in_distribution`` is the error on the tasks of pretraining.

    R and R' are ``(d, d)``; a small matrix stands for one of equal such blocks.

    Example:
        >>> R, other = jnp.diag(jnp.array([1.5, 0.5])), jnp.diag(jnp.array([0.5, 1.5]))
        >>> for S in (R, other):
        ...     print(f"{shifted_tasks_limit(2.0, 2.0, 4.0, 0.25, R, S).icl:.4f}")
        0.8890
        1.0617

    Source: derived here; Letey, Zavatone-Veth, Lu and Pehlevan (2025) have this limit.
    """
    check_shape("test_cov", test_cov, np.shape(train_cov))
    *given, R, other = as_floats(
        context_ratio, task_ratio, prompt_ratio, noise_var, ridge, train_cov, test_cov
    )
    values, V = seen_eigenvalues(R)
    return _limit(values, jnp.sum(V * (other @ V), axis=0), *given)


class _Resolvent:
    """The resolvent G at -z of tasks of covariance r, by the k with z = z(k)."""

    def __init__(self, r, task_ratio, k):
        self.r, self.k = r, k
        self.z = k * (1 - jnp.mean(r / (r + k)) / task_ratio)
        slope = 1 - jnp.mean((r / (r + k)) ** 2) / task_ratio  # of z in k
        self.values = k / (self.z * (r + k))
        self.slopes = r / (self.z * (r + k) ** 2 * slope) - self.values / self.z
        self.mean, self.mean_slope = jnp.mean(self.values), jnp.mean(self.slopes)


def _limit(r, test, alpha, kappa, tau, rho, ridge):
    """ICL and IDG; ``test`` is the diagonal of R' in the eigenbasis of R."""
    scale = jnp.mean(r)
    spread, of_test = (scale + rho) / alpha, test + (jnp.mean(test) + rho) / alpha

    def missing(k):
        """The ridge xi of k, and xi - lambda - (xi / tau) (1 - xi m), to be 0."""
        G = _Resolvent(r, kappa, k)
        xi = G.z - spread
        return xi, xi - ridge - xi / tau * (1 - xi * G.mean)

    def below(k):
        xi, found = missing(k)
        return (xi <= ridge) | (found < 0)

    top = spread + ridge + (scale + spread) / tau + scale / kappa
    k = _bisect(below, 2 * top)
    slope = jax.grad(lambda k: missing(k)[1])(k)
    # One step of Newton polishes the root, and gives it derivatives.
    k = k - quotient(missing(k)[1], jax.lax.stop_gradient(slope), 0)
    G = _Resolvent(r, kappa, k)
    z, m, dm = G.z, G.mean, G.mean_slope
    small = ridge * quotient(1, 1 - 1 / tau, 1)  # to first order, exact at 0
    xi = jnp.where((ridge == 0) & (tau >= 1), small, z - spread)
    noise = rho + z - z**2 * m - xi * (1 - 2 * z * m - z**2 * dm)
    spent = (1 - 2 * xi * m - xi**2 * dm) / tau
    own = noise / (1 - spent)
    square = 1 - 2 * z * G.values - z**2 * G.slopes
    variance = own / tau * (G.values + xi * G.slopes)
    new = jnp.mean(test * (2 * z * G.values - 1) + of_test * (square + variance))
    return HighDimensionalLimit(rho + new, own)


def _bisect(below, high):
    """The largest number in [0, high] for which ``below`` holds."""

    def halve(_, ends):
        middle = (ends[0] + ends[1]) / 2
        low = below(middle)
        return jnp.where(low, middle, ends[0]), jnp.where(low, ends[1], middle)

    ends = jnp.zeros_like(high), jax.lax.stop_gradient(high)
    return jax.lax.stop_gradient(jax.lax.fori_loop(0, 100, halve, ends)[0])


class PretrainingPlan(Record):
    """Prompts with the given tasks, and tasks with any prompts; may be infinite."""

    num_prompts: Scalar
    num_tasks: Scalar


@calculator(
    static=("dim",),
    risk=scalar & positive,
    num_examples=count(1),
    noise_var=scalar & nonnegative,
    num_tasks=_RATIO,
)
def prompts_needed(
    risk: Any, dim: int, num_examples: Any, noise_var: Any, *, num_tasks: Any = math.inf
) -> PretrainingPlan:
    r"""Prompts and tasks that a linear step needs for a risk on new tasks.

    In :func:`high_dimensional_limit` without ridge, for n > d^2 prompts of k tasks,

    .. math:: \mathrm{ICL} = a(k) + \frac{b(k)}{n / d^2 - 1} , \qquad
        n = d^2 \Bigl( 1 + \frac{b(k)}{\mathrm{risk} - a(k)} \Bigr)

    for large d, where labels have variance 1 + noise_var; k may be infinite.

    Example:
        >>> plan = prompts_needed(1.0, 40, 80, 0.25, num_tasks=80)
        >>> print(f"{plan.num_prompts:.0f} {plan.num_tasks:.1f}")
        5387 17.8

    Source: Lu, Letey, Zavatone-Veth, Maiti and Pehlevan (2025).
    """
    check_positive_int("dim", dim)
    risk, N, rho, k = as_floats(risk, num_examples, noise_var, num_tasks)
    one, many = jnp.ones(1, risk.dtype), jnp.full((), jnp.inf, risk.dtype)

    def reached(kappa, tau):
        return _limit(one, one, N / dim, kappa, tau, rho, 0 * rho).icl

    least, at_two = reached(k / dim, many), reached(k / dim, 2 + 0 * risk)
    n = dim**2 * (1 + quotient(at_two - least, risk - least, jnp.inf))
    u = _bisect(lambda u: reached(u / (1 - u), many) > risk, jnp.ones_like(risk))
    return PretrainingPlan(
        n, jnp.where(reached(many, many) < risk, u / (1 - u), many) * dim
    )
