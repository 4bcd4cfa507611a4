"""``python -m experiments.pattern_icl``."""

from experiments._frame.program import run_program
from experiments.pattern_icl.main import main

run_program(main)
