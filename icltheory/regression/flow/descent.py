"""Gradient descent in discrete steps, on the exact risk or on sampled prompts."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int, check_shape
from icltheory._descent import PlainRule, check_steps, descend
from icltheory._noted import check_positive
from icltheory._typing import PRNGKey
from icltheory.regression import measures
from icltheory.regression._linalg import Number
from icltheory.regression.blocks import LSA, LTB, EffectiveParameters
from icltheory.regression.flow._start import read_start
from icltheory.regression.flow.trajectory import FlowTrajectory, record
from icltheory.regression.gd_beta import GDBeta
from icltheory.regression.population import LinearPopulation
from icltheory.regression.risks._population import Count

__all__ = ["gradient_descent", "sampled_sgd"]

Model = GDBeta | LSA | LTB | EffectiveParameters


@calculator(compiled=False)
def gradient_descent(
    problem: LinearPopulation,
    num_examples: Count,
    model: Model,
    step_size: Number,
    num_steps: int,
    *,
    record_every: int = 1,
) -> FlowTrajectory:
    r"""Gradient descent on the exact risk, which is Euler's method for the flow.

    .. math:: \theta_{k+1} = \theta_k - \eta \nabla R(\theta_k), \qquad t_k = \eta k.

    It follows the flow to first order in eta, and diverges where eta exceeds 2 over the
    largest curvature on its way.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1.
        model: The start: a GDBeta, LSA, LTB or EffectiveParameters.
        step_size: eta > 0.
        num_steps: Steps; a multiple of ``record_every``.
        record_every: Steps between two entries of the trajectory.

    Returns:
        The trajectory from step 0 on. ``succeeded`` says that the end is finite.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> path = gradient_descent(task, 3, start, 0.1, 200, record_every=100)
        >>> path.times.tolist(), path.excess.round(4).tolist()
        ([0.0, 10.0, 20.0], [3.0, 0.0, 0.0])

    Source: Zhang, Wu and Bartlett (2024), Theorem 6.3.
    """
    step_size = _read(problem, num_examples, model, step_size, num_steps, record_every)
    M = jnp.asarray(num_examples)
    return _descend(problem, M, model, step_size, num_steps, record_every)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _descend(problem, M, model, step_size, num_steps, record_every) -> FlowTrajectory:
    def gradient(model, _):
        return jax.grad(measures.risk)(model, problem, M)

    return _run(gradient, problem, M, model, step_size, num_steps, record_every)


@calculator(compiled=False)
def sampled_sgd(
    problem: LinearPopulation,
    num_examples: int,
    model: Model,
    step_size: Number,
    num_steps: int,
    *,
    key: PRNGKey,
    batch_size: int,
    record_every: int = 1,
) -> FlowTrajectory:
    r"""Stochastic gradient descent on fresh prompts, with the exact risk of its path.

    .. math:: \theta_{k+1} = \theta_k - \frac{\eta}{B} \sum_{i=1}^{B} \nabla
        \bigl( f_\theta(X_i, y_i, x_i) - y_i^{query} \bigr)^2,

    whose mean step is that of ``gradient_descent``. Step k draws its prompts from the
    key folded with k.

    Args:
        problem: The population (H, beta*, Psi, sigma^2).
        num_examples: Examples M >= 1 of each prompt.
        model: The start: a GDBeta, LSA, LTB or EffectiveParameters.
        step_size: eta > 0.
        num_steps: Steps; a multiple of ``record_every``.
        key: Random key of the prompts.
        batch_size: Prompts B a step.
        record_every: Steps between two entries of the trajectory.

    Returns:
        The trajectory from step 0 on; its risks are exact, not those of the samples.

    Example:
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> path = sampled_sgd(task, 3, start, 0.01, 500, key=jax.random.key(0),
        ...                    batch_size=32, record_every=500)
        >>> float(path.excess[0]), bool(path.excess[1] < 0.1)
        (3.0, True)

    Source: Zhang, Wu and Bartlett (2024), Section 6.
    """
    check_positive_int("num_examples", num_examples)
    check_positive_int("batch_size", batch_size)
    step_size = _read(problem, num_examples, model, step_size, num_steps, record_every)
    sizes = (num_examples, num_steps, batch_size, record_every)
    return _sample_and_descend(problem, model, step_size, key, sizes)


@functools.partial(jax.jit, static_argnums=4)
def _sample_and_descend(problem, model, step_size, key, sizes) -> FlowTrajectory:
    num_examples, num_steps, batch_size, record_every = sizes

    def loss(model, prompt):
        answer = jax.vmap(model.predict)(prompt.X, prompt.y, prompt.x_query)
        return jnp.mean((answer - prompt.y_query) ** 2)

    def gradient(model, k):
        own = jax.random.fold_in(key, k)
        return jax.grad(loss)(model, problem.sample(own, num_examples, batch_size))

    M = jnp.asarray(num_examples)
    return _run(gradient, problem, M, model, step_size, num_steps, record_every)


def _read(
    problem: Any, num_examples: Any, model: Any, step_size: Any, steps: Any, every: Any
):
    read_start(problem, num_examples, model)
    check_steps(steps, every)
    check_shape("step_size", step_size, ())
    check_positive("step_size", step_size)
    dtype = jnp.result_type(float, model.dtype, problem.dtype)
    return jnp.asarray(step_size, dtype)


def _run(gradient, problem, M, model, step_size, num_steps, every) -> FlowTrajectory:
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf, step_size.dtype), model)

    def slope(model, k):
        return (), gradient(model, k)

    models = descend(slope, model, PlainRule(step_size), num_steps, every).params
    finite = [jnp.all(jnp.isfinite(leaf[-1])) for leaf in jax.tree.leaves(models)]
    times = step_size * jnp.arange(0, num_steps + 1, every)
    done = jnp.all(jnp.stack(finite))
    return record(problem, M, models, times, done, jnp.asarray(num_steps))
