"""``python -m experiments.mechanisms``."""

from experiments import _run
from experiments.mechanisms.main import main

_run.main(main)
