"""Trainable models: transformers on prompts of pairs, and linear attention stacks.

:func:`load_garg_checkpoint` reads the published weights of Garg et al.

Stability: provisional.
"""

from icltheory.models.garg_checkpoint import GargCheckpoint as GargCheckpoint
from icltheory.models.garg_checkpoint import (
    load_garg_checkpoint as load_garg_checkpoint,
)
from icltheory.models.gpt2 import GPT2 as GPT2
from icltheory.models.layered import LayeredGPT2 as LayeredGPT2
from icltheory.models.linear_stack import LinearStack as LinearStack
from icltheory.models.transformers import transformer as transformer

__all__ = [
    "GPT2",
    "GargCheckpoint",
    "LayeredGPT2",
    "LinearStack",
    "load_garg_checkpoint",
    "transformer",
]
