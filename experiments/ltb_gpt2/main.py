"""The command line of the experiment."""

import dataclasses
import time

import jax

from experiments import _launch
from experiments._run import Run, console_of, default_preset
from experiments._trained import train
from experiments.ltb_gpt2.config import PRESETS, Cell
from experiments.ltb_gpt2.measure import (
    Score,
    evaluation_prompt,
    model_errors,
    references,
)
from experiments.ltb_gpt2.report import report

NAME = "ltb_gpt2"


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = _launch.parse(
        PRESETS,
        default_preset,
        argv,
        description="GPT-2 with and without its MLP, by the mean of the prior.",
    )
    config = launch.config
    recipe = config.recipe
    recipe.transformation()  # complains before anything is written
    run = Run.of(launch, NAME)
    console = console_of(run)
    console.print(
        f"{NAME}, preset {launch.preset}: d = {recipe.dim}, M = "
        f"{config.num_examples}, GPT-2 of {recipe.num_layers} layers, width "
        f"{recipe.width}, {recipe.steps:,} steps, seeds {recipe.seeds} on "
        f"{jax.devices()[0].device_kind}\nwriting to {run.folder}"
    )
    start = time.perf_counter()
    scores: dict[Cell, Score] = {}
    timing, records = {}, []
    for cell in config.cells_as_trained:
        trained = train(
            config.recipe_of(cell), run, console, name=cell.name, earlier=records
        )
        records += trained.records
        timing[cell.name] = dataclasses.asdict(trained.timing)
        errors = model_errors(trained, evaluation_prompt(config, cell.mean))
        scores[cell] = Score.of(errors)
    columns = {mean: references(config, mean) for mean in config.means}
    result = report(config, scores, columns, run, console)
    result["timing"] = timing
    written = run.write_json("result.json", result)
    console.print(
        f"{time.perf_counter() - start:.0f} s; results, figure and checkpoints in "
        f"{run.folder}"
    )
    return written
