"""``python -m experiments.gradient_flow``."""

from experiments import _run
from experiments.gradient_flow.main import main

_run.main(main)
