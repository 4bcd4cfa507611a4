"""Reads tensors from a ``torch.save`` file without running its code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icltheory.models._files import refuse_pointer

_STATE = "model_state_dict"  # key in a training state, which also holds the optimiser


def read_state_dict(file: Path) -> Mapping[str, Any]:
    """Returns the tensors of a model by name, on the CPU."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            f'{file}: format="torch" needs PyTorch: pip install torch, or convert the '
            "file to safetensors"
        ) from None
    refuse_pointer(file)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged files
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{file}: expected a state dict, got {line}") from None
    if isinstance(state, dict):
        state = state.get(_STATE, state)
    if not isinstance(state, dict) or not all(map(torch.is_tensor, state.values())):
        raise ValueError(
            f"{file}: expected a state dict of tensors, got {type(state).__name__}"
        )
    return state
