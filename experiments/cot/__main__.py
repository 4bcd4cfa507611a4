"""``python -m experiments.cot``."""

from experiments._frame.program import run_program
from experiments.cot.main import main

run_program(main)
