"""``python -m experiments.prune_icl``."""

from experiments._frame.program import run_program
from experiments.prune_icl.main import main

run_program(main)
