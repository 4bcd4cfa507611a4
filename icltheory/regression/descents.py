"""Gradient descent in discrete steps, on the exact risk or on fresh prompts."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int, count, positive, scalar
from icltheory._core import calculator
from icltheory._descent import PlainRule, check_steps
from icltheory._descent import descend as run
from icltheory._typing import PRNGKey
from icltheory.regression._block_moments import Moments
from icltheory.regression.flows import Trajectory, can_learn, minus_gradient
from icltheory.regression.population import LinearPopulation

__all__ = ["descend"]


@calculator(
    compiled=False,
    static=("steps", "batch_size", "record_every"),
    integers=("num_examples",),
    population=can_learn,
    num_examples=count(1),
    step_size=scalar & positive,
)
def descend(
    model: Any,
    population: LinearPopulation,
    num_examples: Any,
    step_size: Any,
    steps: int,
    *,
    key: PRNGKey | None = None,
    batch_size: int | None = None,
    record_every: int = 1,
) -> Trajectory:
    r"""Gradient descent on the exact risk, or with a key on fresh prompts.

    .. math:: \theta_{k+1} = \theta_k - \eta \nabla R(\theta_k) , \qquad
        \theta_{k+1} = \theta_k - \frac{\eta}{B} \sum_{i=1}^{B} \nabla
        \bigl( f_\theta(X_i, y_i, x_i) - y_i^{query} \bigr)^2 , \qquad t_k = \eta k.

    The first is Euler's method for ``flow``: it follows the flow to first order in eta,
    and diverges where eta exceeds 2 over the largest curvature on its way. The second
    has the same mean step; step k draws its prompts from the key folded with k. Risks
    are exact either way. ``succeeded`` says that the end is finite.

    Args:
        model: The start: a GDBeta, LSA, LTB, EffectiveParameters or AttentionWeights.
        population: The population.
        num_examples: Examples M >= 1.
        step_size: eta > 0.
        steps: A multiple of ``record_every``.
        key: Random key of the prompts.
        batch_size: Prompts B a step, with a key.
        record_every: Steps between two entries of the trajectory.

    Example:
        >>> from icltheory.regression import GDBeta
        >>> task = LinearPopulation.isotropic(2)
        >>> start = GDBeta(jnp.ones(2), jnp.zeros((2, 2)))
        >>> path = descend(start, task, 3, 0.1, 200, record_every=100)
        >>> path.times.tolist(), path.excess.round(4).tolist()
        ([0.0, 10.0, 20.0], [3.0, 0.0, 0.0])
        >>> path = descend(start, task, 3, 0.01, 500, key=jax.random.key(0),
        ...                batch_size=32, record_every=500)
        >>> float(path.excess[0]), bool(path.excess[1] < 0.1)
        (3.0, True)

    Source: Zhang, Wu and Bartlett (2024), Section 6 and Theorem 6.3.
    """
    check_steps(steps, record_every)
    dtype = jnp.result_type(float, model.dtype, population.dtype)
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model)
    eta, sizes = jnp.asarray(step_size, dtype), (steps, record_every)
    if key is None and batch_size is None:
        return _on_the_risk(start, population, num_examples, eta, *sizes)
    if key is None:
        raise ValueError("key: expected one with batch_size, got None")
    check_positive_int("batch_size", batch_size)
    check_positive_int("num_examples", num_examples)
    return _on_prompts(start, population, key, eta, *sizes, num_examples, batch_size)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _on_the_risk(start, population, num_examples, eta, steps, every) -> Trajectory:
    moments = Moments.of(population, jnp.asarray(num_examples, eta.dtype))

    def gradient(model, _):
        return jax.tree.map(jnp.negative, minus_gradient(model, moments))

    return _path(gradient, start, population, num_examples, eta, steps, every)


@functools.partial(jax.jit, static_argnums=(4, 5, 6, 7))
def _on_prompts(
    start, population, key, eta, steps, every, num_examples, batch_size
) -> Trajectory:
    def loss(model, prompt):
        answers = jax.vmap(model.answer)(prompt.X, prompt.y, prompt.x_query)
        return jnp.mean((answers - prompt.y_query) ** 2)

    def gradient(model, k):
        own = jax.random.fold_in(key, k)
        return jax.grad(loss)(model, population.sample(own, num_examples, batch_size))

    return _path(gradient, start, population, num_examples, eta, steps, every)


def _path(gradient, start, population, num_examples, eta, steps, every) -> Trajectory:
    def slope(model, step):
        return (), gradient(model, step)

    models = run(slope, start, PlainRule(eta), steps, every).params
    finite = [jnp.all(jnp.isfinite(leaf[-1])) for leaf in jax.tree.leaves(models)]
    times = eta * jnp.arange(0, steps + 1, every)
    done = jnp.all(jnp.stack(finite)), jnp.asarray(steps)
    return Trajectory.of(models, population, num_examples, times, *done)
