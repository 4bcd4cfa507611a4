"""``python -m experiments.position``."""

from experiments._frame.program import run_program
from experiments.position.main import main

run_program(main)
