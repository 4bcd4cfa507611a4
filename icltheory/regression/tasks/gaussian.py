"""Other functions of a Gaussian weight vector by Garg: noisy, quadratic, sign."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int, check_scalar
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression._linalg import Number
from icltheory.regression.tasks._regression_task import (
    RegressionTask,
    add_noise,
    inner_products,
    set_dtype,
)

__all__ = ["LinearClassification", "NoisyLinearRegression", "QuadraticRegression"]


def unit_scale(y: Array, dim: int) -> Array:
    """Factor that rescales the labels of a batch to variance d."""
    if y.size < 2:
        raise ValueError(
            "batch_size: expected two labels or more in a batch that is rescaled to "
            "its own variance, got 1"
        )
    return math.sqrt(dim) / jnp.std(y, ddof=1)


class _GaussianWeights(RegressionTask):
    def sample_parameters(
        self, key: PRNGKey, batch_size: int, *, active_dims: Any = None
    ) -> Float[Array, "B d"]:
        """Draws weights from N(0, I); ``active_dims`` is ignored."""
        return jax.random.normal(key, (batch_size, self.dim), self.dtype)


@pytree
class NoisyLinearRegression(_GaussianWeights):
    r"""Linear regression with noisy labels, optionally rescaled.

    .. math:: y = c\,(\langle w, x\rangle + \epsilon), \ \epsilon \sim N(0, \sigma^2),
        \quad c = 1 \text{ or } \sqrt d / \mathrm{std}(\langle w, x\rangle + \epsilon).

    The standard deviation is taken, with divisor BP - 1, over all points of the whole
    batch as in Garg's code, so a label depends on the rest of its batch. The ``w`` of
    a prompt is c w: the weight that its labels belong to.

    Args:
        dim: Input dimension d.
        noise_var: Noise variance sigma^2; 1 in the paper.
        renormalize: Whether the labels are rescaled to variance d.
        dtype: Type of the samples; None is JAX's default float type.

    Returns:
        A task.

    Raises:
        ValueError: If the noise variance is negative, or a single label is to be
            rescaled.

    Example:
        >>> task = NoisyLinearRegression(4, 1.0, renormalize=True)
        >>> prompt = task.sample(jax.random.key(0), num_examples=9, batch_size=50)
        >>> round(float(prompt.points()[1].var(ddof=1)), 6)
        4.0

    References:
        Garg, Tsipras, Liang and Valiant, "What Can Transformers Learn In-Context?"
        (2022), Section 4. Verified by ``tests/regression/test_tasks.py``.
    """

    dim: int = static_field()
    noise_var: Number = 1.0
    renormalize: bool = static_field(default=False)
    dtype: Any = static_field(default=None)

    def __post_init__(self):
        check_positive_int("dim", self.dim)
        check_scalar("noise_var", self.noise_var)
        set_dtype(self)

    def evaluate(
        self, w: Float[Array, "B d"], X: Float[Array, "B P d"]
    ) -> Float[Array, "B P"]:
        """<w, x>, without noise."""
        return inner_products(w, X)

    def label(
        self, key: PRNGKey, w: Float[Array, "B d"], X: Float[Array, "B P d"]
    ) -> tuple[Float[Array, "B P"], Float[Array, "B d"]]:
        """Returns noisy labels with their weights."""
        y = add_noise(key, self.evaluate(w, X), self.noise_var)
        if not self.renormalize:
            return y, w
        scale = unit_scale(y, self.dim)
        return scale * y, scale * w


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

    Raises:
        ValueError: If ``dim`` is not a positive integer.

    Example:
        >>> prompt = QuadraticRegression(2).sample(jax.random.key(0), 3, 1)
        >>> squares = (prompt.X**2).sum(-1) / 3**0.5
        >>> bool(jnp.allclose(prompt.y, (prompt.X**2 @ prompt.w[0]) / 3**0.5))
        True

    References:
        Garg, Tsipras, Liang and Valiant, "What Can Transformers Learn In-Context?"
        (2022), published code. Verified by ``tests/regression/test_tasks.py``.
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

    Raises:
        ValueError: If ``dim`` is not a positive integer.

    Example:
        >>> task = LinearClassification(3)
        >>> task.targets, jnp.unique(task.sample(jax.random.key(0), 9, 9).y).tolist()
        ('sign', [-1.0, 1.0])

    References:
        Garg, Tsipras, Liang and Valiant, "What Can Transformers Learn In-Context?"
        (2022), published code. Verified by ``tests/regression/test_tasks.py``.
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
