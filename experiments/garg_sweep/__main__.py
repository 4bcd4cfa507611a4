"""``python -m experiments.garg_sweep``."""

from experiments import _run
from experiments.garg_sweep.main import main

_run.main(main)
