"""``python -m experiments.depth``."""

from experiments._frame.program import run_program
from experiments.depth.main import main

run_program(main)
