"""Linear regression with any input covariance, prior and noise (Zhang et al.)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, check_shape
from icltheory._noted import check_covariance, check_finite, check_scalar
from icltheory._pytree import pytree
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression._linalg import (
    Matrix,
    Number,
    Vector,
    apply_root,
    as_floats,
    covariance_root,
    default_dtype,
)
from icltheory.regression.tasks._regression_task import NoisyLinearTask

__all__ = ["LinearRegression"]


@pytree
class LinearRegression(NoisyLinearTask):
    r"""Linear regression tasks with Gaussian inputs, prior and noise (Section 3).

    .. math:: x \sim N(0, H), \quad w \sim N(\beta^*, \Psi), \quad
        y = \langle w, x\rangle + \epsilon, \quad \epsilon \sim N(0, \sigma^2)

    for the examples and for the query alike. H and Psi may be singular. Their
    symmetric roots are found once, when the object is built; a covariance that is then
    known to be diagonal keeps only its diagonal, and sampling costs O(B N d) in place
    of O(B N d^2).

    Args:
        input_cov: Input covariance H, positive semi-definite.
        task_mean: Prior mean beta*.
        task_cov: Prior covariance Psi, positive semi-definite.
        noise_var: Noise variance sigma^2 >= 0.

    Returns:
        A task whose samples have the dtype of its arrays.

    Example:
        >>> task = LinearRegression(jnp.eye(2), jnp.ones(2), jnp.zeros((2, 2)), 0.0)
        >>> prompt = task.sample(jax.random.key(0), num_examples=3, batch_size=4)
        >>> prompt.X.shape, bool(jnp.allclose(prompt.y, prompt.X.sum(-1)))
        ((4, 3, 2), True)

    Source: Zhang, Wu and Bartlett (2024), Section 3.
    """

    input_cov: Matrix
    task_mean: Vector
    task_cov: Matrix
    noise_var: Number
    input_root: Array = dataclasses.field(init=False, repr=False)
    task_root: Array = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        check_shape("task_mean", self.task_mean, ("d",))
        dim = self.dim
        check_positive_int("dim", dim)
        check_finite("task_mean", self.task_mean)
        check_covariance("input_cov", self.input_cov, dim)
        check_covariance("task_cov", self.task_cov, dim)
        check_scalar("noise_var", self.noise_var)
        names = ("input_cov", "task_mean", "task_cov", "noise_var")
        H, mean, Psi, noise_var = as_floats(*(getattr(self, name) for name in names))
        for name, value in zip(names, (H, mean, Psi, noise_var), strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "input_root", covariance_root(H))
        object.__setattr__(self, "task_root", covariance_root(Psi))

    @classmethod
    def isotropic(
        cls, dim: int, noise_var: Number = 0.0, dtype: Any = None
    ) -> "LinearRegression":
        """Garg's task, x ~ N(0, I) and w ~ N(0, I); dtype ``None`` is JAX's default."""
        check_positive_int("dim", dim)
        dtype = default_dtype(dtype)
        eye = jnp.eye(dim, dtype=dtype)
        return cls(eye, jnp.zeros(dim, dtype), eye, jnp.asarray(noise_var, dtype))

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return np.shape(self.task_mean)[-1]

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the samples, that of the arrays."""
        return jnp.result_type(self.task_mean)

    def sample_inputs(
        self, key: PRNGKey, num_points: int, batch_size: int
    ) -> Float[Array, "B P d"]:
        """Draws inputs from N(0, H)."""
        z = jax.random.normal(key, (batch_size, num_points, self.dim), self.dtype)
        return apply_root(self.input_root, z)

    def sample_parameters(
        self, key: PRNGKey, batch_size: int, *, active_dims: Any = None
    ) -> Float[Array, "B d"]:
        """Draws weights from N(beta*, Psi); ``active_dims`` is ignored."""
        z = jax.random.normal(key, (batch_size, self.dim), self.dtype)
        return jnp.asarray(self.task_mean)[None] + apply_root(self.task_root, z)
