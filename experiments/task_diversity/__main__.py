"""``python -m experiments.task_diversity``."""

from experiments._frame.program import run_program
from experiments.task_diversity.main import main

run_program(main)
