"""``python -m experiments.implicit_noise``."""

from experiments._frame.program import run_program
from experiments.implicit_noise.main import main

run_program(main)
