"""GPT-NeoX and Pythia: joint kernels that alternate head by head."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import decoder_sizes
from icltheory.bridge.families.declare import Family, Stored
from icltheory.bridge.rope import read_rotary

__all__ = ["GPT_NEOX"]


def _architecture(config: Config) -> Architecture:
    sizes = decoder_sizes(config)
    longest = config.size("max_position_embeddings", default=2048)
    bias = config.flag("attention_bias", True)
    # The family has its own names for the base and the rotated share, and ignores
    # others.
    others = ("rope_theta", "partial_rotary_factor")
    values = {k: v for k, v in config.values.items() if k not in others}
    rotary = read_rotary(
        values,
        sizes["head_dim"],
        longest,
        base=config.number("rotary_emb_base", default=10000.0),
        fraction=config.number("rotary_pct", default=0.25),
    )
    return Architecture(
        family="gpt_neox",
        **sizes,
        max_positions=longest,
        norm_eps=config.number("layer_norm_eps", default=1e-5),
        activation=config.activation("hidden_act", default="gelu"),
        rotary=rotary,
        parallel=config.flag("use_parallel_residual", True),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        tied=config.flag("tie_word_embeddings", False),
    )


GPT_NEOX = Family(
    name="gpt_neox",
    architecture=_architecture,
    prefix="gpt_neox.",
    embed="embed_in",
    final_norm="final_layer_norm",
    head="embed_out",
    other_heads=("lm_head",),
    layer="layers.{}",
    modules=(
        Stored("input_layernorm", ("norm_1",)),
        Stored("post_attention_layernorm", ("norm_2",)),
        Stored(
            "attention.query_key_value",
            ("attn.W_Q", "attn.W_K", "attn.W_V"),
            by_head=True,
        ),
        Stored("attention.dense", ("attn.W_O",)),
        Stored("mlp.dense_h_to_4h", ("mlp.W_in",)),
        Stored("mlp.dense_4h_to_h", ("mlp.W_out",)),
    ),
    skipped=(
        r"layers\.\d+\.attention\.(bias|masked_bias)",
        r"layers\.\d+\.attention\.rotary_emb\.inv_freq",
    ),
)
