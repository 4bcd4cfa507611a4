"""The Flax modules that all model families share."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from icltheory.bridge.architecture import Architecture
from icltheory.bridge.streams import KV, Stream, of_sequence, positions_of, rotate

_ACTIVATIONS = {
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
    "relu": nn.relu,
    "silu": nn.silu,
}
_SMALL = nn.initializers.normal(0.02)
_ZEROS, _ONES = nn.initializers.zeros, nn.initializers.ones


def at_least_float32(dtype: Any) -> Any:
    """Returns the dtype for sums, at least float32."""
    return jnp.promote_types(dtype, jnp.float32)


def product(indices: str, x: Any, y: Any) -> Any:
    """Computes an einsum in the common dtype of two arrays, with float32 sums."""

    def plain(x, y):
        return jnp.einsum(indices, x, y)

    if not x.dtype == y.dtype == jnp.bfloat16:
        return plain(x, y)

    def native(x, y):
        kind = {"preferred_element_type": jnp.float32}
        return jnp.einsum(indices, x, y, **kind).astype(x.dtype)

    # For sums in bfloat16, XLA's CPU compiler first converts both arrays to float32.
    # For float32 sums it reads bfloat16 directly, if the processor supports it.
    return jax.lax.platform_dependent(x, y, cpu=native, default=plain)


class Linear(nn.Module):
    """``W @ x + b`` with W stored (out, in)."""

    features: int
    bias: bool

    @nn.compact
    def __call__(self, x):
        """Applies the matrix to the last axis."""
        self.sow("inputs", "read", x)  # stored only on request
        W = self.param("weight", _SMALL, (self.features, x.shape[-1]))
        y = product("...i,oi->...o", x, W)
        if not self.bias:
            return y
        b = self.param("bias", _ZEROS, (self.features,))
        return y + b.reshape((1,) * (y.ndim - 1) + (-1,))


class Norm(nn.Module):
    """Layer norm, or root-mean-square norm with or without one added to the scale."""

    kind: str
    eps: float

    @nn.compact
    def __call__(self, x):
        """Normalises the last axis."""
        ones = _ZEROS if self.kind == "rms_plus_one" else _ONES
        shape = (1,) * (x.ndim - 1) + (-1,)
        scale = self.param("scale", ones, x.shape[-1:]).reshape(shape)
        y = x.astype(at_least_float32(x.dtype))
        if self.kind == "layer":
            y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.eps)
        if self.kind == "rms":
            return y.astype(x.dtype) * scale
        if self.kind == "rms_plus_one":
            return (y * (1 + scale.astype(y.dtype))).astype(x.dtype)
        bias = self.param("bias", _ZEROS, x.shape[-1:]).reshape(shape)
        return (y * scale.astype(y.dtype) + bias.astype(y.dtype)).astype(x.dtype)


class Attention(nn.Module):
    """Causal softmax attention with grouped queries, after an optional prefix."""

    arch: Architecture

    @nn.compact
    def __call__(self, x, x_query, stream: Stream, at, prefix: KV | None):
        """Attends from ``x_query``, tokens number ``at`` of x, to x and the prefix."""
        a = self.arch
        q = self._heads("W_Q", "q_norm", a.num_heads, x_query)
        k = self._heads("W_K", "k_norm", a.num_kv_heads, x)
        v = self._heads("W_V", None, a.num_kv_heads, x)
        positions = jnp.take_along_axis(stream.positions, at, axis=1)
        if a.rotary is not None:
            q, k = rotate(q, positions, a.rotary), rotate(k, stream.positions, a.rotary)
        own = KV(k, v, stream.mask)
        order = jnp.arange(k.shape[1])[None, None] <= at[:, :, None]
        seen = [order & stream.mask[:, None]]
        if stream.ends is not None:
            seen = [seen[0] & of_sequence(stream, at)]
        places, keys = [stream.positions], [own]
        if prefix is not None:
            seen.insert(0, prefix.mask[:, None])
            places.insert(0, positions_of(prefix.mask))
            keys.insert(0, prefix)
        window = a.windows[0]  # the same for all layers
        if window is not None:
            near = [positions[:, :, None] - p[:, None] < window for p in places]
            seen = [s & n for s, n in zip(seen, near, strict=True)]
        weights = _weights(q, keys, seen, a)
        self.sow("intermediates", "weights", weights)  # stored only on request
        mixed = _attend(weights, keys).reshape(*q.shape[:2], -1)
        return Linear(a.width, a.output_bias, name="W_O")(mixed), own

    def _heads(self, name, norm, heads, x):
        a = self.arch
        y = Linear(heads * a.head_dim, a.attention_bias, name=name)(x)
        over = None if norm is None else a.qk_norm
        if over == "projection":
            y = Norm(a.norm, a.norm_eps, name=norm)(y)
        y = y.reshape(*y.shape[:2], heads, a.head_dim)
        return Norm(a.norm, a.norm_eps, name=norm)(y) if over == "head" else y


def soft_cap(x, cap):
    """``cap * tanh(x / cap)``, or x itself without a cap."""
    return x if cap is None else cap * jnp.tanh(x / cap)


def _weights(q, keys, seen, arch):
    """Softmax weights over one or two groups of keys, each (B or 1, S)."""
    B, T, _, size = q.shape
    grouped = q.reshape(B, T, keys[0].k.shape[2], -1, size)
    # The value is finite, so that a row without visible keys gives a mean and not NaN.
    wide = at_least_float32(q.dtype)
    lowest = jnp.asarray(jnp.finfo(wide).min, wide)
    scores = jnp.concatenate(
        [
            jnp.where(s[:, None, None], _scores(grouped, part.k, arch), lowest)
            for part, s in zip(keys, seen, strict=True)
        ],
        axis=-1,
    )
    return jax.nn.softmax(scores, axis=-1).astype(q.dtype)


def _attend(weights, keys):
    """Averages the values of one or two groups of keys, by head."""
    if len(keys) == 1:
        return _mix(weights, keys[0].v)
    behind, own = jnp.split(weights, [keys[0].k.shape[1]], axis=-1)
    return _mix(behind, keys[0].v) + _mix(own, keys[1].v)


def _scores(q, k, arch):
    kind = {"preferred_element_type": at_least_float32(q.dtype)}
    if k.shape[0] == 1:  # shared by the batch, and not copied for each row
        scores = jnp.einsum("btkgd,skd->bkgts", q, k[0], **kind)
    else:
        scores = jnp.einsum("btkgd,bskd->bkgts", q, k, **kind)
    divisor = math.sqrt(arch.query_scalar or arch.head_dim)
    return soft_cap(scores / divisor, arch.score_cap)


def _mix(weights, v):
    if v.shape[0] == 1:
        return product("bkgts,skd->btkgd", weights, v[0])
    return product("bkgts,bskd->btkgd", weights, v)


class MLP(nn.Module):
    """Two matrices around an activation, or three with a gate."""

    arch: Architecture

    @nn.compact
    def __call__(self, x):
        """Applies the MLP to every token."""
        a, act = self.arch, _ACTIVATIONS[self.arch.activation]
        wide = Linear(a.mlp_width, a.mlp_bias, name="W_in")(x)
        if a.gated:
            wide = act(Linear(a.mlp_width, a.mlp_bias, name="W_gate")(x)) * wide
        else:
            wide = act(wide)
        return Linear(a.width, a.mlp_bias, name="W_out")(wide)


class ExpertMLPs(nn.Module):
    """A router and its experts: each token takes the few that score highest.

    Every expert is applied to every token and the others' outputs are dropped, so that
    one program serves all tokens: ``num / per_token`` times the operations that are
    needed.
    """

    arch: Architecture

    @nn.compact
    def __call__(self, x):
        """Applies the chosen experts to every token."""
        experts = self.arch.experts
        assert experts is not None
        shares = _shares(Linear(experts.num, False, name="router")(x), experts)
        total = jnp.zeros(x.shape, shares.dtype)
        for number in range(experts.num):
            y = MLP(self.arch, name=f"expert_{number}")(x)
            share = shares[..., number, None]
            # Outputs of experts that are not chosen may be infinite in half precision.
            total = total + jnp.where(share > 0, share * y, 0)
        return total.astype(x.dtype)


def _shares(logits, experts):
    """Weight of every expert for a token, 0 for experts that are not chosen."""
    p = jax.nn.softmax(logits.astype(at_least_float32(logits.dtype)), axis=-1)
    top, chosen = jax.lax.top_k(p, experts.per_token)
    if experts.normalised:
        top = top / jnp.sum(top, axis=-1, keepdims=True)
    return jnp.einsum("...k,...ke->...e", top, jax.nn.one_hot(chosen, experts.num))


class DecoderBlock(nn.Module):
    """One block: attention and MLP, one after the other or side by side.

    Norms stand in front of the two, behind them, or on both sides.
    """

    arch: Architecture

    @nn.compact
    def __call__(
        self, stream: Stream, prefix: KV | None = None, last_only: bool = False
    ) -> tuple[Stream, KV]:
        """Applies the block; returns its keys and values as well."""
        a, at = self.arch, _asked(stream, last_only)
        if not a.uniform:
            raise ValueError(
                "decoder: expected a uniform architecture, got one with several kinds "
                "of layers; use decoder.of_layer(layer)"
            )
        x = self._norm(a.pre_norm, "norm_1", stream.h)
        picked = _picked(stream, at) if last_only else stream
        x_query = _pick(x, at, last_only)
        mixed, own = Attention(a, name="attn")(x, x_query, stream, at, prefix)
        h = picked.h + self._norm(a.post_norm, "post_norm_1", mixed)
        if a.shared_norm:
            read = x_query
        else:
            read = self._norm(a.pre_norm, "norm_2", picked.h if a.parallel else h)
        mlp = MLP(a, name="mlp") if a.experts is None else ExpertMLPs(a, name="mlp")
        h = h + self._norm(a.post_norm, "post_norm_2", mlp(read))
        return picked._replace(h=h), own

    def _norm(self, wanted, name, x):
        """Applies a norm of this block, or returns the stream if there is none."""
        return Norm(self.arch.norm, self.arch.norm_eps, name=name)(x) if wanted else x


def _asked(stream, last_only):
    """Returns the tokens whose output is needed: all, or the last of each sequence."""
    mask = stream.mask
    B, T = mask.shape
    if not last_only:
        return jnp.broadcast_to(jnp.arange(T)[None], (B, T))
    if stream.ends is not None:
        return stream.ends
    return (T - 1 - jnp.argmax(mask[:, ::-1], axis=1))[:, None]


def _picked(stream, at):
    """Returns the stream of the selected tokens."""
    one = stream._replace(ends=None, stems=None)
    return jax.tree.map(lambda array: _pick(array, at, True), one)


def _pick(array, at, last_only):
    if not last_only:
        return array
    at = at.reshape(at.shape + (1,) * (array.ndim - 2))
    return jnp.take_along_axis(array, at, axis=1)
