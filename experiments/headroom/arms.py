"""Searches on a model: methods to prune a module, and factors to multiply it by."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from experiments.headroom.config import MODULES, Config
from icltheory.bridge.spectra import (
    ActivationAware,
    ClippingMethod,
    LargestEntries,
    RandomVectors,
)

Moments = Mapping[Any, Any]
# Arms that keep all weights, and the control that keeps only the singular values.
SCALARS, CONTROL = ("scale", "temperature"), "random_vectors"


@dataclasses.dataclass(frozen=True)
class Scaled:
    r"""Method of the evaluation grid that multiplies some matrices by a factor.

    .. math:: W' = c(\xi)\, W

    A scalar times the last matrix of a module multiplies what the module adds to the
    residual stream; a scalar times W_Q multiplies the scores in the softmax of the
    attention, and is therefore an inverse temperature. A temperature of the output
    logits would change no answer, since their order stays.

    Attributes:
        matrices: Names of the matrices that are multiplied.
        numbers: The number c of each place, a place being what the grid calls a rate.
    """

    matrices: tuple[str, ...]
    numbers: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """Name made of the matrices and the factors."""
        listed = ",".join(f"{number:g}" for _, number in self.numbers)
        return f"scaled-{'+'.join(self.matrices)}-{listed}"

    @property
    def fresh(self) -> "Scaled":
        """Returns the method itself, since it draws nothing at random."""
        return self

    def cutter(
        self, W: Any, rank_of: Callable[[Any], int], place: tuple[int, str]
    ) -> Callable[[Any], Any]:
        """Returns a function from a place to the matrix times its factor."""
        if place[1] not in self.matrices:
            return lambda rate: W
        numbers = dict(self.numbers)
        return lambda rate: numbers[float(rate)] * W


class Arm(NamedTuple):
    """One search on the validation prompts: a method, its modules and its values.

    Attributes:
        title: Its name in tables and figures.
        method: What changes the matrices, from the config and the second moments of
            their inputs.
        numbers: What the places of the search stand for, in the order of the places.
        modules: Modules that are searched, one at a time.
        condition_layer: Whether condition numbers choose the layer of each module, as
            in Algorithm 1; else all layers are searched.
        calibrated: Whether the method needs the moments.
    """

    title: str
    method: Callable[[Config, Moments], str | ClippingMethod]
    numbers: Callable[[Config], tuple[float, ...]] = lambda config: config.rates
    modules: tuple[str, ...] = MODULES
    condition_layer: bool = False
    calibrated: bool = False

    def places(self, config: Config) -> tuple[float, ...]:
        """Grid values of the search: clipping rates, or equally spaced indices."""
        numbers = self.numbers(config)
        if numbers == config.rates:
            return numbers
        return tuple((i + 1) / (len(numbers) + 1) for i in range(len(numbers)))

    def settings(self, config: Config) -> int:
        """Number of settings that the search compares with the unpruned model."""
        layers = 1 if self.condition_layer else config.recipe.num_layers
        return layers * len(self.modules) * len(self.numbers(config))


def _scaled(arm: str, matrices: tuple[str, ...], config: Config) -> Scaled:
    row = ARMS[arm]
    pairs = zip(row.places(config), row.numbers(config), strict=True)
    return Scaled(matrices, tuple(pairs))


ARMS = {
    "algorithm1": Arm(
        "Algorithm 1", lambda config, moments: "svd", condition_layer=True
    ),
    "svd": Arm("plain SVD", lambda config, moments: "svd"),
    "activation": Arm(
        "activation-aware SVD",
        lambda config, moments: ActivationAware(moments, label="prompts"),
        calibrated=True,
    ),
    "magnitude": Arm("magnitude", lambda config, moments: LargestEntries()),
    CONTROL: Arm("random matrices", lambda config, moments: RandomVectors()),
    "scale": Arm(
        "scaled output",
        lambda config, moments: _scaled("scale", ("W_O", "W_out"), config),
        lambda config: config.factors,
    ),
    "temperature": Arm(
        "attention temperature",
        lambda config, moments: _scaled("temperature", ("W_Q",), config),
        lambda config: config.temperatures,
        ("attn",),
    ),
}
NAMES = {name: arm.title for name, arm in ARMS.items()}
# Arms that share no evaluations with another arm; Algorithm 1 uses those of plain SVD.
SEARCHED = tuple(name for name, arm in ARMS.items() if not arm.condition_layer)
PRUNING = tuple(name for name in ARMS if name not in (*SCALARS, CONTROL))
