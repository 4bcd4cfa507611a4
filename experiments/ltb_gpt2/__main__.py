"""``python -m experiments.ltb_gpt2``."""

from experiments._frame.program import run_program
from experiments.ltb_gpt2.main import main

run_program(main)
