"""The tiny models of the parity fixtures: what each family is asked to be.

``given`` holds what the configuration says and nothing more, so that the old style of
file leaves the rest to the defaults of the family, as published files do. Sizes are
distinct where a family allows it, so that a wrong transpose changes a shape; the models
whose attention is square are there because a wrong transpose of those does not.
"""

from typing import Any, NamedTuple

ROWS, TOKENS = 3, 17
# Of the rows when they are padded; the first fills the batch.
LENGTHS = (17, 11, 4)
# Tokens whose logits are stored; the last ones of padded rows are among them.
STORED = (0, 1, 3, 5, 8, 10, 13, 16)


class Fixture(NamedTuple):
    """One tiny model.

    Attributes:
        family: ``model_type`` of the configuration.
        given: What the configuration says.
        dtype: Of the stored weights.
        weights_from: Another fixture whose weights serve, or None.
        padded: Whether a row's logits do not depend on what follows it.
        prefix: What published files leave off the names of tensors.
    """

    family: str
    given: dict[str, Any]
    dtype: str = "float32"
    weights_from: str | None = None
    padded: bool = True
    prefix: str = ""


def _gpt(**more):
    sizes = {"vocab_size": 41, "n_embd": 24, "n_head": 3, "n_layer": 3}
    return {**sizes, "n_positions": 20, **more}


def _llama(**more):
    sizes = {"vocab_size": 43, "hidden_size": 24, "intermediate_size": 36}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4}
    return {**sizes, **heads, "max_position_embeddings": 64, **more}


def _small(**more):
    sizes = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 20}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    given = {**_llama(**sizes, **heads), **more}
    return {name: value for name, value in given.items() if value is not None}


def _part(factor, theta=10000.0):
    rope = _rope(theta, partial_rotary_factor=factor)
    return {"hidden_size": 32, "rope_parameters": rope}


def _rope(theta=10000.0, kind="default", **more):
    return {"rope_theta": theta, "rope_type": kind, **more}


_THREE = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_THREE_SIZES = {"head_dim": 16, "num_attention_heads": 2, "num_key_value_heads": 1}


def _three(kind, theta=10000.0, longest=64, **more):
    rope = _rope(theta, kind, **more)
    sizes = {**_THREE_SIZES, "max_position_embeddings": longest}
    return _llama(**sizes, rope_parameters=rope)


def _long(original):
    # Heads of 6 coordinates: three frequencies, each stretched on its own.
    rope = _rope(
        kind="longrope",
        short_factor=[1.0, 1.1, 1.3],
        long_factor=[1.2, 2.5, 4.0],
        original_max_position_embeddings=original,
    )
    special = {"pad_token_id": 0, "eos_token_id": 1, "sliding_window": None}
    given = {"original_max_position_embeddings": original, "rope_parameters": rope}
    return _llama(**_GROUPS, **special, **given)


_BIASES = {"attention_bias": True, "mlp_bias": True}
_GROUPS = {"num_key_value_heads": 2}
_FEW_HEADS = {"num_hidden_layers": 3, "num_attention_heads": 2}
_FEW_HEADS |= {"num_key_value_heads": 1, "head_dim": 6}
_FULL = "full_attention"
_WIDE = {"rope_parameters": _rope(1e6)}

