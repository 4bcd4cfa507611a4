"""Finite training pools: a fixed set of tasks, or a fixed set of prompts."""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_key, check_positive_int, is_tracer
from icltheory._typing import Array, Float, Int, PRNGKey
from icltheory.regression.prompts import Prompt
from icltheory.regression.sources import Source


class _Wrapped(Source):
    """Base class that wraps another task family."""

    task: eqx.AbstractVar[Any]

    @property
    def dim(self) -> int:
        return self.task.dim

    @property
    def dtype(self) -> Any:
        return self.task.dtype

    @property
    def targets(self) -> str:
        return self.task.targets

    def sample_inputs(self, key, num_points, num_prompts) -> Float[Array, "B P d"]:
        """Draws inputs of the task."""
        return self.task.sample_inputs(key, num_points, num_prompts)

    def evaluate(self, w: Any, X: Float[Array, "B P d"]) -> Float[Array, "B P"]:
        return self.task.evaluate(w, X)

    def label(self, key, w, X) -> tuple[Float[Array, "B P"], Any]:
        return self.task.label(key, w, X)


class TaskPool(_Wrapped):
    r"""Prompts whose task is drawn from a fixed pool of M tasks.

    .. math:: w \sim \mathrm{Uniform}\{w_1, \dots, w_M\}, \qquad
        x, \text{noise as in the underlying family}.

    Garg's finite pools draw a batch without replacement, which needs M >= B. Either
    ``pool_size`` tasks are drawn with ``key``, or ``pool`` is an (M, d) array, or the
    family's pytree of parameters with a leading axis M.

    Example:
        >>> from icltheory.regression import LinearPopulation
        >>> pool = TaskPool(LinearPopulation.isotropic(2), 3, jax.random.key(0))
        >>> prompt = pool.sample(jax.random.key(1), 5, 100)
        >>> pool.pool.shape, jnp.unique(prompt.w, axis=0).shape
        ((3, 2), (3, 2))

    Source: Raventos et al. (2023), Section 2; Garg et al. (2022), Section 6.
    """

    task: Any
    pool_size: int = eqx.field(static=True)
    pool: Any
    replace: bool = eqx.field(static=True)

    def __init__(
        self,
        task: Any,
        pool_size: int | None = None,
        key: PRNGKey | None = None,
        pool: Any = None,
        replace: bool = True,
    ):
        parts = {"pool_size": pool_size, "key": key, "pool": pool}
        given = [name for name, part in parts.items() if part is not None]
        if (pool is None) != (key is not None and pool_size is not None):
            raise ValueError(
                "pool: expected either pool_size and key, or pool, got "
                f"{' and '.join(given) or 'none of them'}"
            )
        if pool is None:
            check_positive_int("pool_size", pool_size)
            pool = task.sample_parameters(key, pool_size)
        else:
            self._check(task, pool_size, pool)
        self.task, self.replace = task, replace
        self.pool = jax.tree.map(jnp.asarray, pool)
        self.pool_size = jax.tree.leaves(self.pool)[0].shape[0]

    @staticmethod
    def _check(task, pool_size, pool) -> None:
        """Raises unless these are so many members of the family."""
        sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(pool)}
        if len(sizes) != 1 or not (size := max(sizes)):
            raise ValueError(f"pool: expected one leading axis, got {sorted(sizes)}")
        if size[0] < 1:
            raise ValueError("pool: expected at least one member, got none")
        draw = lambda key: task.sample_parameters(key, 1)  # noqa: E731
        drawn = jax.eval_shape(draw, jax.random.key(0))
        expected, got = (
            ", ".join(str(np.shape(leaf)[1:]) for leaf in jax.tree.leaves(tree))
            for tree in (drawn, pool)
        )
        if expected != got:
            raise ValueError(f"pool: expected members of shape {expected}, got {got}")
        if pool_size not in (None, size[0]):
            expected = f"{size[0]} as in pool"
            raise ValueError(f"pool_size: expected {expected}, got {pool_size}")

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Any:
        size = jax.tree.leaves(self.pool)[0].shape[0]
        index = draw_indices(key, size, num_prompts, self.replace)
        return jax.tree.map(lambda leaf: leaf[index], self.pool)


class PromptPool(_Wrapped):
    r"""Prompts drawn from a fixed set of M prompts, generated when needed.

    .. math:: \text{prompt}_i = \text{sample}(\text{fold\_in}(key, i)), \qquad
        i \sim \mathrm{Uniform}\{0, \dots, M - 1\}.

    A batch is drawn without replacement, unless ``replace``, which needs M >= B.

    Example:
        >>> from icltheory.regression import LinearPopulation
        >>> task = LinearPopulation.isotropic(2)
        >>> pool = PromptPool(task, 4, jax.random.key(0))
        >>> first, second = (pool.sample(jax.random.key(k), 3, 4).y for k in (1, 2))
        >>> bool((jnp.sort(first[:, 0]) == jnp.sort(second[:, 0])).all())
        True

    Source: Garg et al. (2022), Section 6.
    """

    task: Any
    pool_size: int = eqx.field(static=True)
    key: Any
    replace: bool = eqx.field(static=True, default=False)

    def __post_init__(self):
        check_positive_int("pool_size", self.pool_size)
        if not is_tracer(self.key):
            check_key("key", self.key)

    def sample_parameters(self, key, num_prompts, *, active_dims=None) -> Any:
        return self.sample(key, 0, num_prompts, active_dims=active_dims).w

    def sample(self, key, num_examples, num_prompts, *, active_dims=None) -> Prompt:
        check_key("key", key)
        check_positive_int("num_prompts", num_prompts)
        index = draw_indices(key, self.pool_size, num_prompts, self.replace)

        def draw(i):
            one = jax.random.fold_in(self.key, i)
            prompt = self.task.sample(one, num_examples, 1, active_dims=active_dims)
            return jax.tree.map(lambda leaf: leaf[0], prompt)

        return jax.vmap(draw)(index)


def draw_indices(
    key: PRNGKey, size: int, num_prompts: int, replace: bool
) -> Int[Array, " B"]:
    """Draws uniform indices into a pool, distinct ones without replacement.

    In a pool much larger than the batch, indices that repeat an earlier one are drawn
    again until none does, so that the cost does not grow with the pool.
    """
    if replace:
        return jax.random.randint(key, (num_prompts,), 0, size)
    if num_prompts > size:
        raise ValueError(
            f"num_prompts: expected at most the pool's {size} members without "
            f"replacement, got {num_prompts}"
        )
    if size < 4 * num_prompts:
        return jax.random.choice(key, size, (num_prompts,), replace=False)

    def redraw(state):
        index, repeated, tries = state
        fresh = jax.random.fold_in(key, tries)
        drawn = jax.random.randint(fresh, (num_prompts,), 0, size)
        index = jnp.where(repeated, drawn, index)
        order = jnp.argsort(index, stable=True)
        ranked = index[order]
        again = jnp.append(False, ranked[1:] == ranked[:-1])
        return index, jnp.zeros_like(repeated).at[order].set(again), tries + 1

    start = (jnp.zeros(num_prompts, int), jnp.ones(num_prompts, bool), 0)
    return jax.lax.while_loop(lambda state: jnp.any(state[1]), redraw, start)[0]
