"""Distribution shifts and finite pools: how evaluation and training draw prompts.

A setting of one's own is any function ``(key, num_points, batch_size)`` that returns a
:class:`PrefixPrompt`.
"""
# ruff: noqa: D102  (a method that overrides one inherits its documentation)

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    check_choice,
    check_integer,
    check_key,
    check_positive_int,
    is_tracer,
)
from icltheory._core import Record
from icltheory._typing import Array, Float, Int, PRNGKey
from icltheory.regression._linalg import default_dtype, einsum
from icltheory.regression.sources import PrefixPrompt, Prompt, Source

__all__ = ["EXTRA_SHIFTS", "GARG_SHIFTS", "Shift", "garg_shifts"]

_SCALES = (0.333, 0.5, 2.0, 3.0)
GARG_SHIFTS = (
    "standard",
    "random_quadrants",
    "orthogonal_train_test",
    "overlapping_train_test",
    "half_subspace",
    "skewed",
    *(f"scale-{side}={scale:g}" for side in "xy" for scale in _SCALES),
    "noisyLR",
)
EXTRA_SHIFTS = ("opposite_quadrants",)


class Shift(Record):
    r"""One evaluation setting: a sampler of prefix prompts and its normaliser.

    .. math:: (x_i)_i \sim D, \quad w \sim N(0, I), \quad y_i = \langle w, x_i\rangle,
        \quad x^{query}_k \sim D'(x_1, \dots, x_k).

    Calling it as ``shift(key, num_points, batch_size)`` draws prompts; ``error /
    normalizer`` is the normalised error of Garg's figures, in which the zero predictor
    has 1. It holds no arrays and is hashable. In ``standard``, x ~ N(0, I) and query k
    is example k + 1. The other settings differ as follows.

    * ``random_quadrants``: the signs of the examples are one pattern a prompt, those
      of the queries are free. ``opposite_quadrants``: query k is minus what example
      k + 1 would be.
    * ``orthogonal_train_test``: query k is the part of the next input orthogonal to the
      first k examples, at the length of that input; it is 0 from k = d on.
    * ``overlapping_train_test``: query k >= 1 is one of the first k examples.
    * ``half_subspace``, ``skewed``: x = z T with T = U diag(e) U', U a random rotation
      that all prompts of a call share, e = (1 on d // 2 places) or e_i = 1 / i, scaled
      to |e|^2 = d. The covariance therefore has eigenvalues e_i^2, not e_i.
    * ``scale-x=s``, ``scale-y=s``: inputs, or weights, times s, for any finite number
      s > 0 as Python writes it, such as ``1e-3``.
    * ``noisyLR``: labels plus N(0, 1) noise, rescaled to variance d in the batch, with
      noisy query labels. The zero predictor then has normalised error 1; the published
      notebook draws its line at 1 + 1/d, as if the labels had not been rescaled.

    Example:
        >>> shift = Shift("scale-y=3", 20)
        >>> shift.normalizer, shift(jax.random.key(0), 41, 8).X_query.shape
        (180.0, (8, 41, 20))

    Source: Garg et al. (2022), Section 4 and the published code.
    """

    name: str = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=None)

    def __post_init__(self):
        if not _is_scaled(self.name):
            check_choice("name", self.name, (*GARG_SHIFTS, *EXTRA_SHIFTS))
        check_positive_int("dim", self.dim)
        if self.name == "half_subspace":
            check_integer("dim", self.dim, 2)
        self.dtype = default_dtype(self.dtype)

    @property
    def scale(self) -> float:
        """Factor of the inputs or labels in the scaling settings, else 1."""
        return float(self.name.split("=")[1]) if "=" in self.name else 1.0

    @property
    def normalizer(self) -> float:
        """Divisor of errors, d times scale^2."""
        return self.dim * (self.scale * self.scale)

    @property
    def num_informative(self) -> int | None:
        """Number of prefixes whose query is not 0."""
        return self.dim if self.name == "orthogonal_train_test" else None

    def __call__(self, key: PRNGKey, num_points: int, batch_size: int) -> PrefixPrompt:
        """Draws prompts with ``num_points`` prefixes each."""
        check_key("key", key)
        check_positive_int("num_points", num_points)
        check_positive_int("batch_size", batch_size)
        key_x, key_w, key_shift = jax.random.split(key, 3)
        shape = (batch_size, num_points, self.dim)
        z = jax.random.normal(key_x, shape, self.dtype)
        w = jax.random.normal(key_w, (batch_size, self.dim), self.dtype)
        X, X_query = _inputs(self, key_shift, z)
        if self.name.startswith("scale-y"):
            w = self.scale * w
        y = jnp.sum(X * w[:, None], axis=-1)
        if self.name == "noisyLR":
            if y.size < 2:
                raise ValueError("batch_size: expected two labels or more, got 1")
            y = y + jax.random.normal(key_shift, y.shape, self.dtype)
            factor = self.normalizer**0.5 / jnp.std(y, ddof=1)
            y, w = factor * y, factor * w
        y_query = y if X_query is X else jnp.sum(X_query * w[:, None], axis=-1)
        return PrefixPrompt(X, y, X_query, y_query, w)


