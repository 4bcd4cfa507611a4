"""The number of demonstrations that the bound needs, also for a language model."""

import math
from typing import Any

import jax
import numpy as np

from experiments.bound_vs_error.learners import CLIP
from icltheory.bounds import planned_bound, required_samples

_DIMS, _FRACTION = (5, 5), 0.5  # support dimensions of two layers, and b/N
# A LLaMA of 7 billion parameters has 32 layers of this width.
_WIDTH, _LAYERS, _DEMOS = 4096, 32, 10


def planned_samples(target: float) -> int:
    """Returns the N at which the sweep learner's planned bound reaches a target."""
    with jax.enable_x64(True):
        return required_samples(target, _FRACTION, np.array(_DIMS), CLIP / 2)


def planned_curve(num_demos: list[int], shots: list[int]) -> np.ndarray:
    """Returns the planned bound of the sweep's learner for each N; may be infinite."""
    sizes = np.array(num_demos), np.array(shots)
    return np.asarray(planned_bound(*sizes, np.array(_DIMS), CLIP / 2))


def crossing(num_demos: list[int], values: list[float], target: float) -> float:
    """Interpolates the N at which a decreasing curve reaches a target, on log axes."""
    pairs = list(zip(num_demos, values, strict=True))
    for (n_0, v_0), (n_1, v_1) in zip(pairs, pairs[1:], strict=False):
        if v_0 > target >= v_1 and math.isfinite(v_0):
            part = math.log(v_0 / target) / math.log(v_0 / v_1)
            return float(n_0 * (n_1 / n_0) ** part)
    return math.nan


def language_model(target: float) -> dict[str, Any]:
    """Planned bounds for one layer and for all layers of a language model."""
    support = _WIDTH * (_WIDTH + 1) // 2
    pruned = 20 * _WIDTH - 20 * 19 // 2  # rank 20, which is a rate of 0.995
    found: dict[str, Any] = {"width": _WIDTH, "layers": _LAYERS, "target": target}
    for name, m in (("full", support), ("rank 20", pruned)):
        one, every = np.array([m]), np.full(_LAYERS, m)
        few = planned_bound(_DEMOS, _DEMOS // 2, one, CLIP / 2)
        found[name] = {
            "support": m,
            f"bound with {_DEMOS} demonstrations": float(few),
            "demonstrations, one layer": required_samples(
                target, _FRACTION, one, CLIP / 2
            ),
            "demonstrations, all layers": required_samples(
                target, _FRACTION, every, CLIP / 2
            ),
        }
    return found
