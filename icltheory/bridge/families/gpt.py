"""GPT-2, GPT-J, GPT-NeoX with Pythia, OPT, StarCoder 2, and Phi 1 to 2.

They have layer norms with offsets, MLPs without a gate, and names of their own.
"""

from typing import Any

from icltheory.bridge.families.declare import Config, Family, read_rotary, validated
from icltheory.bridge.families.llama import (
    ATTENTION,
    NORMS,
    QKV,
    decoder_sizes,
    rotary_decoder,
)


def _gpt2(config: Config) -> dict[str, Any]:
    width, heads = (config.size(*names) for names in (_WIDTH, _HEADS))
    validated("n_head", heads, width % heads == 0, f"a divisor of n_embd {width}")
    return {
        "vocab_size": config.size("vocab_size"),
        "width": width,
        "num_layers": config.size("n_layer", "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width // heads,
        "mlp_width": config.size("n_inner", default=4 * width),
        "max_positions": config.size("n_positions", "max_position_embeddings"),
        "norm_eps": config.number("layer_norm_epsilon"),
        "activation": config.activation("activation_function", "hidden_act"),
        "tied": config.flag("tie_word_embeddings"),
    }


def _gptj(config: Config) -> dict[str, Any]:
    sizes, dim = _gpt2(config), config.size("rotary_dim")
    rotary = read_rotary({}, dim, sizes["max_positions"], interleaved=True)
    return sizes | {"rotary": rotary}


def _gpt_neox(config: Config) -> dict[str, Any]:
    sizes = decoder_sizes(config)
    # The family has its own names for the base and the rotated share.
    ignored = dict.fromkeys(("rope_theta", "partial_rotary_factor"))
    rotary = read_rotary(
        {**config.values, **ignored},
        sizes["head_dim"],
        sizes["max_positions"],
        base=config.number("rotary_emb_base"),
        fraction=config.number("rotary_pct"),
    )
    return {
        **sizes,
        "norm_eps": config.number("layer_norm_eps"),
        "activation": config.activation("hidden_act"),
        "rotary": rotary,
    }


def _opt(config: Config) -> dict[str, Any]:
    config.refuse("word_embed_proj_dim", unless=config.size("hidden_size"))
    values = {**config.values, "intermediate_size": config.size("ffn_dim")}
    return {
        **decoder_sizes(Config(values, config.defaults)),
        "activation": config.activation("activation_function"),
    }


_WIDTH, _HEADS = ("n_embd", "hidden_size"), ("n_head", "num_attention_heads")
_GPT_NAMES: dict[str, Any] = {
    "prefix": "transformer.",
    "embed": "wte",
    "final_norm": "ln_f",
    "layer": "h.{}",
}
_GPT = {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
_BIASES = ("attention_bias", "output_bias", "mlp_bias")

FAMILIES = (
    Family(
        "gpt2",
        _gpt2,
        {
            "ln_1": "norm_1",
            "attn.c_attn": "attn.W_Q attn.W_K attn.W_V",
            "attn.c_proj": "attn.W_O",
            "ln_2": "norm_2",
            "mlp.c_fc": "mlp.W_in",
            "mlp.c_proj": "mlp.W_out",
        },
        transposed=True,
        positions="wpe",
        skipped=(r"h\.\d+\.attn\.(bias|masked_bias)",),
        defaults={
            **_GPT,
            "vocab_size": 50257,
            "n_positions": 1024,
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "tie_word_embeddings": True,
        },
        fixed=dict.fromkeys(_BIASES, True),
        refused={
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
        **_GPT_NAMES,
    ),
    Family(
        "gptj",
        _gptj,
        {
            "ln_1": "norm_1",
            "attn.q_proj": "attn.W_Q",
            "attn.k_proj": "attn.W_K",
            "attn.v_proj": "attn.W_V",
            "attn.out_proj": "attn.W_O",
            "mlp.fc_in": "mlp.W_in",
            "mlp.fc_out": "mlp.W_out",
        },
        skipped=(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)",),
        defaults={
            **_GPT,
            "vocab_size": 50400,
            "n_positions": 2048,
            "n_embd": 4096,
            "n_layer": 28,
            "n_head": 16,
            "rotary_dim": 64,
        },
        fixed=dict.fromkeys(("parallel", "shared_norm", "mlp_bias", "head_bias"), True),
        **_GPT_NAMES,
    ),
    Family(
        "gpt_neox",
        _gpt_neox,
        {
            **NORMS,
            "attention.query_key_value": "attn.W_Q attn.W_K attn.W_V",
            "attention.dense": "attn.W_O",
            "mlp.dense_h_to_4h": "mlp.W_in",
            "mlp.dense_4h_to_h": "mlp.W_out",
        },
        by_head=True,
        prefix="gpt_neox.",
        embed="embed_in",
        final_norm="final_layer_norm",
        head="embed_out",
        other_heads=("lm_head",),
        layer="layers.{}",
        skipped=(
            r"layers\.\d+\.attention\.(bias|masked_bias)",
            r"layers\.\d+\.attention\.rotary_emb\.inv_freq",
        ),
        defaults={
            "max_position_embeddings": 2048,
            "rotary_emb_base": 10000.0,
            "rotary_pct": 0.25,
            "layer_norm_eps": 1e-5,
            "hidden_act": "gelu",
            "use_parallel_residual": True,
            "attention_bias": True,
        },
        fixed={"mlp_bias": True},
        flags={
            "parallel": "use_parallel_residual",
            "attention_bias": "attention_bias",
            "output_bias": "attention_bias",
        },
    ),
    Family(
        "opt",
        _opt,
        {
            "self_attn_layer_norm": "norm_1",
            **QKV,
            "self_attn.out_proj": "attn.W_O",
            "final_layer_norm": "norm_2",
            "fc1": "mlp.W_in",
            "fc2": "mlp.W_out",
        },
        prefix="model.",
        embed="decoder.embed_tokens",
        positions="decoder.embed_positions",
        final_norm="decoder.final_layer_norm",
        layer="decoder.layers.{}",
        defaults={
            "vocab_size": 50272,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "ffn_dim": 3072,
            "max_position_embeddings": 2048,
            "activation_function": "relu",
            "enable_bias": True,
            "tie_word_embeddings": True,
        },
        fixed={"position_offset": 2},
        flags=dict.fromkeys(_BIASES, "enable_bias"),
        refused={
            "do_layer_norm_before": True,
            "_remove_final_layer_norm": False,
            "layer_norm_elementwise_affine": True,
        },
    ),
    Family(
        "starcoder2",
        rotary_decoder,
        {**NORMS, **ATTENTION, "mlp.c_fc": "mlp.W_in", "mlp.c_proj": "mlp.W_out"},
        defaults={
            "max_position_embeddings": 4096,
            "norm_epsilon": 1e-5,
            "hidden_act": "gelu_pytorch_tanh",
            "tie_word_embeddings": True,
            "num_key_value_heads": 2,
            "use_bias": True,
            "sliding_window": None,
        },
        flags=dict.fromkeys(_BIASES, "use_bias"),
        refused={"layer_types": None},
    ),
    Family(
        "phi",
        rotary_decoder,
        {
            "input_layernorm": "norm_1",
            **QKV,
            "self_attn.dense": "attn.W_O",
            "mlp.fc1": "mlp.W_in",
            "mlp.fc2": "mlp.W_out",
        },
        defaults={
            "max_position_embeddings": 2048,
            "layer_norm_eps": 1e-5,
            "hidden_act": "gelu_new",
            "partial_rotary_factor": 0.5,
        },
        fixed=dict.fromkeys(("parallel", "shared_norm", "head_bias", *_BIASES), True),
        refused={"qk_layernorm": False},
        final_norm="final_layernorm",
    ),
)