def garg_shifts(dim: int, dtype: Any = None) -> dict[str, Shift]:
    """Returns Garg's fifteen evaluation settings for linear regression by name.

    Example:
        >>> shifts = garg_shifts(20)
        >>> len(shifts), shifts["standard"].normalizer, shifts["scale-x=2"].normalizer
        (15, 20.0, 80.0)

    Source: Garg et al. (2022), Section 4 and the published code.
    """
    return {name: Shift(name, dim, dtype) for name in GARG_SHIFTS}


def _is_scaled(name: Any) -> bool:
    """Whether a name is a scaling setting with a finite factor above 0."""
    setting, _, factor = str(name).partition("=")
    try:
        return setting in ("scale-x", "scale-y") and 0 < float(factor) < math.inf
    except ValueError:
        return False


def _inputs(shift: Shift, key: PRNGKey, z: Array) -> tuple[Array, Array]:
    """Examples and queries; one array if query k is example k + 1."""
    name, dim = shift.name, shift.dim
    if name.endswith("quadrants"):
        shape = (z.shape[0], 1, z.shape[2])
        X = jnp.abs(z) * jax.random.rademacher(key, shape, z.dtype)
        return X, z if name == "random_quadrants" else -X
    if name == "orthogonal_train_test":
        return z, _orthogonal(z)
    if name == "overlapping_train_test":
        last = jnp.maximum(jnp.arange(z.shape[1]), 1)[None]
        index = jax.random.randint(key, z.shape[:2], 0, last)
        return z, jnp.take_along_axis(z, index[:, :, None], axis=1)
    if name.startswith("scale-x"):
        z = shift.scale * z
    elif name in ("half_subspace", "skewed"):
        half = 1.0 * (np.arange(dim) < dim // 2)
        values = half if name == "half_subspace" else 1 / np.arange(1.0, dim + 1)
        z = einsum("bpi,ij->bpj", z, _transformation(key, values, z.dtype))
    return z, z


def _orthogonal(z: Array) -> Array:
    """The part of each point that is orthogonal to those before, at its length."""
    head = z[:, : z.shape[2]]
    # Column k of Q spans the part of row k that is orthogonal to the rows before it.
    Q, R = jnp.linalg.qr(jnp.swapaxes(head, 1, 2))
    side = jnp.sign(jnp.diagonal(R, axis1=1, axis2=2))[:, :, None]
    length = jnp.linalg.norm(head, axis=2, keepdims=True)
    queries = jnp.swapaxes(Q, 1, 2) * side * length
    return jnp.zeros_like(z).at[:, : head.shape[1]].set(queries)


def _transformation(key, eigenvalues, dtype) -> Float[Array, "d d"]:
    """A random symmetric matrix with these eigenvalues, scaled to |e|^2 = d."""
    dim = eigenvalues.shape[0]
    U, _ = jnp.linalg.qr(jax.random.normal(key, (dim, dim), dtype))
    scaled = eigenvalues * math.sqrt(dim / np.sum(eigenvalues**2))
    return einsum("ij,j,kj->ik", U, jnp.asarray(scaled, dtype), U)


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
