"""The command line of the experiment."""

from collections.abc import Iterator

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.condition_numbers.config import PRESETS, Config
from experiments.condition_numbers.report import report
from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.spectra import (
    ConditionNumber,
    SingularSystems,
    condition_numbers,
)
from icltheory.pruning import module_matrices


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    model = load_checkpoint(
        config.place, config.dtype, revision=config.revision or None
    )
    for layer in layers_of(config, model):
        module_matrices(model, layer, config.module)  # raises before the computation
    run = Run.begin(
        launch,
        f"{model.arch.family} of {model.num_layers} layers from {config.checkpoint}",
    )
    with run.phase("decompositions"):
        rows = tuple(measure(config, model, run))
    return run.finish(report(config, model, rows))


def layers_of(config: Config, model: LanguageModel) -> tuple[int, ...]:
    """Returns the layers that are decomposed."""
    return config.layers or tuple(range(model.num_layers))


def measure(
    config: Config, model: LanguageModel, run: Run
) -> Iterator[ConditionNumber]:
    """Yields rows layer by layer, with the cached results of an interrupted run."""
    cache = SingularSystems(config.cache or run.folder / "singular_values")
    run.reset_metrics([])
    for layer in run.track(layers_of(config, model), "decomposing", unit="layers"):
        rows = condition_numbers(model, cache, [layer], config.module)
        run.log({"layer": layer} | {row.matrix: row.condition_number for row in rows})
        yield from rows
