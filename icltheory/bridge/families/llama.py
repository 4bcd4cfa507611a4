"""LLaMA and its relatives: RMS norms, gated MLPs, rotary positions.

Mistral and Ministral add a sliding window; Qwen 2 biases on queries, keys and values;
Qwen 3 norms of queries and keys; OLMo 2 norms behind attention and MLP; StableLM has
layer norms and rotates a quarter of each head; Phi 3 has joint kernels; Mixtral and
Qwen 3 MoE are mixtures of experts.
"""

from typing import Any

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture, Experts, Rotary
from icltheory.bridge.families.declare import Family, Stored
from icltheory.bridge.rope import read_rotary

__all__ = [
    "LLAMA",
    "MINISTRAL",
    "MISTRAL",
    "MIXTRAL",
    "OLMO2",
    "PHI3",
    "QWEN2",
    "QWEN3",
    "QWEN3_MOE",
    "STABLELM",
]

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


def _llama(config: Config) -> Architecture:
    bias = config.flag("attention_bias", False)
    return Architecture(
        family="llama",
        **gated(config, positions=2048),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
    )


def _mistral(config: Config, family: str = "mistral") -> Architecture:
    fields = gated(config, positions=4096 * 32, kv_heads=8)
    window = config.window(fields["num_layers"], usual=4096)
    return Architecture(family=family, **fields, sliding_window=window)


def _ministral(config: Config) -> Architecture:
    return _mistral(config, "ministral")


LLAMA = Family(name="llama", architecture=_llama, modules=MODULES, **NAMES)
MISTRAL = Family(name="mistral", architecture=_mistral, modules=MODULES, **NAMES)
MINISTRAL = Family(name="ministral", architecture=_ministral, modules=MODULES, **NAMES)


def _window(config, num_layers):
    if not config.flag("use_sliding_window", False):
        return None
    first = config.number("max_window_layers", default=28.0)
    return config.window(num_layers, usual=4096, windowed=lambda layer: layer >= first)


def _qwen2(config: Config) -> Architecture:
    fields = gated(config, positions=32768, kv_heads=32)
    window = _window(config, fields["num_layers"])
    return Architecture(
        family="qwen2", **fields, attention_bias=True, sliding_window=window
    )


def _qwen3(config: Config) -> Architecture:
    fields = gated(config, positions=32768, head_dim=128, kv_heads=32)
    bias = config.flag("attention_bias", False)
    return Architecture(
        family="qwen3",
        **fields,
        attention_bias=bias,
        output_bias=bias,
        qk_norm="head",
        sliding_window=_window(config, fields["num_layers"]),
    )


QWEN2 = Family(name="qwen2", architecture=_qwen2, modules=MODULES, **NAMES)
QWEN3 = Family(
    name="qwen3", architecture=_qwen3, modules=(*MODULES, *QK_NORMS), **NAMES
)


def _olmo2(config: Config) -> Architecture:
    config.refuse("clip_qkv", unless=None)
    bias = config.flag("attention_bias", False)
    return Architecture(
        family="olmo2",
        **gated(config, positions=2048, eps=1e-5),
        pre_norm=False,
        post_norm=True,
        qk_norm="projection",
        attention_bias=bias,
        output_bias=bias,
    )


OLMO2 = Family(
    name="olmo2",
    architecture=_olmo2,
    modules=(*PRODUCTS, *POST_NORMS, *QK_NORMS),
    **NAMES,
)


def _stablelm(config: Config) -> Architecture:
    config.refuse("qk_layernorm", unless=False)
    config.refuse("use_parallel_residual", unless=False)
    fields = rotary_decoder(
        config,
        positions=4096,
        eps=("layer_norm_eps", 1e-5),
        activation="silu",
        fraction=0.25,
    )
    return Architecture(
        family="stablelm",
        **fields,
        gated=True,
        attention_bias=config.flag("use_qkv_bias", False),
    )


