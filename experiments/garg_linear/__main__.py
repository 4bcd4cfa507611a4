"""``python -m experiments.garg_linear``."""

from experiments._frame.program import run_program
from experiments.garg_linear.main import main

run_program(main)
