"""The problems of the experiment, each of which varies one quantity."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.ltb_gap.config import Config
from icltheory.regression import LinearPopulation

AXES = ("mean_norm", "num_examples", "dim", "noise_var")


class PopulationSetting(NamedTuple):
    """One problem and prompt length."""

    dim: int
    num_examples: int
    mean_norm: float
    noise_var: float


@dataclasses.dataclass(frozen=True)
class Axis:
    """One of the four axes, with the settings of its lines and dots."""

    name: str
    line: list[PopulationSetting]
    dots: list[PopulationSetting]

    def values(self, settings: list[PopulationSetting]) -> list[float]:
        """Values of the varied quantity."""
        return [float(getattr(setting, self.name)) for setting in settings]


def axes(config: Config) -> list[Axis]:
    """Returns the axes; lines extend slightly beyond the dots."""
    dots = (config.mean_norms, config.examples, config.dims, config.noise_vars)
    examples = np.geomspace(
        max(1, min(config.examples) / 2), 2 * max(config.examples), 16
    )
    lines = (
        _around(config.mean_norms),
        sorted({round(x) for x in examples.tolist()} | set(config.examples)),
        range(1, max(config.dims) + 3),
        _around(config.noise_vars),
    )
    return [
        Axis(name, _vary(config, name, line), _vary(config, name, dot))
        for name, line, dot in zip(AXES, lines, dots, strict=True)
    ]


def _around(values: Sequence[float]) -> list[float]:
    return np.geomspace(min(values) / 2, 2 * max(values), 33).tolist()


def _vary(
    config: Config, name: str, values: Iterable[float]
) -> list[PopulationSetting]:
    base: dict[str, Any] = {
        field: getattr(config, field) for field in PopulationSetting._fields
    }
    return [PopulationSetting(**(base | {name: value})) for value in values]


def trained_settings(config: Config) -> list[PopulationSetting]:
    """Returns the distinct settings of all dots."""
    return list(dict.fromkeys(s for axis in axes(config) for s in axis.dots))


def problem(
    dim: Array | int, mean_norm: Array | float, noise_var: Array | float, width: int
) -> LinearPopulation:
    """Builds a problem in ``width`` dimensions, of which only ``dim`` have inputs.

    H is singular beyond them, so one program serves every d.
    """
    there = (jnp.arange(width) < dim).astype(jnp.result_type(float))
    cov = jnp.diag(there)
    mean = mean_norm * there / jnp.sqrt(dim)
    return LinearPopulation(cov, mean, cov, noise_var)
