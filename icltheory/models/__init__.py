"""Trainable models: transformers on prompts of pairs, and linear attention stacks.

:func:`load_garg_checkpoint` reads the published weights of Garg et al.

Stability: provisional.
"""

from icltheory.models.garg_checkpoint import GargCheckpoint, load_garg_checkpoint
from icltheory.models.gpt2 import GPT2, transformer
from icltheory.models.layered import LayeredGPT2
from icltheory.models.linear_stack import LinearStack

__all__ = [
    "GPT2",
    "GargCheckpoint",
    "LayeredGPT2",
    "LinearStack",
    "load_garg_checkpoint",
    "transformer",
]
