"""Shared by LLaMA-like families: sizes, RMS norm, gated MLP and rotary positions."""

from typing import Any

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Rotary
from icltheory.bridge.families.declare import Stored
from icltheory.bridge.rope import read_rotary

NORMS = (
    Stored("input_layernorm", ("norm_1",)),
    Stored("post_attention_layernorm", ("norm_2",)),
)
QKV = (
    Stored("self_attn.q_proj", ("attn.W_Q",)),
    Stored("self_attn.k_proj", ("attn.W_K",)),
    Stored("self_attn.v_proj", ("attn.W_V",)),
)
PRODUCTS = (
    *QKV,
    Stored("self_attn.o_proj", ("attn.W_O",)),
    Stored("mlp.gate_proj", ("mlp.W_gate",)),
    Stored("mlp.up_proj", ("mlp.W_in",)),
    Stored("mlp.down_proj", ("mlp.W_out",)),
)
MODULES = (*NORMS, *PRODUCTS)
QK_NORMS = (
    Stored("self_attn.q_norm", ("attn.q_norm",)),
    Stored("self_attn.k_norm", ("attn.k_norm",)),
)
POST_NORMS = (
    Stored("post_attention_layernorm", ("post_norm_1",)),
    Stored("post_feedforward_layernorm", ("post_norm_2",)),
)
NAMES = {
    "prefix": "model.",
    "embed": "embed_tokens",
    "final_norm": "norm",
    "head": "lm_head",
    "layer": "layers.{}",
    "skipped": (
        r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
        r"rotary_emb\.inv_freq",
    ),
}


def decoder_sizes(
    config: Config, *, head_dim: int | None = None, kv_heads: int | None = None
) -> dict[str, Any]:
    """Reads sizes under the names that all families but GPT's use.

    ``kv_heads`` is what a file without the entry means; a null means all heads.
    """
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    if head_dim is None and config.get("head_dim") is None and width % heads:
        raise ValueError(
            "num_attention_heads: expected a divisor of "
            f"hidden_size {width}, got {heads}"
        )
    if kv_heads is None or "num_key_value_heads" in config.values:
        kv_heads = heads
    return {
        "vocab_size": config.size("vocab_size"),
        "width": width,
        "num_layers": config.size("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": config.size("num_key_value_heads", default=kv_heads),
        "head_dim": config.size("head_dim", default=head_dim or width // heads),
        "mlp_width": config.size("intermediate_size"),
    }


def gated(
    config: Config,
    *,
    positions: int,
    eps: float = 1e-6,
    tied: bool = False,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    norm: str = "rms",
    partial: bool = False,
    base: float = 10000.0,
) -> dict[str, Any]:
    """Reads the architecture of a gated decoder; arguments are the family's defaults.

    ``partial`` says whether the family knows heads of which only a part turns.
    """
    fields = rotary_decoder(
        config,
        positions=positions,
        eps=("rms_norm_eps", eps),
        activation="silu",
        tied=tied,
        head_dim=head_dim,
        kv_heads=kv_heads,
        partial=partial,
        base=base,
    )
    return {**fields, "norm": norm, "gated": True}


def rotary_decoder(
    config: Config,
    *,
    positions: int,
    eps: tuple[str, float],
    activation: str,
    tied: bool = False,
    head_dim: int | None = None,
    kv_heads: int | None = None,
    partial: bool = True,
    base: float = 10000.0,
    fraction: float = 1.0,
) -> dict[str, Any]:
    """Reads sizes, positions, activation and head; arguments are the defaults.

    ``eps`` is the entry of the norms' constant and its default; ``partial`` says
    whether the family knows heads of which only a part turns.
    """
    sizes = decoder_sizes(config, head_dim=head_dim, kv_heads=kv_heads)
    longest = config.size("max_position_embeddings", default=positions)
    width = sizes["head_dim"]
    rotary = read_rotary(config.values, width, longest, base=base, fraction=fraction)
    if not partial:
        check_whole(rotary, width)
    name, usual = eps
    return {
        **sizes,
        "max_positions": longest,
        "norm_eps": config.number(name, default=usual),
        "activation": config.activation("hidden_act", default=activation),
        "rotary": rotary,
        "tied": config.flag("tie_word_embeddings", tied),
    }


def check_whole(rotary: Rotary, head_dim: int) -> None:
    """Raises unless all dimensions of a head are rotated."""
    if rotary.dim < head_dim:
        raise ValueError(
            "partial_rotary_factor: expected 1 for this model family, got partial "
            f"rotary embeddings ({rotary.dim} of {head_dim} dimensions)"
        )
