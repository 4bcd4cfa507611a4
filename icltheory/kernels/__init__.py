"""Fused kernels of a GPT-2 block, each with an equivalent in plain JAX.

A kernel's function computes the twin unless it is given a :class:`Tile`; a
:class:`Plan` names the choice for each kernel, and :func:`tune` makes it by
measurement on the device at hand.

Stability: provisional.
"""

from icltheory._public import shown
from icltheory.kernels.attention import (
    attention_weights,
    causal_attention,
    split_heads,
)
from icltheory.kernels.choice import KernelChoice, KernelTiming, choose
from icltheory.kernels.dense import linear_residual, norm_linear
from icltheory.kernels.mlp import residual_mlp
from icltheory.kernels.plan import Plan, Tile
from icltheory.kernels.tuning import TunedPlan, tune

__all__ = [
    "KernelChoice",
    "Plan",
    "Tile",
    "KernelTiming",
    "TunedPlan",
    "attention_weights",
    "causal_attention",
    "choose",
    "linear_residual",
    "norm_linear",
    "residual_mlp",
    "split_heads",
    "tune",
]

__dir__ = shown(__name__)
