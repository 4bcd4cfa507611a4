"""LLaMA and its relatives: RMS norms, gated MLPs, rotary positions.

Mistral and Ministral add a sliding window; Qwen 2 biases on queries, keys and values;
Qwen 3 norms of queries and keys; OLMo 2 norms behind attention and MLP; StableLM has
layer norms and rotates a quarter of each head; Phi 3 has joint kernels; Mixtral and
Qwen 3 MoE are mixtures of experts.
"""

from collections.abc import Callable
from typing import Any

from icltheory.bridge.architecture import Experts, Rotary
from icltheory.bridge.families.declare import (
    Config,
    Family,
    read_rotary,
    rope_type,
    validated,
)

NORMS = {"input_layernorm": "norm_1", "post_attention_layernorm": "norm_2"}
QKV = {
    "self_attn.q_proj": "attn.W_Q",
    "self_attn.k_proj": "attn.W_K",
    "self_attn.v_proj": "attn.W_V",
}
ATTENTION = {**QKV, "self_attn.o_proj": "attn.W_O"}
PRODUCTS = {
    **ATTENTION,
    "mlp.gate_proj": "mlp.W_gate",
    "mlp.up_proj": "mlp.W_in",
    "mlp.down_proj": "mlp.W_out",
}
MODULES = NORMS | PRODUCTS
QK_NORMS = {"self_attn.q_norm": "attn.q_norm", "self_attn.k_norm": "attn.k_norm"}
POST_NORMS = {
    "post_attention_layernorm": "post_norm_1",
    "post_feedforward_layernorm": "post_norm_2",
}
_USUAL = {"rms_norm_eps": 1e-6, "hidden_act": "silu"}
_GATED = {"norm": "rms", "gated": True}
BIASES = {"attention_bias": "attention_bias", "output_bias": "attention_bias"}
# Names of the norms' constant and of the activation; a family reads those for which it
# declares a default.
_EPS = ("rms_norm_eps", "layer_norm_eps", "norm_epsilon")
_ACTS = ("hidden_activation", "hidden_act")
_PART, _ORIGINAL = "partial_rotary_factor", "original_max_position_embeddings"


