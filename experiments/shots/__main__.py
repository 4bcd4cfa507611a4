"""``python -m experiments.shots``."""

from experiments._frame.program import run_program
from experiments.shots.main import main

run_program(main)
