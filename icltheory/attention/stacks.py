"""Stacks of attention layers: four kinds of layer, one scan."""

import abc
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._checks import check_choice, check_shape, checked, positive, within
from icltheory._core import Record, where_valid
from icltheory._typing import Array, Float, Int, Mask, MLPForm
from icltheory.attention._layer import LayerOutput, as_tokens
from icltheory.attention.linear import MLP_FORMS, linear_attention, mlp_attention
from icltheory.attention.masks import MASKS
from icltheory.attention.nonlinear import (
    Kernel,
    check_kernel,
    kernel_attention,
    kernel_weights,
)
from icltheory.attention.softmax import softmax_attention, softmax_weights

Weights = Float[Array | np.ndarray, "_L _out _in"]


class StackOutput(Record):
    """Tokens at every depth of a stack; depth 0 is the input.

    Args:
        H: Demonstrations, ``(L + 1, N, n)``.
        h_query: Query token, ``(L + 1, n)``.

    Source: Yao et al. (2024), Theorem 1.
    """

    H: Float[Array, "depths N n"]
    h_query: Float[Array, "depths n"]


class AttentionStack(Record):
    """Base class of stacks: L layers of one kind, run by one ``lax.scan``.

    A stack is a pytree whose leaves have a leading layer axis. A subclass names its
    weight matrices with their groups and says how one layer acts, given a stack whose
    leaves have lost that axis.

    Source: Yao et al. (2024), section 3.1.
    """

    groups: ClassVar[dict[str, str]] = {}

    @property
    def num_layers(self) -> int:
        """Number L of layers."""
        return jnp.shape(jax.tree.leaves(self)[0])[0]

    @property
    def width(self) -> int:
        """Width n of a token."""
        return jnp.shape(jax.tree.leaves(self)[0])[-1]

    def layer(
        self,
        index: int | Int[Array, ""],
        H: Float[ArrayLike, "_N _n"],
        h_query: Float[ArrayLike, "_n"],
        mask: Mask = "demos",
        *,
        scale: Real[ArrayLike, ""] = 1.0,
    ) -> LayerOutput:
        """Applies layer ``index``, from 0 to L - 1; it may be traced.

        ``scale`` is a factor on the attention sum, the papers' 1/N.
        """
        return self._one(index)._act(H, h_query, mask, scale)

    def weights(
        self,
        index: int | Int[Array, ""],
        H: Float[ArrayLike, "_N _n"],
        h_query: Float[ArrayLike, "_n"],
        mask: Mask = "demos",
    ) -> Float[Array, "*heads P P"]:
        """Attention weights of all tokens in one layer, without the scale.

        They are ``(N + 1, N + 1)``, with an axis of heads in front if there are
        several. Rows are queries, zero where the mask forbids; they sum to 1 or less in
        a softmax layer and to anything elsewhere.
        """
        return self._one(index)._weights(H, h_query, mask)

    def apply(
        self,
        H: Float[ArrayLike, "_N _n"],
        h_query: Float[ArrayLike, "_n"],
        mask: Mask = "demos",
        *,
        scale: Real[ArrayLike, ""] = 1.0,
    ) -> StackOutput:
        """Runs all layers and keeps the tokens of every depth.

        ``scale`` is a factor on every attention sum, the papers' 1/N.
        """
        check_choice("mask", mask, MASKS)
        stack, start = self._prepare(H, h_query)

        def step(tokens, one):
            moved = one._act(*tokens, mask, scale)
            return moved, moved

        _, later = jax.lax.scan(step, start, stack)
        depths = jax.tree.map(
            lambda first, rest: jnp.concatenate([first[None], rest]), start, later
        )
        return StackOutput(depths.H, depths.h_query)

    def _one(self, index):
        """Returns one layer as a stack without the layer axis."""
        known = within(0, self.num_layers - 1)("index", index)
        return where_valid(jax.tree.map(lambda leaf: leaf[index], self), known)

    def _prepare(self, H, h_query):
        """Casts weights and tokens to one dtype, which a scan requires."""
        H, h_query = as_tokens(H, h_query, self.width)
        dtype = jnp.result_type(H, *jax.tree.leaves(self))
        stack, H, h_query = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, dtype), (self, H, h_query)
        )
        return stack, LayerOutput(H, h_query)

    @abc.abstractmethod
    def _act(self, H, h_query, mask, scale) -> LayerOutput:
        """Applies the single layer of a stack without the layer axis."""

    def _weights(self, H, h_query, mask) -> Array:
        """Attention weights of the single layer; linear attention unless overridden."""
        layer: Any = self
        one = functools.partial(kernel_weights, H=H, h_query=h_query, mask=mask)
        return (one if layer.W_K.ndim == 2 else jax.vmap(one))(layer.W_K, layer.W_Q)

    def _store(self, **expected: tuple[int | str, ...]) -> None:
        """Checks the weights and stores them as JAX arrays."""
        for name, shape in expected.items():
            check_shape(name, getattr(self, name), shape)
            setattr(self, name, jnp.asarray(getattr(self, name)))
        if self.num_layers == 0:
            raise ValueError("W_V: expected at least one layer, got L = 0")


