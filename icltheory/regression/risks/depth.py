r"""The least risk that a number of gradient steps or linear layers can achieve.

After L steps from zero on a prompt with S = X'X / N the estimate is
:math:`\hat w = q(S) X^\top y / N` with a polynomial q of degree L - 1, whatever the
step sizes are. For inputs and tasks of covariance I the risk is an integral of p(s) = 1
- s q(s) over the mean spectrum of S, and the best polynomial is known exactly.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._noted import check_nonnegative, check_positive
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Float, Scalar
from icltheory.linalg._orthogonal import Recurrence, recurrence_of_moments
from icltheory.linalg.wishart import exact_moments

__all__ = [
    "DepthFloor",
    "GradientStepsOptimum",
    "depth_floor",
    "gradient_steps_limit",
    "gradient_steps_optimum",
]


@pytree
class GradientStepsOptimum:
    r"""The best L gradient steps from zero, and their risk.

    Args:
        risk: Least risk per dimension, without the noise of the query.
        step_sizes: Step sizes that attain it, in ascending order, ``(L,)``; NaN where
            no real ones do.
    """

    risk: Scalar
    step_sizes: Float[Array, "L"]


@pytree
class DepthFloor:
    """A lower bound on the risk of a stack of linear attention layers.

    Args:
        risk: The bound, per dimension, without the noise of the query.
        degree: Largest degree of the polynomial that the layers can make.
    """

    risk: Scalar
    degree: int = static_field()


@calculator(compiled=False)
def gradient_steps_optimum(
    dim: int, num_examples: int, steps: int, *, noise_var: float = 0.0
) -> GradientStepsOptimum:
    r"""Exact risk of the best L steps of gradient descent in context.

    .. math::
        R_L = \min_q \frac1d E\, \Big[ \operatorname{tr} p(S)^2 + \frac{\sigma^2}{N}
        \operatorname{tr} q(S)^2 S \Big] , \qquad p(s) = 1 - s\, q(s) , \;
        \deg q \le L - 1 ,

    for :math:`x, w \sim N(0, I_d)` and :math:`y = \langle w, x \rangle + \sigma
    \epsilon`. Without noise it is :math:`1 / (M^{-1})_{00}` with :math:`M_{ij} =
    \frac1d E \operatorname{tr} S^{i + j}`, i, j = 0..L: the Christoffel function at 0
    of the mean spectrum; L = 1 gives (d + 1) / (N + d + 1). With :math:`\lambda =
    \sigma^2 / N`, and Gauss's rule for L + 1 points with nodes :math:`s_j` and weights
    :math:`w_j`,

    .. math::
        R_L = \lambda \sum_j \frac{w_j}{s_j + \lambda} + \frac{h_L}{\prod_j (s_j +
        \lambda)^2 \sum_j v_j / (s_j (s_j + \lambda))} ,

    where :math:`h_L` is the squared norm of the orthogonal polynomial :math:`P_L` and
    :math:`v_j = w_j P_L(s_j)^2 / h_L`. All terms are positive. The optimal p is
    :math:`(\lambda + s P^*_L(s) / P^*_L(-\lambda)) / (s + \lambda)` with :math:`P^*_L`
    orthogonal with respect to s times the spectrum; the step sizes are the reciprocals
    of its roots. Without noise these are real. With noise pairs of them can be complex;
    then the risk is still a lower bound for real steps, and
    what L steps whose iterates are combined linearly attain.

    The moments are exact (:func:`icltheory.linalg.wishart_moments`); the result is kept
    for later calls. All numbers are constants of a compiled program.

    Args:
        dim: Dimension d.
        num_examples: Number N of examples.
        steps: Number L of steps.
        noise_var: Variance :math:`\sigma^2` of the labels' noise.

    Returns:
        Risk and step sizes. ``constructions.gradient_descent(step_sizes, dim)`` with
        ``scale=1 / N`` is the stack.

    Example:
        >>> for steps in (1, 2, 3):
        ...     best = gradient_steps_optimum(5, 20, steps)
        ...     sizes = [f"{size:.3f}" for size in best.step_sizes]
        ...     print(f"{best.risk:.6f}", *sizes)
        0.230769 0.769
        0.072248 0.515 1.250
        0.026722 0.422 0.689 1.714

    Source: Ahn et al. (2023), Theorem 1 (L = 1); Szego (1939), 3.1.3 (Christoffel).
    """
    check_positive_int("steps", steps)
    check_nonnegative("noise_var", noise_var)
    ridge = float(noise_var) / _checked(dim, num_examples)
    mean, tilted = _recurrences(dim, num_examples, steps)
    return GradientStepsOptimum(
        jnp.asarray(_least_risk(mean, steps, ridge)),
        jnp.asarray(_step_sizes(tilted, steps, ridge)),
    )


@calculator(compiled=False)
def depth_floor(
    dim: int, num_examples: int, layers: int, *, noise_var: float = 0.0
) -> DepthFloor:
    r"""Lower bound on the risk of L layers of linear attention.

    .. math:: R \ge R_D , \qquad D = (3^L - 1) / 2 ,

    the risk of :func:`gradient_steps_optimum` at D steps. It holds for weights whose
    keys and queries read the inputs alone and whose blocks on the inputs are multiples
    of I: gradient descent and GD++, for example. With tokens :math:`f_t(S) x_i` and
    labels multiplied by :math:`p_t(S)`, a layer gives

    .. math::
        f_{t+1}(s) = f_t(s) \big( 1 - \gamma_t s f_t(s)^2 \big) , \qquad
        p_{t+1}(s) = p_t(s) \big( 1 - \eta_t s f_t(s)^2 \big) ,

    so that both have degree (3^t - 1) / 2 after t layers, and p(0) = 1. Weights
    outside of this class make other functions, such as traces of S; for them the value
    is no bound. See the page on the limit of depth.

    The moments up to 2 D + 1 are exact; D = 121 (five layers) takes seconds at d = 5.

    Args:
        dim: Dimension d.
        num_examples: Number N of examples.
        layers: Number L of layers.
        noise_var: Variance :math:`\sigma^2` of the labels' noise.

    Returns:
        The bound and the degree.

    Example:
        >>> [f"{depth_floor(5, 20, layers).risk:.4f}" for layers in (1, 2)]
        ['0.2308', '0.0110']

    Source: von Oswald et al. (2023), GD++.
    """
    check_positive_int("layers", layers)
    check_nonnegative("noise_var", noise_var)
    if layers > 5:
        raise ValueError(f"layers: expected at most 5, got {layers}")
    ridge = float(noise_var) / _checked(dim, num_examples)
    degree = (3**layers - 1) // 2
    mean, _ = _recurrences(dim, num_examples, degree)
    return DepthFloor(jnp.asarray(_least_risk(mean, degree, ridge)), degree)


@calculator
def gradient_steps_limit(
    ratio: Real[ArrayLike, ""], steps: int
) -> GradientStepsOptimum:
    r"""Best L gradient steps in the limit of large d and N with d / N = c.

    .. math::
        R_L = \Big( \sum_{k=0}^L c^{-k} \Big)^{-1} = \frac{c^L (1 - c)}{1 - c^{L+1}} ,
        \qquad
        \frac{1}{\eta_j} = 1 + c + 2 \sqrt c \cos \frac{j \pi}{L + 1} .

    For c < 1 each layer divides the risk by 1 / c in the long run; at c = 1 it is
    1 / (L + 1); for c > 1 it tends to 1 - 1 / c, the part of w that the prompt does not
    show. The spectrum is that of Marchenko and Pastur, whose monic orthogonal
    polynomials have :math:`a_0 = 1`, :math:`a_k = 1 + c`, :math:`b_k = c`, hence
    :math:`P_k(0) = (-1)^k`; with the factor s they are Chebyshev's of the second kind.
    No label noise.

    Args:
        ratio: The ratio c = d / N.
        steps: Number L of steps.

    Returns:
        Risk per dimension and step sizes.

    Example:
        >>> best = gradient_steps_limit(0.25, 2)
        >>> print(f"{best.risk:.4f}", *(f"{size:.3f}" for size in best.step_sizes))
        0.0476 0.571 1.333

    Source: Marchenko and Pastur (1967).
    """
    check_positive("ratio", ratio)
    check_positive_int("steps", steps)
    c = jnp.asarray(ratio, float)
    risk = 1 / jnp.sum(c ** -jnp.arange(steps + 1.0))
    angles = jnp.pi * jnp.arange(1, steps + 1) / (steps + 1)
    return GradientStepsOptimum(risk, 1 / (1 + c + 2 * jnp.sqrt(c) * jnp.cos(angles)))


def _checked(dim: int, num_examples: int) -> int:
    check_positive_int("dim", dim)
    check_positive_int("num_examples", num_examples)
    return num_examples


@functools.lru_cache(maxsize=256)
def _recurrences(d: int, N: int, degree: int) -> tuple[Recurrence, Recurrence]:
    """Recurrences of the mean spectrum, and of s times it."""
    moments = exact_moments(d, N, 2 * degree + 1)
    mean = recurrence_of_moments(moments, degree + 1)
    return mean, recurrence_of_moments(moments[1:], degree)


def _least_risk(mean: Recurrence, degree: int, ridge: float) -> float:
    nodes, vectors = np.linalg.eigh(mean.jacobi(degree + 1))
    first, last = vectors[0] ** 2, vectors[-1] ** 2
    shrunk = ridge * np.sum(first / (nodes + ridge))
    # Logarithms are used, since products of so many factors overflow float64.
    log_norm = np.sum(np.log(mean.b)) - 2 * np.sum(np.log(nodes + ridge))
    missing = np.exp(log_norm) / np.sum(last / (nodes * (nodes + ridge)))
    return float(shrunk + missing)


def _step_sizes(tilted: Recurrence, degree: int, ridge: float) -> np.ndarray:
    """Reciprocals of the roots of p, by the eigenvalues of a comrade matrix."""
    comrade = tilted.jacobi(degree)
    if ridge == 0:
        return np.sort(1 / np.linalg.eigvalsh(comrade))
    comrade[-1] += ridge * _associated(tilted, degree, -ridge)
    steps = np.linalg.eigvals(comrade)
    if np.any(np.imag(steps)):
        return np.full(degree, np.nan)
    return np.sort(1 / np.real(steps))


def _associated(recurrence: Recurrence, degree: int, z: float) -> np.ndarray:
    """Coefficients of (P_L(s) - P_L(z)) / (s - z) in the orthogonal polynomials.

    They are values at z of the associated polynomials, scaled for the orthonormal basis
    of the Jacobi matrix.
    """
    a, b = recurrence
    found = np.empty(degree)
    for k in range(degree):
        before, value = 0.0, 1.0
        for j in range(k + 1, degree):
            before, value = value, (z - a[j]) * value - b[j] * before
        found[k] = value
    norms = np.sqrt(np.cumprod(b[:degree]))
    return found * norms / norms[-1]
