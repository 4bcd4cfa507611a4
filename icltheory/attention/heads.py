"""Stacks of linear attention with several heads, alone and with an MLP."""

import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_choice, check_shape
from icltheory._core import exact_products
from icltheory._typing import Array, Float, MLPForm
from icltheory.attention._layer import LayerOutput, add_residual, as_tokens
from icltheory.attention.linear import MLP_FORMS, _activate, _linear_sums
from icltheory.attention.masks import MASKS
from icltheory.attention.stacks import AttentionStack, LinearAttentionStack, Weights

Heads = Float[Array | np.ndarray, "_L _heads _out _in"]


class MultiHeadStack(LinearAttentionStack):
    r"""A stack of L linear attention layers, each with several heads.

    .. math::
        h_i^t = h_i^{t-1} + c \sum_{j \in A(i)} \sum_{a=1}^{heads} W_V^{t,a} h_j^{t-1}
                \, (W_K^{t,a} h_j^{t-1})^\top W_Q^{t,a} h_i^{t-1} .

    The implicit update of a layer is the sum of its heads' updates, and Theorem 1, the
    noise and Theorem 2 hold as for one head: every function of a
    :class:`LinearAttentionStack` in ``trajectory``, ``noise`` and ``bounds`` takes it.

    Args:
        W_V: Value times output matrix of each head, ``(L, heads, n, n)``.
        W_K: ``(L, heads, head_dim, n)``, as ``W_Q``.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)[None, None]
        >>> twice = MultiHeadStack(*(jnp.concatenate([I, I], 1) for _ in range(3)))
        >>> twice.apply(jnp.array([[1.0, 0.0]]), jnp.ones(2)).h_query[-1].tolist()
        [3.0, 1.0]

    Source: The sum over heads of Yao et al. (2024), Theorem 1.
    """

    W_V: Heads
    W_K: Heads
    W_Q: Heads

    def __post_init__(self):
        _store_heads(self)

    def _act(self, H, h_query, mask, scale):
        return _heads(self, H, h_query, mask, scale)


class LinearTransformerStack(AttentionStack):
    r"""A stack of L blocks, linear attention heads and an MLP, each with a residual.

    .. math:: \hat h_i = h_i + c \sum_{j, a} W_V^a h_j (W_K^a h_j)^\top W_Q^a h_i ,
        \qquad h_i' = \hat h_i + W_{out}\, \phi(W_{in} \hat h_i) .

    Args:
        W_V: As in :class:`MultiHeadStack`, like W_K and W_Q.
        W_in: ``(L, hidden, n)``; W_out is ``(L, n, hidden)``.
        mlp: phi: relu for ``"gated"``, u for ``"linear"``, u / 2 for ``"half"``.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)[None]
        >>> stack = LinearTransformerStack(I[None], I[None], I[None], I, I)
        >>> stack.apply(jnp.ones((2, 1)), jnp.ones(1)).h_query.tolist()
        [[1.0], [6.0]]

    Source: Yao et al. (2024), Appendix B.3, with the residual of a transformer.
    """

    W_V: Heads
    W_K: Heads
    W_Q: Heads
    W_in: Weights
    W_out: Weights
    mlp: MLPForm = eqx.field(static=True, default="gated")

    groups: ClassVar[dict[str, str]] = LinearAttentionStack.groups | {
        "W_in": "mlp",
        "W_out": "mlp",
    }

    def __post_init__(self):
        check_choice("mlp", self.mlp, MLP_FORMS)
        _store_heads(self)
        layers, _, n, _ = self.W_V.shape
        self._store(W_in=(layers, "hidden", n))
        self._store(W_out=(layers, n, self.W_in.shape[1]))

    @exact_products
    def without_mlp(self) -> tuple[MultiHeadStack, Float[Array, "n n"]]:
        r"""The attention stack of the same outputs, where the MLP is linear.

        With :math:`A_t = (1 + M_t) A_{t-1}` and M_t the matrix of the MLP, the stack
        with :math:`A_{t-1}^{-1} W_V A_{t-1}`, :math:`W_K A_{t-1}` and :math:`W_Q
        A_{t-1}` has tokens :math:`A_t^{-1} h^t`. The A_t have to be invertible.

        Returns:
            That stack, and A_L.
        """
        check_choice("mlp", self.mlp, ("linear", "half"))
        one = jnp.eye(self.width, dtype=self.W_V.dtype)
        factor = 0.5 if self.mlp == "half" else 1.0

        def step(A, layer):
            W_V = jnp.linalg.solve(A[None], layer.W_V @ A)
            after = A + factor * layer.W_out @ (layer.W_in @ A)
            return after, (W_V, layer.W_K @ A, layer.W_Q @ A)

        A, weights = jax.lax.scan(step, one, self)
        return MultiHeadStack(*weights), A

    def _act(self, H, h_query, mask, scale):
        moved = _heads(self, H, h_query, mask, scale)
        sums = [_activate(h @ self.W_in.T, self.mlp) @ self.W_out.T for h in moved]
        return add_residual(*moved, sums, 1)


def _store_heads(stack):
    stack._store(W_V=("L", "heads", "n", "n"))
    layers, heads, n, _ = stack.W_V.shape
    check_shape("W_K", stack.W_K, (layers, heads, "head_dim", n))
    stack._store(W_K=stack.W_K.shape, W_Q=stack.W_K.shape)


@exact_products
def _heads(layer, H, h_query, mask, scale) -> LayerOutput:
    check_choice("mask", mask, MASKS)
    H, h_query = as_tokens(H, h_query, layer.W_V.shape[-1])
    weights = layer.W_V, layer.W_K, layer.W_Q
    each = jax.vmap(functools.partial(_linear_sums, H=H, h_query=h_query, mask=mask))
    sums = [jnp.sum(part, axis=0) for part in each(*weights)]
    return add_residual(H, h_query, sums, scale)
