"""Reads a checkpoint's config: the JSON file, and typed values by name."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from icltheory._files import refuse_pointer

# Names in config files, and the activation that each stands for.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# Kinds of layers: full attention, and a sliding window.
_KINDS = ("full_attention", "sliding_attention")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an error names the file and the line."""
    try:
        refuse_pointer(path)
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: expected a file, found none") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: expected a file, got a folder") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: expected JSON, got {error.msg}"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected JSON in UTF-8, got {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def shard_files(index: Path) -> dict[str, Path]:
    """Returns the file of each tensor of a sharded checkpoint, from its index."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ValueError(f"{index}: expected a weight_map, got {table!r}")
    found = {}
    for name, shard in table.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ValueError(
                f"{index}: expected a file of this folder for {name}, got {shard!r}"
            )
        found[name] = index.with_name(shard)
        if not found[name].is_file():
            raise FileNotFoundError(
                f"{found[name]}: expected a file, which {index.name} lists, found none"
            )
    return found


def is_number(value: Any) -> TypeGuard[float | int]:
    """Whether a JSON value is a finite number."""
    kind = isinstance(value, (int, float)) and not isinstance(value, bool)
    return kind and math.isfinite(value)


class Config:
    """The values of a config, in which null counts as absent."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = values

    def get(self, *names: str) -> Any:
        """Returns the first value present under one of these names, or ``None``."""
        return next((v for n in names if (v := self.values.get(n)) is not None), None)

    def size(self, *names: str, default: int | None = None) -> int:
        """Returns a positive integer; raises for other values."""
        value = self.get(*names)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{names[0]}: expected a positive integer, got {value!r}")
        return value

    def number(self, *names: str, default: float) -> float:
        """Returns a finite number of at least 0; raises for other values."""
        value = self.get(*names)
        value = default if value is None else value
        if not is_number(value) or value < 0:
            raise ValueError(
                f"{names[0]}: expected a number, finite and not below 0, got {value!r}"
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Returns true or false; raises for other values."""
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise ValueError(f"{name}: expected true or false, got {value!r}")
        return value

    def activation(self, *names: str, default: str) -> str:
        """Returns an activation under its name in :class:`Architecture`."""
        value = self.get(*names) or default
        if not isinstance(value, str) or value not in _ACTIVATIONS:
            known = ", ".join(sorted(_ACTIVATIONS))
            raise ValueError(f"{names[0]}: expected one of {known}, got {value!r}")
        return _ACTIVATIONS[value]

    def refuse(self, name: str, unless: Any) -> None:
        """Raises if the config needs a feature that is not implemented."""
        value = self.get(name)
        if value is not None and value != unless:
            raise ValueError(f"{name}: expected {unless!r}, got {value!r}")

    def cap(self, name: str, usual: float | None = None) -> float | None:
        """Returns a positive number, or ``None`` for no cap; ``usual`` if absent."""
        value = self.values.get(name, usual)
        if value is not None and (not is_number(value) or value <= 0):
            raise ValueError(f"{name}: expected a positive number, got {value!r}")
        return None if value is None else float(value)

    def window(
        self,
        num_layers: int,
        *,
        usual: int | None,
        windowed: Callable[[int], bool] = lambda layer: True,
    ) -> int | None | tuple[int | None, ...]:
        """Returns the sliding window of all layers, or of each if they differ.

        ``usual`` is the window where the file says nothing, ``windowed`` whether a
        layer has one where it does not name the layers' kinds. A null means none.
        """
        value = self.values.get("sliding_window", usual)
        kinds = self.get("layer_types")
        if kinds is None:
            kinds = [_KINDS[bool(windowed(layer))] for layer in range(num_layers)]
        known = isinstance(kinds, list) and all(kind in _KINDS for kind in kinds)
        if not known or len(kinds) != num_layers:
            raise ValueError(
                f"layer_types: expected {num_layers} of {' and '.join(_KINDS)}, "
                f"got {kinds!r}"
            )
        full = [kind == _KINDS[0] for kind in kinds]
        if value is None or all(full):
            return None
        size = self.size("sliding_window", default=usual)
        return tuple(None if f else size for f in full) if any(full) else size
