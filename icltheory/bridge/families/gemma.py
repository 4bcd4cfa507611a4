"""Gemma: scaled embeddings, norms that add one to their scale, and a GELU gate.

Gemma 2 adds norms behind attention and MLP, soft caps, and a sliding window in every
second layer. Gemma 3 normalises queries and keys; five of six layers have a window, and
rotary positions of their own.
"""

import math
from typing import Any

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families.declare import Family, Stored
from icltheory.bridge.families.llama import (
    MODULES,
    NAMES,
    POST_NORMS,
    PRODUCTS,
    QK_NORMS,
    check_whole,
    gated,
)
from icltheory.bridge.rope import read_rotary

__all__ = ["GEMMA", "GEMMA2", "GEMMA3"]


def _gemma(config: Config) -> Architecture:
    fields = _fields(config, "hidden_act", positions=8192, kv_heads=16)
    if fields["activation"] == "gelu":
        # The first config files name gelu but mean its tanh form.
        fields["activation"] = "gelu_tanh"
    return Architecture(family="gemma", **fields)


def _gemma2(config: Config) -> Architecture:
    fields = _fields(config, positions=8192, kv_heads=4)
    window = config.window(
        fields["num_layers"], usual=4096, windowed=lambda layer: layer % 2 == 0
    )
    return Architecture(
        family="gemma2",
        **fields,
        post_norm=True,
        query_scalar=config.number("query_pre_attn_scalar", default=256.0),
        score_cap=config.cap("attn_logit_softcapping", 50.0),
        logit_cap=config.cap("final_logit_softcapping", 30.0),
        sliding_window=window,
    )


def _gemma3(config: Config) -> Architecture:
    config.refuse("attn_logit_softcapping", unless=None)
    config, local = _rope_sets(config)
    fields = _fields(config, positions=131072, kv_heads=4)
    pattern = config.size("sliding_window_pattern", default=6)
    window = config.window(
        fields["num_layers"],
        usual=4096,
        windowed=lambda layer: (layer + 1) % pattern != 0,
    )
    near = read_rotary(local, fields["head_dim"], fields["max_positions"])
    check_whole(near, fields["head_dim"])
    return Architecture(
        family="gemma3_text",
        **fields,
        post_norm=True,
        qk_norm="head",
        query_scalar=config.number("query_pre_attn_scalar", default=256.0),
        logit_cap=config.cap("final_logit_softcapping"),
        sliding_window=window,
        local_rotary=None if window is None else near,
    )


def _fields(
    config: Config, *other_names: str, positions: int, kv_heads: int
) -> dict[str, Any]:
    """Reads the fields shared by all Gemma versions."""
    names = ("hidden_activation", *other_names)
    bias = config.flag("attention_bias", False)
    fields = gated(
        config,
        positions=positions,
        tied=True,
        head_dim=256,
        kv_heads=kv_heads,
        norm="rms_plus_one",
    )
    return {
        **fields,
        "activation": config.activation(*names, default="gelu_pytorch_tanh"),
        "embed_scale": math.sqrt(fields["width"]),
        "attention_bias": bias,
        "output_bias": bias,
    }


def _rope_sets(config: Config) -> tuple[Config, dict[str, Any]]:
    """Returns the config with full attention's rotary set, and the windows' set.

    New files keep both sets in ``rope_parameters``; old ones have ``rope_theta``,
    ``rope_scaling``, which counts more, and ``rope_local_base_freq``.
    """
    both = config.get("rope_parameters") or {}
    sets = both.values() if isinstance(both, dict) else (both,)
    if not all(one is None or isinstance(one, dict) for one in sets):
        raise ValueError(
            "rope_parameters: expected an object with the sets full_attention and "
            f"sliding_attention, got {both!r}"
        )
    scaling = config.get("rope_scaling") or {}
    if not isinstance(scaling, dict):
        raise ValueError(f"rope_scaling: expected an object, got {scaling!r}")
    full = {**(both.get("full_attention") or {}), **scaling}
    near = dict(both.get("sliding_attention") or {})
    full.setdefault("rope_theta", config.get("rope_theta") or 1e6)
    near.setdefault("rope_theta", config.get("rope_local_base_freq") or 1e4)
    rest = {"rope_parameters": full, "rope_scaling": None, "rope_theta": None}
    return Config({**config.values, **rest}), {"rope_parameters": near}


_NORMS = (
    Stored("input_layernorm", ("norm_1",)),
    Stored("pre_feedforward_layernorm", ("norm_2",)),
    *POST_NORMS,
)
GEMMA = Family(name="gemma", architecture=_gemma, modules=MODULES, **NAMES)
GEMMA2 = Family(
    name="gemma2", architecture=_gemma2, modules=(*_NORMS, *PRODUCTS), **NAMES
)
GEMMA3 = Family(
    name="gemma3_text",
    architecture=_gemma3,
    modules=(*_NORMS, *PRODUCTS, *QK_NORMS),
    **NAMES,
)
