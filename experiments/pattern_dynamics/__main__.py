"""``python -m experiments.pattern_dynamics``."""

from experiments._frame.program import run_program
from experiments.pattern_dynamics.main import main

run_program(main)
