"""``python -m experiments.ltb_gpt2.join RUN RUN``: one table of several runs' seeds.

On a CPU three processes with a seed each, pinned to a core each, are about twice as
fast as one process that trains the three seeds side by side.
"""

import dataclasses
from pathlib import Path
from typing import Any

from experiments._frame.joining import (
    common_config,
    from_result,
    is_of_a_preset,
    read_join_line,
)
from experiments._frame.program import run_program
from experiments._frame.run import Run
from experiments._frame.stored import read_config
from experiments.ltb_gpt2.config import PRESETS, Config, ModelSetting
from experiments.ltb_gpt2.measure import Score, references
from experiments.ltb_gpt2.report import report


def join(folders: list[Path], output: Path) -> dict:
    """Joins finished runs that differ only in seeds: writes the table and the figure.

    Raises:
        ValueError: if a folder holds no finished run, the runs differ in more than
            their seeds, or two have a seed in common.
    """
    configs = [read_config(folder, PRESETS["cpu"]) for folder in folders]
    config = _with_all_seeds(folders, configs)
    parts = [from_result(folder, lambda r: _scores(r, config)) for folder in folders]
    scores = {c: Score.joined([part[c] for part in parts]) for c in config.cells}
    columns = {mean: references(config, mean) for mean in config.means}
    run = Run.create(output, "ltb_gpt2", "joined", config)
    run.checked = is_of_a_preset(config, PRESETS, lambda c: _with_seeds(c, (0,)))
    found = report(config, scores, columns)
    return run.finish(found, runs=[str(folder) for folder in folders])


def _with_all_seeds(folders: list[Path], configs: list[Config]) -> Config:
    seeds = tuple(seed for config in configs for seed in config.recipe.seeds)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"runs: expected distinct seeds, got {seeds}")
    return common_config(
        folders, configs, lambda config: _with_seeds(config, seeds), "the seeds"
    )


def _with_seeds(config: Config, seeds: tuple[int, ...]) -> Config:
    recipe = dataclasses.replace(config.recipe, seeds=seeds)
    return dataclasses.replace(config, recipe=recipe)


def _scores(result: dict[str, Any], config: Config) -> dict[ModelSetting, Score]:
    names, cells = [field.name for field in dataclasses.fields(Score)], result["cells"]
    return {c: Score(*(cells[c.name][n] for n in names)) for c in config.cells}


def main(argv: list[str] | None = None) -> dict:
    """Parses the command line and joins the runs."""
    given = read_join_line(argv, "ltb_gpt2.join", __doc__.partition("\n")[0])
    return join(list(given.runs), given.output)


if __name__ == "__main__":
    run_program(main)
