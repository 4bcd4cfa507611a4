"""Gemma: embedded tokens are scaled, norms add one to their scale, the gate is GELU."""

import math

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gated import MODULES, NAMES, gated
from icltheory.bridge.families.declare import Family

__all__ = ["GEMMA"]


def _architecture(config: Config) -> Architecture:
    fields = gated(
        config,
        positions=8192,
        activation="gelu_pytorch_tanh",
        tied=True,
        head_dim=256,
        kv_heads=16,
        norm="rms_plus_one",
    )
    names = ("hidden_activation", "hidden_act")
    name = config.activation(*names, default="gelu_pytorch_tanh")
    # The first files say "gelu" and mean its tanh form.
    fields["activation"] = "gelu_tanh" if name == "gelu" else name
    bias = config.flag("attention_bias", False)
    return Architecture(
        family="gemma",
        **fields,
        embed_scale=math.sqrt(fields["width"]),
        attention_bias=bias,
        output_bias=bias,
    )


GEMMA = Family(name="gemma", architecture=_architecture, modules=MODULES, **NAMES)
