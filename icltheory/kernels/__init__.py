"""Causal attention of a GPT-2 block in plain JAX, by cuDNN, or by a Pallas kernel.

Stability: provisional.
"""

from icltheory.kernels.attention import attention_weights, causal_attention, split_heads

__all__ = ["attention_weights", "causal_attention", "split_heads"]
