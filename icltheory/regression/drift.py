"""Tasks that drift within a prompt: their source, and the Bayes filter for them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from icltheory._checks import check_positive_int, checked, real, scalar, unit
from icltheory._typing import Array, Float
from icltheory.regression._linalg import Number, as_floats, einsum
from icltheory.regression.population import (
    CorrelatedTasks,
    LinearPopulation,
    TaskPerExample,
)


class DriftingTasks(TaskPerExample):
    r"""Linear regression whose task drifts from one example to the next.

    .. math:: w_1 \sim N(\beta^*, \Psi), \qquad w_{t+1} = \beta^* + a\, (w_t - \beta^*)
        + \sqrt{1 - a^2}\, \Psi^{1/2} \xi_t, \qquad
        y_t = \langle w_t, x_t\rangle + \epsilon_t ,

    with a the ``persistence``, from 0 (a new task for each example) to 1 (one task),
    and x, w ~ N(0, I); for others see :meth:`of`. The query's task is one step later
    than that of the last example. ``w`` of the prompts is the path, ``(B, N + 1, d)``.

    Example:
        >>> drift = DriftingTasks(3, noise_var=0.25, persistence=0.9)
        >>> prompt = drift.sample(jax.random.key(0), 4, 2)
        >>> prompt.y.shape, prompt.w.shape
        ((2, 4), (2, 5, 3))

    Source: Kalman (1960); von Oswald et al. (2025), for a model of forgetting.
    """

    population: LinearPopulation
    persistence: Any

    def __init__(self, dim: int, noise_var: Number = 0.0, persistence: Number = 0.9):
        check_positive_int("dim", dim)
        self.population = LinearPopulation.isotropic(dim, noise_var)
        a = checked("persistence", real("persistence", persistence), scalar & unit)
        self.persistence = jnp.asarray(a, self.population.dtype)

    @classmethod
    def of(cls, population: LinearPopulation, persistence: Number) -> "DriftingTasks":
        """Drift of the tasks of any population."""
        found = cls(population.dim, 0.0, persistence)
        a = found.persistence.astype(population.dtype)
        parts = lambda drift: (drift.population, drift.persistence)  # noqa: E731
        return eqx.tree_at(parts, found, (population, a))

    def correlated(self, num_examples: int) -> CorrelatedTasks:
        """The same tasks as correlated ones of a known number of examples."""
        R = correlation(self.persistence, num_examples)
        return CorrelatedTasks(self.population, R)

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Array:
        """Draws the tasks of the first examples; ``active_dims`` is ignored."""
        return self.population.sample_parameters(key, num_prompts)

    def label(self, key, w, X) -> tuple[Float[Array, "B P"], Float[Array, "B P d"]]:
        """Noisy labels along paths that begin at w, and the paths."""
        key_path, key_noise = jax.random.split(key)
        mean, a = self.population.task_mean[None], self.persistence
        fresh = self.population.sample_parameters(key_path, X[:, 1:, 0].size) - mean
        fresh = jnp.sqrt(1 - a**2) * jnp.reshape(fresh, X[:, 1:].shape)
        steps = jnp.concatenate([(w - mean)[:, None], fresh], axis=1)
        after = jnp.tril(correlation(a, X.shape[1] - 1))
        path = mean[None] + einsum("ij,bjd->bid", after, steps)
        return super().label(key_noise, path, X)


def correlation(persistence: Array, num_examples: int) -> Float[Array, "P P"]:
    """Correlation a^|i - j| of the tasks of the examples and, last, the query."""
    time = jnp.arange(num_examples + 1)
    return persistence ** jnp.abs(time[:, None] - time[None])


Emit = Callable[[Array, Array], Array]


def filter_path(
    drift: DriftingTasks, X: Array, y: Array, emit: Emit = lambda w, P: w
) -> Array:
    r"""Applies ``emit(w, P)`` to the prediction N(w, P) of the task of each row.

    The Kalman filter: the gain is P x / (x'P x + sigma^2), then w decays to the mean by
    a, and P becomes a^2 P + (1 - a^2) Psi.
    """
    p = drift.population
    given = (X, p.task_mean, p.task_cov, p.noise_var, drift.persistence)
    _, mean, Psi, noise_var, a = (v.astype(X.dtype) for v in as_floats(*given))
    # What is left of a variance by rounding, where the task is already known.
    floor = max(X.shape) * jnp.finfo(X.dtype).eps * jnp.diagonal(Psi)

    def step(state, row):
        w, P = state
        x, target = row
        v = einsum("ij,j->i", P, x)
        variance = jnp.sum(v * x) + noise_var
        informative = variance > jnp.sum(floor * x * x)
        gain = jnp.where(informative, v / jnp.where(informative, variance, 1), 0)
        moved = w + gain * (target - jnp.sum(w * x))
        P = P - gain[:, None] * v[None]
        later = mean + a * (moved - mean), a**2 * P + (1 - a**2) * Psi
        return later, emit(*state)

    return jax.lax.scan(step, (mean, Psi), (X, y))[1]


def population_of(population: Any) -> tuple[LinearPopulation, Any]:
    """The population and the persistence of its tasks."""
    if isinstance(population, DriftingTasks):
        return population.population, population.persistence
    return population, jnp.ones((), population.dtype)


def demonstration_moments(p: LinearPopulation) -> tuple[Array, Array, Array]:
    """Traces of H^2 A and H^3 A, A = Psi and mean mean', and of H^2 (H M + tau I)."""
    H = p.input_cov
    parts = jnp.stack([p.task_cov, p.task_mean[:, None] * p.task_mean[None]])
    H2 = einsum("ij,jk->ik", H, H)
    first, second = einsum("ij,nji->n", H2, parts), einsum("ij,jk,nki->n", H2, H, parts)
    own = jnp.sum(second) + (p.signal + p.noise_var) * jnp.trace(H2)
    return first, second, own


def repeated(step: Callable, start: tuple, size: Array, k: Array) -> tuple:
    """The state after k affine steps, differentiable also where k is traced.

    Steps of one size by powers of one matrix; a schedule by its steps, of which those
    from k on change nothing (NaN where there are fewer than k).
    """
    flat, shape = ravel_pytree(start)
    if size.ndim:

        def one(state, row):
            t, beta = row
            moved = step(state, beta)
            return jax.tree.map(lambda a, b: jnp.where(t < k, a, b), moved, state), None

        found = jax.lax.scan(one, start, (jnp.arange(len(size)), size))[0]
        known = jnp.where(k <= len(size), 1.0, jnp.nan).astype(flat.dtype)
        return jax.tree.map(lambda a: a * known, found)

    def affine(z):
        return ravel_pytree(step(shape(z), size))[0]

    zero = jnp.zeros_like(flat)
    A = jnp.pad(jax.jacfwd(affine)(zero), ((0, 1), (0, 1))).at[-1, -1].set(1)
    A = A.at[:-1, -1].set(affine(zero))

    def double(carry, _):
        state, A, left = carry
        odd, more = left % 2 == 1, left > 1
        state = jnp.where(odd, einsum("ij,j->i", A, state), state)
        A = jnp.where(more, einsum("ij,jk->ik", A, A), A)
        return (state, A, left // 2), None

    carry = jnp.append(flat, 1).astype(flat.dtype), A, k.astype(jnp.int32)
    return shape(jax.lax.scan(double, carry, length=31)[0][0][:-1])
