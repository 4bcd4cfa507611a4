"""Sparse linear regression: few non-zero weights (Garg et al. 2022)."""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int
from icltheory._noted import check_scalar
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression._linalg import Number
from icltheory.regression.tasks._regression_task import NoisyLinearTask, set_dtype

__all__ = ["SparseLinearRegression"]


@pytree
class SparseLinearRegression(NoisyLinearTask):
    r"""Linear regression with s non-zero weights at random positions among d.

    .. math:: w = m \odot z, \quad z \sim N(0, I), \quad m \in \{0, 1\}^d,\ |m|_1 = s,
        \quad y = \langle w, x\rangle + \epsilon.

    With ``active_dims`` the places are drawn among the first ``active_dims`` only, and
    are all of them where fewer than s are active. Cost O(B N d).

    Args:
        dim: Input dimension d.
        sparsity: Non-zero weights s; 3 in the paper.
        noise_var: Noise variance; 0 in the paper.
        dtype: Type of the samples; None is JAX's default float type.

    Returns:
        A task; the ``w`` of its prompts is the sparse (B, d) weight.

    Example:
        >>> prompt = SparseLinearRegression(20).sample(jax.random.key(0), 40, 8)
        >>> jnp.count_nonzero(prompt.w, axis=1).tolist()
        [3, 3, 3, 3, 3, 3, 3, 3]

    Source: Garg et al. (2022), Section 5.
    """

    dim: int = static_field()
    sparsity: int = static_field(default=3)
    noise_var: Number = 0.0
    dtype: Any = static_field(default=None)

    def __post_init__(self):
        check_positive_int("dim", self.dim)
        check_positive_int("sparsity", self.sparsity)
        if self.sparsity > self.dim:
            raise ValueError(
                f"sparsity: expected at most dim = {self.dim}, got {self.sparsity}"
            )
        check_scalar("noise_var", self.noise_var)
        set_dtype(self)

    def sample_parameters(
        self, key: PRNGKey, batch_size: int, *, active_dims: Any = None
    ) -> Float[Array, "B d"]:
        """Draws sparse weights, supported on the first ``active_dims`` coordinates."""
        key_z, key_m = jax.random.split(key)
        z = jax.random.normal(key_z, (batch_size, self.dim), self.dtype)
        score = jax.random.uniform(key_m, (batch_size, self.dim), self.dtype)
        active = jnp.arange(self.dim)[None] < (
            self.dim if active_dims is None else active_dims
        )
        _, places = jax.lax.top_k(jnp.where(active, score, -1.0), self.sparsity)
        chosen = (places[:, :, None] == jnp.arange(self.dim)[None, None]).any(axis=1)
        return jnp.where(chosen & active, z, 0)
