"""Phi 1 to 2 with parallel blocks like GPT-J; Phi 3, a LLaMA with joint kernels."""

from typing import Any

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import (
    NAMES,
    NORMS,
    QKV,
    gated,
    rotary_decoder,
)
from icltheory.bridge.families.declare import Family, Stored

__all__ = ["PHI", "PHI3"]

_ORIGINAL = "original_max_position_embeddings"


def _phi(config: Config) -> Architecture:
    config.refuse("qk_layernorm", unless=False)
    fields = rotary_decoder(
        config,
        positions=2048,
        eps=("layer_norm_eps", 1e-5),
        activation="gelu_new",
        fraction=0.5,
    )
    return Architecture(
        family="phi",
        **fields,
        parallel=True,
        shared_norm=True,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
    )


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


PHI = Family(
    name="phi",
    architecture=_phi,
    modules=(
        NORMS[0],
        *QKV,
        Stored("self_attn.dense", ("attn.W_O",)),
        Stored("mlp.fc1", ("mlp.W_in",)),
        Stored("mlp.fc2", ("mlp.W_out",)),
    ),
    **{**NAMES, "final_norm": "final_layernorm"},
)
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
