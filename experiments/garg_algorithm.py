"""Which algorithm Garg's transformer runs at d = 20, by examples, layer and step.

The model is that of the preset d20 of garg_linear, trained here or, with --garg-run,
taken from a run's folder. Its answers are compared with the best member of every family
of icltheory.microscope, as in which_algorithm.
"""

import dataclasses
from pathlib import Path
from typing import Any

from experiments import frame, garg_linear
from experiments import which_algorithm as which
from experiments.frame import Report, check_at_least, expect
from experiments.shared.training import Recipe, Timing, TrainedModels, with_seeds
from icltheory import microscope as ms
from icltheory.training import TrainedModel


@dataclasses.dataclass(frozen=True)
class Config:
    """The model, and how it is compared."""

    garg: garg_linear.Config = garg_linear.PRESETS["d20"]  # the model's training
    shots: tuple[int, ...] = (10, 20, 30, 40)  # examples at which it is compared
    num_prompts: int = 2000  # prompts of a comparison; half tune, half judge
    seed: int = 0  # seed of the prompts

    def __post_init__(self):
        check_at_least(self, 8, "num_prompts")
        most = self.garg.num_points - 1
        fits = 0 < min(self.shots, default=0) <= max(self.shots, default=0) <= most
        expect(fits, "shots", f"numbers from 1 to {most}", self.shots)
        one = len(self.garg.seeds) == 1 and self.garg.task == "linear"
        expect(one, "garg", "one seed and the task linear", self.garg.seeds)


PRESETS = {"cpu": Config()}
TIMES = {"cpu": "85 min, 2 cores; 13 min with --garg-run"}


@dataclasses.dataclass(frozen=True)
class Switches(frame.Flags):
    """Switches of this experiment."""

    garg_run: Path | None = None  # run of garg_linear, in place of training


def load(config: Config, run: Any, folder: Path | None) -> TrainedModels:
    """The model with its snapshots, from a run or trained here."""
    if folder is None:
        setup = garg_linear.set_up(config.garg, devices=None)
        params, _, _ = garg_linear.train(setup, run)
        folder = run.folder
    else:
        setup, params = garg_linear.load(folder)
        same = setup.config == config.garg
        expect(same, "garg_run", "a run of the config garg", f"another: {folder}")
        params = with_seeds(params, setup.config.seeds)
    own, steps = setup.config, garg_linear.snapshots(setup, folder)
    names = {field.name for field in dataclasses.fields(Recipe)} & {*vars(own)}
    sizes: Any = {name: getattr(own, name) for name in names}
    recipe = Recipe("gpt2", **sizes | {"snapshots": (*steps,)})
    return TrainedModels("", recipe, setup.model, params, steps, [], Timing())


def measure(config: Config, trained: TrainedModels) -> dict[str, Any]:
    """Compares the model after some examples, by layer, and along its training."""
    recipe, population = trained.recipe, trained.recipe.task()
    model = TrainedModel(trained.module, trained.of_seed(0))
    name = f"transformer, d = {recipe.dim}"
    rows = which.families(population)
    given: Any = {"num_examples": config.shots, **which.options(config)}
    named = ms.identify(model, population, rows, **given)
    each = tuple(ms.Identification((one,)) for one in named.analyses)
    shots = {f"{name}: by examples": ms.Along("examples", config.shots, each)}
    one = which.Subject(model, population, recipe.num_points - 1)
    return {
        "models": {name: named},
        "along": shots | which.along(config, trained, name),
        "risks": {name: which.risks(config, one)},
    }


def report(found: dict[str, Any]) -> Report:
    """Numbers, checks, claims, tables and the figure."""
    [(name, one)] = found["models"].items()
    who = "Garg et al. 2022: without noise it is least squares"
    claims = [which.closest(f"{who} ({name})", one.last, "Bayes")]
    for view, axis in found["along"].items():
        claims += [which.newton(view, axis)] if axis.axis == "layer" else []
    return Report(
        which.numbers(found),
        checks=which.checks_of_gaps(found),
        tables=which.tables(found),
        claims=claims,
        claims_title="what the literature says of trained models",
        findings=[one.summary],
        figures={"along.png": which.draw_along(found, 2, f"Garg's {name}")},
        interval_level=which.LEVEL,
    )


@frame.experiment(PRESETS, Switches())
def main(config, run, flags):
    """Names the algorithm of Garg's transformer."""
    with run.phase("training"):
        trained = load(config, run, flags.garg_run)
    with run.phase("comparison"):
        found = measure(config, trained)
    return report(found)


frame.program(__name__, main)
