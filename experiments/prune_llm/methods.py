"""The arms of Algorithm 1 as a table: which layer is clipped, and by which method."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.prune_llm.config import Config
from icltheory.bridge import LanguageModel
from icltheory.bridge.cached_evaluator import method_name
from icltheory.bridge.spectra import (
    ActivationAware,
    ClippingMethod,
    LargestEntries,
    RandomVectors,
    input_moments,
)
from icltheory.bridge.tasks import LanguageTask

# Name of Algorithm 1 itself, which the other arms are compared with.
CONDITION = "condition"


class Arm(NamedTuple):
    """One variant of Algorithm 1.

    Attributes:
        title: Its name in tables and figures.
        method: What cuts the matrices, from the config and second moments of inputs;
            the moments may be absent where only the name of the method matters.
        random_layer: Whether the layer is drawn instead of chosen.
        calibrated: Whether the method needs the moments.
    """

    title: str
    method: Callable[[Config, Mapping[Any, Any]], str | ClippingMethod]
    random_layer: bool = False
    calibrated: bool = False

    def stored_as(self, config: Config) -> str:
        """Name of the method in the answer cache."""
        return method_name(self.method(config, {}))


ARMS = {
    CONDITION: Arm("plain SVD", lambda config, moments: "svd"),
    "random": Arm("random layer", lambda config, moments: "svd", random_layer=True),
    "whitened": Arm("equal singular values", lambda config, moments: "whitened"),
    "activation": Arm(
        "activation-aware",
        lambda config, moments: ActivationAware(moments, label=_text_name(config)),
        calibrated=True,
    ),
    "magnitude": Arm("magnitude", lambda config, moments: LargestEntries()),
    "random_vectors": Arm(
        "random vectors", lambda config, moments: RandomVectors(config.seed)
    ),
}
NAMES = {name: arm.title for name, arm in ARMS.items()}


def own_layer(arms: tuple[str, ...]) -> tuple[str, ...]:
    """Returns Algorithm 1 and the arms that prune the same layer by other methods."""
    return tuple(a for a in (CONDITION, *arms) if not ARMS[a].random_layer)


def method_of(
    config: Config,
    arm: str,
    model: LanguageModel,
    task: LanguageTask,
    layer: int,
    module: str,
) -> str | ClippingMethod:
    """Returns an arm's method, with second moments of a layer's inputs if needed."""
    row = ARMS[arm]
    if not row.calibrated:
        return row.method(config, {})
    ids = model.tokenizer.encode(calibration_text(config, task))
    longest = model.context_length
    rows = [ids[start : start + longest] for start in range(0, len(ids), longest)]
    return row.method(config, input_moments(model, rows, layers=[layer], module=module))


def calibration_text(config: Config, task: LanguageTask) -> str:
    """Returns the text for measuring inputs: the demonstrations unless one is given."""
    if not config.calibration:
        text, where = task.prefix(None), f"the demonstrations of {task.name}"
    else:
        where = config.calibration
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"calibration: expected a text file, got {where} ({error})"
            ) from error
    if not text.strip():
        raise ValueError(
            f"calibration: expected a text, got only white space in {where}"
        )
    return text


def check_calibration(config: Config, tasks: Iterable[LanguageTask]) -> None:
    """Raises if an arm needs a calibration text and there is none."""
    if any(ARMS[arm].calibrated for arm in config.arms):
        for task in tasks:
            calibration_text(config, task)


def _text_name(config: Config) -> str:
    return "text" if config.calibration else "demonstrations"
