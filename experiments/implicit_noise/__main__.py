"""``python -m experiments.implicit_noise``."""

from experiments import _run
from experiments.implicit_noise.main import main

_run.main(main)
