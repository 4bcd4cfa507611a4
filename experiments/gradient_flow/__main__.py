"""``python -m experiments.gradient_flow``."""

from experiments._frame.program import run_program
from experiments.gradient_flow.main import main

run_program(main)
