"""StableLM: a LLaMA with layer norms, of whose heads a quarter turns."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import MODULES, NAMES, decoder_sizes
from icltheory.bridge.families.declare import Family
from icltheory.bridge.rope import read_rotary

__all__ = ["STABLELM"]


def _architecture(config: Config) -> Architecture:
    config.refuse("qk_layernorm", unless=False)
    config.refuse("use_parallel_residual", unless=False)
    sizes = decoder_sizes(config)
    longest = config.size("max_position_embeddings", default=4096)
    return Architecture(
        family="stablelm",
        **sizes,
        max_positions=longest,
        norm_eps=config.number("layer_norm_eps", default=1e-5),
        activation=config.activation("hidden_act", default="silu"),
        gated=True,
        rotary=read_rotary(config.values, sizes["head_dim"], longest, fraction=0.25),
        attention_bias=config.flag("use_qkv_bias", False),
        tied=config.flag("tie_word_embeddings", False),
    )


STABLELM = Family(name="stablelm", architecture=_architecture, modules=MODULES, **NAMES)
