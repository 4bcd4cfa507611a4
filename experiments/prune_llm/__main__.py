"""``python -m experiments.prune_llm``."""

from experiments._frame.program import run_program
from experiments.prune_llm.main import main

run_program(main)
