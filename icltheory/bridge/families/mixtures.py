"""Mixtures of experts: Mixtral and Qwen 3 MoE."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture, Experts
from icltheory.bridge.families._gated import NAMES, NORMS, QK_NORMS, QKV, gated
from icltheory.bridge.families.declare import Family, Stored

__all__ = ["MIXTRAL", "QWEN3_MOE"]


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


def _modules(start: str, gate: str, up: str, down: str) -> tuple[Stored, ...]:
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
    modules=_modules("block_sparse_moe", "w1", "w3", "w2"),
    **NAMES,
)
QWEN3_MOE = Family(
    name="qwen3_moe",
    architecture=_qwen3_moe,
    modules=(*_modules("mlp", "gate_proj", "up_proj", "down_proj"), *QK_NORMS),
    **NAMES,
)
