"""``python -m experiments.trajectories``."""

from experiments._frame.program import run_program
from experiments.trajectories.main import main

run_program(main)
