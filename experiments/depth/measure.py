"""Measures the risks of trained stacks next to the exact risks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._frame.run import Run
from experiments.depth.classes import PLUS, Steps, train_classes
from experiments.depth.config import Config
from experiments.depth.free import draw, risk, stacks_of, train_free
from icltheory import regression as reg
from icltheory.attention import LinearAttentionStack
from icltheory.regression.depth import depth_floor
from icltheory.statistics import Estimate

# Floors of more layers are too small to resolve with these prompts, and their moments
# are slow to compute.
FLOOR_LAYERS = 3
_PART = 4096


class Trained(NamedTuple):
    """Risks of trained stacks of one kind and depth.

    Attributes:
        kind: Class of the weights and where they started.
        layers: Layers L.
        best: Risk of the start that is best on one half of the prompts, measured on
            the other half.
        starts: Mean risk of every start on that other half, (starts,).
    """

    kind: str
    layers: int
    best: Estimate
    starts: np.ndarray


class Setting(NamedTuple):
    """Exact risks and trained stacks for one d and N.

    Attributes:
        dim: Dimension d.
        num_examples: Examples N.
        steps: Exact risk / d of the best L gradient steps, L = 1, 2, ...
        floor: Exact floor of L layers, L = 1, 2, ... as far as it is computed.
        trained: Trained stacks.
    """

    dim: int
    num_examples: int
    steps: list[float]
    floor: list[float]
    trained: list[Trained]

    @property
    def title(self) -> str:
        """Title of the setting in symbols."""
        return f"d = {self.dim}, N = {self.num_examples}"


def measure(config: Config, run: Run) -> list[Setting]:
    """Trains and measures the stacks of every setting."""
    return [
        _setting(config, dim, N)
        for dim, N in run.track(config.settings, "training", unit="settings")
    ]


def _setting(config: Config, dim: int, N: int) -> Setting:
    classes = train_classes(config, dim, N)
    depths = range(1, config.max_layers + 1)
    stacks = {
        (kind, L): stacks_of(Steps(*(part[L - 1, :, :L] for part in steps)), dim)
        for kind, steps in classes.items()
        for L in depths
    }
    stacks |= train_free(config, dim, N, classes[PLUS])
    errors, task = _evaluator(config, dim, N), reg.LinearPopulation.isotropic(dim)
    floors = [depth_floor(L, task, N) for L in depths if L <= FLOOR_LAYERS]
    return Setting(
        dim,
        N,
        [_best(dim, N, L) for L in depths],
        [float(floor.risk) / dim for floor in floors],
        [_chosen(kind, L, errors(W)) for (kind, L), W in stacks.items()],
    )


def _best(dim: int, N: int, steps: int) -> float:
    """Exact risk of the best steps, divided by d."""
    task = reg.LinearPopulation.isotropic(dim)
    return float(reg.optimum(reg.Steps(steps), task, N).risk) / dim


def _evaluator(config: Config, dim: int, N: int):
    """Returns a function for errors of weights (starts, L, ...), (starts, prompts)."""
    key = jax.random.fold_in(jax.random.key(config.seed + 2), dim * 1000 + N)
    parts = -(-config.eval_prompts // _PART)

    @jax.jit
    def errors(stacks):
        def part(i):
            prompts = draw(jax.random.fold_in(key, i), dim, N, _PART)
            stack = LinearAttentionStack
            return jax.vmap(lambda *W: risk(stack(*W), prompts))(*stacks)

        found = jax.lax.map(part, jnp.arange(parts))  # (parts, starts, _PART)
        return jnp.moveaxis(found, 0, 1).reshape(found.shape[1], -1)

    return lambda stacks: np.asarray(errors(stacks), np.float64)


def _chosen(kind: str, layers: int, errors: np.ndarray) -> Trained:
    half = errors.shape[1] // 2
    choice, rest = errors[:, :half].mean(axis=1), errors[:, half:]
    best = Estimate.of(rest[int(np.nanargmin(choice))])
    return Trained(kind, layers, best, rest.mean(axis=1))


def phase_depths(config: Config) -> dict[float, tuple[list[float], list[float]]]:
    """Fewest best gradient steps L that reach an error, against N / d.

    Returns:
        By error: N / d, and the least L; settings that need more than the largest L
        are left out.
    """
    found: dict[float, tuple[list[float], list[float]]] = {}
    d = config.phase_dim
    for N in _examples(config):
        curve: list[float] = []
        while len(curve) < config.phase_layers:
            curve.append(_best(d, N, len(curve) + 1))
            if curve[-1] <= min(config.phase_errors):
                break
        for error in config.phase_errors:
            ratios, depths = found.setdefault(error, ([], []))
            below = [L for L, value in enumerate(curve, 1) if value <= error]
            if below:
                ratios.append(N / d)
                depths.append(below[0])
    return found


def limit_depths(config: Config) -> dict[float, tuple[list[float], list[float]]]:
    """Layers that reach an error in the limit of large prompts, with L real.

    With c = d / N the risk of L steps is (1 - c) c^L / (1 - c^(L + 1)), which has an
    error e at c^L = e / (1 - c + e c).
    """
    ratios = np.geomspace(0.5, 20, 400)
    c = 1 / np.where(ratios == 1, 1.000001, ratios)
    found = {}
    for error in config.phase_errors:
        with np.errstate(all="ignore"):
            depths = np.log(error / (1 - c + error * c)) / np.log(c)
        fine = np.isfinite(depths) & (depths <= config.phase_layers) & (depths > 0)
        found[error] = (ratios[fine].tolist(), depths[fine].tolist())
    return found


def _examples(config: Config) -> list[int]:
    spread = np.geomspace(0.5, 20, 40) * config.phase_dim
    return sorted(set(np.maximum(spread.round().astype(int), 1).tolist()))
