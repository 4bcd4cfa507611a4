"""``python -m experiments.ltb_gap``."""

from experiments._frame.program import run_program
from experiments.ltb_gap.main import main

run_program(main)
