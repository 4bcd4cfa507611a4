"""The command line of the experiment."""

import dataclasses

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._trained import train
from experiments.ltb_gpt2.config import PRESETS, ModelSetting
from experiments.ltb_gpt2.measure import (
    Score,
    course,
    evaluation_prompt,
    model_errors,
    references,
)
from experiments.ltb_gpt2.removal import Removals, removals
from experiments.ltb_gpt2.report import report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    recipe = config.recipe
    run = Run.begin(
        launch,
        f"d = {recipe.dim}, M = {config.num_examples}, GPT-2 of {recipe.num_layers} "
        f"layers, width {recipe.width}, {recipe.steps:,} steps, seeds {recipe.seeds}",
    )
    scores: dict[ModelSetting, Score] = {}
    removed: dict[ModelSetting, Removals] = {}
    courses: dict[ModelSetting, dict[int, Score]] = {}
    timing, records = {}, []
    for cell in config.cells_as_trained:
        with run.phase(cell.name):
            trained = train(
                config.recipe_of(cell), run, name=cell.name, earlier=records
            )
            prompt = evaluation_prompt(config, cell.mean)
            errors = model_errors(trained, prompt)
            if recipe.snapshots:
                courses[cell] = course(trained, prompt)
            removed[cell] = removals(config, trained, cell)
        records += trained.records
        timing[cell.name] = dataclasses.asdict(trained.timing)
        scores[cell] = Score.of(errors)
    with run.phase("references"):
        columns = {mean: references(config, mean) for mean in config.means}
    removed = {cell: removed[cell] for cell in config.cells}
    found = report(config, scores, columns, removed, courses)
    return run.finish(found, timing=timing)
