"""``python -m experiments.small_lm``."""

from experiments import _run
from experiments.small_lm.main import main

_run.main(main)