class LinearAttentionStack(AttentionStack):
    r"""A stack of L linear attention layers with residual, the model of Theorem 1.

    .. math::
        h_i^t = h_i^{t-1} + c \sum_{j \in A(i)} W_V^t h_j^{t-1}
                \, (W_K^t h_j^{t-1})^\top W_Q^t h_i^{t-1} , \qquad t = 1, \dots, L ,

    with c the ``scale`` given to :meth:`apply`.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(2)[None]
        >>> stack = LinearAttentionStack(I, I, I)
        >>> stack.apply(jnp.array([[1.0, 0.0]]), jnp.ones(2)).h_query.tolist()
        [[1.0, 1.0], [2.0, 1.0]]

    Source: Yao et al. (2024), equation (3) and Theorem 1.
    """

    W_V: Weights
    W_K: Weights
    W_Q: Weights

    groups: ClassVar[dict[str, str]] = {"W_V": "attn", "W_K": "attn", "W_Q": "attn"}

    def __post_init__(self):
        self._store(W_V=("L", "n", "n"))
        self._store(W_K=self.W_V.shape, W_Q=self.W_V.shape)

    def _act(self, H, h_query, mask, scale):
        weights = self.W_V, self.W_K, self.W_Q
        return linear_attention(*weights, H, h_query, mask=mask, scale=scale)


class SoftmaxAttentionStack(AttentionStack):
    """A stack of L softmax attention layers with residual, equation (1).

    Args:
        d_scale: The number under the root, part of the tree structure.

    Example:
        >>> import jax.numpy as jnp
        >>> W, O = jnp.eye(1)[None], jnp.zeros((1, 1, 1))
        >>> stack = SoftmaxAttentionStack(W, O, O, d_scale=1)
        >>> stack.apply(jnp.ones((3, 1)), jnp.ones(1)).h_query.tolist()
        [[1.0], [1.75]]

    Source: Yao et al. (2024), equations (1) and (2).
    """

    W_V: Weights
    W_K: Weights
    W_Q: Weights
    d_scale: float | int = eqx.field(static=True)

    groups: ClassVar[dict[str, str]] = {"W_V": "attn", "W_K": "attn", "W_Q": "attn"}

    def __post_init__(self):
        self._store(W_V=("L", "n", "n"))
        self._store(W_K=self.W_V.shape, W_Q=self.W_V.shape)
        checked("d_scale", self.d_scale, positive)

    def _act(self, H, h_query, mask, scale):
        return softmax_attention(
            self.W_V,
            self.W_K,
            self.W_Q,
            H,
            h_query,
            d_scale=self.d_scale,
            mask=mask,
            scale=scale,
        )

    def _weights(self, H, h_query, mask):
        projections = self.W_K, self.W_Q, H, h_query
        return softmax_weights(*projections, d_scale=self.d_scale, mask=mask)


class MLPAttentionStack(AttentionStack):
    """A stack of L blocks of linear attention followed by an MLP, Appendix B.3.

    Args:
        mlp: ``"gated"`` (the exact relu), ``"linear"`` or ``"half"``.

    Example:
        >>> import jax.numpy as jnp
        >>> I = jnp.eye(1)[None]
        >>> stack = MLPAttentionStack(I, I, I, I, I)
        >>> stack.apply(jnp.ones((2, 1)), jnp.ones(1)).h_query.tolist()
        [[1.0], [3.0]]

    Source: Yao et al. (2024), Appendix B.3.
    """

    W_V: Weights
    W_K: Weights
    W_Q: Weights
    W_in: Weights
    W_out: Weights
    mlp: MLPForm = eqx.field(static=True, default="gated")

    groups: ClassVar[dict[str, str]] = LinearAttentionStack.groups | {
        "W_in": "mlp",
        "W_out": "mlp",
    }

    def __post_init__(self):
        check_choice("mlp", self.mlp, MLP_FORMS)
        self._store(W_V=("L", "dim1", "n"))
        layers, dim1, n = self.W_V.shape
        self._store(W_K=(layers, dim1, n), W_Q=(layers, dim1, n))
        self._store(W_in=(layers, "dim2", dim1))
        self._store(W_out=(layers, n, self.W_in.shape[1]))

    def _act(self, H, h_query, mask, scale):
        return mlp_attention(
            self.W_V,
            self.W_K,
            self.W_Q,
            self.W_in,
            self.W_out,
            H,
            h_query,
            mask=mask,
            scale=scale,
            mlp=self.mlp,
        )


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
