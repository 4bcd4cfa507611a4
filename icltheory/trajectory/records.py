"""Records of a trajectory: dense matrices, thin factors, or norms."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_shape
from icltheory._core import Record, exact_products
from icltheory._typing import Array, Float


class Trajectory(Record):
    r"""Matrices of Theorem 1, :math:`W_t = W_{t-1} + G_t`; ``[t]`` is layer t + 1.

    Args:
        delta_W: Updates :math:`\Delta W_1, \dots, \Delta W_L`.
        G: Implicit gradients :math:`G_t = \Delta W_t (1 + W_{t-1})`.
        W: Weights :math:`W_1, \dots, W_L`, with :math:`h^t = (1 + W_t) h^0`.

    Source: Yao et al. (2024), Theorem 1, with its sum read as :math:`\sum_j G_j`.
    """

    delta_W: Float[Array, "L n n"]
    G: Float[Array, "L n n"]
    W: Float[Array, "L n n"]

    @exact_products
    def outputs(self, h_query: Float[ArrayLike, "_n"]) -> Float[Array, "depths n"]:
        """The query at the depths 0, ..., L, h^t = h^0 + W_t h^0."""
        check_shape("h_query", h_query, (self.W.shape[-1],))
        h = jnp.asarray(h_query)
        return jnp.concatenate([h[None], h[None] + self.W @ h])


class BlockTrajectory(Trajectory):
    r"""A trajectory of blocks, :math:`W_t = W_{t-1} + G_t + F_t`.

    Args:
        mlp: Updates :math:`F_t` of the MLP, ``(L, n, n)``.
    """

    mlp: Float[Array, "L n n"]


class TrajectoryFactors(Record):
    r"""The trajectory of Theorem 1 in thin factors, one row per demonstration.

    .. math::
        \Delta W_t = V_t^\top U_t , \qquad G_t = V_t^\top C_t = \sum_i v_i c_i^\top .

    Args:
        left: Rows :math:`v_i = c\, W_V^t h_i^{t-1}` of :math:`V_t`.
        right_delta_W: Rows :math:`u_i = (W_Q^t)^\top W_K^t h_i^{t-1}` of :math:`U_t`.
        right_G: Rows :math:`c_i = (1 + W_{t-1})^\top u_i` of :math:`C_t`.
        num_heads: Heads of a layer, whose N rows each follow one another.

    :func:`icltheory.noise.demonstration_gradients` returns them for a stack.

    Source: Yao et al. (2024), Theorem 1.
    """

    left: Float[Array, "L N n"]
    right_delta_W: Float[Array, "L N n"]
    right_G: Float[Array, "L N n"]
    num_heads: int = eqx.field(static=True, default=1)

    @property
    def num_demos(self) -> int:
        """Number N of demonstrations."""
        return self.left.shape[1] // self.num_heads

    def per_demonstration(self, layer: int) -> Float[Array, "N n n"]:
        """The matrices v_i c_i^T of one layer, from 0 to L - 1; their sum is G."""
        each = self.left[layer][:, :, None] * self.right_G[layer][:, None, :]
        if self.num_heads == 1:
            return each
        return jnp.sum(each.reshape(self.num_heads, -1, *each.shape[1:]), axis=0)

    @exact_products
    def outputs(self, h_query: Float[ArrayLike, "_n"]) -> Float[Array, "depths n"]:
        """The query at the depths 0, ..., L, without n x n matrices."""
        check_shape("h_query", h_query, (self.left.shape[-1],))
        h = jnp.asarray(h_query)
        steps = jnp.einsum("tin,ti->tn", self.left, self.right_G @ h)
        return jnp.concatenate([h[None], h[None] + jnp.cumsum(steps, axis=0)])


class TrajectoryNorms(Record):
    r"""Frobenius norms along the trajectory; entry ``[t]`` belongs to layer t + 1.

    Args:
        delta_W: :math:`\|\Delta W_t\|_F`.
        G: :math:`\|G_t\|_F`, at most the product of the other two.
        one_plus_W: :math:`\|1 + W_{t-1}\|_F`; the first is the root of n.

    Source: Yao et al. (2024), Theorem 2 and Remark 4.
    """

    delta_W: Float[Array, " L"]
    G: Float[Array, " L"]
    one_plus_W: Float[Array, " L"]
