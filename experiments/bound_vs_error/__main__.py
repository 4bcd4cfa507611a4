"""``python -m experiments.bound_vs_error``."""

from experiments._frame.program import run_program
from experiments.bound_vs_error.main import main

run_program(main)
