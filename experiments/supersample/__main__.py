"""``python -m experiments.supersample``."""

from experiments._frame.program import run_program
from experiments.supersample.main import main

run_program(main)
