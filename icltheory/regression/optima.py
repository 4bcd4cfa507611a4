"""The best member of a family on a population, with what certifies it."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from icltheory._checks import count
from icltheory._core import Record, calculator
from icltheory._typing import PRNGKey, Scalar
from icltheory.regression import risks
from icltheory.regression._block_moments import best_step, informative
from icltheory.regression._linalg import is_isotropic
from icltheory.regression._lsa_search import best_lsa
from icltheory.regression.blocks import LSA, LTB
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearStep, Steps

__all__ = ["Optimum", "optimum"]


class Optimum(Record):
    """The best member of a family.

    Args:
        model: The member.
        risk: Its risk, with the query's noise.
        certificate: Why it is the best: a theorem, or how it was searched for.
    """

    model: Any
    risk: Scalar
    certificate: str = eqx.field(static=True)


def optimum(
    family: Any,
    population: LinearPopulation,
    num_examples: Any,
    *,
    key: PRNGKey | None = None,
    num_prompts: int = 65536,
    num_starts: int = 16,
) -> Optimum:
    r"""The best linear step, GD-beta, LSA, LTB or gradient steps on a population.

    GD-beta and LTB have one optimum, with :math:`\tau = \mathrm{tr}(H \Psi) + \sigma^2`

    .. math:: \beta^*, \qquad \Gamma^* = N\, ((N+1) \Psi H + \tau I)^{-1} \Psi P,
        \qquad R_{\min} = \sigma^2 + \mathrm{tr}\bigl( ((N+1) \Psi H + \tau I)^{-1}
        (\Psi H + \tau I) \Psi H \bigr),

    P the projector on im(H); H and Psi may be singular (then it is one of
    ``landscape.minimizers``). A linear step has it with the second moment of the tasks
    in place of Psi. These three may be traced, differentiated (P held fixed) and
    batched in all arguments; ``vmap`` and the gradient of the risk also work for an
    LSA, whose weights are not differentiated.

    Args:
        family: ``LinearStep``, ``GDBeta``, ``LTB`` or ``LSA``, or ``Steps(L)`` for L
            gradient steps with any step sizes.
        population: The population.
        num_examples: Number N of examples, 0 or more (LSA: 1 or more); may be traced
            but for steps.
        key: Typed key of a search (LSA), or of sampled inputs (steps on a population
            that is not isotropic with mean 0).
        num_prompts: Draws of the inputs for such steps; half of them choose the sizes,
            the other half give the risk.
        num_starts: Starts of the search for an LSA; it has several local minima.

    Example:
        >>> import jax.numpy as jnp
        >>> H = jnp.diag(jnp.array([1.5, 1.0, 0.7, 0.4]))
        >>> population = LinearPopulation(H, jnp.zeros(4), jnp.eye(4), 0.25)
        >>> best = optimum(LinearStep, population, 6)
        >>> print(*(f"{g:.4f}" for g in jnp.diag(best.model.Gamma)), f"{best.risk:.4f}")
        0.4181 0.5530 0.6857 0.9023 1.8759
        >>> best = optimum(Steps(3), LinearPopulation.isotropic(5), 20)
        >>> [f"{size:.3f}" for size in best.model.step_sizes], f"{best.risk:.4f}"
        (['0.422', '0.689', '1.714'], '0.1336')

    Source: Zhang, Wu and Bartlett (2024), Theorems 4.1, 5.2 and 5.3; Ahn et al. (2023).
    """
    if family is LinearStep:
        best = risks.linear_attention_optimum(population, num_examples)
        why = "closed form: Ahn et al. (2023), Theorem 1, for any second moment"
        return Optimum(LinearStep(best.Gamma), best.risk, why)
    if family in (GDBeta, LTB):
        model, least = _best_block(population, num_examples, family is LTB)
        theorem = "5.2" if family is GDBeta else "5.3"
        why = f"closed form: Zhang, Wu and Bartlett (2024), Theorem {theorem}"
        return Optimum(model, least, why)
    if family is not LSA and not isinstance(family, Steps):
        raise ValueError(
            "family: expected LinearStep, GDBeta, LTB, LSA or Steps(L), got "
            f"{getattr(family, '__name__', family)!r}"
        )
    if isinstance(family, Steps) and _is_standard(population):
        sizes = population.dim, num_examples, family.num_steps
        noise = float(population.noise_var)
        best = risks.gradient_steps_optimum(*sizes, noise_var=noise)
        least = population.dim * best.risk + noise
        return Optimum(Steps(best.step_sizes), least, "exact moments of the spectrum")
    if key is None:
        raise ValueError("key: expected a key for a search, got None")
    if not isinstance(family, Steps):
        model, least = best_lsa(population, num_examples, key, num_starts)
        return Optimum(model, least, f"the best end of BFGS from {num_starts} starts")
    found = risks.sampled_gradient_steps(
        population,
        key,
        num_prompts,
        num_examples=num_examples,
        steps=family.num_steps,
    )
    why = f"least squares on {num_prompts // 2} draws of the inputs"
    least = found.risk.mean + population.noise_var
    return Optimum(Steps(found.step_sizes), least, why)


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


def _is_standard(population: LinearPopulation) -> bool:
    """Whether inputs and tasks have the covariance I and the mean is 0."""
    H, Psi = population.input_cov, population.task_cov
    one = is_isotropic(H) & is_isotropic(Psi) & (H[0, 0] == 1) & (Psi[0, 0] == 1)
    return bool(one & (population.task_mean == 0).all())
