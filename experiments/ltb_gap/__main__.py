"""``python -m experiments.ltb_gap``."""

from experiments import _run
from experiments.ltb_gap.main import main

_run.main(main)
