"""GPT-2 as a layered model, for pruning, spectra and caches."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from icltheory.layered import MatrixSpec, OVFactors, get_matrix
from icltheory.models.gpt2 import GPT2
from icltheory.models.tokens import TokenSequence


@dataclasses.dataclass(frozen=True)
class LayeredGPT2:
    """The layered model of a GPT-2 on prompts of pairs.

    Inputs are ``(X, y)`` or ``(X, y, X_query)``; a hidden state is the token sequence
    with the residual stream in place of the tokens; the output is the prediction at
    every prefix. With ``last_only`` and the papers' tokens of pairs
    (``token_layout="matrix"``) ``(X, y)`` asks the last question alone, and the output
    is ``(B, 1)``.

    Example:
        >>> model = LayeredGPT2(GPT2(dim=3, num_positions=8, width=8, num_layers=2))
        >>> [(spec.name, spec.group) for spec in model.matrices(1)][:2]
        [('W_Q', 'attn'), ('W_K', 'attn')]

    Source: Yao et al. 2024, Section 2 (modules that are pruned).
    """

    module: GPT2
    last_only: bool = False

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        return self.module.num_layers

    def embed(self, params: Any, inputs: tuple) -> TokenSequence:
        """The residual stream that enters block 0."""
        options = {"last_only": self.last_only}
        sequence = self._apply(params, "tokenize", *inputs, **options)
        tokens = self._apply(params, "embed", sequence)
        return dataclasses.replace(sequence, tokens=tokens)

    def block(self, layer: int, params: Any, hidden: TokenSequence) -> TokenSequence:
        """Applies one block."""
        tokens = self._apply(params, "block", layer, hidden.tokens, hidden.mask)
        return dataclasses.replace(hidden, tokens=tokens)

    def read_out(self, params: Any, hidden: TokenSequence) -> Float[Array, "B P"]:
        """Predictions at every prefix."""
        return self._apply(params, "read_out", hidden.tokens[:, hidden.outputs])

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """Weight matrices: W_Q, W_K, W_V, W_O, and the two matrices of the MLP."""
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"layer: expected 0 to {self.num_layers - 1}, got {layer}")
        block, width = f"block_{layer}", self.module.width
        named = [("W_Q", "attn_qkv"), ("W_K", "attn_qkv"), ("W_V", "attn_qkv")]
        named += [("W_O", "attn_out")]
        if self.module.mlp:
            named += [("W_in", "mlp_in"), ("W_out", "mlp_out")]
        specs = []
        for part, (name, leaf) in enumerate(named):
            group, path = leaf.partition("_")[0], (block, leaf, "kernel")
            # One array holds queries, keys and values.
            rows = (part * width, (part + 1) * width) if leaf == "attn_qkv" else None
            specs.append(MatrixSpec(name, group, path, transposed=True, rows=rows))
        return tuple(specs)

    def attention_weights(
        self, layer: int, params: Any, hidden: TokenSequence
    ) -> Float[Array, "B heads T T"]:
        """Attention weights of every head of one block."""
        given = layer, hidden.tokens, hidden.mask
        kept = self._apply(params, "block", *given, mutable=["intermediates"])[1]
        return kept["intermediates"][f"block_{layer}"]["weights"][0]

    def ov_factors(self, layer: int, params: Any) -> OVFactors:
        """W_V and W_O of every head, with the norm's scale and centring folded in."""
        specs = {spec.name: spec for spec in self.matrices(layer)}
        heads, n = self.module.num_heads, self.module.width
        scale = params[f"block_{layer}"]["ln_1"]["scale"]
        W_V = get_matrix(params, specs["W_V"]) * scale[None]
        W_V = W_V - jnp.mean(W_V, axis=1, keepdims=True)
        W_O = get_matrix(params, specs["W_O"]).reshape(n, heads, -1)
        return OVFactors(jnp.moveaxis(W_O, 1, 0), W_V.reshape(heads, -1, n))

    def _apply(self, params, method, *args, **options) -> Any:
        return self.module.apply({"params": params}, *args, method=method, **options)
