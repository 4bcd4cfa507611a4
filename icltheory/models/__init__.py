"""Models that are trained: GPT-2 on prompts of pairs, and linear attention stacks."""

from icltheory.models.gpt2 import GPT2 as GPT2

__all__ = ["GPT2"]
