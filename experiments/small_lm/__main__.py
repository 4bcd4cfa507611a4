"""``python -m experiments.small_lm``."""

from experiments._frame.program import run_program
from experiments.small_lm.main import main

run_program(main)
