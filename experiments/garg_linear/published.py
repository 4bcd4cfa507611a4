"""``python -m experiments.garg_linear.published FILE``: errors of a published model.

The file is a checkpoint of Garg et al. (dtsip/in-context-learning). It is evaluated as
a model that was trained here: on fresh prompts of its family, beside the same methods.
"""

import dataclasses
from pathlib import Path
from typing import Literal

import jax
import tyro

from experiments._frame.program import run_program
from experiments._frame.run import Run
from experiments._frame.tyro_line import read_line
from experiments.garg_linear.config import PRESETS, Config, set_up
from experiments.garg_linear.report import report
from experiments.garg_linear.sizes import Baselines, FamilySizes
from icltheory.models import GPT2, GargCheckpoint, load_garg_checkpoint


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the command.

    Attributes:
        checkpoint: The file: safetensors, or with --format torch what torch.save wrote.
        format: The format of the file.
        num_heads: Attention heads of the model, which the file does not tell.
        task: Family of functions that the model was trained on.
        family: Sizes of the families other than linear functions.
        baselines: Recipes of the methods that are compared with the model.
        eval_prompts: Fresh prompts of the evaluation.
        seed: Seed of the prompts.
        output: Folder under which the run makes its own.
    """

    checkpoint: tyro.conf.Positional[Path | None] = None
    format: Literal["safetensors", "torch"] = "safetensors"
    num_heads: int | None = None
    task: Literal["linear", "sparse", "relu_network", "decision_tree"] = "linear"
    family: FamilySizes = FamilySizes()
    baselines: Baselines = Baselines()
    eval_prompts: int = 1280
    seed: int = 0
    output: Path = Path("runs")


def evaluate(options: Options) -> dict:
    """Evaluates a checkpoint and writes the table and the figure to a run folder.

    Raises:
        ValueError: if the file holds no such model, PyTorch is needed and missing, or
            the model has too few positions for the prompts of the family.
    """
    if options.checkpoint is None:
        raise ValueError("checkpoint: expected a file, got None; pass --checkpoint")
    try:
        loaded = load_garg_checkpoint(
            options.checkpoint, num_heads=options.num_heads, format=options.format
        )
    except ImportError as error:
        raise ValueError(str(error)) from None
    config = _config(options, loaded.model)
    setup = dataclasses.replace(set_up(config, 1), model=loaded.model)
    run = Run.create(options.output, "garg_linear", "published", config)
    with run.phase("evaluation"):
        found = report(setup, _with_seeds(loaded), [])
    return run.finish(found, checkpoint=str(options.checkpoint))


def _config(options: Options, model: GPT2) -> Config:
    """Returns the published recipe with the sizes of the model."""
    paper = PRESETS["paper"]
    ramps = paper.curriculum
    config = dataclasses.replace(
        paper,
        dim=model.dim,
        num_points=2 * model.dim + 1,
        width=model.width,
        num_layers=model.num_layers,
        num_heads=model.num_heads,
        curriculum=dataclasses.replace(
            ramps,
            dims=dataclasses.replace(ramps.dims, start=1, end=model.dim),
            points=dataclasses.replace(ramps.points, start=1, end=2 * model.dim + 1),
        ),
        precision="float32",
        seeds=(options.seed,),
        family=options.family,
        baselines=options.baselines,
        eval_prompts=options.eval_prompts,
    ).of_task(options.task)
    needed = 2 * config.num_points
    if model.num_positions < needed:
        raise ValueError(
            f"checkpoint: expected at least {needed} positions for prompts of "
            f"{config.num_points} points, got {model.num_positions}"
        )
    return config


def _with_seeds(loaded: GargCheckpoint):
    """Returns the parameters with a leading axis of one seed."""
    return jax.tree.map(lambda leaf: leaf[None], loaded.params)


def main(argv: list[str] | None = None) -> dict:
    """Parses the command line and evaluates the checkpoint."""
    name, about = "garg_linear.published", __doc__.partition("\n")[0]
    return evaluate(read_line(Options(), argv, name=name, about=about))


if __name__ == "__main__":
    run_program(main)
