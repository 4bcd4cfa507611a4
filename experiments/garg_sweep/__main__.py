"""``python -m experiments.garg_sweep``."""

from experiments._frame.program import run_program
from experiments.garg_sweep.main import main

run_program(main)
