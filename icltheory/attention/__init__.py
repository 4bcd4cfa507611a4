"""Masked attention with residual: linear, softmax, kernels, kernel view, MLP block.

Single layers are functions; stacks are pytrees with one ``apply``. Masks have names
(:mod:`icltheory.attention.masks`), the papers' 1/N is the argument ``scale``.

Stability: stable.
"""

from icltheory.attention._layer import LayerOutput
from icltheory.attention.heads import LinearTransformerStack, MultiHeadStack
from icltheory.attention.kernel import (
    KernelView,
    positive_features,
    softmax_kernel_view,
    taylor_features,
)
from icltheory.attention.linear import MLP_FORMS, linear_attention, mlp_attention
from icltheory.attention.masks import MASKS, attended_keys, normalized_keys
from icltheory.attention.nonlinear import (
    KERNELS,
    kernel_attention,
    kernel_matrix,
    kernel_weights,
)
from icltheory.attention.softmax import softmax_attention, softmax_weights
from icltheory.attention.stacks import (
    AttentionStack,
    KernelAttentionStack,
    LinearAttentionStack,
    MLPAttentionStack,
    SoftmaxAttentionStack,
    StackOutput,
)

__all__ = [
    "KERNELS",
    "MASKS",
    "MLP_FORMS",
    "AttentionStack",
    "KernelAttentionStack",
    "KernelView",
    "LayerOutput",
    "LinearAttentionStack",
    "LinearTransformerStack",
    "MLPAttentionStack",
    "MultiHeadStack",
    "SoftmaxAttentionStack",
    "StackOutput",
    "attended_keys",
    "kernel_attention",
    "kernel_matrix",
    "kernel_weights",
    "linear_attention",
    "mlp_attention",
    "normalized_keys",
    "positive_features",
    "softmax_attention",
    "softmax_kernel_view",
    "softmax_weights",
    "taylor_features",
]
