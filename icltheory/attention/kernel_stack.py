"""A stack of nonlinear attention layers with one kernel."""

from typing import ClassVar

import equinox as eqx

from icltheory.attention.nonlinear import (
    Kernel,
    check_kernel,
    kernel_attention,
    kernel_weights,
)
from icltheory.attention.stacks import AttentionStack, Weights


class KernelAttentionStack(AttentionStack):
    r"""A stack of L nonlinear attention layers with residual.

    .. math::
        h_i^t = h_i^{t-1} + c \sum_{j \in A(i)}
                k\big(W_Q^t h_i^{t-1}, W_K^t h_j^{t-1}\big)\, W_V^t h_j^{t-1} .

    Args:
        kernel: A name in ``KERNELS`` or a function of two vectors; part of the tree
            structure, so that one function object is one program.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)[None]
        >>> stack = KernelAttentionStack(I, I, I, "rbf")
        >>> stack.apply(jnp.ones((2, 1)), jnp.ones(1)).h_query.tolist()
        [[1.0], [3.0]]

    Source: Cheng et al. (2024).
    """

    W_V: Weights
    W_K: Weights
    W_Q: Weights
    kernel: Kernel = eqx.field(static=True, default="linear")

    groups: ClassVar[dict[str, str]] = {"W_V": "attn", "W_K": "attn", "W_Q": "attn"}

    def __post_init__(self):
        check_kernel(self.kernel)
        self._store(W_V=("L", "n", "n"))
        layers, n, _ = self.W_V.shape
        self._store(W_K=(layers, "d", n))
        self._store(W_Q=self.W_K.shape)

    def _act(self, H, h_query, mask, scale):
        weights = self.W_V, self.W_K, self.W_Q, H, h_query
        return kernel_attention(*weights, kernel=self.kernel, mask=mask, scale=scale)

    def _weights(self, H, h_query, mask):
        weights = self.W_K, self.W_Q, H, h_query
        return kernel_weights(*weights, kernel=self.kernel, mask=mask)
