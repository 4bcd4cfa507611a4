"""StarCoder 2: grouped keys and values as in LLaMA, norms and biases as in GPT-2."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import NAMES, NORMS, QKV, rotary_decoder
from icltheory.bridge.families.declare import Family, Stored

__all__ = ["STARCODER2"]


def _architecture(config: Config) -> Architecture:
    config.refuse("layer_types", unless=None)
    fields = rotary_decoder(
        config,
        positions=4096,
        eps=("norm_epsilon", 1e-5),
        activation="gelu_pytorch_tanh",
        tied=True,
        kv_heads=2,
        partial=False,
    )
    bias = config.flag("use_bias", True)
    return Architecture(
        family="starcoder2",
        **fields,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        sliding_window=config.window(fields["num_layers"], usual=None),
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
