"""StarCoder 2: grouped keys and values of LLaMA, layer norms and biases of GPT-2."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import (
    NAMES,
    NORMS,
    QKV,
    check_whole,
    decoder_sizes,
)
from icltheory.bridge.families.declare import Family, Stored
from icltheory.bridge.rope import read_rotary

__all__ = ["STARCODER2"]


def _architecture(config: Config) -> Architecture:
    config.refuse("layer_types", unless=None)
    sizes = decoder_sizes(config, kv_heads=2)
    longest = config.size("max_position_embeddings", default=4096)
    rotary = read_rotary(config.values, sizes["head_dim"], longest)
    check_whole(rotary, sizes["head_dim"])
    bias = config.flag("use_bias", True)
    return Architecture(
        family="starcoder2",
        **sizes,
        max_positions=longest,
        norm_eps=config.number("norm_epsilon", default=1e-5),
        activation=config.activation("hidden_act", default="gelu_pytorch_tanh"),
        rotary=rotary,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        sliding_window=config.window(sizes["num_layers"], usual=None),
        tied=config.flag("tie_word_embeddings", True),
    )


STARCODER2 = Family(
    name="starcoder2",
    architecture=_architecture,
    modules=(
        *NORMS,
        *QKV,
        Stored("self_attn.o_proj", ("attn.W_O",)),
        Stored("mlp.c_fc", ("mlp.W_in",)),
        Stored("mlp.c_proj", ("mlp.W_out",)),
    ),
    **NAMES,
)
