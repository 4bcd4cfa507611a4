"""A lower bound on the risk of L layers, and gradient steps for large d and N."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from icltheory._checks import check_positive_int, positive, scalar
from icltheory._core import Record, calculator
from icltheory._typing import Scalar
from icltheory.regression._steps import exact_floor, scales
from icltheory.regression.optima import Optimum
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import NoClosedForm, Steps

__all__ = ["DepthFloor", "depth_floor", "gradient_steps_limit"]


class DepthFloor(Record):
    """A lower bound on the risk of a stack of linear attention layers.

    Args:
        risk: The bound, with the query's noise.
        degree: Largest degree of the polynomial that the layers can make.
    """

    risk: Scalar
    degree: int = eqx.field(static=True)


@calculator(compiled=False, static=("layers", "num_examples"))
def depth_floor(
    layers: int, population: LinearPopulation, num_examples: int
) -> DepthFloor:
    r"""Lower bound on the risk of L layers of linear attention.

    .. math:: R \ge R_D , \qquad D = (3^L - 1) / 2 ,

    the risk of ``optimum(Steps(D), population, num_examples)``. It holds for weights
    whose keys and queries read the inputs alone and whose blocks on the inputs are
    multiples of I: gradient descent and GD++, for example. With tokens :math:`f_t(S)
    x_i` and labels multiplied by :math:`p_t(S)`, a layer gives

    .. math::
        f_{t+1}(s) = f_t(s) \big( 1 - \gamma_t s f_t(s)^2 \big) , \qquad
        p_{t+1}(s) = p_t(s) \big( 1 - \eta_t s f_t(s)^2 \big) ,

    so that both have degree (3^t - 1) / 2 after t layers, and p(0) = 1. Weights
    outside of this class make other functions, such as traces of S; for them the value
    is no bound. The moments up to 2 D + 1 are exact; D = 121 takes seconds at d = 5.

    Args:
        layers: Number L of layers, at most 5.
        population: The population, with H and E w w' multiples of the identity.
        num_examples: Number N of examples, at least 1.

    Example:
        >>> population = LinearPopulation.isotropic(5)
        >>> floors = [depth_floor(layers, population, 20).risk for layers in (1, 2)]
        >>> [f"{floor / 5:.4f}" for floor in floors]
        ['0.2308', '0.0110']

    Source: von Oswald et al. (2023), GD++.
    """
    check_positive_int("layers", layers)
    check_positive_int("num_examples", num_examples)
    if layers > 5:
        raise ValueError(f"layers: expected at most 5, got {layers}")
    if population.fourth_moment is not None or scales(population) is None:
        raise NoClosedForm(
            "population: expected Gaussian inputs with H and E w w' multiples of the "
            "identity, got another population"
        )
    degree = (3**layers - 1) // 2
    return DepthFloor(
        jnp.asarray(exact_floor(population, num_examples, degree)), degree
    )


@calculator(static=("steps",), ratio=scalar & positive)
def gradient_steps_limit(steps: int, ratio: Any) -> Optimum:
    r"""Best L gradient steps in the limit of large d and N with d / N = c.

    .. math::
        R_L = \Big( \sum_{k=0}^L c^{-k} \Big)^{-1} = \frac{c^L (1 - c)}{1 - c^{L+1}} ,
        \qquad
        \frac{1}{\eta_j} = 1 + c + 2 \sqrt c \cos \frac{j \pi}{L + 1}

    for H = I, E w w' = I / d, whose labels have variance 1, and no noise. For c < 1
    each layer divides the risk by 1 / c in the long run; at c = 1 it is 1 / (L + 1);
    for c > 1 it tends to 1 - 1 / c, the part of w that the prompt does not show. The
    spectrum is that of Marchenko and Pastur, whose monic orthogonal polynomials have
    :math:`a_0 = 1`, :math:`a_k = 1 + c`, :math:`b_k = c`, hence :math:`P_k(0) =
    (-1)^k`; with the factor s they are Chebyshev's of the second kind.

    Args:
        steps: Number L of steps.
        ratio: The ratio c = d / N.

    Example:
        >>> best = gradient_steps_limit(2, 0.25)
        >>> sizes = best.model.step_sizes
        >>> print(f"{best.risk:.4f}", *(f"{size:.3f}" for size in sizes))
        0.0476 0.571 1.333

    Source: Marchenko and Pastur (1967).
    """
    check_positive_int("steps", steps)
    c = jnp.asarray(ratio, float)
    risk = 1 / jnp.sum(c ** -jnp.arange(steps + 1.0))
    angles = jnp.pi * jnp.arange(1, steps + 1) / (steps + 1)
    sizes = 1 / (1 + c + 2 * jnp.sqrt(c) * jnp.cos(angles))
    return Optimum(Steps(sizes), risk, "the spectrum of Marchenko and Pastur")
