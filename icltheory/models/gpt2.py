"""GPT-2 for in-context regression, with Garg's architecture and initialisation."""

import math
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from icltheory import kernels
from icltheory._checks import check_choice, check_positive_int, check_shape, wrong
from icltheory.kernels.attention import Attention
from icltheory.models import tokens

Kind = Literal["softmax", "linear", "gated"]


def _uniform_fan_in(fan_in: int):
    """Uniform initialiser with bound 1 / sqrt(fan-in), as in ``torch.nn.Linear``."""
    bound = 1.0 / math.sqrt(fan_in)

    def init(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class GPT2Block(nn.Module):
    """One pre-norm GPT-2 block, with or without its MLP."""

    num_heads: int
    init_std: float
    residual_std: float
    mlp: bool
    dtype: Any
    param_dtype: Any
    attention: Attention
    kind: Kind = "softmax"

    @nn.compact
    def __call__(
        self, h: Float[Array, "B T width"], mask: Bool[Array, "T T"] | None = None
    ) -> Float[Array, "B T width"]:
        """Applies attention and MLP, each with a residual connection."""
        width, std, last = h.shape[-1], self.init_std, self.residual_std
        kinds = {"dtype": self.dtype, "param_dtype": self.param_dtype}

        def norm(name: str) -> nn.LayerNorm:
            return nn.LayerNorm(epsilon=1e-5, name=name, **kinds)

        def linear(name: str, features: int, std: float, bias: float = 0.0) -> nn.Dense:
            inits = nn.initializers.normal(std), nn.initializers.constant(bias)
            return nn.Dense(
                features, kernel_init=inits[0], bias_init=inits[1], name=name, **kinds
            )

        normed = norm("ln_1")(h)
        packed, gates = linear("attn_qkv", 3 * width, std)(normed), None
        if self.kind == "gated":  # near 1 at the start
            gates = nn.log_sigmoid(
                linear("attn_gate", self.num_heads, std, 4.0)(normed)
            )
        mixed = self._attend(packed, gates, mask)
        h = h + linear("attn_out", width, last)(mixed)
        if not self.mlp:
            return h
        hidden = linear("mlp_in", 4 * width, std)(norm("ln_2")(h))
        hidden = nn.gelu(hidden, approximate=True)
        return h + linear("mlp_out", width, last)(hidden)

    def _attend(self, packed, gates, mask):
        """Attention output of all heads, (B, T, width), from the packed projection."""
        # A fused kernel does not return its weights, so reading weights disables it.
        reads = self.is_mutable_collection("intermediates")
        if self.kind == "softmax" and mask is None and not reads:
            return kernels.causal_attention(
                packed, self.num_heads, implementation=self.attention
            )
        q, k, v = kernels.split_heads(packed, self.num_heads)
        if self.kind == "softmax":
            weights = kernels.attention_weights(q, k, mask)
        else:
            weights = _linear_weights(q, k, gates, mask)
        self.sow("intermediates", "weights", weights)
        mixed = jnp.einsum("bhts,bshc->bthc", weights, v)
        return mixed.reshape(*packed.shape[:2], -1)


def _linear_weights(q, k, log_gates, mask):
    """Weights of linear attention, with the mean decay of what is seen divided out."""
    tokens, size = q.shape[1], q.shape[3]
    if mask is None:
        mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    decay = mask[None, None].astype(q.dtype)
    if log_gates is not None:
        # Token i forgets j by the gates of the tokens after j that it sees.
        seen = decay * jnp.moveaxis(log_gates, 2, 1)[:, :, None]
        later = jnp.tril(jnp.ones((tokens, tokens), q.dtype), -1)
        decay = decay * jnp.exp(seen @ later)
    scores = jnp.einsum("bthc,bshc->bhts", q, k) / math.sqrt(size)
    return scores * decay / jnp.sum(decay, axis=-1, keepdims=True)


class GPT2(nn.Module):
    r"""GPT-2 that reads (x, y) pairs and predicts y, as in Garg et al.

    .. math:: h^0 = W_{in}\, t + p, \quad
              h^{l} = \mathrm{Block}_l(h^{l-1}), \quad
              \hat y = w_{out}^\top \mathrm{LN}(h^{L}) + b

    Pre-norm blocks with GELU, learned positions, no dropout. Weights start as
    :math:`N(0, s^2)` with s = ``init_std``, the projections into the residual stream as
    :math:`N(0, s^2 / n)` with n their number, 2L or without MLPs L, the linear read-in
    and read-out uniform on :math:`\pm 1/\sqrt{\text{fan-in}}`. At 12 layers, 8 heads,
    width 256, 202 positions and 20 dimensions it has 9,534,977 parameters. One pass
    over ``T`` tokens costs about :math:`24 L T\,\text{width}^2` floating-point
    operations a prompt.
    ``module.apply({"params": params}, X, y, X_query=None)`` returns the prediction at
    every prefix, ``(B, P)``, in ``param_dtype``.

    Args:
        num_positions: Rows of the position table; at least the tokens of a prompt.
        num_heads: A divisor of ``width``.
        mlp: Whether blocks have their MLP; the papers compare both.
        token_layout: ``"interleaved"`` (Garg), ``"matrix"`` (one token per pair) or
            ``"shifted"`` (an input with the label before it); see
            :mod:`icltheory.models.tokens`.
        dtype: Dtype of activations and matrix products.
        attention: As ``implementation`` of :func:`icltheory.kernels.causal_attention`.
        kind: ``"softmax"``; or ``"linear"`` or ``"gated"`` attention, see
            :func:`~icltheory.models.transformer`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = GPT2(dim=3, num_positions=8, width=16, num_layers=1, num_heads=2)
        >>> X, y = jnp.ones((5, 4, 3)), jnp.ones((5, 4))
        >>> params = jax.jit(model.init)(jax.random.key(0), X, y)["params"]
        >>> jax.jit(model.apply)({"params": params}, X, y).shape
        (5, 4)

    Source: Garg et al. 2022, Section 3 and Appendix A; Zhang, Wu and Bartlett 2024,
    Appendix I (without MLPs).
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
    kind: Kind = "softmax"

    def setup(self):
        """Declares the parameters."""
        check_choice("kind", self.kind, get_args(Kind))
        for name in ("dim", "num_positions", "width", "num_layers", "num_heads"):
            check_positive_int(name, getattr(self, name))
        check_choice("token_layout", self.token_layout, tokens.LAYOUTS)
        if self.width % self.num_heads:
            raise wrong("num_heads", f"a divisor of width {self.width}", self.num_heads)
        kinds = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        uniform = _uniform_fan_in(self.dim + (self.token_layout != "interleaved"))
        self.read_in = nn.Dense(
            self.width, kernel_init=uniform, bias_init=uniform, **kinds
        )
        init, table = nn.initializers.normal(self.init_std), self.num_positions
        self.positions = self.param(
            "positions", init, (table, self.width), self.param_dtype
        )
        projections = self.num_layers * (2 if self.mlp else 1)
        self.blocks = [
            GPT2Block(
                num_heads=self.num_heads,
                init_std=self.init_std,
                residual_std=self.init_std / math.sqrt(projections),
                mlp=self.mlp,
                attention=self.attention,
                kind=self.kind,
                name=f"block_{layer}",
                **kinds,
            )
            for layer in range(self.num_layers)
        ]
        self.ln_f = nn.LayerNorm(epsilon=1e-5, **kinds)
        # The read-out uses the parameters' dtype, since bfloat16 would round the
        # prediction.
        uniform, kinds["dtype"] = _uniform_fan_in(self.width), self.param_dtype
        self.read_out_head = nn.Dense(
            1, kernel_init=uniform, bias_init=uniform, **kinds
        )

    def tokenize(
        self, X, y, X_query=None, *, last_only: bool = False
    ) -> tokens.TokenSequence:
        """Converts the prompt to tokens; see :mod:`icltheory.models.tokens`."""
        check_shape("X", X, ("B", "P", "d"))
        if X.shape[-1] != self.dim:
            raise ValueError(f"X: expected width {self.dim}, got {X.shape[-1]}")
        if not X.size:
            raise ValueError(f"X: expected at least one point, got shape {X.shape}")
        check_shape("y", y, X.shape[:2])
        points = X.shape[1]
        needed = 2 * points if self.token_layout == "interleaved" else points
        if needed > self.num_positions:
            expected = f"at least {needed} for prompts of {points} points"
            raise wrong("num_positions", expected, self.num_positions)
        given = self.token_layout, X, y, X_query
        return tokens.tokenized(*given, last_only=last_only)

    def embed(self, sequence: tokens.TokenSequence) -> Float[Array, "B T width"]:
        """Embeds tokens into the residual stream and adds positions."""
        positions = self.positions[sequence.positions].astype(self.dtype)
        return self.read_in(sequence.tokens) + positions[None]

    def block(self, layer: int, h, mask=None) -> Float[Array, "B T width"]:
        """Applies block ``layer``."""
        return self.blocks[layer](h, mask)

    def read_out(self, h: Float[Array, "B T width"]) -> Float[Array, "B T"]:
        """Returns predictions from every token."""
        return self.read_out_head(self.ln_f(h).astype(self.param_dtype))[..., 0]

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
        sequence = tokens.shared_context(self.token_layout, X, y, X_query)
        needed = X.shape[1] * (2 if self.token_layout == "interleaved" else 1) + 1
        if needed > self.num_positions:
            expected = f"at least {needed} for queries after {X.shape[1]} examples"
            raise wrong("num_positions", expected, self.num_positions)
        return self._run(sequence)

    def _run(self, sequence: tokens.TokenSequence) -> Float[Array, "B P"]:
        h = self.embed(sequence)
        for layer in range(self.num_layers):
            h = self.block(layer, h, sequence.mask)
        # Only the tokens with predictions are normalised and read.
        return self.read_out(h[:, sequence.outputs])


def transformer(
    dim: int,
    num_examples: int,
    kind: Kind = "softmax",
    *,
    width: int = 64,
    num_layers: int = 3,
    num_heads: int = 2,
    **options: Any,
) -> GPT2:
    r"""A small transformer for prompts of at most N examples and a query.

    Heads of softmax attention, linear attention, or linear attention that forgets,

    .. math:: P_{ij} \propto e^{\langle q_i, k_j \rangle / \sqrt c} , \qquad
        P_{ij} = \frac{\langle q_i, k_j \rangle}{i \sqrt c} , \qquad
        P_{ij} = \frac{\langle q_i, k_j \rangle}{\sqrt c} \,
        \frac{\gamma_{j+1} \cdots \gamma_i}{\sum_{l \le i} \gamma_{l+1} \cdots \gamma_i}

    with heads of size c and a gate :math:`\gamma_t = \operatorname{sigmoid}(w^\top h_t
    + b)` of each token and head; at gates of 1 the last is the one before. Everything
    else is that of :class:`GPT2`, whose further fields are ``options``, such as
    ``mlp=False`` for attention alone. Unless given, a token is a pair
    (``token_layout="matrix"``), from which small models learn in fewer steps than from
    Garg's interleaved tokens, and ``init_std`` is 6.4 / width, at most 0.1 and at least
    Garg's 0.02, as narrow models train faster from larger weights.

    Args:
        dim: Dimension d of the inputs.
        num_examples: Most examples N of a prompt.
        kind: ``"softmax"``, ``"linear"`` or ``"gated"``.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = transformer(5, 20, "gated", num_layers=1)
        >>> X, y = jnp.ones((8, 21, 5)), jnp.ones((8, 21))
        >>> params = jax.jit(model.init)(jax.random.key(0), X, y)["params"]
        >>> jax.jit(model.apply)({"params": params}, X, y).shape
        (8, 21)

    Source: Garg et al. 2022 (softmax); Katharopoulos et al. 2020 (linear); Yang et al.
    2024 (gated linear attention).
    """
    check_choice("kind", kind, get_args(Kind))
    for name, value in {"dim": dim, "num_examples": num_examples}.items():
        check_positive_int(name, value)
    if width % num_heads:
        raise wrong("num_heads", f"a divisor of width {width}", num_heads)
    known = tuple(n for n in GPT2.__annotations__ if n not in ("parent", "name"))
    for name in options:
        check_choice("option", name, known)
    layout = options.setdefault("token_layout", "matrix")
    points = num_examples + 1
    options.setdefault("init_std", min(max(6.4 / width, 0.02), 0.1))
    return GPT2(
        dim=dim,
        num_positions=2 * points if layout == "interleaved" else points,
        width=width,
        num_layers=num_layers,
        num_heads=num_heads,
        kind=kind,
        **options,
    )
