"""OPT: learned positions whose table begins with two unused rows, and ReLU.

The model of 350 million weights, whose norms follow the sums and whose tokens are
narrower than its stream, is refused.
"""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import QKV
from icltheory.bridge.families.declare import Family, Stored

__all__ = ["OPT"]


def _architecture(config: Config) -> Architecture:
    config.refuse("do_layer_norm_before", unless=True)
    config.refuse("_remove_final_layer_norm", unless=False)
    config.refuse("layer_norm_elementwise_affine", unless=True)
    width = config.size("hidden_size", default=768)
    heads = config.size("num_attention_heads", default=12)
    config.refuse("word_embed_proj_dim", unless=width)
    if width % heads:
        raise ValueError(
            "num_attention_heads: expected a divisor of "
            f"hidden_size {width}, got {heads}"
        )
    bias = config.flag("enable_bias", True)
    return Architecture(
        family="opt",
        vocab_size=config.size("vocab_size", default=50272),
        width=width,
        num_layers=config.size("num_hidden_layers", default=12),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width // heads,
        mlp_width=config.size("ffn_dim", default=3072),
        max_positions=config.size("max_position_embeddings", default=2048),
        position_offset=2,
        activation=config.activation("activation_function", default="relu"),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        tied=config.flag("tie_word_embeddings", True),
    )


OPT = Family(
    name="opt",
    architecture=_architecture,
    prefix="model.",
    embed="decoder.embed_tokens",
    positions="decoder.embed_positions",
    final_norm="decoder.final_layer_norm",
    head="lm_head",
    layer="decoder.layers.{}",
    modules=(
        Stored("self_attn_layer_norm", ("norm_1",)),
        *QKV,
        Stored("self_attn.out_proj", ("attn.W_O",)),
        Stored("final_layer_norm", ("norm_2",)),
        Stored("fc1", ("mlp.W_in",)),
        Stored("fc2", ("mlp.W_out",)),
    ),
)
