"""``python -m experiments.condition_numbers``."""

from experiments._frame.program import run_program
from experiments.condition_numbers.main import main

run_program(main)
