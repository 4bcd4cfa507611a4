"""``python -m experiments.condition_numbers``."""

from experiments import _run
from experiments.condition_numbers.main import main

_run.main(main)
