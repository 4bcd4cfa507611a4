"""Models that are trained: GPT-2 on prompts of pairs, and linear attention stacks.

Stability: provisional.
"""

from icltheory._public import shown
from icltheory.models.gpt2 import GPT2 as GPT2
from icltheory.models.layered import LayeredGPT2 as LayeredGPT2
from icltheory.models.linear_stack import LinearStack as LinearStack

__all__ = ["GPT2", "LayeredGPT2", "LinearStack"]

__dir__ = shown(__name__)
