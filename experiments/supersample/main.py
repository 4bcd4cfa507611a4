"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments._patterns import train_ensemble
from experiments._trained import train
from experiments.shared.language import load
from experiments.supersample import learners
from experiments.supersample.config import PRESETS
from experiments.supersample.language import language
from experiments.supersample.report import report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    model = load(config.checkpoint)
    run = Run.begin(
        launch,
        f"{config.prompts:,} prompts for each bound, and as many for each error",
    )
    trained, records = [], []
    with run.phase("training"):
        names = [f"linear_{layers}" for layers in config.linear_layers]
        recipes = [*learners.recipes(config), config.gpt2]
        for name, recipe in zip([*names, "gpt2"], recipes, strict=True):
            trained.append(train(recipe, run, name=name, earlier=records))
            records += trained[-1].records
        patterns = train_ensemble(config.patterns)
    cases = []
    with run.phase("regression"):
        cases += learners.descent(config)
        cases += learners.stacks(config, trained[:-1])
    with run.phase("GPT-2"):
        cases += learners.gpt2(config, trained[-1])
    with run.phase("patterns"):
        cases += learners.patterns(config, patterns)
    with run.phase("language model"):
        cases += language(config, model)
    return run.finish(report(config, cases))
