"""LLaMA 1, 2 and 3; Mistral and Ministral add a sliding window."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import MODULES, NAMES, gated
from icltheory.bridge.families.declare import Family

__all__ = ["LLAMA", "MINISTRAL", "MISTRAL"]


def _llama(config: Config) -> Architecture:
    bias = config.flag("attention_bias", False)
    return Architecture(
        family="llama",
        **gated(config, positions=2048),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
    )


def _mistral(config: Config, family: str = "mistral") -> Architecture:
    fields = gated(config, positions=4096 * 32, kv_heads=8)
    window = config.window(fields["num_layers"], usual=4096)
    return Architecture(family=family, **fields, sliding_window=window)


def _ministral(config: Config) -> Architecture:
    return _mistral(config, "ministral")


LLAMA = Family(name="llama", architecture=_llama, modules=MODULES, **NAMES)
MISTRAL = Family(name="mistral", architecture=_mistral, modules=MODULES, **NAMES)
MINISTRAL = Family(name="ministral", architecture=_ministral, modules=MODULES, **NAMES)
