"""Random two-layer ReLU networks (Garg et al. 2022)."""

import math
from typing import Any

import jax

from icltheory._checks import check_positive_int
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression._linalg import einsum
from icltheory.regression.tasks._regression_task import RegressionTask, set_dtype

__all__ = ["ReluNetwork"]


@pytree
class ReluNetwork(RegressionTask):
    r"""Two-layer ReLU networks with standard normal weights.

    .. math:: y = \sqrt{2 / h}\ W_2^\top \mathrm{relu}(W_1^\top x), \qquad
        W_1 \in R^{d \times h},\ W_2 \in R^h,

    whose variance is d, that of linear regression. Cost O(B N d h).

    Args:
        dim: Input dimension d.
        hidden: Hidden units h; 100 in the paper.
        dtype: Type of the samples; None is JAX's default float type.

    Returns:
        A task; the ``w`` of its prompts is ``{"W1": (B, d, h), "W2": (B, h)}``.

    Example:
        >>> prompt = ReluNetwork(5, hidden=7).sample(jax.random.key(0), 4, 2)
        >>> prompt.w["W1"].shape, prompt.w["W2"].shape
        ((2, 5, 7), (2, 7))

    Source: Garg et al. (2022), Section 5.
    """

    dim: int = static_field()
    hidden: int = static_field(default=100)
    dtype: Any = static_field(default=None)

    def __post_init__(self):
        check_positive_int("dim", self.dim)
        check_positive_int("hidden", self.hidden)
        set_dtype(self)

    def sample_parameters(
        self, key: PRNGKey, batch_size: int, *, active_dims: Any = None
    ) -> dict[str, Array]:
        """Draws standard normal weights; ``active_dims`` is ignored."""
        key_1, key_2 = jax.random.split(key)
        shape = (batch_size, self.dim, self.hidden)
        return {
            "W1": jax.random.normal(key_1, shape, self.dtype),
            "W2": jax.random.normal(key_2, (batch_size, self.hidden), self.dtype),
        }

    def evaluate(
        self, w: dict[str, Array], X: Float[Array, "B P d"]
    ) -> Float[Array, "B P"]:
        """Output of the network."""
        features = jax.nn.relu(einsum("bpd,bdh->bph", X, w["W1"]))
        return math.sqrt(2 / self.hidden) * einsum("bph,bh->bp", features, w["W2"])
