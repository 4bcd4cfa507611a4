"""``python -m experiments.bound_vs_error``."""

from experiments import _run
from experiments.bound_vs_error.main import main

_run.main(main)
