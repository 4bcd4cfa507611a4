"""Declarations of families: how a config is read, and how matrices are stored."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from icltheory.bridge.architecture import Architecture, Rotary, exponents

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
_KINDS_OF_LAYERS = ("full_attention", "sliding_attention")
_PART, _ORIGINAL = "partial_rotary_factor", "original_max_position_embeddings"


def is_number(value: Any) -> TypeGuard[float | int]:
    """Whether a JSON value is a finite number."""
    kind = isinstance(value, (int, float)) and not isinstance(value, bool)
    return kind and math.isfinite(value)


def validated(name: str, value: Any, right: bool, expected: str) -> Any:
    """Returns the value if it is right; raises otherwise."""
    if not right:
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return value


class Config:
    """The values of a config, in which null counts as absent; wrong ones raise.

    The ``defaults`` are what the family means by an absent entry.
    """

    def __init__(
        self, values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
    ):
        self.values, self.defaults = values, defaults or {}

    def get(self, *names: str) -> Any:
        """Returns the first value present under one of these names, or ``None``."""
        tables = (self.values, self.defaults)
        found = (table.get(name) for table in tables for name in names)
        return next((value for value in found if value is not None), None)

    def size(self, *names: str, default: int | None = None) -> int:
        """Returns a positive integer."""
        value = self.get(*names)
        value = default if value is None else value
        right = isinstance(value, int) and not isinstance(value, bool) and value > 0
        return validated(names[0], value, right, "a positive integer")

    def number(self, name: str) -> float:
        """Returns a finite number of at least 0."""
        value = self.get(name)
        right = is_number(value) and value >= 0
        return float(validated(name, value, right, "a number, finite and not below 0"))

    def positive(self, name: str, default: float | int | None = None) -> float:
        """Returns a positive number."""
        value = self.get(name)
        value = default if value is None else value
        right = is_number(value) and value > 0
        return float(validated(name, value, right, "a positive number"))

    def positives(self, name: str, length: int) -> np.ndarray:
        """Returns a list of positive numbers."""
        value = self.get(name)
        listed = value if isinstance(value, list) else [value]
        wrong = [repr(n) for n in listed if not is_number(n) or n <= 0]
        if wrong or len(listed) != length:
            got = wrong[0] if wrong else f"{len(listed)} numbers"
            wanted = f"a list of {length} positive numbers"
            raise ValueError(f"{name}: expected {wanted}, got {got}")
        return np.asarray(value, np.float32)

    def flag(self, name: str) -> bool:
        """Returns true or false, false where nothing is said."""
        value = self.get(name)
        value = False if value is None else value
        return validated(name, value, isinstance(value, bool), "true or false")

    def activation(self, *names: str) -> str:
        """Returns an activation under its name in :class:`Architecture`."""
        value = self.get(*names)
        right = isinstance(value, str) and value in _ACTIVATIONS
        validated(names[0], value, right, f"one of {', '.join(sorted(_ACTIVATIONS))}")
        return _ACTIVATIONS[value]

    def refuse(self, name: str, unless: Any) -> None:
        """Raises if the config needs a feature that is not implemented."""
        value = self.get(name)
        validated(name, value, value is None or value == unless, repr(unless))

    def given(self, name: str) -> Any:
        """Returns a value whose null means none; the default if it is absent."""
        return self.values.get(name, self.defaults.get(name))

    def cap(self, name: str) -> float | None:
        """Returns a positive number, or ``None`` for no cap."""
        return None if self.given(name) is None else self.positive(name)

    def window(
        self, num_layers: int, windowed: Callable[[int], bool]
    ) -> int | None | tuple[int | None, ...]:
        """Returns the sliding window of all layers, or of each if they differ.

        ``windowed`` says whether a layer has one where the file does not name the
        layers' kinds.
        """
        kinds = self.get("layer_types")
        if kinds is None:
            kinds = [_KINDS_OF_LAYERS[windowed(layer)] for layer in range(num_layers)]
        known = isinstance(kinds, list) and all(k in _KINDS_OF_LAYERS for k in kinds)
        expected = f"{num_layers} of {' and '.join(_KINDS_OF_LAYERS)}"
        validated("layer_types", kinds, known and len(kinds) == num_layers, expected)
        full = [kind == _KINDS_OF_LAYERS[0] for kind in kinds]
        if self.given("sliding_window") is None or all(full):
            return None
        size = self.size("sliding_window")
        return tuple(None if f else size for f in full) if any(full) else size


def read_rotary(
    config: Mapping[str, Any],
    head_dim: int,
    max_positions: int,
    *,
    base: float | int = 10000.0,
    fraction: float | int = 1.0,
    interleaved: bool = False,
) -> Rotary:
    r"""Reads rotary positions from a Hugging Face config, in the old or new format.

    With d the rotated dimensions of a head and b the base,

    .. math:: \theta_i = b^{-2 i / d} , \qquad i = 0, \dots, d / 2 - 1 ,

    which the kinds ``linear``, ``dynamic``, ``llama3``, ``yarn`` and ``longrope``
    change. New configs keep everything in ``rope_parameters``; old ones in
    ``rope_theta``, ``partial_rotary_factor`` and ``rope_scaling``, which takes
    precedence.

    The arguments ``base`` and ``fraction``, the rotated part of each head, count where
    the config does not say them.

    Example:
        >>> read_rotary({"rope_theta": 100.0}, 4, 16).frequencies
        (1.0, 0.10000000149011612)
        >>> scaled = {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}
        >>> read_rotary(scaled, 4, 16, base=100.0).frequencies[0]
        0.5

    Source: Su et al. (2021); Peng et al. (2023), YaRN; Ding et al. (2024), LongRoPE.
    """
    where = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rope = config.get(where) or {}
    validated(where, rope, isinstance(rope, dict), "an object")
    sets = [str(name) for name, value in rope.items() if isinstance(value, dict)]
    if sets:
        got = f"the sets {', '.join(sets)}"
        raise ValueError(f"{where}: expected one set for all layers, got {got}")
    kind = rope_type(rope)
    known = isinstance(kind, str) and kind in _KINDS
    validated("rope_type", kind, known, f"one of {', '.join(sorted(_KINDS))}")
    outside = {name: config.get(name) for name in ("rope_theta", _PART, _ORIGINAL)}
    given = {name: value for name, value in outside.items() if value is not None}
    # The first two are used only if the set lacks them, the last in any case.
    last = {_ORIGINAL: given.get(_ORIGINAL, rope.get(_ORIGINAL) or max_positions)}
    numbers = Config({**given, **rope, **last})
    base = numbers.positive("rope_theta", base)
    if base <= 1:
        raise ValueError(f"rope_theta: expected a number above 1, got {base:g}")
    part = fraction if numbers.get(_PART) is None else numbers.positive(_PART)
    dim = int(head_dim * part)
    right = dim >= 2 and dim % 2 == 0 and dim <= head_dim
    validated("rotary dimension", dim, right, f"an even number from 2 to {head_dim}")
    # In float32, as in the programs of the checkpoints.
    plain = np.float32(1) / np.float32(base) ** exponents(dim)
    changed: dict[str, Any] = _KINDS[kind](numbers, plain, base, max_positions)
    fields: dict[str, Any] = {"frequencies": plain, **changed}
    for name in {"frequencies", "long_frequencies"} & set(fields):
        fields[name] = tuple(map(float, np.asarray(fields[name], np.float32)))
    return Rotary(interleaved=interleaved, **fields)


def rope_type(rope: Mapping[str, Any]) -> Any:
    """Returns the kind of rotary positions of a set of their parameters."""
    return rope.get("rope_type", rope.get("type", "default")) or "default"


# Each function returns the fields of Rotary that its kind changes, given the numbers
# of the config, the plain frequencies, their base and the longest sequence.


def _linear(numbers, plain, base, longest):
    return {"frequencies": plain / numbers.positive("factor")}


def _dynamic(numbers, plain, base, longest):
    least = "at least 4 for rope_type 'dynamic'"
    validated("rotary dimension", 2 * len(plain), len(plain) > 1, least)
    return {"switch": longest, "ntk": (base, numbers.positive("factor"))}


def _llama3(numbers, plain, base, longest):
    factor = numbers.positive("factor")
    low = numbers.positive("low_freq_factor")
    high = numbers.positive("high_freq_factor")
    above = f"a number above low_freq_factor {low:g}"
    validated("high_freq_factor", high, high > low, above)
    turns = numbers.positive(_ORIGINAL) * plain / (2 * math.pi)
    # From full slow-down (few turns within the old context) to none.
    keep = np.clip((turns - low) / (high - low), 0, 1)
    return {"frequencies": (1 - keep) * plain / factor + keep * plain}


def _yarn(numbers, plain, base, longest):
    original, dim = numbers.positive(_ORIGINAL), 2 * len(plain)
    factor = numbers.positive("factor", longest / original)
    low, high = (
        dim
        * math.log(original / (numbers.positive(name, usual) * 2 * math.pi))
        / (2 * math.log(base))
        for name, usual in (("beta_fast", 32), ("beta_slow", 1))
    )
    if numbers.values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    slow = np.clip((np.arange(dim // 2) - low) / (high - low or 0.001), 0, 1)
    frequencies = slow * plain / factor + (1 - slow) * plain
    return {"frequencies": frequencies, "scale": _yarn_scale(numbers, factor)}


def _yarn_scale(numbers, factor):
    if numbers.get("attention_factor") is not None:
        return numbers.positive("attention_factor")

    def scale(weight):
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    over, under = numbers.get("mscale"), numbers.get("mscale_all_dim")
    return scale(over) / scale(under) if over and under else scale(1.0)


def _longrope(numbers, plain, base, longest):
    original = numbers.positive(_ORIGINAL)
    factor = numbers.positive("factor", longest / original)
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return {
        "frequencies": plain / numbers.positives("short_factor", len(plain)),
        "long_frequencies": plain / numbers.positives("long_factor", len(plain)),
        "switch": int(original),
        "scale": numbers.positive("attention_factor", usual),
    }


_KINDS = {
    "default": lambda *known: {},
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of decoders; what it does not say of names is as in LLaMA.

    Attributes:
        name: ``model_type`` in the config.
        fields: Reads the fields of the architecture that have numbers in the config.
        modules: The modules of a layer by their names in a checkpoint, such as
            ``"attn.c_attn"``, with the parameters that each holds, such as
            ``"attn.W_Q attn.W_K attn.W_V"``, stacked in (out, in) form. With
            ``{expert}`` in both, one module for each expert.
        embed: Name of the token table; ``positions``, ``final_norm`` and ``head`` are
            the names of the other modules outside of the layers.
        layer: Name of a layer, with ``{}`` for its number.
        prefix: What stands before every name but the head's; absent in checkpoints of
            the bare decoder.
        other_heads: Names that other versions gave the head.
        skipped: Patterns of names, behind the prefix, that hold no weights: tables
            that old versions saved and that are computed here.
        transposed: Whether matrices of layers are stored (in, out).
        by_head: Whether matrices in one module alternate head by head.
        defaults: What an absent entry of the config means.
        fixed: Fields of the architecture that no config changes.
        flags: Fields of the architecture and the entry of the config that sets each.
        refused: Entries with the only value that is implemented.
    """

    name: str
    fields: Callable[[Config], dict[str, Any]]
    modules: Mapping[str, str]
    embed: str = "embed_tokens"
    final_norm: str = "norm"
    layer: str = "layers.{}"
    prefix: str = "model."
    head: str = "lm_head"
    other_heads: tuple[str, ...] = ()
    positions: str | None = None
    skipped: tuple[str, ...] = (r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)
    transposed: bool = False
    by_head: bool = False
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refused: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def architecture(self, values: Mapping[str, Any]) -> Architecture:
        """Returns the architecture that a config of this family describes."""
        config = Config(values, self.defaults)
        for name, only in self.refused.items():
            config.refuse(name, unless=only)
        flags = {field: config.flag(name) for field, name in self.flags.items()}
        fields: dict[str, Any] = {**self.fields(config), **flags}
        return Architecture(family=self.name, **self.fixed, **fields)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of a checkpoint.

    Attributes:
        paths: Leaves of the parameter tree that it holds, with their ``shapes``.
        transposed: Whether it is stored (in, out).
        by_head: Number of heads by which its parts alternate; 0 if they do not.
    """

    name: str
    paths: tuple[tuple[str | int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    transposed: bool = False
    by_head: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stored tensor."""
        rows = sum(shape[0] for shape in self.shapes)
        shape = (rows, *self.shapes[0][1:])
        return shape[::-1] if self.transposed else shape

    def split(self, tensor: Any) -> list[Any]:
        """Splits a stored NumPy array into its leaves, (out, in), as views."""
        tensor = tensor.T if self.transposed else tensor
        if self.by_head:
            rest = tensor.shape[1:]
            heads = tensor.reshape(self.by_head, len(self.paths), -1, *rest)
            return [heads[:, i].reshape(shape) for i, shape in enumerate(self.shapes)]
        ends = np.cumsum([shape[0] for shape in self.shapes])
        return np.split(tensor, ends[:-1])

    def join(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Joins leaves to the stored tensor."""
        if self.by_head:
            rest = self.shapes[0][1:]
            parts = [leaf.reshape(self.by_head, -1, *rest) for leaf in leaves]
            tensor = np.stack(parts, axis=1).reshape(-1, *rest)
        else:
            tensor = leaves[0] if len(leaves) == 1 else np.concatenate(leaves)
        return tensor.T if self.transposed else tensor
