"""Qwen 2, with biases on queries, keys and values; Qwen 3, which normalises them."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import MODULES, NAMES, QK_NORMS, gated
from icltheory.bridge.families.declare import Family

__all__ = ["QWEN2", "QWEN3"]


def _window(config, num_layers):
    if not config.flag("use_sliding_window", False):
        return None
    first = config.number("max_window_layers", default=28.0)
    return config.window(num_layers, usual=4096, windowed=lambda layer: layer >= first)


def _qwen2(config: Config) -> Architecture:
    fields = gated(config, positions=32768, kv_heads=32)
    window = _window(config, fields["num_layers"])
    return Architecture(
        family="qwen2", **fields, attention_bias=True, sliding_window=window
    )


def _qwen3(config: Config) -> Architecture:
    fields = gated(config, positions=32768, head_dim=128, kv_heads=32)
    bias = config.flag("attention_bias", False)
    return Architecture(
        family="qwen3",
        **fields,
        attention_bias=bias,
        output_bias=bias,
        qk_norm="head",
        sliding_window=_window(config, fields["num_layers"]),
    )


QWEN2 = Family(name="qwen2", architecture=_qwen2, modules=MODULES, **NAMES)
QWEN3 = Family(
    name="qwen3", architecture=_qwen3, modules=(*MODULES, *QK_NORMS), **NAMES
)
