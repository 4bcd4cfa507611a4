"""GPT-2 for in-context regression, with Garg's architecture and initialisation."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from icltheory import kernels
from icltheory._checks import check_choice, check_positive_int, check_shape
from icltheory.kernels.attention import Attention
from icltheory.models import tokens

__all__ = ["GPT2"]


def _uniform_fan_in(fan_in: int):
    """Uniform initialiser with bound 1 / sqrt(fan-in), as in ``torch.nn.Linear``."""
    bound = 1.0 / math.sqrt(fan_in)

    def init(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class _Affine(nn.Module):
    """Weights and offsets of an affine map, by the names of ``nn.Dense``."""

    features: int
    kernel_init: Any
    bias_init: Any
    param_dtype: Any

    @nn.compact
    def __call__(self, rows: int) -> tuple[Array, Array]:
        """Returns W, (rows, features), and c."""
        shape = rows, self.features
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        return kernel, self.param("bias", self.bias_init, shape[1:], self.param_dtype)


class _Norm(nn.Module):
    """Scales and offsets of a LayerNorm, by the names of ``nn.LayerNorm``."""

    param_dtype: Any

    @nn.compact
    def __call__(self, width: int) -> tuple[Array, Array]:
        """Returns s and b."""
        scale = self.param("scale", nn.initializers.ones, (width,), self.param_dtype)
        return scale, self.param("bias", nn.initializers.zeros, (width,), scale.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _normalised(h: Array, dtype: Any) -> Array:
    """Tokens with mean 0 and variance 1, computed in float32 at least."""
    return _standardised(h)[0].astype(dtype)


@_normalised.defjvp
def _(dtype, primals, tangents):
    r"""The derivative in one pass over the tokens, as it needs only two means.

    .. math:: dn = (dh - \overline{dh} - n\, \overline{n\, dh}) / \sigma
    """
    n, inverse = _standardised(primals[0])
    dh = tangents[0].astype(n.dtype)
    mean, along = (jnp.mean(x, axis=-1, keepdims=True) for x in (dh, n * dh))
    return n.astype(dtype), ((dh - mean - n * along) * inverse).astype(dtype)


def _standardised(h: Array) -> tuple[Array, Array]:
    """The tokens and one over their standard deviation."""
    h = h.astype(jnp.promote_types(h.dtype, jnp.float32))
    mean = jnp.mean(h, axis=-1, keepdims=True)
    var = jnp.mean(jnp.square(h), axis=-1, keepdims=True) - jnp.square(mean)
    inverse = jax.lax.rsqrt(jnp.maximum(var, 0.0) + 1e-5)
    return (h - mean) * inverse, inverse


def _folded(norm: tuple[Array, Array], affine: tuple[Array, Array]):
    r"""The affine map after a LayerNorm's scale and offset, as one affine map.

    .. math:: (n \circ s + b) W + c = n\, (\mathrm{diag}(s) W) + (b W + c)

    Its gradients of s and b are products of the size of W, not sums over tokens.
    """
    (scale, offset), (kernel, bias) = norm, affine
    return scale[:, None] * kernel, offset @ kernel + bias


def _apply(affine: tuple[Array, Array], x: Array) -> Array:
    """Computes x W + c in the dtype of x, by the way that trains faster."""
    on_gpu = jax.default_backend() == "gpu"
    return (_joined if on_gpu else _added)(affine, x)


def _added(affine: tuple[Array, Array], x: Array) -> Array:
    kernel, bias = (leaf.astype(x.dtype) for leaf in affine)
    return x @ kernel + bias[None, None]


def _joined(affine: tuple[Array, Array], x: Array) -> Array:
    """Computes x W + c as one product [x, 1] [W; c].

    The gradient of c is then a row of the product that is that of W, where a GPU would
    sum over tokens in launches of its own. The width is padded to a multiple of eight,
    as units for matrix products ask.
    """
    kernel, bias = affine
    more = 8 - x.shape[-1] % 8
    one = jnp.zeros(more, x.dtype).at[0].set(1)
    one = jnp.broadcast_to(one, (*x.shape[:-1], more))
    rows = jnp.pad(jnp.concatenate([kernel, bias[None]]), ((0, more - 1), (0, 0)))
    return jnp.concatenate([x, one], axis=-1) @ rows.astype(x.dtype)


class GPT2Block(nn.Module):
    """One pre-norm GPT-2 block, with or without its MLP."""

    num_heads: int
    init_std: float
    residual_std: float
    mlp: bool
    dtype: Any
    param_dtype: Any
    attention: Attention

    def _affine(self, name: str, rows: int, features: int, std: float):
        init = nn.initializers.normal(std), nn.initializers.zeros
        return _Affine(features, *init, self.param_dtype, name=name)(rows)

    @nn.compact
    def __call__(
        self, h: Float[Array, "B T width"], mask: Bool[Array, "T T"] | None = None
    ) -> Float[Array, "B T width"]:
        """Applies attention and MLP, each with a residual connection."""
        width, std, last = h.shape[-1], self.init_std, self.residual_std

        def after_norm(norm, name, features):
            scales = _Norm(self.param_dtype, name=norm)(width)
            affine = self._affine(name, width, features, std)
            return _apply(_folded(scales, affine), _normalised(h, self.dtype))

        packed = after_norm("ln_1", "attn_qkv", 3 * width)
        out = self._affine("attn_out", width, width, last)
        h = h + _apply(out, self._attend(packed, mask))
        if not self.mlp:
            return h
        hidden = nn.gelu(after_norm("ln_2", "mlp_in", 4 * width), approximate=True)
        return h + _apply(self._affine("mlp_out", 4 * width, width, last), hidden)

    def _attend(self, packed, mask):
        """Attention output of all heads, (B, T, width), from the packed projection."""
        # A fused kernel does not return its weights, so reading weights disables it.
        reads = self.is_mutable_collection("intermediates")
        if mask is None and not reads:
            return kernels.causal_attention(
                packed, self.num_heads, implementation=self.attention
            )
        q, k, v = kernels.split_heads(packed, self.num_heads)
        weights = kernels.attention_weights(q, k, mask)
        self.sow("intermediates", "weights", weights)
        mixed = jnp.einsum("bhts,bshc->bthc", weights, v)
        return mixed.reshape(*packed.shape[:2], -1)


class GPT2(nn.Module):
    r"""GPT-2 that reads (x, y) pairs and predicts y, as in Garg et al.

    .. math:: h^0 = W_{in}\, t + p, \quad
              h^{l} = \mathrm{Block}_l(h^{l-1}), \quad
              \hat y = w_{out}^\top \mathrm{LN}(h^{L}) + b

    Pre-norm blocks with GELU, learned positions, no dropout. Weights start as
    :math:`N(0, s^2)`, the projections into the residual stream as :math:`N(0, s^2 / n)`
    with n their number, 2L or without MLPs L, the linear read-in and read-out uniform
    on :math:`\pm 1/\sqrt{\text{fan-in}}`. At 12 layers, 8 heads, width 256, 202
    positions and 20 dimensions it has 9,534,977 parameters. One pass over ``T`` tokens
    costs about :math:`24 L T\,\text{width}^2` floating-point operations a prompt.

    Args:
        dim: Dimension :math:`d` of the inputs.
        num_positions: Rows of the position table; at least the tokens of a prompt.
        width: Width of the residual stream.
        num_layers: Number of blocks :math:`L`.
        num_heads: Heads; divides ``width``.
        mlp: Whether blocks have their MLP; the papers compare both.
        token_layout: ``"interleaved"`` (Garg), ``"matrix"`` (one token a pair) or
            ``"shifted"`` (an input with the label before it); see
            :mod:`icltheory.models.tokens`.
        init_std: Standard deviation :math:`s` of the initial weights.
        dtype: Dtype of activations and matrix products.
        param_dtype: Dtype of the parameters.
        attention: Implementation of the attention, as of
            :func:`icltheory.kernels.causal_attention`.

    Returns:
        ``module.apply({"params": params}, X, y, X_query=None)`` returns the prediction
        at every prefix, ``(B, P)``, in ``param_dtype``.

    Raises:
        ValueError: if the width is not a multiple of the heads, the position table is
            too short for the prompt, or a choice is unknown.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = GPT2(dim=3, num_positions=8, width=16, num_layers=1, num_heads=2)
        >>> X, y = jnp.ones((5, 4, 3)), jnp.ones((5, 4))
        >>> params = jax.jit(model.init)(jax.random.key(0), X, y)["params"]
        >>> jax.jit(model.apply)({"params": params}, X, y).shape
        (5, 4)

    References:
        Garg et al. 2022, Section 3 and Appendix A; Zhang, Wu and Bartlett 2024,
        Appendix I (without MLPs). Verified by ``tests/models/test_gpt2.py``.
    """

    dim: int
    num_positions: int
    width: int = 256
    num_layers: int = 12
    num_heads: int = 8
    mlp: bool = True
    token_layout: str = "interleaved"
    init_std: float = 0.02
    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32
    attention: Attention = "auto"

    def setup(self):
        """Declares the parameters."""
        for name in ("dim", "num_positions", "width", "num_layers", "num_heads"):
            check_positive_int(name, getattr(self, name))
        check_choice("token_layout", self.token_layout, tokens.LAYOUTS)
        if self.width % self.num_heads:
            raise ValueError(
                f"num_heads: expected a divisor of width {self.width}, "
                f"got {self.num_heads}"
            )
        self.token_width = self.dim + (self.token_layout != "interleaved")
        self.read_in = self._uniform(self.token_width, self.width)
        self.positions = self.param(
            "positions",
            nn.initializers.normal(self.init_std),
            (self.num_positions, self.width),
            self.param_dtype,
        )
        projections = self.num_layers * (2 if self.mlp else 1)
        self.blocks = [
            GPT2Block(
                num_heads=self.num_heads,
                init_std=self.init_std,
                residual_std=self.init_std / math.sqrt(projections),
                mlp=self.mlp,
                attention=self.attention,
                dtype=self.dtype,
                param_dtype=self.param_dtype,
                name=f"block_{layer}",
            )
            for layer in range(self.num_layers)
        ]
        self.ln_f = _Norm(self.param_dtype)
        self.read_out_head = self._uniform(self.width, 1)

    def _uniform(self, fan_in: int, features: int) -> _Affine:
        """An affine map with the uniform initialisation of ``torch.nn.Linear``."""
        init = _uniform_fan_in(fan_in)
        return _Affine(features, init, init, self.param_dtype)

    def tokenize(
        self, X, y, X_query=None, *, last_only: bool = False
    ) -> tokens.TokenSequence:
        """Converts the prompt to tokens; see :mod:`icltheory.models.tokens`."""
        check_shape("X", X, ("B", "P", "d"))
        if X.shape[-1] != self.dim:
            raise ValueError(f"X: expected width {self.dim}, got {X.shape[-1]}")
        if not X.size:
            raise ValueError(f"X: expected at least one point, got shape {X.shape}")
        points = X.shape[1]
        needed = 2 * points if self.token_layout == "interleaved" else points
        if needed > self.num_positions:
            raise ValueError(
                f"num_positions: expected at least {needed} for prompts of "
                f"{points} points, got {self.num_positions}"
            )
        if self.token_layout == "interleaved":
            return tokens.interleaved(X, y, X_query)
        if self.token_layout == "shifted":
            return tokens.shifted(X, y, X_query)
        return tokens.token_matrix(X, y, X_query, last_only=last_only)

    def embed(self, sequence: tokens.TokenSequence) -> Float[Array, "B T width"]:
        """Embeds tokens into the residual stream and adds positions."""
        kernel, bias = self.read_in(self.token_width)
        positions = (self.positions + bias[None])[sequence.positions].astype(self.dtype)
        tokens = sequence.tokens.astype(self.dtype) @ kernel.astype(self.dtype)
        return tokens + positions[None]

    def block(self, layer: int, h, mask=None) -> Float[Array, "B T width"]:
        """Applies block ``layer``."""
        return self.blocks[layer](h, mask)

    def read_out(self, h: Float[Array, "B T width"]) -> Float[Array, "B T"]:
        """Returns predictions from every token."""
        width = self.width
        kernel, bias = _folded(self.ln_f(width), self.read_out_head(width))
        # In the parameters' dtype, since bfloat16 would round the prediction.
        normalised = _normalised(h, self.dtype).astype(self.param_dtype)
        return (normalised @ kernel)[..., 0] + bias[0]

    def __call__(
        self,
        X: Float[Array, "B P d"],
        y: Float[Array, "B P"],
        X_query: Float[Array, "B P d"] | None = None,
    ) -> Float[Array, "B P"]:
        """Predicts the label at every prefix."""
        return self._run(self.tokenize(X, y, X_query))

    def predict(
        self,
        X: Float[Array, "B N d"],
        y: Float[Array, "B N"],
        x_query: Float[Array, "B d"],
    ) -> Float[Array, "B"]:
        """Predicts the label of one query after all ``N`` examples."""
        points = jnp.concatenate([X, x_query[:, None]], axis=1)
        labels = jnp.pad(y, ((0, 0), (0, 1)))
        return self._run(self.tokenize(points, labels, last_only=True))[:, -1]

    def predict_queries(
        self,
        X: Float[Array, "B N d"],
        y: Float[Array, "B N"],
        X_query: Float[Array, "B Q d"],
    ) -> Float[Array, "B Q"]:
        """Predicts the labels of ``Q`` queries, each after all ``N`` examples."""
        check_shape("X_query", X_query, (X.shape[0], "Q", self.dim))
        layout = self.token_layout
        sequence = tokens.shared_context(X, y, X_query, token_layout=layout)
        needed = X.shape[1] * (2 if layout == "interleaved" else 1) + 1
        if needed > self.num_positions:
            raise ValueError(
                f"num_positions: expected at least {needed} for queries after "
                f"{X.shape[1]} examples, got {self.num_positions}"
            )
        return self._run(sequence)

    def _run(self, sequence: tokens.TokenSequence) -> Float[Array, "B P"]:
        h = self.embed(sequence)
        for layer in range(self.num_layers):
            h = self.block(layer, h, sequence.mask)
        # Only the tokens with predictions are normalised and read.
        return self.read_out(h[:, sequence.outputs])
