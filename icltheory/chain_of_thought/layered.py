"""Inference as a layered model, so that pruning and spectra work on it."""

import dataclasses
from typing import Any

from icltheory._checks import check_choice
from icltheory.chain_of_thought.attention import ReasoningAttention
from icltheory.chain_of_thought.inference import Inference, cot_infer, icl_infer
from icltheory.chain_of_thought.prompts import ReasoningPrompt
from icltheory.layered import MatrixSpec

__all__ = ["LayeredReasoner"]

_INFERENCE = {"cot": cot_infer, "icl": icl_infer}


@dataclasses.dataclass(frozen=True)
class LayeredReasoner:
    """A whole inference as a layered model of one block.

    Inputs are one prompt, the block answers it, all its steps if it is a chain of
    thought, and the output is an :class:`~icltheory.chain_of_thought.Inference`.
    Parameters are a :class:`~icltheory.chain_of_thought.ReasoningAttention`. Batches
    by ``vmap`` or :class:`icltheory.layered.Batched`.

    Args:
        method: ``"cot"`` or ``"icl"``.

    Raises:
        ValueError: If the method is unknown.

    Example:
        >>> [spec.name for spec in LayeredReasoner("cot").matrices(0)]
        ['W_V', 'W_K', 'W_Q']

    References:
        Li et al. (2025), arXiv 2410.02167, equation (11). Verified by
        ``tests/chain_of_thought/test_layered.py``.
    """

    method: str = "cot"

    def __post_init__(self):
        check_choice("method", self.method, tuple(_INFERENCE))

    @property
    def num_layers(self) -> int:
        """One."""
        return 1

    def embed(
        self, params: ReasoningAttention, inputs: ReasoningPrompt
    ) -> ReasoningPrompt:
        """The prompt itself."""
        return inputs

    def block(self, layer: int, params: ReasoningAttention, hidden: Any) -> Inference:
        """Answers the prompt."""
        return _INFERENCE[self.method](params, hidden)

    def read_out(self, params: ReasoningAttention, hidden: Inference) -> Inference:
        """The answers."""
        return hidden

    def matrices(self, layer: int) -> tuple[MatrixSpec, ...]:
        """The three weight matrices.

        Raises:
            ValueError: If there is no such layer.
        """
        if layer != 0:
            raise ValueError(f"layer: expected 0, got {layer}")
        return tuple(MatrixSpec(name, "attn", (name,)) for name in _NAMES)


_NAMES = ("W_V", "W_K", "W_Q")
