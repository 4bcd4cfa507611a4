"""The data of Li et al.: relevant and irrelevant patterns, tasks, prompts."""

import copy
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_key, check_positive_int, check_shape
from icltheory._noted import check_finite, check_nonnegative, check_positive
from icltheory._precision import exact_products
from icltheory._pytree import pytree, static_field
from icltheory._typing import PRNGKey
from icltheory.patterns import _draw
from icltheory.patterns._rotation import random_orthogonal
from icltheory.patterns.prompts import PatternPrompt
from icltheory.patterns.shift import is_feasible, out_of_domain_patterns
from icltheory.patterns.task_sets import (
    all_tasks,
    held_out_tasks,
    read_tasks,
)

__all__ = ["PatternTask"]

Number = float | int | Real[ArrayLike, ""]


@pytree
class PatternTask:
    r"""In-context binary classification of noisy patterns (Li et al., 2024).

    .. math:: x = \mu_j + \kappa \nu_k , \qquad \kappa \sim U(-K, K) , \qquad
        \langle \mu_i, \mu_j \rangle = \beta^2 \delta_{ij} , \quad
        \langle \nu_i, \nu_j \rangle = \beta^2 \delta_{ij} , \quad
        \langle \mu_i, \nu_j \rangle = 0 .

    A task (a, b) is +1 on the relevant pattern mu_a, -1 on mu_b, and a fair coin on the
    others. The query is of mu_a or mu_b, with equal odds. A context is of mu_a or mu_b
    with probability alpha / 2 each, of each other pattern with (1 - alpha) / (M1 - 2).
    The norm beta and K <= 1/2 are recollections of the paper, not read off it.

    Out of domain, relevant patterns are those of :func:`out_of_domain_patterns`, and
    irrelevant ones a rotation within their span.

    Args:
        num_relevant: Number M1 >= 2 of relevant patterns.
        num_irrelevant: Number M2 of irrelevant patterns.
        scale: Their norm beta.
        noise: The bound K on kappa.
        tasks: Ordered pairs (a, b) that prompts are drawn from; all M1 (M1 - 1) of them
            if left out.
        num_shifted: Number M1' of out-of-domain patterns, 2 or more; M1 // 2 if left
            out, or 2.
        dim: Width d_X >= M1 + M2 of the features; M1 + M2 if left out.
        label_dim: Width d_Y of the label embedding; d_X if left out.
        dtype: Type of the prompts; None is JAX's default float type.
        relevant: The patterns mu_j, ``(M1, d_X)``, used as they are; drawn if left out,
            orthogonal to the irrelevant ones.
        irrelevant: The patterns nu_k, ``(M2, d_X)``, likewise.
        label_embedding: The unit vector q, ``(d_Y,)``, drawn if left out.
        feasible: Whether the patterns exist as asked for; see
            :meth:`out_of_domain`.
        key: Typed key or seed of what is drawn: orthogonal patterns from the Haar
            measure, q uniform on the sphere.

    Returns:
        A frozen pytree; stacks of them, over seeds or shifts, come from ``jax.vmap``.

    Example:
        >>> from icltheory.patterns import circulant_tasks
        >>> task = PatternTask(6, 24, 2.0, tasks=circulant_tasks(6, [1, 2, 3]))
        >>> unseen = task.held_out()
        >>> len(task.tasks), len(unseen.tasks), task.relevant.shape
        (18, 12, (6, 30))
        >>> prompt = unseen.sample(jax.random.key(1), 5, 20, 0.8)
        >>> prompt.P.shape, prompt.z.shape
        ((5, 20, 60), (5,))

    Source: Li et al. (2024), data and tasks.
    """

    num_relevant: int = static_field()
    num_irrelevant: int = static_field()
    scale: Number
    noise: Number = 0.5
    tasks: Any = static_field(default=None)
    num_shifted: Any = static_field(default=None)
    dim: Any = static_field(default=None)
    label_dim: Any = static_field(default=None)
    dtype: Any = static_field(default=None)
    relevant: Any = None
    irrelevant: Any = None
    label_embedding: Any = None
    feasible: Any = True
    key: dataclasses.InitVar[Any] = 0

    @exact_products
    def __post_init__(self, key):
        M1, M2 = self.num_relevant, self.num_irrelevant
        check_positive_int("num_irrelevant", M2)
        tasks = all_tasks(M1) if self.tasks is None else read_tasks(M1, self.tasks)
        dtype = jnp.result_type(float if self.dtype is None else self.dtype)
        self._set(tasks=tasks, dtype=np.dtype(dtype))
        self._fill(num_shifted=max(2, M1 // 2), dim=M1 + M2)
        self._fill(label_dim=self.dim)
        self._check()
        seeded = isinstance(key, int | np.integer)
        self._draw(jax.random.key(key) if seeded else key)

    def _set(self, **values):
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _fill(self, **defaults):
        missing = {k: v for k, v in defaults.items() if getattr(self, k) is None}
        self._set(**missing)

    def _check(self):
        for name in ("num_shifted", "dim", "label_dim"):
            check_positive_int(name, getattr(self, name))
        if self.dim < self.num_relevant + self.num_irrelevant:
            raise ValueError(
                f"dim: expected d_X >= M1 + M2 = "
                f"{self.num_relevant + self.num_irrelevant}, got {self.dim}"
            )
        if self.num_shifted < 2:
            raise ValueError(f"num_shifted: expected >= 2, got {self.num_shifted}")
        check_positive("scale", self.scale)
        check_nonnegative("noise", self.noise)

    def _draw(self, key):
        M1, own = self.num_relevant, jax.random.split(key)
        counts = {"relevant": M1, "irrelevant": self.num_irrelevant}
        given = [name for name in counts if getattr(self, name) is not None]
        if len(given) < 2:
            basis = random_orthogonal(own[0], self.dim, self.dtype)
            if given:
                first = jnp.asarray(getattr(self, given[0]), self.dtype)
                check_shape(given[0], first, (counts[given[0]], self.dim))
                check_finite(given[0], first)
                # Gram and Schmidt's method leaves the first ones' span to them.
                both = jnp.concatenate([first, basis]).T
                basis = jnp.roll(jnp.linalg.qr(both)[0].T, -len(first), axis=0)
            basis = jnp.asarray(self.scale, self.dtype) * basis
            for name, count in counts.items():
                if name not in given:
                    self._set(**{name: basis[:count]})
                    basis = basis[count:]
        if self.label_embedding is None:
            q = jax.random.normal(own[1], (self.label_dim,), self.dtype)
            self._set(label_embedding=q / jnp.linalg.norm(q))
        shapes = {
            "relevant": (M1, self.dim),
            "irrelevant": (self.num_irrelevant, self.dim),
            "label_embedding": (self.label_dim,),
        }
        for name, shape in shapes.items():
            value = jnp.asarray(getattr(self, name), self.dtype)
            check_shape(name, value, shape)
            check_finite(name, value)
            self._set(**{name: value})
        self._set(feasible=jnp.asarray(self.feasible))

    @property
    def width(self) -> int:
        """Width d_X + d_Y of a token."""
        return self.dim + self.label_dim

    def with_tasks(self, tasks: Any) -> "PatternTask":
        """Returns the same patterns with other tasks; also works for stacked patterns.

        Args:
            tasks: Ordered pairs (a, b).

        Returns:
            A task like this one.
        """
        made = copy.copy(self)
        made._set(tasks=read_tasks(self.num_relevant, tasks))
        return made

    def held_out(self) -> "PatternTask":
        r"""Returns the same patterns with the unseen tasks, :math:`T \setminus T_{tr}`.

        Returns:
            A task like this one.

        Source: Li et al. (2024), equation (9).
        """
        return self.with_tasks(held_out_tasks(self.num_relevant, self.tasks))

    @exact_products
    def out_of_domain(
        self, key: PRNGKey, coefficient_sum: Number, *, tasks: Any = None
    ) -> "PatternTask":
        r"""Draws shifted patterns: M1' relevant ones, and rotated irrelevant ones.

        .. math:: \mu'_j = \sum_i k_{ji} \mu_i , \quad \sum_i k_{ji} = S_1 , \qquad
            \nu' = O \nu .

        Args:
            key: Random key of the draw.
            coefficient_sum: :math:`S_1`; may be traced.
            tasks: Pairs of the new patterns; all M1' (M1' - 1) if left out.

        Returns:
            A task whose relevant patterns are the new ones. Where a traced sum is not
            feasible, ``feasible`` says so, there and on each of its prompts.

        Source: Li et al. (2024), Theorem 2.
        """
        check_key("key", key)
        own, num = jax.random.split(key), self.num_shifted
        rotation = random_orthogonal(own[1], self.num_irrelevant, self.dtype)
        return PatternTask(
            num,
            self.num_irrelevant,
            self.scale,
            self.noise,
            tasks,
            num,
            self.dim,
            self.label_dim,
            self.dtype,
            out_of_domain_patterns(self.relevant, num, coefficient_sum, own[0]),
            rotation @ self.irrelevant,
            self.label_embedding,
            is_feasible(self.num_relevant, num, coefficient_sum),
        )

    def sample(
        self,
        key: PRNGKey,
        batch_size: int,
        num_examples: int,
        relevant_fraction: Number,
        coefficient_sum: Number | None = None,
    ) -> PatternPrompt:
        r"""Draws prompts, out of domain if a coefficient sum is given.

        All prompts of an out-of-domain batch share one draw of shifted patterns.

        Args:
            key: Random key.
            batch_size: Number B of prompts.
            num_examples: Number l of contexts; may be 0.
            relevant_fraction: alpha in training, alpha' in a test; in [0, 1], and 1 if
                there are two patterns only. May be traced.
            coefficient_sum: :math:`S_1`; may be traced.

        Returns:
            The prompts.

        Source: Li et al. (2024), equation (6).
        """
        check_key("key", key)
        if coefficient_sum is None:
            return _draw.prompts(self, key, batch_size, num_examples, relevant_fraction)
        first, second = jax.random.split(key)
        shifted = self.out_of_domain(first, coefficient_sum)
        return shifted.sample(second, batch_size, num_examples, relevant_fraction)
