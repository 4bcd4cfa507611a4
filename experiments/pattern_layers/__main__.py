"""``python -m experiments.pattern_layers``."""

from experiments import _run
from experiments.pattern_layers.main import main

_run.main(main)
