"""The best linear self-attention, by minimisation over a sphere in d + 1 dimensions."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int
from icltheory._typing import Array, PRNGKey, Scalar
from icltheory.regression._linalg import einsum
from icltheory.regression.ltb._lsa_reduced import Reduced
from icltheory.regression.ltb._moments import check_tau, read_length
from icltheory.regression.ltb._spectral import Whitened
from icltheory.regression.ltb.converters import effective_to_lsa
from icltheory.regression.ltb.effective import EffectiveParameters
from icltheory.regression.ltb.models import LSA
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["optimal_lsa"]

# Steps to separate the basins of attraction, and then to converge to rounding.
_SEARCH_STEPS, _POLISH_STEPS = 48, 256


@calculator(compiled=False)
def optimal_lsa(
    problem: LinearPopulation,
    num_examples: Count,
    key: PRNGKey,
    num_starts: int = 16,
) -> tuple[LSA, Scalar]:
    r"""The best LSA and its risk.

    Without an MLP there is no closed form. In whitened coordinates (see ``risk``, with
    m = H^{1/2} beta*) the excess over the best LTB,

    .. math:: J(q, v, A, g) = \|\Omega^{1/2} (vA + q g^\top - \Omega^{-1} \Phi)\|_F^2
        + \|A^\top q + v \tau g - m\|^2 + \tfrac1M \|A^\top q\|^2
        + \tfrac1M \|A_{ij} q_k + 2 v \Phi_{ik} g_j\|_F^2
        + v^2 \|g\|^2 (\tfrac{2\tau^2}M + 2\,\mathrm{tr}\,\Phi^2),

    is a quadratic form in (A, g) jointly, whose minimum is one rank-one update and one
    division. What is left depends on the direction of (q, v) only and is continuous
    on the sphere, so a best LSA exists; the gauge v = 1 would lose those with v = 0.
    It has several local minima. BFGS (optimistix) starts at eight points that theory
    names and at random ones, and the best end is taken. On 150 random problems with
    d <= 5 the eight alone always found the minimum of 192 starts.

    A step costs O(d^2) a start. It can be vmapped; the search is compiled once a shape.
    Derivatives of the risk hold the model fixed, which is exact at a minimum; the model
    itself has none.

    Args:
        problem: The population (H, beta*, Psi, sigma^2), singular ones included.
        num_examples: Examples M >= 1; may be traced.
        key: Typed key of the random starts.
        num_starts: Starts in all.

    Returns:
        The model, with d_k = d + 1 and d_v = 1, and its risk.

    Example:
        >>> import jax
        >>> task = LinearPopulation(jnp.eye(2), 2.0 * jnp.ones(2), jnp.eye(2), 0.25)
        >>> model, risk = optimal_lsa(task, 10, jax.random.key(0))
        >>> round(float(risk), 3), round(float(model.risk(task, 10)), 3)
        (2.347, 2.347)

    Source: Zhang, Wu and Bartlett (2024), Theorem 4.1.
    """
    check_positive_int("num_starts", num_starts)
    white = Whitened.of(problem)
    check_tau(white.tau)
    M = read_length(num_examples, white.phi.dtype)
    # The search is not differentiated, which does not matter at a minimum.
    reduced = lax.stop_gradient(Reduced.of(white, M))
    z = _search(reduced.scaled(), key, num_starts)
    q, v = jnp.sqrt(white.tau) * z[:-1] * white.seen, z[-1]
    A, g = reduced.best(q, v)
    model = lax.stop_gradient(_weights(white, problem, q, v, A, g))
    return model, model.risk(problem, num_examples)


@partial(jax.jit, static_argnums=2)
def _search(reduced: Reduced, key: PRNGKey, num_starts: int) -> Array:
    """Finds the point (q, v) on the sphere with the least reduced excess."""
    import optimistix  # it takes long to import

    # Relative to |m|^2, the excess is between 1 / (M + 1) and 1.
    size = jnp.sum(reduced.m**2)
    size = jnp.where(size > 0, size, 1)

    def excess(z, _):
        return reduced.excess(z[:-1], z[-1]) / size

    tolerance = float(jnp.finfo(reduced.phi.dtype).eps) ** 0.55
    solver = optimistix.BFGS(rtol=tolerance, atol=tolerance)

    def descend(z, max_steps):
        end = optimistix.minimise(
            excess, solver, z, max_steps=max_steps, throw=False
        ).value
        return end / jnp.sqrt(jnp.sum(end**2))

    starts = _starts(reduced, key, num_starts)
    ends = jax.vmap(partial(descend, max_steps=_SEARCH_STEPS))(starts)
    values = jax.vmap(excess, (0, None))(ends, None)
    return descend(ends[jnp.nanargmin(values)], _POLISH_STEPS)


def _starts(reduced: Reduced, key: PRNGKey, count: int) -> Array:
    """Starting points (q, v): near known minima at m = 0, between them, and random."""
    m = reduced.m
    size = jnp.sqrt(jnp.sum(m**2))
    top = jnp.eye(m.shape[0], dtype=m.dtype)[jnp.argmax(reduced.phi)]
    along = jnp.where(size > 0, m / jnp.where(size > 0, size, 1), top)
    named = (
        (jnp.zeros_like(m), 1.0),
        (along, 0.1),
        (top, 0.1),
        (top, -0.1),
        (m, 1.0),
        (along, 0.01),
        (top + 0.01 * along, 0.01),
        (0.1 * m, 1.0),
    )
    fixed = jnp.stack([jnp.append(q, jnp.asarray(v, m.dtype)) for q, v in named])
    key_mix, key_free, key_ratio = jax.random.split(key, 3)
    mix = jax.random.normal(key_mix, (count, 2), m.dtype)
    free = jax.random.normal(key_free, (count, *m.shape), m.dtype)
    q = mix @ jnp.stack([along, top]) + free / jnp.sqrt(float(m.shape[0]))
    q = q / jnp.sqrt(jnp.sum(q**2, axis=1, keepdims=True))
    v = 10 ** jax.random.uniform(key_ratio, (count, 1), m.dtype, -2, 2)
    drawn = jnp.concatenate([q, v], axis=1)
    starts = jnp.concatenate([fixed, drawn])[:count]
    return starts / jnp.sqrt(jnp.sum(starts**2, axis=1, keepdims=True))


def _weights(
    white: Whitened,
    problem: LinearPopulation,
    q: Array,
    v: Array,
    A: Array,
    g: Array,
) -> LSA:
    """Returns the LSA at whitened coordinates, with balanced norms."""
    back = einsum("ij,jk->ik", white.roots.inverse, white.basis)
    mean = jnp.asarray(problem.task_mean)
    u = einsum("ij,j->i", back, g)
    U = einsum("ij,jk,lk->il", back, A, back) - mean[:, None] * u[None, :]
    p = einsum("ij,j->i", back, q) - v * mean
    values = jnp.sum(p**2) + v**2
    scores = jnp.sum(U**2) + jnp.sum(u**2)
    known = (values > 0) & (scores > 0)
    ratio = jnp.where(known, scores, 1) / jnp.where(known, values, 1)
    parts = EffectiveParameters(jnp.zeros_like(mean), p, v, U, u)
    return effective_to_lsa(parts.rescaled(ratio**0.25))
