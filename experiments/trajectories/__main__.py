"""``python -m experiments.trajectories``."""

from experiments import _run
from experiments.trajectories.main import main

_run.main(main)
