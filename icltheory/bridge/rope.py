"""Rotary positions: frequencies from a config, and rotation of queries and keys."""

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from icltheory._typing import Array, Float, Int
from icltheory.bridge._config import is_number
from icltheory.bridge.architecture import Rotary

__all__ = ["read_rotary", "rotate"]

_PART, _ORIGINAL = "partial_rotary_factor", "original_max_position_embeddings"


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

    With d the turned coordinates of a head and b the base,

    .. math:: \theta_i = b^{-2 i / d} , \qquad i = 0, \dots, d / 2 - 1 ,

    which the kinds ``linear``, ``dynamic``, ``llama3``, ``yarn`` and ``longrope``
    change, each in the way of its paper. New configs keep everything in
    ``rope_parameters``; old ones in ``rope_theta``, ``partial_rotary_factor`` and
    ``rope_scaling``, which is the one that counts where there are both.

    Args:
        config: The config, a dict.
        head_dim: Width of a head.
        max_positions: Longest sequence the model was made for.
        base: b, where the config does not say it.
        fraction: Part of each head that turns, where the config does not say it.
        interleaved: Whether neighbouring coordinates make a pair.

    Returns:
        The rotary positions.

    Example:
        >>> read_rotary({"rope_theta": 100.0}, 4, 16).frequencies
        (1.0, 0.10000000149011612)
        >>> scaled = {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}
        >>> read_rotary(scaled, 4, 16, base=100.0).frequencies[0]
        0.5

    Source: Su et al. (2021); Peng et al. (2023), YaRN; Ding et al. (2024), LongRoPE.
    """
    scaling = config.get("rope_scaling")
    rope = scaling or config.get("rope_parameters") or {}
    where = "rope_scaling" if scaling else "rope_parameters"
    if not isinstance(rope, dict):
        raise ValueError(f"{where}: expected an object, got {rope!r}")
    sets = [name for name, value in rope.items() if isinstance(value, dict)]
    if sets:
        raise ValueError(
            f"{where}: expected one set for all layers, got the sets "
            f"{', '.join(map(str, sets))}"
        )
    kind = rope.get("rope_type", rope.get("type", "default")) or "default"
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(
            f"rope_type: expected one of {', '.join(sorted(_KINDS))}, got {kind!r}"
        )
    outside = {name: config.get(name) for name in ("rope_theta", _PART, _ORIGINAL)}
    given = {name: value for name, value in outside.items() if value is not None}
    # The first two are used only if the set lacks them, the last in any case.
    last = {_ORIGINAL: given.get(_ORIGINAL, rope.get(_ORIGINAL) or max_positions)}
    numbers = _Numbers(kind, {**given, **rope, **last})
    base = numbers.get("rope_theta", base)
    if base <= 1:
        raise ValueError(f"rope_theta: expected a number above 1, got {base:g}")
    part = fraction if numbers.values.get(_PART) is None else numbers.get(_PART)
    dim = int(head_dim * part)
    if dim < 2 or dim % 2 or dim > head_dim:
        raise ValueError(
            f"rotary dimension: expected an even number from 2 to {head_dim}, got {dim}"
        )
    fields: dict[str, Any] = _KINDS[kind](numbers, base, dim, max_positions)
    return Rotary(interleaved=interleaved, **fields)


def rotate(
    x: Float[Array, "B T heads head_dim"], positions: Int[Array, "B T"], rotary: Rotary
) -> Float[Array, "B T heads head_dim"]:
    """Rotates the first dimensions of every head by their positions.

    Angles are computed in float32, and applied in the dtype of ``x``.

    Args:
        x: Queries or keys.
        positions: Position of each token.
        rotary: How they turn.

    Returns:
        The turned queries or keys.

    Example:
        >>> import jax.numpy as jnp
        >>> x, one = jnp.ones((1, 1, 1, 2)), jnp.ones((1, 1), int)
        >>> rotate(x, one, Rotary(frequencies=(jnp.pi / 2,))).round(5).tolist()
        [[[[-1.0, 1.0]]]]

    Source: Su et al. (2021), section 3.2.
    """
    frequencies = _frequencies(rotary, positions)
    angles = positions.astype(jnp.float32)[..., None] * frequencies[None, None]
    cos = (jnp.cos(angles) * np.float32(rotary.scale)).astype(x.dtype)[:, :, None]
    sin = (jnp.sin(angles) * np.float32(rotary.scale)).astype(x.dtype)[:, :, None]
    half, dim = rotary.dim // 2, rotary.dim
    if rotary.interleaved:
        a, b = x[..., 0:dim:2], x[..., 1:dim:2]
        turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1)
        turned = turned.reshape(*x.shape[:-1], dim)
    else:
        a, b = x[..., :half], x[..., half:dim]
        turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return jnp.concatenate([turned, x[..., dim:]], axis=-1)


def _frequencies(rotary, positions):
    """Returns frequencies for the longest sequence of a batch."""
    usual = jnp.asarray(rotary.frequencies, jnp.float32)
    if rotary.switch is None:
        return usual
    length = (jnp.max(positions) + 1).astype(jnp.float32)
    if rotary.ntk is None:
        other = jnp.asarray(rotary.long_frequencies, jnp.float32)
        return jnp.where(length > rotary.switch, other, usual)
    base, factor = rotary.ntk
    longer = jnp.maximum(length, rotary.switch)
    stretch = factor * longer / rotary.switch - (factor - 1)
    grown = base * stretch ** np.float32(rotary.dim / (rotary.dim - 2))
    return 1.0 / grown ** jnp.asarray(_exponents(rotary.dim))


class _Numbers:
    """Typed access to scaling parameters, with errors that name the parameter."""

    def __init__(self, kind: str, values: Mapping[str, Any]):
        self.kind, self.values = kind, values

    def get(self, name: str, default: float | int | None = None) -> float:
        """Returns a positive number."""
        value = self.values.get(name)
        value = default if value is None else value
        if not is_number(value) or value <= 0:
            raise ValueError(
                f"{name}: expected a positive number for rope_type {self.kind!r}, "
                f"got {value!r}"
            )
        return float(value)

    def list(self, name: str, length: int) -> np.ndarray:
        """Returns a list of positive numbers."""
        value = self.values.get(name)
        if not isinstance(value, list) or len(value) != length:
            got = len(value) if isinstance(value, list) else value
            raise ValueError(f"{name}: expected a list of {length} numbers, got {got}")
        for number in value:
            if not is_number(number) or number <= 0:
                raise ValueError(
                    f"{name}: expected positive numbers for rope_type {self.kind!r}, "
                    f"got {number!r}"
                )
        return np.asarray(value, np.float32)


def _exponents(dim):
    return np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)


def _plain(base, dim):
    # In float32, as in the programs of the checkpoints.
    return np.float32(1) / np.float32(base) ** _exponents(dim)


def _floats(array):
    return tuple(float(value) for value in np.asarray(array, np.float32))


def _default(_numbers, base, dim, _max_positions):
    return {"frequencies": _floats(_plain(base, dim))}


def _linear(numbers, base, dim, _max_positions):
    return {"frequencies": _floats(_plain(base, dim) / numbers.get("factor"))}


def _dynamic(numbers, base, dim, max_positions):
    if dim < 4:
        raise ValueError(
            "rotary dimension: expected at least 4 for rope_type 'dynamic', got 2"
        )
    return {
        "frequencies": _floats(_plain(base, dim)),
        "switch": max_positions,
        "ntk": (base, float(numbers.get("factor"))),
    }


def _llama3(numbers, base, dim, _max_positions):
    plain, factor = _plain(base, dim), numbers.get("factor")
    low, high = numbers.get("low_freq_factor"), numbers.get("high_freq_factor")
    if high <= low:
        raise ValueError(
            f"high_freq_factor: expected a number above low_freq_factor {low:g}, "
            f"got {high:g}"
        )
    turns = numbers.get(_ORIGINAL) * plain / (2 * math.pi)
    # From full slow-down (few turns within the old context) to none.
    keep = np.clip((turns - low) / (high - low), 0, 1)
    return {"frequencies": _floats((1 - keep) * plain / factor + keep * plain)}


def _yarn(numbers, base, dim, max_positions):
    original = numbers.get(_ORIGINAL)
    factor = numbers.get("factor", max_positions / original)
    bounds = [
        dim
        * math.log(original / (numbers.get(name, default) * 2 * math.pi))
        / (2 * math.log(base))
        for name, default in (("beta_fast", 32), ("beta_slow", 1))
    ]
    low, high = bounds
    if numbers.values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (np.arange(dim // 2) - low) / (high - low or 0.001)
    slow = np.clip(ramp, 0, 1)
    plain = _plain(base, dim)
    frequencies = slow * plain / factor + (1 - slow) * plain
    return {"frequencies": _floats(frequencies), "scale": _yarn_scale(numbers, factor)}


def _yarn_scale(numbers, factor):
    if numbers.values.get("attention_factor") is not None:
        return float(numbers.get("attention_factor"))

    def scale(weight):
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    over, under = (numbers.values.get(name) for name in ("mscale", "mscale_all_dim"))
    return scale(over) / scale(under) if over and under else scale(1.0)


def _longrope(numbers, base, dim, max_positions):
    original = numbers.get(_ORIGINAL)
    factor = numbers.get("factor", max_positions / original)
    usual = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    plain = _plain(base, dim)
    return {
        "frequencies": _floats(plain / numbers.list("short_factor", dim // 2)),
        "long_frequencies": _floats(plain / numbers.list("long_factor", dim // 2)),
        "switch": int(original),
        "scale": float(numbers.get("attention_factor", usual)),
    }


_KINDS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
}
