"""Other functions of a Gaussian weight vector by Garg: quadratic, sign."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression.tasks._regression_task import (
    RegressionTask,
    inner_products,
    set_dtype,
)

__all__ = ["LinearClassification", "QuadraticRegression"]


class _GaussianWeights(RegressionTask):
    def sample_parameters(
        self, key: PRNGKey, batch_size: int, *, active_dims: Any = None
    ) -> Float[Array, "B d"]:
        """Draws weights from N(0, I); ``active_dims`` is ignored."""
        return jax.random.normal(key, (batch_size, self.dim), self.dtype)


@pytree
class QuadraticRegression(_GaussianWeights):
    r"""Regression on the squares of the inputs, scaled as linear regression.

    .. math:: y = \tfrac{1}{\sqrt 3} \sum_j w_j x_j^2, \qquad w \sim N(0, I)

    whose variance is d, as E x^4 = 3 for a standard normal x.

    Args:
        dim: Input dimension d.
        dtype: Type of the samples; None is JAX's default float type.

    Returns:
        A task.

    Example:
        >>> prompt = QuadraticRegression(2).sample(jax.random.key(0), 3, 1)
        >>> squares = (prompt.X**2).sum(-1) / 3**0.5
        >>> bool(jnp.allclose(prompt.y, (prompt.X**2 @ prompt.w[0]) / 3**0.5))
        True

    Source: Garg et al. (2022), published code.
    """

    dim: int = static_field()
    dtype: Any = static_field(default=None)

    def __post_init__(self):
        check_positive_int("dim", self.dim)
        set_dtype(self)

    def evaluate(
        self, w: Float[Array, "B d"], X: Float[Array, "B P d"]
    ) -> Float[Array, "B P"]:
        """<w, x^2> / sqrt(3)."""
        return inner_products(w, X**2) / math.sqrt(3)


@pytree
class LinearClassification(_GaussianWeights):
    r"""Classification by the sign of a random linear function.

    .. math:: y = \mathrm{sign} \langle w, x\rangle \in \{-1, 0, 1\}, \ w \sim N(0, I)

    where 0 only arises for an input that is 0. ``targets`` is ``"sign"``: the loss is
    chosen with the training (Garg's is the logistic loss of (y + 1) / 2).

    Args:
        dim: Input dimension d.
        dtype: Type of the samples; None is JAX's default float type.

    Returns:
        A task.

    Example:
        >>> task = LinearClassification(3)
        >>> task.targets, jnp.unique(task.sample(jax.random.key(0), 9, 9).y).tolist()
        ('sign', [-1.0, 1.0])

    Source: Garg et al. (2022), published code.
    """

    dim: int = static_field()
    dtype: Any = static_field(default=None)

    def __post_init__(self):
        check_positive_int("dim", self.dim)
        set_dtype(self)

    @property
    def targets(self) -> str:
        """Kind of labels, here signs."""
        return "sign"

    def evaluate(
        self, w: Float[Array, "B d"], X: Float[Array, "B P d"]
    ) -> Float[Array, "B P"]:
        """Sign of <w, x>."""
        return jnp.sign(inner_products(w, X))
