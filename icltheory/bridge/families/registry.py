"""The table of all families, which finds the family of a config."""

from collections.abc import Mapping
from typing import Any

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families import gemma, gpt, llama
from icltheory.bridge.families.declare import Family

__all__ = ["FAMILIES", "family_of", "read_architecture"]

FAMILIES: dict[str, Family] = {
    family.name: family
    for module in (gpt, llama, gemma)
    for family in (getattr(module, name) for name in module.__all__)
}


def family_of(config: Mapping[str, Any], source: Any = "config.json") -> Family:
    """Returns the family of a config, by its ``model_type``.

    Args:
        config: The config, a dict.
        source: The file it came from, for messages.

    Returns:
        The family.

    Example:
        >>> family_of({"model_type": "gptj"}).embed
        'wte'
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise ValueError(f"{source}: expected model_type one of {known}, got {kind!r}")
    return FAMILIES[kind]


def _refuse_quantised(values: Config) -> None:
    """Raises for quantised weights, stored as integers with scales."""
    found = values.get("quantization_config")
    if found is not None:
        how = found.get("quant_method") if isinstance(found, dict) else None
        raise ValueError(
            "quantization_config: expected weights in floating point, got quantised "
            f"ones{f' ({how})' if isinstance(how, str) else ''}; dequantise the "
            "checkpoint, save it in bfloat16 without this entry, and load that"
        )


def read_architecture(
    config: Mapping[str, Any], source: Any = "config.json"
) -> Architecture:
    """Returns the architecture that a Hugging Face config describes.

    What a config leaves out has the default of its family. What is asked for and not
    built, such as quantised weights or an unknown activation, is an error.

    Args:
        config: The config, a dict.
        source: The file it came from, for messages.

    Returns:
        The architecture.

    Example:
        >>> arch = read_architecture({"model_type": "gptj", "n_layer": 2})
        >>> arch.num_layers, arch.parallel, arch.rotary.dim
        (2, True, 64)
    """
    family = family_of(config, source)
    try:
        values = Config(config)
        _refuse_quantised(values)
        values.refuse("per_layer_config", None)
        values.refuse("is_causal", True)
        values.refuse("use_bidirectional_attention", False)
        return family.architecture(values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
