"""The best member of a family on a population, with what certifies it."""

from typing import Any

import equinox as eqx

from icltheory._checks import check_shape, checked, finite, real
from icltheory._core import Record
from icltheory._typing import Array, PRNGKey, Scalar
from icltheory.regression import ltb, risks
from icltheory.regression._linalg import as_floats, einsum, is_isotropic
from icltheory.regression.population import LinearPopulation
from icltheory.regression.predictors import LinearInLabels, Steps

__all__ = ["LinearStep", "Optimum", "optimum"]


class LinearStep(LinearInLabels):
    r"""One layer of linear attention: a preconditioned gradient step from zero.

    .. math:: \hat w = \Gamma X^\top y / N .

    Without examples it predicts 0. From another start it is
    :class:`~icltheory.regression.ltb.GDBeta`.

    Args:
        Gamma: The matrix, ``(d, d)``; it need not be symmetric.

    Example:
        >>> import jax.numpy as jnp
        >>> from icltheory.regression import measures
        >>> population = LinearPopulation.isotropic(5)
        >>> step = LinearStep(20 / 26 * jnp.eye(5))
        >>> print(f"{measures.risk(step, population, 20):.4f}")
        1.1538

    Source: Ahn et al. (2023), Theorem 1; Wu et al. (2024), Section 3.
    """

    Gamma: Any

    def __post_init__(self):
        (Gamma,) = as_floats(real("Gamma", self.Gamma))
        check_shape("Gamma", Gamma, ("d", "d"))
        self.Gamma = checked("Gamma", Gamma, finite)

    def weights(self, X: Array, y: Array) -> Array:
        """Gamma X'y / N."""
        mean = einsum("nd,n->d", X, y) / max(X.shape[0], 1)
        return einsum("ij,j->i", self.Gamma.astype(X.dtype), mean)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """That of the step from the start 0."""
        return ltb.GDBeta(0 * self.Gamma[0], self.Gamma).exact_risk(population, k)


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
) -> Optimum:
    """The best linear step, GD-beta, LSA, LTB or gradient steps on a population.

    Args:
        family: ``LinearStep``, ``ltb.GDBeta``, ``ltb.LTB`` or ``ltb.LSA``, or
            ``Steps(L)`` for L gradient steps with any step sizes.
        population: The population.
        num_examples: Number N of examples; may be traced for the first three.
        key: Typed key of a search (LSA), or of sampled inputs (steps on a population
            that is not isotropic with mean 0).
        num_prompts: Draws of the inputs for such steps; half of them choose the sizes,
            the other half give the risk.

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
    if family in (ltb.GDBeta, ltb.LTB):
        model, least = ltb.optimal_gd_beta(population, num_examples)
        model = model if family is ltb.GDBeta else ltb.gd_beta_to_ltb(model)
        theorem = "5.2" if family is ltb.GDBeta else "5.3"
        why = f"closed form: Zhang, Wu and Bartlett (2024), Theorem {theorem}"
        return Optimum(model, least, why)
    if family is not ltb.LSA and not isinstance(family, Steps):
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
        model, least = ltb.optimal_lsa(population, num_examples, key)
        return Optimum(model, least, "the best end of BFGS from 16 starts")
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


def _is_standard(population: LinearPopulation) -> bool:
    """Whether inputs and tasks have the covariance I and the mean is 0."""
    H, Psi = population.input_cov, population.task_cov
    one = is_isotropic(H) & is_isotropic(Psi) & (H[0, 0] == 1) & (Psi[0, 0] == 1)
    return bool(one & (population.task_mean == 0).all())
