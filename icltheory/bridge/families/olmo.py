"""OLMo 2: a LLaMA with norms after attention and MLP, and on queries and keys."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import (
    NAMES,
    POST_NORMS,
    PRODUCTS,
    QK_NORMS,
    gated,
)
from icltheory.bridge.families.declare import Family

__all__ = ["OLMO2"]


def _architecture(config: Config) -> Architecture:
    config.refuse("clip_qkv", unless=None)
    bias = config.flag("attention_bias", False)
    return Architecture(
        family="olmo2",
        **gated(config, positions=2048, eps=1e-5),
        pre_norm=False,
        post_norm=True,
        qk_norm="projection",
        attention_bias=bias,
        output_bias=bias,
    )


OLMO2 = Family(
    name="olmo2",
    architecture=_architecture,
    modules=(*PRODUCTS, *POST_NORMS, *QK_NORMS),
    **NAMES,
)
