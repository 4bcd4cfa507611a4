"""``python -m experiments.pattern_pruning``."""

from experiments._frame.program import run_program
from experiments.pattern_pruning.main import main

run_program(main)
