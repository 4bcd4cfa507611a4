"""GPT-2 for in-context regression: Garg's architecture and initialisation."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from icltheory._checks import check_choice, check_positive_int
from icltheory.models import tokens

__all__ = ["GPT2"]

_LAYOUTS = ("interleaved", "matrix")
_ATTENTION = ("auto", "cudnn", "xla")
_FUSED_DTYPES = (jnp.bfloat16, jnp.float16)


def _uniform_fan_in(fan_in: int):
    """Uniform up to one over the root of the fan-in, as ``torch.nn.Linear`` starts."""
    bound = 1.0 / math.sqrt(fan_in)

    def init(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def _weights(q, k, mask):
    """Softmax weights (B, heads, T, T), causal unless a mask is given."""
    tokens, size = q.shape[1], q.shape[3]
    if mask is None:
        mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    scores = jnp.einsum("bthc,bshc->bhts", q, k) / math.sqrt(size)
    # Sums of exponentials need at least float32, whatever the products ran in.
    scores = scores.astype(jnp.promote_types(q.dtype, jnp.float32))
    scores = jnp.where(mask[None, None], scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1).astype(q.dtype)


def _fused_attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")


class Block(nn.Module):
    """One pre-norm GPT-2 block, with or without its MLP."""

    num_heads: int
    init_std: float
    residual_std: float
    mlp: bool
    dtype: Any
    param_dtype: Any
    attention: str

    def _dense(self, features: int, std: float, name: str):
        return nn.Dense(
            features,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            kernel_init=nn.initializers.normal(std),
            name=name,
        )

    def _norm(self, name: str):
        return nn.LayerNorm(
            epsilon=1e-5, dtype=self.dtype, param_dtype=self.param_dtype, name=name
        )

    @nn.compact
    def __call__(
        self, h: Float[Array, "B T width"], mask: Bool[Array, "T T"] | None = None
    ) -> Float[Array, "B T width"]:
        """Applies attention and MLP, each with its residual."""
        B, T, width = h.shape
        qkv = self._dense(3 * width, self.init_std, "attn_qkv")(self._norm("ln_1")(h))
        q, k, v = jnp.split(
            qkv.reshape(B, T, 3 * self.num_heads, width // self.num_heads), 3, axis=2
        )
        fused = self.attention == "cudnn" or (
            self.attention == "auto"
            and jax.default_backend() == "gpu"
            and self.dtype in _FUSED_DTYPES
            and mask is None
        )
        # A fused kernel keeps its weights to itself: whoever reads them goes without.
        if fused and not self.is_mutable_collection("intermediates"):
            mixed = _fused_attention(q, k, v)
        else:
            weights = _weights(q, k, mask)
            self.sow("intermediates", "weights", weights)
            mixed = jnp.einsum("bhts,bshc->bthc", weights, v)
        mixed = mixed.reshape(B, T, width)
        h = h + self._dense(width, self.residual_std, "attn_out")(mixed)
        if not self.mlp:
            return h
        wide = self._dense(4 * width, self.init_std, "mlp_in")(self._norm("ln_2")(h))
        wide = nn.gelu(wide, approximate=True)
        return h + self._dense(width, self.residual_std, "mlp_out")(wide)


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
        token_layout: ``"interleaved"`` (Garg) or ``"matrix"`` (one token a pair).
        init_std: Standard deviation :math:`s` of the initial weights.
        dtype: Dtype of activations and matrix products.
        param_dtype: Dtype of the parameters.
        attention: ``"xla"``, ``"cudnn"``, or ``"auto"`` for the fused kernel where the
            device and the dtype allow it.

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
        >>> params = model.init(jax.random.key(0), X, y)["params"]
        >>> model.apply({"params": params}, X, y).shape
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
    attention: str = "auto"

    def setup(self):
        """Declares the parameters."""
        for name in ("dim", "num_positions", "width", "num_layers", "num_heads"):
            check_positive_int(name, getattr(self, name))
        check_choice("token_layout", self.token_layout, _LAYOUTS)
        check_choice("attention", self.attention, _ATTENTION)
        if self.width % self.num_heads:
            raise ValueError(
                f"num_heads: expected a divisor of width {self.width}, "
                f"got {self.num_heads}"
            )
        kinds = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        token_width = self.dim + (self.token_layout == "matrix")
        self.read_in = nn.Dense(
            self.width,
            kernel_init=_uniform_fan_in(token_width),
            bias_init=_uniform_fan_in(token_width),
            **kinds,
        )
        self.positions = self.param(
            "positions",
            nn.initializers.normal(self.init_std),
            (self.num_positions, self.width),
            self.param_dtype,
        )
        projections = self.num_layers * (2 if self.mlp else 1)
        self.blocks = [
            Block(
                num_heads=self.num_heads,
                init_std=self.init_std,
                residual_std=self.init_std / math.sqrt(projections),
                mlp=self.mlp,
                attention=self.attention,
                name=f"block_{layer}",
                **kinds,
            )
            for layer in range(self.num_layers)
        ]
        self.ln_f = nn.LayerNorm(epsilon=1e-5, **kinds)
        # The read-out stays in the parameters' dtype: bfloat16 would round the answer.
        self.read_out_head = nn.Dense(
            1,
            dtype=self.param_dtype,
            param_dtype=self.param_dtype,
            kernel_init=_uniform_fan_in(self.width),
            bias_init=_uniform_fan_in(self.width),
        )

    def tokenize(
        self, X, y, X_query=None, *, last_only: bool = False
    ) -> tokens.TokenSequence:
        """Lays the prompt out as tokens; see :mod:`icltheory.models.tokens`."""
        if X.shape[-1] != self.dim:
            raise ValueError(f"X: expected width {self.dim}, got {X.shape[-1]}")
        points = X.shape[1]
        needed = 2 * points if self.token_layout == "interleaved" else points
        if needed > self.num_positions:
            raise ValueError(
                f"num_positions: expected at least {needed} for prompts of "
                f"{points} points, got {self.num_positions}"
            )
        if self.token_layout == "interleaved":
            return tokens.interleaved(X, y, X_query)
        return tokens.token_matrix(X, y, X_query, last_only=last_only)

    def embed(self, sequence: tokens.TokenSequence) -> Float[Array, "B T width"]:
        """Reads tokens into the residual stream and adds positions."""
        positions = self.positions[sequence.positions].astype(self.dtype)
        return self.read_in(sequence.tokens) + positions[None]

    def block(self, layer: int, h, mask=None) -> Float[Array, "B T width"]:
        """Applies block ``layer``."""
        return self.blocks[layer](h, mask)

    def read_out(self, h: Float[Array, "B T width"]) -> Float[Array, "B T"]:
        """Reads a prediction from every token."""
        return self.read_out_head(self.ln_f(h).astype(self.param_dtype))[..., 0]

    def __call__(
        self,
        X: Float[Array, "B P d"],
        y: Float[Array, "B P"],
        X_query: Float[Array, "B P d"] | None = None,
    ) -> Float[Array, "B P"]:
        """Predicts the answer at every prefix."""
        return self._run(self.tokenize(X, y, X_query))

    def predict(
        self,
        X: Float[Array, "B N d"],
        y: Float[Array, "B N"],
        x_query: Float[Array, "B d"],
    ) -> Float[Array, "B"]:
        """Predicts the answer to one query after all ``N`` examples."""
        points = jnp.concatenate([X, x_query[:, None]], axis=1)
        labels = jnp.pad(y, ((0, 0), (0, 1)))
        return self._run(self.tokenize(points, labels, last_only=True))[:, -1]

    def _run(self, sequence: tokens.TokenSequence) -> Float[Array, "B P"]:
        h = self.embed(sequence)
        for layer in range(self.num_layers):
            h = self.block(layer, h, sequence.mask)
        # Only the tokens that answer are normalised and read.
        return self.read_out(h[:, sequence.outputs])
