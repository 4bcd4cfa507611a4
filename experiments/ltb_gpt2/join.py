"""``python -m experiments.ltb_gpt2.join RUN RUN``: one table of several runs' seeds.

On a CPU three processes with a seed each, pinned to a core each, are about twice as
fast as one process that trains the three seeds side by side.
"""

import dataclasses
import json
from pathlib import Path

import tyro

from experiments._frame.program import run_program
from experiments._frame.run import Run
from experiments._frame.stored import read_config
from experiments._frame.tyro_line import read_line
from experiments.ltb_gpt2.config import PRESETS, Config, ModelSetting
from experiments.ltb_gpt2.measure import Score, references
from experiments.ltb_gpt2.report import report


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the command.

    Attributes:
        runs: Folders of finished runs that differ in their seeds alone.
        output: Folder under which the joined run makes its own.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    output: Path = Path("runs")


def join(folders: list[Path], output: Path) -> dict:
    """Writes the table and the figure of finished runs that differ in seeds alone.

    Raises:
        ValueError: if a folder holds no finished run, the runs differ in more than
            their seeds, or two have a seed in common.
    """
    configs = [read_config(folder, PRESETS["cpu"]) for folder in folders]
    config = _with_all_seeds(folders, configs)
    parts = [_scores(folder, config) for folder in folders]
    scores = {c: Score.joined([part[c] for part in parts]) for c in config.cells}
    columns = {mean: references(config, mean) for mean in config.means}
    run = Run.create(output, "ltb_gpt2", "joined", config)
    found = report(config, scores, columns)
    return run.finish(found, runs=[str(folder) for folder in folders])


def _with_all_seeds(folders: list[Path], configs: list[Config]) -> Config:
    seeds = tuple(seed for config in configs for seed in config.recipe.seeds)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"runs: expected different seeds, got {seeds}")
    joined = [_with_seeds(config, seeds) for config in configs]
    for folder, config in zip(folders, joined, strict=True):
        if config != joined[0]:
            raise ValueError(
                f"runs: expected the config of {folders[0]} but for the seeds, got "
                f"another in {folder}"
            )
    return joined[0]


def _with_seeds(config: Config, seeds: tuple[int, ...]) -> Config:
    recipe = dataclasses.replace(config.recipe, seeds=seeds)
    return dataclasses.replace(config, recipe=recipe)


def _scores(folder: Path, config: Config) -> dict[ModelSetting, Score]:
    path = folder / "result.json"
    names = [field.name for field in dataclasses.fields(Score)]
    try:
        cells = json.loads(path.read_text())["cells"]
        return {c: Score(*(cells[c.name][n] for n in names)) for c in config.cells}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"runs: expected a finished run with a readable result.json, got {folder} "
            f"({type(error).__name__}: {error})"
        ) from error


def main(argv: list[str] | None = None) -> dict:
    """Reads the command line and joins."""
    name, about = "ltb_gpt2.join", __doc__.partition("\n")[0]
    given = read_line(Options(), argv, name=name, about=about)
    if not given.runs:
        raise ValueError("runs: expected finished runs, got none")
    return join(list(given.runs), given.output)


if __name__ == "__main__":
    run_program(main)
