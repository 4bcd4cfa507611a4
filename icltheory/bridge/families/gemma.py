"""Gemma: scaled embeddings, norms that add one to their scale, and a GELU gate.

Gemma 2 adds norms behind attention and MLP, soft caps, and a sliding window in every
second layer. Gemma 3 normalises queries and keys; five of six layers have a window, and
rotary positions of their own.
"""

import math
from collections.abc import Callable
from typing import Any

from icltheory.bridge.families.declare import Config, Family, read_rotary, validated
from icltheory.bridge.families.llama import (
    BIASES,
    MODULES,
    POST_NORMS,
    PRODUCTS,
    QK_NORMS,
    check_whole,
    rotary_decoder,
)


def _gemma(
    config: Config, windowed: Callable[[int], bool] | None = None
) -> dict[str, Any]:
    fields = rotary_decoder(config, windowed)
    if "hidden_act" in config.defaults and fields["activation"] == "gelu":
        # The first config files name gelu but mean its tanh form.
        fields["activation"] = "gelu_tanh"
    return fields | {"embed_scale": math.sqrt(fields["width"])}


def _gemma2(config: Config) -> dict[str, Any]:
    return {
        **_gemma(config, lambda layer: layer % 2 == 0),
        "query_scalar": config.number("query_pre_attn_scalar"),
        "score_cap": config.cap("attn_logit_softcapping"),
        "logit_cap": config.cap("final_logit_softcapping"),
    }


def _gemma3(config: Config) -> dict[str, Any]:
    pattern = config.size("sliding_window_pattern")
    config, local = _rope_sets(config)
    fields = _gemma(config, lambda layer: (layer + 1) % pattern != 0)
    near = read_rotary(local, fields["head_dim"], fields["max_positions"])
    check_whole(near, fields["head_dim"])
    return {
        **fields,
        "query_scalar": config.number("query_pre_attn_scalar"),
        "logit_cap": config.cap("final_logit_softcapping"),
        "local_rotary": None if fields["sliding_window"] is None else near,
    }


def _rope_sets(config: Config) -> tuple[Config, dict[str, Any]]:
    """Returns the config with full attention's rotary set, and the windows' set.

    New files keep both sets in ``rope_parameters``; old ones have ``rope_theta``,
    ``rope_scaling``, which takes precedence, and ``rope_local_base_freq``.
    """
    both = config.get("rope_parameters") or {}
    sets = both.values() if isinstance(both, dict) else (both,)
    right = all(one is None or isinstance(one, dict) for one in sets)
    wanted = "an object with the sets full_attention and sliding_attention"
    validated("rope_parameters", both, right, wanted)
    scaling = config.get("rope_scaling") or {}
    validated("rope_scaling", scaling, isinstance(scaling, dict), "an object")
    full = {**(both.get("full_attention") or {}), **scaling}
    near = dict(both.get("sliding_attention") or {})
    full.setdefault("rope_theta", config.get("rope_theta") or 1e6)
    near.setdefault("rope_theta", config.get("rope_local_base_freq") or 1e4)
    rest = {"rope_parameters": full, "rope_scaling": None, "rope_theta": None}
    far = Config({**config.values, **rest}, config.defaults)
    return far, {"rope_parameters": near}


_GEMMA = {
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "head_dim": 256,
}
_GEMMA2 = {
    **_GEMMA,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256.0,
    "sliding_window": 4096,
}
_GEMMA_FIXED = {"norm": "rms_plus_one", "gated": True}
_GEMMA_NORMS = {
    "input_layernorm": "norm_1",
    "pre_feedforward_layernorm": "norm_2",
    **POST_NORMS,
}

FAMILIES = (
    Family(
        "gemma",
        _gemma,
        MODULES,
        defaults={
            **_GEMMA,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 8192,
            "num_key_value_heads": 16,
        },
        fixed=_GEMMA_FIXED,
        flags=BIASES,
    ),
    Family(
        "gemma2",
        _gemma2,
        _GEMMA_NORMS | PRODUCTS,
        defaults={
            **_GEMMA2,
            "max_position_embeddings": 8192,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        fixed={**_GEMMA_FIXED, "post_norm": True},
        flags=BIASES,
    ),
    Family(
        "gemma3_text",
        _gemma3,
        _GEMMA_NORMS | PRODUCTS | QK_NORMS,
        defaults={
            **_GEMMA2,
            "max_position_embeddings": 131072,
            "sliding_window_pattern": 6,
        },
        fixed={**_GEMMA_FIXED, "post_norm": True, "qk_norm": "head"},
        flags=BIASES,
        refused={"attn_logit_softcapping": None},
    ),
)
