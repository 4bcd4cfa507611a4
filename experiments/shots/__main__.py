"""``python -m experiments.shots``."""

from experiments import _run
from experiments.shots.main import main

_run.main(main)
