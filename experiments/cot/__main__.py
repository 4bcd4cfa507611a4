"""``python -m experiments.cot``."""

from experiments import _run
from experiments.cot.main import main

_run.main(main)
