"""The command line of the experiment."""

from experiments._frame.command_line import parse
from experiments._frame.run import Run
from experiments.pattern_dynamics.config import PRESETS
from experiments.pattern_dynamics.measure import jump_times, measure
from experiments.pattern_dynamics.report import report


def main(argv: list[str] | None = None) -> dict:
    """Runs the experiment and returns what it wrote to ``result.json``."""
    launch = parse(PRESETS, argv)
    config = launch.config
    settings = [(*pair, share) for pair in config.scales for share in config.shares]
    run = Run.begin(
        launch,
        f"{len(settings)} settings of {len(config.seeds)} models, {config.steps} steps "
        f"of {config.batch_size} prompts",
    )
    found = {}
    with run.phase("training"), run.progress("training", len(settings)) as activity:
        for scale, step_size, share in settings:
            activity.enter(f"beta {scale:g}, alpha {share:g}")
            found[scale, share] = measure(config, scale, step_size, share)
            activity.advance()
    with run.phase("small shares"):
        jumps = jump_times(config)
    return run.finish(report(config, found, jumps))
