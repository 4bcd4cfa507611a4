"""Decoder-only language models as layered models, with steps for cached prefixes."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import traverse_util
from jax.typing import ArrayLike

from icltheory._checks import check_key, concrete
from icltheory._typing import Array, Float, Int, PRNGKey, PyTree
from icltheory.bridge._blocks import DecoderBlock, Norm, at_least_float32, soft_cap
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.streams import KV, Stream, Tokens, positions_of
from icltheory.layered import MatrixSpec, OVFactors, get_matrix


@dataclasses.dataclass(frozen=True)
class Decoder:
    r"""A decoder-only language model as a program; parameters are passed separately.

    .. math::
        h^0 = s\, E[\mathrm{ids}] \;(+\, P[\mathrm{positions}]) , \qquad
        h^{l+1} = \mathrm{Block}_l(h^l) , \qquad
        \mathrm{logits} = \operatorname{cap}(W_{\mathrm{head}} \operatorname{norm}(h^L)
        + b) .

    Positions follow the mask, so that padding on either side changes nothing; only with
    ``Rotary.switch`` does the longest row of a batch decide the frequencies of all.
    Products run in the dtype of the parameters, softmax, norms and logits in float32.
    Blocks of one kind are one program: compiled once, :meth:`run_block` serves every
    layer. Where windows or rotary positions differ, :meth:`of_layer` gives one decoder.

    Parameters are a plain tree, matrices (out, in)::

        {"embed": {"tokens"[, "positions"]}, "layers": (layer, ...),
         "final_norm": {"scale"[, "bias"]}, "head": {["weight"][, "bias"]}}
        layer = {["norm_1"][, "norm_2"][, "post_norm_1", "post_norm_2"],
                 "attn": {"W_Q", "W_K", "W_V", "W_O"[, "q_norm", "k_norm"]},
                 "mlp": {"W_in"[, "W_gate"], "W_out"}}
        with experts "mlp": {"router", "expert_0": {"W_in"[, "W_gate"], "W_out"}, ...}

    It is hashable and follows the protocol of :mod:`icltheory.layered`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from icltheory.layered import forward
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> params = decoder.init(jax.random.key(0))
        >>> tokens = Tokens(jnp.zeros((3, 5), int), jnp.ones((3, 5), bool))
        >>> forward(decoder, params, tokens).shape
        (3, 5, 50)

    Source: Yao et al. (2024), section 2.
    """

    arch: Architecture

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        return self.arch.num_layers

    def of_layer(self, layer: int) -> "Decoder":
        """Returns the decoder that runs the block of one layer, one for each kind."""
        return self if self.arch.uniform else self._of_layers[layer]

    @functools.cached_property
    def _of_layers(self) -> tuple["Decoder", ...]:
        # There is one object per kind of layer, since equal objects would be compared
        # at every call.
        kinds: dict[Architecture, Decoder] = {}
        archs = [self.arch.of_layer(layer) for layer in range(self.num_layers)]
        return tuple(kinds.setdefault(arch, Decoder(arch)) for arch in archs)

    def embed(self, params: PyTree, inputs: Any) -> Stream:
        """The stream of :class:`Tokens`, or of the numbers of tokens ``(B, T)``."""
        if not isinstance(inputs, Tokens):
            ids = jnp.asarray(inputs)
            if ids.ndim != 2 or not jnp.issubdtype(ids.dtype, jnp.integer):
                got = f"{ids.dtype} of shape {ids.shape}"
                wanted = "Tokens or integers (B, T)"
                raise ValueError(f"inputs: expected {wanted}, got {got}")
            inputs = Tokens(ids, jnp.ones(ids.shape, bool))
        return self.embed_after(params, inputs, 0)

    def embed_after(
        self, params: PyTree, inputs: Tokens, prefix_length: int | Int[ArrayLike, "..."]
    ) -> Stream:
        """The stream of tokens behind a prefix, with one length or one for each row."""
        ids, mask, ends, stems = jax.tree.map(jnp.asarray, inputs)
        if ends is None:
            self._check_length(mask, prefix_length)
        start = jnp.asarray(prefix_length, jnp.int32).reshape(-1, 1)
        positions = positions_of(mask, ends, stems) + start
        h = params["embed"]["tokens"][ids]
        if self.arch.embed_scale != 1.0:
            h = h * jnp.asarray(self.arch.embed_scale, h.dtype)
        if self.arch.rotary is None:
            # Positions beyond the table give NaN, since tracing hides them from checks.
            rows = positions + self.arch.position_offset
            table = params["embed"]["positions"].at[rows]
            h = h + table.get(mode="fill", fill_value=jnp.nan)
        return Stream(h, positions, mask, ends, stems)

    def block(self, layer: int, params: PyTree, hidden: Stream) -> Stream:
        """Applies one block."""
        decoder = self.of_layer(layer)
        return decoder.run_block(params["layers"][layer], hidden, None)[0]

    def run_block(
        self,
        layer_params: PyTree,
        stream: Stream,
        prefix: KV | None = None,
        *,
        last_only: bool = False,
    ) -> tuple[Stream, KV]:
        """Applies a block with given parameters; equal layers share a compiled program.

        Returned are the stream and the block's own keys and values. Every token may
        attend to ``prefix``, which has a row for each of the stream or one for all.
        With ``last_only`` only the last token of each sequence is computed; it still
        attends to all of them.
        """
        block = DecoderBlock(self.arch)
        return block.apply({"params": layer_params}, stream, prefix, last_only)  # pyrefly: ignore

    def run_block_inputs(
        self, layer_params: PyTree, stream: Stream
    ) -> tuple[Stream, dict[tuple[str, ...], Float[Array, "B T in"]]]:
        """Applies a block; also returns the inputs of ``("attn", "W_Q")`` and so on."""
        kept: Any
        (after, _), kept = DecoderBlock(self.arch).apply(  # pyrefly: ignore
            {"params": layer_params}, stream, mutable=["inputs"]
        )
        inputs: dict[Any, Any] = traverse_util.flatten_dict(kept["inputs"])
        return after, {path[:-1]: read[0] for path, read in inputs.items()}

    def read_out(self, params: PyTree, hidden: Stream) -> Float[Array, "B T vocab"]:
        """Logits over the vocabulary, in float32."""
        weight, bias = self._head(params)
        return self._logits(params, hidden, weight, bias)

    def label_logits(
        self, params: PyTree, stream: Stream, rows: Int[ArrayLike, "K"]
    ) -> Float[Array, "B T K"]:
        """Columns ``rows`` of the logits of :meth:`read_out`, from float32 products."""
        rows = jnp.asarray(rows)
        weight, bias = self._head(params)
        weight = weight[rows]
        weight = weight.astype(at_least_float32(weight.dtype))
        bias = None if bias is None else bias[rows]
        with jax.default_matmul_precision("highest"):  # a GPU would use TF32
            return self._logits(params, stream, weight, bias)

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """Weight matrices of a block: W_Q, W_K, W_V, W_O and those of the MLP.

        Those of expert e are named ``"expert_e.W_in"`` and so on, so that
        ``"expert_e"`` is a module that can be pruned; the router is none of them.
        """
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"layer: expected 0 to {self.num_layers - 1}, got {layer}")
        mlp = ("W_in", "W_gate", "W_out") if self.arch.gated else ("W_in", "W_out")
        if self.arch.experts is not None:
            numbers = range(self.arch.experts.num)
            mlp = tuple(f"expert_{e}.{name}" for e in numbers for name in mlp)
        groups = (("attn", ("W_Q", "W_K", "W_V", "W_O")), ("mlp", mlp))
        return tuple(
            MatrixSpec(name, group, ("layers", layer, group, *parts, "weight"))
            for group, names in groups
            for name in names
            for parts in [name.split(".")]
        )

    def end_matrices(self) -> tuple[MatrixSpec, ...]:
        """The token embedding and the output head, which may be the same matrix."""
        tokens = ("embed", "tokens")
        head = tokens if self.arch.tied else ("head", "weight")
        pairs = (("embeddings", tokens), ("head", head))
        return tuple(MatrixSpec(name, "ends", path) for name, path in pairs)

    def attention_weights(
        self, layer: int, params: PyTree, hidden: Stream
    ) -> Float[Array, "B heads T T"]:
        """Attention weights of every head of a block; padding rows are undefined."""
        own = {"params": params["layers"][layer]}
        kept: Any = DecoderBlock(self.arch.of_layer(layer)).apply(
            own, hidden, mutable=["intermediates"]
        )[1]
        weights = kept["intermediates"]["attn"]["weights"][0]
        return weights.reshape(weights.shape[0], -1, *weights.shape[-2:])

    def ov_factors(self, layer: int, params: PyTree) -> OVFactors:
        """W_V and W_O of every head, with the norms' linear parts folded in."""
        a, own = self.arch, params["layers"][layer]
        specs = {spec.name: spec for spec in self.matrices(layer)}
        W_O, W_V = (get_matrix(params, specs[name]) for name in ("W_O", "W_V"))
        if a.post_norm:
            W_O = self._before_norm(W_O, own["post_norm_1"])
        if a.pre_norm:
            W_V = self._behind_norm(W_V, own["norm_1"])
        W_O = W_O.reshape(a.width, a.num_heads, a.head_dim)
        W_V = W_V.reshape(a.num_kv_heads, a.head_dim, a.width)
        shared = a.num_heads // a.num_kv_heads
        return OVFactors(jnp.moveaxis(W_O, 1, 0), jnp.repeat(W_V, shared, axis=0))

    def token_maps(
        self, params: PyTree
    ) -> tuple[Float[Array, "vocab n"], Float[Array, "vocab n"]]:
        """Embedding, and unembedding with the last norm's linear part folded in."""
        weight, _ = self._head(params)
        embedding = params["embed"]["tokens"] * self.arch.embed_scale
        return embedding, self._behind_norm(weight, params["final_norm"])

    def _behind_norm(self, W, norm):
        """Returns the matrix times the linear part of the preceding norm."""
        W = W * self._scale(norm).astype(W.dtype)[None]
        if self.arch.norm != "layer":
            return W
        return W - jnp.mean(W, axis=1, keepdims=True)

    def _before_norm(self, W, norm):
        """Returns the linear part of the following norm times the matrix."""
        if self.arch.norm == "layer":
            W = W - jnp.mean(W, axis=0, keepdims=True)
        return W * self._scale(norm).astype(W.dtype)[:, None]

    def _scale(self, norm):
        return norm["scale"] + (self.arch.norm == "rms_plus_one")

    def init(self, key: PRNGKey, dtype: Any = jnp.float32) -> PyTree:
        """Draws parameters from N(0, 0.02^2), with identity norms and zero biases."""
        check_key("key", key)
        a, keys = self.arch, jax.random.split(key, self.num_layers + 3)
        block = jax.jit(functools.partial(_init_block, a.of_layer(0), dtype))
        draw = functools.partial(_normal, dtype=dtype)
        embed = {"tokens": draw(keys[0], (a.vocab_size, a.width))}
        if a.rotary is None:
            rows = a.max_positions + a.position_offset
            embed["positions"] = draw(keys[1], (rows, a.width))
        head = {}
        if not a.tied:
            head["weight"] = draw(keys[2], (a.vocab_size, a.width))
        if a.head_bias:
            head["bias"] = jnp.zeros((a.vocab_size,), dtype)
        norm = Norm(a.norm, a.norm_eps).init(keys[0], jnp.zeros((1, a.width)))
        return {
            "embed": embed,
            "layers": tuple(block(k) for k in keys[3:]),
            "final_norm": jax.tree.map(lambda leaf: leaf.astype(dtype), norm["params"]),
            "head": head,
        }

    def _head(self, params):
        tied = self.arch.tied
        weight = params["embed"]["tokens"] if tied else params["head"]["weight"]
        return weight, params["head"].get("bias")

    def _logits(self, params, stream, weight, bias):
        norm = Norm(self.arch.norm, self.arch.norm_eps)
        h: Any = norm.apply({"params": params["final_norm"]}, stream.h)
        kind = at_least_float32(h.dtype)
        h = h.astype(weight.dtype)
        logits = jnp.einsum("btn,vn->btv", h, weight, preferred_element_type=kind)
        logits = logits if bias is None else logits + bias.astype(kind)[None, None]
        return soft_cap(logits, self.arch.logit_cap)

    def _check_length(self, mask, prefix_length):
        """Raises if a sequence is longer than the supported positions."""
        rotary, limit = self.arch.rotary, self.arch.max_positions
        start, known = concrete(prefix_length), concrete(mask)
        behind = start is not None and start.max(initial=0) > 0
        if rotary is not None:
            if rotary.switch is None or not behind:
                return
            limit = rotary.switch
        if rotary is None and known is None:
            return
        own = mask.shape[1] if known is None else known.sum(1).max(initial=0)
        length = int(own) + (0 if start is None else int(start.max(initial=0)))
        if length > limit:
            raise ValueError(f"ids: expected at most {limit} tokens, got {length}")


def _normal(key, shape, dtype):
    return (0.02 * jax.random.normal(key, shape, jnp.float32)).astype(dtype)


def _init_block(arch, dtype, key):
    stream = Stream(
        jnp.zeros((1, 1, arch.width), jnp.float32),
        jnp.zeros((1, 1), jnp.int32),
        jnp.ones((1, 1), bool),
    )
    params = DecoderBlock(arch).init(key, stream)["params"]
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)


@functools.partial(jax.jit, static_argnums=0)
def embed(decoder, table, tokens, start):
    """Embeds tokens that follow ``start`` other tokens."""
    return decoder.embed_after({"embed": table}, tokens, start)


@functools.partial(jax.jit, static_argnums=(0, 1))
def block(decoder, last_only, layer, stream, prefix):
    """Applies one block to the stream; also returns its keys and values."""
    return decoder.run_block(layer, stream, prefix, last_only=last_only)
