"""``python -m experiments.pattern_pruning``."""

from experiments import _run
from experiments.pattern_pruning.main import main

_run.main(main)