MODELS = {
    "gptj": Fixture("gptj", _gpt(rotary_dim=4)),
    "gpt2": Fixture("gpt2", _gpt(n_layer=2), prefix="transformer."),
    "gpt2_untied": Fixture(
        "gpt2",
        _gpt(
            n_layer=2, n_inner=40, tie_word_embeddings=False, activation_function="relu"
        ),
        dtype="bfloat16",
    ),
    "llama": Fixture("llama", _llama(rms_norm_eps=1e-5), dtype="float16"),
    "llama_groups": Fixture("llama", _llama(**_GROUPS, num_hidden_layers=3)),
    "llama_biases": Fixture("llama", _llama(**_GROUPS, **_BIASES), dtype="bfloat16"),
    "llama_tied": Fixture("llama", _llama(**_GROUPS, tie_word_embeddings=True)),
    "llama_head_dim": Fixture("llama", _llama(**_GROUPS, head_dim=10), "bfloat16"),
    "llama3": Fixture("llama", _three("llama3", 5e5, 512, **_THREE)),
    "llama_theta": Fixture("llama", _three("default", 5e5), weights_from="llama3"),
    "llama_linear": Fixture(
        "llama", _three("linear", factor=4.0), weights_from="llama3"
    ),
    "llama_yarn": Fixture(
        "llama",
        _three("yarn", factor=4.0, longest=64, original_max_position_embeddings=16),
        weights_from="llama3",
    ),
    "llama_dynamic": Fixture(
        "llama",
        _three("dynamic", factor=2.0, longest=12),
        weights_from="llama3",
        padded=False,
    ),
    "mistral": Fixture(
        "mistral", _llama(**_GROUPS, head_dim=8, sliding_window=6), "bfloat16"
    ),
    "mistral_full": Fixture(
        "mistral",
        _llama(**_GROUPS, head_dim=8, sliding_window=None),
        weights_from="mistral",
    ),
    "qwen2": Fixture(
        "qwen2",
        _llama(
            **_GROUPS,
            **_WIDE,
            sliding_window=4,
            use_sliding_window=False,
            max_window_layers=2,
        ),
        "bfloat16",
    ),
    "qwen3": Fixture(
        "qwen3",
        _llama(**_GROUPS, **_WIDE, head_dim=10, tie_word_embeddings=True),
        "bfloat16",
    ),
    "phi": Fixture(
        "phi",
        _llama(**_part(0.5), hidden_act="gelu_new", num_hidden_layers=2),
        "float16",
    ),
    "phi3": Fixture(
        "phi3",
        _llama(**_GROUPS, pad_token_id=0, eos_token_id=1, sliding_window=5),
        "bfloat16",
    ),
    "phi3_long_below": Fixture("phi3", _long(32), weights_from="phi3"),
    "phi3_long_above": Fixture("phi3", _long(12), weights_from="phi3", padded=False),
    "gpt_neox": Fixture(
        "gpt_neox",
        _llama(**_part(0.25), use_parallel_residual=True),
        "float16",
    ),
    "gpt_neox_sequential": Fixture(
        "gpt_neox",
        _llama(**_part(0.5, 5000.0), use_parallel_residual=False),
        weights_from="gpt_neox",
    ),
    "gemma": Fixture(
        "gemma",
        _llama(num_key_value_heads=1, head_dim=10, hidden_act="gelu_pytorch_tanh"),
        "bfloat16",
    ),
    "gemma2": Fixture(
        "gemma2",
        _small(
            **_FEW_HEADS,
            sliding_window=5,
            query_pre_attn_scalar=3,
            attn_logit_softcapping=1.5,
            final_logit_softcapping=2.5,
        ),
        "bfloat16",
    ),
    "gemma3": Fixture(
        "gemma3_text",
        _small(
            **_FEW_HEADS,
            sliding_window=4,
            sliding_window_pattern=2,
            query_pre_attn_scalar=9,
            rope_parameters={
                _FULL: _rope(500.0, "linear", factor=4.0),
                "sliding_attention": _rope(20.0),
            },
        ),
        "bfloat16",
    ),
    "opt": Fixture(
        "opt",
        _small(
            num_key_value_heads=None,
            intermediate_size=None,
            max_position_embeddings=20,
            ffn_dim=28,
        ),
        "bfloat16",
    ),
    "olmo2": Fixture("olmo2", _small(), "bfloat16"),
    "ministral": Fixture(
        "ministral",
        _small(head_dim=6, sliding_window=5, layer_types=["sliding_attention", _FULL]),
        "bfloat16",
    ),
    "qwen2_mixed": Fixture(
        "qwen2",
        _llama(
            **_GROUPS,
            sliding_window=4,
            use_sliding_window=True,
            max_window_layers=1,
            rope_parameters=_rope(1e6),
        ),
        weights_from="qwen2",
    ),
    "stablelm": Fixture(
        "stablelm",
        _llama(**_GROUPS, **_part(0.25), use_qkv_bias=True),
        "bfloat16",
    ),
    "starcoder2": Fixture(
        "starcoder2",
        _small(**_GROUPS, sliding_window=5, tie_word_embeddings=True),
        "bfloat16",
    ),
    "mixtral": Fixture(
        "mixtral",
        _llama(
            **_GROUPS,
            **_WIDE,
            intermediate_size=20,
            num_local_experts=4,
            num_experts_per_tok=2,
        ),
        "bfloat16",
    ),
    "qwen3_moe": Fixture(
        "qwen3_moe",
        _llama(
            **_GROUPS,
            head_dim=10,
            moe_intermediate_size=14,
            num_experts=5,
            num_experts_per_tok=3,
            norm_topk_prob=False,
            rope_parameters=_rope(1e6),
        ),
        "bfloat16",
    ),
}
