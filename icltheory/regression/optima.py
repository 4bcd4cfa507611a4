"""The best member of a family on a population, with what certifies it."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int
from icltheory._core import Record
from icltheory._typing import PRNGKey, Scalar
from icltheory.regression import _steps, ltb
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep, Steps
from icltheory.regression.predictors.base import check_gaussian

__all__ = ["Optimum", "optimum"]


class Optimum(Record):
    """The best member of a family.

    Args:
        model: The member.
        risk: Its risk, with the query's noise.
        certificate: Why it is the best: a theorem, or how it was searched for.
        standard_error: That of the risk; 0 where it is exact.
    """

    model: Any
    risk: Scalar
    certificate: str = eqx.field(static=True)
    standard_error: Scalar | float = 0.0


def optimum(
    family: Any,
    population: LinearPopulation,
    num_examples: Any,
    *,
    key: PRNGKey | None = None,
    num_prompts: int = 65536,
) -> Optimum:
    r"""The best linear step, GD-beta, LSA, LTB or gradient steps on a population.

    .. math:: \Gamma^* = M \Bigl(\tfrac{k+1}{k} H M + \tfrac{\tau}{k} I\Bigr)^{-1},
        \qquad \eta^* = \frac{\mathrm{tr}(H^2 M)}{\tfrac{k+1}{k} \mathrm{tr}(H^2 M H)
        + \tfrac{\tau}{k} \mathrm{tr}(H^2)},

    for the linear step and one gradient step, with M = Psi + beta* beta*', tau = tr(H
    M) + sigma^2 and Gaussian inputs, or M H S^{-1} and tr(H^2 M) / tr(H S) with k S =
    E [X'y y'X] for inputs of given fourth moments. Where H = h I and M = m I, L steps
    are the best polynomial of degree L in the spectrum of X'X, from its exact moments.
    Their sizes are NaN where that polynomial has complex roots, as it can with noise;
    then the risk is a lower bound for real steps, which L steps whose iterates are
    combined linearly attain. See the page on the limit of depth.

    Args:
        family: ``LinearStep``, ``ltb.GDBeta``, ``ltb.LTB`` or ``ltb.LSA``, or
            ``Steps(L)`` for L gradient steps with any step sizes.
        population: The population.
        num_examples: Number N of examples; may be traced but for LSA and several steps.
        key: Typed key of a search (LSA), or of sampled inputs (several steps on a
            population that is not isotropic).
        num_prompts: Draws of the inputs for such steps, 4 or more; half of them choose
            the sizes, the other half give the risk.

    Example:
        >>> H = jnp.diag(jnp.array([1.5, 1.0, 0.7, 0.4]))
        >>> population = LinearPopulation(H, jnp.zeros(4), jnp.eye(4), 0.25)
        >>> best = optimum(LinearStep, population, 6)
        >>> print(*(f"{g:.4f}" for g in jnp.diag(best.model.Gamma)), f"{best.risk:.4f}")
        0.4181 0.5530 0.6857 0.9023 1.8759
        >>> best = optimum(Steps(3), LinearPopulation.isotropic(5), 20)
        >>> [f"{size:.3f}" for size in best.model.step_sizes], f"{best.risk:.4f}"
        (['0.422', '0.689', '1.714'], '0.1336')

    Source: Zhang, Wu and Bartlett (2024), Theorems 4.1, 5.2 and 5.3; Ahn et al. (2023),
    Theorem 1; Szego (1939), 3.1.3 (Christoffel), for several steps.
    """
    if family is LinearStep:
        Gamma, risk = _steps.best_matrix(population, num_examples)
        why = "closed form: Ahn et al. (2023), Theorem 1, for any second moment"
        return Optimum(LinearStep(Gamma), risk, why)
    if isinstance(family, Steps):
        return _best_steps(family, population, num_examples, key, num_prompts)
    check_gaussian(population)
    if family in (ltb.GDBeta, ltb.LTB):
        model, least = ltb.optimal_gd_beta(population, num_examples)
        model = model if family is ltb.GDBeta else ltb.gd_beta_to_ltb(model)
        theorem = "5.2" if family is ltb.GDBeta else "5.3"
        why = f"closed form: Zhang, Wu and Bartlett (2024), Theorem {theorem}"
        return Optimum(model, least, why)
    if family is not ltb.LSA:
        raise ValueError(
            "family: expected LinearStep, GDBeta, LTB, LSA or Steps(L), got "
            f"{getattr(family, '__name__', family)!r}"
        )
    model, least = ltb.optimal_lsa(population, num_examples, _given(key))
    return Optimum(model, least, "the best end of BFGS from 16 starts")


def _best_steps(family, population, num_examples, key, num_prompts) -> Optimum:
    steps = family.num_steps
    check_positive_int("number of steps", steps)
    if steps == 1:
        size, least = _steps.best_size(population, num_examples)
        return Optimum(Steps(size[None]), least, "closed form: a parabola")
    check_gaussian(population)
    check_positive_int("num_examples", num_examples)
    if _steps.scales(population):
        least, sizes = _steps.exact_steps(population, num_examples, steps)
        why = "exact moments of the spectrum"
        return Optimum(_with_sizes(sizes), jnp.asarray(least), why)
    key = _given(key)
    if num_prompts < 4:
        raise ValueError(f"num_prompts: expected at least 4, got {num_prompts}")
    sizes = num_examples, steps
    risk, found = _steps.sampled_steps(population, *sizes, key, num_prompts)
    why = f"least squares on {num_prompts // 2} draws of the inputs"
    return Optimum(_with_sizes(found), risk.mean, why, risk.standard_error)


def _with_sizes(sizes: np.ndarray) -> Steps:
    """Steps of these sizes, which may be NaN."""
    rule = Steps(np.zeros_like(sizes))
    return eqx.tree_at(lambda rule: rule.step_sizes, rule, jnp.asarray(sizes))


def _given(key: PRNGKey | None) -> PRNGKey:
    if key is None:
        raise ValueError("key: expected a key for a search, got None")
    return key
