"""``python -m experiments.garg_linear``."""

from experiments import _run
from experiments.garg_linear.main import main

_run.main(main)
