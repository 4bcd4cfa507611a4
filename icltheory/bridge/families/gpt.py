"""GPT-2, GPT-J, GPT-NeoX with Pythia, OPT, StarCoder 2, and Phi 1 to 2.

They have layer norms with offsets, MLPs without a gate, and names of their own.
"""

from typing import Any

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families.declare import Family, Stored
from icltheory.bridge.families.llama import (
    NAMES,
    NORMS,
    QKV,
    decoder_sizes,
    rotary_decoder,
)
from icltheory.bridge.rope import read_rotary

__all__ = ["GPT2", "GPTJ", "GPT_NEOX", "OPT", "PHI", "STARCODER2"]


def _gpt_sizes(
    config: Config, *, vocab: int, positions: int, width: int, layers: int, heads: int
) -> dict[str, Any]:
    """Reads sizes, norm and activation; arguments are the family's defaults."""
    width = config.size("n_embd", "hidden_size", default=width)
    heads = config.size("n_head", "num_attention_heads", default=heads)
    if width % heads:
        raise ValueError(f"n_head: expected a divisor of n_embd {width}, got {heads}")
    names = ("activation_function", "hidden_act")
    return {
        "vocab_size": config.size("vocab_size", default=vocab),
        "width": width,
        "num_layers": config.size("n_layer", "num_hidden_layers", default=layers),
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width // heads,
        "mlp_width": config.size("n_inner", default=4 * width),
        "max_positions": config.size(
            "n_positions", "max_position_embeddings", default=positions
        ),
        "norm_eps": config.number("layer_norm_epsilon", default=1e-5),
        "activation": config.activation(*names, default="gelu_new"),
    }


def _gpt2(config: Config) -> Architecture:
    config.refuse("scale_attn_weights", unless=True)
    config.refuse("scale_attn_by_inverse_layer_idx", unless=False)
    config.refuse("add_cross_attention", unless=False)
    return Architecture(
        family="gpt2",
        **_gpt_sizes(
            config, vocab=50257, positions=1024, width=768, layers=12, heads=12
        ),
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=config.flag("tie_word_embeddings", True),
    )


GPT2 = Family(
    name="gpt2",
    architecture=_gpt2,
    prefix="transformer.",
    embed="wte",
    positions="wpe",
    final_norm="ln_f",
    head="lm_head",
    layer="h.{}",
    modules=(
        Stored("ln_1", ("norm_1",)),
        Stored("attn.c_attn", ("attn.W_Q", "attn.W_K", "attn.W_V"), transposed=True),
        Stored("attn.c_proj", ("attn.W_O",), transposed=True),
        Stored("ln_2", ("norm_2",)),
        Stored("mlp.c_fc", ("mlp.W_in",), transposed=True),
        Stored("mlp.c_proj", ("mlp.W_out",), transposed=True),
    ),
    skipped=(r"h\.\d+\.attn\.(bias|masked_bias)",),
)


def _gptj(config: Config) -> Architecture:
    sizes = _gpt_sizes(
        config, vocab=50400, positions=2048, width=4096, layers=28, heads=16
    )
    rotary = read_rotary(
        {},
        config.size("rotary_dim", default=64),
        sizes["max_positions"],
        interleaved=True,
    )
    return Architecture(
        family="gptj",
        **sizes,
        rotary=rotary,
        parallel=True,
        shared_norm=True,
        mlp_bias=True,
        head_bias=True,
        tied=config.flag("tie_word_embeddings", False),
    )


GPTJ = Family(
    name="gptj",
    architecture=_gptj,
    prefix="transformer.",
    embed="wte",
    final_norm="ln_f",
    head="lm_head",
    layer="h.{}",
    modules=(
        Stored("ln_1", ("norm_1",)),
        Stored("attn.q_proj", ("attn.W_Q",)),
        Stored("attn.k_proj", ("attn.W_K",)),
        Stored("attn.v_proj", ("attn.W_V",)),
        Stored("attn.out_proj", ("attn.W_O",)),
        Stored("mlp.fc_in", ("mlp.W_in",)),
        Stored("mlp.fc_out", ("mlp.W_out",)),
    ),
    skipped=(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)",),
)


def _gpt_neox(config: Config) -> Architecture:
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
    architecture=_gpt_neox,
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


def _opt(config: Config) -> Architecture:
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
    architecture=_opt,
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


def _starcoder2(config: Config) -> Architecture:
    config.refuse("layer_types", unless=None)
    fields = rotary_decoder(
        config,
        positions=4096,
        eps=("norm_epsilon", 1e-5),
        activation="gelu_pytorch_tanh",
        tied=True,
        kv_heads=2,
        partial=False,
    )
    bias = config.flag("use_bias", True)
    return Architecture(
        family="starcoder2",
        **fields,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        sliding_window=config.window(fields["num_layers"], usual=None),
    )


STARCODER2 = Family(
    name="starcoder2",
    architecture=_starcoder2,
    modules=(
        *NORMS,
        *QKV,
        Stored("self_attn.o_proj", ("attn.W_O",)),
        Stored("mlp.c_fc", ("mlp.W_in",)),
        Stored("mlp.c_proj", ("mlp.W_out",)),
    ),
    **NAMES,
)


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