STABLELM = Family(name="stablelm", architecture=_stablelm, modules=MODULES, **NAMES)


_ORIGINAL = "original_max_position_embeddings"


def _phi3(config: Config) -> Architecture:
    config.refuse("layer_types", unless=None)
    config = Config({_ORIGINAL: 4096, **config.values, **_long_rope(config)})
    fields = gated(config, positions=4096, eps=1e-5, partial=True)
    window = config.window(fields["num_layers"], usual=None)
    return Architecture(family="phi3", **fields, sliding_window=window)


def _long_rope(config: Config) -> dict[str, Any]:
    """Reads the long-context scaling of this family under its current name."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = config.get(name)
    if not isinstance(rope, dict):
        return {}
    kind = rope.get("rope_type", rope.get("type", "default")) or "default"
    if kind not in ("default", "longrope", "su", "yarn"):
        raise ValueError(
            f"rope_type: expected default, longrope, su or yarn, got {kind!r}"
        )
    return {name: {**rope, "rope_type": "longrope" if kind != "default" else kind}}


PHI3 = Family(
    name="phi3",
    architecture=_phi3,
    modules=(
        *NORMS,
        Stored("self_attn.qkv_proj", ("attn.W_Q", "attn.W_K", "attn.W_V")),
        Stored("self_attn.o_proj", ("attn.W_O",)),
        Stored("mlp.gate_up_proj", ("mlp.W_gate", "mlp.W_in")),
        Stored("mlp.down_proj", ("mlp.W_out",)),
    ),
    **NAMES,
)


def _mixtral(config: Config) -> Architecture:
    config.refuse("layer_types", unless=None)
    fields = gated(config, positions=4096 * 32, eps=1e-5, kv_heads=8, base=1e6)
    experts = Experts(
        config.size("num_local_experts", default=8),
        config.size("num_experts_per_tok", default=2),
    )
    window = config.window(fields["num_layers"], usual=None)
    return Architecture(
        family="mixtral", **fields, sliding_window=window, experts=experts
    )


def _qwen3_moe(config: Config) -> Architecture:
    config.refuse("decoder_sparse_step", unless=1)
    config.refuse("mlp_only_layers", unless=[])
    config.refuse("layer_types", unless=None)
    fields = gated(config, positions=32768, kv_heads=4)
    fields["mlp_width"] = config.size("moe_intermediate_size", default=768)
    experts = Experts(
        config.size("num_experts", "num_local_experts", default=128),
        config.size("num_experts_per_tok", default=8),
        config.flag("norm_topk_prob", False),
    )
    bias = config.flag("attention_bias", False)
    windowed = config.flag("use_sliding_window", False)
    window = config.window(fields["num_layers"], usual=4096) if windowed else None
    return Architecture(
        family="qwen3_moe",
        **fields,
        attention_bias=bias,
        output_bias=bias,
        qk_norm="head",
        sliding_window=window,
        experts=experts,
    )


def _expert_modules(start: str, gate: str, up: str, down: str) -> tuple[Stored, ...]:
    """Attention, router and experts under a family's names."""
    names = {"W_gate": gate, "W_in": up, "W_out": down}
    one = f"{start}.experts.{{expert}}"
    return (
        *NORMS,
        *QKV,
        Stored("self_attn.o_proj", ("attn.W_O",)),
        Stored(f"{start}.gate", ("mlp.router",)),
        *(
            Stored(f"{one}.{name}", (f"mlp.expert_{{expert}}.{W}",))
            for W, name in names.items()
        ),
    )


MIXTRAL = Family(
    name="mixtral",
    architecture=_mixtral,
    modules=_expert_modules("block_sparse_moe", "w1", "w3", "w2"),
    **NAMES,
)
QWEN3_MOE = Family(
    name="qwen3_moe",
    architecture=_qwen3_moe,
    modules=(*_expert_modules("mlp", "gate_proj", "up_proj", "down_proj"), *QK_NORMS),
    **NAMES,
)
