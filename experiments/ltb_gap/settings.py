"""The problems: one number varies at a time, the others stay."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.ltb_gap.config import Config
from icltheory._typing import Array
from icltheory.regression.tasks import LinearRegression

AXES = ("mean_norm", "num_examples", "dim", "noise_var")


class Setting(NamedTuple):
    """One problem and prompt length."""

    dim: int
    num_examples: int
    mean_norm: float
    noise_var: float


@dataclasses.dataclass(frozen=True)
class Axis:
    """One of the four axes: where there are lines, and where there are dots."""

    name: str
    line: list[Setting]
    dots: list[Setting]

    def values(self, settings: list[Setting]) -> list[float]:
        """What varies."""
        return [float(getattr(setting, self.name)) for setting in settings]


def axes(config: Config) -> list[Axis]:
    """The axes, with lines that reach a little beyond the dots."""
    dots = (config.mean_norms, config.examples, config.dims, config.noise_vars)
    found = []
    for name, values in zip(AXES, dots, strict=True):
        if name == "dim":
            fine = range(1, max(values) + 3)
        elif name == "num_examples":
            spread = np.geomspace(max(1, min(values) / 2), 2 * max(values), 16)
            fine = sorted({round(float(x)) for x in spread} | set(values))
        else:
            fine = np.geomspace(min(values) / 2, 2 * max(values), 33)
        found.append(Axis(name, _vary(config, name, fine), _vary(config, name, values)))
    return found


def _vary(config: Config, name: str, values) -> list[Setting]:
    base = Setting(*(getattr(config, field) for field in Setting._fields))
    kind = int if name in ("dim", "num_examples") else float
    return [base._replace(**{name: kind(value)}) for value in values]


def trained_settings(config: Config) -> list[Setting]:
    """The settings with dots, each once."""
    return list(dict.fromkeys(s for axis in axes(config) for s in axis.dots))


def problem(
    dim: Array | int, mean_norm: Array | float, noise_var: Array | float, width: int
) -> LinearRegression:
    """The problem within ``width`` dimensions, of which the first ``dim`` are there.

    H is singular beyond them, so one program serves every d.
    """
    there = (jnp.arange(width) < dim).astype(jnp.result_type(float))
    cov = jnp.diag(there)
    mean = mean_norm * there / jnp.sqrt(dim)
    return LinearRegression(cov, mean, cov, noise_var)
