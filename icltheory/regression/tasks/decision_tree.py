"""Random decision trees (Garg et al. 2022)."""

from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import check_positive_int
from icltheory._pytree import pytree, static_field
from icltheory._typing import Array, Float, PRNGKey
from icltheory.regression.tasks._regression_task import RegressionTask, set_dtype

__all__ = ["DecisionTree"]


@pytree
class DecisionTree(RegressionTask):
    r"""Full binary trees that branch on the sign of one coordinate per node.

    .. math:: i \leftarrow 2 i + 1 + [x_{c_i} > 0] \quad (\text{depth times}),
        \qquad y = v_{i - (2^{depth} - 1)},

    with coordinates c uniform on 0..d-1 (with repetition along a path) and leaf values
    v from N(0, 1). All points of all prompts descend together, O(B N depth) gathers.

    Args:
        dim: Input dimension d.
        depth: Levels of branching; 4 in the paper.
        dtype: Type of the samples; None is JAX's default float type.

    Returns:
        A task; the ``w`` of its prompts is ``{"coordinates": (B, 2^depth - 1),
        "values": (B, 2^depth)}``.

    Example:
        >>> task = DecisionTree(2, depth=1)
        >>> tree = {"coordinates": jnp.array([[1]]), "values": jnp.array([[5.0, 7.0]])}
        >>> task.evaluate(tree, jnp.array([[[9.0, -1.0], [-9.0, 1.0]]])).tolist()
        [[5.0, 7.0]]

    Source: Garg et al. (2022), Section 5.
    """

    dim: int = static_field()
    depth: int = static_field(default=4)
    dtype: Any = static_field(default=None)

    def __post_init__(self):
        check_positive_int("dim", self.dim)
        check_positive_int("depth", self.depth)
        set_dtype(self)

    def sample_parameters(
        self, key: PRNGKey, batch_size: int, *, active_dims: Any = None
    ) -> dict[str, Array]:
        """Draws the inner nodes' coordinates from all of 0..d-1, and leaf values."""
        key_c, key_v = jax.random.split(key)
        leaves = 2**self.depth
        return {
            "coordinates": jax.random.randint(
                key_c, (batch_size, leaves - 1), 0, self.dim
            ),
            "values": jax.random.normal(key_v, (batch_size, leaves), self.dtype),
        }

    def evaluate(
        self, w: dict[str, Array], X: Float[Array, "B P d"]
    ) -> Float[Array, "B P"]:
        """Value of the leaf that each input reaches."""
        right = (X > 0).astype(jnp.int32)

        def descend(_, node):
            coordinate = jnp.take_along_axis(w["coordinates"], node, axis=1)
            step = jnp.take_along_axis(right, coordinate[:, :, None], axis=2)[:, :, 0]
            return 2 * node + 1 + step

        start = jnp.zeros(X.shape[:2], jnp.int32)
        node = jax.lax.fori_loop(0, self.depth, descend, start, unroll=True)
        return jnp.take_along_axis(w["values"], node - (2**self.depth - 1), axis=1)
