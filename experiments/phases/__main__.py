"""``python -m experiments.phases``."""

from experiments import _run
from experiments.phases.main import main

_run.main(main)
