"""Which kernel runs in each part of a block, and with which tiles."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from icltheory._checks import check_choice

__all__ = ["KERNELS", "Plan", "Tile"]

KERNELS = ("attention", "norm_linear", "linear_residual", "residual_mlp")
_SMALLEST = 16  # smallest size of tensor cores along any axis


def _check_power_of_two(name: str, value: Any, least: int, most: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= most or value & (value - 1):
        raise ValueError(
            f"{name}: expected a power of two from {least} to {most}, got {value!r}"
        )


@dataclasses.dataclass(frozen=True)
class Tile:
    """Amount of work of one kernel program, and its number of threads.

    Args:
        rows: Rows of the output (tokens; of attention queries).
        columns: Columns beside them (features, hidden units; of attention keys).
        depth: Length of one step along a contracted axis; ``None`` takes it whole.
        num_warps: Groups of 32 threads.
        num_stages: Tiles in flight of a loop over tiles.

    Raises:
        ValueError: if a size is no power of two of at least 16, the warps no power of
            two up to 16, or the stages not between 1 and 8.

    Example:
        >>> Tile(64, 128)
        Tile(rows=64, columns=128, depth=None, num_warps=4, num_stages=2)
    """

    rows: int
    columns: int
    depth: int | None = None
    num_warps: int = 4
    num_stages: int = 2

    def __post_init__(self):
        _check_power_of_two("rows", self.rows, _SMALLEST, 4096)
        _check_power_of_two("columns", self.columns, _SMALLEST, 4096)
        if self.depth is not None:
            _check_power_of_two("depth", self.depth, _SMALLEST, 4096)
        _check_power_of_two("num_warps", self.num_warps, 1, 16)
        check_choice("num_stages", self.num_stages, tuple(range(1, 9)))


@dataclasses.dataclass(frozen=True)
class Plan:
    """One choice for each kernel of a GPT-2 block, hashable and stored as JSON.

    ``None`` is the plain twin in ``jax.numpy``, which every device runs. A field
    ``NAME_backward`` chooses the gradient of kernel ``NAME``: its own tile, or ``None``
    for the gradient of the twin. ``Plan()`` is therefore twins all through.

    Args:
        attention: Tile, ``"cudnn"`` for XLA's fused attention, or ``None``.
        attention_backward: Tile or ``None``.
        norm_linear: Tile of layer norm and projection, or ``None``.
        norm_linear_backward: Tile or ``None``.
        linear_residual: Tile of projection and residual, or ``None``.
        linear_residual_backward: Tile or ``None``.
        residual_mlp: Tile of layer norm, MLP and residual, or ``None``.
        residual_mlp_backward: Tile or ``None``.

    Raises:
        ValueError: if a choice is none of these, or a gradient has a tile beside a
            forward pass that has none.

    Example:
        >>> plan = Plan(attention=Tile(128, 128), attention_backward=Tile(64, 128))
        >>> Plan.from_json(plan.to_json()) == plan
        True
        >>> plan.tiles("attention")["backward"].rows
        64
    """

    attention: Tile | Literal["cudnn"] | None = None
    attention_backward: Tile | None = None
    norm_linear: Tile | None = None
    norm_linear_backward: Tile | None = None
    linear_residual: Tile | None = None
    linear_residual_backward: Tile | None = None
    residual_mlp: Tile | None = None
    residual_mlp_backward: Tile | None = None

    def __post_init__(self):
        for name in KERNELS:
            forward = getattr(self, name)
            backward = getattr(self, f"{name}_backward")
            named = name == "attention" and forward == "cudnn"
            if not named:
                _check_tile(name, forward, ' or "cudnn"' * (name == "attention"))
            _check_tile(f"{name}_backward", backward)
            if backward is not None and not isinstance(forward, Tile):
                raise ValueError(
                    f"{name}_backward: expected None with {name} = {forward!r}, "
                    f"got {backward}"
                )

    @classmethod
    def twins(cls) -> "Plan":
        """Returns the plan without kernels, which runs on every device."""
        return cls()

    def tiles(self, name: str) -> dict[str, Any]:
        """Returns the keywords ``tile`` and ``backward`` of a kernel's function."""
        check_choice("name", name, KERNELS)
        return {
            "tile": getattr(self, name),
            "backward": getattr(self, f"{name}_backward"),
        }

    def to_json(self) -> dict[str, Any]:
        """Returns numbers, strings and dictionaries of them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Plan":
        """Returns the plan stored by :meth:`to_json`; missing fields mean plain JAX."""
        _check_names("plan", record, cls)
        return cls(**{name: _tile(name, value) for name, value in record.items()})


def _check_tile(name: str, value: Any, other: str = "") -> None:
    if value is not None and not isinstance(value, Tile):
        raise ValueError(f"{name}: expected a Tile{other} or None, got {value!r}")


def _tile(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    _check_names(name, value, Tile)
    missing = {"rows", "columns"} - set(value)
    if missing:
        raise ValueError(f"{name}: expected rows and columns, got {dict(value)}")
    return Tile(**value)


def _check_names(name: str, record: Mapping[str, Any], cls: type) -> None:
    known = [field.name for field in dataclasses.fields(cls)]
    unknown = sorted(set(record) - set(known))
    if unknown:
        raise ValueError(f"{name}: expected fields among {known}, got {unknown}")
