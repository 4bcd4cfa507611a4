"""The best member of a family on a population, with what certifies it."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, count
from icltheory._core import Record, calculator
from icltheory._typing import PRNGKey, Scalar
from icltheory.regression import _steps
from icltheory.regression._block_moments import best_step, informative
from icltheory.regression._lsa_search import best_lsa
from icltheory.regression.blocks import LSA, LTB
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.measures import squared_errors
from icltheory.regression.one_layer import OneLayer
from icltheory.regression.population import LinearPopulation, check_linear
from icltheory.regression.predictors import LinearStep, Steps
from icltheory.regression.predictors.base import check_gaussian
from icltheory.statistics import Estimate

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
    num_starts: int = 16,
) -> Optimum:
    r"""The best linear step, GD-beta, LSA, LTB, gradient steps or one layer.

    .. math:: \Gamma^* = N M \bigl((N + 1) H M + \tau I\bigr)^{-1}, \quad
        \eta^* = \frac{N\, \mathrm{tr}(H^2 M)}{(N + 1)\, \mathrm{tr}(H^2 M H)
        + \tau\, \mathrm{tr}(H^2)}, \quad \tau = \mathrm{tr}(H M) + \sigma^2

    for the linear step and one gradient step, M = Psi + beta* beta*' (for inputs of
    given fourth moments with S = E [X'y y'X] / N in place of the Gaussian one). GD-beta
    and LTB have one optimum, with :math:`\tau = \mathrm{tr}(H \Psi) + \sigma^2`

    .. math:: \beta^*, \qquad \Gamma^* = N\, ((N+1) \Psi H + \tau I)^{-1} \Psi P,
        \qquad R_{\min} = \sigma^2 + \mathrm{tr}\bigl( ((N+1) \Psi H + \tau I)^{-1}
        (\Psi H + \tau I) \Psi H \bigr),

    P the projector on im(H); H and Psi may be singular (then it is one of
    ``landscape.minimizers``). These may be traced, differentiated (P held fixed) and
    batched in all arguments; ``vmap`` and the gradient of the risk also work for an
    LSA, whose weights are not differentiated. Where H = h I and M = m I, L steps are
    the best polynomial of degree L in the spectrum of X'X, from its exact moments;
    their sizes are NaN where it has complex roots, as it can with noise: then the risk
    is a lower bound, which L steps whose iterates are combined linearly attain.

    Args:
        family: ``LinearStep``, ``GDBeta``, ``LTB``, ``LSA``, ``Steps(L)`` for L
            gradient steps with any step sizes, or ``OneLayer(phi)`` for any weights.
        population: The population.
        num_examples: Number N of examples, 0 or more (LSA and several steps: 1 or
            more); may be traced but for several steps.
        key: Typed key of a search (LSA), or of sampled inputs (several steps on a
            population that is not isotropic) or prompts (features that are no
            polynomial).
        num_prompts: Draws for those, 4 or more; half of them choose the member, the
            other half give its risk.
        num_starts: Starts of the search for an LSA; it has several local minima.

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
    if not isinstance(family, OneLayer):
        check_linear("population", population)
    if family is LinearStep:
        Gamma, risk = _steps.best_matrix(population, num_examples)
        why = "closed form: Ahn et al. (2023), Theorem 1, for any second moment"
        return Optimum(LinearStep(Gamma), risk, why)
    if isinstance(family, Steps):
        return _best_steps(family, population, num_examples, key, num_prompts)
    if isinstance(family, OneLayer):
        return _best_layer(family, population, num_examples, key, num_prompts)
    check_gaussian(population)
    if family in (GDBeta, LTB):
        model, least = _best_block(population, num_examples, family is LTB)
        theorem = "5.2" if family is GDBeta else "5.3"
        why = f"closed form: Zhang, Wu and Bartlett (2024), Theorem {theorem}"
        return Optimum(model, least, why)
    if family is not LSA:
        raise ValueError(
            "family: expected LinearStep, GDBeta, LTB, LSA, Steps(L) or OneLayer(phi), "
            f"got {getattr(family, '__name__', family)!r}; a single predictor has "
            "risk(predictor, population, num_examples) and estimate_risk"
        )
    model, least = best_lsa(
        population, num_examples, _given(key, "for a search"), num_starts
    )
    return Optimum(model, least, f"the best end of BFGS from {num_starts} starts")


@calculator(
    static=("as_ltb",),
    integers=("num_examples",),
    population=informative,
    num_examples=count(0),
)
def _best_block(population, num_examples, as_ltb):
    H, Psi, noise_var = population.input_cov, population.task_cov, population.noise_var
    Gamma, gain = best_step(H, Psi, noise_var, jnp.asarray(num_examples, H.dtype))
    best = GDBeta(population.task_mean, Gamma)
    return best.to_ltb() if as_ltb else best, noise_var + gain


def _best_layer(family, source, num_examples, key, num_prompts) -> Optimum:
    if family.degree is not None:
        moments = family.moments(source, num_examples)
        Gamma = moments.optimum()
        why, least = "exact moments of the features", moments.risk(Gamma)
        return Optimum(dataclasses.replace(family, Gamma=Gamma), least, why)
    halves = jax.random.split(_given(key, "to sample phi, or a degree of phi"))
    size = num_prompts // 2
    moments = family.moments(source, num_examples, key=halves[0], num_prompts=size)
    model = dataclasses.replace(family, Gamma=moments.optimum())
    errors = squared_errors(
        model, source, num_examples, key=halves[1], num_prompts=size
    )
    risk = Estimate.of(errors)
    why = f"least squares on {size} prompts, judged on as many others"
    return Optimum(model, risk.mean, why, risk.standard_error)


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
    what = "to sample the inputs of a population that is not isotropic"
    key = _given(key, what)
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


def _given(key: PRNGKey | None, what: str) -> PRNGKey:
    if key is None:
        raise ValueError(f"key: expected one {what}, got None")
    return key
