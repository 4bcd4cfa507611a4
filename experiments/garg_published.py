"""``python -m experiments.garg_published FILE``: errors of a published model.

The file is a checkpoint of Garg et al. (dtsip/in-context-learning). It is evaluated as
a model that garg_linear trained: on fresh prompts of its family, beside the same
methods.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from experiments import frame
from experiments.frame import expect
from experiments.garg_linear import PRESETS, Baselines, FamilySizes, report, set_up
from experiments.shared.training import with_seeds
from icltheory.models import load_garg_checkpoint


@dataclass(frozen=True)
class Options:
    """Options of the command."""

    # the file: safetensors, or with --format torch what torch.save wrote
    checkpoint: tyro.conf.Positional[Path | None] = None
    format: Literal["safetensors", "torch"] = "safetensors"  # format of the file
    num_heads: int | None = None  # attention heads, which the file does not tell
    # family of functions that the model was trained on
    task: Literal["linear", "sparse", "relu_network", "decision_tree"] = "linear"
    family: FamilySizes = FamilySizes()  # sizes of the families
    baselines: Baselines = Baselines()  # the methods that are compared with the model
    eval_prompts: int = 1280  # fresh prompts of the evaluation
    seed: int = 0  # seed of the prompts
    output: Path = Path("runs")  # folder under which the run makes its own


def main(argv: list[str] | None = None) -> dict:
    """Evaluates a checkpoint and writes the table and the figure to a run folder."""
    about = __doc__.partition("\n")[0]
    options = frame.read_line(Options(), argv, name="garg_published", about=about)
    file, form = options.checkpoint, options.format
    expect(file is not None, "checkpoint", "a file", "None; pass --checkpoint")
    try:
        loaded = load_garg_checkpoint(file, num_heads=options.num_heads, format=form)
    except ImportError as error:
        raise ValueError(str(error)) from None
    model, paper, points = loaded.model, PRESETS["paper"], 2 * loaded.model.dim + 1
    stairs = paper.curriculum
    sizes = {n: getattr(model, n) for n in ("dim", "width", "num_layers", "num_heads")}
    asked = {n: getattr(options, n) for n in ("family", "baselines", "eval_prompts")}
    config = replace(
        paper,
        num_points=points,
        curriculum=replace(
            stairs,
            dims=replace(stairs.dims, start=1, end=model.dim),
            points=replace(stairs.points, start=1, end=points),
        ),
        precision="float32",
        seeds=(options.seed,),
        **sizes,
        **asked,
    ).of_task(options.task)
    needed, held = 2 * config.num_points, model.num_positions
    prompts = f"at least {needed} positions for prompts of {config.num_points} points"
    expect(held >= needed, "checkpoint", prompts, held)
    setup = replace(set_up(config, 1), model=model)
    run = frame.Run.create(options.output, "garg_linear", "published", config)
    with run.phase("evaluation"):
        found = report(setup, with_seeds(loaded.params, config.seeds), [])
    return run.finish(found, checkpoint=str(file))


frame.program(__name__, main)
