"""``python -m experiments.pattern_layers``."""

from experiments._frame.program import run_program
from experiments.pattern_layers.main import main

run_program(main)
