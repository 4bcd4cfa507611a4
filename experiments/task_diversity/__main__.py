"""``python -m experiments.task_diversity``."""

from experiments import _run
from experiments.task_diversity.main import main

_run.main(main)
