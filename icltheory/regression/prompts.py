"""Prompts: labelled examples, a query, and the task that generated them."""

from typing import Any

import jax.numpy as jnp

from icltheory._core import Record
from icltheory._typing import Array, Float


class PrefixPrompt(Record):
    r"""A batch of prompts with one query per prefix (Garg et al. 2022, Section 2).

    .. math:: \hat y_k = f(x^{query}_k \mid x_1, y_1, \dots, x_k, y_k),
        \qquad k = 0, \dots, P - 1.

    In a standard prompt the query after k examples is the next example; in a shifted
    one it may be any point. ``w`` holds the parameters of the tasks, an array or a
    pytree.

    Example:
        >>> X, y = jnp.eye(3)[None], jnp.ones((1, 3))
        >>> PrefixPrompt(X, y, X, y, jnp.ones((1, 3))).num_points
        3

    Source: Garg et al. (2022), Sections 2 and 4.
    """

    X: Float[Array, "*B P d"]
    y: Float[Array, "*B P"]
    X_query: Float[Array, "*B P d"]
    y_query: Float[Array, "*B P"]
    w: Any

    @property
    def num_points(self) -> int:
        """Number of prefixes, k = 0 to ``num_points - 1``."""
        return self.X.shape[-2]

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return self.X.shape[-1]

    def after(self, k: int) -> "Prompt":
        """The prompts of the first k examples and the query after them."""
        query = self.X_query[..., k, :], self.y_query[..., k]
        return Prompt(self.X[..., :k, :], self.y[..., :k], *query, self.w)


class Prompt(Record):
    r"""A batch of prompts with one query after all N examples.

    .. math:: (x_1, y_1, \dots, x_N, y_N, x_{query}) \mapsto y_{query}.

    Labels have their noise; ``w`` is as in :class:`PrefixPrompt`.

    Example:
        >>> prompt = Prompt(jnp.eye(3), jnp.ones(3), jnp.ones(3), jnp.array(3.0), None)
        >>> [a.shape for a in prompt.points()]
        [(4, 3), (4,)]

    Source: Garg et al. (2022), Section 2.
    """

    X: Float[Array, "*B N d"]
    y: Float[Array, "*B N"]
    x_query: Float[Array, "*B d"]
    y_query: Float[Array, "*B"]
    w: Any

    @property
    def num_examples(self) -> int:
        """Number of labelled examples N."""
        return self.X.shape[-2]

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return self.X.shape[-1]

    def points(self) -> tuple[Float[Array, "*B P d"], Float[Array, "*B P"]]:
        """Examples with the query appended as the last point, P = N + 1."""
        X = jnp.concatenate([self.X, self.x_query[..., None, :]], axis=-2)
        y = jnp.concatenate([self.y, self.y_query[..., None]], axis=-1)
        return X, y

    def tokens(self) -> tuple[Float[Array, "*B N n"], Float[Array, "*B n"]]:
        r"""``H`` and ``h_query``: :math:`[x_i;\, y_i]`, :math:`[x_{N+1};\, 0]`."""
        H = jnp.concatenate([self.X, self.y[..., None]], axis=-1)
        empty = jnp.zeros_like(self.x_query[..., :1])
        return H, jnp.concatenate([self.x_query, empty], axis=-1)

    def prefixes(self) -> PrefixPrompt:
        """The standard prefix prompt, whose point k is the query after k examples."""
        X, y = self.points()
        return PrefixPrompt(X, y, X, y, self.w)
