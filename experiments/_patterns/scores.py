"""Errors, margins and attention of trained one-layer models on fresh prompts."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from experiments._patterns.ensemble import TrainedEnsemble
from icltheory.patterns import PatternPrompt, PatternTask, Scores, all_tasks, scores

# Purposes of keys (see ``PatternEnsemble.keys``).
_IN_DOMAIN, _SHIFTED = 3, 4


class Means(NamedTuple):
    """Means over prompts, with any leading axes.

    Attributes:
        hinge: Hinge loss.
        error: 0-1 error.
        margin: Margin z F.
        attention: Attention on contexts that share the query's pattern, first layer.
        missed: Share of prompts without such a context.
    """

    hinge: Float[Array, "*S"]
    error: Float[Array, "*S"]
    margin: Float[Array, "*S"]
    attention: Float[Array, "*S"]
    missed: Float[Array, "*S"]


def means_of(found: Scores) -> Means:
    """Returns the means of scores over prompts."""
    return Means(
        found.hinge,
        found.error,
        found.margin,
        found.attention_mass[..., 0],
        found.miss_rate,
    )


def over_seeds(
    function: Callable[..., Any], trained: TrainedEnsemble, *args: Any
) -> Any:
    """Applies ``function(task, params, *arg)`` to every seed in one compiled program.

    Args:
        function: What to apply.
        trained: The models.
        *args: Further arguments, each with a leading axis of seeds.

    Returns:
        The results, stacked.
    """
    return jax.jit(jax.vmap(function))(trained.tasks, trained.params, *args)


def scores_on(
    trained: TrainedEnsemble,
    num_prompts: int,
    *,
    num_examples: int = 20,
    relevant_fraction: float = 0.8,
    unseen: bool = True,
) -> Scores:
    """Returns in-domain scores on unseen or on training tasks, (seeds, prompts).

    Args:
        trained: The models.
        num_prompts: Prompts a seed.
        num_examples: Contexts l.
        relevant_fraction: alpha'.
        unseen: Whether the tasks are those that training left out.

    Returns:
        The scores.
    """

    def one(task, params, key):
        asked = (task.held_out() if unseen else task).with_(
            relevant_fraction=relevant_fraction
        )
        prompt = asked.sample(key, num_examples, num_prompts)
        return scores(trained.model, params, prompt)

    return over_seeds(one, trained, trained.ensemble.keys(_IN_DOMAIN))


def scores_on_all(
    trained: TrainedEnsemble, num_prompts: int, *, num_examples: int = 20
) -> tuple[Scores, Array]:
    """Returns scores on prompts of all tasks, (seeds, prompts), and which are unseen.

    alpha' is 0.8. Trainings on different tasks share the program.

    Args:
        trained: The models.
        num_prompts: Prompts a seed.
        num_examples: Contexts l.

    Returns:
        The scores, and whether training left out the prompt's task.
    """
    M = trained.ensemble.num_relevant
    found, pair = _on_all(
        trained.model,
        num_prompts,
        num_examples,
        with_all_tasks(trained),
        trained.params,
        trained.ensemble.keys(_IN_DOMAIN),
        0.8,
    )
    seen = jnp.asarray([a * M + b for a, b in trained.tasks.tasks])
    return found, ~jnp.isin(pair[..., 0] * M + pair[..., 1], seen)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _on_all(model, num_prompts, num_examples, *arrays) -> tuple[Scores, Array]:
    *stacked, relevant_fraction = arrays

    def one(task, params, key):
        asked = task.with_(relevant_fraction=relevant_fraction)
        prompt = asked.sample(key, num_examples, num_prompts)
        return scores(model, params, prompt), prompt.pair

    return jax.vmap(one)(*stacked)


def shifted_prompts(
    task: Any,
    key: Any,
    coefficient_sum: Any,
    num_prompts: int,
    num_examples: int,
    relevant_fraction: Any,
) -> PatternPrompt:
    """Draws out-of-domain prompts with a freshly drawn shift."""
    first, second = jax.random.split(key)
    shifted = task.out_of_domain(coefficient_sum, key=first)
    shifted = shifted.with_(relevant_fraction=relevant_fraction)
    return shifted.sample(second, num_examples, num_prompts)


def scores_at_sums(
    trained: TrainedEnsemble,
    sums: Sequence[float],
    num_draws: int,
    num_prompts: int,
    *,
    num_examples: int = 20,
    relevant_fraction: float = 0.8,
) -> Means:
    """Returns out-of-domain means, (seeds, sums, draws), in one compiled program.

    All sums share the draws' random numbers, so that what differs is S_1 alone.

    Args:
        trained: The models.
        sums: Coefficient sums S_1, checked for M1' S_1^2 <= M1.
        num_draws: Draws of the shifted patterns.
        num_prompts: Prompts a draw.
        num_examples: Contexts l.
        relevant_fraction: alpha'.

    Returns:
        The means.

    Raises:
        ValueError: if a sum is not feasible.
    """
    check_sums(trained.ensemble, sums)
    return _at_sums(
        trained.model,
        num_draws,
        num_prompts,
        num_examples,
        with_all_tasks(trained),
        trained.params,
        trained.ensemble.keys(_SHIFTED),
        jnp.asarray(sums, jnp.float32),
        relevant_fraction,
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _at_sums(model, num_draws, num_prompts, num_examples, *arrays) -> Means:
    *stacked, sums, relevant_fraction = arrays

    def one(task, params, key):
        def at(coefficient_sum, draw):
            prompt = shifted_prompts(
                task,
                jax.random.fold_in(key, draw),
                coefficient_sum,
                num_prompts,
                num_examples,
                relevant_fraction,
            )
            return means_of(scores(model, params, prompt))

        def along(coefficient_sum):
            return jax.lax.map(lambda draw: at(coefficient_sum, draw), draws)

        return jax.lax.map(along, sums)

    draws = jnp.arange(num_draws)
    return jax.vmap(one)(*stacked)


def with_all_tasks(trained: TrainedEnsemble) -> PatternTask:
    """Returns the pattern task with all pairs of patterns as tasks."""
    return trained.tasks.with_(tasks=all_tasks(trained.ensemble.num_relevant))


def check_sums(ensemble: Any, sums: Sequence[float]) -> None:
    """Raises unless there is a sum and M1' S_1^2 <= M1 for every sum."""
    if not sums:
        raise ValueError("sums: expected at least one, got none")
    M, n = ensemble.num_relevant, ensemble.num_shifted
    for S in sums:
        if n * S**2 > M * (1 + 1e-6):
            raise ValueError(
                f"sums: expected M1' S_1^2 <= M1, got {n} * {S:g}^2 = "
                f"{n * S**2:g} > {M}"
            )
