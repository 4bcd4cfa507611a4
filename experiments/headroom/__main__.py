"""``python -m experiments.headroom``."""

from experiments._frame.program import run_program
from experiments.headroom.main import main

run_program(main)
