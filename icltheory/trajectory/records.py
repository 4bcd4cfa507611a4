"""Records of a trajectory: dense matrices, thin factors, or norms."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_shape
from icltheory._precision import exact_products
from icltheory._pytree import pytree
from icltheory._typing import Array, Bool, Float

__all__ = ["Trajectory", "TrajectoryFactors", "TrajectoryNorms"]


@pytree
class Trajectory:
    r"""The implicit gradient descent of Theorem 1, in dense matrices.

    .. math::
        G_t = \Delta W_t (1 + W_{t-1}) , \qquad W_t = W_{t-1} + G_t , \qquad W_0 = 0 ,

    so that :math:`h^t_{N+1} = (1 + W_t) h^0_{N+1}` and
    :math:`1 + W_t = \prod_{s \le t} (1 + \Delta W_s)`, latest factor on the left. Entry
    ``[t]`` of each array, counted from 0, is the quantity of layer t + 1 of the paper.

    Args:
        delta_W: :math:`\Delta W_1, \dots, \Delta W_L`, ``(L, n, n)``.
        G: :math:`G_1, \dots, G_L`, ``(L, n, n)``.
        W: :math:`W_1, \dots, W_L`, ``(L, n, n)``.

    Source: Yao et al. (2024), Theorem 1, with its sum read as :math:`\sum_j G_j`.
    """

    delta_W: Float[Array, "L n n"]
    G: Float[Array, "L n n"]
    W: Float[Array, "L n n"]

    @property
    def finite(self) -> Bool[Array, "*layers"]:
        r"""Whether :math:`W_t` is finite, by layer, ``(L,)``.

        The entries of :math:`1 + W_t` are polynomials of degree
        :math:`(3^t - 1) / 2` in :math:`H^\top H`: they overflow by degree.
        """
        return jnp.all(jnp.isfinite(self.W), axis=(-2, -1))

    @exact_products
    def outputs(self, h_query: Float[ArrayLike, "_n"]) -> Float[Array, "depths n"]:
        r"""The query at every depth, :math:`h^t = h^0 + W_t h^0`.

        Args:
            h_query: Query token :math:`h^0_{N+1}`, ``(n,)``.

        Returns:
            :math:`h^0, \dots, h^L`, ``(L + 1, n)``.

        Source: Yao et al. (2024), Theorem 1.
        """
        check_shape("h_query", h_query, (self.W.shape[-1],))
        h = jnp.asarray(h_query)
        return jnp.concatenate([h[None], h[None] + self.W @ h])


@pytree
class TrajectoryFactors:
    r"""The trajectory of Theorem 1 in thin factors, one row per demonstration.

    .. math::
        \Delta W_t = V_t^\top U_t , \qquad G_t = V_t^\top C_t ,

    with rows :math:`v_i = c\, W_V^t h_i^{t-1}`, :math:`u_i = (W_Q^t)^\top W_K^t
    h_i^{t-1}` and :math:`c_i = (1 + W_{t-1})^\top u_i`. Row by row,
    :math:`g_i = v_i c_i^\top` is the share of demonstration i in :math:`G_t`.

    Args:
        left: :math:`V_t`, the left factor of both products, ``(L, N, n)``.
        right_delta_W: :math:`U_t`, the right factor of the update, ``(L, N, n)``.
        right_G: :math:`C_t`, the right factor of the implicit gradient, ``(L, N, n)``.

    Source: Yao et al. (2024), Theorem 1.
    """

    left: Float[Array, "L N n"]
    right_delta_W: Float[Array, "L N n"]
    right_G: Float[Array, "L N n"]

    @exact_products
    def dense(self) -> Trajectory:
        """Multiplies the factors to dense matrices.

        Returns:
            The dense trajectory, ``(L, n, n)`` each.

        Source: Yao et al. (2024), Theorem 1.
        """
        transposed = jnp.swapaxes(self.left, -1, -2)
        G = transposed @ self.right_G
        return Trajectory(transposed @ self.right_delta_W, G, jnp.cumsum(G, axis=0))

    def per_demonstration(self, layer: int) -> Float[Array, "N n n"]:
        r"""The matrices :math:`g_i = v_i c_i^\top` of one layer, for small n.

        Args:
            layer: Layer, from 0 to L - 1.

        Returns:
            :math:`g_1, \dots, g_N`; their sum is G.

        Source: Yao et al. (2024), section 3.3.
        """
        return self.left[layer][:, :, None] * self.right_G[layer][:, None, :]

    @exact_products
    def outputs(self, h_query: Float[ArrayLike, "_n"]) -> Float[Array, "depths n"]:
        r"""The query at every depth, computed without n x n matrices.

        .. math:: h^t = h^0 + \sum_{s \le t} V_s^\top (C_s h^0)

        Args:
            h_query: Query token :math:`h^0_{N+1}`, ``(n,)``.

        Returns:
            :math:`h^0, \dots, h^L`, ``(L + 1, n)``.

        Source: Yao et al. (2024), Theorem 1.
        """
        check_shape("h_query", h_query, (self.left.shape[-1],))
        h = jnp.asarray(h_query)
        steps = jnp.einsum("tin,ti->tn", self.left, self.right_G @ h)
        return jnp.concatenate([h[None], h[None] + jnp.cumsum(steps, axis=0)])


@pytree
class TrajectoryNorms:
    r"""Frobenius norms along the trajectory; entry ``[t]`` belongs to layer t + 1.

    .. math::
        \|G_t\|_F \le \|\Delta W_t\|_F \, \|1 + W_{t-1}\|_F .

    Args:
        delta_W: :math:`\|\Delta W_t\|_F`, ``(L,)``.
        G: :math:`\|G_t\|_F`, ``(L,)``.
        one_plus_W: :math:`\|1 + W_{t-1}\|_F`, ``(L,)``; the first is the root of n.

    Source: Yao et al. (2024), Theorem 2 and Remark 4.
    """

    delta_W: Float[Array, " L"]
    G: Float[Array, " L"]
    one_plus_W: Float[Array, " L"]
