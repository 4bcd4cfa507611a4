"""Pattern transformers in the form that supersample bounds evaluate."""

from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Float, PRNGKey
from icltheory.layered import forward
from icltheory.patterns.task import PatternTask

__all__ = ["PatternLearner", "PatternSampler"]


@pytree
class PatternLearner:
    r"""A pattern transformer as a function of contexts, their labels and a query.

    .. math:: (X, y, x_{query}) \mapsto F(p_1, \dots, p_l, p_{query}) , \qquad
        p_i = (x_i;\, y_i q) , \quad p_{query} = (x_{query};\, 0) .

    Args:
        model: The layered model.
        params: Its parameters.
        label_embedding: The vector q of the task, ``(d_Y,)``.

    Returns:
        A callable for :func:`icltheory.bounds.supersample_losses`.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTask, PatternTransformer
        >>> task, model = PatternTask(6, 24, 2.0), PatternTransformer(64)
        >>> params = model.init(jax.random.key(0), task)
        >>> learner = PatternLearner(model, params, task.label_embedding)
        >>> learner(jnp.ones((20, 30)), jnp.ones(20), jnp.ones(30)).shape
        ()

    Source: Li et al. (2024), equations (6) and (7).
    """

    model: Any = static_field()
    params: Any
    label_embedding: Any

    def __call__(
        self, X: Float[Array, "l d"], y: Float[Array, "l"], x_query: Float[Array, "d"]
    ) -> Float[Array, ""]:
        """The output for one query."""
        q = jnp.asarray(self.label_embedding)
        P = jnp.concatenate([X, y[:, None] * q[None]], axis=1)
        return forward(self.model, self.params, (P, jnp.concatenate([x_query, 0 * q])))


@pytree
class PatternSampler:
    r"""Samples contexts of a pattern task as points, with one task per prompt.

    Each prompt has one task (a, b), and its points are drawn as the contexts of
    :meth:`PatternTask.sample` are.

    Args:
        task: The task.
        relevant_fraction: The fraction alpha of relevant contexts.

    Returns:
        A callable for :func:`icltheory.bounds.supersample_losses`.

    Example:
        >>> import jax
        >>> from icltheory.patterns import PatternTask
        >>> sampler = PatternSampler(PatternTask(6, 24, 2.0), 0.8)
        >>> X, y = sampler(jax.random.key(0), 8, 5)
        >>> X.shape, y.shape
        ((5, 8, 30), (5, 8))

    Source: Li et al. (2024), equation (6).
    """

    task: PatternTask
    relevant_fraction: float | Real[ArrayLike, ""] = 0.8

    def __call__(
        self, key: PRNGKey, num_points: int, batch_size: int
    ) -> tuple[Float[Array, "B P d"], Float[Array, "B P"]]:
        """Draws features and labels."""
        prompt = self.task.sample(key, batch_size, num_points, self.relevant_fraction)
        return prompt.X, prompt.y
