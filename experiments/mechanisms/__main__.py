"""``python -m experiments.mechanisms``."""

from experiments._frame.program import run_program
from experiments.mechanisms.main import main

run_program(main)