def decoder_sizes(config: Config) -> dict[str, Any]:
    """Reads sizes under the names that all families but GPT's use."""
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    right = config.get("head_dim") is not None or width % heads == 0
    validated("num_attention_heads", heads, right, f"a divisor of hidden_size {width}")
    # A null means all heads, an absent entry what the family says.
    given = config.given("num_key_value_heads") is not None
    return {
        "vocab_size": config.size("vocab_size"),
        "width": width,
        "num_layers": config.size("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": config.size("num_key_value_heads") if given else heads,
        "head_dim": config.size("head_dim", default=width // heads),
        "mlp_width": config.size("intermediate_size"),
        "max_positions": config.size("max_position_embeddings"),
        "tied": config.flag("tie_word_embeddings"),
    }


def rotary_decoder(
    config: Config, windowed: Callable[[int], bool] | None = lambda layer: True
) -> dict[str, Any]:
    """Reads sizes, positions, activation, head and window.

    ``windowed`` says which layers have a window where the file does not name them;
    ``None`` stands for no window at all.
    """
    sizes, known = decoder_sizes(config), config.defaults
    width, longest = sizes["head_dim"], sizes["max_positions"]
    base, part = known.get("rope_theta", 1e4), known.get(_PART, 1.0)
    rotary = read_rotary(config.values, width, longest, base=base, fraction=part)
    if _PART not in known:
        check_whole(rotary, width)
    (eps,) = (name for name in _EPS if name in known)
    fields: dict[str, Any] = {
        "norm_eps": config.number(eps),
        "activation": config.activation(*(name for name in _ACTS if name in known)),
        "rotary": rotary,
    }
    if windowed is not None and "sliding_window" in known:
        fields["sliding_window"] = config.window(sizes["num_layers"], windowed)
    return sizes | fields


def check_whole(rotary: Rotary, head_dim: int) -> None:
    """Raises unless all dimensions of a head are rotated."""
    if rotary.dim < head_dim:
        raise ValueError(
            "partial_rotary_factor: expected 1 for this model family, got partial "
            f"rotary embeddings ({rotary.dim} of {head_dim} dimensions)"
        )


def _qwen(config: Config) -> dict[str, Any]:
    def windowed(layer):
        return layer >= config.number("max_window_layers")

    used = config.flag("use_sliding_window")
    return rotary_decoder(config, windowed if used else None)


def _phi3(config: Config) -> dict[str, Any]:
    """Reads the long-context scaling of this family under its current name."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope, values = config.get(name), {_ORIGINAL: 4096, **config.values}
    if isinstance(rope, dict):
        kind, known = rope_type(rope), ("default", "longrope", "su", "yarn")
        validated("rope_type", kind, kind in known, "default, longrope, su or yarn")
        kind = "longrope" if kind != "default" else kind
        values[name] = {**rope, "rope_type": kind}
    return rotary_decoder(Config(values, config.defaults))


def _mixtral(config: Config) -> dict[str, Any]:
    num, used = map(config.size, ("num_local_experts", "num_experts_per_tok"))
    return rotary_decoder(config) | {"experts": Experts(num, used)}


def _qwen3_moe(config: Config) -> dict[str, Any]:
    windowed = config.flag("use_sliding_window")
    fields = rotary_decoder(config, (lambda layer: True) if windowed else None)
    experts = Experts(
        config.size("num_experts", "num_local_experts"),
        config.size("num_experts_per_tok"),
        config.flag("norm_topk_prob"),
    )
    width = config.size("moe_intermediate_size")
    return fields | {"mlp_width": width, "experts": experts}


def _expert_modules(start: str, gate: str, up: str, down: str) -> dict[str, str]:
    """Attention, router and experts under a family's names."""
    names = {gate: "W_gate", up: "W_in", down: "W_out"}
    return {
        **NORMS,
        **ATTENTION,
        f"{start}.gate": "mlp.router",
    } | {
        f"{start}.experts.{{expert}}.{name}": f"mlp.expert_{{expert}}.{W}"
        for name, W in names.items()
    }


_MISTRAL: dict[str, Any] = {
    "fields": rotary_decoder,
    "modules": MODULES,
    "fixed": _GATED,
    "defaults": {
        **_USUAL,
        "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    },
}
_QWEN = {
    **_USUAL,
    "max_position_embeddings": 32768,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
FAMILIES = (
    Family(
        "llama",
        rotary_decoder,
        MODULES,
        defaults={**_USUAL, "max_position_embeddings": 2048},
        fixed=_GATED,
        flags={**BIASES, "mlp_bias": "mlp_bias"},
    ),
    Family("mistral", **_MISTRAL),
    Family("ministral", **_MISTRAL),
    Family(
        "qwen2",
        _qwen,
        MODULES,
        defaults=_QWEN,
        fixed={**_GATED, "attention_bias": True},
    ),
    Family(
        "qwen3",
        _qwen,
        MODULES | QK_NORMS,
        defaults={**_QWEN, "head_dim": 128},
        fixed={**_GATED, "qk_norm": "head"},
        flags=BIASES,
    ),
    Family(
        "olmo2",
        rotary_decoder,
        PRODUCTS | POST_NORMS | QK_NORMS,
        defaults={**_USUAL, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048},
        fixed={**_GATED, "pre_norm": False, "post_norm": True, "qk_norm": "projection"},
        flags=BIASES,
        refused={"clip_qkv": None},
    ),
    Family(
        "stablelm",
        rotary_decoder,
        MODULES,
        defaults={
            "layer_norm_eps": 1e-5,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "partial_rotary_factor": 0.25,
        },
        fixed={"gated": True},
        flags={"attention_bias": "use_qkv_bias"},
        refused={"qk_layernorm": False, "use_parallel_residual": False},
    ),
    Family(
        "phi3",
        _phi3,
        {
            **NORMS,
            "self_attn.qkv_proj": "attn.W_Q attn.W_K attn.W_V",
            "self_attn.o_proj": "attn.W_O",
            "mlp.gate_up_proj": "mlp.W_gate mlp.W_in",
            "mlp.down_proj": "mlp.W_out",
        },
        defaults={
            **_USUAL,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 4096,
            "partial_rotary_factor": 1.0,
            "sliding_window": None,
        },
        fixed=_GATED,
        refused={"layer_types": None},
    ),
    Family(
        "mixtral",
        _mixtral,
        _expert_modules("block_sparse_moe", "w1", "w3", "w2"),
        defaults={
            **_USUAL,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "rope_theta": 1e6,
            "sliding_window": None,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        fixed=_GATED,
        refused={"layer_types": None},
    ),
    Family(
        "qwen3_moe",
        _qwen3_moe,
        _expert_modules("mlp", "gate_proj", "up_proj", "down_proj") | QK_NORMS,
        defaults={
            **_QWEN,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 768,
            "num_experts": 128,
            "num_experts_per_tok": 8,
        },
        fixed={**_GATED, "qk_norm": "head"},
        flags=BIASES,
        refused={"decoder_sparse_step": 1, "mlp_only_layers": [], "layer_types": None},
    ),
)
