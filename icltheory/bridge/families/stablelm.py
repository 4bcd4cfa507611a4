"""StableLM: a LLaMA with layer norms and rotation of a quarter of each head."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import MODULES, NAMES, rotary_decoder
from icltheory.bridge.families.declare import Family

__all__ = ["STABLELM"]


def _architecture(config: Config) -> Architecture:
    config.refuse("qk_layernorm", unless=False)
    config.refuse("use_parallel_residual", unless=False)
    fields = rotary_decoder(
        config,
        positions=4096,
        eps=("layer_norm_eps", 1e-5),
        activation="silu",
        fraction=0.25,
    )
    return Architecture(
        family="stablelm",
        **fields,
        gated=True,
        attention_bias=config.flag("use_qkv_bias", False),
    )


STABLELM = Family(name="stablelm", architecture=_architecture, modules=MODULES, **NAMES)
